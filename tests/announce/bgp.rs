//! `announce: bgp`: FRR announces what gateways can serve, and a router with FRR shares connections among them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fabric::{Fabric, FabricShape, route, routed_address};
use crate::figures::{mark, percentile, spread};
use crate::planned::count_lost;
use crate::segment::PORT;
use crate::support::length::by_length;
use crate::support::load::Load;
use crate::support::patience::{eventually, eventually_within, let_pass, patience};
use crate::support::tcp;
use crate::support::world::Family;

/// Clients that connect anew all the time. None may be refused; those that are open while the router shares connections anew are
/// counted.
fn new_clients(fabric: &Fabric) -> (Load, Arc<AtomicU64>) {
    let lost = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&lost);
    let load = Load::start(&fabric.client, 4, move |thread| {
        let family = Family::BOTH[thread % 2];
        let to = SocketAddr::new(routed_address(family, 1), PORT);
        // A SYN may be sent again: while FRR puts one route in the place of another, the router has none for a moment.
        count_lost(tcp::connect(to).and_then(tcp::ask_on), &[io::ErrorKind::ConnectionReset], &counted)
    });
    (load, lost)
}

fn all_next_hops(fabric: &Fabric, gateways: &[u8]) {
    for family in Family::BOTH {
        fabric.wait_for_next_hops(family, 1, gateways);
    }
}

#[test]
fn connections_are_shared_among_all_gateways_and_nothing_else_is_announced() {
    let fabric = Fabric::running(FabricShape::default());
    for family in Family::BOTH {
        let mut answering = BTreeSet::new();
        eventually(&format!("{family}: both answer"), || {
            answering.extend(fabric.answering(family, 1));
            if answering == BTreeSet::from([1, 2]) { Ok(()) } else { Err(format!("{answering:?}")) }
        });
    }
    fabric.host(1).ip(&[
        "link add other type veth peer name peer".to_owned(),
        "link set peer up".to_owned(),
        "link set other up".to_owned(),
        "addr add 198.51.100.77/32 dev other".to_owned(),
        "addr add 2001:db8:100::77/128 dev other nodad".to_owned(),
        "route add 198.51.100.78/32 dev other".to_owned(),
        "route add blackhole 198.51.100.79/32".to_owned(),
    ]);
    // What comes after it has come.
    fabric.host(1).ip(&["addr add 198.51.100.80/32 dev sheave0".to_owned()]);
    fabric.router_frr.wait_for(Duration::ZERO, &["rcvd 198.51.100.80/32"]);
    assert_eq!(fabric.router_frr.logged(&["198.51.100.7"]).len(), 0);
    eventually("that one is the only other route", || {
        let routes = (fabric.route_count(Family::V4), fabric.route_count(Family::V6));
        if routes == (2, 1) { Ok(()) } else { Err(format!("{routes:?}")) }
    });
    let view = fabric.view(1, "/api/gateways").unwrap();
    assert_eq!((&view["shared"], &view["state"]), (&true.into(), &"eligible".into()));
    assert_eq!(view["addresses"][0]["interfaces"][0], "sheave0");
    assert_eq!(view["warnings"].as_array().map(Vec::len), Some(0), "{view}");
}

#[test]
fn a_process_that_is_killed_is_withdrawn_at_once() {
    let mut fabric = Fabric::running(FabricShape::default());
    let mut times = Vec::new();
    for _ in 0..by_length(3, 50) {
        let killed = fabric.signal(1, Signal::SIGKILL);
        for family in Family::BOTH {
            times.push(fabric.router_frr.wait_for(killed, &[&route(family, 1), "withdrawn"]));
        }
        all_next_hops(&fabric, &[2]);
        assert_eq!(fabric.answering(Family::V4, 1).unwrap(), 2);
        fabric.wait_for_end(1);
        fabric.start(1);
        all_next_hops(&fabric, &[1, 2]);
    }
    println!("from SIGKILL of a gateway to the withdrawal at the router: {}", spread(&times));
    mark("withdrawal after SIGKILL", Duration::from_secs(1), percentile(&times, 100));
}

#[test]
fn a_machine_that_is_gone_is_noticed_by_bfd() {
    let mut times = Vec::new();
    for _ in 0..by_length(1, 10) {
        let mut fabric = Fabric::running(FabricShape::default());
        let gone = fabric.lose_machine(1);
        times.push(fabric.router_frr.wait_for(gone, &["10.6.1.1", "BFD Down"]));
        all_next_hops(&fabric, &[2]);
        assert_eq!(fabric.answering(Family::V6, 1).unwrap(), 2);
    }
    println!("from the loss of a machine to the end of its session at the router: {}", spread(&times));
    mark("end of the session of a machine that is gone", Duration::from_secs(1), percentile(&times, 100));
}

