//! The flow table of one frontend on one worker: which client's datagrams go to which endpoint, until when, and when that is decided
//! anew. It has no sockets (a flow's [`Links::Link`] is whatever the caller keeps for it) and no clock of its own, so that all of it
//! can be simulated.

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
use super::upstream_addresses::UpstreamAddresses;
use crate::client_traffic::Meter;
use crate::counters::ShedReason;
use crate::counters::{DropReason, UdpCounters};
use crate::limits::service::Permit;
use crate::select::affinity::AffinityTable;
use crate::select::{ActiveFrontend, ActiveTable};
use crate::splitmix64::SplitMix64;
use sheave_model::{ClientAddr, ClientSource, EndpointAddr, FrontendAddr, Protocol};

/// The way from a client to an endpoint, to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// From whom.
    pub(super) client: ClientAddr,
    /// To whom.
    pub(super) endpoint: EndpointAddr,
    /// What the endpoint is to see of the client.
    pub(super) source: ClientSource,
}

/// Makes what a flow needs to reach its endpoint.
pub(super) trait Links {
    /// What is kept for each flow; dropping it closes the way.
    type Link;

    /// Opens `way`. `previous` is the flow's present link if the flow only changes its endpoint; it is dropped when this
    /// succeeds, and stays when not.
    fn open(&mut self, way: &Way, previous: Option<&Self::Link>) -> io::Result<Self::Link>;
}

/// What routing depends on beside the flow table; the same for a whole batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) table: &'a ActiveTable,
    pub(super) affinity: &'a AffinityTable,
    pub(super) upstream_addresses: &'a UpstreamAddresses,
    pub(super) random: &'a SplitMix64,
    pub(super) now: Instant,
}

/// A flow of the process that was there before, without its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FormerFlow {
    pub(super) client: ClientAddr,
    pub(super) endpoint: EndpointAddr,
    pub(super) source: ClientSource,
    /// When a datagram last passed.
    pub(super) touched: Instant,
    /// The endpoint has answered.
    pub(super) answered: bool,
    /// It was reported unreachable since.
    pub(super) suspect: bool,
}

/// How long flows may be quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowTimeouts {
    /// In either direction.
    pub(super) idle: Duration,
    /// Until an endpoint's first answer.
    pub(super) unanswered: Duration,
}

/// Flows that were taken out of their table.
pub(super) type EndedFlows<L> = std::collections::hash_map::IntoIter<ClientAddr, Flow<L>>;

/// The flows of one frontend.
pub(super) struct FlowTable<L> {
    flows: HashMap<ClientAddr, Flow<L>, foldhash::fast::RandomState>,
    /// When to look whether a flow has gone quiet: one live entry per flow.
    queues: Queues,
    /// The frontend that the flows were last checked against; kept so that its address cannot come back as another's.
    frontend: Option<Arc<ActiveFrontend>>,
    /// Grows each time that `frontend` becomes another.
    revision: u64,
    /// Those of the gateway, where the frontend has none of its own.
    timeouts: FlowTimeouts,
    idle: Duration,
    /// No flow may be quiet for longer, whatever the frontend says.
    longest_idle: Duration,
    accepting: bool,
    budget: Rc<FlowBudget>,
    /// These flows, as the budget knows them.
    owner: Weak<dyn FlowOwner>,
    counters: Arc<UdpCounters>,
    /// The endpoint of a flow that has just been found to have fallen silent.
    silent: Option<EndpointAddr>,
}

impl<L> FlowTable<L> {
    /// An empty table that takes flows.
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

    /// Tells what the frontend is now; `None` if the table has it no more. Flows are not touched: each finds out on its
    /// next datagram whether its endpoint still serves, or by [`hasten`](Self::hasten).
    pub(super) fn set_frontend(&mut self, frontend: Option<&Arc<ActiveFrontend>>) {
        if self.frontend.as_ref().map(Arc::as_ptr) != frontend.map(Arc::as_ptr) {
            self.frontend = frontend.cloned();
            self.revision += 1;
            self.set_idle();
        }
    }

    /// The timeouts of the gateway are others. Flows are looked at as with [`set_frontend`](Self::set_frontend).
    pub(super) fn set_timeouts(&mut self, timeouts: FlowTimeouts) {
        self.timeouts = timeouts;
        self.set_idle();
    }

    fn set_idle(&mut self) {
        let own = self.frontend.as_ref().and_then(|frontend| frontend.spec().timeouts.idle);
        self.idle = own.unwrap_or(self.timeouts.idle).min(self.longest_idle);
    }

