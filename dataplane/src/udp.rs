//! UDP on one worker. A frontend's datagrams arrive on a socket bound to its address; each client's go through a flow, which is a
//! socket connected to one endpoint, and the answers return through the frontend's socket. Datagrams of steered frontends arrive on a
//! socket that they share.
//!
//! The way of a datagram: `registry` queues the socket that it has come to, `forward` sorts by client, `flow_table` decides, `batch`
//! sends; back through `reply` and `batch`. Everything of one frontend on one worker stays on that worker's thread.

mod batch;
mod context;
mod flow_table;
mod forward;
mod frontend;
mod handover;
mod link;
pub(crate) mod local_ports;
mod registry;
mod reply;
mod sockets;
mod steered;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use sheave_model::FrontendAddr;
use socket2::Socket;

use self::context::UdpContext;
use self::flow_table::FlowOwner;
use self::forward::forward_batch;
use self::frontend::{ReplySocket, UdpFrontend, UdpFrontends};
use self::handover::OutgoingFlows;
use self::local_ports::PortLease;
use self::registry::{Progress, Source};
use self::reply::reply_batch;
use self::steered::SteeredUdp;
use crate::counters::UdpCounters;
use crate::listener::steering::frontends::SteeredFrontends;
use crate::worker::context::WorkerContext;
use crate::worker::deadlines::Deadlines;
use crate::worker::steps::Step;
use crate::worker::token::Key;

/// All of UDP on one worker.
pub(crate) struct Udp {
    context: Rc<UdpContext>,
    frontends: UdpFrontends,
    /// The places of frontends with a socket of their own.
    own: HashMap<FrontendAddr, Key>,
    steered: SteeredUdp,
    /// UdpFrontends that take nothing new, but still have flows.
    retired: Vec<Key>,
    /// Another process is taking over.
    paused: bool,
    outgoing: OutgoingFlows,
    /// Ports that the process uses that was there before, until then at most.
    barred: VecDeque<(Instant, Vec<PortLease>)>,
    /// When retired frontends end that have left the table.
    removed: Deadlines<Key>,
}

impl Udp {
    /// Serves nothing yet.
    pub(crate) fn new(worker: &Rc<WorkerContext>, steered: Arc<SteeredFrontends>) -> Self {
        let context = UdpContext::new(worker);
        let steered = SteeredUdp::new(steered, &context);
        Self {
            context,
            frontends: UdpFrontends::default(),
            own: HashMap::new(),
            steered,
            retired: Vec::new(),
            paused: false,
            outgoing: Vec::new(),
            barred: VecDeque::new(),
            removed: Deadlines::new(worker.timeouts().drain),
        }
    }

    /// Serves a frontend on `socket`, which is bound to its address and nonblocking.
    pub(crate) fn listen(&mut self, addr: FrontendAddr, socket: Arc<Socket>, counters: Arc<UdpCounters>) {
        let place = self.frontends.insert_with(|place| {
            UdpFrontend::new(&self.context, place, addr, counters, ReplySocket::Listening)
        });
        let listening = self.frontends.get_mut(place).map(|frontend| frontend.listen(Arc::clone(&socket)));
        let replaced = match listening {
            Some(Err(error)) => {
                self.context.worker.report_broken(addr, socket, error);
                Some(place)
            }
            Some(Ok(())) | None => self.own.insert(addr, place),
        };
        replaced.map(|place| self.frontends.remove(place));
    }

    /// Serves a socket of the steered frontends; `addr` is its own.
    pub(crate) fn steer(&mut self, addr: FrontendAddr, socket: Arc<Socket>) {
        if let Err(error) = self.steered.listen(addr, Arc::clone(&socket)) {
            self.context.worker.report_broken(addr, socket, error);
        }
    }

    /// Ends a frontend: closes its sockets and ends its flows.
    pub(crate) fn close(&mut self, addr: FrontendAddr) {
        let serving = [self.own.remove(&addr), self.steered.remove(addr)];
        serving.into_iter().flatten().for_each(|place| drop(self.frontends.remove(place)));
        self.end_retired(|frontend| frontend.addr == addr);
    }

    /// Takes nothing new on a frontend. Its own socket is closed, so that the kernel refuses strangers with ICMP; each flow goes on
    /// through a socket connected to its client, until it is idle. A flow for which none can be made ends. If endpoints come back,
    /// new clients need a new listener; the two stand side by side.
    pub(crate) fn retire(&mut self, addr: FrontendAddr) {
        self.end_retired(|frontend| frontend.flows() == 0);
        let (own, steered) = (self.own.remove(&addr), self.steered.remove(addr));
        for place in own.into_iter().chain(steered) {
            let Some(frontend) = self.frontends.get_mut(place).cloned() else { continue };
            self.retired.push(place);
            let client_side = frontend.retire();
            if steered == Some(place) {
                drop(client_side);
                self.steered.empty(&mut self.frontends, &frontend);
            } else if let Some(listening) = client_side {
                registry::drain(|| forward_batch(&frontend, &listening.socket));
            }
            reply::send_last(&self.context);
            frontend.flows_changed();
        }
    }

