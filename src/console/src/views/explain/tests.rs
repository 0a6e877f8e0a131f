//! Tests of answers about whole objects: frontend, client, choice and reasons.

mod choice;
mod client;
mod failing;
mod gateways;

use std::fs;
use std::sync::Arc;

use axum::extract::Query;
use serde_json::{Value, json};
use sheave_control::api::store::Store;
use sheave_control::projection::{Options, Projection};
use sheave_control::sources::manifests::{self, Loaded};
use sheave_dataplane::KernelPathErrors;
use sheave_model::{Frontend, FrontendKind, RoutingTable};
use tempfile::TempDir;

use super::question::QuestionQuery;
use super::*;
use crate::manifests::ProblemPositions;
use crate::views::View as _;

const NODE: &str = "
kind: Node
apiVersion: v1
metadata: {name: gw-1, labels: {topology.kubernetes.io/zone: a}}
spec: {podCIDRs: [10.1.0.0/16]}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
";

/// Service `shop/web` with one address of each family and these further fields. Its IPv4 endpoints are 10.1.0.7 on this
/// node and 10.1.0.8 elsewhere; it has none for IPv6.
fn web(spec: &str) -> String {
    web_with("", spec)
}

fn web_with(metadata: &str, spec: &str) -> String {
    format!(
        "{NODE}
kind: Service
apiVersion: v1
metadata: {{namespace: shop, name: web, {metadata}}}
spec: {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, ports: [{{name: http, port: 80, nodePort: 30080}}, \
{{name: dns, port: 53, protocol: UDP}}], clusterIP: 10.96.0.1, {spec}}}
status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.10}}, {{ip: '2001:db8::10'}}]}}}}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {{namespace: shop, name: web-1, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: http, port: 8080}}, {{name: dns, port: 5353, protocol: UDP}}]
endpoints:
- {{addresses: [10.1.0.7], nodeName: gw-1, zone: a}}
- {{addresses: [10.1.0.8], nodeName: n2, zone: b}}
"
    )
}

/// State of a gateway after reading manifests.
struct Fixture {
    folder: TempDir,
    loaded: Loaded,
    store: Store,
    projector: Projector,
    projection: Projection,
    active: ActiveTable,
    affinity: AffinityTable,
    no_client_addresses: Option<&'static str>,
    no_kernel_path: KernelPathErrors,
    closed: BTreeMap<FrontendAddr, String>,
    /// Problems besides those of the objects.
    problems: Vec<ProblemView>,
}

impl Fixture {
    fn new(manifests: &str) -> Self {
        Self::with(manifests, Options { node: "gw-1".to_owned(), ..Options::default() })
    }

    fn with(manifests: &str, options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("all.yaml"), manifests).unwrap();
        let loaded = manifests::load(folder.path());
        let mut store = Store::default();
        store.replace(&loaded.objects);
        let mut projector = Projector::new(options);
        let dirty = store.take_dirty();
        let projection = projector.project(store.objects(), &dirty);
        let active = ActiveTable::compile(Arc::clone(&projection.table), &ActiveTable::default());
        let affinity = AffinityTable::default();
        Self {
            folder,
            loaded,
            store,
            projector,
            projection,
            active,
            affinity,
            no_client_addresses: None,
            no_kernel_path: KernelPathErrors::NONE,
            closed: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Changes every frontend of the table in force, but not the objects.
    fn in_force(mut self, change: impl Fn(&mut Frontend)) -> Self {
        let frontends = self.projection.table.frontends().iter().map(|frontend| {
            let mut frontend = Frontend::clone(frontend);
            change(&mut frontend);
            Arc::new(frontend)
        });
        let table =
            RoutingTable::new(9, frontends.collect(), Arc::clone(self.projection.table.internal_clients()));
        self.active = ActiveTable::compile(table, &ActiveTable::default());
        self
    }

    fn answer(&self, query: &str, running: bool) -> Answer {
        let mut problems =
            ProblemPositions::of([(self.folder.path(), &self.loaded)]).problems(&self.projection);
        problems.extend(self.problems.iter().cloned());
        let basis = Basis {
            projector: &self.projector,
            objects: self.store.objects(),
            active: &self.active,
            affinity: running.then_some(&self.affinity),
            problems: &problems,
            closed: &self.closed,
            obstacle: None,
            no_client_addresses: self.no_client_addresses,
            no_kernel_path: &self.no_kernel_path,
            announcements: None,
            now: Instant::now(),
        };
        explain(&question(query).unwrap(), basis)
    }

    /// Answer of a running gateway about `shop/web`.
    fn ask(&self, query: &str) -> ExplainView {
        self.answer(&format!("service=shop/web&{query}"), true).view().clone()
    }
}

fn question(query: &str) -> Result<Question, String> {
    let uri = format!("/api/explain?{}", query.trim_end_matches('&')).parse().unwrap();
    let Query(query) = Query::<QuestionQuery>::try_from_uri(&uri).map_err(|error| error.body_text())?;
    query.read()
}

/// The only reason that contains this text.
fn reason<'a>(view: &'a ExplainView, part: &str) -> &'a str {
    let found: Vec<&String> = view.reasons.iter().filter(|reason| reason.contains(part)).collect();
    assert_eq!(found.len(), 1, "{part:?} in {:#?}", view.reasons);
    found[0]
}

