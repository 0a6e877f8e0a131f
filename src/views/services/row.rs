//! One Service's row, from its frontends, the health of its endpoints, and its Problems.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheave_dataplane::select::{ActiveFrontend, Origin};
use sheave_model::{Backend, EndpointAddr, Frontend, FrontendKind, Route};

use super::{ClusterRow, ServiceFacts, ServiceRow, ServiceState};
use crate::views::problem::ProblemView;

/// Of a frontend whose endpoints are all on other nodes.
const NOT_HERE: &str = "externalTrafficPolicy is Local and no endpoint is on this node: clients outside the cluster who come to this \
                        gateway are dropped, so packets must go to gateways that have one";
/// The same of a cluster address.
const NOT_HERE_INSIDE: &str = "internalTrafficPolicy is Local and no endpoint is on this node: packets to its cluster address are dropped here";

/// How one frontend is.
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
    let all_broken = health.iter().all(|frontend| frontend.state == ServiceState::Broken);
    // Those of equal state stay in the order of their addresses.
    health.sort_by_key(|frontend| (frontend.state, healthy(&frontend.clusters)));
    let worst = health.into_iter().next();
    let worst_state = worst.as_ref().map_or(ServiceState::Broken, |worst| worst.state);
    let state = match worst_state {
        ServiceState::Broken if !all_broken => ServiceState::Degraded,
        ServiceState::Ok if !problems.is_empty() => ServiceState::Degraded,
        state => state,
    };
    let FrontendHealth { why, clusters, .. } =
        worst.unwrap_or_else(|| FrontendHealth { state, why: String::new(), clusters: Vec::new() });
    let problem = problems.first().map(|problem| problem.message.clone());
    let why = if worst_state == ServiceState::Ok { problem.unwrap_or(why) } else { why };
    ServiceRow {
        service,
        source,
        state,
        why,
        frontends: frontends.iter().map(|frontend| frontend.addr.to_string()).collect(),
        owners: owners(frontends, facts),
        elsewhere: state == ServiceState::Ok && is_elsewhere(frontends),
        restricted: frontends.iter().any(|frontend| is_restricted(frontend)),
        clusters,
        problems: problems.len(),
    }
}

/// Whether clients outside the cluster get nothing here.
fn is_elsewhere(frontends: &[&Arc<Frontend>]) -> bool {
    // A cluster address is for those inside, and has a policy of its own.
    let mut outside = frontends.iter().filter(|frontend| frontend.kind != FrontendKind::ClusterIp).peekable();
    outside.peek().is_some() && outside.all(|frontend| matches!(frontend.external, Route::Drop))
}

fn is_restricted(Frontend { addr, source_ranges, .. }: &Frontend) -> bool {
    !source_ranges.cidrs().is_empty() && !source_ranges.allowed().has_family(addr.ip)
}

/// Of an object that is served nowhere.
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

/// The state of a frontend, and why.
fn judged(
    frontend: &Frontend,
    active: Option<&ActiveFrontend>,
    clusters: &[ClusterRow],
    facts: ServiceFacts<'_>,
) -> (ServiceState, String) {
    use ServiceState::{Broken, Degraded, Ok};
    if let Some(why) = facts.closed.get(&frontend.addr) {
        return (Broken, why.clone());
    }
    if frontend.source_ranges.allowed().is_empty() {
        return (Broken, "its source ranges admit nobody".to_owned());
    }
    let (serving, of) = (total(clusters, |it| it.serving), total(clusters, |it| it.of));
    if serving == 0 {
        return (Broken, none_ready(of));
    }
    if matches!(frontend.external, Route::Drop) {
        return (
            Ok,
            if frontend.kind == FrontendKind::ClusterIp { NOT_HERE_INSIDE } else { NOT_HERE }.to_owned(),
        );
    }
    let chosen = |origin| active.is_some_and(|active| active.choices(origin).next().is_some());
    if !chosen(Origin::External) && !chosen(Origin::Internal) {
        return (Broken, "no endpoint may be used".to_owned());
    }
    let unhealthy = total(clusters, |it| it.unhealthy);
    if unhealthy > 0 {
        let state = if unhealthy == serving { Broken } else { Degraded };
        let first = first_unhealthy(frontend, facts).unwrap_or_default();
        return (state, some_unhealthy(unhealthy, serving) + &first);
    }
    match clusters.iter().find(|cluster| cluster.serving == 0 && clusters.len() > 1) {
        Some(empty) => (Degraded, format!("no endpoint of cluster {} is ready", empty.cluster)),
        None => (Ok, String::new()),
    }
}

fn none_ready(of: usize) -> String {
    match of {
        0 => "it has no endpoints for this port".to_owned(),
        1 => "its only endpoint is not ready".to_owned(),
        _ => format!("none of its {of} endpoints is ready"),
    }
}

fn some_unhealthy(unhealthy: usize, serving: usize) -> String {
    match (unhealthy, serving) {
        (1, 1) => "its only endpoint is unhealthy".to_owned(),
        (1, _) => format!("1 of {serving} endpoints is unhealthy"),
        _ if unhealthy == serving => format!("all {serving} endpoints are unhealthy"),
        _ => format!("{unhealthy} of {serving} endpoints are unhealthy"),
    }
}

/// What the first unhealthy endpoint says.
fn first_unhealthy(frontend: &Frontend, facts: ServiceFacts<'_>) -> Option<String> {
    let health = facts.active.health().of(&frontend.service)?;
    let mut endpoints = frontend.backends.iter().flat_map(|backend| &backend.endpoints);
    endpoints.find_map(|it| Some(format!("; {}: {}", it.addr, health.reason(it.addr)?)))
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
    let all: u64 = shares.iter().map(|(_, share)| share).sum();
    let cluster = |backend: &Backend| {
        let part: u64 = shares.iter().filter(|(addr, _)| has(backend, *addr)).map(|(_, share)| share).sum();
        let percent = (100 * part + all / 2).checked_div(all);
        let alone = if frontend.backends.len() == 1 { 100 } else { 0 };
        ClusterRow {
            cluster: backend.cluster.as_ref().to_owned(),
            serving: backend.endpoints.len(),
            of: backend.endpoints.len().max(backend.capacity as usize),
            unhealthy: unhealthy(frontend, backend, facts),
            share: percent.and_then(|percent| u8::try_from(percent).ok()).unwrap_or(alone),
        }
    };
    frontend.backends.iter().map(cluster).collect()
}

/// Endpoints are sorted.
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
