//! Texts of explanations, and their agreement with the projection.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use sheave_model::{EndpointAddr, Frontend, FrontendKind, Route};

use super::super::explain::{ClientSide, Explanation, FrontendExplanation, ServedService};
use super::super::{Options, Projector};
use super::support::{NODE, WEB_SLICE, objects, options, service, web};
use crate::api::store::{Dirty, Objects, ServiceKey};

/// A projector that has projected [`NODE`] and the manifests.
fn projected(options: Options, manifests: &[&str]) -> (Projector, Objects) {
    let objects = objects(&[&[NODE], manifests].concat());
    let mut projector = Projector::new(options);
    let _ = projector.project(&objects, &Dirty::Everything);
    (projector, objects)
}

/// Explanations for both classes of clients of a frontend.
#[derive(Debug, PartialEq)]
struct Why {
    external: FrontendExplanation,
    internal: FrontendExplanation,
}

impl Why {
    fn of(served: &ServedService<'_>, frontend: &Frontend) -> Option<Self> {
        let external = served.explain(frontend, ClientSide::Outside)?;
        Some(Self { external, internal: served.explain(frontend, ClientSide::Inside)? })
    }
}

/// Explanations for the only frontend of `shop/web`.
fn why(manifests: &[&str]) -> Why {
    let (projector, objects) = projected(options(), manifests);
    let Explanation::Served(served) = projector.explain(&objects, &web_key()) else { panic!("not served") };
    assert_eq!(served.frontends().len(), 1);
    Why::of(&served, &served.frontends()[0]).unwrap()
}

fn web_key() -> ServiceKey {
    ServiceKey::new("shop", "web")
}

/// The text for a Service that is not served.
fn refusal(options: Options, manifest: &str) -> String {
    let (projector, objects) = projected(options, &[manifest]);
    match projector.explain(&objects, &web_key()) {
        Explanation::Unknown => "unknown".to_owned(),
        Explanation::Foreign(foreign) => foreign.to_string(),
        Explanation::Refused(problems) => problems.iter().map(ToString::to_string).collect(),
        Explanation::Served(_) => "served".to_owned(),
    }
}

fn slice(name: &str, port: &str, endpoints: &str) -> String {
    format!(
        "kind: EndpointSlice\nmetadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nports: [{port}]\nendpoints: [{endpoints}]"
    )
}

const HTTP: &str = "{name: http, port: 8080}";

/// `address: verdict` for external clients.
fn verdicts(why: &Why) -> Vec<String> {
    why.external.endpoints.iter().map(|it| format!("{}: {}", it.address, it.reason)).collect()
}

#[test]
fn services_that_are_not_served_say_why() {
    assert_eq!(refusal(options(), &service("shop", "other", "ports: [{port: 80}]", "")), "unknown");
    let other = web("", "").replace("sheave.dev/l4", "example.com/lb");
    assert_eq!(
        refusal(options(), &other),
        "the Service is of type LoadBalancer with loadBalancerClass \"example.com/lb\"; this gateway makes frontends of \
         kind LoadBalancer (frontends in the configuration), and load balancers for loadBalancerClass \"sheave.dev/l4\" only"
    );
    let unclassified = Options { handle_unclassified: true, ..options() };
    let plain =
        web("", "").replace("type: LoadBalancer, loadBalancerClass: sheave.dev/l4", "type: ClusterIP");
    assert_eq!(
        refusal(unclassified, &plain),
        "the Service is of type ClusterIP without a loadBalancerClass; this gateway makes frontends of kind LoadBalancer \
         (frontends in the configuration), and load balancers for loadBalancerClass \"sheave.dev/l4\" or without any only"
    );
    let headless = web("clusterIP: None", "").replace("sheave.dev/l4", "example.com/lb");
    assert_eq!(
        refusal(options(), &headless),
        "spec.clusterIP: a headless Service has no frontends; it is not served"
    );
    let wrong_type = web("", "").replace("type: LoadBalancer", "type: NodePort");
    assert!(refusal(options(), &wrong_type).contains("type NodePort is not LoadBalancer"));
}