    /// The flow that takes this client's datagrams: the present one, the present one with another endpoint, or a new one.
    ///
    /// A flow leaves its endpoint if its frontend changed and the endpoint serves no more or is unhealthy, or if the endpoint
    /// was reported unreachable. It ends if its endpoint serves no more and there is no other (kube-proxy clears stale flows by the
    /// same rules: pkg/proxy/conntrack/cleanup.go). If the frontend's change is what the endpoint is to see of the client,
    /// the flow stays with its endpoint and the way there is opened anew.
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

    /// Ends a flow to an endpoint towards which ports are scarce: one of `holder`, who has the most. False if none was found that
    /// may give way.
    pub(super) fn make_room(
        &mut self,
        holder: &Weak<dyn FlowOwner>,
        endpoint: EndpointAddr,
        now: Instant,
    ) -> bool {
        if holder.ptr_eq(&self.owner) {
            return self.evict(now, BUSY, Some(endpoint));
        }
        holder.upgrade().is_some_and(|holder| holder.evict(now, Some(endpoint)))
    }

    /// Takes the place of another flow for a new one, if it would be forwarded at all.
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

    /// The endpoint of the flow that was routed last, if it has fallen silent. Once.
    pub(super) fn take_silent(&mut self) -> Option<EndpointAddr> {
        self.silent.take()
    }

    /// The client's flow, found because its endpoint answered: that keeps it alive.
    pub(super) fn answered(&mut self, client: ClientAddr, now: Instant) -> Option<&mut Flow<L>> {
        let flow = self.flows.get_mut(&client)?;
        flow.touched = now;
        flow.answered = true;
        flow.silence.end();
        flow.picked.note_answer(now);
        Some(flow)
    }

    /// The flow's endpoint was reported unreachable: the client's next datagram goes to another, if there is one. Which
    /// endpoint failed, unless that was reported already, or the datagrams have the client's own address: then a firewall
    /// may have refused the client.
    pub(super) fn suspect(&mut self, client: ClientAddr) -> Option<EndpointAddr> {
        self.counters.add(|it| &it.endpoint_errors, 1);
        let flow = self.flows.get_mut(&client)?;
        let known = std::mem::replace(&mut flow.suspect, true);
        (!known && flow.source != ClientSource::Transparent).then(|| flow.endpoint())
    }

    /// Has a watch know what the client's flow has.
    pub(super) fn collect(&mut self, client: ClientAddr) {
        if let Some(flow) = self.flows.get_mut(&client) {
            flow.collect();
        }
    }

    /// Where the client's datagrams go.
    pub(super) fn endpoint(&self, client: ClientAddr) -> Option<EndpointAddr> {
        self.flows.get(&client).map(Flow::endpoint)
    }

    /// The flow's link is of no use any more: opens one anew to the same endpoint. If that fails the client's next datagram
    /// goes to another, if there is one.
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

    /// Takes over a flow of another process, with the link that it has here. False if its endpoint serves no more: then the client's
    /// next datagram opens a new one, as it would have there. It also finds out what else the frontend says by now.
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
            _permit: permit,
        };
        self.flows.insert(client, flow);
        self.queues.push(answered, check_at, client);
        self.budget.note(&self.owner, self.flows.len());
        true
    }

    /// The clients that have a flow.
    pub(super) fn clients(&self) -> impl Iterator<Item = ClientAddr> {
        self.flows.keys().copied()
    }

    /// A client's flow, as another process is told it, with its link.
    pub(super) fn former(&self, client: ClientAddr) -> Option<(FormerFlow, &L)> {
        let flow = self.flows.get(&client)?;
        let Flow { source, touched, answered, suspect, .. } = *flow;
        let endpoint = flow.endpoint();
        Some((FormerFlow { client, endpoint, source, touched, answered, suspect }, &flow.link))
    }

    /// Takes no new flows from now on.
    pub(super) fn stop_accepting(&mut self) {
        self.accepting = false;
    }

    /// Whether new flows are taken.
    pub(super) fn is_accepting(&self) -> bool {
        self.accepting
    }

    /// Shortens the idle timeout, for the present flows too once they are looked at, and for good.
    pub(super) fn shorten_idle(&mut self, idle: Duration) {
        self.longest_idle = idle;
        self.set_idle();
    }

    /// Takes all flows out, and takes no new ones. Each has ended once it is dropped.
    pub(super) fn end(&mut self) -> EndedFlows<L> {
        self.accepting = false;
        self.queues.clear();
        std::mem::take(&mut self.flows).into_iter()
    }

    /// How many flows there are.
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

/// What a new flow needs beside its endpoint.
struct NewFlow {
    slot: Slot,
    permit: Option<Box<Permit>>,
}

/// What a frontend and the limits of its Service have to say to a new flow. Who gets no endpoint does not count.
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
