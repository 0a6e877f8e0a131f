//! Tests of the JSON against the example of the design, and of the text.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sheave_control::api::problem::{ObjectRef, Problem, ProblemPort};
use sheave_control::sources::manifests::Origin;
use sheave_model::{AddressSet, Algorithm, FrontendAddr, Protocol, SourceRanges, test_util};

use super::*;

fn endpoint(addr: &str, node: &str, zone: &str) -> Endpoint {
    let addr: SocketAddr = addr.parse().unwrap();
    Endpoint {
        addr: EndpointAddr::new(addr.ip(), addr.port()),
        node: node.into(),
        zone: zone.into(),
        local: node == "n1",
        ..test_util::endpoint(0, 100)
    }
}

fn forward(endpoints: &[u32]) -> Route {
    test_util::route(endpoints.iter().map(|&endpoint| (0, endpoint)))
}

/// Frontend of the example in the design.
fn frontend(ip: &str, port: u16) -> Frontend {
    let endpoints = vec![endpoint("10.1.0.7:8080", "n1", "a"), endpoint("10.1.0.8:8080", "", "")];
    let mut frontend = test_util::frontend(1, Algorithm::LeastConnections, &[]);
    frontend.service.name = "web".into();
    Frontend {
        addr: FrontendAddr { ip: ip.parse().unwrap(), port, protocol: Protocol::Tcp },
        affinity: Affinity::ClientIp { timeout: Duration::from_secs(10800), scope: AffinityScope::Port },
        source_ranges: Arc::new(SourceRanges::new(vec!["10.0.0.0/8".parse().unwrap()])),
        external: forward(&[0]),
        internal: forward(&[1, 0]),
        backends: Arc::new([Backend { endpoints, capacity: 2, ..test_util::backend("local", 100, &[]) }]),
        ..frontend
    }
}

fn problem(port: Option<ProblemPort>) -> Problem {
    Problem {
        object: ObjectRef { kind: "Service", namespace: "shop".into(), name: "web".into() },
        reason: "CamelCase",
        field: String::new(),
        message: "text".to_owned(),
        port,
    }
}

fn view(frontends: Vec<Frontend>, problems: Vec<ProblemView>) -> RoutesView {
    let table = RoutingTable::new(7, frontends.into_iter().map(Arc::new).collect(), Arc::default());
    RoutesView::new(&table, "gw-1", problems)
}

fn example() -> RoutesView {
    let port = ProblemPort { port: 80, protocol: "TCP" };
    view(vec![frontend("203.0.113.10", 80)], vec![ProblemView::new(&problem(Some(port)), None)])
}

#[test]
fn the_json_is_that_of_the_contract() {
    // The example, with its second endpoint spelled out.
    let health = json!({"panicThreshold": 50, "check": null, "slowStartMillis": 0});
    let endpoints = json!([
        {"address": "10.1.0.7:8080", "node": "n1", "zone": "a", "local": true, "state": "Ready", "weight": 100},
        {"address": "10.1.0.8:8080", "node": "", "zone": "", "local": false, "state": "Ready", "weight": 100},
    ]);
    let contract = json!({"generation": 7, "node": "gw-1",
     "frontends": [
      {"address": "203.0.113.10", "port": 80, "protocol": "TCP", "kind": "LoadBalancer",
       "service": "shop/web", "portName": "http", "appProtocol": null, "source": "Service",
       "balance": "least-connections", "path": null, "clientSource": {"external": "gateway", "internal": "gateway"},
       "acceptProxy": [], "limits": null, "closed": null, "connectionLog": null,
       "affinity": {"clientIP": {"timeoutSeconds": 10800}},
       "sourceRanges": ["10.0.0.0/8"], "admitsNobody": false,
       "external": {"action": "Forward", "endpoints": ["10.1.0.7:8080"]},
       "internal": {"action": "Forward", "endpoints": ["10.1.0.7:8080", "10.1.0.8:8080"]},
       "health": health, "failover": null, "backends": [{"cluster": "local", "weight": 100, "priority": 0, "capacity": 2, "endpoints": endpoints}]}],
     "status": [], "healthChecks": [],
     "problems": [{"object": "Service shop/web", "reason": "CamelCase", "message": "text",
                   "port": {"port": 80, "protocol": "TCP"}}],
     "notServed": [], "notes": []});
    let json: Value = serde_json::from_str(&example().to_json()).unwrap();
    assert_eq!(json, contract);
}

