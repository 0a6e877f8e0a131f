//! From endpoint sets to what happens to a client's traffic.

use sheave_model::{Candidate, FrontendKind, Route};

use super::policy::{TrafficPolicies, TrafficPolicy};
use super::topology::Sets;

/// The route of either policy, for one port and family.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    cluster: Route,
    local: Route,
}

impl Routes {
    /// `candidates` are the endpoints that the sets are of; `any` says whether there is one that could be in them.
    pub(super) fn new(sets: &Sets, candidates: &[Candidate], any: bool) -> Self {
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
