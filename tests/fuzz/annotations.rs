//! Fuzz target: any text, line by line, as values of a Service's annotations and free-text fields.

use std::sync::LazyLock;

use crate::invariants::Manifest;
use serde_json::json;
use sheave_control::api::store::ControlPlane;

static MANIFEST: LazyLock<Manifest> =
    LazyLock::new(|| Manifest::new("input.json").expect("a temporary folder"));

/// Checks one input.
pub(crate) fn run(text: &str) {
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": "web", "annotations": {
            "sheave.dev/balance": next(),
            "sheave.dev/client-source": next(),
            "sheave.dev/accept-proxy": next(),
            "sheave.dev/addresses": next(),
            "sheave.dev/address-pool": next(),
            "service.beta.kubernetes.io/load-balancer-source-ranges": next(),
        }},
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4",
            "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
            "externalTrafficPolicy": next(), "internalTrafficPolicy": next(), "sessionAffinity": next(),
            "ipFamilyPolicy": next(), "ipFamilies": [next(), next()], "trafficDistribution": next(),
            "loadBalancerIP": next(), "clusterIP": next(), "externalIPs": [next(), next()],
            "loadBalancerSourceRanges": [next(), next()],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": next()}, {"ip": next(), "hostname": next()}]}},
    });
    let pool = json!({
        "apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "pool"},
        "spec": {"addresses": [next(), next()]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": next(),
        "metadata": {"namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": [next()], "nodeName": next(), "zone": next()}],
    });
    // Last, so that the lines of older inputs keep their meaning.
    for name in [
        "max-connections",
        "max-connection-rate-per-client",
        "idle-timeout",
        "connect-timeout",
        "max-connection-age",
        "removed-endpoint-grace",
        "idle-keepalives",
        "affinity-scope",
        "health-check",
        "panic-threshold",
        "slow-start",
    ] {
        service["metadata"]["annotations"][format!("sheave.dev/{name}")] = json!(next());
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [service, pool, slice]});
    MANIFEST.check(ControlPlane::Local, list.to_string().as_bytes());
}
