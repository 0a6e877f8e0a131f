//! Tests of health checks by load balancers in front, made with curl: each Service's health check node port, and
//! `/healthz` and `/livez` of the proxy.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::support::gateway::{APPS, Gateway, Settings, steers};
use crate::support::host::Host;
use crate::support::manifest::{App, at, file, nodes, vip};
use crate::support::patience::eventually;
use crate::support::tcp::{self, Conversation};
use crate::support::world::{Family, World};

for_both_families!(
    a_node_with_local_endpoints_is_healthy_to_the_byte,
    only_terminating_local_endpoints_fail_the_check_while_traffic_flows,
    the_port_closes_when_the_service_is_no_longer_local,
    the_port_closes_when_the_service_is_no_load_balancer,
    an_occupied_port_is_no_problem_and_is_taken_over,
    of_two_services_with_one_port_the_second_has_a_problem,
    a_port_that_an_own_frontend_has_is_a_problem_until_that_is_gone,
    an_unwanted_node_fails_healthz_but_not_livez,
    a_draining_gateway_sends_load_balancers_elsewhere,
    frontends_without_local_endpoints_are_counted,
);

/// Port in the range of node ports.
const PORT: u16 = 30_123;
/// Both families on one socket, with the port of kube-proxy.
const HEALTHZ: &str = "[::]:10256";

/// A Service with health checks, without endpoints so far.
fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).local_policy().health_check_node_port(PORT)
}

/// Output of curl.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Runs `curl --include`; `None` without a response.
fn curl(host: &Host, url: &str, arguments: &[&str]) -> Option<Answer> {
    let fixed = ["--silent", "--include", "--globoff", "--max-time", "20"];
    let printed = host.finish("curl", &[&fixed, arguments, &[url]].concat()).stdout;
    let (head, body) = printed.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Some(Answer { status, headers, body: body.to_owned() })
}

/// Checks the health of the Service, from outside.
fn probe(world: &World, family: Family) -> Option<Answer> {
    curl(&world.client, &format!("http://{}/healthz", at(family.gateway(), PORT)), &[])
}

fn expect_status(world: &World, family: Family, status: u16) -> Answer {
    eventually(&format!("the health check answers {status}"), || match probe(world, family) {
        Some(answer) if answer.status == status => Ok(answer),
        other => Err(format!("{other:?}")),
    })
}

/// kube-proxy's body for Service e2e/web.
fn body(local: usize, healthy: bool) -> String {
    format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"e2e\",\n\t\t\"name\": \"web\"\n\t}},\n\t\
         \"localEndpoints\": {local},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
    )
}

/// Gets one of the proxy's own pages.
fn page(world: &World, family: Family, path: &str) -> (u16, Value) {
    let answer = curl(&world.client, &format!("http://{}{path}", at(family.gateway(), 10_256)), &[]);
    let answer = answer.expect("the page is served");
    assert_eq!(answer.header("Content-Type"), "application/json");
    assert_eq!(answer.header("X-Content-Type-Options"), "nosniff");
    (answer.status, serde_json::from_str(&answer.body).expect("pages are JSON"))
}

fn expect_healthz(world: &World, family: Family, status: u16, why: &str) -> Value {
    eventually(&format!("{why}: /healthz is {status}"), || match page(world, family, "/healthz") {
        (code, body) if code == status => Ok(body),
        other => Err(format!("{other:?}")),
    })
}

