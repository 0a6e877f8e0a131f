//! `SetDefaults_Service` of `pkg/apis/core/v1/defaults.go`.

use serde_json::{Map, Value, json};

use super::{is_external, is_load_balancer, text};

/// Default timeout of ClientIP affinity in seconds.
const AFFINITY_SECONDS: u32 = 10800;

/// Sets defaults of the Service.
pub(crate) fn set_defaults(service: &mut Value) {
    let kind = match text(service, "type") {
        "" => "ClusterIP".to_owned(),
        given => given.to_owned(),
    };
    let spec = &mut service["spec"];
    spec["type"] = json!(kind);
    set_affinity(spec);
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if port["protocol"].is_null() {
            port["protocol"] = json!("TCP");
        }
        if port["targetPort"].is_null() && port["port"] != json!(0) {
            port["targetPort"] = port["port"].clone();
        }
    }
    if is_external(service) && text(service, "externalTrafficPolicy").is_empty() {
        service["spec"]["externalTrafficPolicy"] = json!("Cluster");
    }
    let inside = matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer");
    set_if_absent(&mut service["spec"], inside, "internalTrafficPolicy", json!("Cluster"));
    let balanced = is_load_balancer(service);
    set_if_absent(&mut service["spec"], balanced, "allocateLoadBalancerNodePorts", json!(true));
    if balanced {
        for ingress in service["status"]["loadBalancer"]["ingress"].as_array_mut().into_iter().flatten() {
            let addressed = ingress["ip"].is_string();
            set_if_absent(ingress, addressed, "ipMode", json!("VIP"));
        }
    }
    remove_nulls(service);
}

fn set_affinity(spec: &mut Value) {
    if spec["sessionAffinity"].is_null() {
        spec["sessionAffinity"] = json!("None");
    }
    if spec["sessionAffinity"] == "None" {
        spec["sessionAffinityConfig"] = Value::Null;
    }
    let seconds = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if spec["sessionAffinity"] == "ClientIP" && seconds.is_null() {
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
    }
}

fn set_if_absent(object: &mut Value, wanted: bool, key: &str, value: Value) {
    if wanted && object[key].is_null() {
        object[key] = value;
    }
}

/// Removes nulls, which mutable indexing of a JSON object inserts. Only conditions may have nulls.
fn remove_nulls(service: &mut Value) {
    fn clean(fields: &mut Map<String, Value>) {
        fields.retain(|_, value| !value.is_null());
    }
    if let Some(spec) = service["spec"].as_object_mut() {
        clean(spec);
    }
    let ports = service["spec"]["ports"].as_array_mut().into_iter().flatten();
    ports.filter_map(Value::as_object_mut).for_each(clean);
    if let Some(spec) = service["spec"].as_object_mut() {
        clean(spec);
    }
    let balancer = &mut service["status"]["loadBalancer"];
    let ingress = balancer["ingress"].as_array_mut().into_iter().flatten();
    ingress.filter_map(Value::as_object_mut).for_each(clean);
    if let Some(balancer) = balancer.as_object_mut() {
        clean(balancer);
    }
}
