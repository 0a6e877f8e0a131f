//! `loadBalancerSourceRanges` beyond the simple case: more of them than one kernel filter can tell apart, and ranges that
//! change under open connections.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, patience};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    more_ranges_than_a_kernel_filter_holds_admit_nobody_else,
    narrower_ranges_leave_open_connections_alone,
);

/// A classic BPF program has at most 4096 instructions; exact comparisons with so many hosts take more, in either family.
const RANGES: u16 = 700;

fn vip(family: Family) -> SocketAddr {
    at(family.vip(0), 80)
}

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).ready(family.backend(0))
}

fn host(family: Family, ip: IpAddr) -> String {
    format!("{ip}/{}", family.host_prefix())
}

/// The clients listed, and as many hosts in networks of their own as make [`RANGES`]. The smallest gaps are those between
/// the clients: the first that a filter would close to become shorter.
fn many_ranges(family: Family, listed: impl Iterator<Item = u16>) -> Vec<String> {
    let clients = listed.map(|client| family.client(client));
    let far = (0..=u16::MAX).map(|n| match family {
        Family::V4 => {
            let [high, low] = n.to_be_bytes();
            Ipv4Addr::new(198, 18 + high, low, 1).into()
        }
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x5a, n, 0, 0, 0, 1).into(),
    });
    clients.chain(far).take(usize::from(RANGES)).map(|ip| host(family, ip)).collect()
}

/// A handshake may come about: only the gateway itself can tell such clients apart. What counts is that no byte returns.
fn expect_never_served(world: &World, family: Family, client: u16) {
    let from = family.client(client);
    let answered = world.client.run(|| {
        let mut stream = tcp::connect_from(Some(from), vip(family), patience(0.7))?;
        stream.set_read_timeout(Some(patience(0.7)))?;
        stream.write_all(b"?")?;
        stream.read(&mut [0])
    });
    assert!(matches!(answered, Err(_) | Ok(0)), "client {client} is not listed and gets an answer");
    let datagram = udp::Client::new(&world.client, from, vip(family)).ask_briefly();
    assert!(datagram.is_err(), "client {client} is not listed and gets {datagram:?}");
}

fn more_ranges_than_a_kernel_filter_holds_admit_nobody_else(family: Family) {
    let world = World::new(1);
    let servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let ranges = many_ranges(family, (0..CLIENTS).step_by(2));
    let _gateway = Gateway::start(&world, &[web(family).source_ranges(&ranges)]);
    for client in (0..CLIENTS).step_by(2) {
        let from = family.client(client);
        world.client.run(|| tcp::ask_from(from, vip(family))).expect("the connection is served");
        udp::Client::new(&world.client, from, vip(family)).ask().expect("the datagram is answered");
    }
    for client in (1..CLIENTS).step_by(2) {
        expect_never_served(&world, family, client);
    }
    let accepted: usize = servers.iter().map(tcp::Server::accepted).sum();
    assert_eq!(accepted, usize::from(CLIENTS / 2), "only listed clients reach an endpoint");
}

fn narrower_ranges_leave_open_connections_alone(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family)]);
    let open = |client| {
        let from = family.client(client);
        world.client.run(|| Conversation::open_from(from, vip(family))).unwrap()
    };
    let mut talks: Vec<Conversation> = (0..CLIENTS).map(open).collect();
    let narrower = [
        (0..CLIENTS / 2).map(|client| host(family, family.client(client))).collect(),
        many_ranges(family, std::iter::once(1)),
        vec![host(family, family.black_hole())],
    ];
    for ranges in narrower {
        gateway.apply(&[web(family).source_ranges(&ranges)]);
        expect_never_served(&world, family, CLIENTS - 1);
        for talk in &mut talks {
            // Twice, with more than one segment: acknowledgements have to get through too.
            talk.say("still there?").unwrap();
            talk.say(&"x".repeat(20_000)).unwrap();
        }
    }
    // And their ends are heard.
    drop(talks);
    let label = format!("\"{}/TCP\"", vip(family));
    eventually("the connections have ended", || match gateway.metric("sheave_tcp_connections", &[&label]) {
        0.0 => Ok(()),
        open => Err(format!("{open} are open")),
    });
}
