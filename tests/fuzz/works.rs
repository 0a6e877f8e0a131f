//! Fuzz target: any text, line by line, as objects that Karmada collected from member clusters: Works with EndpointSlices
//! and Services, imported slices, Clusters and a ResourceBinding. The rest is the manifest of a Work, if it is JSON.

use std::sync::LazyLock;

use crate::invariants::Manifest;
use serde_json::{Value, json};
use sheave_control::api::store::ControlPlane;

static MANIFEST: LazyLock<Manifest> =
    LazyLock::new(|| Manifest::new("input.json").expect("a temporary folder"));

const OWNER: [&str; 3] = [
    "multiclusterservice.karmada.io/namespace",
    "multiclusterservice.karmada.io/name",
    "endpointslice.karmada.io/managed-by",
];

/// Checks one input.
pub(crate) fn run(text: &str) {
    let mut lines = text.splitn(48, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let works = [slice_work(&mut next), service_work(&mut next)];
    let [mut first, second] = works;
    let clusters = ["member1", "member2"].map(|name| cluster(name, &mut next));
    let [imported, binding, service] =
        [imported(&mut next), binding(&mut next), multi_cluster_service(&mut next)];
    let template = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"ports": [{"name": "http", "port": 80}], "externalTrafficPolicy": next(), "sessionAffinity": next()},
    });
    if let Ok(manifest) = serde_json::from_str::<Value>(next())
        && let Some(manifests) = first["spec"]["workload"]["manifests"].as_array_mut()
    {
        manifests.push(manifest);
    }
    let [one, other] = clusters;
    let items = [first, second, one, other, imported, binding, service, template];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    MANIFEST.check(ControlPlane::Karmada, list.to_string().as_bytes());
}

/// The line, or the usual value if it is empty.
fn or<'a>(line: &'a str, usual: &'a str) -> &'a str {
    if line.is_empty() { usual } else { line }
}

/// The line as JSON, such as a number, a list or null, else as a string.
fn any(line: &str, usual: Value) -> Value {
    if line.is_empty() { usual } else { serde_json::from_str(line).unwrap_or_else(|_| line.into()) }
}

fn slice<'a>(next: &mut impl FnMut() -> &'a str) -> Value {
    json!({
        "apiVersion": or(next(), "discovery.k8s.io/v1"), "kind": or(next(), "EndpointSlice"),
        "metadata": {
            "namespace": or(next(), "shop"), "name": "web-1",
            "labels": {"kubernetes.io/service-name": or(next(), "web"), "endpointslice.kubernetes.io/managed-by": next()},
        },
        "addressType": or(next(), "IPv4"),
        "ports": [{"name": or(next(), "http"), "port": any(next(), json!(8080)), "protocol": or(next(), "TCP")}],
        "endpoints": [
            {"addresses": [or(next(), "10.1.0.7")], "nodeName": next(), "conditions": any(next(), json!({}))},
            {"addresses": any(next(), json!(["10.1.0.8"])), "zone": next(), "hints": any(next(), json!({}))},
        ],
    })
}

fn slice_work<'a>(next: &mut impl FnMut() -> &'a str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {
            "namespace": or(next(), "karmada-es-member1"), "name": "web-a",
            "labels": {OWNER[0]: or(next(), "shop"), OWNER[1]: or(next(), "web"), OWNER[2]: "MultiClusterService"},
            "annotations": {"endpointslice.karmada.io/provision-cluster": next()},
        },
        "spec": {"workload": {"manifests": [slice(next)]}},
    })
}

/// A Service that runs in a cluster, with its addresses there.
fn service_work<'a>(next: &mut impl FnMut() -> &'a str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"namespace": "karmada-es-member2", "name": "web-b"},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"type": or(next(), "LoadBalancer"), "ports": [{"name": "http", "port": any(next(), json!(80))}]},
        }]}},
        "status": {"manifestStatuses": [{
            "identifier": {"kind": "Service", "namespace": "shop", "name": or(next(), "web")},
            "status": any(next(), json!({"loadBalancer": {"ingress": [{"ip": next(), "hostname": next()}]}})),
        }]},
    })
}

fn imported<'a>(next: &mut impl FnMut() -> &'a str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop", "name": or(next(), "imported-member1-web"),
            "labels": {"kubernetes.io/service-name": or(next(), "derived-web")},
            "annotations": {"endpointslice.karmada.io/provision-cluster": next()},
        },
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": [{"addresses": [next()]}],
    })
}

fn cluster<'a>(name: &str, next: &mut impl FnMut() -> &'a str) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"region": next(), "taints": any(next(), json!([]))},
        "status": {"conditions": [{"type": "Ready", "status": or(next(), "True"), "reason": "R", "message": "",
            "lastTransitionTime": or(next(), "2026-01-01T00:00:00Z")}]},
    })
}

fn binding<'a>(next: &mut impl FnMut() -> &'a str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"namespace": "shop", "name": "web-service"},
        "spec": {
            "resource": {"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web"},
            "clusters": [{"name": or(next(), "member1")}, {"name": "member2"}],
        },
        "status": any(next(), json!({})),
    })
}

fn multi_cluster_service<'a>(next: &mut impl FnMut() -> &'a str) -> Value {
    json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"namespace": "shop", "name": "web", "annotations": {
            "sheave.dev/cluster-weights": next(), "sheave.dev/cluster-priority": next(), "sheave.dev/cluster-endpoints": next(),
            "sheave.dev/drain": next(),
        }},
        "spec": {"types": ["LoadBalancer"], "providerClusters": any(next(), json!([]))},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.10"}]}},
    })
}
