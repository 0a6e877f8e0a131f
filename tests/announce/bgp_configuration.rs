//! The files of deploy/examples/bgp-frr on nodes of either family and of both, and with what can be added to them.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fabric::{Fabric, FabricShape, in_fabric, render, routed_address};
use crate::segment::{PORT, gateway_of};
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::tcp;
use crate::support::world::Family;

const V4: &[Family] = &[Family::V4];
const V6: &[Family] = &[Family::V6];

/// The router ID that a line of `bgp router-id` gives.
fn router_id(node: &str, ips: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    render(node, ips, folder.path(), "$(ROUTER_ID)").expect("it is rendered").trim_end().to_owned()
}

#[test]
fn nodes_of_each_kind_have_sessions_and_are_used_by_their_global_addresses() {
    for families in [V4, V6, &Family::BOTH] {
        let fabric = Fabric::running(FabricShape { families, ..FabricShape::default() });
        for &family in families {
            let hops: BTreeSet<IpAddr> = (1..=2).map(|number| in_fabric(family, 1, number)).collect();
            assert_eq!(fabric.next_hop_addresses(family, 1), hops, "{family} of {families:?}");
            fabric.answering(family, 1).expect("it is served");
            let neighbors = fabric.router_frr.show(&fabric.router, "show bgp neighbors");
            for number in 1..=2 {
                let ips: Vec<String> =
                    families.iter().map(|family| in_fabric(*family, 1, number).to_string()).collect();
                let id = router_id(&format!("gw-{number}"), &ips.join(","));
                assert!(neighbors.contains(&format!("remote router ID {id},")), "{id}: {neighbors}");
            }
        }
    }
}

#[test]
fn the_router_id_is_the_nodes_ipv4_address_or_follows_from_its_name() {
    assert_eq!(router_id("gw-1", "192.0.2.7"), "192.0.2.7");
    assert_eq!(router_id("gw-1", "2001:db8::7,192.0.2.7"), "192.0.2.7");
    // Nodes keep it from one version to the next.
    assert_eq!(router_id("gw-1", "2001:db8::7"), "20.90.35.0");
    let ids: BTreeSet<[u8; 4]> = (0..500)
        .map(|number| {
            let id = router_id(&format!("node-{number}.example.com"), "2001:db8::7");
            id.parse::<std::net::Ipv4Addr>().expect("an address").octets()
        })
        .collect();
    assert_eq!(ids.len(), 500);
    assert!(ids.iter().all(|id| (1..=223).contains(&id[0])), "{ids:?}");
}

#[test]
fn a_password_is_taken_as_it_is_and_one_that_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("tor-a"), "a&b\\c\"$(x)").expect("it is written");
    let config = "! $(comment)\n neighbor X password $(tor-a)\n";
    let rendered = render("gw-1", "192.0.2.7", folder.path(), config);
    assert_eq!(rendered.as_deref(), Ok("! $(comment)\n neighbor X password a&b\\c\"$(x)\n"));
    let missing = render("gw-1", "192.0.2.7", folder.path(), " neighbor X password $(tor-b)\n");
    assert_eq!(
        missing,
        Err("the configuration of FRR names $(tor-b), and no Secret has such a key\n".to_owned())
    );
}

#[test]
fn sessions_with_a_password_need_the_same_one_on_both_sides() {
    let mut fabric = Fabric::new(FabricShape { gateways: 2, families: V6, ..FabricShape::default() });
    fabric.router_frr.configure(
        &fabric.router,
        &["router bgp 64512", "neighbor GATEWAYS6 password open-sesame", "end", "clear bgp *"],
    );
    fs::write(fabric.folder().join("router"), "open-sesame").expect("it is written");
    for (number, password) in [(1, " neighbor ROUTERS6 password $(router)\n"), (2, "")] {
        fabric.kill_frr(number);
        fabric.start_frr_with(number, |config| {
            config.replace(
                " neighbor ROUTERS6 timers connect 1\n",
                &format!(" neighbor ROUTERS6 timers connect 1\n{password}"),
            )
        });
    }
    let established = |fabric: &Fabric| {
        let summary = fabric.router_frr.show(&fabric.router, "show bgp ipv6 unicast summary established");
        summary.lines().filter(|line| line.contains("fd06::1:")).count()
    };
    eventually_within(patience(60.0), "the one with the password has a session", || {
        if established(&fabric) == 1 {
            Ok(())
        } else {
            Err(fabric.router_frr.show(&fabric.router, "show bgp summary"))
        }
    });
    let_pass(Duration::from_secs(3));
    assert_eq!(established(&fabric), 1);
}