#[test]
fn what_is_not_set_is_null_or_empty_and_a_problem_says_only_what_it_knows() {
    let bare = Frontend {
        affinity: Affinity::None,
        source_ranges: Arc::default(),
        external: Route::Drop,
        internal: Route::Reject,
        ..frontend("2001:db8::1", 443)
    };
    let origin = Origin { file: "web.yaml".into(), document: Some(2), line: None };
    let placed = ProblemView::new(&Problem { field: "spec".to_owned(), ..problem(None) }, Some(&origin));
    let json: Value = serde_json::from_str(&view(vec![bare], vec![placed]).to_json()).unwrap();
    let frontend = &json["frontends"][0];
    assert_eq!((&frontend["affinity"], &frontend["sourceRanges"]), (&Value::Null, &json!([])));
    assert!(frontend.as_object().unwrap().contains_key("affinity"));
    assert_eq!(frontend["external"], json!({"action": "Drop", "endpoints": []}));
    assert_eq!(frontend["internal"], json!({"action": "Reject", "endpoints": []}));
    assert_eq!(
        json["problems"],
        json!([{"object": "Service shop/web", "reason": "CamelCase", "message": "text",
                "field": "spec", "file": "web.yaml", "document": 2}])
    );
}

#[test]
fn a_list_that_admits_nobody_is_not_shown_as_one_that_admits_all() {
    let ranges = Arc::new(SourceRanges::showing(Vec::new(), AddressSet::default()));
    let view = view(vec![Frontend { source_ranges: ranges, ..frontend("203.0.113.10", 80) }], vec![]);
    let json: Value = serde_json::from_str(&view.to_json()).unwrap();
    let frontend = &json["frontends"][0];
    assert_eq!((&frontend["sourceRanges"], &frontend["admitsNobody"]), (&json!([]), &json!(true)));
    assert!(view.to_text().contains("  nobody\n"), "{}", view.to_text());
}

#[test]
fn frontends_that_are_closed_on_the_gateway_are_marked() {
    let view = view(vec![frontend("203.0.113.10", 80), frontend("2001:db8::1", 443)], vec![]);
    let addr = frontend("2001:db8::1", 443).addr;
    let view = view.closing(&BTreeMap::from([(addr, "another process has it".to_owned())]));
    let closed: Vec<Option<&str>> =
        view.frontends.iter().map(|frontend| frontend.closed.as_deref()).collect();
    assert_eq!(closed, [None, Some("another process has it")]);
    let text = view.to_text();
    let row = text.lines().find(|line| line.contains("[2001:db8::1]:443/TCP")).unwrap();
    assert!(row.contains("  closed here   closed here "), "{text}");
}

#[test]
fn frontends_and_problems_have_a_stable_order() {
    let shuffled = ["2001:db8::1", "203.0.113.10", "9.0.0.1"].map(|ip| frontend(ip, 80));
    let problems = ["b", "a"]
        .map(|message| ProblemView::new(&Problem { message: message.to_owned(), ..problem(None) }, None));
    let view = view(shuffled.to_vec(), problems.to_vec());
    let addresses: Vec<&str> = view.frontends.iter().map(|frontend| frontend.address.as_str()).collect();
    assert_eq!(addresses, ["9.0.0.1", "203.0.113.10", "2001:db8::1"]);
    assert_eq!((view.problems[0].message.as_str(), view.problems[1].message.as_str()), ("a", "b"));
}

#[test]
fn what_one_process_writes_another_reads() {
    assert_eq!(serde_json::from_str::<RoutesView>(&example().to_json()).unwrap(), example());
}

#[test]
fn the_text_aligns_its_columns() {
    let mut view = example();
    view.problems[0].file = Some("web.yaml".to_owned());
    let expected = "\
Routing table of node gw-1, generation 7: 1 frontend.

Frontends: where traffic is accepted, and what clients get
  FRONTEND             KIND          SERVICE   PORT  FROM OUTSIDE  FROM THE CLUSTER  AFFINITY                 ALLOWED
  203.0.113.10:80/TCP  LoadBalancer  shop/web  http  1 endpoint    2 endpoints       client address, 10800 s  10.0.0.0/8

Endpoints: where it goes
  FRONTEND             ENDPOINT       STATE  CLUSTER  NODE       ZONE  WEIGHT  USED
  203.0.113.10:80/TCP  10.1.0.7:8080  Ready  local    n1 (here)  a     100     for all
                       10.1.0.8:8080  Ready  local    -          -     100     from the cluster only

Problems
  web.yaml: Service shop/web: CamelCase: port 80/TCP: text
";
    assert_eq!(view.to_text(), expected);
}

#[test]
fn an_empty_table_is_said_to_be_empty() {
    assert_eq!(view(vec![], vec![]).to_text(), "Routing table of node gw-1, generation 7: 0 frontends.\n");
}
