//! Conditions of each state of a MultiClusterService, with their exact texts.

use super::*;
use crate::api::names::{ALLOCATED, PORTS_PUBLISHED, PROGRAMMED};
use crate::controller::conditions;
use crate::controller::tests::objects::{desired_status, problem};
use crate::projection::Ingress;

fn cluster(name: &str, state: ClusterState, ready: u32, total: u32) -> MemberClusterStatus {
    MemberClusterStatus { name: name.into(), state, ready, total, weight: 100, priority: 0, lack: None }
}

fn fleet(clusters: Vec<MemberClusterStatus>) -> MultiClusterStatus {
    MultiClusterStatus {
        clusters,
        resolved: ResolvedRefs { template: true, ..ResolvedRefs::default() },
        ..MultiClusterStatus::default()
    }
}

fn said(desired_status: &DesiredStatus, fleet: MultiClusterStatus) -> Vec<DesiredCondition> {
    conditions::conditions_for(&DesiredStatus { fleet: Some(Box::new(fleet)), ..desired_status.clone() })
}

fn one(
    kind: &str,
    desired_status: &DesiredStatus,
    fleet: MultiClusterStatus,
) -> (bool, &'static str, String) {
    let said = said(desired_status, fleet).into_iter().find(|said| said.kind == kind).unwrap();
    (said.holds, said.reason, said.message)
}

#[test]
fn a_healthy_one_says_so_and_lists_its_ports() {
    let fleet = fleet(vec![
        cluster("member1", ClusterState::Ready, 4, 5),
        cluster("member2", ClusterState::Ready, 3, 4),
    ]);
    let said = said(&desired_status(), fleet);
    let kinds: Vec<_> = said.iter().map(|it| (it.kind, it.holds, it.reason)).collect();
    assert_eq!(
        kinds,
        [
            (ACCEPTED, true, "Accepted"),
            (RESOLVED_REFS, true, "ResolvedRefs"),
            (ALLOCATED, true, "Allocated"),
            (PROGRAMMED, true, "Programmed"),
            (DEGRADED, false, "Healthy"),
            (PORTS_PUBLISHED, true, "Ports"),
        ]
    );
    assert_eq!(said[5].message, "TCP 80 at 203.0.113.7.");
    assert_eq!(
        said[3].message,
        "Gateways serve it on 203.0.113.7. 7 of 9 endpoints in 2 of 2 clusters: member1 4/5 ready; member2 3/4 ready."
    );
}

#[test]
fn ports_that_it_does_not_have_are_not_listed() {
    let listed = |change: fn(&mut Ingress)| {
        let mut desired = desired_status();
        change(&mut desired.ingress[0]);
        let said = said(&desired, fleet(Vec::new()));
        said.into_iter().find(|it| it.kind == PORTS_PUBLISHED).map(|it| (it.holds, it.message))
    };
    assert_eq!(listed(|it| it.ports[0].error = Some(reason::BIND_FAILED)), listed(|_| ()));
    let none = (false, "It has no port at its addresses.".to_owned());
    assert_eq!(listed(|it| it.ports[0].error = Some(reason::ADDRESS_IN_USE)), Some(none));
    assert_eq!(listed(|it| it.whole = true), None, "the status publishes the whole address already");
}

#[test]
fn endpoints_that_karmada_does_not_collect_degrade_it() {
    let serves = || fleet(vec![cluster("member1", ClusterState::Ready, 4, 4)]);
    for (why, part) in [
        (Outdated::CollectorAway, "has not renewed its Lease"),
        (Outdated::WriteRefused, "refuses that write"),
    ] {
        let outdated = DesiredStatus { outdated: Some(why), ..desired_status() };
        let (holds, reason, message) = one(DEGRADED, &outdated, serves());
        assert_eq!((holds, reason), (true, ENDPOINTS_OUTDATED));
        assert!(
            message.starts_with("Its endpoints may be out of date") && message.contains(part),
            "{message}"
        );
    }
}

