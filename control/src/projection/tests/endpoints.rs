//! Endpoints from slices: matching ports, conditions, duplicates, families.

use super::support::{NODE, WEB_SLICE, lines, objects, options, problems, project, service, web};
use crate::api::store::{Dirty, ServiceKey};
use crate::projection::Projector;

/// A slice of `shop/web`.
fn slice(name: &str, rest: &str) -> String {
    format!(
        "kind: EndpointSlice\nmetadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}\n{rest}"
    )
}

fn v4(name: &str, port: &str, endpoints: &str) -> String {
    slice(name, &format!("addressType: IPv4\nports: [{port}]\nendpoints: [{endpoints}]"))
}

const HTTP: &str = "{name: http, port: 8080}";

#[test]
fn ports_are_matched_by_name_and_protocol_and_may_differ_per_slice() {
    let service = service(
        "shop",
        "web",
        "ports: [{name: http, port: 80, targetPort: 9999}, {name: dns, port: 53, protocol: UDP}]",
        "",
    );
    let projection = project(&[
        &service,
        &v4(
            "a",
            "{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}",
            "{addresses: [10.1.0.1]}",
        ),
        &v4("b", "{name: http, port: 8081}, {name: dns, port: 5354}", "{addresses: [10.1.0.2]}"),
        &v4("c", "{name: other, port: 9}, {name: http}, {name: http, port: 0}", "{addresses: [10.1.0.3]}"),
    ]);
    assert_eq!(
        lines(&projection),
        [
            "192.0.2.1:53/UDP shop/web 10.1.0.1:5353 | 10.1.0.1:5353",
            "192.0.2.1:80/TCP shop/web 10.1.0.1:8080 10.1.0.2:8081 | 10.1.0.1:8080 10.1.0.2:8081",
        ]
    );
    assert!(projection.problems.is_empty());
}

#[test]
fn a_missing_port_name_and_protocol_mean_unnamed_and_tcp() {
    let service = service("shop", "web", "ports: [{port: 80}]", "");
    for port in ["{port: 8080}", "{name: '', protocol: TCP, port: 8080}"] {
        let projection = project(&[&service, &v4("a", port, "{addresses: [10.1.0.1]}")]);
        assert_eq!(lines(&projection), ["192.0.2.1:80/TCP shop/web 10.1.0.1:8080 | 10.1.0.1:8080"]);
    }
}

#[test]
fn slices_with_null_lists_have_no_endpoints() {
    let empty = slice("a", "addressType: IPv4\nports: null\nendpoints: null");
    // A Pod without the named port: ready, but without a listener (ports: null).
    let portless = slice("b", "addressType: IPv4\nports: null\nendpoints: [{addresses: [10.1.0.1]}]");
    let projection = project(&[&web("", ""), &empty, &portless]);
    assert_eq!(lines(&projection), ["192.0.2.1:80/TCP shop/web Reject | Reject"]);
}

#[test]
fn conditions_default_to_ready_serving_and_not_terminating() {
    let endpoints = "{addresses: [10.1.0.1]}, {addresses: [10.1.0.2], conditions: {}}, \
        {addresses: [10.1.0.3], conditions: {ready: false}}, \
        {addresses: [10.1.0.4], conditions: {ready: false, terminating: true}}, \
        {addresses: [10.1.0.5], conditions: {ready: true, serving: false}}, \
        {addresses: [10.1.0.6], conditions: {ready: true, terminating: true}}";
    let projection = project(&[&web("", ""), &v4("a", HTTP, endpoints)]);
    let forward = "10.1.0.1:8080 10.1.0.2:8080 10.1.0.5:8080 10.1.0.6:8080";
    assert_eq!(lines(&projection), [format!("192.0.2.1:80/TCP shop/web {forward} | {forward}")]);
    let frontend = &projection.table.frontends()[0];
    let states: Vec<String> =
        frontend.backends[0].endpoints.iter().map(|e| format!("{} {:?}", e.addr, e.state)).collect();
    assert_eq!(
        states,
        [
            "10.1.0.1:8080 Ready",
            "10.1.0.2:8080 Ready",
            "10.1.0.4:8080 Terminating",
            "10.1.0.5:8080 Ready",
            "10.1.0.6:8080 Ready"
        ]
    );
}

