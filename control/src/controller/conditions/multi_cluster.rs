//! Conditions of a MultiClusterService.

use std::fmt::Write as _;

use super::{allocated, not_served, programmed, sentences, unanswered};
use crate::api::condition::DesiredCondition;
use crate::api::names::{ACCEPTED, DEGRADED, RESOLVED_REFS};
use crate::api::problem::{Problem, reason};
use crate::controller::desired_status::DesiredStatus;
use crate::controller::service_exports::Outdated;
use crate::projection::{
    ClusterState, DrainReason, MemberClusterStatus, MultiClusterStatus, NoEndpoints, ResolvedRefs,
};
use crate::text::first_few;

/// Reason of `sheave.dev/Accepted` when it is true.
pub const TAKEN: &str = "Accepted";
/// Reason of `sheave.dev/ResolvedRefs` when it is true.
pub const RESOLVED: &str = "ResolvedRefs";
/// Reason of `sheave.dev/Degraded` when it is false.
pub const HEALTHY: &str = "Healthy";
/// Reason of `sheave.dev/Degraded`, and of a Service's `sheave.dev/Ready`: no endpoint can serve.
pub const NO_ENDPOINTS: &str = "NoEndpoints";
/// Reason of `sheave.dev/Degraded`: clusters are not ready, or are excluded without a request for it.
pub const CLUSTERS_IN_TROUBLE: &str = "ClustersInTrouble";
/// Reason of `sheave.dev/Degraded`: the state of clusters is unknown.
pub const CLUSTERS_UNKNOWN: &str = "ClustersUnknown";
/// Reason of `sheave.dev/Degraded`: Karmada does not collect endpoints.
pub const ENDPOINTS_OUTDATED: &str = "EndpointsOutdated";

const COLLECTOR_AWAY: &str = "Its endpoints may be out of date: karmada-controller-manager, which collects them, has not renewed its \
                              Lease for a minute.";
const NOT_TOUCHED: &str = "Its endpoints may be out of date: karmada-controller-manager has restarted and does not collect them until \
                           its ServiceExport changes, and the Karmada API server refuses that write.";
const NOTHING_COLLECTED: &str = "Karmada has collected no EndpointSlice of the Service from any cluster, and knows no address of \
                                 a cluster's Service";
/// Karmada collects slices for the type CrossCluster and for ServiceExports, but not for the type LoadBalancer.
const HOW_TO_EXPORT: &str = "make a ServiceExport of the Service and propagate it to the clusters, or set \
                             karmada.exportServices in the configuration, which does so.";
const EXPORTED: &str = "the controller exports the Service (karmada.exportServices), unless a ServiceExport of yours has its name: that \
                        one is yours to propagate.";

/// How many clusters, names or ports a message lists.
const LISTED: usize = 5;

/// Reasons of Problems that `sheave.dev/Accepted` reports: the object is served, but not exactly as requested.
const NAMED: [&str; 4] = [
    reason::INVALID_VALUE,
    reason::LEGACY_FIELD,
    reason::NOT_ACROSS_CLUSTERS,
    reason::SOURCE_RANGES_ONE_FAMILY,
];

/// Reasons of Problems that `sheave.dev/ResolvedRefs` reports.
const MISSING: [&str; 3] = [reason::SERVICE_NOT_FOUND, reason::CLUSTER_NOT_FOUND, reason::PORT_NOT_FOUND];

/// The conditions of a MultiClusterService.
pub(super) fn conditions_across_clusters(
    desired_status: &DesiredStatus,
    fleet: &MultiClusterStatus,
) -> Vec<DesiredCondition> {
    let mut programmed = programmed(desired_status);
    if programmed.holds {
        let message = format!("{} {}", programmed.message, counts(&fleet.clusters));
        programmed = DesiredCondition::yes(programmed.kind, programmed.reason, message);
    }
    vec![
        accepted(desired_status),
        resolved(desired_status, &fleet.resolved),
        allocated(desired_status),
        programmed,
        degraded(desired_status, fleet),
    ]
}

fn accepted(desired_status: &DesiredStatus) -> DesiredCondition {
    if let Some(condition) = not_served(desired_status, ACCEPTED) {
        return condition;
    }
    let told = about(desired_status, |reason| NAMED.contains(&reason));
    let message = format!("It is ours to serve. {told}");
    DesiredCondition::yes(ACCEPTED, TAKEN, message.trim_end().to_owned())
}

/// Whether all references resolve. An unserved object has no list of clusters and ports, and clusters in annotations are in none
/// either, so Problems supplement the lists.
fn resolved(desired_status: &DesiredStatus, resolved: &ResolvedRefs) -> DesiredCondition {
    let mut reasons = Vec::new();
    let mut message = String::new();
    if !resolved.template {
        reasons.push(reason::SERVICE_NOT_FOUND);
        message.push_str("The Karmada API server has no Service of this name. ");
    }
    let unknown = list(resolved.unknown_clusters.iter().map(String::as_str), ", ");
    if !unknown.is_empty() {
        reasons.push(reason::CLUSTER_NOT_FOUND);
        let _written = write!(message, "No cluster has the name {unknown}. ");
    }
    let unmatched = list(resolved.unmatched_ports.iter().map(String::as_str), ", ");
    if !unmatched.is_empty() {
        reasons.push(reason::PORT_NOT_FOUND);
        let _written = write!(message, "Its Service has no port {unmatched}. ");
    }
    if let Some(reason) = reasons.first() {
        return DesiredCondition::no(RESOLVED_REFS, reason, message.trim_end().to_owned());
    }
    let mut found = desired_status.problems.iter().filter(|problem| problem.port.is_none());
    if let Some(problem) = found.find(|problem| MISSING.contains(&problem.reason)) {
        let told = about(desired_status, |reason| MISSING.contains(&reason));
        return DesiredCondition::no(RESOLVED_REFS, problem.reason, told);
    }
    DesiredCondition::yes(
        RESOLVED_REFS,
        RESOLVED,
        "Its Service, clusters and ports are all there.".to_owned(),
    )
}

