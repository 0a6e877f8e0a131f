//! Fields that an update keeps or drops automatically: allocated values, and fields that the new type does not use.
//! After `pkg/registry/core/service/strategy.go` and `patchAllocatedValues`.

use serde_json::{Value, json};

use super::{
    gets_node_ports, is_external, is_load_balancer, may_have_node_ports, needs_cluster_ip,
    needs_health_check_port, port_number, ports, ports_mut, spec_mut, text, texts,
};

/// `dropTypeDependentFields`: removes what the new type cannot have, unless the same write changed it.
pub(crate) fn wipe(service: &mut Value, old: &Value) {
    let same = |service: &Value, key: &str| service["spec"][key] == old["spec"][key];
    let mut gone: Vec<&str> = Vec::new();
    if needs_cluster_ip(old) && !needs_cluster_ip(service) {
        gone.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if needs_health_check_port(old) && !needs_health_check_port(service) {
        gone.push("healthCheckNodePort");
    }
    if is_load_balancer(old) && !is_load_balancer(service) {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_external(old) && !is_external(service) {
        gone.push("externalTrafficPolicy");
    }
    gone.retain(|key| same(service, key));
    if let Some(spec) = spec_mut(service) {
        spec.retain(|key, _| !gone.contains(&key.as_str()));
    }
    let node_ports = |service: &Value| -> Vec<u16> {
        ports(service).iter().map(|port| port_number(&port["nodePort"])).collect()
    };
    if may_have_node_ports(old) && !may_have_node_ports(service) && node_ports(old) == node_ports(service) {
        ports_mut(service).filter_map(Value::as_object_mut).for_each(|port| drop(port.remove("nodePort")));
    }
    if !is_load_balancer(service) {
        service["status"]["loadBalancer"] = json!({});
    }
}

/// `patchAllocatedValues`: a client that omits an allocated value keeps it.
pub(crate) fn fill_from(service: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        if text(service, "clusterIP").is_empty() {
            copy(service, old, "clusterIP");
        }
        let same_first = text(service, "clusterIP") == text(old, "clusterIP");
        if texts(service, "clusterIPs").is_empty() && same_first {
            copy(service, old, "clusterIPs");
        }
    }
    if may_have_node_ports(old) && gets_node_ports(service) {
        fill_node_ports(service, old);
    }
    let port = "healthCheckNodePort";
    let asks = port_number(&service["spec"][port]) != 0;
    if needs_health_check_port(old) && needs_health_check_port(service) && !asks {
        copy(service, old, port);
    }
    super::allocate::pair_cluster_ips(service, Some(old));
}

fn copy(service: &mut Value, old: &Value, key: &str) {
    let value = old["spec"][key].clone();
    if let Some(spec) = spec_mut(service)
        && !value.is_null()
    {
        spec.insert(key.to_owned(), value);
    }
}

fn fill_node_ports(service: &mut Value, old: &Value) {
    let number = |port: &Value| port_number(&port["nodePort"]);
    let mine: Vec<u16> = ports(service).iter().map(number).collect();
    let mut used: Vec<u16> = ports(old).iter().map(number).filter(|port| mine.contains(port)).collect();
    for port in ports_mut(service) {
        if port.get("nodePort").is_some_and(|given| port_number(given) != 0) {
            continue;
        }
        let before = ports(old).iter().find(|old| old.get("name") == port.get("name")).map(number);
        if let Some(before) = before.filter(|before| *before != 0 && !used.contains(before)) {
            port["nodePort"] = json!(before);
            used.push(before);
        }
    }
}