#[test]
fn clusters_in_trouble_come_first_and_degrade_it() {
    let clusters = vec![
        cluster("member1", ClusterState::Ready, 4, 5),
        cluster("member2", ClusterState::NotReady, 3, 4),
        cluster("member3", ClusterState::Draining(DrainReason::Asked), 2, 2),
        cluster("member4", ClusterState::Ready, 0, 3),
        cluster("member5", ClusterState::Draining(DrainReason::Taint("broken".into())), 1, 1),
    ];
    let fleet = fleet(clusters);
    let (_, _, counts) = one(PROGRAMMED, &desired_status(), fleet.clone());
    assert_eq!(
        counts,
        "Gateways serve it on 203.0.113.7. 7 of 15 endpoints in 2 of 5 clusters: member2 3/4 not ready; \
         member3 2/2 draining: the annotation sheave.dev/drain names it; member5 1/1 draining: its Cluster has the \
         NoExecute taint broken; member1 4/5 ready; member4 0/3 ready."
    );
    assert_eq!(
        one(DEGRADED, &desired_status(), fleet),
        (
            true,
            "ClustersInTrouble",
            "In trouble: member2 is not ready; member4 has no endpoint that is ready; member5 is draining: its Cluster \
             has the NoExecute taint broken."
                .into()
        )
    );
}

#[test]
fn what_it_names_and_is_not_there_is_told() {
    let resolved = ResolvedRefs {
        template: false,
        unknown_clusters: (1..=7).map(|n| format!("m{n}")).collect(),
        unmatched_ports: vec!["http:80".into()],
    };
    let told = one(
        RESOLVED_REFS,
        &desired_status(),
        MultiClusterStatus { clusters: Vec::new(), resolved, ..MultiClusterStatus::default() },
    );
    assert_eq!(
        told,
        (
            false,
            "ServiceNotFound",
            "The Karmada API server has no Service of this name. No cluster has the name m1, m2, m3, m4, m5 and 2 more. \
             Its Service has no port http:80."
                .into()
        )
    );
}

/// An unserved object has no list of clusters and ports, and annotations are in no list of any object.
#[test]
fn what_is_missing_is_told_of_what_is_not_served_too() {
    let none = problem(reason::NOT_SERVED, "the Service has none of the ports", None);
    let port = problem(reason::PORT_NOT_FOUND, "the Service has no port \"nope\" 81", None);
    let with = DesiredStatus { problems: vec![none, port], ..desired_status() };
    let told = (false, "PortNotFound", "The Service has no port \"nope\" 81.".into());
    assert_eq!(one(RESOLVED_REFS, &with, fleet(Vec::new())), told);
    let cluster = problem(reason::CLUSTER_NOT_FOUND, "\"m9\" is none of the clusters", None);
    let with = DesiredStatus { problems: vec![cluster], ..desired_status() };
    assert_eq!(one(RESOLVED_REFS, &with, fleet(Vec::new())).1, "ClusterNotFound");
}

#[test]
fn without_an_endpoint_that_takes_new_traffic_it_is_degraded() {
    for clusters in [Vec::new(), vec![cluster("a", ClusterState::HeldOff, 2, 2)]] {
        let (holds, reason, _) = one(DEGRADED, &desired_status(), fleet(clusters));
        assert_eq!((holds, reason), (true, "NoEndpoints"));
    }
    let nothing = MultiClusterStatus { nothing_collected: true, ..fleet(Vec::new()) };
    let (holds, reason, message) = one(DEGRADED, &desired_status(), nothing);
    assert_eq!((holds, reason), (true, "NoEndpoints"));
    assert!(
        message.ends_with("or set karmada.exportServices in the configuration, which does so."),
        "{message}"
    );
    let exported = MultiClusterStatus { nothing_collected: true, export_services: true, ..fleet(Vec::new()) };
    let (_, _, message) = one(DEGRADED, &desired_status(), exported);
    let told = "the controller exports the Service (karmada.exportServices), unless a ServiceExport of yours has its name: \
                that one is yours to propagate.";
    assert!(message.ends_with(told), "{message}");
    let unknown = fleet(vec![cluster("a", ClusterState::Unknown, 2, 2)]);
    assert_eq!(one(DEGRADED, &desired_status(), unknown).1, "ClustersUnknown");
}

