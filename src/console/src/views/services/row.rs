//! Row of one Service, from its frontends, the health of its endpoints, and its Problems.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheave_control::projection::service_health::{
    self, Fault, GatewayScope, Live, ServiceHealth, ServiceState,
};
use sheave_dataplane::select::{ActiveFrontend, Origin};
use sheave_model::{Backend, EndpointAddr, Frontend, FrontendKind, Route};

use super::{ClusterRow, ServiceFacts, ServiceRow};
use crate::views::percent;
use crate::views::problem::ProblemView;

/// Reason for a frontend whose endpoints are all on other nodes.
const NOT_HERE: &str = "externalTrafficPolicy is Local and no endpoint is on this node: clients outside the cluster who come to this \
                        gateway are dropped, so packets must go to gateways that have one";
/// Same for a cluster address.
const NOT_HERE_INSIDE: &str = "internalTrafficPolicy is Local and no endpoint is on this node: packets to its cluster address are dropped here";

/// Remark about one that the kernel carries.
const BY_KERNEL: &str = "the kernel carries its connections; open ones, bytes and errors are not counted";

/// A frontend as its clients find it.
struct FrontendHealth {
    fault: Option<Fault>,
    clusters: Vec<ClusterRow>,
}

pub(super) fn of_frontends(
    service: String,
    source: &'static str,
    frontends: &[&Arc<Frontend>],
    problems: &[&ProblemView],
    facts: ServiceFacts<'_>,
) -> ServiceRow {
    let mut all: Vec<FrontendHealth> = frontends.iter().map(|frontend| health(frontend, facts)).collect();
    let ranks = all.iter().map(|it| (it.fault.as_ref(), healthy(&it.clusters)));
    let ServiceHealth { state, worst } = ServiceHealth::new(ranks, !problems.is_empty());
    let note = worst.map_or("", |worst| note(frontends[worst], facts));
    let (fault, clusters) =
        worst.map(|worst| all.swap_remove(worst)).map_or_else(Default::default, |it| (it.fault, it.clusters));
    let why = match (&fault, problems.first()) {
        (Some(fault), _) => fault.to_string(),
        (None, Some(problem)) => problem.message.clone(),
        (None, None) => note.to_owned(),
    };
    ServiceRow {
        service,
        source,
        state,
        why,
        frontends: frontends.iter().map(|frontend| frontend.addr.to_string()).collect(),
        owners: owners(frontends, facts),
        elsewhere: state == ServiceState::Serving && is_elsewhere(frontends),
        by_kernel: frontends.iter().filter(|frontend| is_carried_by_kernel(frontend, facts)).count(),
        restricted: frontends.iter().any(|frontend| is_restricted(frontend)),
        clusters,
        problems: problems.len(),
        fault,
    }
}

/// Whether clients outside the cluster get nothing here.
fn is_elsewhere(frontends: &[&Arc<Frontend>]) -> bool {
    // Cluster addresses are for clients inside, and have a policy of their own.
    let mut outside = frontends.iter().filter(|frontend| frontend.kind != FrontendKind::ClusterIp).peekable();
    outside.peek().is_some() && outside.all(|frontend| matches!(frontend.external, Route::Drop))
}

fn is_restricted(Frontend { addr, source_ranges, .. }: &Frontend) -> bool {
    !source_ranges.cidrs().is_empty() && !source_ranges.allowed().has_family(addr.ip)
}

/// Row of an object without frontends.
pub(super) fn without_frontends(
    service: &str,
    source: &'static str,
    problems: &[&ProblemView],
) -> ServiceRow {
    ServiceRow {
        service: service.to_owned(),
        source,
        state: ServiceState::Broken,
        why: problems.first().map(|problem| problem.message.clone()).unwrap_or_default(),
        problems: problems.len(),
        ..ServiceRow::default()
    }
}

fn health(frontend: &Frontend, facts: ServiceFacts<'_>) -> FrontendHealth {
    let active = facts.active.get(frontend.addr).map(AsRef::as_ref);
    let clusters = clusters(frontend, active, facts);
    let chosen =
        |origin| active.is_some_and(|active: &ActiveFrontend| active.choices(origin).next().is_some());
    let failing = total(&clusters, |it| it.unhealthy);
    let live = Live {
        closed: facts.obstacles.closed.get(&frontend.addr).cloned(),
        failing,
        first_failing: (failing > 0).then(|| first_unhealthy(frontend, facts)).flatten(),
        none_chosen: !chosen(Origin::External) && !chosen(Origin::Internal),
    };
    FrontendHealth { fault: service_health::fault_of(frontend, GatewayScope::This, live), clusters }
}

