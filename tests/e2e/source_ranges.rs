//! Tests of `loadBalancerSourceRanges` beyond the simple case: as many as users have, with and without the privilege to
//! load an eBPF filter, and ranges that change under open connections.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use serde_json::Value;

use crate::policies::{expect_dropped, expect_served};
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, vip};
use crate::support::patience::{eventually, patience};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    ten_thousand_ranges_admit_their_clients_and_are_silent_to_others,
    ten_thousand_ranges_admit_nobody_else_without_the_privilege_to_load_them,
    a_gateway_without_privileges_serves_listed_clients_only,
    ranges_that_change_leave_open_connections_alone,
    what_the_kernel_drops_is_counted,
);

/// Far more than a classic filter holds, for either family.
const RANGES: u16 = 10_000;

/// Without these capabilities no eBPF program can be loaded, on old and new kernels.
const UNPRIVILEGED: &[&str] = &["bpf", "sys_admin"];

/// Log message if no program can be loaded.
pub(crate) const REFUSED: &str = "no eBPF program can be loaded";

pub(crate) fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).ready(family.backend(0))
}

fn host(family: Family, ip: IpAddr) -> String {
    format!("{ip}/{}", family.host_prefix())
}

/// The listed clients, and hosts in separate networks to make up [`RANGES`]. The smallest gaps are those between the
/// clients, which a filter would close first to become shorter.
pub(crate) fn many_ranges(family: Family, listed: impl Iterator<Item = u16>) -> Vec<String> {
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

/// A handshake may succeed, since only the gateway itself can distinguish such clients. What matters is that no byte
/// returns.
pub(crate) fn expect_never_served(world: &World, family: Family, client: u16) {
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

/// Whether the gateway has the privileges for large lists. In a user namespace it never has, which is fine for local runs,
/// but not for CI.
fn loads_programs(gateway: &Gateway<'_>) -> bool {
    let loads = !gateway.log().contains(REFUSED);
    assert!(loads || std::env::var_os("CI").is_none(), "eBPF needs root outside of user namespaces");
    loads
}

/// Every other client is listed and served; `expect_refused` checks the rest.
fn serve_every_other_client(
    family: Family,
    settings: &Settings,
    ranges: &[String],
    expect_refused: impl Fn(&World, &Gateway<'_>, u16),
) {
    let world = World::new(1);
    let servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start_with(&world, &[web(family).source_ranges(ranges)], settings);
    for client in (0..CLIENTS).step_by(2) {
        expect_served(&world, family, client);
    }
    for client in (1..CLIENTS).step_by(2) {
        expect_refused(&world, &gateway, client);
    }
    let accepted: usize = servers.iter().map(tcp::Server::accepted).sum();
    assert_eq!(accepted, usize::from(CLIENTS / 2), "only listed clients reach an endpoint");
}

fn ten_thousand_ranges_admit_their_clients_and_are_silent_to_others(family: Family) {
    // CAP_BPF is enough.
    let settings = Settings { without: &["sys_admin", "perfmon", "net_admin"], ..Settings::default() };
    let ranges = many_ranges(family, (0..CLIENTS).step_by(2));
    serve_every_other_client(family, &settings, &ranges, |world, gateway, client| {
        if loads_programs(gateway) {
            expect_dropped(world, family, client);
        } else {
            expect_never_served(world, family, client);
        }
    });
}

fn ten_thousand_ranges_admit_nobody_else_without_the_privilege_to_load_them(family: Family) {
    let settings = Settings { without: UNPRIVILEGED, ..Settings::default() };
    let ranges = many_ranges(family, (0..CLIENTS).step_by(2));
    serve_every_other_client(family, &settings, &ranges, |world, gateway, client| {
        gateway.wait_for_log(REFUSED, 1..=1);
        expect_never_served(world, family, client);
    });
}

/// New kernels do not even let it filter TCP sockets.
fn a_gateway_without_privileges_serves_listed_clients_only(family: Family) {
    let settings = Settings { without: &["bpf", "sys_admin", "net_admin"], ..Settings::default() };
    let ranges: Vec<String> =
        (0..CLIENTS).step_by(2).map(|client| host(family, family.client(client))).collect();
    serve_every_other_client(family, &settings, &ranges, |world, _, client| {
        expect_never_served(world, family, client);
    });
}

fn ranges_that_change_leave_open_connections_alone(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family)]);
    let open = |client| {
        let from = family.client(client);
        world.client.run(|| Conversation::open_from(from, vip(family))).unwrap()
    };
    let mut talks: Vec<Conversation> = (0..CLIENTS).map(open).collect();
    let small = |clients: u16| (0..clients).map(|client| host(family, family.client(client))).collect();
    // From each kind of filter to each other.
    let changes: [(Vec<String>, bool); 6] = [
        (small(CLIENTS / 2), false),
        (many_ranges(family, std::iter::once(1)), false),
        (many_ranges(family, 1..CLIENTS), true),
        (small(1), false),
        (Vec::new(), true),
        (many_ranges(family, std::iter::empty()), false),
    ];
    for (ranges, last_client_is_listed) in changes {
        gateway.apply(&[web(family).source_ranges(&ranges)]);
        if last_client_is_listed {
            expect_served(&world, family, CLIENTS - 1);
        } else {
            expect_never_served(&world, family, CLIENTS - 1);
        }
        for talk in &mut talks {
            // Twice, with more than one segment, since acknowledgements have to pass as well.
            talk.say("still there?").unwrap();
            talk.say(&"x".repeat(20_000)).unwrap();
        }
    }
    // The ends of the connections are noticed as well.
    drop(talks);
    let label = format!("\"{}/TCP\"", vip(family));
    eventually("the connections have ended", || match gateway.metric("sheave_tcp_connections", &[&label]) {
        0.0 => Ok(()),
        open => Err(format!("{open} are open")),
    });
}

