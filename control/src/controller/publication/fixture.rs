//! Services and statements for tests.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::Statement;
use crate::problem::{ObjectRef, Problem, ProblemPort};
use crate::projection::{Ingress, PortStatus};

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A LoadBalancer Service as the API server has it, with these differences (JSON merge patch).
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
    Ingress { ip: ip.parse().unwrap(), hostname: None, ports }
}

/// One address, two gateways, nothing wrong.
pub(crate) fn statement() -> Statement {
    Statement { ingress: vec![ingress("203.0.113.7", None)], gateways: 2, ..Statement::default() }
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
