//! Gateways and routes in `validate` and `routes`.

use serde_json::{Value, json};

use super::{folder, validated, view};
use crate::test_gateways::{GATEWAY, backend, example, route, tls_example};
use crate::views::View as _;
use crate::views::routes::FrontendView;

#[test]
fn the_table_shows_listeners_with_their_routes_and_names_refused_shares() {
    let folder = folder(&example());
    let text = view(&folder).to_text();
    let (text, problems) = text.split_once("\nProblems\n").unwrap();
    assert!(problems.contains("TCPRoute shop/a: BackendRefInvalid: "), "{problems}");
    let expected = "\
Routing table of node gw-1, generation 1: 3 frontends.

Frontends: where traffic is accepted, and what clients get
  FRONTEND              KIND          SERVICE  PORT  LISTENER      ROUTE              FROM OUTSIDE             FROM THE CLUSTER         AFFINITY  ALLOWED
  203.0.113.0:53/UDP    LoadBalancer  -        -     shop/gw/udp   UDPRoute shop/dns  refused: no endpoints    refused: no endpoints    -         all
  203.0.113.0:9300/TCP  LoadBalancer  -        -     shop/gw/tcp   TCPRoute shop/a    3 endpoints, 1% refused  3 endpoints, 1% refused  -         all
  203.0.113.0:9400/TCP  LoadBalancer  -        -     shop/gw/bare  -                  refused: no route        refused: no route        -         all

Splits: how new connections are divided over the backends of routes
  FRONTEND              BACKEND                WEIGHT  SHARE  GOES TO
  203.0.113.0:53/UDP    Service shop/empty:53  1       100%   refused: no endpoints
  203.0.113.0:9300/TCP  Service shop/v1:80     69      69%    2 endpoints
                        Service shop/v2:80     30      30%    1 endpoint
                        Service shop/gone:80   1       1%     refused: BackendNotFound
                        Service shop/spare:80  0       0%     nothing new

Endpoints: where it goes
  FRONTEND              BACKEND                ENDPOINT        STATE  CLUSTER  NODE  ZONE  WEIGHT  USED
  203.0.113.0:9300/TCP  Service shop/v1:80     10.1.0.7:8080   Ready  local    n7    -     100     for all
                        Service shop/v1:80     10.1.0.8:8080   Ready  local    n8    -     100     for all
                        Service shop/v2:80     10.1.0.9:8080   Ready  local    n9    -     100     for all
                        Service shop/spare:80  10.1.0.10:8080  Ready  local    n10   -     100     not now

Status: what would be published, and which ports have trouble
  SERVICE            ADDRESS      HOSTNAME  PORTS IN TROUBLE
  shop/gw (Gateway)  203.0.113.0  -         -
";
    assert_eq!(text, expected);
}

#[test]
fn the_json_of_a_listener_has_its_route_and_split() {
    let json: Value = serde_json::from_str(&view(&folder(&example())).to_json()).unwrap();
    let frontends = json["frontends"].as_array().unwrap();
    let of = |listener: &str| frontends.iter().find(|it| it["listener"] == listener).unwrap();
    let tcp = of("shop/gw/tcp");
    assert_eq!(tcp["route"], "TCPRoute shop/a");
    assert_eq!(
        (&tcp["service"], &tcp["source"], &tcp["backends"]),
        (&json!("shop/gw"), &json!("Gateway"), &json!([]))
    );
    let all = json!({"action": "Forward", "endpoints": ["10.1.0.7:8080", "10.1.0.8:8080", "10.1.0.9:8080"]});
    assert_eq!((&tcp["external"], &tcp["internal"]), (&all, &all));
    let split = tcp["split"].as_array().unwrap();
    assert_eq!(split[2], json!({"ref": "Service shop/gone:80", "weight": 1, "refused": "BackendNotFound"}));
    assert_eq!((&split[1]["ref"], &split[1]["weight"]), (&json!("Service shop/v2:80"), &json!(30)));
    assert_eq!(split[1]["backends"][0]["endpoints"][0]["address"], "10.1.0.9:8080");
    assert_eq!(of("shop/gw/udp")["external"], json!({"action": "Reject", "endpoints": []}));
    let bare = of("shop/gw/bare").as_object().unwrap();
    assert!(!bare.contains_key("route") && !bare.contains_key("split"), "{bare:?}");
    assert_eq!(bare["external"]["action"], "Reject");
}

#[test]
fn what_one_process_writes_of_a_split_another_reads() {
    let frontends = view(&folder(&example())).frontends;
    let json = serde_json::to_string(&frontends).unwrap();
    assert_eq!(serde_json::from_str::<Vec<FrontendView>>(&json).unwrap(), frontends);
}

