//! Objects of a Karmada control plane over a fleet of clusters, with everything that Karmada adds: labels, annotations, Pods
//! behind endpoints. The same number always gives the same object.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::objects::{self, NAMESPACE};
use crate::support::karmada;

/// Definitions of the kinds. Clusters need none.
pub(crate) fn definitions() -> impl Iterator<Item = Value> {
    let texts = [karmada::MULTI_CLUSTER_SERVICE, karmada::WORK, karmada::RESOURCE_BINDING];
    texts.into_iter().map(|text| serde_saphyr::from_str(text).expect("the definition is YAML"))
}

/// Name of a member cluster.
pub(crate) fn cluster_name(number: u32) -> String {
    format!("member-{number:02}")
}

/// Member clusters, all ready, in four regions.
pub(crate) fn clusters(count: u32) -> impl Iterator<Item = Value> {
    (0..count).map(|number| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": cluster_name(number)},
            "spec": {"syncMode": "Push", "region": format!("region-{}", number % 4), "zones": ["zone-0", "zone-1"]},
            "status": {"kubernetesVersion": "v1.36.0", "conditions": [{"type": "Ready", "status": "True",
                "reason": "ClusterReady", "message": "cluster is healthy and ready to accept workloads",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    })
}

/// A MultiClusterService with an address, and the Service that it exposes.
pub(crate) fn service(number: u32) -> [Value; 2] {
    let name = objects::name(number);
    let template = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"type": "ClusterIP", "clusterIP": Ipv4Addr::from(0x0a60_0000 + number), "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "selector": {"app": name},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "targetPort": "http"}]},
    });
    let exposed = json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"name": name, "namespace": NAMESPACE,
            "labels": {"multiclusterservice.karmada.io/permanent-id": format!("7b1a9c0e-0000-4000-8000-{number:012}")}},
        "spec": {"types": ["LoadBalancer"], "range": {}},
        "status": {"loadBalancer": {"ingress": [{"ip": objects::address(number), "ipMode": "Proxy"}]}},
    });
    [template, exposed]
}

/// Work with the collected endpoints of a Service in one cluster. `turn` changes the readiness of the first endpoint.
pub(crate) fn work(number: u32, cluster: u32, endpoints: u32, turn: u32) -> Value {
    let (name, namespace) = (objects::name(number), format!("karmada-es-{}", cluster_name(cluster)));
    let slice = format!("{name}-x7k2p");
    let work = format!("{slice}-6c7c559955");
    let ready = |endpoint: u32| endpoint != 0 || turn.is_multiple_of(2);
    let endpoint = |endpoint: u32| {
        let pod = (number * 256 + cluster) * endpoints + endpoint;
        let ready = ready(endpoint);
        json!({"addresses": [Ipv4Addr::from(0x0a80_0000 + pod)], "nodeName": format!("node-{:03}", pod % 50),
            "zone": format!("zone-{}", pod % 2), "conditions": {"ready": ready, "serving": ready, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("{name}-{endpoint}"),
                "uid": format!("7b1a9c0e-0000-4000-8000-{pod:012}")}})
    };
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": work, "namespace": namespace, "finalizers": ["karmada.io/endpointslice-controller"],
            "labels": {"endpointslice.karmada.io/name": name, "endpointslice.karmada.io/namespace": NAMESPACE,
                "endpointslice.karmada.io/managed-by": "ServiceExport",
                "work.karmada.io/permanent-id": format!("7b1a9c0e-0000-4000-8000-{:012}", number * 256 + cluster)}},
        "spec": {"suspendDispatching": true, "workload": {"manifests": [{
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": slice, "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": name, "app": name, "karmada.io/managed": "true",
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                "annotations": {"work.karmada.io/name": work, "work.karmada.io/namespace": namespace}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
        }]}},
    })
}