#[test]
fn only_the_first_address_of_an_endpoint_counts_and_endpoints_are_sorted_by_number() {
    let endpoints = "{addresses: [10.1.0.10]}, {addresses: [10.1.0.9, 10.1.0.8]}, {addresses: []}";
    let projection = project(&[&web("", ""), &v4("a", HTTP, endpoints)]);
    assert_eq!(
        lines(&projection),
        ["192.0.2.1:80/TCP shop/web 10.1.0.9:8080 10.1.0.10:8080 | 10.1.0.9:8080 10.1.0.10:8080"]
    );
}

#[test]
fn of_duplicates_the_one_that_does_not_terminate_counts() {
    let old = "{addresses: [10.1.0.1], conditions: {ready: false, serving: true, terminating: true}}";
    for (first, second) in [("a", "b"), ("b", "a")] {
        let gone = v4(first, HTTP, old);
        let ready = v4(second, HTTP, "{addresses: [10.1.0.1]}");
        let projection = project(&[&web("", ""), &gone, &ready]);
        assert_eq!(lines(&projection), ["192.0.2.1:80/TCP shop/web 10.1.0.1:8080 | 10.1.0.1:8080"]);
        let unready = v4(second, HTTP, "{addresses: [10.1.0.1], conditions: {ready: false}}");
        let projection = project(&[&web("", ""), &gone, &unready]);
        assert_eq!(lines(&projection), ["192.0.2.1:80/TCP shop/web Reject | Reject"]);
    }
}

#[test]
fn an_address_under_two_nodes_is_of_the_first_by_name_on_every_gateway() {
    let service = web("externalTrafficPolicy: Local", "");
    for (one, other, counts) in
        [("a1", "gw-1", "a1"), ("gw-1", "n2", "gw-1"), ("", "gw-1", "gw-1"), ("", "a1", "a1")]
    {
        for (first, second) in [(one, other), (other, one)] {
            let slice =
                |name, node| v4(name, HTTP, &format!("{{addresses: [10.1.0.1], nodeName: '{node}'}}"));
            let projection = project(&[&service, &slice("a", first), &slice("b", second)]);
            let frontend = projection.table.frontends().iter().next().expect("a frontend");
            let [endpoint] = &frontend.backends[0].endpoints[..] else { panic!("{frontend:?}") };
            assert_eq!((&*endpoint.node, endpoint.local), (counts, counts == "gw-1"), "{first}, {second}");
        }
    }
}

#[test]
fn local_policy_forwards_here_drops_elsewhere_and_rejects_nothing_at_all() {
    let local = web("externalTrafficPolicy: Local", "");
    let here = "{addresses: [10.1.0.1], nodeName: gw-1}";
    let there = "{addresses: [10.1.0.2], nodeName: n2}";
    let leaving = "{addresses: [10.1.0.3], nodeName: gw-1, conditions: {ready: false, terminating: true}}";
    let line = |endpoints: &str| lines(&project(&[&local, &v4("a", HTTP, endpoints)]));
    assert_eq!(
        line(&format!("{here}, {there}, {leaving}")),
        ["192.0.2.1:80/TCP shop/web 10.1.0.1:8080 | 10.1.0.1:8080 10.1.0.2:8080"]
    );
    assert_eq!(
        line(&format!("{there}, {leaving}")),
        ["192.0.2.1:80/TCP shop/web 10.1.0.3:8080 | 10.1.0.2:8080"]
    );
    assert_eq!(line(there), ["192.0.2.1:80/TCP shop/web Drop | 10.1.0.2:8080"]);
    assert_eq!(line(""), ["192.0.2.1:80/TCP shop/web Reject | Reject"]);
}

#[test]
fn endpoints_say_where_they_run() {
    let endpoints =
        "{addresses: [10.1.0.1], nodeName: gw-1, zone: a}, {addresses: [10.1.0.2], nodeName: n2, zone: b}";
    let projection = project(&[&web("", ""), &v4("a", HTTP, endpoints)]);
    let backend = &projection.table.frontends()[0].backends[0];
    assert_eq!((&*backend.cluster, backend.weight.0, backend.priority), ("local", 100, 0));
    let places: Vec<(&str, &str, bool)> =
        backend.endpoints.iter().map(|e| (&*e.node, &*e.zone, e.local)).collect();
    assert_eq!(places, [("gw-1", "a", true), ("n2", "b", false)]);
}

