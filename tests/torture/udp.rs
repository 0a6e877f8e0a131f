//! Torture of UDP.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;

use crate::datagrams::Exchanges;
use crate::road::{Road, Roads, Source};
use crate::run::{count, run, seed};
use crate::support::host::Host;
use crate::support::patience::{eventually_within, patience};
use crate::support::tcp;
use crate::support::world::{Family, World};

/// A port that nobody listens on.
const CLOSED: u16 = 9;
/// Number of scripts through the gateway with sockets, with steering, and by the kernel.
const SCRIPTS: usize = 500;

fn expect_nothing_wrong(world: &World, roads: &[Road], count: usize) {
    find_neighbours(world);
    if let Some(first) = run::<Exchanges>(world, roads, seed(), count, true).first {
        panic!("{first}\n{}", lost(world));
    }
}

/// Has all hosts know their neighbours. Datagrams that wait for an answer of ARP or NDP are overtaken by those that are sent when it is there:
/// `neigh_update` makes the entry usable before it sends the queue.
fn find_neighbours(world: &World) {
    for family in Family::BOTH {
        let neighbours = [(&world.client, family.gateway()), (&world.gateway, family.backend(0))];
        for (host, neighbour) in neighbours {
            let refused =
                host.run(|| tcp::connect(SocketAddr::new(neighbour, CLOSED)).expect_err("it is closed"));
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{neighbour}");
        }
    }
}

/// Datagrams that the kernel has dropped for lack of buffers, which is not the gateway's fault.
fn lost(world: &World) -> String {
    let hosts = [("client", &world.client), ("gateway", &world.gateway), ("server", world.backend(0))];
    let of_host = |(name, host): (&str, &Host)| {
        let counters =
            ["/proc/net/snmp", "/proc/net/snmp6"].map(|path| host.run(|| fs::read_to_string(path)));
        let counters = counters.map(Result::unwrap_or_default).join("");
        let udp = counters.lines().filter(|line| line.starts_with("Udp:") || line.starts_with("Udp6"));
        format!("{name}:\n{}", udp.collect::<Vec<_>>().join("\n"))
    };
    hosts.map(of_host).join("\n")
}

/// Test of the rules: the kernel itself violates none.
#[test]
fn a_direct_exchange_keeps_the_rules() {
    let world = World::new(1);
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        world.gateway.sysctl(name, "1");
    }
    expect_nothing_wrong(&world, &[Road::Direct], count(SCRIPTS) / 2);
}

#[test]
fn through_sockets_nothing_else_arrives_than_directly() {
    through_a_gateway("steering: never\n");
}

#[test]
fn through_steering_nothing_else_arrives_than_directly() {
    through_a_gateway("steering: always\n");
}

#[test]
fn through_the_kernel_nothing_else_arrives_than_directly() {
    let world = World::new(1);
    let _roads = Roads::by_kernel(&world);
    expect_nothing_wrong(&world, &Source::OF_KERNEL.map(Road::Gateway), count(SCRIPTS));
}

fn through_a_gateway(steering: &'static str) {
    let world = World::new(1);
    let roads = Roads::new(&world, steering);
    let before = roads.gateway.open_files();
    expect_nothing_wrong(&world, &Source::OF_UDP.map(Road::Gateway), count(SCRIPTS));
    eventually_within(patience(10.0), "nothing is left of the flows", || {
        let (flows, files) = (roads.gateway.metric("sheave_udp_flows", &[]), roads.gateway.open_files());
        if flows == 0.0 && files <= before { Ok(()) } else { Err(format!("{flows} flows, {files} files")) }
    });
}
