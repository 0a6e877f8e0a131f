//! Objects of a large cluster, with everything that a real API server sends: managed fields, owners, Pods behind
//! endpoints. The same number always gives the same object.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

/// Namespace of all Services.
pub(crate) const NAMESPACE: &str = "default";
/// Limit of endpoints in a slice: the EndpointSlice controller's default.
const SLICE: u32 = 100;
/// Number of Nodes that endpoints are distributed over.
const NODES: u32 = 200;

/// Name of a Service.
pub(crate) fn name(number: u32) -> String {
    format!("service-{number:05}")
}

/// Managed fields, about as long as in a real object.
fn managers(fields: &Value) -> Value {
    json!([{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields}])
}

/// Service of our class; with an address in its status if `published`.
pub(crate) fn service(number: u32, published: bool) -> Value {
    let cluster_ip = Ipv4Addr::from(0x0a60_0000 + number);
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:allocateLoadBalancerNodePorts": {},
        "f:externalTrafficPolicy": {}, "f:internalTrafficPolicy": {}, "f:ports": {".": {}, "k:{\"port\":8080,\"protocol\":\"TCP\"}": {
        ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}}, "f:selector": {}, "f:type": {}}});
    let status = if published {
        json!({"loadBalancer": {"ingress": [{"ip": address(number), "ipMode": "Proxy"}]}})
    } else {
        json!({"loadBalancer": {}})
    };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name(number), "namespace": NAMESPACE, "labels": {"app": name(number)},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}, "managedFields": managers(&fields)},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "allocateLoadBalancerNodePorts": false,
            "clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "selector": {"app": name(number)},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "targetPort": "http"}]},
        "status": status,
    })
}

/// Published address of a Service, from the range that is reserved for benchmarks (RFC 2544), and on no interface.
pub(crate) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0xc612_0000 + number)
}

/// Range of [`address`].
pub(crate) const ADDRESSES: &str = "198.18.0.0/15";

/// Slices of a Service with this many endpoints. `turn` changes the readiness of the first.
pub(crate) fn slices(number: u32, endpoints: u32, turn: u32) -> impl Iterator<Item = Value> {
    let parts = endpoints.div_ceil(SLICE);
    (0..parts).map(move |part| {
        let first = part * SLICE;
        slice(number, part, first..endpoints.min(first + SLICE), turn)
    })
}

fn slice(number: u32, part: u32, endpoints: std::ops::Range<u32>, turn: u32) -> Value {
    let service = name(number);
    let fields = json!({"f:addressType": {}, "f:endpoints": {}, "f:metadata": {"f:annotations": {".": {},
        "f:endpoints.kubernetes.io/last-change-trigger-time": {}}, "f:generateName": {}, "f:labels": {".": {},
        "f:endpointslice.kubernetes.io/managed-by": {}, "f:kubernetes.io/service-name": {}}, "f:ownerReferences": {".": {},
        "k:{\"uid\":\"7b1a9c0e-0000-4000-8000-000000000000\"}": {}}}, "f:ports": {}});
    let ready = |endpoint: u32| endpoint != 0 || turn.is_multiple_of(2);
    let endpoint = |endpoint: u32| {
        let pod = number.wrapping_mul(101).wrapping_add(endpoint);
        let ready = ready(endpoint);
        json!({"addresses": [Ipv4Addr::from(0x0a80_0000 + pod)], "nodeName": node_name(pod % NODES),
            "zone": format!("zone-{}", pod % 3),
            "conditions": {"ready": ready, "serving": ready, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("{service}-{endpoint}"),
                "uid": format!("7b1a9c0e-0000-4000-8000-{pod:012}")}})
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-{part}"), "generateName": format!("{service}-"), "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": service, "app": service,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service, "controller": true,
                "uid": "7b1a9c0e-0000-4000-8000-000000000000"}],
            "managedFields": managers(&fields)},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints.map(endpoint).collect::<Vec<_>>(),
    })
}

fn node_name(number: u32) -> String {
    format!("node-{number:03}.example.internal")
}

/// All Nodes.
pub(crate) fn nodes() -> impl Iterator<Item = Value> {
    (0..NODES).map(|number| {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node_name(number), "labels": {"topology.kubernetes.io/zone": format!("zone-{}", number % 3)}},
            "spec": {"podCIDR": format!("10.{}.{}.0/24", 200 + number / 256, number % 256)},
            "status": {"addresses": [{"type": "InternalIP", "address": Ipv4Addr::from(0x0a01_0000 + number)}]}})
    })
}

/// Pool with enough addresses for all Services.
pub(crate) fn pool() -> Value {
    json!({"apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "all"},
        "spec": {"addresses": [ADDRESSES]}})
}

/// CustomResourceDefinition of pools, as installed by `deploy`.
pub(crate) fn pool_definition() -> Value {
    let text = include_str!("../../deploy/base/crd.yaml");
    serde_saphyr::from_str(text).expect("the manifest is YAML")
}
