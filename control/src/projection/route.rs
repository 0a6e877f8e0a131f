//! From endpoint sets to what happens to a client's traffic.

use std::sync::Arc;

use sheave_dataplane::model::{Candidate, Route};

use super::policy::TrafficPolicy;
use super::topology::Sets;

/// The routes of one load balancer port: what clients outside and inside the cluster get.
///
/// Clients inside always get the cluster-wide set, whatever the policies say: kube-proxy short-circuits pods and nodes
/// that use a load balancer address under `externalTrafficPolicy: Local`, and `internalTrafficPolicy` concerns the
/// cluster address alone.
pub(super) fn load_balancer(external: TrafficPolicy, sets: &Sets, any: bool) -> (Route, Route) {
    let inside = route(TrafficPolicy::Cluster, sets, any);
    let outside = match external {
        TrafficPolicy::Cluster => inside.clone(),
        TrafficPolicy::Local => route(TrafficPolicy::Local, sets, any),
    };
    (outside, inside)
}

/// Nothing anywhere is refused visibly; something, but not where the policy looks, is dropped in silence.
fn route(policy: TrafficPolicy, sets: &Sets, any: bool) -> Route {
    let chosen = match policy {
        TrafficPolicy::Cluster => &sets.cluster,
        TrafficPolicy::Local => &sets.local,
    };
    if !chosen.is_empty() {
        let candidates = chosen.iter().map(|&endpoint| Candidate { backend: 0, endpoint });
        Route::Forward(Arc::from_iter(candidates))
    } else if any {
        Route::Drop
    } else {
        Route::Reject
    }
}