#[test]
fn each_mistake_in_gateways_and_routes_is_found_without_an_api_server() {
    let zero = "{name: v1, port: 80, weight: 0}";
    let manifests = [
        GATEWAY,
        "  - {name: http, port: 80, protocol: HTTP}\n",
        "  - {name: one, port: 70, protocol: TCP}\n  - {name: two, port: 70, protocol: TCP}\n",
        &route("TCPRoute", "none", "{name: gw, sectionName: tcp}", zero),
        &route("TCPRoute", "section", "{name: gw, sectionName: tpc}", zero),
        &route("TCPRoute", "grant", "{name: gw, sectionName: bare}", "{name: db, namespace: data, port: 80}"),
        &route("TCPRoute", "younger", "{name: gw, sectionName: tcp}", zero),
        &route("UDPRoute", "alone", "{name: missing}", zero),
        &backend("v1", &[7]),
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: other, namespace: shop}\n\
         spec: {gatewayClassName: absent, listeners: [{name: a, port: 1, protocol: TCP}]}\n",
    ]
    .concat();
    let report = validated(&folder(&manifests));
    let without_line = |line: &str| {
        let place = line.split_once("web.yaml:").and_then(|(_, rest)| rest.split_once(": "));
        place.map_or(line, |(_, rest)| rest).to_owned()
    };
    let lines: Vec<String> = report.lines().map(without_line).collect();
    let same_port = "Another listener of this Gateway has the same port and protocol.";
    let expected = [
        "Gateway shop/gw: InvalidValue: spec.listeners[5].port: TCP 70 is what listener \"one\" has, too, without another \
         hostname; neither is used",
        &format!("Gateway shop/gw: ListenerConflict: port 70/TCP: spec.listeners[4]: {same_port}"),
        &format!("Gateway shop/gw: ListenerConflict: port 70/TCP: spec.listeners[5]: {same_port}"),
        "Gateway shop/gw: UnsupportedListener: port 80/TCP: spec.listeners[3]: \"HTTP\" is not TCP, UDP or TLS; the listener is \
         not served.",
        "TCPRoute shop/grant: BackendRefInvalid: spec.rules[0].backendRefs[0]: is in another namespace, and no ReferenceGrant \
         there permits it (RefNotPermitted)",
        "TCPRoute shop/none: NoWeight: spec.rules[0].backendRefs: no backend has a weight, so every connection is refused",
        "TCPRoute shop/section: RouteNotAccepted: spec.parentRefs[0]: The parent has no listener with this sectionName and \
         port. (NoMatchingParent)",
        "TCPRoute shop/younger: RouteSuperseded: spec.parentRefs[0]: An older route serves each of its listeners.",
        "Gateway shop/other: NotServed: spec.gatewayClassName: there is no GatewayClass \"absent\"",
        "UDPRoute shop/alone: NotServed: spec.parentRefs[0]: there is no Gateway shop/missing, so the route serves nothing there",
        "8 problems, 2 notes",
    ];
    assert_eq!(lines, expected.map(str::to_owned));
}

#[test]
fn the_table_shows_what_server_names_lead_to() {
    let folder = folder(&tls_example());
    let text = view(&folder).to_text();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split("  ").filter(|it| !it.is_empty()).map(str::trim).collect())
        .collect();
    let row =
        |first: &str| rows.iter().filter(|row| row.first() == Some(&first)).cloned().collect::<Vec<_>>();
    let of_a = row("203.0.113.0:443/TCP *.b.shop.example +1");
    let frontend = [
        "LoadBalancer",
        "-",
        "-",
        "shop/gw/tls",
        "TLSRoute shop/a",
        "2 endpoints",
        "2 endpoints",
        "-",
        "all",
    ];
    assert_eq!(of_a[0][1..], frontend, "{text}");
    assert_eq!(of_a[1][1..], ["Service shop/v1:80", "1", "100%", "2 endpoints"], "{text}");
    let of_b = row("203.0.113.0:443/TCP c.shop.example");
    assert_eq!(of_b[1][1..], ["Service shop/gone:80", "1", "100%", "refused: BackendNotFound"], "{text}");
    let json: Value = serde_json::from_str(&view(&folder).to_json()).unwrap();
    let frontend = json["frontends"].as_array().unwrap().iter().find(|it| it["port"] == 443).unwrap();
    let names = frontend["serverNames"].as_object().unwrap();
    assert_eq!(names.keys().collect::<Vec<_>>(), ["*.b.shop.example", "a.shop.example", "c.shop.example"]);
    assert_eq!(names["a.shop.example"]["route"], "TLSRoute shop/a");
    assert_eq!(names["c.shop.example"]["split"][0]["refused"], "BackendNotFound");
    let read: Vec<FrontendView> = serde_json::from_value(json["frontends"].clone()).unwrap();
    assert_eq!(read, view(&folder).frontends);
}
