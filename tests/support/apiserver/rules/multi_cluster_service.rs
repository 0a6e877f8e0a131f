//! Karmada's admission webhook for MultiClusterServices (`pkg/webhook/multiclusterservice`): its mutations and validation.
//! It is not called for writes of the status, so an invalid status is only refused at the next other write.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::apiserver::kind::Kind;
use crate::apiserver::status::Status;
use crate::apiserver::store::new_uid;
use crate::apiserver::write::names::{label_errors, subdomain_errors};

const PERMANENT_ID: &str = "multiclusterservice.karmada.io/permanent-id";
/// `ClusterNameMaxLength` of Karmada.
const LONGEST_CLUSTER_NAME: usize = 48;
const TYPES: [&str; 2] = ["CrossCluster", "LoadBalancer"];

/// Whether the webhook is called: for creations and updates of the object itself.
pub(crate) fn judges(kind: &Kind, subresource: Option<&str>) -> bool {
    kind.group == "networking.karmada.io" && kind.plural == "multiclusterservices" && subresource.is_none()
}

/// Mutations of the webhook: an identity, and the fields that Go always writes since they are not pointers.
pub(crate) fn mutate(object: &mut Value) {
    let labels = &mut object["metadata"]["labels"];
    if labels[PERMANENT_ID].as_str().is_none_or(str::is_empty) {
        labels[PERMANENT_ID] = json!(new_uid());
    }
    if object["spec"].is_object() && object["spec"]["range"].is_null() {
        object["spec"]["range"] = json!({});
    }
}

/// Validation by the webhook.
pub(crate) fn validate(live: Option<&Value>, object: &Value) -> Result<(), Status> {
    let mut found = Vec::new();
    if let Some(live) = live {
        if live["spec"]["types"] != object["spec"]["types"] {
            found.push(format!("spec.types: Invalid value: {}: field is immutable", object["spec"]["types"]));
        }
        found.extend(load_balancer_errors(object));
    }
    found.extend(name_errors(object));
    found.extend(spec_errors(&object["spec"]));
    match found.as_slice() {
        [] => Ok(()),
        [one] => Err(denied(one)),
        several => Err(denied(&format!("[{}]", several.join(", ")))),
    }
}

fn denied(why: &str) -> Status {
    let hook = "admission webhook \"multiclusterservice.karmada.io\" denied the request";
    Status::new(403, "Forbidden", format!("{hook}: {why}"))
}

/// Errors of the name, which becomes that of Services: DNS-1035, stricter than the subdomains that the definition allows.
fn name_errors(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let starts_with_letter = name.starts_with(|first: char| first.is_ascii_lowercase());
    let fits = starts_with_letter && label_errors(name).is_empty();
    (!fits).then(|| format!("metadata.name: Invalid value: {name:?}: a DNS-1035 label"))
}

fn spec_errors(spec: &Value) -> Vec<String> {
    let mut found = port_errors(&spec["ports"]);
    for field in ["providerClusters", "consumerClusters"] {
        for (index, cluster) in list(&spec[field]).iter().enumerate() {
            let name = cluster["name"].as_str().unwrap_or_default();
            if name.len() > LONGEST_CLUSTER_NAME || !label_errors(name).is_empty() {
                // The real webhook names a wrong path here.
                found.push(format!(
                    "spec.range.{field}[{index}]: Invalid value: {name:?}: not a cluster's name"
                ));
            }
        }
    }
    let types: Vec<&str> = list(&spec["types"]).iter().filter_map(Value::as_str).collect();
    found.extend(
        types
            .iter()
            .enumerate()
            .filter(|(_, word)| !TYPES.contains(word))
            .map(|(index, word)| format!("spec.types[{index}]: Invalid value: {word:?}: ExposureType Error")),
    );
    if types.iter().collect::<BTreeSet<_>>().len() > 1 {
        found.push(format!("spec.types: Invalid value: {}: more than one type", spec["types"]));
    }
    found
}

fn port_errors(ports: &Value) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for (index, port) in list(ports).iter().enumerate() {
        let name = port["name"].as_str().unwrap_or_default();
        if !name.is_empty() && !label_errors(name).is_empty() {
            found.push(format!("spec.ports[{index}].name: Invalid value: {name:?}: a DNS-1123 label"));
        } else if !name.is_empty() && !names.insert(name) {
            found.push(format!("spec.ports[{index}].name: Duplicate value: {name:?}"));
        }
        if !port["port"].as_i64().is_some_and(|number| (1..=65535).contains(&number)) {
            let number = &port["port"];
            found.push(format!(
                "spec.ports[{index}].port: Invalid value: {number}: must be between 1 and 65535, inclusive"
            ));
        }
    }
    found
}

/// `ValidateLoadBalancerStatus` of Karmada's `pkg/util/lifted/validatingmcs.go`, for the current status.
fn load_balancer_errors(object: &Value) -> Vec<String> {
    let ingress = list(&object["status"]["loadBalancer"]["ingress"]).iter().enumerate();
    let errors = |(index, entry): (usize, &Value)| {
        let place = format!("status.loadBalancer.ingress[{index}]");
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let (ip, hostname) = (text("ip"), text("hostname"));
        let mut found = Vec::new();
        if !ip.is_empty() && ip.parse::<IpAddr>().is_err() {
            found.push(format!("{place}.ip: Invalid value: {ip:?}: must be a valid IP address"));
        }
        if !hostname.is_empty() {
            let errors = subdomain_errors(&hostname);
            found.extend(
                errors.iter().map(|why| format!("{place}.hostname: Invalid value: {hostname:?}: {why}")),
            );
            if hostname.parse::<IpAddr>().is_ok() {
                let why = "must be a DNS name, not an IP address";
                found.push(format!("{place}.hostname: Invalid value: {hostname:?}: {why}"));
            }
        }
        found
    };
    ingress.flat_map(errors).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
