//! Fuzz target: any bytes as the response of a gateway to the controller, and lines of text as the fields of another report.
//! The resulting conditions are short, and no Service gets an error for a port that it does not have.

use crate::invariants::MAX_MESSAGE_BYTES;
use serde_json::json;
use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::api::store::ServiceKey;
use sheave_control::controller::conditions_by_reports;
use sheave_control::projection::{Ingress, LoadBalancerStatus, NodeFamilies, PortStatus};

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut reports = Vec::new();
    reports.extend(GatewayReport::read(bytes));
    reports.extend(GatewayReport::read(fields(&String::from_utf8_lossy(bytes)).as_bytes()));
    let (said, troubles) = conditions_by_reports(&reports, &web());
    assert!(troubles <= 1, "port 80 alone can be in trouble");
    for said in said {
        assert!(!said.message.is_empty() && said.message.len() <= MAX_MESSAGE_BYTES, "{said:?}");
        assert!(!said.message.contains(char::is_control), "{said:?}");
    }
}

/// Service that the reports are about.
fn web() -> LoadBalancerStatus {
    let ports = vec![PortStatus { port: 80, protocol: "TCP", error: None }];
    let ingress = vec![Ingress { ip: [203, 0, 113, 10].into(), hostname: None, ports, whole: false }];
    LoadBalancerStatus {
        service: ServiceKey::new("shop", "web"),
        ingress,
        node_families: NodeFamilies::default(),
    }
}

fn fields(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut next = |usual: &'static str| match lines.next() {
        None | Some("") => usual.to_owned(),
        Some(line) => line.to_owned(),
    };
    let node = next("gw-1");
    let mut troubles = Vec::new();
    for _ in 0..3 {
        troubles.push(json!({
            "kind": next("Service"), "namespace": next("shop"), "name": next("web"), "reason": next("BindFailed"),
            "message": next("cannot listen"),
            "frontend": {"address": next("203.0.113.10"), "port": next("80").parse::<i64>().unwrap_or(80), "protocol": next("TCP")},
        }));
    }
    json!({"node": node, "generation": 1, "troubles": troubles}).to_string()
}
