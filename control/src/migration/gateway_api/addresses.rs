//! Addresses of a LoadBalancer Service, as those of a Gateway.

use std::net::IpAddr;

use serde_json::Value;

use super::super::draft::left;
use crate::net;
use crate::sources::manifests::{FileProblem, RawObject};

/// The addresses in the status of a Service. Those that no Gateway can ask for are reported.
pub(in crate::migration) fn of_status(service: &RawObject, problems: &mut Vec<FileProblem>) -> Vec<IpAddr> {
    let ingress = service.at(&["status", "loadBalancer", "ingress"]).and_then(Value::as_array);
    let mut addresses = Vec::new();
    for (index, ingress) in ingress.into_iter().flatten().enumerate() {
        let text = |field: &str| ingress.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let mut report = |field: &str, message: String| {
            let field = format!("status.loadBalancer.ingress[{index}].{field}");
            problems.push(left(service, &field, message));
        };
        match (text("ip"), text("hostname")) {
            (Some(text), _) => match net::parse_ip(text) {
                Ok(ip) if addresses.contains(&ip) => {}
                Ok(ip) => addresses.push(ip),
                Err(why) => report("ip", format!("{text:?} {why}; it is left out")),
            },
            (None, Some(name)) => report(
                "hostname",
                format!("{name:?}: Gateways of Sheave have IP addresses alone; it is left out"),
            ),
            (None, None) => {}
        }
    }
    addresses
}