#[test]
fn every_endpoint_says_what_becomes_of_it() {
    let odd = slice(
        "web-2",
        HTTP,
        "{addresses: [10.1.0.1], conditions: {ready: false}}, \
         {addresses: [10.1.0.2], conditions: {ready: false, serving: true, terminating: true}}, \
         {addresses: [10.1.0.3], conditions: {ready: false, serving: false, terminating: true}}, \
         {addresses: [10.1.0.7], conditions: {ready: false, serving: true, terminating: true}}, \
         {addresses: [10.1.0.8, 10.1.0.9]}, {addresses: []}, {addresses: [x]}, {addresses: ['fd01::7']}",
    );
    let looping = slice("web-3", "{name: http, port: 80}", "{addresses: [192.0.2.1]}");
    let other = slice("web-4", "{name: http, protocol: UDP, port: 80}", "{addresses: [10.1.0.10]}");
    let unnumbered = slice("web-5", "{name: other, port: 1}, {name: http}", "{addresses: [10.1.0.11]}");
    let beyond = slice("web-6", "{name: http, port: 70000}", "{addresses: [10.1.0.12]}");
    let six = slice("web-7", HTTP, "").replace("IPv4", "IPv6");
    let why =
        why(&[&web("ipFamilies: [IPv4]", ""), WEB_SLICE, &odd, &looping, &other, &unnumbered, &beyond, &six]);
    assert_eq!(
        verdicts(&why),
        [
            "10.1.0.1:8080: not ready",
            "10.1.0.2:8080: it terminates, and others are ready",
            "10.1.0.3:8080: it terminates and does not serve any more",
            "10.1.0.7:8080: it may be chosen",
            "10.1.0.7:8080: the entry of EndpointSlice web-1 for this address counts",
            "10.1.0.8:8080: it may be chosen",
            "10.1.0.9:8080: only the first address of an endpoint counts",
            "192.0.2.1:80: the gateway itself accepts traffic there: it would go round in circles",
            ": it has no address",
            "10.1.0.10: its slice has no TCP port named \"http\"",
            "10.1.0.11: its slice gives the port no number",
            "10.1.0.12: its slice's port 70000 is none (1 to 65535)",
            "fd01::7: its address is not of its slice's addressType",
            "x: its address is not an IP address",
        ]
    );
    assert_eq!(why.external.other_slices, ["web-7"]);
    let fact = &why.external.endpoints[3];
    let said = (&*fact.slice, &*fact.node, &*fact.zone, fact.local, fact.state.clone());
    assert_eq!(said, ("web-1", "n1", "", false, "Ready".to_owned()));
    let states: Vec<String> = why.external.endpoints[..3].iter().map(|fact| fact.state.clone()).collect();
    assert_eq!(states, ["NotReady", "Terminating", "NotReady"]);
}

#[test]
fn an_unnamed_port_is_called_so() {
    let service = service("shop", "web", "ports: [{port: 80}]", "");
    assert_eq!(verdicts(&why(&[&service, WEB_SLICE])), ["10.1.0.7: its slice has no unnamed TCP port"]);
}

