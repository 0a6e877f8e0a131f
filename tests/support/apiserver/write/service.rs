//! Rules of Services: defaults, cluster addresses and node ports, resets, and validation. After k8s.io/kubernetes
//! `pkg/{apis,registry}/core/service`.

mod allocate;
mod defaults;
mod families;
mod status;
mod update;
mod validate;
mod warnings;

use serde_json::{Value, json};

pub(super) use allocate::{Held, allocate};
pub(super) use defaults::set_defaults;
pub(super) use status::check_status;
pub(super) use update::{fill_from, wipe};
pub(super) use validate::{check, check_class};
pub(super) use warnings::warnings;

/// `spec.<key>` as text; empty if absent.
fn text<'a>(service: &'a Value, key: &str) -> &'a str {
    service["spec"][key].as_str().unwrap_or_default()
}

/// List of strings in the spec.
fn texts<'a>(service: &'a Value, key: &str) -> Vec<&'a str> {
    service["spec"][key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn ports(service: &Value) -> &[Value] {
    service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Mutable ports. Indexing would insert a null if there are none.
fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Node port in the object; 0 if there is none.
fn port_number(value: &Value) -> u16 {
    value.as_u64().and_then(|port| port.try_into().ok()).unwrap_or_default()
}

fn is_load_balancer(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer"
}

fn is_headless(service: &Value) -> bool {
    texts(service, "clusterIPs") == ["None"] || text(service, "clusterIP") == "None"
}

fn needs_cluster_ip(service: &Value) -> bool {
    text(service, "type") != "ExternalName"
}

/// Whether the type can have node ports.
fn may_have_node_ports(service: &Value) -> bool {
    matches!(text(service, "type"), "NodePort" | "LoadBalancer")
}

/// Whether missing node ports are allocated.
fn gets_node_ports(service: &Value) -> bool {
    let declined = service["spec"]["allocateLoadBalancerNodePorts"] == json!(false);
    may_have_node_ports(service) && !(is_load_balancer(service) && declined)
}

fn needs_health_check_port(service: &Value) -> bool {
    is_load_balancer(service) && text(service, "externalTrafficPolicy") == "Local"
}

/// Whether external traffic can reach it.
fn is_external(service: &Value) -> bool {
    let by_address = text(service, "type") == "ClusterIP" && !texts(service, "externalIPs").is_empty();
    may_have_node_ports(service) || by_address
}

/// Mutable fields of the spec.
fn spec_mut(service: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    service["spec"].as_object_mut()
}
