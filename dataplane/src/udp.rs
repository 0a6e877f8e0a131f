//! UDP on one worker. A frontend's datagrams arrive on a socket bound to its address. Each client has a flow, which is a socket
//! connected to one endpoint; the answers return through the frontend's socket. Datagrams of steered frontends arrive on a socket that
//! they share.
//!
//! A datagram passes these modules: `registry` queues the socket that it arrived on, `forward` sorts by client, `flow_table` routes,
//! `batch` sends. Answers return through `reply` and `batch`. All flows of one frontend on one worker stay on that worker's thread.

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

/// UDP proxy of one worker.
pub(crate) struct Udp {
    context: Rc<UdpContext>,
    frontends: UdpFrontends,
    /// Keys of frontends with their own socket.
    own: HashMap<FrontendAddr, Key>,
    steered: SteeredUdp,
    /// Flows of closed frontends. They forward nothing, and their sockets are closed a few at a time.
    ended: VecDeque<EndedFlows<Link>>,
    walk: FlowWalk,
    /// Whether another process is taking over.
    paused: bool,
    outgoing: OutgoingFlows,
}

impl Udp {
    /// Creates a proxy without frontends.
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
                self.context.worker.report_broken(addr, Some(socket), error);
                Some(place)
            }
            Some(Ok(())) | None => self.own.insert(addr, place),
        };
        replaced.into_iter().for_each(|place| self.end(place));
    }

    /// Serves a socket that steered frontends share; `addr` is the socket's own address.
    pub(crate) fn steer(&mut self, addr: FrontendAddr, socket: Arc<Socket>) {
        if let Err(error) = self.steered.listen(addr, Arc::clone(&socket)) {
            self.context.worker.report_broken(addr, Some(socket), error);
        }
    }

    /// Counts the flows of a frontend, which belongs to another Service, with these counters: new ones from now on, and each other one from
    /// its next datagram on.
    pub(crate) fn count_with(&mut self, addr: FrontendAddr, counters: &Arc<UdpCounters>) {
        // The table with the new owner.
        self.context.worker.refresh_table();
        for place in self.own.get(&addr).copied().into_iter().chain(self.steered.known(addr)) {
            if let Some(frontend) = self.frontends.get_mut(place) {
                frontend.count_with(counters);
            }
        }
    }

    /// Ends a frontend with its flows. Its own socket is closed at once, so that the kernel refuses clients with ICMP. The flows end,
    /// too, since the endpoint's address may already belong to another tenant (kube-proxy does the same: `CleanStaleEntries` in
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

    /// Closes sockets of ended flows, within the budget of the turn.
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

    /// Stops opening flows, and serves the others until each has been idle, for at most two seconds.
    pub(crate) fn drain(&mut self) {
        self.steered.drain();
        self.frontends.iter_mut().for_each(|(_, frontend)| frontend.drain());
        self.walk.request(self.context.worker.now());
    }

    /// Applies the worker's new settings, to open flows as well.
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

    pub(crate) fn on_socket(&mut self, key: Key) {
        self.context.registry.on_socket(key);
    }

    /// Handles the deadlines that are due by `now`, within the budget of the turn.
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

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.paused {
            return None;
        }
        let UdpContext { registry, sweeps, budget, worker, .. } = &*self.context;
        let walk = self.walk.due(worker.table_number()).filter(|_| !budget.is_unused());
        [registry.next_deadline(), sweeps.borrow().next(), walk].into_iter().flatten().min()
    }

    /// Whether sockets wait to be read or closed, or a walk over the flows is under way.
    pub(crate) fn has_work(&self) -> bool {
        let waiting = self.context.registry.has_ready() || !self.ended.is_empty() || self.walk.is_under_way();
        waiting && !self.paused
    }

    /// Reads ready sockets in turn, a batch from each, within the budget of the turn. Before that, closes sockets of ended flows within
    /// the same amount of work, and takes the next step of the walk over flows.
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

    /// Applies changes of the table to some flows, if a walk is due.
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

    /// Adds the traffic of the flows in these slots to a watch. Returns whether there are slots beyond them.
    pub(crate) fn collect(&mut self, places: Range<usize>) -> bool {
        let Self { context, frontends, .. } = self;
        context.registry.each_flow(places, |place, client| {
            if let Some(frontend) = frontends.get_mut(place) {
                frontend.flows.borrow_mut().collect(client);
            }
        })
    }

    /// Receives one batch and forwards it.
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