#[test]
fn the_json_is_that_of_the_contract() {
    let view = Fixture::new(&web("externalTrafficPolicy: Local")).ask("client=198.51.100.7&protocol=TCP");
    let json: Value = serde_json::from_str(&view.to_json()).unwrap();
    let reasons = [
        "198.51.100.7 counts as outside the cluster: it is in no pod CIDR and no internalCIDRs, and no Node has it",
        "every client is admitted: no loadBalancerSourceRanges limit IPv4 clients",
        "externalTrafficPolicy is Local: only endpoints on this node, gw-1, may be used",
        "one endpoint may be chosen",
        "10.1.0.7:8080 (Ready, Node gw-1, zone a, EndpointSlice web-1): used: it may be chosen",
        "10.1.0.8:8080 (Ready, Node n2, zone b, EndpointSlice web-1): left out: the policy is Local, and it is not on this \
         node, gw-1",
        "10.1.0.7:8080 is the only one that may be chosen",
        "the endpoint sees the client's own address (transparent)",
    ];
    let contract = json!({
        "service": "shop/web", "source": "Service", "frontend": "203.0.113.10:80/TCP", "kind": "LoadBalancer", "portName": "http",
        "otherFrontends": ["[2001:db8::10]:80/TCP"],
        "client": "198.51.100.7", "clientPort": null, "announcedBy": null, "announcedHere": null, "closed": null, "origin": "external", "allowed": true, "action": "Forward",
        "endpoint": "10.1.0.7:8080", "reasons": reasons,
        "endpoints": [
            {"address": "10.1.0.7:8080", "slice": "web-1", "node": "gw-1", "zone": "a", "state": "Ready", "local": true,
             "used": true, "weight": null, "share": null, "cluster": "", "reason": "it may be chosen"},
            {"address": "10.1.0.8:8080", "slice": "web-1", "node": "n2", "zone": "b", "state": "Ready", "local": false,
             "used": false, "weight": null, "share": null, "cluster": "", "reason": "the policy is Local, and it is not on this node, gw-1"}]});
    assert_eq!(json, contract);
    assert_eq!(serde_json::from_str::<ExplainView>(&view.to_json()).unwrap(), view);
}

#[test]
fn the_text_says_it_first_and_puts_endpoints_into_a_table() {
    let fixture = Fixture::new(&web("externalTrafficPolicy: Local"));
    let text = text::render(&fixture.ask("client=198.51.100.7:5000&protocol=TCP"));
    let expected = "\
Service shop/web, port http, on 203.0.113.10:80/TCP (LoadBalancer)
198.51.100.7, port 5000, outside the cluster, goes to 10.1.0.7:8080.
The question fits [2001:db8::10]:80/TCP as well.

Why
  - 198.51.100.7 counts as outside the cluster: it is in no pod CIDR and no internalCIDRs, and no Node has it
  - every client is admitted: no loadBalancerSourceRanges limit IPv4 clients
  - externalTrafficPolicy is Local: only endpoints on this node, gw-1, may be used
  - one endpoint may be chosen
  - 10.1.0.7:8080 is the only one that may be chosen
  - the endpoint sees the client's own address (transparent)

Endpoints
  ENDPOINT       STATE  NODE         ZONE  SLICE  USED  WHY
  10.1.0.7:8080  Ready  gw-1 (here)  a     web-1  yes   it may be chosen
  10.1.0.8:8080  Ready  n2           b     web-1  no    the policy is Local, and it is not on this node, gw-1
";
    assert_eq!(text, expected);
    let first_lines =
        |query: &str| text::render(&fixture.ask(query)).lines().take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(
        first_lines("client=10.1.0.9&port=80"),
        "Service shop/web, port http, on 203.0.113.10:80/TCP (LoadBalancer) \
         10.1.0.9, inside the cluster, goes to one of 2 endpoints."
    );
    assert_eq!(
        first_lines("client=2001:db8::7&port=80"),
        "Service shop/web, port http, on [2001:db8::10]:80/TCP (LoadBalancer) \
         2001:db8::7, outside the cluster, is refused: no endpoint serves."
    );
    assert_eq!(first_lines("address=192.0.2.9"), "Service shop/web is not served here. ");
}

