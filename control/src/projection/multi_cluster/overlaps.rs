//! Endpoints of two clusters with the same address and the same way there: pod networks overlap, and nothing tells the two
//! apart. Traffic for either reaches the same place.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheave_model::{Backend, EndpointAddr};

use super::super::members::Member;
use super::super::ports::PlannedPort;
use super::super::topology::Scope;
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, reason};
use crate::api::store::ServiceKey;

/// Reports each two clusters once for a port, by the first address that both have.
pub(in super::super) fn report(
    key: &ServiceKey,
    port: &PlannedPort,
    members: &[Member],
    backends: &[Backend],
    problems: &mut Vec<Problem>,
) {
    let open = |cluster: &str| members.iter().any(|it| *it.cluster == *cluster && it.scope != Scope::Closed);
    let candidates = backends.iter().filter(|backend| open(&backend.cluster));
    let mut all: Vec<(EndpointAddr, &Arc<str>)> = candidates
        .flat_map(|backend| backend.endpoints.iter().map(|endpoint| (endpoint.addr, &backend.cluster)))
        .collect();
    all.sort_unstable();
    let mut pairs: BTreeMap<(&str, &str), (EndpointAddr, usize)> = BTreeMap::new();
    for same in all.chunk_by(|(a, _), (b, _)| a == b) {
        for pair in same.windows(2) {
            if let [(addr, first), (_, second)] = pair {
                pairs.entry((first, second)).or_insert((*addr, 0)).1 += 1;
            }
        }
    }
    let mut report = Report::about(key.object());
    for ((first, second), (addr, count)) in pairs {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        let message = format!(
            "clusters {first} and {second} both have an endpoint {addr}{more}, and both are reached the same way: what goes \
             to one may arrive at the other; give one an interface of its own under clusters in the configuration, or use \
             sheave.dev/cluster-endpoints: ingress"
        );
        report.add(reason::OVERLAPPING_ADDRESSES, "", Some(port.problem_port()), message);
    }
    problems.extend(report.into_problems());
}
