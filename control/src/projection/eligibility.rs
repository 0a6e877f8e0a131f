//! Which of a Service port's endpoints are used from this node, and what happens to a client's traffic: the decision of
//! kube-proxy's `CategorizeEndpoints` (pkg/proxy/topology.go), as a rule that can be applied to each endpoint: traffic policies,
//! topology hints, and endpoints that terminate but still serve.

use sheave_model::{Candidate, EndpointState, FrontendKind, Route};

/// Which endpoints a class of clients may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficPolicy {
    /// Those of the whole cluster.
    Cluster,
    /// Those on this gateway's node.
    Local,
}

/// The policies of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrafficPolicies {
    /// For clients outside the cluster, on every kind of frontend but the cluster address.
    pub(super) external: TrafficPolicy,
    /// For clients of the cluster address.
    pub(super) internal: TrafficPolicy,
}

/// What the hints of one kind say about this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hint {
    /// There are none.
    #[default]
    Absent,
    /// They name other zones or nodes only.
    Elsewhere,
    /// They name this one.
    Here,
}

/// An endpoint's hints as seen from this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TopologyHints {
    pub(super) zone: Hint,
    pub(super) node: Hint,
}

/// Which cluster an endpoint is in, as far as the decision goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClusterScope {
    /// The gateway's own.
    #[default]
    Own,
    /// Another one: hints have no say, for their zones and nodes are not ours.
    Other,
    /// One that gets nothing new.
    Closed,
}

/// All that the decision needs to know of an endpoint that still serves.
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

    /// Whether its hints count.
    fn hinted(&self) -> bool {
        self.ready() && self.scope == ClusterScope::Own
    }
}

/// Indexes of the endpoints for either policy. Whether there is any endpoint at all is whether the input was empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EligibleSets {
    /// For policy Cluster, after topology.
    pub(super) cluster: Vec<u32>,
    /// For policy Local; topology has no say.
    pub(super) local: Vec<u32>,
}

/// The ready endpoints for each policy; where there is none, those that terminate but still serve.
pub(super) fn categorize(endpoints: &[EndpointTraits]) -> EligibleSets {
    EligibleSets {
        cluster: EligibilityRule::decide(TrafficPolicy::Cluster, endpoints).select(endpoints),
        local: EligibilityRule::decide(TrafficPolicy::Local, endpoints).select(endpoints),
    }
}

/// A policy, applied to some endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EligibilityRule {
    pub(super) policy: TrafficPolicy,
    /// Everywhere under policy Local.
    pub(super) mode: TopologyMode,
    /// No ready endpoint may be used, so those that terminate but still serve are.
    pub(super) fallback: bool,
}

/// Whether a rule lets an endpoint be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Eligibility {
    Used,
    /// It terminates, and others are ready.
    Terminates,
    /// Not on this node.
    NotHere,
    /// Its hints name other zones.
    OtherZone,
    /// Its hints name other nodes.
    OtherNode,
    /// Its cluster gets nothing new.
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

    /// Whether the endpoint, one of those decided over, may be used.
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

/// How far ready endpoints are narrowed down.
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

/// Whether the hints of one kind count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum HintsVerdict {
    Count,
    /// A ready endpoint, the one at this index, has none.
    MissingAt(usize),
    /// Every ready endpoint has some, but none names this zone or node.
    NobodyHere,
}

/// Hints count only if every ready endpoint has one and some name this node or zone: all or nothing.
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

/// The route of either policy, for one port and family.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    cluster: Route,
    local: Route,
}

impl Routes {
    /// `candidates` are the endpoints that the sets are of; `any` is whether one of them could be in a set.
    pub(super) fn new(sets: &EligibleSets, candidates: &[Candidate], any: bool) -> Self {
        let route = |set: &[u32]| route(set, candidates, any);
        Self { cluster: route(&sets.cluster), local: route(&sets.local) }
    }

    /// What clients outside and inside the cluster get on a frontend.
    pub(super) fn of(&self, kind: FrontendKind, policies: TrafficPolicies) -> (Route, Route) {
        let by = |policy| match policy {
            TrafficPolicy::Cluster => self.cluster.clone(),
            TrafficPolicy::Local => self.local.clone(),
        };
        let (external, internal) = deciding(kind, policies);
        (by(external), by(internal))
    }
}

/// The policies that decide for clients outside and inside the cluster on a frontend.
///
/// On the cluster address both go by `internalTrafficPolicy`. Elsewhere outside clients go by `externalTrafficPolicy`,
/// and inside clients always get the cluster-wide set: kube-proxy short-circuits Pods and Nodes that use an external
/// address (pkg/proxy/iptables/proxier.go, "short-circuit").
pub(super) fn deciding(kind: FrontendKind, policies: TrafficPolicies) -> (TrafficPolicy, TrafficPolicy) {
    match kind {
        FrontendKind::ClusterIp => (policies.internal, policies.internal),
        FrontendKind::LoadBalancer | FrontendKind::ExternalIp | FrontendKind::NodePort => {
            (policies.external, TrafficPolicy::Cluster)
        }
    }
}

/// Nothing anywhere is refused visibly; something, but not where the policy looks, is dropped in silence.
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
