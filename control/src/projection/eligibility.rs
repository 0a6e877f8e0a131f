//! Eligibility of a Service port's endpoints on this node, and the resulting route. Implements kube-proxy's `CategorizeEndpoints`
//! (pkg/proxy/topology.go) as a rule for single endpoints: traffic policies, topology hints, and endpoints that terminate but
//! still serve.

use sheave_model::{Candidate, EndpointState, FrontendKind, Route};

/// Endpoints that a class of clients may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficPolicy {
    /// Endpoints of the whole cluster.
    Cluster,
    /// Endpoints on this gateway's node.
    Local,
}

/// Traffic policies of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrafficPolicies {
    /// For clients outside the cluster, on every kind of frontend but the cluster address.
    pub(super) external: TrafficPolicy,
    /// For clients of the cluster address.
    pub(super) internal: TrafficPolicy,
}

/// Relation of an endpoint's hints of one kind to this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hint {
    /// There are no hints.
    #[default]
    Absent,
    /// The hints name only other zones or nodes.
    Elsewhere,
    /// The hints name this zone or node.
    Here,
}

/// An endpoint's hints as seen from this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TopologyHints {
    pub(super) zone: Hint,
    pub(super) node: Hint,
}

/// Cluster of an endpoint, as far as the decision needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClusterScope {
    /// The gateway's own cluster.
    #[default]
    Own,
    /// Another cluster. Hints are ignored, because its zones and nodes are not ours.
    Other,
    /// A cluster that gets no new connections.
    Closed,
}

/// Properties of a serving endpoint that the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndpointTraits {
    pub(super) state: EndpointState,
    pub(super) local: bool,
    pub(super) hints: TopologyHints,
    pub(super) scope: ClusterScope,
}

impl EndpointTraits {
    fn ready(&self) -> bool {
        self.state == EndpointState::Ready
    }

    /// Whether its hints are considered.
    fn hinted(&self) -> bool {
        self.ready() && self.scope == ClusterScope::Own
    }
}

/// Indexes of the eligible endpoints for each policy. Empty sets do not mean that there is no endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EligibleSets {
    /// Endpoints for policy Cluster, after topology hints.
    pub(super) cluster: Vec<u32>,
    /// Endpoints for policy Local, which ignores topology hints.
    pub(super) local: Vec<u32>,
}

/// The ready endpoints for each policy or, if there are none, those that terminate but still serve.
pub(super) fn categorize(endpoints: &[EndpointTraits]) -> EligibleSets {
    EligibleSets {
        cluster: EligibilityRule::decide(TrafficPolicy::Cluster, endpoints).select(endpoints),
        local: EligibilityRule::decide(TrafficPolicy::Local, endpoints).select(endpoints),
    }
}

/// A policy as applied to a set of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EligibilityRule {
    pub(super) policy: TrafficPolicy,
    /// Always `Everywhere` for policy Local.
    pub(super) mode: TopologyMode,
    /// Whether terminating endpoints that still serve are used, because no ready one is eligible.
    pub(super) fallback: bool,
}

/// Result of the rule for one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Eligibility {
    Used,
    /// The endpoint terminates, and others are ready.
    Terminates,
    /// The endpoint is on another node.
    NotHere,
    /// The endpoint's hints name other zones.
    OtherZone,
    /// The endpoint's hints name other nodes.
    OtherNode,
    /// The endpoint's cluster gets no new connections.
    Closed,
}

impl EligibilityRule {
    pub(super) fn decide(policy: TrafficPolicy, endpoints: &[EndpointTraits]) -> Self {
        let mode = match policy {
            TrafficPolicy::Cluster => topology_mode(endpoints),
            TrafficPolicy::Local => TopologyMode::Everywhere,
        };
        let ready = Self { policy, mode, fallback: false };
        Self { fallback: !endpoints.iter().any(|traits| ready.judge(traits) == Eligibility::Used), ..ready }
    }

    /// Applies the rule to one of the endpoints that it was derived from.
    pub(super) fn judge(&self, traits: &EndpointTraits) -> Eligibility {
        if traits.scope == ClusterScope::Closed {
            return Eligibility::Closed;
        }
        if self.policy == TrafficPolicy::Local && !traits.local {
            return Eligibility::NotHere;
        }
        match self.mode {
            _ if !traits.ready() => {
                if self.fallback {
                    Eligibility::Used
                } else {
                    Eligibility::Terminates
                }
            }
            _ if traits.scope == ClusterScope::Other => Eligibility::Used,
            TopologyMode::SameZone if traits.hints.zone != Hint::Here => Eligibility::OtherZone,
            TopologyMode::SameNode if traits.hints.node != Hint::Here => Eligibility::OtherNode,
            TopologyMode::Everywhere | TopologyMode::SameZone | TopologyMode::SameNode => Eligibility::Used,
        }
    }

