//! Manifests of a Gateway for tests.

/// GatewayClass `sheave`, AddressPool, and the Gateway `shop/gw` with the listeners tcp (9300/TCP), udp (53/UDP) and bare (9400/TCP).
pub(crate) const GATEWAY: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: sheave}
spec: {controllerName: sheave.dev/gateway}
---
apiVersion: sheave.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec: {addresses: [203.0.113.0/28]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec:
  gatewayClassName: sheave
  listeners:
  - {name: tcp, port: 9300, protocol: TCP}
  - {name: udp, port: 53, protocol: UDP}
  - {name: bare, port: 9400, protocol: TCP}
";

/// A route of this kind in namespace `shop`, with these backendRefs.
pub(crate) fn route(kind: &str, name: &str, parent: &str, refs: &str) -> String {
    format!(
        "---
apiVersion: gateway.networking.k8s.io/v1
kind: {kind}
metadata: {{name: {name}, namespace: shop}}
spec: {{parentRefs: [{parent}], rules: [{{backendRefs: [{refs}]}}]}}
"
    )
}

/// The Service `shop/NAME` with ports 80/TCP and 53/UDP, and the endpoints 10.1.0.N for each of `hosts`.
pub(crate) fn backend(name: &str, hosts: &[u8]) -> String {
    let endpoints: Vec<String> =
        hosts.iter().map(|host| format!("{{addresses: [10.1.0.{host}], nodeName: n{host}}}")).collect();
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{ports: [{{name: tcp, port: 80}}, {{name: udp, port: 53, protocol: UDP}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: tcp, port: 8080}}, {{name: udp, port: 5353, protocol: UDP}}]
endpoints: [{}]
",
        endpoints.join(", ")
    )
}

/// The Gateway with the TCPRoute `shop/a`, of whose traffic `shop/v1` gets 69%, `shop/v2` 30%, and 1% is refused. Nothing serves the
/// listener udp: its route's only backend has no endpoint.
pub(crate) fn example() -> String {
    let refs = "{name: v1, port: 80, weight: 69}, {name: v2, port: 80, weight: 30}, {name: gone, port: 80}, \
                {name: spare, port: 80, weight: 0}";
    [
        GATEWAY,
        &route("TCPRoute", "a", "{name: gw, sectionName: tcp}", refs),
        &route("UDPRoute", "dns", "{name: gw, sectionName: udp}", "{name: empty, port: 53}"),
        &backend("v1", &[7, 8]),
        &backend("v2", &[9]),
        &backend("spare", &[10]),
        &backend("empty", &[]),
    ]
    .concat()
}

/// The Gateway with a listener tls (443/TCP) for `*.shop.example`: the TLSRoute `shop/a` has two names, and the one of the route `b` has no
/// backend.
pub(crate) fn tls_example() -> String {
    let tls = |name: &str, hostnames: &str, refs: &str| {
        route("TLSRoute", name, "{name: gw, sectionName: tls}", refs)
            .replace("spec: {", &format!("spec: {{hostnames: [{hostnames}], "))
    };
    [
        GATEWAY,
        "  - {name: tls, port: 443, protocol: TLS, hostname: '*.shop.example', tls: {mode: Passthrough}}\n",
        &tls("a", "a.shop.example, '*.b.shop.example'", "{name: v1, port: 80}"),
        &tls("b", "c.shop.example", "{name: gone, port: 80}"),
        &backend("v1", &[7, 8]),
    ]
    .concat()
}