#[test]
fn policy_local_keeps_to_this_node_for_outside_clients_only() {
    let here = "{addresses: [10.1.0.1], nodeName: gw-1, hints: {forZones: [{name: b}]}}";
    let there = "{addresses: [10.1.0.2], nodeName: n2, hints: {forZones: [{name: b}]}}";
    let local =
        why(&[&web("externalTrafficPolicy: Local", ""), &slice("a", HTTP, &format!("{here}, {there}"))]);
    assert_eq!(
        verdicts(&local),
        [
            "10.1.0.1:8080: it may be chosen",
            "10.1.0.2:8080: the policy is Local, and it is not on this node, gw-1"
        ]
    );
    assert!(local.internal.endpoints.iter().all(|it| it.used && it.reason == "it may be chosen"));
    assert!(local.external.endpoints[0].local && !local.external.endpoints[1].local);
    assert_eq!(
        local.external.reasons,
        [
            "externalTrafficPolicy is Local: only endpoints on this node, gw-1, may be used",
            "topology hints have no say under policy Local",
            "one endpoint may be chosen",
        ]
    );
    assert_eq!(
        local.internal.reasons,
        [
            "clients inside the cluster get the endpoints of the whole cluster here, whatever the traffic policies say",
            "zone hints do not count: those of no ready endpoint name this zone, a",
            "2 endpoints may be chosen",
        ]
    );
}

#[test]
fn what_happens_without_an_endpoint_is_said() {
    let there = slice("a", HTTP, "{addresses: [10.1.0.2], nodeName: n2}");
    let dropped = why(&[&web("externalTrafficPolicy: Local", ""), &there]);
    assert_eq!(
        dropped.external.reasons[1],
        "endpoints serve elsewhere, but none on this node: packets are silently dropped"
    );
    let refused = why(&[&web("externalTrafficPolicy: Local", "")]);
    assert_eq!(
        refused.external.reasons[1],
        "no endpoint serves anywhere: clients are refused (TCP reset, ICMP port unreachable)"
    );
}

#[test]
fn terminating_endpoints_are_called_the_last_resort() {
    let leaving = "{addresses: [10.1.0.2], conditions: {ready: false, terminating: true}}";
    let why = why(&[&web("", ""), &slice("a", HTTP, leaving)]);
    assert_eq!(
        verdicts(&why),
        ["10.1.0.2:8080: it may be chosen: it terminates but still serves, and none is ready"]
    );
    assert_eq!(
        why.external.reasons[1],
        "no endpoint is ready there: those that terminate but still serve are used"
    );
}

#[test]
fn hints_say_why_they_count_or_not() {
    let hinted = |octet: u8, hints: &str| format!("{{addresses: [10.1.0.{octet}], hints: {{{hints}}}}}");
    let said = |endpoints: &[String]| {
        let why = why(&[&web("", ""), &slice("a", HTTP, &endpoints.join(", "))]);
        (why.external.reasons[1].clone(), verdicts(&why).join("; "))
    };
    let (zone, left_out) =
        said(&[hinted(1, "forZones: [{name: a}]"), hinted(2, "forZones: [{name: b}, {name: c}]")]);
    assert_eq!(zone, "every ready endpoint has zone hints, and some name this zone, a: only those are used");
    assert!(
        left_out.contains("10.1.0.2:8080: its hints name zone b, c, and this node is in zone a"),
        "{left_out}"
    );
    let (node, left_out) =
        said(&[hinted(1, "forNodes: [{name: gw-1}]"), hinted(2, "forNodes: [{name: n2}]")]);
    assert_eq!(
        node,
        "every ready endpoint has node hints, and some name this node, gw-1: only those are used"
    );
    assert!(left_out.contains("10.1.0.2:8080: its hints name node n2, and this node is gw-1"), "{left_out}");
    let (missing, _) = said(&[hinted(1, "forZones: [{name: a}]"), hinted(2, "")]);
    assert_eq!(missing, "zone hints do not count: 10.1.0.2:8080 is ready and has none");
    let (none, _) = said(&[hinted(1, ""), hinted(2, "")]);
    assert_eq!(none, "2 endpoints may be chosen");
}

#[test]
fn hints_do_not_count_where_the_zone_is_unknown() {
    let node = NODE.replace(", labels: {topology.kubernetes.io/zone: a}", "");
    let hinted = slice("a", HTTP, "{addresses: [10.1.0.1], hints: {forZones: [{name: a}]}}");
    let why = why(&[&node, &web("", ""), &hinted]);
    assert_eq!(why.external.reasons[1], "zone hints do not count: this gateway's zone is not known");
}