#[test]
fn endpoints_of_each_family_serve_the_addresses_of_that_family() {
    let six = slice(
        "b",
        "addressType: IPv6\nports: [{name: http, port: 8080}]\nendpoints: [{addresses: ['fd01::7']}]",
    );
    let projection = project(&[&web("", ""), WEB_SLICE, &six]);
    assert_eq!(
        lines(&projection),
        [
            "192.0.2.1:80/TCP shop/web 10.1.0.7:8080 | 10.1.0.7:8080",
            "[2001:db8::1]:80/TCP shop/web [fd01::7]:8080 | [fd01::7]:8080",
        ]
    );
}

#[test]
fn slices_and_endpoints_that_cannot_be_used_are_problems_and_the_rest_is_served() {
    let names = slice(
        "b",
        "addressType: FQDN\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [example.org]}]",
    );
    let odd =
        v4("c", HTTP, "{addresses: ['fd01::7']}, {addresses: [x]}, {addresses: [0.0.0.0]}, {addresses: []}");
    let port = v4("d", "{name: http, port: 70000}", "{addresses: [10.1.0.8]}");
    let projection = project(&[&web("", ""), WEB_SLICE, &names, &odd, &port]);
    assert_eq!(lines(&projection), ["192.0.2.1:80/TCP shop/web 10.1.0.7:8080 | 10.1.0.7:8080"]);
    assert_eq!(
        problems(&projection),
        [
            "EndpointSlice shop/b InvalidValue addressType",
            "EndpointSlice shop/c InvalidValue endpoints[0].addresses[0]",
            "EndpointSlice shop/c InvalidValue endpoints[1].addresses[0]",
            "EndpointSlice shop/c InvalidValue endpoints[2].addresses[0]",
            "EndpointSlice shop/c InvalidValue endpoints[3].addresses",
            "EndpointSlice shop/d InvalidValue ports[0].port",
        ]
    );
}

#[test]
fn an_endpoint_that_is_a_frontend_is_left_out() {
    let looping = v4("a", "{name: http, port: 80}", "{addresses: [192.0.2.1]}, {addresses: [10.1.0.7]}");
    let projection = project(&[&web("", ""), &looping]);
    assert_eq!(lines(&projection), ["192.0.2.1:80/TCP shop/web 10.1.0.7:80 | 10.1.0.7:80"]);
    assert_eq!(problems(&projection), ["Service shop/web EndpointLoop "]);
    let udp = service("shop", "other", "ports: [{port: 53, protocol: UDP}]", "");
    let same_port = v4("a", "{name: http, port: 53}", "{addresses: [192.0.2.1]}");
    let projection = project(&[&web("", ""), &udp, &same_port]);
    assert!(projection.problems.is_empty(), "another protocol on the same address and port is no loop");
}

/// kube-proxy forwards traffic to such an address, possibly back here: a single datagram would loop forever.
#[test]
fn an_endpoint_that_is_the_address_of_a_service_is_left_out() {
    let other = "kind: Service\nmetadata: {namespace: shop, name: other}\nspec: {type: NodePort, clusterIP: 10.96.0.7, clusterIPs: \
                 [10.96.0.7], ports: [{port: 80, nodePort: 30080}]}\n";
    let cluster = v4("a", "{name: http, port: 8080}", "{addresses: [10.96.0.7]}, {addresses: [10.1.0.7]}");
    let node_port = v4("b", "{name: http, port: 30080}", "{addresses: [192.0.2.1]}, {addresses: [10.1.0.8]}");
    let free = v4("c", "{name: http, port: 30081}", "{addresses: [192.0.2.1]}");
    let manifests = [NODE, &web("", ""), other, &cluster, &node_port, &free];
    let projection = project(&manifests);
    let left = "10.1.0.7:8080 10.1.0.8:30080 192.0.2.1:30081";
    assert_eq!(lines(&projection), [format!("192.0.2.1:80/TCP shop/web {left} | {left}")]);
    let looping = "Service shop/web EndpointLoop ";
    assert_eq!(problems(&projection), [looping, looping]);
    // Without the other Service these are ordinary addresses.
    let mut objects = objects(&manifests);
    let mut projector = Projector::new(options());
    let _ = projector.project(&objects, &Dirty::Everything);
    let other = ServiceKey::new("shop", "other");
    objects.services.remove(&other);
    let after = projector.project(&objects, &Dirty::Services([other].into()));
    assert!(after.problems.is_empty(), "{:?}", problems(&after));
}

