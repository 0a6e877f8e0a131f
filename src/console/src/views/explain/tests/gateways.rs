//! Answers about Gateways and routes.

use super::*;
use crate::test_gateways::{GATEWAY, backend, example, route, tls_example};

fn text(fixture: &Fixture, query: &str) -> String {
    fixture.answer(query, true).to_text()
}

fn reasons(fixture: &Fixture, query: &str) -> Vec<String> {
    fixture.answer(query, true).view().reasons.clone()
}

#[test]
fn a_listener_is_explained_with_its_route_and_each_part() {
    let fixture = Fixture::new(&example());
    let expected = "\
Gateway shop/gw, listener shop/gw/tcp, on 203.0.113.0:9300/TCP (LoadBalancer)
198.51.100.7, outside the cluster, goes to one of 3 endpoints, but 1% of new connections are refused.

Why
  - 198.51.100.7 counts as outside the cluster: it is in no pod CIDR and no internalCIDRs, and no Node has it
  - every client is admitted: no sheave.dev/source-ranges limit IPv4 clients
  - TCPRoute shop/a serves the listener
  - 69% of new connections (weight 69) go to Service shop/v1:80
  - 30% of new connections (weight 30) go to Service shop/v2:80
  - 1% of new connections (weight 1) are refused: Service shop/gone:80: BackendNotFound
  - Service shop/spare:80 has weight 0, so it gets no new connections
  - the backend of a new connection is chosen by weight, then one of its endpoints

Service shop/v1:80: 69% of new connections, weight 69
  ENDPOINT       STATE  NODE  ZONE  SLICE  USED  WHY
  10.1.0.7:8080  Ready  n7    -     v1-1   yes   it may be chosen
  10.1.0.8:8080  Ready  n8    -     v1-1   yes   it may be chosen

Service shop/v2:80: 30% of new connections, weight 30
  ENDPOINT       STATE  NODE  ZONE  SLICE  USED  WHY
  10.1.0.9:8080  Ready  n9    -     v2-1   yes   it may be chosen

Service shop/gone:80: 1% of new connections, weight 1, refused: BackendNotFound

Service shop/spare:80: 0% of new connections, weight 0
  ENDPOINT        STATE  NODE  ZONE  SLICE    USED  WHY
  10.1.0.10:8080  Ready  n10   -     spare-1  no    its backend has weight 0
";
    assert_eq!(text(&fixture, "service=shop/gw&kind=gateway&listener=tcp&client=198.51.100.7"), expected);
}

#[test]
fn a_route_reports_what_became_of_each_parent() {
    let both = "{name: gw, sectionName: tcp}, {name: gw, sectionName: tpc}, {name: other}";
    let younger = route("TCPRoute", "b", both, "{name: v1, port: 80}");
    let fixture = Fixture::new(&(example() + &younger));
    let expected = "\
TCPRoute shop/b is not served here.

Why
  - Gateway shop/gw, sectionName tcp: Accepted is True: The route is attached.
  - Gateway shop/gw, sectionName tcp: ResolvedRefs is True: Every backend exists.
  - Gateway shop/gw, sectionName tcp: sheave.dev/Serving is False (Superseded): An older route serves each of its listeners.
  - Gateway shop/gw, sectionName tpc: Accepted is False (NoMatchingParent): The parent has no listener with this sectionName and port.
  - Gateway shop/gw, sectionName tpc: ResolvedRefs is True: Every backend exists.
  - Gateway shop/other: it does not exist, or another controller serves it
  - no listener sends traffic to it
";
    assert_eq!(text(&fixture, "service=shop/b&kind=tcproute"), expected);
    let serves = fixture.answer("service=shop/a&kind=tcproute", true);
    let view = serves.view();
    assert_eq!(view.frontend.as_deref(), Some("203.0.113.0:9300/TCP"));
    reason(view, "TCPRoute shop/a serves the listener");
    reason(view, "it is the older of two attached routes, so it serves alone");
}

#[test]
fn the_json_of_a_listener_has_its_route_and_parts() {
    let fixture = Fixture::new(&example());
    let answer = fixture.answer("service=shop/a&kind=tcproute", true);
    let json: Value = serde_json::from_str(&answer.view().to_json()).unwrap();
    assert_eq!((&json["listener"], &json["route"]), (&json!("shop/gw/tcp"), &json!("TCPRoute shop/a")));
    let parent = &json["parents"][0];
    assert_eq!(parent["parent"], "Gateway shop/gw, sectionName tcp");
    let accepted = json!({"type": "Accepted", "status": "True", "reason": "Accepted", "message": "The route is attached."});
    assert_eq!(parent["conditions"][0], accepted);
    let gone = json!({"ref": "Service shop/gone:80", "weight": 1, "share": "1%", "refused": "BackendNotFound", "endpoints": []});
    assert_eq!(json["split"][2], gone);
    assert_eq!(json["split"][1]["endpoints"][0]["address"], "10.1.0.9:8080");
    assert_eq!(&serde_json::from_str::<ExplainView>(&json.to_string()).unwrap(), answer.view());
}

