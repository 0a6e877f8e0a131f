//! Kinds of frontends other than load balancer addresses, the client sources on them, and the statuses to publish.

use sheave_model::{ClientSource, ClientSources, FrontendKind};

use super::super::{Options, Projection, Projector};
use super::support::{NODE, WEB_SLICE, lines, objects, options, problems, service, web};
use crate::api::store::Dirty;

const ALL: [FrontendKind; 4] =
    [FrontendKind::LoadBalancer, FrontendKind::ExternalIp, FrontendKind::NodePort, FrontendKind::ClusterIp];

fn project(kinds: &[FrontendKind], manifests: &[&str]) -> Projection {
    let options = Options {
        frontends: kinds.iter().copied().collect(),
        external_ips_allow: vec!["198.51.100.0/24".parse().unwrap()],
        ..options()
    };
    let manifests = [&[NODE], manifests].concat();
    Projector::new(options).project(&objects(&manifests), &Dirty::Everything)
}

/// A Service `shop/web` with every kind of address.
fn everywhere(spec: &str, rest: &str) -> String {
    let spec = format!(
        "ports: [{{name: http, port: 80, nodePort: 30080}}], clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], \
         externalIPs: [198.51.100.1, 203.0.113.1], {spec}"
    );
    service("shop", "web", &spec, rest)
}

#[test]
fn each_kind_that_is_wanted_has_its_frontends_and_its_policy() {
    let policies = "externalTrafficPolicy: Local, internalTrafficPolicy: Local";
    let here = WEB_SLICE.replace("web-1", "web-2").replace("10.1.0.7", "10.1.0.8").replace("n1", "gw-1");
    let projection = project(&ALL, &[&everywhere(policies, ""), WEB_SLICE, &here]);
    let short_circuit = "10.1.0.8:8080 | 10.1.0.7:8080 10.1.0.8:8080";
    assert_eq!(
        lines(&projection),
        [
            "10.96.0.1:80/TCP shop/web 10.1.0.8:8080 | 10.1.0.8:8080".to_owned(),
            format!("192.0.2.1:80/TCP shop/web {short_circuit}"),
            format!("192.0.2.1:30080/TCP shop/web {short_circuit}"),
            format!("198.51.100.1:80/TCP shop/web {short_circuit}"),
        ]
    );
    assert_eq!(problems(&projection), ["Service shop/web ExternalIPRefused spec.externalIPs[1]"]);
}

