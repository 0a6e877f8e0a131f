//! Manifests of the demo's Karmada control plane: a MultiClusterService with its Service, and for each cluster its Cluster object and
//! a Work with the collected EndpointSlice.

use std::fmt::Write as _;

use super::clusters::Cluster;
use super::manifests::{CLASS, VIP};

/// Port of the MultiClusterService.
pub(super) const SHOP_PORT: u16 = 18081;

/// Manifests of `demo/shop`: the template of the member clusters' Services, and the MultiClusterService that exposes it.
pub(super) fn shop() -> String {
    format!(
        "apiVersion: networking.karmada.io/v1alpha1
kind: MultiClusterService
metadata:
  name: shop
  namespace: demo
  annotations:
    sheave.dev/load-balancer-class: {CLASS}
    # Three parts of the new connections to east, one to west. Change it and see.
    sheave.dev/cluster-weights: east=3,west=1
spec:
  types: [LoadBalancer]
status:
  loadBalancer:
    ingress:
    - ip: {VIP}
---
apiVersion: v1
kind: Service
metadata:
  name: shop
  namespace: demo
spec:
  type: ClusterIP
  ports:
  - name: http
    port: {SHOP_PORT}
    protocol: TCP
"
    )
}

/// Manifests of a member cluster and the endpoints that Karmada collected from it.
pub(super) fn member(cluster: &Cluster) -> String {
    let name = cluster.name;
    format!(
        "apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata:
  name: {name}
  annotations:
    # \"true\" keeps new connections away; what is open goes on.
    sheave.dev/drain: \"false\"
spec:
  region: {name}
  syncMode: Push
status:
  conditions:
  - type: Ready
    status: \"True\"
    reason: ClusterReady
    message: cluster is healthy and ready to accept workloads
    lastTransitionTime: \"2026-01-01T00:00:00Z\"
---
{}",
        work(cluster)
    )
}

/// The Work with the endpoints that Karmada collected. Names inside the slice are those of the member cluster.
fn work(cluster: &Cluster) -> String {
    let name = cluster.name;
    let port = cluster.web.first().map_or(0, std::net::SocketAddr::port);
    let mut text = format!(
        "apiVersion: work.karmada.io/v1alpha1
kind: Work
metadata:
  name: shop-{name}
  namespace: karmada-es-{name}
  finalizers: [karmada.io/mcs-endpointslice-dispatch-controller]
  labels:
    multiclusterservice.karmada.io/name: shop
    multiclusterservice.karmada.io/namespace: demo
    endpointslice.karmada.io/managed-by: MultiClusterService
spec:
  suspendDispatching: true
  workload:
    manifests:
    - apiVersion: discovery.k8s.io/v1
      kind: EndpointSlice
      metadata:
        name: shop-{name}
        namespace: demo
        labels:
          kubernetes.io/service-name: shop
          endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io
          karmada.io/managed: \"true\"
        annotations:
          work.karmada.io/name: shop-{name}
          work.karmada.io/namespace: karmada-es-{name}
      addressType: IPv4
      ports:
      - name: http
        port: {port}
        protocol: TCP
      endpoints:
"
    );
    for (number, endpoint) in (1..).zip(&cluster.web) {
        let ip = endpoint.ip();
        // Writing to a String cannot fail.
        writeln!(
            text,
            "      - addresses: [{ip}]\n        nodeName: node-{number}\n        conditions: {{ready: true, serving: true, terminating: false}}"
        )
        .ok();
    }
    text
}
