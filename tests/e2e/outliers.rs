//! Tests of endpoints of ordinary Services that fail: new traffic avoids them after three failures, and they are used again
//! when they are back. A single client cannot cause that.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::patience::{eventually_within, patience};
use crate::support::world::{CLIENTS, Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    an_endpoint_that_refuses_is_avoided_after_three_failures_and_comes_back,
    a_silent_endpoint_makes_few_clients_wait,
    a_service_that_refuses_as_a_whole_is_still_tried,
    datagrams_avoid_an_endpoint_whose_port_is_closed,
    a_client_that_an_endpoint_refuses_takes_it_from_nobody,
    a_silent_endpoint_is_found_by_datagrams_before_a_client_meets_it,
    a_new_endpoint_gets_its_share_little_by_little,
);

/// Round robin, so that every endpoint is tried soon.
fn web(family: Family, endpoints: u16) -> App {
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000);
    let app = app.annotation("sheave.dev/balance", "round-robin");
    app.all_ready((0..endpoints).map(|number| family.backend(number)))
}

fn serve(world: &World, family: Family, number: u16) -> tcp::Server {
    let addr = at(family.backend(number), 9000);
    tcp::Server::who_am_i(world.backend(number.into()), addr, &format!("backend-{number}"))
}

/// Number of requests that each endpoint served. All must be served.
fn tally(world: &World, family: Family, requests: u16) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for number in 0..requests {
        let from = family.client(number % CLIENTS);
        let answer = world.client.run(|| tcp::ask_from(from, vip(family))).expect("another endpoint serves");
        *tally.entry(answer.name).or_default() += 1;
    }
    tally
}

fn expect_unhealthy(gateway: &Gateway<'_>, protocol: &str, expected: f64) -> Result<(), String> {
    let now = gateway.metric("sheave_endpoints_unhealthy", &[&format!("protocol=\"{protocol}\"")]);
    if now == expected { Ok(()) } else { Err(format!("{now} endpoints are unhealthy")) }
}

fn retries(gateway: &Gateway<'_>) -> f64 {
    gateway.metric("sheave_tcp_connect_retries_total", &[])
}

fn an_endpoint_that_refuses_is_avoided_after_three_failures_and_comes_back(family: Family) {
    let world = World::new(3);
    let _servers = [0, 1].map(|number| serve(&world, family, number));
    let gateway = Gateway::start(&world, &[web(family, 3)]);
    eventually_within(patience(20.0), "it is ejected", || {
        tally(&world, family, 1);
        expect_unhealthy(&gateway, "TCP", 1.0)
    });
    let before = retries(&gateway);
    assert!(before >= 3.0, "ejected after {before} failures");
    let served = tally(&world, family, 60);
    assert_eq!(served.values().sum::<usize>(), 60);
    assert_eq!(retries(&gateway), before, "nobody is sent there");
    let explained: Value =
        serde_json::from_str(&gateway.get("/api/explain?service=e2e/web&protocol=TCP")).unwrap();
    let refused = at(family.backend(2), 9000).to_string();
    let reasons = explained["reasons"].as_array().unwrap();
    let named = |reason: &&Value| reason.as_str().is_some_and(|it| it.contains(&refused));
    let reason = reasons.iter().find(named).and_then(Value::as_str).unwrap_or_default();
    assert!(reason.contains("unhealthy") && reason.contains("refused"), "{explained}");
    gateway.wait_for_log("endpoint is unhealthy", 1..);

    let _back = serve(&world, family, 2);
    eventually_within(patience(40.0), "it serves again", || {
        let tally = tally(&world, family, 12);
        if tally.contains_key("backend-2") { Ok(()) } else { Err(format!("{tally:?}")) }
    });
    assert_eq!(expect_unhealthy(&gateway, "TCP", 0.0), Ok(()));
}

fn a_silent_endpoint_makes_few_clients_wait(family: Family) {
    let world = World::new(2);
    let _servers = [0, 1].map(|number| serve(&world, family, number));
    let gateway =
        Gateway::start_with(&world, &[web(family, 2)], &Settings { connect: "1s", ..Settings::default() });
    tally(&world, family, 4);
    world.cut(1);
    eventually_within(patience(30.0), "it is ejected", || {
        tally(&world, family, 1);
        expect_unhealthy(&gateway, "TCP", 1.0)
    });
    let before = retries(&gateway);
    assert_eq!(tally(&world, family, 20).into_keys().collect::<Vec<_>>(), ["backend-0"]);
    assert_eq!(retries(&gateway), before, "nobody waits for it");
    world.mend(1);
    eventually_within(patience(40.0), "it serves again", || {
        let tally = tally(&world, family, 8);
        if tally.contains_key("backend-1") { Ok(()) } else { Err(format!("{tally:?}")) }
    });
}

fn a_service_that_refuses_as_a_whole_is_still_tried(family: Family) {
    let world = World::new(2);
    let gateway = Gateway::start(&world, &[web(family, 2).affinity(3600)]);
    eventually_within(patience(20.0), "both are ejected", || {
        for client in 0..CLIENTS {
            let asked = world.client.run(|| tcp::ask_from(family.client(client), vip(family)));
            asked.expect_err("nobody serves");
        }
        expect_unhealthy(&gateway, "TCP", 2.0)
    });
    let _one = serve(&world, family, 1);
    assert_eq!(tally(&world, family, 8).into_keys().collect::<Vec<_>>(), ["backend-1"], "at once");
}

