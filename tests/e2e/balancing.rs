//! Tests of the endpoint that a TCP client gets: each ready one, no other, the same one while affinity lasts, and another
//! one if the first choice does not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::time::Duration;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::patience::{eventually, let_pass};
use crate::support::tcp::{self, Server};
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    every_ready_endpoint_is_reached_and_no_other,
    terminating_endpoints_serve_when_none_is_ready,
    a_client_with_affinity_stays_with_its_endpoint,
    a_client_has_one_endpoint_for_all_ports_of_a_service_that_wants_so,
    affinity_ends_after_its_time_out,
    affinity_to_an_endpoint_that_left_is_void,
    an_endpoint_that_refuses_is_replaced_before_the_client_notices,
    an_endpoint_that_swallows_connections_is_replaced_in_time,
    a_client_is_reset_when_no_endpoint_answers,
);

/// Connects from one client address, and returns the endpoint that answers.
fn ask_as(world: &World, family: Family, client: u16) -> String {
    world
        .client
        .run(|| tcp::ask_from(family.client(client), vip(family)))
        .expect("the request is served")
        .name
}

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000)
}

fn every_ready_endpoint_is_reached_and_no_other(family: Family) {
    let world = World::new(6);
    let servers = Server::on_every_backend(&world, family, 9000);
    let app = web(family).all_ready((0..4).map(|n| family.backend(n)));
    let app = app.unready(family.backend(4)).terminating(family.backend(5));
    let _gateway = Gateway::start(&world, &[app]);
    let mut served = BTreeMap::new();
    for round in 0..400 {
        *served.entry(ask_as(&world, family, round % CLIENTS)).or_insert(0) += 1;
    }
    let expected: Vec<String> = (0..4).map(|n| format!("backend-{n}")).collect();
    assert_eq!(served.keys().cloned().collect::<Vec<_>>(), expected);
    // 100 each are expected; a fair choice is below 50 once in ten million runs.
    assert!(served.values().all(|&count| count > 50), "{served:?}");
    for silent in servers.get(4..).unwrap() {
        assert_eq!(silent.accepted(), 0, "{} is not ready", silent.addr());
    }
}

fn terminating_endpoints_serve_when_none_is_ready(family: Family) {
    let world = World::new(2);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let app = web(family).unready(family.backend(0)).terminating(family.backend(1));
    let _gateway = Gateway::start(&world, &[app]);
    for _ in 0..10 {
        assert_eq!(ask_as(&world, family, 0), "backend-1");
    }
}

fn a_client_with_affinity_stays_with_its_endpoint(family: Family) {
    let world = World::new(4);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let app = web(family).all_ready((0..4).map(|n| family.backend(n))).affinity(3600);
    let _gateway = Gateway::start(&world, &[app]);
    let homes: Vec<String> = (0..CLIENTS).map(|client| ask_as(&world, family, client)).collect();
    // Enough connections that each worker has served each client.
    for _ in 0..20 {
        for (client, home) in (0..).zip(&homes) {
            assert_eq!(ask_as(&world, family, client), *home, "client {client}");
        }
    }
    let used: BTreeSet<&String> = homes.iter().collect();
    assert!(used.len() > 1, "{CLIENTS} clients share {used:?}");
}

fn a_client_has_one_endpoint_for_all_ports_of_a_service_that_wants_so(family: Family) {
    let world = World::new(4);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let _media = udp::Server::on_every_backend(&world, family, 9001);
    let phones = App::new("phones", &[family.vip(0)]).tcp(80, 9000).udp(5004, 9001);
    let phones = phones.annotation("sheave.dev/affinity-scope", "service").affinity(3600);
    let _gateway = Gateway::start(&world, &[phones.all_ready((0..4).map(|n| family.backend(n)))]);
    let mut reached = BTreeSet::new();
    for number in 0..CLIENTS {
        let media = udp::Client::new(&world.client, family.client(number), at(family.vip(0), 5004));
        let media = media.ask().unwrap().name;
        assert_eq!(ask_as(&world, family, number), media);
        reached.insert(media);
    }
    assert!(reached.len() > 1, "{reached:?}");
}