#[test]
fn a_cluster_without_endpoints_degrades_it_and_says_why() {
    let without =
        |name: &str, state, lack| MemberClusterStatus { lack: Some(lack), ..cluster(name, state, 0, 0) };
    let told = |cluster: MemberClusterStatus| {
        one(DEGRADED, &desired_status(), fleet(vec![self::cluster("a", ClusterState::Ready, 1, 1), cluster]))
    };
    for (state, lack, says) in [
        (
            ClusterState::Ready,
            NoEndpoints::NoExports,
            "b has no endpoint: Karmada does not list ServiceExport (multicluster.x-k8s.io/v1alpha1) among the cluster's APIs \
             yet, and collects nothing there until it does",
        ),
        (
            ClusterState::Ready,
            NoEndpoints::NotCollected,
            "b has no endpoint: Karmada has collected no EndpointSlice from it",
        ),
        (ClusterState::Ready, NoEndpoints::Empty, "b has no endpoint: its EndpointSlices list none"),
        (
            ClusterState::NotBound,
            NoEndpoints::NotScheduled("0/2 clusters are available".into()),
            "b is without the Service: it is not scheduled there (0/2 clusters are available)",
        ),
        (
            ClusterState::NotBound,
            NoEndpoints::NotCollected,
            "b is without the Service: it is not scheduled there",
        ),
    ] {
        assert_eq!(
            told(without("b", state, lack)),
            (true, "ClustersInTrouble", format!("In trouble: {says}."))
        );
    }
    let drained = without("b", ClusterState::Draining(DrainReason::Asked), NoEndpoints::NotCollected);
    assert_eq!(told(drained).1, "Healthy", "it is to have nothing");
    let mut missing = fleet(vec![cluster("a", ClusterState::Ready, 1, 1)]);
    missing.resolved.unknown_clusters = vec!["m9".into()];
    let told = one(DEGRADED, &desired_status(), missing);
    assert_eq!(told, (true, "ClustersInTrouble", "In trouble: no cluster has the name m9.".into()));
}

#[test]
fn what_cannot_hold_across_clusters_is_told_where_it_is_accepted() {
    let limit = problem(reason::NOT_ACROSS_CLUSTERS, "externalTrafficPolicy Local has no effect", None);
    let with = DesiredStatus { problems: vec![limit], ..desired_status() };
    let healthy = || fleet(vec![cluster("a", ClusterState::Ready, 1, 1)]);
    let told = "It is ours to serve. ExternalTrafficPolicy Local has no effect.";
    assert_eq!(one(ACCEPTED, &with, healthy()), (true, "Accepted", told.into()));
    let refused = problem(reason::NOT_SERVED, "it is of another kind", None);
    let with = DesiredStatus { problems: vec![refused], ..desired_status() };
    assert_eq!(one(ACCEPTED, &with, healthy()), (false, "NotServed", "It is of another kind.".into()));
}

#[test]
fn messages_have_a_limit() {
    let clusters = (0..40).map(|n| cluster(&format!("m{n:02}"), ClusterState::Ready, 1, 1)).collect();
    let (_, _, message) = one(PROGRAMMED, &desired_status(), fleet(clusters));
    assert!(message.ends_with("m04 1/1 ready and 35 more."), "{message}");
    let long = problem(reason::INVALID_VALUE, &"x".repeat(5000), None);
    let with = DesiredStatus { problems: vec![long], ..desired_status() };
    assert_eq!(one(ACCEPTED, &with, fleet(Vec::new())).2.len(), crate::text::MAX_MESSAGE_BYTES);
}