fn datagrams_avoid_an_endpoint_whose_port_is_closed(family: Family) {
    let world = World::new(2);
    let _server = udp::Server::who_am_i(world.backend(0), at(family.backend(0), 9000), "backend-0");
    let gateway = Gateway::start(&world, &[web(family, 2)]);
    eventually_within(patience(40.0), "it is ejected", || {
        for client in 0..CLIENTS {
            udp::Client::new(&world.client, family.client(client), vip(family)).send(b"?").unwrap();
        }
        expect_unhealthy(&gateway, "UDP", 1.0)
    });
    for client in 0..CLIENTS {
        let answer = udp::Client::new(&world.client, family.client(client), vip(family)).ask().unwrap();
        assert_eq!(answer.name, "backend-0");
    }
    let _back = udp::Server::who_am_i(world.backend(1), at(family.backend(1), 9000), "backend-1");
    eventually_within(patience(40.0), "it serves again", || {
        let client = udp::Client::new(&world.client, family.client(0), vip(family));
        let answer = client.ask().map_err(|error| error.to_string())?;
        if answer.name == "backend-1" { Ok(()) } else { Err(answer.name) }
    });
}

/// Endpoints see client addresses here, and one of them refuses a client by its firewall.
fn a_client_that_an_endpoint_refuses_takes_it_from_nobody(family: Family) {
    let world = World::new(2);
    let refusing = serve(&world, family, 0);
    let _other = serve(&world, family, 1);
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).local_policy();
    let app = app.annotation("sheave.dev/balance", "round-robin");
    let app = app.ready_here(family.backend(0)).ready_here(family.backend(1));
    let gateway = Gateway::start(&world, &[app]);
    let hostile = family.client(0);
    let source = match family {
        Family::V4 => format!("ip saddr {hostile}"),
        Family::V6 => format!("ip6 saddr {hostile}"),
    };
    let rules = [
        "add table inet refuse".to_owned(),
        "add chain inet refuse input { type filter hook input priority 0 ; }".to_owned(),
        format!("add rule inet refuse input {source} tcp dport 9000 reject with tcp reset"),
    ];
    for rule in rules {
        world.backend(0).finish("nft", &rule.split(' ').collect::<Vec<_>>()).expect_success();
    }
    for _ in 0..20 {
        let answer = world.client.run(|| tcp::ask_from(hostile, vip(family))).unwrap();
        assert_eq!(answer.name, "backend-1");
    }
    let mut served = BTreeMap::<String, usize>::new();
    for _ in 0..20 {
        let answer = world.client.run(|| tcp::ask_from(family.client(1), vip(family))).unwrap();
        assert_eq!(answer.peer.ip(), family.client(1));
        *served.entry(answer.name).or_default() += 1;
    }
    assert_eq!(served.into_values().collect::<Vec<_>>(), [10, 10]);
    assert_eq!(gateway.metric("sheave_gateway_endpoint_ejections_total", &[]), 0.0);

    // An endpoint that refuses the gateway as well is ejected.
    drop(refusing);
    eventually_within(patience(30.0), "it is ejected", || {
        let answer = world.client.run(|| tcp::ask_from(family.client(1), vip(family)));
        answer.map_err(|error| error.to_string())?;
        expect_unhealthy(&gateway, "TCP", 1.0)
    });
}

/// There is no traffic meanwhile, and a lost datagram looks like one that needs no answer, so only a check can detect this.
fn a_silent_endpoint_is_found_by_datagrams_before_a_client_meets_it(family: Family) {
    let world = World::new(2);
    let name = |number: u16| format!("backend-{number}");
    let serve = |number: u16| {
        udp::Server::who_am_i(world.backend(number.into()), at(family.backend(number), 9000), &name(number))
    };
    let _serving = serve(0);
    let silent = udp::Server::silent(world.backend(1), at(family.backend(1), 9000));
    let check = "udp:who%3F answer=backend- interval=1s timeout=500ms failures=2 successes=1";
    let gateway = Gateway::start(&world, &[web(family, 2).annotation("sheave.dev/health-check", check)]);
    eventually_within(patience(30.0), "it is found", || expect_unhealthy(&gateway, "UDP", 1.0));
    for client in 0..CLIENTS {
        let answer = udp::Client::new(&world.client, family.client(client), vip(family)).ask().unwrap();
        assert_eq!(answer.name, "backend-0");
    }
    drop(silent);
    let _back = serve(1);
    eventually_within(patience(30.0), "it is found", || expect_unhealthy(&gateway, "UDP", 0.0));
}

fn a_new_endpoint_gets_its_share_little_by_little(family: Family) {
    let world = World::new(2);
    let _servers = [0, 1].map(|number| serve(&world, family, number));
    let app = |endpoints| web(family, endpoints).annotation("sheave.dev/slow-start", "30s");
    let gateway = Gateway::start(&world, &[app(1)]);
    tally(&world, family, 4);
    gateway.apply(&[app(2)]);
    let early = tally(&world, family, 44).remove("backend-1").unwrap_or_default();
    assert!((1..=15).contains(&early), "{early} of 44 requests");
    let starts_slowly =
        || gateway.get("/api/explain?service=e2e/web&protocol=TCP").contains("it starts slowly");
    assert!(starts_slowly());
    eventually_within(patience(60.0), "it has its share", || {
        if starts_slowly() { Err("not yet") } else { Ok(()) }
    });
    assert_eq!(tally(&world, family, 20).remove("backend-1"), Some(10));
}