fn expect_closed(world: &World, family: Family) {
    let to = at(family.gateway(), PORT);
    eventually("the health check node port is closed", || match world.client.run(|| tcp::connect(to)) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

fn a_node_with_local_endpoints_is_healthy_to_the_byte(family: Family) {
    let world = World::new(3);
    let here = [family.backend(0), family.backend(1)];
    // Each address serves two ports, and counts once.
    let app = here.into_iter().fold(web(family).tcp(81, 9001), App::ready_here);
    let gateway = Gateway::start(&world, &[app.ready(family.backend(2))]);
    let answer = expect_status(&world, family, 200);
    assert_eq!(answer.body, body(2, true));
    assert_eq!(answer.header("Content-Type"), "application/json");
    assert_eq!(answer.header("X-Content-Type-Options"), "nosniff");
    assert_eq!(answer.header("X-Load-Balancing-Endpoint-Weight"), "2");
    assert_eq!(answer.header("Content-Length"), body(2, true).len().to_string());

    let base = format!("http://{}", at(family.gateway(), PORT));
    for (path, arguments) in
        [("/", &[][..]), ("/any/path?x=y", &["--request", "DELETE"]), ("/healthz", &["--data", "some"])]
    {
        let answer = curl(&world.client, &format!("{base}{path}"), arguments).unwrap();
        assert_eq!((answer.status, answer.body), (200, body(2, true)), "{path}");
    }
    let head = curl(&world.client, &base, &["--head"]).unwrap();
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    // The Service has one family. The port is closed for the other one.
    let other = Family::BOTH.into_iter().find(|other| *other != family).unwrap();
    let refused = world.client.run(|| tcp::connect(at(other.gateway(), PORT))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    gateway.apply(&[web(family).ready(family.backend(2))]);
    let answer = expect_status(&world, family, 503);
    assert_eq!(answer.body, body(0, true));
    assert_eq!(answer.header("X-Load-Balancing-Endpoint-Weight"), "0");
}

fn only_terminating_local_endpoints_fail_the_check_while_traffic_flows(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    assert_eq!(expect_status(&world, family, 200).body, body(1, true));
    gateway.apply(&[web(family).terminating_here(family.backend(0)).ready(family.backend(1))]);
    assert_eq!(expect_status(&world, family, 503).body, body(0, true));
    for _ in 0..10 {
        assert_eq!(world.client.run(|| tcp::ask(vip(family))).unwrap().name, "backend-0");
    }
}

fn the_port_closes_when_the_service_is_no_longer_local(family: Family) {
    let world = World::new(1);
    let gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    expect_status(&world, family, 200);
    // A load balancer that keeps its connection open, and one that has just connected.
    let mut kept = world.client.run(|| tcp::connect(at(family.gateway(), PORT))).unwrap();
    let mut silent = world.client.run(|| tcp::connect(at(family.gateway(), PORT))).unwrap();
    kept.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let mut text = vec![0; 4096];
    let read = kept.read(&mut text).unwrap();
    assert!(text.get(..read).unwrap().starts_with(b"HTTP/1.1 200 OK\r\n"));

    let anywhere = App::new("web", &[family.vip(0)]).tcp(80, 9000).ready_here(family.backend(0));
    gateway.apply(&[anywhere.health_check_node_port(PORT)]);
    expect_closed(&world, family);
    for connection in [&mut kept, &mut silent] {
        let ended = connection.read(&mut [0]);
        assert!(
            matches!(&ended, Ok(0)) || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
        );
    }
}

fn the_port_closes_when_the_service_is_no_load_balancer(family: Family) {
    let world = World::new(1);
    let app = web(family).ready_here(family.backend(0));
    let gateway = Gateway::start(&world, std::slice::from_ref(&app));
    expect_status(&world, family, 200);
    gateway.write(APPS, &file(std::slice::from_ref(&app)).replace("type: LoadBalancer", "type: ClusterIP"));
    expect_closed(&world, family);
    gateway.apply(&[app]);
    expect_status(&world, family, 200);
}

fn an_occupied_port_is_no_problem_and_is_taken_over(family: Family) {
    let world = World::new(1);
    let anywhere: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Any program can take the place of kube-proxy.
    let occupant = tcp::Server::who_am_i(&world.gateway, at(anywhere, PORT), "kube-proxy");
    let gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    let asked = world.client.run(|| tcp::ask(at(family.gateway(), PORT))).unwrap();
    assert_eq!(asked.name, "kube-proxy");
    assert_eq!(gateway.warnings(), "");
    drop(occupant);
    expect_status(&world, family, 200);
    gateway.wait_for_log("another process has this health check node port", 1..=1);
    assert_eq!(gateway.warnings(), "");
}

fn of_two_services_with_one_port_the_second_has_a_problem(family: Family) {
    let world = World::new(1);
    let xenon = App::new("xenon", &[family.vip(1)]).tcp(80, 9000).local_policy();
    let xenon = xenon.health_check_node_port(PORT).ready_here(family.backend(0));
    let gateway = Gateway::start(&world, &[xenon.clone(), web(family)]);
    assert_eq!(expect_status(&world, family, 503).body, body(0, true));
    let problems = gateway.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems.concat().contains("Service e2e/xenon") && problems.concat().contains("Service e2e/web"));
    assert!(problems.concat().contains("FailedToStartServiceHealthcheck"), "{problems:?}");
    gateway.apply(&[xenon]);
    expect_status(&world, family, 200);
    assert_eq!(gateway.problems(), Vec::<String>::new());
}

fn a_port_that_an_own_frontend_has_is_a_problem_until_that_is_gone(family: Family) {
    let world = World::new(1);
    let xenon = App::new("xenon", &[family.vip(1)]).tcp(PORT, 9000).ready_here(family.backend(0));
    let web = web(family).ready_here(family.backend(0));
    let gateway = Gateway::start(&world, &[xenon, web.clone()]);
    let problems = gateway.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    if steers() {
        assert!(
            problems.concat().contains("Service e2e/xenon"),
            "the server is not taken over: {problems:?}"
        );
        expect_status(&world, family, 200);
        return;
    }
    let rival = format!("own frontend {}/TCP (LoadBalancer) of Service e2e/xenon", at(family.vip(1), PORT));
    assert!(problems.concat().contains("Service e2e/web"), "{problems:?}");
    assert!(problems.concat().contains(&rival), "{problems:?}");
    assert!(!gateway.log().contains("another process has this health check node port"), "{}", gateway.log());
    gateway.apply(&[web]);
    expect_status(&world, family, 200);
    assert_eq!(gateway.problems(), Vec::<String>::new());
}

fn an_unwanted_node_fails_healthz_but_not_livez(family: Family) {
    let world = World::new(1);
    let settings = Settings { healthz: HEALTHZ, ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[web(family).ready_here(family.backend(0))], &settings);
    let healthy = expect_healthz(&world, family, 200, "at first");
    let keys: Vec<&String> = healthy.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["currentTime", "healthy", "lastUpdated", "nodeEligible", "status"]);
    assert_eq!(healthy.pointer("/status/IPv6/healthy"), Some(&Value::Bool(true)));
    assert_eq!(healthy.get("lastUpdated"), healthy.get("currentTime"));

    // The gateway's own Node is the first one.
    let taint = "spec:\n  taints: [{key: ToBeDeletedByClusterAutoscaler, value: now, effect: NoSchedule}]\n";
    let deleted = "name: gw\n  deletionTimestamp: \"2026-01-01T00:00:00Z\"\n";
    for (why, unwanted) in [
        ("tainted by the autoscaler", nodes().replacen("spec:\n", taint, 1)),
        ("being deleted", nodes().replacen("name: gw\n", deleted, 1)),
        ("not there", nodes().replacen("name: gw\n", "name: other\n", 1)),
    ] {
        gateway.write("nodes.yaml", &unwanted);
        let told = expect_healthz(&world, family, 503, why);
        assert_eq!(
            (told.get("nodeEligible"), told.get("healthy")),
            (Some(&false.into()), Some(&true.into()))
        );
        let (status, livez) = page(&world, family, "/livez");
        assert_eq!((status, livez.get("nodeEligible")), (200, None), "{why}");
        // The health of the Service depends only on its endpoints.
        assert_eq!(probe(&world, family).unwrap().status, 200, "{why}");
        gateway.write("nodes.yaml", &nodes());
        expect_healthz(&world, family, 200, "wanted again");
    }
    assert!(gateway.metric("sheave_healthz_requests_total", &["code=\"503\""]) > 2.5);
    assert!(gateway.metric("sheave_healthz_requests_total", &["code=\"200\""]) > 3.5);
    assert!((gateway.metric("sheave_livez_requests_total", &["code=\"200\""]) - 3.0).abs() < 0.5);
}

fn a_draining_gateway_sends_load_balancers_elsewhere(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let settings = Settings { healthz: HEALTHZ, lame_duck: "2s", ..Settings::default() };
    let app = web(family).ready_here(family.backend(0));
    let mut gateway = Gateway::start_with(&world, &[app], &settings);
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    assert_eq!(expect_status(&world, family, 200).body, body(1, true));
    gateway.terminate();
    assert_eq!(expect_status(&world, family, 503).body, body(1, false));
    expect_healthz(&world, family, 503, "about to drain");
    gateway.wait_for_status("draining");
    expect_healthz(&world, family, 503, "draining");
    // It stays live while it drains, however long that takes.
    let proven = || match page(&world, family, "/livez") {
        (200, livez) => livez.pointer("/status/IPv4/lastUpdated").cloned(),
        other => panic!("a restart would cut the connections: {other:?}"),
    };
    for _ in 0..2 {
        let before = proven();
        eventually("it is proven healthy again", || if proven() == before { Err("not yet") } else { Ok(()) });
    }
    talk.say("still there?").unwrap();
    drop(talk);
    assert_eq!(gateway.wait().code(), Some(0));
}

fn frontends_without_local_endpoints_are_counted(family: Family) {
    let world = World::new(1);
    let gateway = Gateway::start(&world, &[web(family).ready(family.backend(0))]);
    let expect = |external: f64| {
        eventually(&format!("{external} frontends drop"), || {
            let name = "sheave_frontends_without_local_endpoints";
            let present = gateway.metric(name, &["traffic_policy=\"external\""]);
            assert!(gateway.metric(name, &["traffic_policy=\"internal\""]).abs() < 0.5);
            if (present - external).abs() < 0.5 { Ok(()) } else { Err(format!("{present}")) }
        });
    };
    expect(1.0);
    gateway.apply(&[web(family).ready_here(family.backend(0))]);
    expect(0.0);
    // Where all clients are refused, none are dropped.
    gateway.apply(&[web(family)]);
    expect(0.0);
}
