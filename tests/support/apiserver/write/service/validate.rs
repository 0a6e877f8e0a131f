//! `ValidateService`, in the same order.

mod policies;
mod port;

use serde_json::{Value, json};

use super::super::causes::{duplicate, unsupported};
use super::super::metadata::{check_labels, each};
use super::super::names::{
    cidr_errors, ip_errors, qualified_name_errors, special_ip_errors, subdomain_errors,
};
use super::families::check_cluster_ips;
use super::{is_headless, is_load_balancer, port_number, ports, text, texts};
use crate::apiserver::status::Cause;

const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

/// Validates the spec.
pub(crate) fn check(service: &Value) -> Vec<Cause> {
    let mut causes = check_type(service);
    causes.extend(port::check_ports(service));
    causes.extend(check_labels("spec.selector", &service["spec"]["selector"]));
    causes.extend(policies::check_affinity(service));
    causes.extend(check_cluster_ips(service));
    for (index, ip) in texts(service, "externalIPs").into_iter().enumerate() {
        let field = format!("spec.externalIPs[{index}]");
        let format = each(&field, ip, ip_errors(ip));
        let special = if format.is_empty() { special_ip_errors(ip) } else { Vec::new() };
        causes.extend(format);
        causes.extend(each(&field, ip, special));
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !types.contains(&text(service, "type")) {
        causes.push(unsupported("spec.type", text(service, "type"), &types));
    }
    causes.extend(check_node_ports(service));
    causes.extend(check_source_ranges(service));
    let allocate = &service["spec"]["allocateLoadBalancerNodePorts"];
    if allocate.is_boolean() && !is_load_balancer(service) {
        causes.push(Cause::forbidden("spec.allocateLoadBalancerNodePorts", ONLY_BALANCERS));
    }
    causes.extend(check_class(None, service));
    causes.extend(policies::check_traffic(service));
    causes
}

fn check_type(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let kind = text(service, "type");
    if ports(service).is_empty() && !is_headless(service) && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if is_headless(service) && matches!(kind, "LoadBalancer" | "NodePort") {
        let why = format!("may not be set to 'None' for {kind} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!("None"), &why));
    }
    if kind == "ExternalName" {
        let name = text(service, "externalName").trim_end_matches('.');
        if name.is_empty() {
            causes.push(Cause::required("spec.externalName", ""));
        } else {
            causes.extend(each("spec.externalName", name, subdomain_errors(name)));
        }
        if !texts(service, "clusterIPs").is_empty() {
            causes.push(Cause::forbidden("spec.clusterIPs", "may not be set for ExternalName services"));
        }
    }
    causes
}

/// Node ports of the wrong type, and duplicate ports.
fn check_node_ports(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let ports = ports(service);
    let fields = |index: usize| format!("spec.ports[{index}]");
    let node_port = |port: &Value| port_number(&port["nodePort"]);
    if text(service, "type") == "ClusterIP" {
        for (index, _) in ports.iter().enumerate().filter(|(_, port)| node_port(port) != 0) {
            let field = format!("{}.nodePort", fields(index));
            causes.push(Cause::forbidden(&field, "may not be used when `type` is 'ClusterIP'"));
        }
    }
    let twin = |index: usize, key: &str| {
        let same =
            |other: &Value| other[key] == ports[index][key] && other["protocol"] == ports[index]["protocol"];
        ports[..index].iter().any(same)
    };
    for (index, port) in ports.iter().enumerate() {
        if node_port(port) != 0 && twin(index, "nodePort") {
            causes.push(duplicate(&format!("{}.nodePort", fields(index)), &port["nodePort"]));
        }
    }
    for (index, port) in ports.iter().enumerate().filter(|(index, _)| twin(*index, "port")) {
        // The server prints its internal type, in the order of its fields.
        let message = format!(
            "Duplicate value: {{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
            port["protocol"], port["port"]
        );
        causes.push(Cause::new("FieldValueDuplicate", &fields(index), message));
    }
    causes
}

fn check_source_ranges(service: &Value) -> Vec<Cause> {
    let ranges = texts(service, "loadBalancerSourceRanges");
    let annotation = service["metadata"]["annotations"][SOURCE_RANGES_ANNOTATION].as_str();
    let mut causes = Vec::new();
    if !ranges.is_empty() {
        let field = "spec.LoadBalancerSourceRanges";
        if !is_load_balancer(service) {
            causes.push(Cause::forbidden(field, ONLY_BALANCERS));
        }
        for (index, range) in ranges.into_iter().enumerate() {
            let range = range.trim();
            causes.extend(each(&format!("{field}[{index}]"), range, cidr_errors(range)));
        }
    } else if let Some(given) = annotation {
        let field = format!("metadata.annotations[{SOURCE_RANGES_ANNOTATION}]");
        if !is_load_balancer(service) {
            causes.push(Cause::forbidden(&field, ONLY_BALANCERS));
        }
        let given = given.trim();
        for range in given.split(',').map(str::trim).filter(|_| !given.is_empty()) {
            causes.extend(each(&field, range, cidr_errors(range)));
        }
    }
    causes
}

/// `validateLoadBalancerClassField`: the class of a load balancer is immutable.
pub(crate) fn check_class(old: Option<&Value>, service: &Value) -> Vec<Cause> {
    let field = "spec.loadBalancerClass";
    let class = &service["spec"]["loadBalancerClass"];
    let mut causes = Vec::new();
    let changed = |old: &Value| {
        is_load_balancer(old) && is_load_balancer(service) && old["spec"]["loadBalancerClass"] != *class
    };
    if old.is_some_and(changed) {
        causes.push(Cause::invalid(field, class, "may not change once set"));
    }
    match class.as_str() {
        Some(class) if is_load_balancer(service) => {
            causes.extend(each(field, class, qualified_name_errors(class)));
        }
        Some(_) => causes.push(Cause::forbidden(field, ONLY_BALANCERS)),
        None => {}
    }
    causes
}
