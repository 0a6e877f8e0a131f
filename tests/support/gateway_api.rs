//! Definitions of the Gateway API (v1) as far as Sheave reads and writes it: list types, limits and defaults as upstream has them.

use serde_json::{Value, json};

/// Group and version of the kinds.
const V1: (&str, &str) = ("gateway.networking.k8s.io", "v1");

/// Definitions of GatewayClass, Gateway, ListenerSet, TCPRoute, UDPRoute, TLSRoute and ReferenceGrant, and of ServiceImport.
pub fn definitions() -> Vec<Value> {
    let listeners = json!({"type": "array", "maxItems": 64, "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "supportedKinds": open_list(), "attachedRoutes": {"type": "integer", "format": "int32"},
            "conditions": conditions()}}});
    let class = json!({"conditions": conditions(), "supportedFeatures": {"type": "array", "maxItems": 64,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}}}}});
    let addresses = json!({"type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
        "items": {"type": "object", "properties": {
            "type": {"type": "string", "default": "IPAddress"}, "value": {"type": "string"}}}});
    let gateway = json!({"addresses": addresses, "conditions": conditions(), "listeners": listeners,
        "attachedListenerSets": {"type": "integer", "format": "int32"}});
    let set = json!({"conditions": conditions(), "listeners": listeners});
    let route = json!({"parents": {"type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
        "items": {"type": "object", "properties": {
            "parentRef": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "controllerName": {"type": "string"}, "conditions": conditions()}}}});
    vec![
        definition(("GatewayClass", "gatewayclasses", "Cluster"), V1, &class),
        definition(("Gateway", "gateways", "Namespaced"), V1, &gateway),
        definition(("ListenerSet", "listenersets", "Namespaced"), V1, &set),
        definition(("TCPRoute", "tcproutes", "Namespaced"), V1, &route),
        definition(("UDPRoute", "udproutes", "Namespaced"), V1, &route),
        definition(("TLSRoute", "tlsroutes", "Namespaced"), V1, &route),
        definition(("ReferenceGrant", "referencegrants", "Namespaced"), V1, &json!({})),
        definition(
            ("ServiceImport", "serviceimports", "Namespaced"),
            ("multicluster.x-k8s.io", "v1beta1"),
            &json!({}),
        ),
    ]
}

fn conditions() -> Value {
    json!({"type": "array", "maxItems": 8, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {"type": "object", "required": ["type", "status", "reason", "message", "lastTransitionTime"], "properties": {
            "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
            "message": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"}}}})
}

fn open_list() -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "atomic",
           "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
}

/// Definition of a kind with this name, plural and scope.
fn definition(
    (kind, plural, scope): (&str, &str, &str),
    (group, version): (&str, &str),
    status: &Value,
) -> Value {
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"spec": spec, "status": {"type": "object", "properties": status}}}}}],
        },
    })
}
