//! Members of a plan: the slices of each cluster, with the cluster's weight, priority and number of endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{Path, Weight};

use super::clusters::Clusters;
use super::work_endpoints::CollectedEndpoints;
use super::{ingress, template, work_endpoints};
use crate::api::karmada::ResourceBinding;
use crate::api::problem::Problem;
use crate::api::problem::report::Report;
use crate::api::store::{SOURCE_CLUSTER_LABEL, ServiceKey};
use crate::net;
use crate::projection::annotations;
use crate::projection::annotations::clusters::{ClusterRegions, ClusterTiers};
use crate::projection::annotations::{DRAIN, EndpointMode, clusters};
use crate::projection::eligibility::ClusterScope;
use crate::projection::endpoints::Conditions;
use crate::projection::options::Options;
use crate::projection::plan::{ClusterMember, ListedSlice, NotCounted, SliceOrigin, UncountedSlice};
use crate::projection::ports::PlannedPort;
use crate::projection::status::{ClusterState, MemberClusterStatus, NoEndpoints};

/// Clusters of one Service, and their slices.
pub(super) struct FoundMembers {
    pub(super) members: Vec<ClusterMember>,
    /// All usable clusters, with what they have.
    pub(super) standing: Vec<(MemberClusterStatus, ClusterMember)>,
    pub(super) spread: sheave_model::Spread,
    pub(super) left: Vec<UncountedSlice>,
    /// See [`MultiClusterStatus`](crate::projection::status::MultiClusterStatus).
    pub(super) nothing_collected: bool,
    pub(super) problems: Vec<Problem>,
}

/// Combines clusters, slices and annotations into members.
pub(super) fn build(
    key: &ServiceKey,
    effective: &Service,
    (clusters, mut sources): (&Clusters<'_>, CollectedEndpoints<'_>),
    report: &mut Report,
) -> FoundMembers {
    let mut names: BTreeSet<Arc<str>> = sources.parts.keys().cloned().collect();
    names.extend(clusters.expected());
    let options = clusters.options;
    let mut own = Report::about(key.object());
    let mode = annotations::endpoint_mode(effective, &mut own);
    let region = ClusterRegions { own: &options.cluster, clusters: &clusters.fleet.clusters };
    let tiers = ClusterTiers::read(effective, &names, &region, &mut own);
    clusters::check_names(DRAIN, clusters.drained().iter().map(String::as_str), &names, &mut own);
    if let Some(service) = clusters.fleet.services.get(key) {
        report.extend(template::renamed(own.into_problems(), service));
    }
    let mut found = FoundMembers {
        members: Vec::with_capacity(names.len()),
        standing: Vec::with_capacity(names.len()),
        spread: tiers.spread(),
        left: Vec::new(),
        nothing_collected: false,
        problems: Vec::new(),
    };
    for name in names {
        let state = clusters.state(&name);
        found.problems.extend(clusters.misread(&name));
        let slices = match state {
            ClusterState::NotBound => Vec::new(),
            _ => slices(key, effective, &name, (clusters, &mut sources, mode), &mut found.problems),
        };
        let is_own = *name == *options.cluster;
        let member = ClusterMember {
            path: options.fleet.paths.get(&name).copied().unwrap_or(Path::DEFAULT),
            allowed: options.fleet.allowed.get(&name).cloned(),
            weight: Weight(tiers.weight(&name)),
            priority: tiers.priority(&name),
            scope: scope(&state, is_own),
            own: is_own,
            slices,
            cluster: name.clone(),
        };
        if state != ClusterState::NotBound && !member.slices.is_empty() {
            found.members.push(member.clone());
        }
        let (weight, priority) = (member.weight.0, member.priority);
        let lack = Some(lack(&state, &member, mode, clusters));
        found
            .standing
            .push((MemberClusterStatus { name, state, ready: 0, total: 0, weight, priority, lack }, member));
    }
    found.left = sources.left;
    // In mode `ingress`, the addresses of Services are missing instead.
    found.nothing_collected = mode != EndpointMode::Ingress
        && found.members.is_empty()
        && found
            .left
            .iter()
            .all(|left| matches!(left.why, NotCounted::Dispatched | NotCounted::NotCollected));
    found.problems.append(&mut sources.problems);
    found
}

/// Why the member has no endpoint, for the case that it has none.
fn lack(
    state: &ClusterState,
    member: &ClusterMember,
    mode: EndpointMode,
    clusters: &Clusters<'_>,
) -> NoEndpoints {
    let unscheduled = || clusters.binding.and_then(ResourceBinding::unscheduled);
    if *state == ClusterState::NotBound
        && let Some(message) = unscheduled()
    {
        return NoEndpoints::NotScheduled(message.to_owned());
    }
    let cluster = clusters.fleet.clusters.get(&member.cluster);
    if !member.slices.is_empty() {
        NoEndpoints::Empty
    } else if mode == EndpointMode::Ingress {
        NoEndpoints::NoIngress
    } else if cluster.is_some_and(|cluster| cluster.serves_exports() == Some(false)) {
        NoEndpoints::NoExports
    } else {
        NoEndpoints::NotCollected
    }
}

