//! Tests of `explain` against a real gateway: the named endpoint is the one that answers, and obstacles that keep the
//! gateway from following its table are reported.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use crate::support::gateway::{Gateway, steers};
use crate::support::host::Host;
use crate::support::manifest::{self, App, at, vip};
use crate::support::patience::eventually;
use crate::support::process::Finished;
use crate::support::world::{CLIENTS, Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    the_endpoint_explained_is_the_one_that_affinity_gives,
    the_endpoint_explained_is_the_one_that_maglev_gives,
    only_the_endpoints_explained_as_used_are_reached,
    a_frontend_that_cannot_be_opened_is_explained,
    the_command_asks_a_gateway_or_reads_manifests,
);

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000)
}

/// The explanation for a client of UDP with its port.
pub(crate) fn explain_flow(gateway: &Gateway<'_>, client: &udp::Client) -> Value {
    let from = client.local_addr().to_string().replace('[', "%5B").replace(']', "%5D");
    explain(gateway, &format!("protocol=UDP&client={from}"))
}

/// Answer of the gateway about `e2e/web`.
fn explain(gateway: &Gateway<'_>, query: &str) -> Value {
    let answer = gateway.get(&format!("/api/explain?service=e2e/web&{query}"));
    serde_json::from_str(&answer).expect("/api/explain is JSON")
}

/// The named endpoint, by the name of its server.
pub(crate) fn endpoint(family: Family, explained: &Value) -> String {
    let addr = explained["endpoint"].as_str().unwrap_or_else(|| panic!("no endpoint: {explained}"));
    let addr: SocketAddr = addr.parse().expect("an endpoint is an address and port");
    let index = (0..10).find(|&n| at(family.backend(n), 9000) == addr).expect("a backend's address");
    format!("backend-{index}")
}

pub(crate) fn has_reason(explained: &Value, part: &str) -> bool {
    let reasons = explained["reasons"].as_array().expect("an answer has reasons");
    reasons.iter().any(|reason| reason.as_str().expect("reasons are text").contains(part))
}

fn the_endpoint_explained_is_the_one_that_affinity_gives(family: Family) {
    let world = World::new(4);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let all = web(family).affinity(3600).all_ready((0..4).map(|n| family.backend(n)));
    let gateway = Gateway::start(&world, std::slice::from_ref(&all));
    let explained = |client: IpAddr| explain(&gateway, &format!("protocol=TCP&client={client}"));
    let ask = |client: IpAddr| world.client.run(|| tcp::ask_from(client, vip(family))).unwrap().name;
    for client in (0..CLIENTS).map(|n| family.client(n)) {
        let first = explained(client);
        assert!(has_reason(&first, "session affinity has no record"), "{first}");
        assert_eq!(ask(client), endpoint(family, &first));
        let then = explained(client);
        assert!(has_reason(&then, "session affinity: the client's last connection"), "{then}");
        assert_eq!(ask(client), endpoint(family, &then));
    }
    // A record shows where it differs from the first choice, which is removed and returns.
    let client = family.client(0);
    let first = ask(client);
    let others = (0..4).filter(|n| format!("backend-{n}") != first).map(|n| family.backend(n));
    gateway.apply(&[all.clone().without_endpoints().all_ready(others)]);
    let second = endpoint(family, &explained(client));
    assert_ne!(second, first);
    eventually("the client has moved", || match ask(client) {
        name if name == second => Ok(()),
        name => Err(name),
    });
    gateway.apply(&[all]);
    assert_eq!(endpoint(family, &explained(client)), second);
    assert_eq!(ask(client), second);
}

fn the_endpoint_explained_is_the_one_that_maglev_gives(family: Family) {
    let world = World::new(3);
    let _servers = udp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family).all_ready((0..3).map(|n| family.backend(n)))]);
    for n in 0..24 {
        let client = udp::Client::new(&world.client, family.client(n % CLIENTS), vip(family));
        let explained = explain_flow(&gateway, &client);
        assert!(has_reason(&explained, "Maglev hashing of the client's address and port"), "{explained}");
        assert_eq!(client.ask().unwrap().name, endpoint(family, &explained));
    }
    let without_port = explain(&gateway, &format!("protocol=UDP&client={}", family.client(0)));
    assert_eq!(without_port["endpoint"], Value::Null);
}

