//! Flow table of one frontend on one worker: which client's datagrams go to which endpoint, until when, and when that is decided
//! again. It has no sockets (a flow's [`Links::Link`] is whatever the caller keeps for it) and no clock, so that all of it can be
//! simulated.

mod budget;
mod expiry;
mod flow;
mod routing;
mod silence;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::budget::Slot;
pub(super) use self::budget::{FlowBudget, FlowOwner};
use self::expiry::{BUSY, Queues};
pub(super) use self::flow::Flow;
use self::routing::{Decision, forwarded};
use self::silence::Silence;
use crate::client_traffic::Meter;
use crate::counters::ShedReason;
use crate::counters::{DropReason, UdpCounters};
use crate::limits::service::Permit;
use crate::select::affinity::AffinityTable;
use crate::select::{ActiveFrontend, ActiveTable};
use crate::splitmix64::SplitMix64;
use crate::upstream_addresses::UpstreamAddresses;
use sheave_model::{ClientAddr, ClientSource, EndpointAddr, FrontendAddr, Protocol};

/// Path from a client to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The client whose datagrams take the path.
    pub(super) client: ClientAddr,
    /// The endpoint that receives them.
    pub(super) endpoint: EndpointAddr,
    /// Source address that the endpoint is to see.
    pub(super) source: ClientSource,
}

/// Opens the links of flows to their endpoints.
pub(super) trait Links {
    /// Resource kept for each flow; dropping it closes the path.
    type Link;

    /// Opens `way`. `previous` is the flow's current link if the flow only changes its endpoint. The caller drops it on success and
    /// keeps it on failure.
    fn open(&mut self, way: &Way, previous: Option<&Self::Link>) -> io::Result<Self::Link>;
}

/// Inputs of routing besides the flow table; the same for a whole batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) table: &'a ActiveTable,
    pub(super) affinity: &'a AffinityTable,
    pub(super) upstream_addresses: &'a UpstreamAddresses,
    pub(super) random: &'a SplitMix64,
    pub(super) now: Instant,
}

/// A flow of the previous process, without its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FormerFlow {
    pub(super) client: ClientAddr,
    pub(super) endpoint: EndpointAddr,
    pub(super) source: ClientSource,
    /// When a datagram last passed.
    pub(super) touched: Instant,
    /// Whether the endpoint has answered.
    pub(super) answered: bool,
    /// Whether the endpoint was reported unreachable since.
    pub(super) suspect: bool,
}

/// Idle timeouts of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowTimeouts {
    /// Time without a datagram in either direction, once an endpoint has answered.
    pub(super) idle: Duration,
    /// Time without a datagram in either direction before an endpoint's first answer.
    pub(super) unanswered: Duration,
}

/// Flows that were removed from their table.
pub(super) type EndedFlows<L> = std::collections::hash_map::IntoIter<ClientAddr, Flow<L>>;

/// Flows of one frontend.
pub(super) struct FlowTable<L> {
    flows: HashMap<ClientAddr, Flow<L>, foldhash::fast::RandomState>,
    /// Checks of flows for idleness: one live entry per flow.
    queues: Queues,
    /// Frontend that the flows were last checked against. It is kept so that its address cannot be reused by another frontend.
    frontend: Option<Arc<ActiveFrontend>>,
    /// Grows each time that `frontend` is replaced.
    revision: u64,
    /// The gateway's timeouts, for a frontend without its own.
    timeouts: FlowTimeouts,
    idle: Duration,
    /// Upper bound of every flow's idle timeout, including the frontend's own.
    longest_idle: Duration,
    accepting: bool,
    budget: Rc<FlowBudget>,
    /// The frontend, as the budget knows it.
    owner: Weak<dyn FlowOwner>,
    counters: Arc<UdpCounters>,
    /// Endpoint of a flow that has just been found silent.
    silent: Option<EndpointAddr>,
}

impl<L> FlowTable<L> {
    /// Creates an empty table that accepts flows.
    pub(super) fn new(
        timeouts: FlowTimeouts,
        budget: Rc<FlowBudget>,
        owner: Weak<dyn FlowOwner>,
        counters: Arc<UdpCounters>,
    ) -> Self {
        Self {
            flows: HashMap::default(),
            queues: Queues::default(),
            frontend: None,
            revision: 0,
            timeouts,
            idle: timeouts.idle,
            longest_idle: Duration::MAX,
            accepting: true,
            budget,
            owner,
            counters,
            silent: None,
        }
    }

    /// Sets the current frontend; `None` if it has left the table. Flows are not touched: each is checked on its next datagram, or
    /// by [`hasten`](Self::hasten).
    pub(super) fn set_frontend(&mut self, frontend: Option<&Arc<ActiveFrontend>>) {
        if self.frontend.as_ref().map(Arc::as_ptr) != frontend.map(Arc::as_ptr) {
            self.frontend = frontend.cloned();
            self.revision += 1;
            self.set_idle();
        }
    }

