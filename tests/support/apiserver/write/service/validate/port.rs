//! `validateServicePort`.

use serde_json::{Value, json};

use super::super::super::causes::{duplicate, unsupported};
use super::super::super::metadata::each;
use super::super::super::names::{label_errors, port_errors, port_name_errors, qualified_name_errors};
use super::super::ports;
use crate::apiserver::status::Cause;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Validates each port, and the names of all.
pub(super) fn check_ports(service: &Value) -> Vec<Cause> {
    let all = ports(service);
    let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_owned();
    let mut causes = Vec::new();
    for (index, port) in all.iter().enumerate() {
        let field = |key: &str| format!("spec.ports[{index}].{key}");
        let own = name(port);
        if own.is_empty() && all.len() > 1 {
            causes.push(Cause::required(&field("name"), ""));
        } else if !own.is_empty() {
            causes.extend(each(&field("name"), &own, label_errors(&own)));
            if all[..index].iter().any(|other| name(other) == own) {
                causes.push(duplicate(&field("name"), &json!(own)));
            }
        }
        causes.extend(number_errors(&field("port"), &port["port"]));
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !PROTOCOLS.contains(&protocol) {
            causes.push(unsupported(&field("protocol"), protocol, &PROTOCOLS));
        }
        causes.extend(match port["targetPort"].as_str() {
            Some(target) => each(&field("targetPort"), target, port_name_errors(target)),
            None => number_errors(&field("targetPort"), &port["targetPort"]),
        });
        if let Some(protocol) = port["appProtocol"].as_str() {
            causes.extend(each(&field("appProtocol"), protocol, qualified_name_errors(protocol)));
        }
    }
    causes
}

fn number_errors(field: &str, port: &Value) -> Vec<Cause> {
    let port = port.as_i64().unwrap_or_default();
    port_errors(port).iter().map(|error| Cause::invalid(field, &json!(port), error)).collect()
}