fn only_the_endpoints_explained_as_used_are_reached(family: Family) {
    let world = World::new(4);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let app = web(family).local_policy().ready(family.backend(0)).unready(family.backend(1));
    let app = app.terminating(family.backend(2)).ready_here(family.backend(3));
    let gateway = Gateway::start(&world, &[app]);
    for (host, client) in [(&world.client, family.client(0)), (world.backend(0), family.backend(0))] {
        let explained = explain(&gateway, &format!("protocol=TCP&client={client}"));
        let endpoints = explained["endpoints"].as_array().unwrap();
        let used = endpoints.iter().filter(|endpoint| endpoint["used"] == true);
        let used: Vec<&str> = used.map(|endpoint| endpoint["address"].as_str().unwrap()).collect();
        let reached = |n: u16| used.contains(&at(family.backend(n), 9000).to_string().as_str());
        let inside = explained["origin"] == "internal";
        assert_eq!(inside, client == family.backend(0), "{explained}");
        assert_eq!([0, 1, 2, 3].map(reached), [inside, false, false, true], "{explained}");
        let served = |host: &Host| host.run(|| tcp::ask(vip(family))).unwrap().name;
        for _ in 0..20 {
            let name = served(host);
            assert!((0..4).any(|n| reached(n) && name == format!("backend-{n}")), "{name}: {explained}");
        }
    }
}

fn a_frontend_that_cannot_be_opened_is_explained(family: Family) {
    let world = World::new(1);
    let squatter = tcp::Server::who_am_i(&world.gateway, vip(family), "squatter");
    let gateway = Gateway::start(&world, &[web(family).ready(family.backend(0))]);
    let told = |protocol| {
        has_reason(
            &explain(&gateway, &format!("protocol={protocol}")),
            &format!("cannot listen on {}", vip(family)),
        )
    };
    if steers() {
        assert!(!told("TCP"), "no process is in the way");
        return;
    }
    assert!(told("TCP"));
    assert!(!told("UDP"), "the other protocol's frontend is open");
    let explained = explain(&gateway, "protocol=TCP");
    assert!(explained["closed"].is_string() && explained["endpoint"].is_null(), "{explained}");
    let shown = |arguments: &[&str]| -> String {
        world.gateway.finish(sheave_test_support::program::path(), arguments).expect_success()
    };
    let headline = shown(&["explain", "e2e/web", "--protocol", "TCP"]);
    assert!(
        headline.contains("is not served: the frontend is closed on this gateway: cannot listen"),
        "{headline}"
    );
    let routes = shown(&["routes"]);
    let row = routes.lines().find(|line| line.contains(&vip(family).to_string()) && line.contains("/TCP"));
    assert!(row.is_some_and(|row| row.contains("closed here")), "{routes}");
    drop(squatter);
    eventually("the problem is gone", || if told("TCP") { Err("still there") } else { Ok(()) });
}

fn the_command_asks_a_gateway_or_reads_manifests(family: Family) {
    let world = World::new(2);
    let apps = [web(family).all_ready([family.backend(0), family.backend(1)]).affinity(60)];
    let gateway = Gateway::start(&world, &apps);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("nodes.yaml"), manifest::nodes()).unwrap();
    fs::write(folder.path().join("apps.yaml"), manifest::file(&apps)).unwrap();
    let folder = folder.path().display().to_string();
    let sources = [
        vec!["--admin", "http://127.0.0.1:9841"],
        vec!["--manifests", folder.as_str(), "--node", manifest::GATEWAY_NODE],
    ];
    let run = |arguments: &[&str]| -> Finished {
        world.gateway.finish(sheave_test_support::program::path(), &[&["explain"], arguments].concat())
    };
    let client = family.client(0).to_string();
    let question = ["e2e/web", "--port", "tcp-80", "--client", &client];
    let explained = explain(&gateway, &format!("protocol=TCP&client={client}"));
    for source in &sources {
        let json = run(&[&question, source.as_slice(), &["-o", "json"]].concat()).expect_success();
        let json: Value = serde_json::from_str(&json).unwrap();
        for key in ["frontend", "client", "origin", "allowed", "action", "endpoint", "endpoints"] {
            assert_eq!(json[key], explained[key], "{key}");
        }
        let text = run(&[&question, source.as_slice()].concat()).expect_success();
        assert!(text.contains(&format!("goes to {}", json["endpoint"].as_str().unwrap())), "{text}");
        let unknown = run(&[&["e2e/wbe"], source.as_slice()].concat());
        assert_eq!(unknown.code(), Some(65));
        assert!(unknown.stdout.contains("did you mean e2e/web?"), "{}", unknown.stdout);
        assert_eq!(run(&[&["e2e/web", "--port", "81"], source.as_slice()].concat()).code(), Some(65));
    }
    assert_eq!(gateway.ask("/api/explain?service=e2e/wbe").status, 404);
    let refused = gateway.ask("/api/explain?service=e2e/web&client=me");
    assert_eq!((refused.status, refused.body.contains("client=\"me\"")), (400, true), "{}", refused.body);
    assert_eq!(run(&["e2e/web", "--admin", "http://127.0.0.1:1"]).code(), Some(69));
    assert_eq!(run(&["e2e/web", "--manifests", "/nowhere"]).code(), Some(65));
}
