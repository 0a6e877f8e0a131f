//! Ready gateways: the EndpointSlices of the gateways, damped against flapping. With `fromGatewayNodes`, each gateway that comes
//! or goes changes the addresses of every Service. No I/O; the caller passes the time.
//!
//! A gateway that becomes ready counts after it has been ready for [`HOLD`], or longer if it was lost repeatedly. A gateway that
//! is no longer ready counts for another [`HOLD`], during which clients may still be sent to it. A gateway that terminates
//! according to its EndpointSlice keeps serving for a while (`timeouts.lameDuck`). It stops counting after [`APPEARING`], or after
//! [`STARTING`] if another Pod is about to replace it: the addresses of a node must not change because its Pod is replaced. If no
//! gateway is left that stays, every ready gateway counts at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::api::store::{Change, Delta, ServiceKey, is_ready, slice_owner};

/// Delay that covers the restart of a container, and a probe that fails once.
const HOLD: Duration = Duration::from_secs(5);
/// Time in which the DaemonSet replaces a deleted Pod and the replacement has an endpoint.
const APPEARING: Duration = Duration::from_secs(2);
/// Time in which a replacement has taken over and the kubelet has noticed.
const STARTING: Duration = Duration::from_secs(10);
/// Longest time that a flapping gateway must be ready before it counts.
const LONGEST: Duration = Duration::from_secs(300);
/// A gateway that was ready for this long is not flapping.
const STEADY: Duration = Duration::from_secs(600);

/// Gateways of one term.
#[derive(Debug)]
pub(super) struct GatewayMembership {
    gateways: ServiceKey,
    /// Slices from the API server, by name.
    slices: BTreeMap<Arc<str>, Arc<EndpointSlice>>,
    /// Gateways by Node, or by address if an endpoint has no node.
    members: BTreeMap<String, GatewayMember>,
}

/// A gateway.
#[derive(Clone, Copy, Debug, Default)]
struct GatewayMember {
    counts: bool,
    /// Start of the time in which its endpoints differ from `counts`.
    since: Option<Instant>,
    /// Last state of its endpoints.
    seen: GatewayEndpoints,
    /// How often it stopped counting, and when last.
    lost: u32,
    lost_at: Option<Instant>,
}

/// State of one gateway in the slices.
#[derive(Clone, Copy, Debug, Default)]
struct GatewayEndpoints {
    ready: bool,
    /// Whether there is an endpoint that does not terminate.
    stays: bool,
    /// Whether there is an endpoint that terminates.
    leaves: bool,
}

impl GatewayMembership {
    pub(super) fn new(gateways: ServiceKey) -> Self {
        Self { gateways, slices: BTreeMap::new(), members: BTreeMap::new() }
    }

    /// Takes the slices of the gateways out of a change; [`update`](Self::update) returns them.
    pub(super) fn admit(&mut self, change: Change) -> Option<Change> {
        match change {
            Change::Slices(Delta::Put(slice)) if self.is_of_gateways(&slice) => {
                self.slices.insert(name(&slice), slice);
                None
            }
            Change::Slices(Delta::Put(slice)) => {
                if slice.metadata.namespace.as_deref() == Some(&*self.gateways.namespace) {
                    self.slices.remove(&name(&slice));
                }
                Some(Change::Slices(Delta::Put(slice)))
            }
            Change::Slices(Delta::Gone { namespace, name }) => {
                if namespace == self.gateways.namespace {
                    self.slices.remove(&name);
                }
                Some(Change::Slices(Delta::Gone { namespace, name }))
            }
            Change::Slices(Delta::All(all)) => {
                let of_gateways = all.iter().filter(|slice| self.is_of_gateways(slice));
                self.slices = of_gateways.map(|slice| (name(slice), Arc::clone(slice))).collect();
                // The gateways' own slices stay unchanged until the update.
                let all = all.into_iter().map(|slice| self.shown(slice));
                Some(Change::Slices(Delta::All(all.collect())))
            }
            other => Some(other),
        }
    }