    /// Sets the counters of another Service to which the frontend belongs now. Each flow counts for that one from its next datagram on.
    pub(super) fn set_counters(&mut self, counters: Arc<UdpCounters>) {
        self.counters = counters;
        self.revision += 1;
    }

    /// Sets the gateway's timeouts. Flows are checked as described for [`set_frontend`](Self::set_frontend).
    pub(super) fn set_timeouts(&mut self, timeouts: FlowTimeouts) {
        self.timeouts = timeouts;
        self.set_idle();
    }

    fn set_idle(&mut self) {
        let own = self.frontend.as_ref().and_then(|frontend| frontend.spec().timeouts.idle);
        self.idle = own.unwrap_or(self.timeouts.idle).min(self.longest_idle);
    }

    /// Routes a client's datagrams: to its flow, to its flow with another endpoint, or to a new flow.
    ///
    /// A flow leaves its endpoint if the frontend changed and the endpoint no longer serves or is unhealthy, or if the endpoint was
    /// reported unreachable. It ends if its endpoint no longer serves and there is no other (kube-proxy clears stale flows by the
    /// same rules: pkg/proxy/conntrack/cleanup.go). If the frontend's client source changed, the flow stays with its endpoint and
    /// its link is opened again.
    pub(super) fn route<K: Links<Link = L>>(
        &mut self,
        client: ClientAddr,
        view: &View<'_>,
        links: &mut K,
    ) -> Result<&mut Flow<L>, DropReason> {
        let (mut prepared, count, patience) = (None, self.flows.len(), self.patience(false));
        if self.budget.room(&self.counters).is_err() && self.accepting && !self.flows.contains_key(&client) {
            prepared = Some(self.exchange(client, view)?);
        }
        let decision = Decision {
            frontend: self.frontend.as_deref(),
            revision: self.revision,
            client,
            view,
            counters: &self.counters,
        };
        match self.flows.entry(client) {
            Entry::Occupied(mut entry) => {
                let flow = entry.get_mut();
                if let Some(frontend) = &self.frontend
                    && flow.finds_silence(view.now, frontend)
                {
                    self.silent = Some(flow.endpoint());
                }
                flow.touched = view.now;
                if flow.revision == self.revision && !flow.suspect {
                    return Ok(entry.into_mut());
                }
                decision.recheck(entry, links)
            }
            Entry::Vacant(_) if !self.accepting => Err(DropReason::Draining),
            Entry::Vacant(entry) => {
                let new = match prepared {
                    Some(new) => new,
                    None => {
                        let permit = admission(self.frontend.as_deref(), client, view)?;
                        NewFlow { slot: self.budget.take(&self.counters), permit }
                    }
                };
                self.budget.note(&self.owner, count + 1);
                let check_at = view.now + patience;
                let flow = decision.admit(entry, new, check_at, links)?;
                self.queues.push(false, check_at, client);
                Ok(flow)
            }
        }
    }

    /// Evicts a flow of `holder`, the owner with the most ports, since ports are scarce: one to the endpoint `towards` if given. Returns
    /// false if it has no flow that may be evicted.
    pub(super) fn make_room(
        &mut self,
        holder: &Weak<dyn FlowOwner>,
        towards: Option<EndpointAddr>,
        now: Instant,
    ) -> bool {
        if holder.ptr_eq(&self.owner) {
            return self.evict(now, BUSY, towards);
        }
        holder.upgrade().is_some_and(|holder| holder.evict(now, towards))
    }

    /// Evicts another flow for a new one, if the new one would be forwarded at all.
    fn exchange(&mut self, client: ClientAddr, view: &View<'_>) -> Result<NewFlow, DropReason> {
        let permit = admission(self.frontend.as_deref(), client, view)?;
        let own = self.flows.len();
        let evicted = self.budget.larger(&self.owner, own).is_some_and(|other| other.evict(view.now, None))
            || self.evict(view.now, BUSY, None);
        if !evicted {
            let lacking = self.budget.room(&self.counters).err().unwrap_or(ShedReason::Capacity);
            return Err(lacking.into());
        }
        Ok(NewFlow { slot: self.budget.take(&self.counters), permit })
    }

    /// Takes the endpoint of the last routed flow if it was found silent.
    pub(super) fn take_silent(&mut self) -> Option<EndpointAddr> {
        self.silent.take()
    }

    /// Records an answer of the flow's endpoint, which keeps the flow alive, and returns the flow.
    pub(super) fn answered(&mut self, client: ClientAddr, now: Instant) -> Option<&mut Flow<L>> {
        let flow = self.flows.get_mut(&client)?;
        flow.touched = now;
        flow.answered = true;
        flow.silence.end();
        flow.picked.note_answer(now);
        Some(flow)
    }

    /// Marks the flow's endpoint as unreachable: the client's next datagram goes to another, if there is one. Returns the endpoint
    /// unless it was reported already, or unless it sees the client's own address: a firewall may have refused the client then.
    pub(super) fn suspect(&mut self, client: ClientAddr) -> Option<EndpointAddr> {
        self.counters.add(|it| &it.endpoint_errors, 1);
        let flow = self.flows.get_mut(&client)?;
        let known = std::mem::replace(&mut flow.suspect, true);
        (!known && flow.source != ClientSource::Transparent).then(|| flow.endpoint())
    }

