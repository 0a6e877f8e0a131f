//! Test of a process that gets no processor for seconds, as on a machine that is overcommitted, migrated or
//! debugged.

use std::time::Duration;

use crate::clients::{Clients, apps, new_connections, servers};
use crate::support::gateway::{Gateway, Settings};
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::world::{Family, World};

for_both_families!(a_gateway_that_stands_still_makes_clients_wait_and_nothing_else);

const STANDSTILL: Duration = Duration::from_secs(5);

fn a_gateway_that_stands_still_makes_clients_wait_and_nothing_else(family: Family) {
    let world = World::new(3);
    let _servers = servers(&world, family);
    let [web, sticky] = apps(&world, family);
    // All timeouts are shorter than the standstill, so everything under way is late when it ends.
    let checked = web.annotation("sheave.dev/health-check", "tcp interval=1s timeout=500ms failures=1");
    let settings = Settings { connect: "1s", idle: "3s", udp_idle: "3s", ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[checked, sticky], &settings);
    let load = new_connections(&world, family);
    load.wait_for(100);
    let mut clients = Clients::open(&world, family);
    gateway.freeze();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| clients.expect_open_undisturbed());
        let_pass(STANDSTILL);
        gateway.thaw();
        waiting.join().expect("clients are served in the end");
    });
    clients.expect_undisturbed();
    load.wait_for(100);
    assert_eq!(gateway.ask("/readyz").status, 200);
    assert_eq!(gateway.metric("sheave_gateway_endpoint_ejections_total", &[]), 0.0, "{}", gateway.log());
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
    let_pass(STANDSTILL);
    gateway.thaw();
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
