//! The loop of one worker: wait for events, give each to who it is for, and let everyone do a bounded part of its work.
//!
//! A turn is short, so that accept, TCP and UDP never wait for each other's floods: whoever has more to do has it in the next one,
//! before which the kernel is asked for events without waiting.

use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::oneshot;

use super::command::Command;
#[cfg(test)]
use super::context::Timeouts;
use super::context::{Shared, WorkerContext};
use super::standstill::Standstill;
use super::steps::Step;
use super::token::Token;
use crate::client_traffic::{ClientTraffic, WatchRequest};
use crate::listener::steering::frontends::SteeredFrontends;
use crate::sys::epoll::{Alarm, Events};
use crate::tcp::{PipeBudget, Tcp};
use crate::udp::Udp;
use sheave_model::Protocol;

/// Commands that are executed in a turn: a start opens thousands of frontends.
const COMMANDS: usize = 256;

/// Connections of other workers that are adopted in a turn.
const ADOPTED: usize = 256;

/// Flows in one answer to the process that takes over: as many descriptors as the kernel passes in one message, at most
/// (`SCM_MAX_FD` in include/net/scm.h is 253).
const HANDED: usize = 128;

/// Connections, and flows, that a walk for a watch looks at in a turn: some tenths of a millisecond.
const COLLECTED: usize = 1024;

/// What a worker is started with.
#[derive(Clone)]
pub(crate) struct WorkerSeed {
    pub(crate) index: usize,
    pub(crate) shared: Shared,
    pub(crate) pipes: PipeBudget,
    pub(crate) random: u64,
    pub(crate) steered: Arc<SteeredFrontends>,
    /// It serves nothing before it is told to.
    pub(crate) held: bool,
}

#[cfg(test)]
impl WorkerSeed {
    /// The only worker, with room for one flow.
    pub(crate) fn for_tests(timeouts: Timeouts) -> Self {
        Self {
            index: 0,
            shared: Shared::for_tests(timeouts),
            pipes: PipeBudget { pipes: 8, slots: usize::MAX },
            random: 1,
            steered: Arc::default(),
            held: false,
        }
    }
}

/// What runs on a worker's thread.
pub(super) struct EventLoop {
    context: Rc<WorkerContext>,
    tcp: Tcp,
    udp: Udp,
    commands: UnboundedReceiver<Command>,
    events: Events,
    alarm: Alarm,
    /// There may be commands.
    notified: bool,
    /// Until when to look for events before the thread may sleep, since waking it takes longer than looking.
    busy_until: Instant,
    /// What is due waits until the last one is over.
    standstill: Standstill,
    /// A walk over all that is open, and where it goes on.
    walk: Option<(usize, Sender<ClientTraffic>)>,
    /// To be told when the last connection and flow have ended.
    drained: Option<oneshot::Sender<()>>,
    /// Until another process has let go of the sockets.
    held: bool,
}

impl EventLoop {
    /// Serves nothing yet.
    ///
    /// # Errors
    /// If the epoll instance cannot be made.
    pub(super) fn new(seed: WorkerSeed, commands: UnboundedReceiver<Command>) -> io::Result<Self> {
        let WorkerSeed { index, shared, pipes, random, steered, held } = seed;
        let context = WorkerContext::new(shared, index, random)?;
        let event_loop = Self {
            tcp: Tcp::new(&context, pipes, Arc::clone(&steered)),
            udp: Udp::new(&context, steered),
            alarm: Alarm::new(&context.poller, Token::Alarm.into())?,
            context,
            commands,
            events: Events::new(),
            // What was sent before the worker could be woken.
            notified: true,
            busy_until: Instant::now(),
            standstill: Standstill::new(Instant::now()),
            walk: None,
            drained: None,
            held,
        };
        event_loop.context.port().begin();
        Ok(event_loop)
    }

    /// Serves until the owner lets go of the worker.
    ///
    /// # Errors
    /// As epoll_wait(2) and timerfd_settime(2), which nothing helps against.
    pub(super) fn run(mut self) -> io::Result<()> {
        if self.hold().is_break() {
            return Ok(());
        }
        let mut now = Instant::now();
        loop {
            // The moment when the turn began is exact enough: turns are short.
            let sleep = !self.has_work(now);
            let due = if sleep { self.next_turn(now) } else { Some(now) };
            if sleep && let Some(due) = due {
                self.alarm.ring_by(now, due)?;
            }
            self.context.steps.begin(Step::Waiting, None);
            self.context.poller.wait(&mut self.events, sleep)?;
            now = Instant::now();
            self.standstill.begin_turn(now, due);
            if self.turn(now).is_break() {
                return Ok(());
            }
        }
    }

    /// Executes commands, and no more than that, until one says to serve: all flows are there before the first datagram is read.
    fn hold(&mut self) -> ControlFlow<()> {
        while self.held {
            let Some(command) = self.commands.blocking_recv() else { return ControlFlow::Break(()) };
            self.context.begin_turn(Instant::now());
            self.execute(command);
            self.context.steps.begin(Step::Waiting, None);
        }
        ControlFlow::Continue(())
    }

    /// Whether there is more to do at once, or soon in all likelihood.
    fn has_work(&self, now: Instant) -> bool {
        let has_work = self.notified || self.walk.is_some() || self.tcp.has_work() || self.udp.has_work();
        has_work || now < self.busy_until
    }

    /// When something is due, after a turn that began at `last`.
    fn next_turn(&mut self, last: Instant) -> Option<Instant> {
        let due = [self.tcp.next_deadline(), self.udp.next_deadline()].into_iter().flatten().min();
        due.map(|due| self.standstill.next_turn(last, due))
    }