/// Drop counts that `ss` reads from the sockets at an address.
fn dropped_by_the_kernel(world: &World, at: SocketAddr) -> f64 {
    let sockets =
        world.gateway.run(|| Command::new("ss").args(["-HaOtunm", "src", &at.to_string()]).output());
    let sockets = String::from_utf8(sockets.expect("ss comes with iproute2").stdout).unwrap();
    let drops = sockets.split([',', ')']).filter_map(|field| field.strip_prefix('d')?.parse::<f64>().ok());
    drops.sum()
}

fn what_the_kernel_drops_is_counted(family: Family) {
    const ALL: &str = "sheave_gateway_kernel_dropped_packets_total";
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let listed = [host(family, family.client(0))];
    let gateway = Gateway::start(&world, &[web(family).source_ranges(&listed)]);
    expect_served(&world, family, 0);
    assert_eq!(gateway.metric(ALL, &[]), 0.0);
    expect_dropped(&world, family, 1);
    let all = gateway.metric(ALL, &[]);
    assert!(all >= 2.0, "a SYN and a datagram at least, and not {all}");
    let [tcp, udp] = ["TCP", "UDP"].map(|protocol| {
        let label = format!("\"{}/{protocol}\"", vip(family));
        gateway.metric("sheave_kernel_dropped_packets_total", &[&label])
    });
    // Steered frontends share sockets.
    if gateway.steering().get("sockets").and_then(Value::as_u64) == Some(2) {
        assert!(tcp >= 1.0 && udp >= 1.0, "{tcp} packets of TCP and {udp} of UDP");
        assert_eq!((tcp + udp, all), (dropped_by_the_kernel(&world, vip(family)), tcp + udp));
    } else {
        assert_eq!((tcp, udp), (0.0, 0.0));
    }
    // Neither other filters nor other sockets reset the counts.
    gateway.apply(&[web(family)]);
    expect_served(&world, family, 1);
    assert_eq!(gateway.metric(ALL, &[]), all);
    gateway.apply(&[]);
    eventually("the frontends are gone", || match gateway.metric("sheave_table_frontends", &[]) {
        0.0 => Ok(()),
        left => Err(format!("{left} are left")),
    });
    assert_eq!(gateway.metric(ALL, &[]), all);
}