    fn select(&self, endpoints: &[EndpointTraits]) -> Vec<u32> {
        let used = (0..).zip(endpoints).filter(|(_, traits)| self.judge(traits) == Eligibility::Used);
        used.map(|(index, _)| index).collect()
    }
}

/// How topology hints narrow down the ready endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopologyMode {
    Everywhere,
    SameZone,
    SameNode,
}

fn topology_mode(endpoints: &[EndpointTraits]) -> TopologyMode {
    if check_hints(endpoints, |hints| hints.node) == HintsVerdict::Count {
        TopologyMode::SameNode
    } else if check_hints(endpoints, |hints| hints.zone) == HintsVerdict::Count {
        TopologyMode::SameZone
    } else {
        TopologyMode::Everywhere
    }
}

/// Whether hints of one kind are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum HintsVerdict {
    Count,
    /// The ready endpoint with this index has no hint.
    MissingAt(usize),
    /// All ready endpoints have hints, but none names this zone or node.
    NobodyHere,
}

/// Hints are used only if every ready endpoint has one and at least one names this node or zone.
pub(super) fn check_hints(endpoints: &[EndpointTraits], hint: fn(TopologyHints) -> Hint) -> HintsVerdict {
    let mut here = false;
    for (index, traits) in endpoints.iter().enumerate().filter(|(_, traits)| traits.hinted()) {
        match hint(traits.hints) {
            Hint::Absent => return HintsVerdict::MissingAt(index),
            Hint::Elsewhere => {}
            Hint::Here => here = true,
        }
    }
    if here { HintsVerdict::Count } else { HintsVerdict::NobodyHere }
}

/// Routes of both policies, for one port and family.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    cluster: Route,
    local: Route,
}

impl Routes {
    /// `candidates` are the endpoints that the sets refer to; `any` is whether any endpoint could be in a set.
    pub(super) fn new(sets: &EligibleSets, candidates: &[Candidate], any: bool) -> Self {
        let route = |set: &[u32]| route(set, candidates, any);
        Self { cluster: route(&sets.cluster), local: route(&sets.local) }
    }

    /// Routes that refuse every client.
    pub(super) fn refusing() -> Self {
        Self { cluster: Route::Reject, local: Route::Reject }
    }

    /// The routes for external and internal clients of a frontend.
    pub(super) fn of(&self, kind: FrontendKind, policies: TrafficPolicies) -> (Route, Route) {
        let by = |policy| match policy {
            TrafficPolicy::Cluster => self.cluster.clone(),
            TrafficPolicy::Local => self.local.clone(),
        };
        let (external, internal) = deciding(kind, policies);
        (by(external), by(internal))
    }
}

/// The policies for external and internal clients of a frontend.
///
/// On the cluster address, `internalTrafficPolicy` applies to both. Elsewhere `externalTrafficPolicy` applies to external
/// clients, and internal clients always get the cluster-wide set: kube-proxy short-circuits Pods and Nodes that use an external
/// address (pkg/proxy/iptables/proxier.go, "short-circuit").
pub(super) fn deciding(kind: FrontendKind, policies: TrafficPolicies) -> (TrafficPolicy, TrafficPolicy) {
    match kind {
        FrontendKind::ClusterIp => (policies.internal, policies.internal),
        FrontendKind::LoadBalancer | FrontendKind::ExternalIp | FrontendKind::NodePort => {
            (policies.external, TrafficPolicy::Cluster)
        }
    }
}

/// The route to the chosen endpoints. Without any endpoint connections are rejected; with endpoints that the policy does not
/// permit they are dropped silently.
fn route(chosen: &[u32], candidates: &[Candidate], any: bool) -> Route {
    if !chosen.is_empty() {
        let chosen = chosen.iter().filter_map(|&index| candidates.get(index as usize).copied());
        Route::Forward(chosen.collect())
    } else if any {
        Route::Drop
    } else {
        Route::Reject
    }
}

#[cfg(test)]
mod tests;