    /// Handles the events that were waited for, and what is due by `now`.
    fn turn(&mut self, now: Instant) -> ControlFlow<()> {
        self.context.begin_turn(now);
        let mut tcp = false;
        for (token, readiness) in self.events.iter() {
            let token = Token::from(token);
            self.context.steps.begin(Step::Event, None);
            tcp |= matches!(token, Token::TcpListener(_) | Token::Client(_) | Token::Endpoint(_));
            match token {
                Token::Waker => self.notified = true,
                Token::Alarm => self.alarm.rang(),
                Token::TcpListener(key) => self.tcp.on_listener(key),
                Token::Client(key) => self.tcp.on_client(key, readiness),
                Token::Endpoint(key) => self.tcp.on_endpoint(key, readiness),
                Token::UdpSocket(key) => self.udp.on_socket(key),
            }
        }
        let busy_poll = self.context.settings().busy_poll;
        if tcp && !busy_poll.is_zero() {
            self.busy_until = now + busy_poll;
        }
        if self.standstill.is_over(now) {
            self.context.steps.begin(Step::Deadlines, None);
            self.tcp.on_time(now);
            self.udp.on_time(now);
        }
        self.tcp.serve();
        self.udp.serve();
        self.walk_on();
        // Last, so that who is answered knows that everything before was done.
        if std::mem::take(&mut self.notified) {
            self.on_notified()?;
        }
        self.finish_drain();
        ControlFlow::Continue(())
    }

    /// Executes commands, adopts connections, gives back memory: what others wake the worker for.
    fn on_notified(&mut self) -> ControlFlow<()> {
        let port = self.context.port();
        if port.takes_relief() {
            self.tcp.relieve_memory();
        }
        match self.context.shared.watch_requests.take(self.context.index) {
            Some(WatchRequest::Walk { watch, reply }) => {
                self.context.tally.begin(watch);
                self.walk = Some((0, reply));
            }
            Some(WatchRequest::End { watch }) => self.context.tally.end(watch),
            None => {}
        }
        let handed_on = port.take(ADOPTED);
        self.notified = handed_on.len() == ADOPTED;
        // They may be to frontends that came in this turn.
        self.context.refresh_table();
        self.tcp.adopt(handed_on);
        for _ in 0..COMMANDS {
            match self.commands.try_recv() {
                Ok(command) => self.execute(command),
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(TryRecvError::Disconnected) => return ControlFlow::Break(()),
            }
        }
        self.notified = true;
        ControlFlow::Continue(())
    }

    /// Has a watch know what a part of all that is open has, and all when that was the last part.
    fn walk_on(&mut self) {
        let Some((first, reply)) = self.walk.take() else { return };
        self.context.steps.begin(Step::Watch, None);
        let places = first..first + COLLECTED;
        let more = [self.tcp.collect(places.clone()), self.udp.collect(places.clone())];
        if more.contains(&true) {
            self.walk = Some((places.end, reply));
        } else if let Some(traffic) = self.context.tally.take() {
            // Nobody may watch any more.
            reply.send(traffic).ok();
        }
    }

    fn execute(&mut self, command: Command) {
        let (step, frontend) = command.step();
        self.context.steps.begin(step, frontend);
        match command {
            Command::ListenTcp { addr, socket, counters } => self.tcp.listen(addr, socket, counters),
            Command::ListenUdp { addr, socket, counters } => self.udp.listen(addr, socket, counters),
            Command::Close(addr) => match addr.protocol {
                Protocol::Tcp => self.tcp.close(addr),
                Protocol::Udp => self.udp.close(addr),
            },
            Command::Remove(addr) => match addr.protocol {
                Protocol::Tcp => self.tcp.remove(addr),
                Protocol::Udp => self.udp.close(addr),
            },
            Command::Steer { addr, socket } => match addr.protocol {
                Protocol::Tcp => self.tcp.steer(addr, socket),
                Protocol::Udp => self.udp.steer(addr, socket),
            },
            Command::Configure(settings) => {
                self.context.set_settings(settings);
                self.tcp.settings_changed();
                self.udp.settings_changed();
            }
            Command::Serve => self.held = false,
            Command::Pause(reply) => {
                self.tcp.pause();
                self.udp.pause();
                reply.send(()).ok();
            }
            Command::HandOver(reply) => drop(reply.send(self.udp.hand_over(HANDED))),
            Command::TakeOver(flows) => self.udp.take_over(flows),
            Command::Resume => {
                self.tcp.resume();
                self.udp.resume();
            }
            Command::Leave => {
                self.tcp.leave();
                self.udp.leave();
            }
            // The receiver may have given up waiting.
            Command::Ping(reply) => drop(reply.send(())),
            #[cfg(test)]
            Command::Panic => panic!("on command"),
            Command::Drain(reply) => {
                self.tcp.drain();
                self.udp.drain();
                self.drained = Some(reply);
            }
        }
    }

    fn finish_drain(&mut self) {
        if self.drained.is_some()
            && self.context.port().is_drained()
            && self.udp.is_drained()
            && let Some(reply) = self.drained.take()
        {
            // The receiver may have given up waiting.
            reply.send(()).ok();
        }
    }
}

/// Also by a panic: closing alone would make half an answer look like a whole one.
impl Drop for EventLoop {
    fn drop(&mut self) {
        self.tcp.end_all();
        self.context.port().end();
        self.context.steps.begin(Step::Waiting, None);
    }
}