#[test]
fn the_cluster_address_goes_by_the_internal_policy_and_ports_are_those_of_the_service() {
    let kinds = [FrontendKind::ClusterIp, FrontendKind::NodePort];
    let options = Options { frontends: kinds.into(), ..options() };
    let spec = "ports: [{name: http, port: 80, nodePort: 30080}, {name: x, port: 5000, protocol: SCTP}], \
                clusterIP: 10.96.0.1, internalTrafficPolicy: Local";
    let (projector, objects) = projected(options, &[&service("shop", "web", spec, ""), WEB_SLICE]);
    let Explanation::Served(served) = projector.explain(&objects, &web_key()) else { panic!("not served") };
    let of = |kind| served.frontends().iter().find(|frontend| frontend.kind == kind).unwrap();
    let cluster = Why::of(&served, of(FrontendKind::ClusterIp)).unwrap();
    let local = "internalTrafficPolicy is Local: only endpoints on this node, gw-1, may be used";
    assert_eq!((&*cluster.external.reasons[0], &*cluster.internal.reasons[0]), (local, local));
    let node_port = of(FrontendKind::NodePort);
    assert_eq!((node_port.addr.port, served.port_of(node_port)), (30080, Some(80)));
    let ports: Vec<String> =
        served.ports().iter().map(|port| format!("{} {}/{}", port.name, port.port, port.protocol)).collect();
    assert_eq!(ports, ["http 80/TCP", "x 5000/SCTP"]);
    let mut stranger = Frontend::clone(node_port);
    stranger.service.name = "other".into();
    assert_eq!(Why::of(&served, &stranger), None);
}

#[test]
fn what_makes_a_client_one_of_the_cluster_is_named() {
    let options = Options { internal_cidrs: vec!["172.16.0.0/12".parse().unwrap()], ..options() };
    let (projector, objects) = projected(options, &[]);
    let inside = |text: &str| {
        projector
            .inside(&objects, text.parse().unwrap())
            .map_or_else(String::new, |inside| inside.to_string())
    };
    assert_eq!(inside("192.0.2.1"), "an address of Node gw-1");
    assert_eq!(inside("10.1.2.3"), "in pod CIDR 10.1.0.0/16 of Node gw-1");
    assert_eq!(inside("::ffff:10.1.2.3"), "in pod CIDR 10.1.0.0/16 of Node gw-1");
    assert_eq!(inside("172.20.0.1"), "in 172.16.0.0/12 of internalCIDRs in the configuration");
    assert_eq!(inside("203.0.113.1"), "");
}

/// An endpoint of a slice: last octet, conditions, node, hints, address form.
type Drawn = (u8, u8, u8, u8, bool);

/// The port and endpoints of a slice.
fn any_slice() -> impl Strategy<Value = (u8, Vec<Drawn>)> {
    let endpoint = (0..6_u8, 0..5_u8, 0..3_u8, 0..6_u8, prop::bool::weighted(0.1));
    (0..6_u8, prop::collection::vec(endpoint, 0..5))
}

fn written(index: usize, (port, endpoints): &(u8, Vec<Drawn>)) -> String {
    let port = [
        "{name: http, port: 80}",
        HTTP,
        HTTP,
        "{name: x, port: 80}",
        "{name: http}",
        "{name: http, port: 0}",
    ][usize::from(*port)];
    let endpoints: Vec<String> = endpoints.iter().map(endpoint).collect();
    slice(&format!("web-{index}"), port, &endpoints.join(", "))
}

