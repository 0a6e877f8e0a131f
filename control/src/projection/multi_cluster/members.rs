//! Members of a plan: the slices of each cluster, with the cluster's weight, priority and number of endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use sheave_model::{Path, Weight};

use super::clusters::Clusters;
use super::work_endpoints::CollectedEndpoints;
use super::{ingress, template, work_endpoints};
use crate::api::karmada::ResourceBinding;
use crate::api::problem::Problem;
use crate::api::problem::report::Report;
use crate::api::store::{SOURCE_CLUSTER_LABEL, ServiceKey};
use crate::net;
use crate::net::Family;
use crate::projection::annotations;
use crate::projection::annotations::clusters::{ClusterRegions, ClusterTiers};
use crate::projection::annotations::{DRAIN, EndpointMode, clusters};
use crate::projection::eligibility::ClusterScope;
use crate::projection::endpoints;
use crate::projection::endpoints::Conditions;
use crate::projection::endpoints::observer::{EndpointObserver, EntryId, Exclusion, PortMismatch};
use crate::projection::frontends::FrontendInput;
use crate::projection::options::Options;
use crate::projection::plan::{
    ClusterMember, ListedSlice, MultiClusterPlan, NotCounted, SliceOrigin, UncountedSlice,
};
use crate::projection::status::{ClusterState, MemberClusterStatus, NoEndpoints};

/// Clusters of one Service, and their slices.
pub(super) struct FoundMembers {
    pub(super) members: Vec<ClusterMember>,
    /// All usable clusters; [`count_endpoints`] adds what they have.
    pub(super) standing: Vec<MemberClusterStatus>,
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
        let is_member = state != ClusterState::NotBound && !member.slices.is_empty();
        let (weight, priority) = (member.weight.0, member.priority);
        let lack = Some(lack(&state, &member, mode, clusters));
        found.standing.push(MemberClusterStatus { name, state, ready: 0, total: 0, weight, priority, lack });
        found.members.extend(is_member.then_some(member));
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

/// The clusters of a MultiClusterService with the numbers of their endpoints of its families. What the projection leaves out does not count:
/// a gateway sends nothing there.
pub(in crate::projection) fn count_endpoints(
    input: FrontendInput<'_>,
    fleet: &MultiClusterPlan,
) -> Vec<MemberClusterStatus> {
    let members: BTreeMap<&str, &ClusterMember> =
        fleet.members.iter().map(|member| (&*member.cluster, member)).collect();
    let FrontendInput { plan, allocated, .. } = input;
    let has = |family| allocated.addresses.iter().any(|ip| Family::of(*ip) == family);
    let mut families = Family::ALL.to_vec();
    families.retain(|family| plan.families.wanted.contains(family) || has(*family));
    let of_port = |port| families.iter().map(move |family| (port, *family));
    let counted = fleet.status.clusters.iter().map(|status| {
        let mut counter = EndpointCounter::default();
        if let Some(member) = members.get(&*status.name) {
            for (port, family) in plan.ports.iter().flat_map(of_port) {
                let loops = input.loops(port.protocol);
                endpoints::observe(member, family, port, input.context, loops, &mut counter);
            }
        }
        let EndpointCounter { addresses, left_out, .. } = counter;
        let ready = addresses.values().filter(|ready| **ready).count();
        let lack = left_out.map(NoEndpoints::LeftOut).or_else(|| status.lack.clone());
        MemberClusterStatus {
            lack: lack.filter(|_| addresses.is_empty()),
            ready: u32::try_from(ready).unwrap_or(u32::MAX),
            total: u32::try_from(addresses.len()).unwrap_or(u32::MAX),
            ..status.clone()
        }
    });
    counted.collect()
}

/// Counts addresses that serve any of the ports. Terminating endpoints do not count, because they are being replaced.
#[derive(Default)]
struct EndpointCounter {
    /// Address and conditions of each endpoint on each port.
    read: Vec<(Option<IpAddr>, Conditions)>,
    /// Addresses, and whether they are ready.
    addresses: BTreeMap<IpAddr, bool>,
    /// Why the first one was left out, except for a mistake in its slice.
    left_out: Option<&'static str>,
}

impl EndpointCounter {
    fn count(&mut self, mark: EntryId, serves: bool) {
        if let Some((Some(ip), conditions)) = self.read.get(mark as usize)
            && !conditions.terminating
        {
            *self.addresses.entry(*ip).or_default() |= serves;
        }
    }
}

impl EndpointObserver for EndpointCounter {
    fn unmatched(&mut self, _: &EndpointSlice, _: PortMismatch) {}

    fn reads(&mut self, _: &EndpointSlice, endpoint: &Endpoint, _: u16) -> EntryId {
        let ip = endpoint.addresses.first().and_then(|text| net::parse_ip(text).ok());
        self.read.push((ip, Conditions::of(endpoint)));
        EntryId::try_from(self.read.len() - 1).unwrap_or(EntryId::MAX)
    }

    fn left_out(&mut self, mark: EntryId, why: Exclusion) {
        let why = match why {
            Exclusion::NotReady => return self.count(mark, false),
            Exclusion::NoAddress | Exclusion::OtherFamily | Exclusion::Duplicate(_) => return,
            Exclusion::InvalidAddress(why) => why,
            Exclusion::Loop(found) => found.text(),
        };
        self.left_out.get_or_insert(why);
    }

    fn serves(&mut self, mark: EntryId) {
        self.count(mark, true);
    }
}
