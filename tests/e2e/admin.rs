//! Tests of metrics that count events, and of series that are removed with their frontend.

use std::time::Instant;

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, patience};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    metrics_count_connections_and_datagrams,
    series_leave_with_their_frontend,
    a_draining_gateway_is_not_ready_and_still_counts,
);

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).ready(family.backend(0))
}

fn expect_metric(gateway: &Gateway<'_>, name: &str, labels: &[&str], value: f64) {
    eventually(&format!("{name}{labels:?} is {value}"), || {
        let present = gateway.metric(name, labels);
        if (present - value).abs() < 0.5 { Ok(()) } else { Err(format!("{present}")) }
    });
}

fn metrics_count_connections_and_datagrams(family: Family) {
    let world = World::new(1);
    let _tcp = tcp::Server::on_every_backend(&world, family, 9000);
    let _udp = udp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family)]);
    let vip = at(family.vip(0), 80);
    for _ in 0..5 {
        world.client.run(|| tcp::ask(vip)).unwrap();
    }
    let client = udp::Client::new(&world.client, family.client(0), vip);
    for _ in 0..3 {
        client.ask().unwrap();
    }
    let (tcp, udp) = (format!("\"{vip}/TCP\""), format!("\"{vip}/UDP\""));
    expect_metric(&gateway, "sheave_tcp_connections_total", &[&tcp], 5.0);
    expect_metric(&gateway, "sheave_tcp_closed_total", &[&tcp, "reason=\"finished\""], 5.0);
    expect_metric(&gateway, "sheave_tcp_bytes_total", &[&tcp, "from=\"client\""], 5.0);
    expect_metric(&gateway, "sheave_tcp_connections", &[&tcp], 0.0);
    let talk = world.client.run(|| Conversation::open(vip)).unwrap();
    expect_metric(&gateway, "sheave_tcp_connections", &[&tcp], 1.0);
    drop(talk);
    expect_metric(&gateway, "sheave_tcp_connections", &[&tcp], 0.0);
    expect_metric(&gateway, "sheave_udp_flows_total", &[&udp], 1.0);
    expect_metric(&gateway, "sheave_udp_datagrams_total", &[&udp, "from=\"client\""], 3.0);
    expect_metric(&gateway, "sheave_udp_datagrams_total", &[&udp, "from=\"endpoint\""], 3.0);
    gateway.get("/livez");
}

fn series_leave_with_their_frontend(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family)]);
    world.client.run(|| tcp::ask(at(family.vip(0), 80))).unwrap();
    let series = || gateway.get("/metrics").lines().filter(|line| line.contains("e2e/web")).count();
    assert!(series() > 0);
    gateway.apply(&[]);
    eventually("its series are gone", || if series() == 0 { Ok(()) } else { Err(gateway.get("/metrics")) });
}

fn a_draining_gateway_is_not_ready_and_still_counts(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let mut gateway = Gateway::start(&world, &[web(family)]);
    let mut talk = world.client.run(|| Conversation::open(at(family.vip(0), 80))).unwrap();
    gateway.terminate();
    eventually("it is not ready", || match gateway.ask("/readyz").status {
        503 => Ok(()),
        other => Err(format!("{other}")),
    });
    for _ in 0..5 {
        let asked = Instant::now();
        expect_metric(&gateway, "sheave_tcp_connections", &[], 1.0);
        assert_eq!(gateway.ask("/readyz").status, 503);
        assert_eq!(gateway.ask("/livez").status, 200, "a restart would cut the connections");
        // Half of the time after which the admin server considers the gateway stuck.
        assert!(asked.elapsed() < patience(2.5), "the answers took {:?}", asked.elapsed());
        talk.say("still there?").unwrap();
    }
    drop(talk);
    assert_eq!(gateway.wait().code(), Some(0));
}
