//! Tests with more UDP clients than a gateway can hold flows for.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at};
use crate::support::patience::eventually;
use crate::support::udp::{Client, Server};
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    a_flood_of_sources_takes_from_itself,
    a_flood_of_sources_that_are_answered_takes_from_itself,
    flows_share_local_ports_and_old_ones_give_way_where_there_are_too_few,
);

fn flooded(family: Family) -> SocketAddr {
    at(family.vip(0), 53)
}

fn bystander(family: Family) -> SocketAddr {
    at(family.vip(1), 53)
}

/// Number of datagrams, each from a different address and port.
const SOURCES: usize = 60_000;
/// Number of flooding clients. The last address of the client host belongs to other clients.
const FLOODING: u16 = CLIENTS - 1;

fn flood(world: &World, family: Family, to: SocketAddr) {
    world.client.run(|| {
        for number in 0..SOURCES {
            let ip = family.client((number % usize::from(FLOODING)) as u16);
            let from = SocketAddr::new(ip, 2000 + (number / usize::from(FLOODING)) as u16);
            send_once(from, to).unwrap_or_else(|error| panic!("from {from}: {error}"));
        }
    });
}

fn send_once(from: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&from.into())?;
    socket.send_to(b"?", &to.into()).map(drop)
}

/// Checks that new clients of both Services are served, beginning with the one that is not flooded. If other programs keep the
/// processors busy, the kernel's own queue overflows (net.core.netdev_max_backlog), and drops datagrams for any socket.
fn expect_new_clients_served(world: &World, family: Family) {
    for to in [bystander(family), flooded(family)] {
        let mut lost = 0;
        for number in 0..20 {
            let client = Client::new(&world.client, family.client(FLOODING), to);
            let Err(error) = client.ask() else { continue };
            lost += 1;
            assert!(lost <= 2, "new client {number} of {to}, the third: {error}");
            client.ask().unwrap_or_else(|error| panic!("new client {number} of {to}, again: {error}"));
        }
    }
}

fn gateway<'w>(world: &'w World, family: Family, endpoint: IpAddr) -> Gateway<'w> {
    let flooded = App::new("flooded", &[family.vip(0)]).udp(53, 9053).ready(endpoint);
    let bystander = App::new("bystander", &[family.vip(1)]).udp(53, 9053).ready(family.backend(0));
    Gateway::start(world, &[flooded, bystander])
}

fn a_flood_of_sources_takes_from_itself(family: Family) {
    let world = World::new(2);
    let _server = Server::who_am_i(world.backend(0), at(family.backend(0), 9053), "bystander");
    // It receives everything, and only answers late clients.
    let silent = Server::silent(world.backend(1), at(family.backend(1), 9053));
    let gateway = gateway(&world, family, family.backend(1));
    let old = Client::new(&world.client, family.client(FLOODING), bystander(family));
    // The first datagram may be lost while the kernels find their neighbours.
    eventually("an old flow is served", || old.ask_briefly());
    flood(&world, family, flooded(family));
    drop(silent);
    let _server = Server::who_am_i(world.backend(1), at(family.backend(1), 9053), "flooded");
    expect_new_clients_served(&world, family);
    old.ask().expect("an old flow goes on");
    assert_eq!(gateway.ask("/readyz").status, 200);
}

fn a_flood_of_sources_that_are_answered_takes_from_itself(family: Family) {
    let world = World::new(2);
    let _servers = Server::on_every_backend(&world, family, 9053);
    let gateway = gateway(&world, family, family.backend(1));
    let old = Client::new(&world.client, family.client(FLOODING), bystander(family));
    // The first datagram may be lost while the kernels find their neighbours.
    eventually("an old flow is served", || old.ask_briefly());
    flood(&world, family, flooded(family));
    // Immediately, since a client whose datagram the kernel drops waits longer than flows live.
    let flows = gateway.metric("sheave_udp_flows", &["e2e/flooded"]);
    assert!(flows > 1000.0, "{flows}");
    expect_new_clients_served(&world, family);
    old.ask().expect("an old flow goes on");
}

/// Number of the gateway's sixteen ports that are left: every fourth is reserved for others.
const PORTS: usize = 12;
/// Number of these ports that are kept free towards each endpoint. A new flow still gets one while all others are in use.
const SPARED: usize = 1;
const ENDPOINTS: u16 = 3;

fn flows_share_local_ports_and_old_ones_give_way_where_there_are_too_few(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = Server::on_every_backend(&world, family, 9053);
    world.gateway.sysctl("ipv4/ip_local_port_range", "40000 40015");
    let endpoints: Vec<IpAddr> = (0..ENDPOINTS).map(|index| family.backend(index)).collect();
    let app = |name: &str, vip| App::new(name, &[family.vip(vip)]).udp(53, 9053).all_ready(endpoints.clone());
    let settings = Settings { workers: 1, ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[app("flooded", 0), app("bystander", 1)], &settings);
    let client = |_| Client::new(&world.client, family.client(1), flooded(family));
    let all = (PORTS - SPARED) * usize::from(ENDPOINTS);
    let clients: Vec<Client> = (0..all).map(client).collect();
    for client in &clients {
        eventually("each client is served", || client.ask_briefly());
    }
    let flows = gateway.metric("sheave_udp_flows", &[]);
    assert!(flows > all as f64 * 0.8, "{flows} flows, about one for each port and endpoint");
    // The reserved ports are still available to programs of the machine.
    world.gateway.run(|| UdpSocket::bind(at(family.gateway(), 0)).map(drop)).expect("a socket with any port");
    // A port is not reused for a second, so some must retry.
    const NEW: usize = 6;
    for client in (0..NEW).map(client) {
        eventually("a new client is served in place of an old one", || client.ask_briefly());
    }
    let other = Client::new(&world.client, family.client(2), bystander(family));
    eventually("another Service with the same endpoints is served", || other.ask_briefly());
    let evicted = gateway.metric("sheave_udp_flows_evicted_total", &["e2e/flooded"]);
    let too_many = all + NEW + 1 - PORTS * usize::from(ENDPOINTS);
    assert!(evicted >= too_many as f64, "{evicted} evicted, of {flows} flows before the new ones");
    assert_eq!(gateway.metric("sheave_udp_flows_evicted_total", &["e2e/bystander"]), 0.0);
}