fn scope(state: &ClusterState, own: bool) -> ClusterScope {
    match (state.takes_new(), own) {
        (false, _) => ClusterScope::Closed,
        (true, true) => ClusterScope::Own,
        (true, false) => ClusterScope::Other,
    }
}

/// The usable slices of a cluster.
fn slices(
    key: &ServiceKey,
    effective: &Service,
    name: &Arc<str>,
    (clusters, sources, mode): (&Clusters<'_>, &mut CollectedEndpoints<'_>, EndpointMode),
    problems: &mut Vec<crate::api::problem::Problem>,
) -> Vec<ListedSlice> {
    let pods = sources.parts.get_mut(name).map(|part| std::mem::take(&mut part.slices)).unwrap_or_default();
    let by_ingress = match mode {
        EndpointMode::Pods => false,
        EndpointMode::Ingress => true,
        EndpointMode::Auto => pods.is_empty(),
    };
    if !by_ingress {
        return pods;
    }
    pods.iter().for_each(|it| sources.leave(name, &it.slice, NotCounted::IngressCounts));
    ingress::slices(key, name, sources.parts.get(name), effective, clusters, problems)
}

/// Members from the cluster labels of an ordinary Service's slices; `None` if no slice names its cluster.
pub(super) fn labelled_members<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    options: &Options,
    report: &mut Report,
) -> Option<FoundMembers> {
    let mut any = false;
    let mut by_cluster: BTreeMap<Arc<str>, Vec<ListedSlice>> = BTreeMap::new();
    for slice in slices {
        let source = work_endpoints::label(slice, SOURCE_CLUSTER_LABEL).filter(|name| !name.is_empty());
        any |= source.is_some();
        let cluster = source.unwrap_or(&options.cluster).into();
        by_cluster
            .entry(cluster)
            .or_default()
            .push(ListedSlice { slice: slice.clone(), origin: SliceOrigin::Object });
    }
    if !any {
        return None;
    }
    let names: BTreeSet<Arc<str>> = by_cluster.keys().cloned().collect();
    let region = ClusterRegions { own: &options.cluster, clusters: &BTreeMap::new() };
    let tiers = ClusterTiers::read(service, &names, &region, report);
    let drained = clusters::cluster_list(service, DRAIN, report);
    clusters::check_names(DRAIN, drained.iter().map(String::as_str), &names, report);
    let member = |(cluster, slices): (Arc<str>, Vec<ListedSlice>)| {
        let own = *cluster == *options.cluster;
        let scope = match (drained.iter().any(|name| **name == *cluster), own) {
            (true, _) => ClusterScope::Closed,
            (false, true) => ClusterScope::Own,
            (false, false) => ClusterScope::Other,
        };
        ClusterMember {
            path: options.fleet.paths.get(&cluster).copied().unwrap_or(Path::DEFAULT),
            allowed: options.fleet.allowed.get(&cluster).cloned(),
            weight: Weight(tiers.weight(&cluster)),
            priority: tiers.priority(&cluster),
            scope,
            own,
            slices,
            cluster,
        }
    };
    Some(FoundMembers {
        members: by_cluster.into_iter().map(member).collect(),
        standing: Vec::new(),
        spread: tiers.spread(),
        left: Vec::new(),
        nothing_collected: false,
        problems: Vec::new(),
    })
}

/// Adds the numbers of endpoints to the statuses.
pub(super) fn count_endpoints(
    standing: &[(MemberClusterStatus, ClusterMember)],
    ports: &[PlannedPort],
) -> Vec<MemberClusterStatus> {
    let counted = standing.iter().map(|(status, member)| {
        let addresses = member_addresses(&member.slices, ports);
        let ready = addresses.values().filter(|ready| **ready).count();
        let lack = status.lack.clone().filter(|_| addresses.is_empty());
        MemberClusterStatus {
            lack,
            ready: u32::try_from(ready).unwrap_or(u32::MAX),
            total: u32::try_from(addresses.len()).unwrap_or(u32::MAX),
            ..status.clone()
        }
    });
    counted.collect()
}

/// Addresses that serve any of the ports, and whether they are ready. Terminating endpoints are left out, because they are being
/// replaced.
fn member_addresses(slices: &[ListedSlice], ports: &[PlannedPort]) -> BTreeMap<IpAddr, bool> {
    let mut addresses = BTreeMap::new();
    let serves = |listed: &&ListedSlice| {
        let names = listed.slice.ports.iter().flatten().map(|port| port.name.as_deref().unwrap_or_default());
        names.into_iter().any(|name| ports.iter().any(|port| *port.name == *name))
    };
    for endpoint in slices.iter().filter(serves).flat_map(|it| it.slice.endpoints.iter().flatten()) {
        let conditions = Conditions::of(endpoint);
        if let Some(Ok(ip)) = endpoint.addresses.first().map(|text| net::parse_ip(text))
            && !conditions.terminating
        {
            *addresses.entry(ip).or_default() |= conditions.ready();
        }
    }
    addresses
}