/// How many connections of 120 to the gateways that stay are lost when the first of three ends; `follow` has the router send it
/// nothing more.
fn lost_when_one_of_three_ends(fabric: &Fabric, follow: impl Fn(Duration)) -> usize {
    let to = SocketAddr::new(routed_address(Family::V4, 1), PORT);
    let open = || tcp::Conversation::open(to).expect("it is served");
    let mut all: Vec<tcp::Conversation> = fabric.client.run(|| (0..120).map(|_| open()).collect());
    let of_first = |talk: &tcp::Conversation| gateway_of(talk.with.peer.ip()) == 1;
    assert!(all.iter().any(of_first) && !all.iter().all(of_first));
    all.retain(|talk| !of_first(talk));
    follow(fabric.signal(1, Signal::SIGTERM));
    fabric.client.run(|| all.iter_mut().filter_map(|talk| talk.say("still there").err()).count())
}

#[test]
fn a_router_with_a_resilient_group_keeps_the_connections_of_the_gateways_that_stay() {
    let shape = FabricShape { gateways: 3, config: "timeouts: {drain: 20s}", ..FabricShape::default() };
    let fabric = Fabric::running(shape);
    let lost = lost_when_one_of_three_ends(&fabric, |_| fabric.wait_for_next_hops(Family::V4, 1, &[2, 3]));
    println!(
        "{lost} connections of other gateways lost when the first of three ended, as Linux shares connections by itself"
    );
    assert!(lost > 0, "then the documents are out of date");

    let fabric = Fabric::running(shape);
    let ip = |line: String| fabric.router.ip(&[line]);
    // Those of FRR count from 1.
    (1..=3).for_each(|id| ip(format!("nexthop add id 900{id} via 10.6.1.{id} dev br0")));
    let resilient = "type resilient buckets 128 idle_timer 120 unbalanced_timer 0";
    ip(format!("nexthop add id 9000 group 9001/9002/9003 {resilient}"));
    ip(format!("route add {}/32 nhid 9000", routed_address(Family::V4, 1)));
    let lost = lost_when_one_of_three_ends(&fabric, |ended| {
        fabric.router_frr.wait_for(ended, &["10.6.1.1", "rcvd UPDATE w/ attr", "graceful-shutdown"]);
        ip(format!("nexthop replace id 9000 group 9002/9003 {resilient}"));
    });
    assert_eq!(lost, 0);
}

/// The block on pools that the example has as comments.
fn with_attributes(config: &str) -> String {
    let mut active = false;
    let line = |line: &str| {
        active |= line.starts_with("! ip prefix-list EDGE");
        let text = if active { line.trim_start_matches("! ").trim_start_matches('!') } else { line };
        active &= text != "exit";
        format!("{}\n", text.replace("203.0.113.0/24", "198.51.100.0/24"))
    };
    config.lines().map(line).collect()
}

#[test]
fn a_gateway_that_ends_is_the_last_choice_whatever_a_pool_has_for_local_preference() {
    let shape = FabricShape { router_as: "64513", bgp: "drain: 20s", ..FabricShape::default() };
    let mut fabric = Fabric::new(shape);
    for number in [1, 2] {
        fabric.kill_frr(number);
        fabric.start_frr_with(number, with_attributes);
        fabric.start(number);
    }
    fabric.wait_for_next_hops(Family::V4, 1, &[1, 2]);
    let known =
        |fabric: &Fabric| fabric.router_frr.show(&fabric.router, "show bgp ipv4 unicast 198.51.100.1/32");
    let before = known(&fabric);
    assert_eq!(before.matches("localpref 200").count(), 2, "{before}");
    assert_eq!(before.matches("Community: 64513:100").count(), 2, "{before}");
    fabric.signal(1, Signal::SIGTERM);
    fabric.wait_for_next_hops(Family::V4, 1, &[2]);
    let after = known(&fabric);
    assert!(after.contains("localpref 0") && after.contains("localpref 200"), "{after}");
}