#[test]
fn a_frontend_that_is_closed_on_the_gateway_is_said_to_be_closed_first() {
    let mut fixture = Fixture::new(&web("externalTrafficPolicy: Local"));
    let addr = fixture.ask("port=80").frontend.unwrap();
    assert_eq!(fixture.ask("port=80").closed, None);
    let why = format!("cannot listen on {addr}: another process has it");
    let frontends = fixture.projection.table.frontends().iter().map(|frontend| frontend.addr);
    let frontend = frontends.into_iter().find(|frontend| frontend.to_string() == addr).unwrap();
    fixture.closed.insert(frontend, why.clone());
    let view = fixture.ask("port=80&client=8.8.8.8");
    assert_eq!((view.closed.as_ref(), &view.endpoint), (Some(&why), &None));
    let text = text::render(&view);
    let headline = format!(
        "8.8.8.8, outside the cluster, is not served: the frontend is closed on this gateway: {why}."
    );
    assert_eq!(text.lines().nth(1), Some(headline.as_str()), "{text}");
    assert!(
        text::render(&fixture.ask("port=53&client=8.8.8.8")).contains("goes to "),
        "the other port is open"
    );
}

#[test]
fn what_does_not_exist_is_not_found_and_says_what_does() {
    let fixture = Fixture::new(&web(""));
    let said = |query: &str| match fixture.answer(query, true) {
        Answer::NotFound(view) => {
            assert_eq!((&view.frontend, &view.action, view.allowed), (&None, &None, false));
            view.reasons.join("; ")
        }
        Answer::Explained(view) => panic!("{view:?}"),
    };
    assert_eq!(said("service=shop/wbe"), "there is no Service shop/wbe; did you mean shop/web?");
    assert_eq!(said("service=shot/web"), "there is no Service shot/web; did you mean shop/web?");
    assert_eq!(said("service=a/unlike"), "there is no Service a/unlike");
    let broken = Fixture::new(&web("ports: 5"));
    let view = broken.answer("service=shop/web", true);
    reason(view.view(), "there is no Service shop/web");
    reason(view.view(), "InvalidManifest");
    let ports = "it has 80/TCP (http), 53/UDP (dns)";
    assert_eq!(said("service=shop/web&port=443"), format!("the Service has no port 443; {ports}"));
    assert_eq!(
        said("service=shop/web&port=80&protocol=UDP"),
        format!("the Service has no UDP port 80; {ports}")
    );
    assert_eq!(said("service=shop/web&port=https"), format!("the Service has no port https; {ports}"));
}

#[test]
fn a_service_that_is_not_served_says_why() {
    let foreign = Fixture::new(&web("").replace("sheave.dev/l4", "example.com/lb")).ask("");
    assert_eq!((&foreign.frontend, &foreign.endpoint), (&None, &None));
    assert!(foreign.reasons[0].contains("loadBalancerClass \"example.com/lb\""), "{:?}", foreign.reasons);
    let refused = Fixture::new(&web("").replace("type: LoadBalancer", "type: ExternalName")).ask("");
    assert_eq!(refused.reasons[0], "the Service asks for this gateway, but cannot be served");
    assert!(
        reason(&refused, "ExternalName").contains("all.yaml:12: Service shop/web: NotServed: spec.type: ")
    );
    let homeless =
        web("").replace("ip: 203.0.113.10", "ip: first").replace("ip: '2001:db8::10'", "ip: second");
    let homeless = Fixture::new(&homeless.replace("address: 192.0.2.1", "address: third")).ask("");
    assert_eq!(homeless.reasons[0], "the Service has no frontend on this gateway");
    reason(&homeless, "NoAddress");
    let fixture = Fixture::new(&web(""));
    let elsewhere = fixture.ask("address=192.0.2.9&protocol=UDP");
    assert_eq!(elsewhere.frontend, None);
    assert!(elsewhere.reasons[0].contains("it is served on 203.0.113.10:53/UDP, 203.0.113.10:80/TCP"));
    let sctp =
        web("").replace("{name: dns, port: 53, protocol: UDP}", "{name: dns, port: 53, protocol: SCTP}");
    let sctp = Fixture::new(&sctp).ask("port=53");
    assert_eq!(sctp.frontend, None);
    reason(&sctp, "SCTP cannot be forwarded");
}

