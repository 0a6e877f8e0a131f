//! EndpointSlices: their few defaults, and `ValidateEndpointSlice`.

use serde_json::{Value, json};

use super::causes::{duplicate, unsupported};
use super::metadata::each;
use super::names::{ip_errors, label_errors, special_ip_errors, subdomain_errors};
use crate::apiserver::status::Cause;

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const MOST_ENDPOINTS: usize = 1000;
const MOST_PORTS: usize = 20000;

/// `SetDefaults_EndpointPort`. Conditions have no defaults.
pub(super) fn set_defaults(slice: &mut Value) {
    for port in slice["ports"].as_array_mut().into_iter().flatten() {
        for (key, default) in [("name", ""), ("protocol", "TCP")] {
            if port[key].is_null() {
                port[key] = json!(default);
            }
        }
    }
}

/// Validates a slice; `old` is set for updates.
pub(super) fn check(slice: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let address_type = slice["addressType"].as_str().unwrap_or_default();
    if address_type.is_empty() {
        causes.push(Cause::required("addressType", ""));
    } else if !ADDRESS_TYPES.contains(&address_type) {
        causes.push(unsupported("addressType", address_type, &ADDRESS_TYPES));
    }
    let items = |key: &str| slice[key].as_array().map(Vec::as_slice).unwrap_or_default();
    for (key, limit) in [("endpoints", MOST_ENDPOINTS), ("ports", MOST_PORTS)] {
        if items(key).len() > limit {
            let message = format!("Too many: {}: must have at most {limit} items", items(key).len());
            causes.push(Cause::new("FieldValueTooMany", key, message));
        }
    }
    for (index, endpoint) in items("endpoints").iter().enumerate() {
        causes.extend(check_endpoint(&format!("endpoints[{index}]"), endpoint, address_type));
    }
    causes.extend(check_ports(items("ports")));
    if old.is_some_and(|old| old["addressType"] != slice["addressType"]) {
        causes.push(Cause::invalid("addressType", &slice["addressType"], "field is immutable"));
    }
    causes
}

fn check_endpoint(field: &str, endpoint: &Value, address_type: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let addresses = endpoint["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let field_of = format!("{field}.addresses");
    if addresses.is_empty() {
        causes.push(Cause::required(&field_of, "must contain at least 1 address"));
    }
    for (index, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
        let field = format!("{field_of}[{index}]");
        if address_type == "FQDN" {
            causes.extend(each(&field, address, subdomain_errors(address)));
            continue;
        }
        let format = each(&field, address, ip_errors(address));
        let special = if format.is_empty() { special_ip_errors(address) } else { Vec::new() };
        causes.extend(format);
        causes.extend(each(&field, address, special));
    }
    if let Some(hostname) = endpoint["hostname"].as_str() {
        causes.extend(each(&format!("{field}.hostname"), hostname, label_errors(hostname)));
    }
    causes
}

fn check_ports(ports: &[Value]) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let field = |key: &str| format!("ports[{index}].{key}");
        let name = port["name"].as_str().unwrap_or_default();
        if ports[..index].iter().any(|other| other["name"] == port["name"]) {
            causes.push(duplicate(&field("name"), &json!(name)));
        } else if !name.is_empty() {
            causes.extend(each(&field("name"), name, label_errors(name)));
        }
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !["SCTP", "TCP", "UDP"].contains(&protocol) {
            causes.push(unsupported(&field("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
        }
    }
    causes
}