#[test]
fn what_is_not_there_or_serves_nothing_is_said() {
    let fixture = Fixture::new(&example());
    let not_found = |query: &str| match fixture.answer(query, true) {
        Answer::NotFound(view) => view.reasons.join("; "),
        Answer::Explained(view) => panic!("{view:?}"),
    };
    assert_eq!(not_found("service=shop/x&kind=gateway"), "there is no Gateway shop/x");
    assert_eq!(not_found("service=shop/a&kind=udproute"), "there is no UDPRoute shop/a");
    let listeners = "the Gateway has no listener x; it has tcp, udp, bare";
    assert_eq!(not_found("service=shop/gw&kind=gateway&listener=x"), listeners);
    let headline = |query: &str| text(&fixture, query).lines().nth(1).map(str::to_owned).unwrap();
    let refused = "A client outside the cluster is refused: ";
    let bare = headline("service=shop/gw&kind=gateway&listener=bare");
    assert_eq!(bare, format!("{refused}no route is attached to the listener."));
    assert_eq!(headline("service=shop/gw&kind=gateway&port=53"), format!("{refused}see the backends."));
}

#[test]
fn a_service_names_the_routes_of_its_namespace_that_it_is_a_backend_of() {
    let other = route("UDPRoute", "far", "{name: gw}", "{name: v1, namespace: shop, port: 53}");
    let fixture =
        Fixture::new(&(example() + &other.replace("namespace: shop}\nspec", "namespace: far}\nspec")));
    let reasons = reasons(&fixture, "service=shop/v1");
    let backend_of: Vec<&String> = reasons.iter().filter(|reason| reason.contains("backend of")).collect();
    let expected =
        ["it is also a backend of TCPRoute shop/a", "it is also a backend of a route of another namespace"];
    assert_eq!(backend_of, expected);
}

#[test]
fn names_of_other_namespaces_stay_hidden_from_readers_of_the_gateway() {
    let gateway = GATEWAY.replace(
        "port: 9300, protocol: TCP",
        "port: 9300, protocol: TCP, allowedRoutes: {namespaces: {from: All}}",
    );
    let parent = "{name: gw, namespace: shop, sectionName: tcp}";
    let manifests = route("TCPRoute", "secret", parent, "{name: vault, port: 80}, {name: hidden, port: 80}")
        + &backend("vault", &[7]);
    let fixture = Fixture::new(
        &(gateway
            + &manifests
                .replace("namespace: shop}\nspec", "namespace: far}\nspec")
                .replace("namespace: shop, labels", "namespace: far, labels")),
    );
    let of_gateway = fixture.answer("service=shop/gw&kind=gateway&listener=tcp", true);
    let json = of_gateway.view().to_json();
    assert!(!["far", "secret", "vault", "hidden"].iter().any(|name| json.contains(name)), "{json}");
    assert!(json.contains("10.1.0.7:8080") && json.contains("BackendNotFound"), "{json}");
    let of_route = text(&fixture, "service=far/secret&kind=tcproute");
    assert!(of_route.contains("Service far/vault:80: 50% of new connections"), "{of_route}");
}

#[test]
fn the_server_name_chooses_the_route_that_is_explained() {
    let fixture = Fixture::new(&tls_example());
    let tls = |more: &str| reasons(&fixture, &format!("service=shop/gw&kind=gateway&listener=tls{more}"));
    let without: Vec<String> = tls("").into_iter().skip(2).collect();
    assert_eq!(
        without,
        [
            "the server name of a connection chooses its route (--sni NAME)",
            "server names: a.shop.example, *.b.shop.example, c.shop.example"
        ]
    );
    let wildcard = tls("&sni=x.B.shop.example.");
    let of_a = "server names: a.shop.example, *.b.shop.example";
    assert!(wildcard.contains(&of_a.to_owned()), "{wildcard:?}");
    assert!(wildcard.contains(&"TLSRoute shop/a serves the listener".to_owned()), "{wildcard:?}");
    assert!(
        wildcard.contains(&"100% of new connections (weight 1) go to Service shop/v1:80".to_owned()),
        "{wildcard:?}"
    );
    let unknown = tls("&sni=shop.example");
    let reset = "no route has the server name shop.example: its connections are reset";
    assert!(unknown.contains(&reset.to_owned()), "{unknown:?}");
    let refused = text(&fixture, "service=shop/gw&kind=gateway&sni=c.shop.example&port=443");
    assert!(refused.contains("are refused: Service shop/gone:80: BackendNotFound"), "{refused}");
    let route = reasons(&fixture, "service=shop/a&kind=tlsroute");
    assert!(route.contains(&of_a.to_owned()), "{route:?}");
    assert!(question("service=shop/gw&kind=gateway&sni=a_b..c").is_err());
}