    /// The frontend has left the table: as [`retire`](Self::retire), but flows that are left after the time of a drain end, unless
    /// something serves at the address again by then.
    pub(crate) fn remove(&mut self, addr: FrontendAddr) {
        self.retire(addr);
        self.end_retired(|frontend| frontend.flows() == 0);
        let worker = &self.context.worker;
        for place in &self.retired {
            if self.frontends.get_mut(*place).is_some_and(|frontend| frontend.addr == addr) {
                self.removed.push(worker.now(), worker.timeouts().drain, *place);
            }
        }
    }

    fn end_retired(&mut self, is_over: impl Fn(&UdpFrontend) -> bool) {
        self.retired.retain(|place| {
            let over = self.frontends.get_mut(*place).is_none_or(|frontend| is_over(frontend));
            if over {
                self.frontends.remove(*place);
            }
            !over
        });
    }

    /// Opens no new flows and serves the others until they are quiet, for at most two seconds each.
    pub(crate) fn drain(&mut self) {
        self.steered.drain();
        self.frontends.iter_mut().for_each(|(_, frontend)| frontend.drain());
    }

    /// The worker has other settings. Open flows have the new times, too.
    pub(crate) fn settings_changed(&mut self) {
        let settings = self.context.worker.settings();
        self.context.budget.set_limit(settings.udp_flows);
        self.removed.set_usual(settings.timeouts.drain);
        self.frontends.iter_mut().for_each(|(_, frontend)| frontend.timeouts_changed());
    }

    /// Whether no flow is left.
    pub(crate) fn is_drained(&self) -> bool {
        self.context.budget.is_unused()
    }

    /// A socket has something.
    pub(crate) fn on_socket(&mut self, key: Key) {
        self.context.registry.on_socket(key);
    }

    /// Does what is due by `now`, or the first part of it.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.paused {
            return;
        }
        self.context.registry.on_time(now);
        while self.barred.pop_front_if(|(until, _)| *until <= now).is_some() {}
        let worker = Rc::clone(&self.context.worker);
        while let Some((_, place)) = self.removed.pop(now) {
            let is_gone = |frontend: &UdpFrontend| worker.table().get(frontend.addr).is_none();
            self.end_retired(|frontend| frontend.place == place && is_gone(frontend));
        }
        self.context.begin_work();
        let next = || self.context.sweeps.borrow_mut().pop(now);
        while !self.context.has_worked_enough()
            && let Some((due, place)) = next()
        {
            if let Some(frontend) = self.frontends.get_mut(place) {
                frontend.sweep(due);
            }
        }
    }

    /// When something is due next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.paused {
            return None;
        }
        let (resting, sweep) = (self.context.registry.next_deadline(), self.context.sweeps.borrow().next());
        let barred = self.barred.front().map(|(until, _)| *until);
        [resting, sweep, self.removed.next(), barred].into_iter().flatten().min()
    }

    /// Whether some sockets are still to be read.
    pub(crate) fn has_work(&self) -> bool {
        !self.paused && self.context.registry.has_ready()
    }

    /// Reads sockets that have something, a batch of each in turn, until this turn has been long enough.
    pub(crate) fn serve(&mut self) {
        self.context.begin_work();
        while self.has_work()
            && !self.context.has_worked_enough()
            && let Some((key, source)) = self.context.registry.next_ready()
        {
            let progress = self.batch(&source);
            self.context.registry.put_back(key, progress);
        }
    }

    /// Has a watch know what the flows in these places have. Says whether there are places behind them.
    pub(crate) fn collect(&mut self, places: Range<usize>) -> bool {
        let Self { context, frontends, .. } = self;
        context.registry.each_flow(places, |place, client| {
            if let Some(frontend) = frontends.get_mut(place) {
                frontend.flows.borrow_mut().collect(client);
            }
        })
    }

    /// Receives one batch and sends it on.
    fn batch(&mut self, source: &Source) -> Progress {
        let progress = match source {
            Source::Inlet(own, socket) => {
                self.context.worker.steps.begin(Step::Datagrams, None);
                self.steered.batch(&mut self.frontends, *own, socket, None)
            }
            Source::Frontend(place, socket) | Source::Client(place, socket) => {
                self.with_frontend(*place, |frontend| forward_batch(frontend, socket))
            }
            Source::Endpoint(place, client, upstream) => {
                self.with_frontend(*place, |frontend| reply_batch(frontend, *client, upstream))
            }
        };
        reply::send_last(&self.context);
        progress
    }

    fn with_frontend(&mut self, place: Key, batch: impl FnOnce(&Rc<UdpFrontend>) -> Progress) -> Progress {
        let Some(frontend) = self.frontends.get_mut(place) else { return Progress::Drained };
        self.context.worker.steps.begin(Step::Datagrams, Some(frontend.addr));
        batch(frontend)
    }
}

#[cfg(test)]
mod tests;
