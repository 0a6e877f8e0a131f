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
pub(crate) mod upstream_addresses;
mod walk;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use sheave_model::FrontendAddr;
use socket2::Socket;

use self::context::CLOSING;
use self::context::UdpContext;
use self::flow_table::EndedFlows;
use self::forward::forward_batch;
use self::frontend::{Link, ReplySocket, UdpFrontend, UdpFrontends};
use self::handover::OutgoingFlows;
use self::registry::{Progress, Source};
use self::reply::reply_batch;
use self::steered::SteeredUdp;
use self::walk::FlowWalk;
use crate::counters::UdpCounters;
use crate::listener::steering::frontends::SteeredFrontends;
use crate::worker::context::WorkerContext;
use crate::worker::steps::Step;
use crate::worker::token::Key;

/// All of UDP on one worker.
pub(crate) struct Udp {
    context: Rc<UdpContext>,
    frontends: UdpFrontends,
    /// The places of frontends with a socket of their own.
    own: HashMap<FrontendAddr, Key>,
    steered: SteeredUdp,
    /// Flows of frontends that are closed: they serve nobody, and their sockets are closed a few at a time.
    ended: VecDeque<EndedFlows<Link>>,
    walk: FlowWalk,
    /// Another process is taking over.
    paused: bool,
    outgoing: OutgoingFlows,
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
            ended: VecDeque::new(),
            walk: FlowWalk::new(worker.now(), worker.table_number()),
            paused: false,
            outgoing: Vec::new(),
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
        replaced.into_iter().for_each(|place| self.end(place));
    }

    /// Serves a socket of the steered frontends; `addr` is its own.
    pub(crate) fn steer(&mut self, addr: FrontendAddr, socket: Arc<Socket>) {
        if let Err(error) = self.steered.listen(addr, Arc::clone(&socket)) {
            self.context.worker.report_broken(addr, socket, error);
        }
    }

    /// Ends a frontend with its flows. Its own socket is closed at once, so that the kernel refuses clients with ICMP; those that still
    /// send do not reach an endpoint that may be another tenant's by now (kube-proxy does the same: `CleanStaleEntries` in
    /// pkg/proxy/conntrack/cleanup.go).
    pub(crate) fn close(&mut self, addr: FrontendAddr) {
        let serving = [self.own.remove(&addr), self.steered.remove(&mut self.frontends, addr)];
        serving.into_iter().flatten().for_each(|place| self.end(place));
    }

    fn end(&mut self, place: Key) {
        if let Some(frontend) = self.frontends.remove(place) {
            self.ended.push_back(frontend.end());
        }
    }

    /// Closes sockets of flows that have ended, until this turn has been long enough.
    fn close_ended(&mut self) {
        while !self.context.has_worked_enough()
            && let Some(flows) = self.ended.front_mut()
        {
            match flows.next() {
                Some(_) => self.context.add_work(CLOSING),
                None => drop(self.ended.pop_front()),
            }
        }
    }

    /// Opens no new flows and serves the others until they are quiet, for at most two seconds each.
    pub(crate) fn drain(&mut self) {
        self.steered.drain();
        self.frontends.iter_mut().for_each(|(_, frontend)| frontend.drain());
        self.walk.request(self.context.worker.now());
    }

    /// The worker has other settings. Open flows have the new times, too.
    pub(crate) fn settings_changed(&mut self) {
        let settings = self.context.worker.settings();
        self.context.budget.set_limit(settings.udp_flows);
        self.frontends.iter_mut().for_each(|(_, frontend)| frontend.timeouts_changed());
        self.walk.request(self.context.worker.now());
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
        let UdpContext { registry, sweeps, budget, worker, .. } = &*self.context;
        let walk = self.walk.due(worker.table_number()).filter(|_| !budget.is_unused());
        [registry.next_deadline(), sweeps.borrow().next(), walk].into_iter().flatten().min()
    }

    /// Whether some sockets are still to be read or closed, or flows to be looked at.
    pub(crate) fn has_work(&self) -> bool {
        let waiting = self.context.registry.has_ready() || !self.ended.is_empty() || self.walk.is_under_way();
        waiting && !self.paused
    }

    /// Reads sockets that have something, a batch of each in turn, until this turn has been long enough. Closes those of flows that have
    /// ended for as long.
    pub(crate) fn serve(&mut self) {
        if self.paused {
            return;
        }
        self.context.begin_work();
        self.close_ended();
        self.walk_on();
        self.context.begin_work();
        while !self.context.has_worked_enough()
            && let Some((key, source)) = self.context.registry.next_ready()
        {
            let progress = self.batch(&source);
            self.context.registry.put_back(key, progress);
        }
    }

    /// Has some flows know of what has changed, if that is due.
    fn walk_on(&mut self) {
        let Self { context, frontends, walk, .. } = self;
        let (now, grace) = (context.worker.now(), context.worker.timeouts().drain);
        let Some(places) = walk.places(now, context.worker.table_number()) else { return };
        let table = context.worker.table();
        let mut hastened = Vec::new();
        let more = context.registry.each_flow(places.clone(), |place, client| {
            let Some(frontend) = frontends.get_mut(place) else { return };
            let mut flows = frontend.flows.borrow_mut();
            flows.set_frontend(table.get(frontend.addr));
            if flows.hasten(client, now, grace) && hastened.last() != Some(&place) {
                hastened.push(place);
            }
        });
        drop(table);
        walk.passed(&places, more);
        for place in hastened {
            if let Some(frontend) = frontends.get_mut(place) {
                frontend.flows_changed();
            }
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
                self.steered.batch(&mut self.frontends, *own, socket)
            }
            Source::Frontend(place, socket) => {
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