/// Whether service is worse than intended, although the address may be served. Unlike the other conditions, true is bad.
fn degraded(desired_status: &DesiredStatus, fleet: &MultiClusterStatus) -> DesiredCondition {
    let mut found: Vec<(&'static str, String)> = Vec::new();
    let serves = |cluster: &MemberClusterStatus| cluster.state.takes_new() && cluster.ready > 0;
    if fleet.nothing_collected {
        let then = if fleet.export_services { EXPORTED } else { HOW_TO_EXPORT };
        found.push((NO_ENDPOINTS, format!("{NOTHING_COLLECTED}: {then}")));
    } else if !fleet.clusters.iter().any(serves) {
        found.push((
            NO_ENDPOINTS,
            "No cluster that takes new traffic has an endpoint that is ready.".to_owned(),
        ));
    } else {
        found.extend(unanswered(desired_status));
    }
    let troubled = fleet.clusters.iter().filter(|cluster| is_in_trouble(cluster));
    let unknown = fleet.resolved.unknown_clusters.iter();
    let unknown = unknown.map(|name| format!("no cluster has the name {name}"));
    let troubled: Vec<String> = troubled.map(state).chain(unknown).collect();
    if !troubled.is_empty() {
        let listed = list(troubled.iter().map(String::as_str), "; ");
        found.push((CLUSTERS_IN_TROUBLE, format!("In trouble: {listed}.")));
    }
    let unknown = fleet.clusters.iter().filter(|cluster| cluster.state == ClusterState::Unknown);
    let unknown = list(unknown.map(|cluster| &*cluster.name), ", ");
    if !unknown.is_empty() {
        found.push((CLUSTERS_UNKNOWN, format!("Nothing is known of the state of {unknown}.")));
    }
    found.extend(desired_status.outdated.map(|why| {
        let message = match why {
            Outdated::CollectorAway => COLLECTOR_AWAY,
            Outdated::WriteRefused => NOT_TOUCHED,
        };
        (ENDPOINTS_OUTDATED, message.to_owned())
    }));
    let overlapping = about(desired_status, |reason| reason == reason::OVERLAPPING_ADDRESSES);
    if !overlapping.is_empty() {
        found.push((reason::OVERLAPPING_ADDRESSES, overlapping));
    }
    let Some((reason, _)) = found.first() else {
        return DesiredCondition::no(
            DEGRADED,
            HEALTHY,
            "Every cluster that should serve it does.".to_owned(),
        );
    };
    let messages: Vec<&str> = found.iter().map(|(_, message)| message.as_str()).collect();
    DesiredCondition::yes(DEGRADED, reason, messages.join(" "))
}

/// Whether a cluster should serve but does not. A cluster that was excluded on request is not in trouble; one that is named and
/// has no endpoints is.
fn is_in_trouble(cluster: &MemberClusterStatus) -> bool {
    match &cluster.state {
        ClusterState::NotReady
        | ClusterState::HeldOff
        | ClusterState::NotBound
        | ClusterState::Draining(DrainReason::Taint(_) | DrainReason::TrafficControl) => true,
        ClusterState::Ready | ClusterState::Unknown => cluster.ready == 0,
        ClusterState::Draining(_) => false,
    }
}

fn state(cluster: &MemberClusterStatus) -> String {
    let name = &cluster.name;
    match (&cluster.state, &cluster.lack) {
        (ClusterState::Ready | ClusterState::Unknown, Some(lack)) => {
            format!("{name} has no endpoint: {lack}")
        }
        (ClusterState::Ready | ClusterState::Unknown, None) => {
            format!("{name} has no endpoint that is ready")
        }
        (state, Some(NoEndpoints::NotScheduled(message))) => format!("{name} is {state} ({message})"),
        (state, _) => format!("{name} is {state}"),
    }
}

/// Text like `7 of 9 endpoints in 2 of 3 clusters: member1 4/5 ready; …`. Clusters in an unexpected state come first.
fn counts(clusters: &[MemberClusterStatus]) -> String {
    if clusters.is_empty() {
        return "No cluster is known to run it.".to_owned();
    }
    let used = || clusters.iter().filter(|cluster| cluster.state.takes_new() && cluster.ready > 0);
    let ready: u64 = used().map(|cluster| u64::from(cluster.ready)).sum();
    let total: u64 = clusters.iter().map(|cluster| u64::from(cluster.total)).sum();
    let mut listed: Vec<&MemberClusterStatus> = clusters.iter().collect();
    listed.sort_by_key(|cluster| cluster.state == ClusterState::Ready);
    let listed: Vec<String> =
        listed.into_iter().map(|it| format!("{} {}/{} {}", it.name, it.ready, it.total, it.state)).collect();
    format!(
        "{ready} of {total} endpoints in {} of {} clusters: {}.",
        used().count(),
        clusters.len(),
        list(listed.iter().map(String::as_str), "; ")
    )
}

fn about(desired_status: &DesiredStatus, is_meant: impl Fn(&str) -> bool) -> String {
    let meant = |problem: &&Problem| problem.port.is_none() && is_meant(problem.reason);
    sentences(desired_status.problems.iter().filter(meant))
}

fn list<'a>(all: impl Iterator<Item = &'a str>, separator: &str) -> String {
    first_few(all, separator, LISTED)
}

#[cfg(test)]
mod tests;
