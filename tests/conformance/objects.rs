//! Objects of a case: those of its file with the case's changes. Knows the names of Kubernetes objects, but not their
//! meaning.

use serde_json::{Map, Value};

use crate::format::{Case, Common};

/// Objects of the gateways' own cluster in a case, completed with their `apiVersion`.
pub(crate) fn of_case(common: &Common, case: &Case) -> Result<Vec<Value>, String> {
    changed(&common.objects, &case.without, &case.objects)
}

/// Like [`of_case`], for the Karmada control plane.
pub(crate) fn of_karmada(common: &Common, case: &Case) -> Result<Vec<Value>, String> {
    changed(&common.karmada, &case.without_karmada, &case.karmada)
}

fn changed(common: &[Value], without: &[String], own: &[Value]) -> Result<Vec<Value>, String> {
    let mut objects: Vec<(String, Value)> = Vec::new();
    for object in common {
        add(&mut objects, object)?;
    }
    for unwanted in without {
        let place = objects.iter().position(|(name, _)| name == unwanted);
        objects.remove(place.ok_or_else(|| format!("without: the file has no {unwanted}"))?);
    }
    for object in own {
        let name = name_of(object)?;
        match objects.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => merge(known, object),
            None => objects.push((name, object.clone())),
        }
    }
    objects.into_iter().enumerate().map(|(at, (_, object))| complete(at, object)).collect()
}

fn add(objects: &mut Vec<(String, Value)>, object: &Value) -> Result<(), String> {
    let name = name_of(object)?;
    if objects.iter().any(|(known, _)| *known == name) {
        return Err(format!("the file has two of {name}"));
    }
    objects.push((name, object.clone()));
    Ok(())
}

/// Name of an object, such as `Service shop/web` or `Node gw-1`.
pub(crate) fn name_of(object: &Value) -> Result<String, String> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").ok_or_else(|| format!("an object has no kind: {object}"))?;
    let name = text("/metadata/name").ok_or_else(|| format!("a {kind} has no name"))?;
    Ok(match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    })
}

/// Adds the `apiVersion`, also to the objects inside of a Work, and to objects of the Gateway API a generation that no other one has, which
/// their conditions have observed.
fn complete(at: usize, mut object: Value) -> Result<Value, String> {
    if api_version(&object).is_none() && object.get("apiVersion").is_none() {
        return Err(format!("{} needs an apiVersion", name_of(&object)?));
    }
    let manifests = object.pointer_mut("/spec/workload/manifests").and_then(Value::as_array_mut);
    manifests.into_iter().flatten().for_each(with_api_version);
    with_api_version(&mut object);
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version.starts_with("gateway.networking.k8s.io/") {
        let generation = Value::from(at + 2);
        observe(&generation, object.get_mut("status"));
        object["metadata"]["generation"] = generation;
    }
    Ok(object)
}

/// Makes conditions of a status that name no generation be about this one.
fn observe(generation: &Value, status: Option<&mut Value>) {
    let Some(status) = status else { return };
    for list in ["conditions", "listeners"] {
        for item in status.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            match (list, item.as_object_mut()) {
                ("conditions", Some(condition)) => {
                    condition.entry("observedGeneration").or_insert_with(|| generation.clone());
                }
                _ => observe(generation, Some(item)),
            }
        }
    }
}

fn with_api_version(object: &mut Value) {
    let Some(version) = api_version(object) else { return };
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| version.into());
    }
}

/// Default `apiVersion` of a kind.
fn api_version(object: &Value) -> Option<&'static str> {
    Some(match object.get("kind")?.as_str()? {
        "Service" | "Node" | "Namespace" => "v1",
        "EndpointSlice" => "discovery.k8s.io/v1",
        "GatewayClass" | "Gateway" | "ListenerSet" | "TCPRoute" | "UDPRoute" | "TLSRoute"
        | "ReferenceGrant" => "gateway.networking.k8s.io/v1",
        "ServiceImport" => "multicluster.x-k8s.io/v1beta1",
        "AddressPool" => "sheave.dev/v1alpha1",
        "MultiClusterService" => "networking.karmada.io/v1alpha1",
        "Work" => "work.karmada.io/v1alpha1",
        "ResourceBinding" => "work.karmada.io/v1alpha2",
        "Cluster" => "cluster.karmada.io/v1alpha1",
        _ => return None,
    })
}

/// JSON Merge Patch (RFC 7386, section 2).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.as_str()).or_insert(Value::Null), value);
        }
    }
}
