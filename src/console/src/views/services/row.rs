//! Row of one Service, from its frontends, the health of its endpoints, and its Problems.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheave_control::projection::service_health::{self, GatewayScope, Live, ServiceState};
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

/// State of one frontend.
struct FrontendHealth {
    state: ServiceState,
    why: String,
    clusters: Vec<ClusterRow>,
}

pub(super) fn of_frontends(
    service: String,
    source: &'static str,
    frontends: &[&Arc<Frontend>],
    problems: &[&ProblemView],
    facts: ServiceFacts<'_>,
) -> ServiceRow {
    let mut health: Vec<FrontendHealth> = frontends.iter().map(|frontend| health(frontend, facts)).collect();
    let of_all = service_health::state_of(health.iter().map(|frontend| frontend.state));
    // The sort is stable, so frontends of equal state stay in the order of their addresses.
    health.sort_by_key(|frontend| (frontend.state, healthy(&frontend.clusters)));
    let worst = health.into_iter().next();
    let worst_state = worst.as_ref().map_or(ServiceState::Broken, |worst| worst.state);
    let state = match of_all {
        ServiceState::Serving if !problems.is_empty() => ServiceState::Degraded,
        state => state,
    };
    let FrontendHealth { why, clusters, .. } =
        worst.unwrap_or_else(|| FrontendHealth { state, why: String::new(), clusters: Vec::new() });
    let problem = problems.first().map(|problem| problem.message.clone());
    let why = if worst_state == ServiceState::Serving { problem.unwrap_or(why) } else { why };
    ServiceRow {
        service,
        source,
        state,
        why,
        frontends: frontends.iter().map(|frontend| frontend.addr.to_string()).collect(),
        owners: owners(frontends, facts),
        elsewhere: state == ServiceState::Serving && is_elsewhere(frontends),
        restricted: frontends.iter().any(|frontend| is_restricted(frontend)),
        clusters,
        problems: problems.len(),
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
    let active = facts.active.get(frontend.addr);
    let clusters = clusters(frontend, active.map(AsRef::as_ref), facts);
    let (state, why) = judged(frontend, active.map(AsRef::as_ref), &clusters, facts);
    FrontendHealth { state, why, clusters }
}

/// State of a frontend for the clients of this gateway, with the reason.
fn judged(
    frontend: &Frontend,
    active: Option<&ActiveFrontend>,
    clusters: &[ClusterRow],
    facts: ServiceFacts<'_>,
) -> (ServiceState, String) {
    let chosen = |origin| active.is_some_and(|active| active.choices(origin).next().is_some());
    let failing = total(clusters, |it| it.unhealthy);
    let live = Live {
        closed: facts.closed.get(&frontend.addr).cloned(),
        failing,
        first_failing: (failing > 0).then(|| first_unhealthy(frontend, facts)).flatten(),
        none_chosen: !chosen(Origin::External) && !chosen(Origin::Internal),
    };
    if let Some(fault) = service_health::fault_of(frontend, GatewayScope::This, live) {
        return (fault.state(), fault.to_string());
    }
    let note = match (&frontend.external, frontend.kind) {
        (Route::Drop, FrontendKind::ClusterIp) => NOT_HERE_INSIDE,
        (Route::Drop, _) => NOT_HERE,
        _ => "",
    };
    (ServiceState::Serving, note.to_owned())
}

/// Address and error of the first unhealthy endpoint.
fn first_unhealthy(frontend: &Frontend, facts: ServiceFacts<'_>) -> Option<String> {
    let health = facts.active.health().of(&frontend.service)?;
    let mut endpoints = frontend.backends.iter().flat_map(|backend| &backend.endpoints);
    endpoints.find_map(|it| Some(format!("{}: {}", it.addr, health.reason(it.addr)?)))
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
    let shares = match (active, &*frontend.backends) {
        (Some(active), [_, _, ..]) => active.shares(Origin::External).collect(),
        _ => Vec::new(),
    };
    let part = |backend: &Backend| {
        shares.iter().filter(|(addr, _)| has(backend, *addr)).map(|(_, share)| share).sum::<u64>()
    };
    let parts: Vec<u64> = frontend.backends.iter().map(part).collect();
    let percent = if frontend.backends.len() == 1 { vec![100] } else { percent::of_parts(&parts) };
    let cluster = |(backend, share): (&Backend, u8)| ClusterRow {
        cluster: backend.cluster.as_ref().to_owned(),
        serving: backend.endpoints.len(),
        of: backend.endpoints.len().max(backend.capacity as usize),
        unhealthy: unhealthy(frontend, backend, facts),
        share,
    };
    frontend.backends.iter().zip(percent).map(cluster).collect()
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
