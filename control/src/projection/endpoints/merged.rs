//! Endpoints of all clusters for one port and family, and addresses that two clusters share.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheave_model::{Backend, Candidate, EndpointAddr};

use super::PortEndpoints;
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, reason};
use crate::api::store::ServiceKey;
use crate::projection::eligibility::EndpointTraits;
use crate::projection::ports::PlannedPort;

/// Endpoints of all clusters for one port and family.
#[derive(Debug, Default)]
pub(in crate::projection) struct MergedEndpoints {
    /// Endpoints of each cluster, by index of the member; clusters without any are left out.
    pub(in crate::projection) parts: Vec<(usize, PortEndpoints)>,
    /// Traits of the endpoints of all parts, in their order.
    pub(in crate::projection) traits: Vec<EndpointTraits>,
    /// The endpoint of each entry in `traits`.
    pub(in crate::projection) candidates: Vec<Candidate>,
}

impl MergedEndpoints {
    pub(in crate::projection) fn add(&mut self, member: usize, mut serving: PortEndpoints) {
        let backend = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let traits = std::mem::take(&mut serving.traits);
        self.candidates.extend((0..).zip(&traits).map(|(endpoint, _)| Candidate { backend, endpoint }));
        self.traits.extend(traits);
        self.parts.push((member, serving));
    }

    /// Address of the endpoint with these traits.
    pub(in crate::projection) fn addr(&self, traits: usize) -> Option<EndpointAddr> {
        let candidate = self.candidates.get(traits)?;
        let (_, serving) = self.parts.get(candidate.backend as usize)?;
        serving.endpoints.get(candidate.endpoint as usize).map(|endpoint| endpoint.addr)
    }
}

/// Reports each pair of clusters with a common address once for a port, with the first such address.
pub(in crate::projection) fn report_overlaps(
    key: &ServiceKey,
    port: &PlannedPort,
    backends: &[Backend],
    problems: &mut Vec<Problem>,
) {
    let open = backends.iter().filter(|backend| !backend.closed);
    let mut all: Vec<(EndpointAddr, &Arc<str>)> = open
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
