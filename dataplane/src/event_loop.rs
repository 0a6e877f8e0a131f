//! Event loop of one worker, an OS thread with its own sockets and buffers: waits for events, dispatches each, and lets TCP and UDP do a
//! bounded part of their work. A worker serves a connection that it accepted to the end, unless it hands the new connection to a worker with
//! clearly fewer.
//!
//! A turn is short, so that accept, TCP and UDP do not wait for each other's floods. Work that is left over continues in the next
//! turn, which polls the kernel for events without waiting.

pub(crate) mod pool;
mod standstill;
pub(crate) mod watchdog;

use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::oneshot;

use crate::client_traffic::{ClientTraffic, WatchRequest};
use crate::listener::steering::frontends::SteeredFrontends;
use crate::sys::epoll::{Alarm, Events};
use crate::tcp::{PipeBudget, Tcp};
use crate::udp::Udp;
use crate::worker::Command;
#[cfg(test)]
use crate::worker::context::Timeouts;
use crate::worker::context::{Shared, WorkerContext};
use crate::worker::steps::Step;
use crate::worker::token::Token;
use sheave_model::Protocol;
use standstill::Standstill;

/// Maximum number of commands executed per turn: at start, thousands of frontends are opened.
const COMMANDS: usize = 256;

/// Maximum number of connections adopted from other workers per turn.
const ADOPTED: usize = 256;

/// Maximum number of flows in one reply to the process that takes over: their descriptors must fit one message of the kernel
/// (`SCM_MAX_FD` in include/net/scm.h is 253).
const HANDED: usize = 128;

/// Number of connections, and of flows, that a walk for a watch visits per turn: some tenths of a millisecond.
const COLLECTED: usize = 1024;

/// Parameters that a worker starts with.
#[derive(Clone)]
pub(crate) struct WorkerSeed {
    pub(crate) index: usize,
    pub(crate) shared: Shared,
    pub(crate) pipes: PipeBudget,
    pub(crate) random: u64,
    pub(crate) steered: Arc<SteeredFrontends>,
    /// The worker serves nothing before [`Command::Serve`].
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

/// State of a worker's thread.
struct EventLoop {
    context: Rc<WorkerContext>,
    tcp: Tcp,
    udp: Udp,
    commands: UnboundedReceiver<Command>,
    events: Events,
    alarm: Alarm,
    /// Whether commands may be waiting.
    notified: bool,
    /// Until when the thread polls instead of sleeping, since a wake-up takes longer than a poll.
    busy_until: Instant,
    /// Defers deadlines after the thread was stopped.
    standstill: Standstill,
    /// Walk over all connections and flows for a watch: where it continues, and where the result goes.
    walk: Option<(usize, Sender<ClientTraffic>)>,
    /// Completed when the last connection and flow have ended.
    drained: Option<oneshot::Sender<()>>,
    /// Whether another process still holds the sockets.
    held: bool,
}

impl EventLoop {
    /// Creates a loop that serves nothing yet.
    ///
    /// # Errors
    /// Returns an error if the epoll instance cannot be created.
    fn new(seed: WorkerSeed, commands: UnboundedReceiver<Command>) -> io::Result<Self> {
        let WorkerSeed { index, shared, pipes, random, steered, held } = seed;
        let context = WorkerContext::new(shared, index, random)?;
        let event_loop = Self {
            tcp: Tcp::new(&context, pipes, Arc::clone(&steered)),
            udp: Udp::new(&context, steered),
            alarm: Alarm::new(&context.poller, Token::Alarm.into())?,
            context,
            commands,
            events: Events::new(),
            // Commands may have been sent before the worker could be woken.
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

    /// Serves until the owner drops the worker's handle.
    ///
    /// # Errors
    /// Returns an error if epoll_wait(2) or timerfd_settime(2) fails; the worker cannot continue then.
    fn run(mut self) -> io::Result<()> {
        if self.hold().is_break() {
            return Ok(());
        }
        let mut now = Instant::now();
        loop {
            // The start of the last turn is exact enough: turns are short.
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

    /// Only executes commands until [`Command::Serve`]: all flows are restored before the first datagram is read.
    fn hold(&mut self) -> ControlFlow<()> {
        while self.held {
            let Some(command) = self.commands.blocking_recv() else { return ControlFlow::Break(()) };
            self.context.begin_turn(Instant::now());
            self.execute(command);
            self.context.steps.begin(Step::Waiting, None);
        }
        ControlFlow::Continue(())
    }

    /// Whether there is more to do now, or may be soon because of busy polling.
    fn has_work(&self, now: Instant) -> bool {
        let has_work = self.notified || self.walk.is_some() || self.tcp.has_work() || self.udp.has_work();
        has_work || now < self.busy_until
    }

    /// Time of the next deadline, after a turn that began at `last`.
    fn next_turn(&mut self, last: Instant) -> Option<Instant> {
        let due = [self.tcp.next_deadline(), self.udp.next_deadline()].into_iter().flatten().min();
        due.map(|due| self.standstill.next_turn(last, due))
    }

    /// Handles the events of the last wait, and the deadlines that are due by `now`.
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
        // Last, so that a reply confirms that everything before it was done.
        if std::mem::take(&mut self.notified) {
            self.on_notified()?;
        }
        self.finish_drain();
        ControlFlow::Continue(())
    }

    /// Handles what other threads wake the worker for: commands, connections to adopt, memory to release, watches.
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
        // The connections may be to frontends that were added during this turn.
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

    /// Collects the next part of all connections and flows for a watch, and replies after the last part.
    fn walk_on(&mut self) {
        let Some((first, reply)) = self.walk.take() else { return };
        self.context.steps.begin(Step::Watch, None);
        let places = first..first + COLLECTED;
        let more = [self.tcp.collect(places.clone()), self.udp.collect(places.clone())];
        if more.contains(&true) {
            self.walk = Some((places.end, reply));
        } else if let Some(traffic) = self.context.tally.take() {
            // The watch may have ended.
            reply.send(traffic).ok();
        }
    }

    fn execute(&mut self, command: Command) {
        let (step, frontend) = command.step();
        self.context.steps.begin(step, frontend);
        match command {
            Command::ListenTcp { addr, socket, counters } => self.tcp.listen(addr, socket, counters),
            Command::ListenUdp { addr, socket, counters } => self.udp.listen(addr, socket, counters),
            Command::CountTcp { addr, counters } => self.tcp.count_with(addr, counters),
            Command::CountUdp { addr, counters } => self.udp.count_with(addr, &counters),
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
            // The receiver may have given up.
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
            // The receiver may have given up.
            reply.send(()).ok();
        }
    }
}

/// Also runs on a panic: sockets that merely close would make half a response look complete.
impl Drop for EventLoop {
    fn drop(&mut self) {
        self.tcp.end_all();
        self.context.port().end();
        self.context.steps.begin(Step::Waiting, None);
    }
}

#[cfg(test)]
mod tests;