    /// Adds the traffic of the client's flow to a watch.
    pub(super) fn collect(&mut self, client: ClientAddr) {
        if let Some(flow) = self.flows.get_mut(&client) {
            flow.collect();
        }
    }

    pub(super) fn endpoint(&self, client: ClientAddr) -> Option<EndpointAddr> {
        self.flows.get(&client).map(Flow::endpoint)
    }

    /// Opens the flow's link to the same endpoint again, since the old one has become useless. If that fails, the client's next
    /// datagram goes to another endpoint, if there is one.
    pub(super) fn renew<K: Links<Link = L>>(&mut self, client: ClientAddr, links: &mut K) {
        let Some(flow) = self.flows.get_mut(&client) else { return };
        let way = Way { client, endpoint: flow.endpoint(), source: flow.source };
        match links.open(&way, Some(&flow.link)) {
            Ok(link) => flow.link = link,
            Err(error) => {
                tracing::debug!(client.addr = %client, endpoint = %way.endpoint, %error, "a flow's way is not opened anew");
                flow.suspect = true;
            }
        }
    }

    /// Takes over a flow of another process with its link. Returns false if the endpoint no longer serves: the client's next
    /// datagram then opens a new flow, as it would have there. The flow is checked against the current frontend on its next
    /// datagram.
    pub(super) fn take_over(&mut self, former: &FormerFlow, link: L, view: &View<'_>) -> bool {
        let FormerFlow { client, endpoint, source, touched, answered, suspect } = *former;
        let Some(frontend) = self.frontend.as_deref() else { return false };
        let Some(picked) = frontend.take_over(endpoint) else { return false };
        if answered {
            picked.note_answer(touched);
        }
        let permit = frontend.limiter().map(|limiter| Box::new(limiter.take_over(client.ip(), view.now)));
        let check_at = touched + self.patience(answered);
        let flow = Flow {
            link,
            picked,
            source,
            touched,
            check_at,
            ends_by: None,
            revision: self.revision.wrapping_sub(1),
            suspect,
            answered,
            silence: Silence::default(),
            frontend: frontend.spec().addr,
            meter: Meter::new(client.ip()),
            slot: self.budget.take(&self.counters),
            permit,
        };
        self.flows.insert(client, flow);
        self.queues.push(answered, check_at, client);
        self.budget.note(&self.owner, self.flows.len());
        true
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = ClientAddr> {
        self.flows.keys().copied()
    }

    /// A client's flow and its link, in the form that another process takes over.
    pub(super) fn former(&self, client: ClientAddr) -> Option<(FormerFlow, &L)> {
        let flow = self.flows.get(&client)?;
        let Flow { source, touched, answered, suspect, .. } = *flow;
        let endpoint = flow.endpoint();
        Some((FormerFlow { client, endpoint, source, touched, answered, suspect }, &flow.link))
    }

    /// Stops accepting new flows.
    pub(super) fn stop_accepting(&mut self) {
        self.accepting = false;
    }

    pub(super) fn is_accepting(&self) -> bool {
        self.accepting
    }

    /// Shortens the idle timeout for good; open flows are checked against it the next time.
    pub(super) fn shorten_idle(&mut self, idle: Duration) {
        self.longest_idle = idle;
        self.set_idle();
    }

    /// Removes all flows, and accepts no new ones. Each flow ends when it is dropped.
    pub(super) fn end(&mut self) -> EndedFlows<L> {
        self.accepting = false;
        self.queues.clear();
        std::mem::take(&mut self.flows).into_iter()
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

/// Resources of a new flow besides its endpoint.
struct NewFlow {
    slot: Slot,
    permit: Option<Box<Permit>>,
}

/// Checks whether the frontend and the limits of its Service admit a new flow. A flow that would get no endpoint does not count.
fn admission(
    frontend: Option<&ActiveFrontend>,
    client: ClientAddr,
    view: &View<'_>,
) -> Result<Option<Box<Permit>>, DropReason> {
    let frontend = frontend.ok_or(DropReason::NoEndpoint)?;
    let (ip, port, protocol) = (client.ip(), client.0.port(), Protocol::Udp);
    if view.table.get(FrontendAddr { ip, port, protocol }).is_some() {
        return Err(DropReason::Loop);
    }
    if !frontend.admits(client) {
        return Err(DropReason::Denied);
    }
    let origin = view.table.origin(frontend.spec().addr, client);
    if let Some(pick) = frontend.refusal(origin, client) {
        forwarded(pick)?;
    }
    if view.upstream_addresses.looping(client).is_some() {
        return Err(DropReason::Loop);
    }
    let Some(limiter) = frontend.limiter() else { return Ok(None) };
    Ok(Some(Box::new(limiter.admit(Some(client.ip()), view.now)?)))
}

#[cfg(test)]
mod tests;
