//! Objects of the Gateway API and a ServiceImport that belong together, for the cases of the admission policies.

use serde_json::{Value, json};

/// Kinds of the Gateway API with annotations, and ServiceImport, with their plurals as admission requests have them.
pub(crate) const GATEWAY_API: [(&str, &str); 6] = [
    ("Gateway", "gateways"),
    ("ListenerSet", "listenersets"),
    ("TCPRoute", "tcproutes"),
    ("UDPRoute", "udproutes"),
    ("TLSRoute", "tlsroutes"),
    ("ServiceImport", "serviceimports"),
];

/// One of these objects. All of them belong together: the route leads from the Gateway and the ListenerSet to the ServiceImport.
pub(crate) fn of_gateway_api(kind: &str, annotations: &Value) -> Value {
    let spec = match kind {
        "Gateway" => json!({
            "gatewayClassName": "sheave",
            "allowedListeners": {"namespaces": {"from": "Same"}},
            "listeners": [{"name": "tcp", "port": 80, "protocol": "TCP"}, {"name": "udp", "port": 80, "protocol": "UDP"},
                          {"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}}],
        }),
        "ListenerSet" => {
            json!({"parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"},
                                "listeners": [{"name": "tcp", "port": 81, "protocol": "TCP"}]})
        }
        "ServiceImport" => {
            json!({"type": "ClusterSetIP", "ips": [], "ports": [{"name": "tcp", "port": 80}, {"name": "udp", "port": 80, "protocol": "UDP"}]})
        }
        _ => {
            let backend =
                json!({"group": "multicluster.x-k8s.io", "kind": "ServiceImport", "name": "web", "port": 80});
            let mut spec = json!({"parentRefs": [{"name": "web"}], "rules": [{"backendRefs": [backend]}]});
            if kind == "TLSRoute" {
                spec["hostnames"] = json!(["web.example"]);
            }
            spec
        }
    };
    let version = if kind == "ServiceImport" {
        "multicluster.x-k8s.io/v1alpha1"
    } else {
        "gateway.networking.k8s.io/v1"
    };
    json!({"apiVersion": version, "kind": kind, "spec": spec,
           "metadata": {"name": "web", "namespace": "default", "annotations": annotations}})
}

/// The object with those that it needs to have an effect.
pub(crate) fn with_neighbours(object: &Value) -> Vec<Value> {
    let kind = object["kind"].as_str().expect("a kind");
    if !GATEWAY_API.iter().any(|(known, _)| *known == kind) {
        return vec![object.clone()];
    }
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "sheave"},
                       "spec": {"controllerName": "sheave.dev/gateway"}});
    let labels = json!({"multicluster.kubernetes.io/service-name": "web", "multicluster.kubernetes.io/source-cluster": "m1"});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                       "metadata": {"name": "web-m1", "namespace": "default", "labels": labels},
                       "ports": [{"name": "tcp", "port": 8080}], "endpoints": [{"addresses": ["192.0.2.7"]}]});
    let others = GATEWAY_API.iter().map(|(other, _)| *other).filter(|other| *other != kind);
    let others = others.map(|other| of_gateway_api(other, &json!({})));
    [object.clone(), class, slice].into_iter().chain(others).collect()
}
