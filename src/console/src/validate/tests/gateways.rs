//! Gateways and routes in `validate` and `routes`.

use serde_json::{Value, json};

use super::{folder, validated, view};
use crate::test_gateways::{GATEWAY, backend, example, route};
use crate::views::View as _;

#[test]
fn the_table_shows_listeners_with_their_routes_and_names_refused_shares() {
    let text = view(&folder(&example())).to_text();
    let expected = "\
Routing table of node gw-1, generation 1: 3 frontends.

Frontends: where traffic is accepted, and what clients get
  FRONTEND              KIND          SERVICE  PORT  LISTENER      ROUTE          FROM OUTSIDE             FROM THE CLUSTER         AFFINITY  ALLOWED
  203.0.113.0:53/UDP    LoadBalancer  -        -     shop/gw/udp   UDPRoute shop/dns  refused: no endpoints    refused: no endpoints    -         all
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
    let view = view(&folder(&example()));
    assert_eq!(serde_json::from_str::<crate::views::routes::RoutesView>(&view.to_json()).unwrap(), view);
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
    let lines: Vec<&str> =
        report.lines().map(|line| line.rsplit_once("web.yaml:").map_or(line, |(_, rest)| rest)).collect();
    assert_eq!(lines, [""]);
}