fn endpoint(&(octet, conditions, node, hints, odd): &Drawn) -> String {
    // 192.0.2.1 is a frontend.
    let address = if octet == 0 { "192.0.2.1".to_owned() } else { format!("10.1.0.{octet}") };
    let addresses = if odd { format!("{address}x") } else { format!("{address}, 10.1.0.{octet}9") };
    let conditions = [
        "ready: true",
        "",
        "ready: false",
        "ready: false, serving: true, terminating: true",
        "ready: false, serving: false, terminating: true",
    ][usize::from(conditions)];
    let node = ["", "nodeName: gw-1, ", "nodeName: n2, "][usize::from(node)];
    let hints = [
        "",
        "forZones: [{name: a}]",
        "forZones: [{name: a}]",
        "forZones: [{name: b}, {name: a}]",
        "forZones: [{name: b}]",
        "forZones: [{name: b}], forNodes: [{name: gw-1}]",
    ][usize::from(hints)];
    format!("{{addresses: [{addresses}], {node}conditions: {{{conditions}}}, hints: {{{hints}}}}}")
}

fn candidates(frontend: &Frontend, route: &Route) -> BTreeSet<EndpointAddr> {
    route.candidates().iter().map(|candidate| frontend.endpoint(*candidate).addr).collect()
}

proptest! {
    #[test]
    fn what_is_explained_as_used_is_what_is_projected(
        slices in prop::collection::vec(any_slice(), 0..4),
        external_local in any::<bool>(),
        internal_local in any::<bool>(),
        node_known in prop::bool::weighted(0.8),
    ) {
        let word = |local| if local { "Local" } else { "Cluster" };
        let spec = format!(
            "ports: [{{name: http, port: 80, nodePort: 30080}}], clusterIP: 10.96.0.1, externalTrafficPolicy: {}, \
             internalTrafficPolicy: {}", word(external_local), word(internal_local));
        let manifests: Vec<String> = slices.iter().enumerate().map(|(index, slice)| written(index, slice)).collect();
        let status = "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}";
        let mut all = vec![service("shop", "web", &spec, status)];
        all.extend(manifests);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let kinds = [FrontendKind::LoadBalancer, FrontendKind::NodePort, FrontendKind::ClusterIp];
        let node = if node_known { "gw-1" } else { "" };
        let (projector, objects) =
            projected(Options { node: node.to_owned(), frontends: kinds.into(), ..options() }, &all);
        let Explanation::Served(served) = projector.explain(&objects, &web_key()) else { panic!("not served") };
        prop_assert_eq!(served.frontends().len(), if node_known { 3 } else { 2 });
        let addresses = slices.iter().flat_map(|(port, endpoints)| {
            // For a slice without a matching port, further addresses of an endpoint are not reported.
            endpoints.iter().map(move |endpoint| if endpoint.4 || *port > 2 { 1 } else { 2 })
        });
        let addresses: usize = addresses.sum();
        for frontend in served.frontends() {
            let why = Why::of(&served, frontend).unwrap();
            for (explained, route) in [(why.external, &frontend.external), (why.internal, &frontend.internal)] {
                prop_assert_eq!(explained.endpoints.len(), addresses);
                let used = explained.endpoints.iter().filter(|it| it.used).map(|it| it.addr.unwrap());
                let used: Vec<_> = used.collect();
                prop_assert_eq!(used.len(), route.candidates().len(), "none counts twice");
                prop_assert_eq!(used.into_iter().collect::<BTreeSet<_>>(), candidates(frontend, route));
            }
        }
    }

    #[test]
    fn a_client_is_inside_for_a_reason_if_and_only_if_the_table_has_it(
        octets in (prop_oneof![Just(10_u8), Just(172), Just(192)], 0..20_u8, 0..3_u8, 0..3_u8),
    ) {
        let options = Options { internal_cidrs: vec!["172.16.0.0/14".parse().unwrap()], ..options() };
        let (mut projector, objects) = projected(options, &[]);
        let table = projector.project(&objects, &Dirty::Nothing).table;
        let ip: IpAddr = [octets.0, octets.1, octets.2, octets.3].into();
        prop_assert_eq!(projector.inside(&objects, ip).is_some(), table.internal_clients().contains(ip));
    }
}
