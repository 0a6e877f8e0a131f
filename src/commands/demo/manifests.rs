//! Manifests of the demo's Services and EndpointSlices.

use std::fmt::Write as _;
use std::net::SocketAddr;

/// Address of the demo's Services: loopback, with ports that need no privilege.
pub(super) const VIP: &str = "127.0.0.80";
/// Port of the TCP Service.
pub(super) const WEB_PORT: u16 = 18080;
/// Port of the UDP Service.
pub(super) const ECHO_PORT: u16 = 15353;
/// Load balancer class of the demo's Services.
pub(super) const CLASS: &str = "sheave.dev/l4";

/// A LoadBalancer Service `demo/<name>` with one port, and the EndpointSlice that names its endpoints.
pub(super) fn service(name: &str, protocol: &str, port: u16, endpoints: &[SocketAddr]) -> String {
    let target = endpoints.first().map_or(0, SocketAddr::port);
    let mut text = format!(
        "apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: demo
spec:
  type: LoadBalancer
  loadBalancerClass: {CLASS}
  ports:
  - name: {name}
    port: {port}
    protocol: {protocol}
status:
  loadBalancer:
    ingress:
    - ip: {VIP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}-1
  namespace: demo
  labels:
    kubernetes.io/service-name: {name}
addressType: IPv4
ports:
- name: {name}
  port: {target}
  protocol: {protocol}
endpoints:
"
    );
    for endpoint in endpoints {
        // Writing to a String cannot fail.
        writeln!(text, "- addresses: [{}]\n  conditions:\n    ready: true", endpoint.ip()).ok();
    }
    text
}
