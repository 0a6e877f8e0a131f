//! One flow: its endpoint, state and traffic.

use std::sync::Arc;
use std::time::Instant;

use sheave_model::{ClientAddr, ClientSource, EndpointAddr, FrontendAddr};

use super::budget::Slot;
use super::silence::Silence;
use crate::client_traffic::Meter;
use crate::counters::UdpCounters;
use crate::limits::service::Permit;
use crate::select::{ActiveFrontend, Picked};

/// Path of one client to one endpoint.
pub(in crate::udp) struct Flow<L> {
    /// The caller's resource for the flow.
    pub(in crate::udp) link: L,
    pub(super) picked: Picked,
    /// Client source that the endpoint sees.
    pub(super) source: ClientSource,
    /// When a datagram last passed, in either direction.
    pub(super) touched: Instant,
    /// When the flow is checked next; a queue entry with another time is stale.
    pub(super) check_at: Instant,
    /// When it ends at the latest because its endpoint no longer serves, or its client is no longer admitted.
    pub(super) ends_by: Option<Instant>,
    /// Revision of the frontend against which the flow was last checked.
    pub(super) revision: u64,
    /// Whether the endpoint was reported unreachable.
    pub(super) suspect: bool,
    /// Whether an endpoint has answered.
    pub(super) answered: bool,
    pub(super) silence: Silence,
    /// Frontend through which the client's datagrams arrive.
    pub(super) frontend: FrontendAddr,
    pub(super) meter: Meter,
    pub(super) slot: Slot,
    /// Its place in the limits of the Service, which it takes until it ends.
    pub(super) permit: Option<Box<Permit>>,
}

impl<L> Flow<L> {
    pub(in crate::udp) fn endpoint(&self) -> EndpointAddr {
        self.picked.addr()
    }

    /// Adds forwarded bytes.
    pub(in crate::udp) fn add_bytes(&mut self, from_client: usize, from_endpoint: usize) {
        self.meter.add_bytes(from_client as u64, from_endpoint as u64);
    }

    /// Adds the flow's traffic to a watch.
    pub(super) fn collect(&mut self) {
        self.slot.tally().collect_open(&mut self.meter, self.frontend, Some(&self.picked));
    }

    /// Moves the flow to another endpoint.
    pub(super) fn set_endpoint(&mut self, picked: Picked, link: L, source: ClientSource) {
        self.collect_last();
        (self.picked, self.link, self.source) = (picked, link, source);
        self.ends_by = None;
        self.silence.end();
    }

    /// Counts the flow for the Service of these counters, to which its frontend belongs now: in its limits, too, even if it exceeds them.
    pub(super) fn count_with(
        &mut self,
        counters: &Arc<UdpCounters>,
        frontend: &ActiveFrontend,
        client: ClientAddr,
        now: Instant,
    ) {
        if self.slot.count_with(counters) {
            let taken = frontend.limiter().map(|limiter| limiter.take_over(client.ip(), now));
            self.permit = taken.map(Box::new);
        }
    }

    /// Records a datagram of the client, and returns whether the endpoint has fallen silent. Never if the endpoint sees the
    /// client's own address, which a firewall may refuse, nor if it has never answered: a server may answer nothing that this
    /// client sends.
    pub(super) fn finds_silence(&mut self, now: Instant, frontend: &ActiveFrontend) -> bool {
        if !self.answered {
            return false;
        }
        let Some(since) = self.silence.asked(now, self.touched) else { return false };
        let found =
            self.source != ClientSource::Transparent && frontend.has_fallen_silent(self.endpoint(), since);
        if found {
            self.silence.was_told();
        }
        found
    }

    /// Adds the traffic with the current endpoint to a watch for the last time.
    fn collect_last(&mut self) {
        self.slot.tally().collect(&mut self.meter, self.frontend, Some(&self.picked));
    }
}

impl<L> Drop for Flow<L> {
    fn drop(&mut self) {
        self.collect_last();
    }
}
