//! Objects and desired states for tests.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::api::karmada::MultiClusterService;
use crate::api::problem::{ObjectRef, Problem, ProblemPort};
use crate::controller::desired_status::DesiredStatus;
use crate::projection::{
    ClusterState, Ingress, MemberClusterStatus, MultiClusterStatus, PortStatus, ResolvedRefs,
};

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A LoadBalancer Service from the API server, with these differences (JSON merge patch).
pub(crate) fn service(differences: &Value) -> Service {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "100"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4",
                 "ports": [{"port": 80, "protocol": "TCP"}]},
        "status": {"loadBalancer": {}},
    });
    json_patch::merge(&mut service, differences);
    serde_json::from_value(service).unwrap()
}

pub(crate) fn ingress(ip: &str, error: Option<&'static str>) -> Ingress {
    let ports = vec![PortStatus { port: 80, protocol: "TCP", error }];
    Ingress { ip: ip.parse().unwrap(), hostname: None, ports, whole: false }
}

/// A MultiClusterService from the Karmada API server, with these differences (JSON merge patch).
pub(crate) fn multi_cluster_service(differences: &Value) -> MultiClusterService {
    let mut service = json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"name": "web", "namespace": "shop", "uid": "m1", "resourceVersion": "100", "generation": 4},
        "spec": {"types": ["LoadBalancer"], "range": {}},
        "status": {"loadBalancer": {}},
    });
    json_patch::merge(&mut service, differences);
    serde_json::from_value(service).unwrap()
}

/// One address, two gateways, no Problems.
pub(crate) fn desired_status() -> DesiredStatus {
    DesiredStatus { ingress: vec![ingress("203.0.113.7", None)], gateways: 2, ..DesiredStatus::default() }
}

/// [`desired_status`] of a MultiClusterService with one cluster, in which `ready` of nine endpoints are ready.
pub(crate) fn fleet_desired_status(ready: u32) -> DesiredStatus {
    let cluster = MemberClusterStatus {
        name: "member1".into(),
        state: ClusterState::Ready,
        ready,
        total: 9,
        weight: 100,
        priority: 0,
        lack: None,
    };
    let resolved = ResolvedRefs { template: true, ..ResolvedRefs::default() };
    let fleet = MultiClusterStatus { clusters: vec![cluster], resolved, ..MultiClusterStatus::default() };
    DesiredStatus { fleet: Some(Box::new(fleet)), ..desired_status() }
}

pub(crate) fn problem(reason: &'static str, message: &str, port: Option<u16>) -> Problem {
    Problem {
        object: ObjectRef { kind: "Service", namespace: "shop".into(), name: "web".into() },
        reason,
        field: String::new(),
        message: message.into(),
        port: port.map(|port| ProblemPort { port, protocol: "TCP" }),
    }
}
