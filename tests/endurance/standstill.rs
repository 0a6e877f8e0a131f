//! The process gets no processor for seconds, as on a machine that is overbooked, moved or debugged.

use std::time::Duration;

use crate::clients::{Clients, apps, new_connections, servers};
use crate::scale::by_length;
use crate::support::gateway::{Gateway, Settings};
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::world::{Family, World};

for_both_families!(a_gateway_that_stands_still_makes_clients_wait_and_nothing_else);

fn stand_still(gateway: &Gateway<'_>) {
    gateway.freeze();
    let_pass(Duration::from_secs(by_length(3, 5)));
    gateway.thaw();
}

fn a_gateway_that_stands_still_makes_clients_wait_and_nothing_else(family: Family) {
    let world = World::new(3);
    let _servers = servers(&world, family);
    let [web, sticky] = apps(&world, family);
    // Shorter than the standstill: whatever was under way is late when it ends.
    let checked = web.annotation("sheave.dev/health-check", "tcp interval=1s timeout=500ms");
    let settings = Settings { connect: "1s", ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[checked, sticky], &settings);
    let mut clients = Clients::open(&world, family);
    let load = new_connections(&world, family);
    load.wait_for(100);
    stand_still(&gateway);
    clients.expect_undisturbed();
    load.wait_for(100);
    assert_eq!(gateway.ask("/readyz").status, 200);
    assert_eq!(gateway.metric("sheave_endpoint_ejections_total", &[]), 0.0, "{}", gateway.log());
    assert_eq!(gateway.metric("sheave_endpoints_unhealthy", &[]), 0.0);
    assert_eq!(gateway.metric("sheave_tcp_connect_retries_total", &[]), 0.0);
    assert_eq!(gateway.metric("sheave_worker_restarts_total", &[]), 0.0);
    assert_eq!(gateway.warnings(), "");
    load.expect_no_failure();
}

#[test]
fn a_gateway_that_stands_still_before_it_hands_over_hands_over_then() {
    let (world, family) = (World::new(3), Family::V4);
    let _servers = servers(&world, family);
    let mut gateway = Gateway::start(&world, &apps(&world, family));
    let mut clients = Clients::open(&world, family);
    let load = new_connections(&world, family);
    load.wait_for(100);
    gateway.freeze();
    let mut successor = gateway.successor(&[]);
    stand_still(&gateway);
    eventually_within(patience(20.0), "the other process takes over", || {
        successor.expect_running();
        let log = successor.stderr();
        if log.contains("took over") { Ok(()) } else { Err(log) }
    });
    let mut former = gateway.adopt(successor);
    clients.expect_undisturbed();
    load.wait_for(100);
    load.expect_no_failure();
    drop(clients);
    assert!(former.wait().success(), "{}", former.stderr());
}