#[test]
fn a_gateway_that_ends_has_routers_turn_away_first() {
    let shape = FabricShape {
        bgp: "drain: 1s",
        config: "timeouts: {lameDuck: 2s, drain: 5s}",
        ..FabricShape::default()
    };
    let mut fabric = Fabric::running(shape);
    let (load, lost) = new_clients(&fabric);
    load.wait_for(50);
    let rounds = by_length(2, 10);
    for round in 0..rounds {
        let number = 1 + round % 2;
        let ended = fabric.signal(number, Signal::SIGTERM);
        let from = format!("10.6.1.{number}");
        let shutdown =
            fabric.router_frr.wait_for(ended, &[&from, "rcvd UPDATE w/ attr", "graceful-shutdown"]);
        let withdrawn = fabric.router_frr.wait_for(ended, &[&from, &route(Family::V4, 1), "withdrawn"]);
        assert!(shutdown + Duration::from_millis(900) < withdrawn, "{shutdown:?}, {withdrawn:?}");
        all_next_hops(&fabric, &[3 - number]);
        fabric.wait_for_end(number);
        load.wait_for(50);
        fabric.start(number);
        all_next_hops(&fabric, &[1, 2]);
        load.wait_for(50);
    }
    let done = load.expect_no_failure();
    let lost = lost.load(Ordering::Relaxed);
    println!(
        "{done} new connections while gateways ended and came back, {rounds} times: none failed; {lost} were open when the router shared \
         them anew, and lost"
    );
}

#[test]
fn the_only_gateway_is_used_until_it_withdraws() {
    let shape = FabricShape { gateways: 1, bgp: "drain: 1s", ..FabricShape::default() };
    let mut fabric = Fabric::running(shape);
    let ended = fabric.signal(1, Signal::SIGTERM);
    fabric.router_frr.wait_for(ended, &["rcvd UPDATE w/ attr", "graceful-shutdown"]);
    assert_eq!(fabric.answering(Family::V4, 1).unwrap(), 1);
    all_next_hops(&fabric, &[]);
    fabric.wait_for_end(1);
}

#[test]
fn an_upgrade_withdraws_nothing() {
    let mut fabric = Fabric::running(FabricShape::default());
    let (load, lost) = new_clients(&fabric);
    let updates = |fabric: &Fabric| fabric.router_frr.logged(&["rcvd UPDATE"]).len();
    let mut before = 0;
    // FRR sends all routes again once it has read its route maps, after 5 s.
    while before != updates(&fabric) {
        before = updates(&fabric);
        let_pass(Duration::from_secs(6));
    }
    for number in [1, 2] {
        fabric.upgrade(number);
        load.wait_for(50);
    }
    // Twice as long as the kernel keeps what nobody renews.
    let_pass(Duration::from_secs(7));
    assert_eq!(updates(&fabric), before);
    all_next_hops(&fabric, &[1, 2]);
    let done = load.expect_no_failure();
    assert_eq!(lost.load(Ordering::Relaxed), 0);
    println!("{done} new connections during upgrades: none failed, none was lost; the router got no update");
}

#[test]
fn an_upgrade_of_a_gateway_that_is_about_to_end_announces_again() {
    let shape =
        FabricShape { bgp: "drain: 30s", config: "timeouts: {lameDuck: 60s}", ..FabricShape::default() };
    let mut fabric = Fabric::running(shape);
    let ended = fabric.signal(1, Signal::SIGTERM);
    all_next_hops(&fabric, &[2]);
    fabric.upgrade(1);
    all_next_hops(&fabric, &[1, 2]);
    let withdrawn = fabric.router_frr.logged(&["10.6.1.1", "withdrawn"]);
    assert!(withdrawn.iter().all(|at| *at < ended), "{withdrawn:?}");
}

#[test]
fn routes_return_with_frr() {
    let mut fabric = Fabric::running(FabricShape::default());
    fabric.kill_frr(1);
    all_next_hops(&fabric, &[2]);
    fabric.start_frr(1);
    all_next_hops(&fabric, &[1, 2]);
}

#[test]
fn an_interface_that_somebody_removes_is_made_again() {
    let fabric = Fabric::running(FabricShape::default());
    fabric.host(1).ip(&["link del sheave0".to_owned()]);
    all_next_hops(&fabric, &[2]);
    all_next_hops(&fabric, &[1, 2]);
}

#[test]
fn a_process_that_hangs_is_withdrawn_and_returns() {
    let fabric = Fabric::running(FabricShape::default());
    let stopped = fabric.signal(1, Signal::SIGSTOP);
    let time = fabric.router_frr.wait_for(stopped, &[&route(Family::V4, 1), "withdrawn"]);
    all_next_hops(&fabric, &[2]);
    fabric.signal(1, Signal::SIGCONT);
    all_next_hops(&fabric, &[1, 2]);
    println!("from SIGSTOP of a gateway to the withdrawal at the router: {time:?}");
}