#[test]
fn services_of_other_classes_and_types_keep_their_other_frontends() {
    let foreign = everywhere("", "").replace("sheave.dev/l4", "example.com/other");
    let node_port =
        everywhere("", "").replace("type: LoadBalancer, loadBalancerClass: sheave.dev/l4", "type: NodePort");
    let cluster_ip = node_port.replace("type: NodePort", "type: ClusterIP");
    let places = |manifest: &str| {
        let projection = project(&ALL, &[manifest, WEB_SLICE]);
        projection.table.frontends().iter().map(|frontend| frontend.addr.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(places(&foreign), ["10.96.0.1:80/TCP", "192.0.2.1:30080/TCP", "198.51.100.1:80/TCP"]);
    assert_eq!(places(&node_port), places(&foreign));
    assert_eq!(places(&cluster_ip), ["10.96.0.1:80/TCP", "198.51.100.1:80/TCP"]);
}

#[test]
fn external_ips_that_nobody_wants_served_are_a_problem_of_our_own_services_alone() {
    let foreign = everywhere("", "").replace("sheave.dev/l4", "example.com/other");
    let kinds = [FrontendKind::LoadBalancer, FrontendKind::ClusterIp];
    assert!(project(&kinds, &[&foreign]).problems.is_empty());
    let refused = [0, 1].map(|index| format!("Service shop/web ExternalIPRefused spec.externalIPs[{index}]"));
    assert_eq!(problems(&project(&kinds, &[&everywhere("", "")])), refused);
}

#[test]
fn node_ports_are_on_the_primary_addresses_or_on_those_configured() {
    let places = |cidrs: &[&str]| {
        let options = Options {
            frontends: [FrontendKind::NodePort].into(),
            node_port_addresses: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
            ..options()
        };
        let node =
            NODE.replace("{type: Hostname, address: gw-1}", "{type: ExternalIP, address: 203.0.113.9}");
        let dual = everywhere("ipFamilies: [IPv4, IPv6]", "");
        let projection = Projector::new(options).project(&objects(&[&node, &dual]), &Dirty::Everything);
        projection.table.frontends().iter().map(|frontend| frontend.addr.ip.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(places(&[]), ["192.0.2.1", "2001:db8::1"]);
    assert_eq!(places(&["203.0.113.0/24"]), ["203.0.113.9"]);
    assert_eq!(places(&["0.0.0.0/0"]), ["192.0.2.1", "203.0.113.9"]);
}

/// Client sources of each frontend, by address.
fn sources(manifest: &str) -> Vec<(ClientSource, ClientSource)> {
    let projection = project(&ALL, &[manifest, WEB_SLICE]);
    let frontends = projection.table.frontends().iter();
    frontends
        .map(|it| it.client_sources)
        .map(|ClientSources { external, internal }| (external, internal))
        .collect()
}

#[test]
fn endpoints_see_outside_clients_under_local_policy_and_what_the_annotation_says() {
    let (gateway, transparent) = (ClientSource::Gateway, ClientSource::Transparent);
    assert_eq!(sources(&everywhere("", "")), [(gateway, gateway); 4]);
    let local = "externalTrafficPolicy: Local";
    let outside = (transparent, gateway);
    assert_eq!(sources(&everywhere(local, "")), [(gateway, gateway), outside, outside, outside]);
    for (word, source) in
        [("gateway", gateway), ("transparent", transparent), ("proxy-v2", ClientSource::ProxyV2)]
    {
        let annotated = format!("metadata: annotations: {{sheave.dev/client-source: {word}}}");
        assert_eq!(sources(&everywhere(local, &annotated)), [(source, source); 4]);
    }
}

#[test]
fn headers_are_expected_from_the_peers_named_and_on_tcp_alone() {
    let ports = "ports: [{name: a, port: 80}, {name: b, port: 80, protocol: UDP}]";
    let annotation = "metadata: annotations: {sheave.dev/accept-proxy: '10.0.0.0/8, x, fd00::/8', \
        sheave.dev/client-source: proxy-v1}";
    let options = Options {
        accept_proxy_allow: ["0.0.0.0/0", "::/0"].map(|cidr| cidr.parse().unwrap()).to_vec(),
        ..options()
    };
    let objects = objects(&[NODE, &service("shop", "web", ports, annotation)]);
    let projection = Projector::new(options).project(&objects, &Dirty::Everything);
    let peers: Vec<_> = projection
        .table
        .frontends()
        .iter()
        .map(|frontend| {
            let peers = frontend.proxied_by.as_ref().map(|peers| peers.cidrs());
            (frontend.client_sources.external, peers)
        })
        .collect();
    let ten = vec!["10.0.0.0/8".parse().unwrap()];
    assert_eq!(peers, [(ClientSource::ProxyV1, Some(ten)), (ClientSource::Gateway, None)]);
    let accept = "Service shop/web InvalidValue metadata.annotations[sheave.dev/accept-proxy]";
    let source = "Service shop/web InvalidValue metadata.annotations[sheave.dev/client-source]";
    assert_eq!(problems(&projection), [accept, accept, source]);
}

#[test]
fn the_status_to_publish_names_the_trouble_of_each_port() {
    let ports = "ports: [{name: a, port: 80}, {name: b, port: 81, protocol: SCTP}, {name: c, port: 82}]";
    let status =
        "status: {loadBalancer: {ingress: [{ip: 198.51.100.7, hostname: a.example}, {hostname: b.example}]}}";
    let other = service("shop", "a", "ports: [{name: c, port: 82}]", status);
    let mut projector = Projector::new(options());
    let objects = objects(&[NODE, &service("shop", "web", ports, status), &other]);
    drop(projector.project(&objects, &Dirty::Everything));
    let web = projector.statuses().find(|status| &*status.service.name == "web").unwrap();
    let [ingress] = web.ingress.as_slice() else { panic!("{web:?}") };
    assert_eq!(
        (ingress.ip.to_string().as_str(), ingress.hostname.as_deref()),
        ("198.51.100.7", Some("a.example"))
    );
    let errors: Vec<_> = ingress.ports.iter().map(|port| (port.port, port.protocol, port.error)).collect();
    assert_eq!(
        errors,
        [(80, "TCP", None), (81, "SCTP", Some("ProtocolNotSupported")), (82, "TCP", Some("AddressInUse"))]
    );
}

#[test]
fn health_checks_count_the_addresses_of_ready_endpoints_here_by_family() {
    let ports = "ports: [{name: http, port: 80}, {name: other, port: 81}], ipFamilies: [IPv4, IPv6], \
        externalTrafficPolicy: Local, healthCheckNodePort: 32000";
    let slice = WEB_SLICE
        .replace("{name: http, port: 8080}", "{name: http, port: 8080}, {name: other, port: 8081}")
        .replace(
            "{addresses: [10.1.0.7], nodeName: n1}",
            "{addresses: [10.1.0.7], nodeName: gw-1}, {addresses: [10.1.0.8], nodeName: gw-1}, \
             {addresses: [10.1.0.9], nodeName: n1}, {addresses: [10.1.0.10], nodeName: gw-1, \
             conditions: {ready: false, serving: true, terminating: true}}",
        );
    let checks = |spec: &str| {
        let projection = project(&[FrontendKind::LoadBalancer], &[&service("shop", "web", spec, ""), &slice]);
        projection.health_checks.iter().map(|it| (it.port, it.local_v4, it.local_v6)).collect::<Vec<_>>()
    };
    assert_eq!(checks(ports), [(32000, Some(2), Some(0))]);
    assert_eq!(checks(&ports.replace("Local", "Cluster")), []);
    assert_eq!(checks(&ports.replace("32000", "0")), []);
    assert!(project(&ALL, &[&web("", "")]).node_eligible);
    let leaving = NODE
        .replace("spec: {", "spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}], ");
    assert!(!project(&ALL, &[&leaving]).node_eligible);
    let elsewhere = objects(&[&NODE.replace("gw-1", "gw-2")]);
    assert!(!Projector::new(options()).project(&elsewhere, &Dirty::Everything).node_eligible);
}

#[test]
fn one_node_port_serves_one_port_and_the_other_is_told() {
    let ports = "ports: [{name: http, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 30080}]";
    let projection = project(&[FrontendKind::NodePort], &[&service("shop", "web", ports, ""), WEB_SLICE]);
    assert_eq!(lines(&projection), ["192.0.2.1:30080/TCP shop/web 10.1.0.7:8080 | 10.1.0.7:8080"]);
    assert_eq!(problems(&projection), ["Service shop/web AddressInUse spec.ports[1]"]);
    let nowhere = Options { frontends: [FrontendKind::NodePort].into(), ..options() };
    let nowhere =
        Projector::new(nowhere).project(&objects(&[&service("shop", "web", ports, "")]), &Dirty::Everything);
    assert_eq!(problems(&nowhere)[0], "Node gw-1 NoAddress ");
}

#[test]
fn an_older_service_takes_no_address_that_another_publishes() {
    let port = "ports: [{name: http, port: 443}]";
    let published = service("a", "victim", port, "status: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}");
    let older = "metadata: creationTimestamp: 2020-01-01T00:00:00Z";
    let named = service("b", "older", &format!("{port}, externalIPs: [198.51.100.1]"), older)
        .replace("type: LoadBalancer, loadBalancerClass: sheave.dev/l4", "type: ClusterIP");
    let asking = service("b", "asking", &format!("{port}, loadBalancerIP: 198.51.100.1"), older);
    for other in [&named, &asking] {
        let projection = project(&ALL, &[&published, other]);
        let frontends = projection.table.frontends().iter();
        let owners: Vec<String> = frontends
            .filter(|frontend| frontend.addr.ip.to_string() == "198.51.100.1")
            .map(|frontend| frontend.service.to_string())
            .collect();
        assert_eq!(owners, ["a/victim"]);
    }
}

#[test]
fn peers_are_trusted_as_far_as_the_configuration_allows() {
    let annotation = "metadata: annotations: {sheave.dev/accept-proxy: '10.1.0.0/16, 0.0.0.0/0'}";
    let options = Options { accept_proxy_allow: vec!["10.0.0.0/8".parse().unwrap()], ..options() };
    let projection =
        Projector::new(options).project(&objects(&[NODE, &web("", annotation)]), &Dirty::Everything);
    let peers = projection.table.frontends()[0].proxied_by.as_ref().map(|peers| peers.cidrs());
    assert_eq!(peers, Some(vec!["10.1.0.0/16".parse().unwrap()]));
    assert_eq!(
        problems(&projection),
        ["Service shop/web InvalidValue metadata.annotations[sheave.dev/accept-proxy]"]
    );
}