#[test]
fn an_endpoint_at_an_external_address_of_a_service_is_left_out() {
    let other = "kind: Service\nmetadata: {namespace: shop, name: other}\nspec: {type: LoadBalancer, loadBalancerClass: \
                 example.org/other, externalIPs: [198.51.100.1], ports: [{port: 80}]}\n";
    let status = |ingress: &str| format!("{other}status: {{loadBalancer: {{ingress: [{ingress}]}}}}\n");
    let slice = |ip: &str, port: u16| {
        v4(
            "a",
            &format!("{{name: http, port: {port}}}"),
            &format!("{{addresses: [{ip}]}}, {{addresses: [10.1.0.7]}}"),
        )
    };
    let balanced = status("{ip: 198.51.100.2}");
    for (manifest, ip, port, is_left_out) in [
        (other, "198.51.100.1", 80, true),
        // Only its ports are forwarded.
        (other, "198.51.100.1", 81, false),
        (&balanced, "198.51.100.2", 80, true),
        (&status("{ip: 198.51.100.2, ipMode: VIP}"), "198.51.100.2", 80, true),
        // Nodes leave that to the load balancer.
        (&status("{ip: 198.51.100.2, ipMode: Proxy}"), "198.51.100.2", 80, false),
    ] {
        let manifests = [NODE, &web("", ""), manifest, &slice(ip, port)];
        let mut objects = objects(&manifests);
        let mut projector = Projector::new(options());
        let projection = projector.project(&objects, &Dirty::Everything);
        let left_out = problems(&projection).iter().any(|it| it.contains("EndpointLoop"));
        assert_eq!(left_out, is_left_out, "{ip}:{port} {manifest}");
        let other = ServiceKey::new("shop", "other");
        objects.services.remove(&other);
        let after = projector.project(&objects, &Dirty::Services([other].into()));
        assert!(after.problems.is_empty(), "{:?}", problems(&after));
    }
}

#[test]
fn pod_networks_and_nodes_are_inside_the_cluster() {
    let projection = project(&[NODE, &web("", ""), WEB_SLICE]);
    let inside = projection.table.internal_clients();
    for ip in ["10.1.2.3", "fd01::9", "192.0.2.1", "2001:db8::1"] {
        assert!(inside.contains(ip.parse().unwrap()), "{ip}");
    }
    for ip in ["10.2.0.1", "192.0.2.2", "203.0.113.1"] {
        assert!(!inside.contains(ip.parse().unwrap()), "{ip}");
    }
}

#[test]
fn an_endpoint_that_serves_without_being_ready_lingers() {
    let endpoints = "{addresses: [10.1.0.1]}, {addresses: [10.1.0.2], conditions: {ready: false, serving: true}}, \
        {addresses: [10.1.0.3], conditions: {ready: false, serving: false}}";
    let projection = project(&[&web("", ""), &v4("a", HTTP, endpoints)]);
    let backend = &projection.table.frontends()[0].backends[0];
    let lingering: Vec<String> = backend.lingering.iter().map(ToString::to_string).collect();
    assert_eq!((backend.endpoints.len(), lingering), (1, vec!["10.1.0.2:8080".to_owned()]));
}

#[test]
fn where_nothing_could_serve_is_known() {
    let faults = |slices: &[&str]| {
        let web = web("", "");
        let mut projector = Projector::new(options());
        let manifests = [&[NODE, &web], slices].concat();
        projector.project(&objects(&manifests), &Dirty::Everything);
        let found = projector.faults(&ServiceKey::new("shop", "web"));
        found.iter().map(|(addr, fault)| format!("{addr} {fault:?}")).collect::<Vec<_>>()
    };
    assert_eq!(faults(&[WEB_SLICE]), [""; 0]);
    let nothing = ["192.0.2.1:80/TCP NoEndpoint(0)"];
    assert_eq!(faults(&[]), nothing);
    let unready = v4("a", HTTP, "{addresses: [10.1.0.7], conditions: {ready: false}}");
    assert_eq!(faults(&[&unready]), ["192.0.2.1:80/TCP NoEndpoint(1)"]);
    assert_eq!(faults(&[&v4("a", "{name: http, port: 80}", "{addresses: [192.0.2.1]}")]), nothing, "a loop");
    let names = "addressType: FQDN\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [example.org]}]";
    assert_eq!(faults(&[&slice("a", names)]), nothing);
    let leaving = "{addresses: [10.1.0.7], conditions: {ready: false, serving: true, terminating: true}}";
    assert_eq!(faults(&[&v4("a", HTTP, leaving)]), ["192.0.2.1:80/TCP OnlyTerminating"]);
}