#[test]
fn only_gateways_with_an_endpoint_announce_under_the_policy_local() {
    let mut fabric = Fabric::new(FabricShape { gateways: 3, ..FabricShape::default() });
    fabric.set_local(1, &[1, 3]);
    (1..=3).for_each(|number| fabric.start(number));
    all_next_hops(&fabric, &[1, 3]);
    fabric.set_local(1, &[2]);
    all_next_hops(&fabric, &[2]);
    let view = fabric.view(1, "/api/gateways").unwrap();
    assert_eq!(view["addresses"][0]["message"], "this gateway has no endpoint for it");
    fabric.set_local(1, &[]);
    all_next_hops(&fabric, &[]);
}

#[test]
fn a_thousand_addresses_are_announced_and_withdrawn_together() {
    let many = by_length(8, 32);
    let shape = FabricShape { many, bgp: "drain: 1s", ..FabricShape::default() };
    let mut fabric = Fabric::new(shape);
    fabric.start(1);
    let expected = 1 + usize::from(many) * 32;
    let wait_for = |fabric: &Fabric, expected: usize| {
        for family in Family::BOTH {
            eventually_within(patience(60.0), &format!("{expected} routes, {family}"), || {
                let count = fabric.route_count(family);
                if count == expected { Ok(()) } else { Err(count) }
            });
        }
    };
    wait_for(&fabric, expected);
    let before = fabric.router_frr.logged(&["withdrawn"]).len();
    // Each has been renewed by then, or has ended.
    let lifetime = 3 * (2 * expected).div_ceil(100) as u64;
    let_pass(Duration::from_secs(lifetime + 2));
    wait_for(&fabric, expected);
    assert_eq!(fabric.router_frr.logged(&["withdrawn"]).len(), before);
    let killed = fabric.signal(1, Signal::SIGKILL);
    wait_for(&fabric, 0);
    let withdrawn = fabric.router_frr.logged(&["withdrawn"]);
    let last = *withdrawn.last().expect("some were withdrawn") - killed;
    assert_eq!(withdrawn.len(), 2 * expected);
    println!(
        "{expected} addresses of either family, from SIGKILL to the last withdrawal at the router: {last:?}"
    );
    // Another way to go: each is withdrawn when its time has come.
    fabric.wait_for_end(1);
    fabric.start(1);
    wait_for(&fabric, expected);
    let ended = fabric.signal(1, Signal::SIGTERM);
    wait_for(&fabric, 0);
    let withdrawn = fabric.router_frr.logged(&["withdrawn"]);
    let after = withdrawn.iter().filter(|at| **at >= ended).map(|at| *at - ended);
    let (early, late): (Vec<Duration>, Vec<Duration>) =
        after.partition(|after| *after < Duration::from_millis(900));
    // A busy FRR 8.4 may take away the one route of many addresses before it has the other, and put it back at once.
    assert_eq!(late.len(), 2 * expected, "withdrawn before: {early:?}");
    println!("{} of them were withdrawn for a moment when the drain began", early.len());
}

#[test]
fn addresses_in_a_subnet_and_addresses_of_the_machine_are_told() {
    let fabric = Fabric::new(FabricShape { gateways: 1, services: 1, ..FabricShape::default() });
    let mut fabric = fabric;
    fabric.host(1).ip(&["addr add 198.51.100.1/32 dev lo".to_owned()]);
    fabric.start(1);
    fabric.wait_for_next_hops(Family::V6, 1, &[1]);
    eventually("the address of the machine is told", || {
        let routes = fabric.view(1, "/api/routes")?;
        let problems = routes["problems"].to_string();
        let told = problems.contains("AnnounceFailed")
            && problems.contains("198.51.100.1 is already an address of interface lo");
        if told { Ok(()) } else { Err(problems) }
    });
    fabric.host(1).ip(&[
        "addr del 198.51.100.1/32 dev lo".to_owned(),
        "addr add 198.51.100.200/24 dev eth0".to_owned(),
    ]);
    fabric.wait_for_next_hops(Family::V4, 1, &[1]);
    let warned = |expected: bool| {
        eventually_within(patience(20.0), &format!("a warning: {expected}"), || {
            let view = fabric.view(1, "/api/gateways")?;
            let warnings = view["warnings"].to_string();
            let is = warnings.contains("198.51.100.1 is announced by BGP and lies in the subnet")
                && warnings.contains("net.ipv4.conf.eth0.arp_ignore to 1");
            if is == expected { Ok(()) } else { Err(warnings) }
        });
    };
    warned(true);
    fabric.host(1).sysctl("ipv4/conf/eth0/arp_ignore", "1");
    warned(false);
}

#[test]
fn a_machine_without_tun_devices_is_told_at_the_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("config.yaml");
    fs::write(&config, "node: gw-1\nannounce: bgp\n").expect("a file is written");
    let script = format!(
        "mount -t tmpfs none /dev/net && exec {} run --manifests {} --config {}",
        sheave_test_support::program::path(),
        folder.path().display(),
        config.display()
    );
    let host = crate::support::host::Host::new("bare");
    let ended = host.finish("unshare", &["-m", "sh", "-c", script.as_str()]);
    assert_ne!(ended.code(), Some(0));
    assert!(ended.stderr.contains("announce: bgp needs /dev/net/tun"), "{}", ended.stderr);
}