#[test]
fn of_several_frontends_the_clients_family_decides_else_the_first() {
    let fixture = Fixture::new(&web(""));
    let frontend = |query: &str| fixture.ask(query).frontend.unwrap();
    assert_eq!(frontend(""), "203.0.113.10:53/UDP");
    assert_eq!(frontend("port=http"), "203.0.113.10:80/TCP");
    assert_eq!(frontend("protocol=udp&client=2001:db8::1"), "[2001:db8::10]:53/UDP");
    assert_eq!(frontend("client=::ffff:198.51.100.7&port=80"), "203.0.113.10:80/TCP");
    assert_eq!(frontend("address=2001:db8::10&port=80"), "[2001:db8::10]:80/TCP");
    let wrong_family = fixture.ask("address=203.0.113.10&client=2001:db8::1&port=80");
    assert_eq!(wrong_family.frontend, None);
    reason(
        &wrong_family,
        "no frontend of the Service is IPv6, as the client is; it is served on 203.0.113.10:80/TCP",
    );
}

#[test]
fn node_ports_are_found_by_either_number_and_need_no_source_range() {
    let options = Options {
        node: "gw-1".to_owned(),
        frontends: [FrontendKind::LoadBalancer, FrontendKind::NodePort].into(),
        ..Options::default()
    };
    let fixture = Fixture::with(&web("loadBalancerSourceRanges: [198.51.100.0/24]"), options);
    let by_number = fixture.ask("port=30080&client=8.8.8.8");
    assert_eq!(by_number.frontend.as_deref(), Some("192.0.2.1:30080/TCP"));
    assert_eq!((by_number.kind.as_deref(), by_number.allowed), (Some("NodePort"), true));
    reason(&by_number, "loadBalancerSourceRanges are for load balancer addresses alone");
    let by_service_port = fixture.ask("port=80");
    assert_eq!(
        by_service_port.frontend.as_deref(),
        Some("203.0.113.10:80/TCP"),
        "an address that all gateways have"
    );
    assert_eq!(by_service_port.other_frontends, ["[2001:db8::10]:80/TCP", "192.0.2.1:30080/TCP"]);
}

#[test]
fn problems_of_the_service_are_told_where_they_touch_the_port() {
    let fixture = Fixture::new(&web("sessionAffinity: Often"));
    reason(&fixture.ask("port=80"), "all.yaml:12: Service shop/web: InvalidValue: spec.sessionAffinity");
    let metadata = "annotations: {sheave.dev/client-source: proxy-v1}";
    let fixture = Fixture::new(&web_with(metadata, ""));
    reason(&fixture.ask("port=53"), "proxy-v1 has no form for UDP");
    let other_port = fixture.ask("port=80");
    assert!(other_port.reasons.iter().all(|reason| !reason.contains("Problem")), "{:?}", other_port.reasons);
}

#[test]
fn an_obstacle_is_told() {
    let fixture = Fixture::new(&web(""));
    let basis = Basis {
        projector: &fixture.projector,
        objects: fixture.store.objects(),
        active: &fixture.active,
        affinity: None,
        problems: &[],
        closed: &fixture.closed,
        obstacle: Some("draining"),
        no_client_addresses: None,
        no_kernel_path: &KernelPathErrors::NONE,
        announcements: None,
        now: Instant::now(),
    };
    for query in ["service=shop/web", "service=shop/other"] {
        let answer = explain(&question(query).unwrap(), basis);
        reason(answer.view(), "the gateway is not ready: draining");
    }
}

#[test]
fn a_question_keeps_its_meaning_on_the_way_to_a_gateway() {
    for query in [
        "service=shop/web",
        "service=shop/web&port=80&protocol=TCP&address=203.0.113.10&client=198.51.100.7",
        "service=shop/web&port=http&protocol=UDP&address=2001:db8::10&client=%5B2001:db8::7%5D:5000",
    ] {
        let asked = question(query).unwrap();
        let path = asked.path("/api/explain");
        let (_, sent) = path.split_once('?').unwrap();
        assert_eq!(question(sent).unwrap(), asked);
        assert!(!path.contains(['[', ']', ' ']), "{path}");
    }
    let Question { port, client, .. } = question("service=a/b&port=x-1&client=1.2.3.4:5").unwrap();
    assert_eq!(port, Some(Port::Name("x-1".to_owned())));
    assert_eq!(client, Some(Client { ip: [1, 2, 3, 4].into(), port: Some(5) }));
}

#[test]
fn questions_that_cannot_be_read_name_what_is_wrong() {
    for (query, named) in [
        ("", "service"),
        ("service=web", "service=\"web\": write it as NAMESPACE/NAME"),
        ("service=a/b&port=0", "port=\"0\""),
        ("service=a/b&port=99999", "port=\"99999\""),
        ("service=a/b&protocol=SCTP", "protocol=\"SCTP\": this is not TCP or UDP"),
        ("service=a/b&address=x", "address=\"x\""),
        ("service=a/b&client=1.2.3.4:x", "client=\"1.2.3.4:x\""),
        ("service=a/b&cleint=1.2.3.4", "cleint"),
    ] {
        let error = question(query).unwrap_err();
        assert!(error.contains(named), "{query}: {error}");
    }
}