    /// Slices of the gateways from the API server.
    pub(super) fn slices(&self) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        self.slices.values()
    }

    /// Slices with the gateways that currently count.
    pub(super) fn update(&mut self, now: Instant) -> Vec<Change> {
        let seen = self.seen();
        for node in seen.keys() {
            self.members.entry(node.clone()).or_default();
        }
        for (node, member) in &mut self.members {
            member.update(seen.get(node).copied().unwrap_or_default(), now);
        }
        if !self.members.values().any(|member| member.counts && member.seen.stays) {
            for (node, _) in seen.iter().filter(|(_, seen)| seen.ready) {
                let member = self.members.entry(node.clone()).or_default();
                (member.counts, member.since) = (true, None);
            }
        }
        self.members.retain(|node, member| seen.contains_key(node) || member.was_lost_lately(now));
        let slices = self.slices.values().map(|slice| self.shown(Arc::clone(slice)));
        slices.map(|slice| Change::Slices(Delta::Put(slice))).collect()
    }

    /// Time of the next update that only the time requires.
    pub(super) fn due(&self) -> Option<Instant> {
        self.members.values().filter_map(|member| Some(member.since? + member.wait())).min()
    }

    fn is_of_gateways(&self, slice: &EndpointSlice) -> bool {
        slice_owner(slice).as_ref() == Some(&self.gateways)
    }

    fn seen(&self) -> BTreeMap<String, GatewayEndpoints> {
        let mut seen: BTreeMap<String, GatewayEndpoints> = BTreeMap::new();
        for endpoint in self.slices.values().flat_map(|slice| slice.endpoints.iter().flatten()) {
            let seen = seen.entry(node(endpoint).to_owned()).or_default();
            let leaves = is_terminating(endpoint);
            seen.ready |= is_ready(endpoint) && !leaves;
            seen.stays |= !leaves;
            seen.leaves |= leaves;
        }
        seen
    }

    /// The slice as the rest of the controller sees it.
    fn shown(&self, slice: Arc<EndpointSlice>) -> Arc<EndpointSlice> {
        if !self.is_of_gateways(&slice) {
            return slice;
        }
        let counts = |endpoint: &Endpoint| {
            let member = self.members.get(node(endpoint)).filter(|member| member.counts);
            member.is_some_and(|member| !member.seen.stays || !is_terminating(endpoint))
        };
        let mut endpoints = slice.endpoints.iter().flatten();
        if endpoints.all(|endpoint| is_ready(endpoint) == counts(endpoint)) {
            return slice;
        }
        let mut shown = EndpointSlice::clone(&slice);
        for endpoint in shown.endpoints.iter_mut().flatten() {
            let ready = counts(endpoint);
            endpoint.conditions.get_or_insert_default().ready = Some(ready);
        }
        Arc::new(shown)
    }
}

impl GatewayMember {
    fn update(&mut self, seen: GatewayEndpoints, now: Instant) {
        self.seen = seen;
        if seen.ready == self.counts {
            self.since = None;
            if self.counts && !self.was_lost_lately(now) {
                self.lost = 0;
            }
            return;
        }
        let since = *self.since.get_or_insert(now);
        if now < since + self.wait() {
            return;
        }
        // A gateway that terminates, as in a rollout, does not flap.
        if self.counts && seen.stays && !seen.leaves {
            self.lost = self.lost.saturating_add(1);
            self.lost_at = Some(now);
        }
        (self.counts, self.since) = (!self.counts, None);
    }

    /// How long its endpoints must differ before it starts or stops counting.
    fn wait(&self) -> Duration {
        match (self.counts, self.seen.stays, self.seen.leaves) {
            (true, true, false) => HOLD,
            (true, true, true) => STARTING,
            (true, false, true) => APPEARING,
            (true, false, false) => Duration::ZERO,
            // The first loss is a restart, as in any rollout.
            (false, ..) => (HOLD * (1 << self.lost.saturating_sub(1).min(8))).min(LONGEST),
        }
    }

    fn was_lost_lately(&self, now: Instant) -> bool {
        self.lost_at.is_some_and(|at| now.saturating_duration_since(at) < STEADY)
    }
}

fn is_terminating(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.terminating).unwrap_or(false)
}

fn node(endpoint: &Endpoint) -> &str {
    let address = || endpoint.addresses.first().map(String::as_str);
    endpoint.node_name.as_deref().or_else(address).unwrap_or_default()
}

fn name(slice: &EndpointSlice) -> Arc<str> {
    slice.metadata.name.as_deref().unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