/// Remark about a frontend that serves; may be empty.
fn note(frontend: &Frontend, facts: ServiceFacts<'_>) -> &'static str {
    match (&frontend.external, frontend.kind) {
        (Route::Drop, FrontendKind::ClusterIp) => NOT_HERE_INSIDE,
        (Route::Drop, _) => NOT_HERE,
        _ if is_carried_by_kernel(frontend, facts) => BY_KERNEL,
        _ => "",
    }
}

fn is_carried_by_kernel(frontend: &Frontend, facts: ServiceFacts<'_>) -> bool {
    facts.obstacles.no_kernel_path.allow(frontend)
}

/// Address and error of the first unhealthy endpoint.
fn first_unhealthy(frontend: &Frontend, facts: ServiceFacts<'_>) -> Option<String> {
    frontend.open_pools().find_map(|pool| {
        let health = facts.active.health().of(&pool.service)?;
        let mut endpoints = pool.backends.iter().flat_map(|backend| &backend.endpoints);
        endpoints.find_map(|it| Some(format!("{}: {}", it.addr, health.reason(it.addr)?)))
    })
}

fn total(clusters: &[ClusterRow], count: impl Fn(&ClusterRow) -> usize) -> usize {
    clusters.iter().map(count).sum()
}

fn healthy(clusters: &[ClusterRow]) -> usize {
    total(clusters, |it| it.serving - it.unhealthy)
}

fn clusters(
    frontend: &Frontend,
    active: Option<&ActiveFrontend>,
    facts: ServiceFacts<'_>,
) -> Vec<ClusterRow> {
    let groups = by_cluster(frontend);
    let shares: Vec<(EndpointAddr, u64)> = match (active, &*groups) {
        (Some(active), [_, _, ..]) => active.shares(Origin::External).collect(),
        _ => Vec::new(),
    };
    let part = |(_, backends): &ClusterBackends<'_>| {
        let here = |addr| backends.iter().any(|(_, backend)| has(backend, addr));
        shares.iter().filter(|(addr, _)| here(*addr)).map(|(_, share)| share).sum::<u64>()
    };
    let parts: Vec<u64> = groups.iter().map(part).collect();
    let percent = if groups.len() == 1 { vec![100] } else { percent::of_parts(&parts) };
    let cluster = |((name, backends), share): (&ClusterBackends<'_>, u8)| ClusterRow {
        cluster: (*name).to_owned(),
        serving: backends.iter().map(|(_, it)| it.endpoints.len()).sum(),
        of: backends.iter().map(|(_, it)| it.endpoints.len().max(it.capacity as usize)).sum(),
        unhealthy: backends.iter().map(|(pool, it)| unhealthy(pool, it, facts)).sum(),
        share,
    };
    groups.iter().zip(percent).map(cluster).collect()
}

/// A cluster's name, and its backends with the frontend or pool that each is of.
type ClusterBackends<'a> = (&'a str, Vec<(&'a Frontend, &'a Backend)>);

/// The backends of a frontend, or those of all its pools, by cluster in the order of their first.
fn by_cluster(frontend: &Frontend) -> Vec<ClusterBackends<'_>> {
    let mut groups: Vec<ClusterBackends<'_>> = Vec::new();
    for pool in frontend.open_pools() {
        for backend in &*pool.backends {
            match groups.iter_mut().find(|(name, _)| *name == &*backend.cluster) {
                Some((_, backends)) => backends.push((pool, backend)),
                None => groups.push((&backend.cluster, vec![(pool, backend)])),
            }
        }
    }
    groups
}

/// Whether the backend has the endpoint. Endpoints are sorted.
fn has(backend: &Backend, addr: EndpointAddr) -> bool {
    backend.endpoints.binary_search_by_key(&addr, |endpoint| endpoint.addr).is_ok()
}

fn unhealthy(frontend: &Frontend, backend: &Backend, facts: ServiceFacts<'_>) -> usize {
    let Some(health) = facts.active.health().of(&frontend.service) else { return 0 };
    backend.endpoints.iter().filter(|endpoint| health.reason(endpoint.addr).is_some()).count()
}

fn owners(frontends: &[&Arc<Frontend>], facts: ServiceFacts<'_>) -> Vec<String> {
    let Some(status) = facts.announcements else { return Vec::new() };
    let owner = |frontend: &&Arc<Frontend>| status.addresses.get(&frontend.addr.ip)?.owner.as_deref().ok();
    let owners: BTreeSet<&str> = frontends.iter().filter_map(owner).collect();
    owners.into_iter().map(str::to_owned).collect()
}