/// The first pick for a client is deterministic, so a record only shows if it differs from that: the first choice is
/// removed, the client is recorded elsewhere, and the first choice returns.
fn affinity_ends_after_its_time_out(family: Family) {
    const SECONDS: u32 = 2;
    let world = World::new(3);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let all = web(family).affinity(SECONDS).all_ready((0..3).map(|n| family.backend(n)));
    let gateway = Gateway::start(&world, std::slice::from_ref(&all));
    let first = ask_as(&world, family, 0);
    let others = (0..3).filter(|n| format!("backend-{n}") != first).map(|n| family.backend(n));
    gateway.apply(&[all.clone().without_endpoints().all_ready(others)]);
    let second = eventually("the client has moved", || {
        let name = ask_as(&world, family, 0);
        if name == first { Err("the endpoint that left") } else { Ok(name) }
    });
    gateway.apply(&[all]);
    // Each connection renews the record, so together they outlast its timeout.
    for _ in 0..10 {
        assert_eq!(ask_as(&world, family, 0), second, "the record holds");
        let_pass(Duration::from_secs(u64::from(SECONDS)) / 6);
    }
    let_pass(Duration::from_secs(u64::from(SECONDS)) + Duration::from_millis(500));
    assert_eq!(ask_as(&world, family, 0), first, "the record is gone");
}

fn affinity_to_an_endpoint_that_left_is_void(family: Family) {
    let world = World::new(3);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let all = web(family).affinity(3600).all_ready((0..3).map(|n| family.backend(n)));
    let gateway = Gateway::start(&world, std::slice::from_ref(&all));
    let first = ask_as(&world, family, 0);
    let home = (0..3).map(|n| family.backend(n)).find(|ip| first == name_of(family, *ip)).unwrap();
    let rest = (0..3).map(|n| family.backend(n)).filter(|ip| *ip != home);
    gateway.apply(&[all.without_endpoints().all_ready(rest).unready(home)]);
    let second = eventually("the client has moved", || {
        let name = ask_as(&world, family, 0);
        if name == first { Err("still at the endpoint that is not ready") } else { Ok(name) }
    });
    for _ in 0..10 {
        assert_eq!(ask_as(&world, family, 0), second);
    }
}

fn name_of(family: Family, ip: std::net::IpAddr) -> String {
    let index = (0..10).find(|&n| family.backend(n) == ip).expect("a backend's address");
    format!("backend-{index}")
}

fn an_endpoint_that_refuses_is_replaced_before_the_client_notices(family: Family) {
    let world = World::new(3);
    let _server = Server::who_am_i(world.backend(2), at(family.backend(2), 9000), "alive");
    let app = web(family).all_ready((0..3).map(|n| family.backend(n)));
    let _gateway = Gateway::start(&world, &[app]);
    for round in 0..60 {
        assert_eq!(ask_as(&world, family, round % CLIENTS), "alive", "request {round}");
    }
}

fn an_endpoint_that_swallows_connections_is_replaced_in_time(family: Family) {
    let world = World::new(1);
    let _server = Server::who_am_i(world.backend(0), at(family.backend(0), 9000), "alive");
    let app = web(family).ready(family.backend(0)).ready(family.black_hole());
    let settings = Settings { connect: "200ms", ..Settings::default() };
    let _gateway = Gateway::start_with(&world, &[app], &settings);
    for round in 0..20 {
        assert_eq!(ask_as(&world, family, round % CLIENTS), "alive", "request {round}");
    }
}

fn a_client_is_reset_when_no_endpoint_answers(family: Family) {
    let world = World::new(2);
    let app = web(family).all_ready([family.backend(0), family.backend(1)]);
    let _gateway = Gateway::start(&world, &[app]);
    for _ in 0..5 {
        let error = world.client.run(|| tcp::ask(vip(family))).expect_err("nobody serves");
        let reset = [ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused, ErrorKind::BrokenPipe];
        assert!(reset.contains(&error.kind()), "{error}");
    }
}
