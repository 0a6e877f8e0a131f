//! Tests of what endpoints see of clients: their own addresses with `externalTrafficPolicy: Local`, and the traces of
//! that on the machine.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::proxy_protocol::{any_peer, ask_as};
use crate::support::gateway::{Gateway, Settings};
use crate::support::host::Host;
use crate::support::manifest::{App, at, vip};
use crate::support::patience::{eventually, io_deadline};
use crate::support::tcp::Answer;
use crate::support::transfer::{Plan, Start, exchange};
use crate::support::world::{Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    endpoints_see_the_clients_own_addresses_under_the_local_policy,
    endpoints_see_the_clients_own_ports_where_they_are_free,
    clients_inside_the_cluster_show_the_gateway,
    long_streams_and_datagrams_arrive_whole,
    clients_own_addresses_pass_the_kernels_check_of_senders,
    a_closed_port_of_the_endpoint_is_heard_of,
    what_passes_through_is_not_given_to_others_transparent_listeners,
    without_the_capability_endpoints_see_the_gateway,
    endpoints_on_the_gateways_host_are_reached,
    addresses_that_come_to_the_gateways_host_and_go_are_followed,
    no_proxy_can_claim_the_address_of_a_pod,
    traffic_flows_where_answers_to_the_client_do_not_come_back,
);

/// A Service with the Local policy on a TCP and a UDP port of the same number.
fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).local_policy()
}

/// Servers of both protocols on every backend.
fn serve(world: &World, family: Family) -> (Vec<tcp::Server>, Vec<udp::Server>) {
    let tcp = tcp::Server::on_every_backend(world, family, 9000);
    (tcp, udp::Server::on_every_backend(world, family, 9000))
}

/// The server's answers over TCP and over UDP.
fn ask(world: &World, family: Family, client: u16) -> [Answer; 2] {
    let from = family.client(client);
    let over_tcp = world.client.run(|| tcp::ask_from(from, vip(family))).expect("the connection is served");
    let over_udp = udp::Client::new(&world.client, from, vip(family)).ask();
    [over_tcp, over_udp.expect("the datagram is answered")]
}

fn endpoints_see_the_clients_own_addresses_under_the_local_policy(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    for client in 0..4 {
        for answer in ask(&world, family, client) {
            assert_eq!(answer.peer.ip(), family.client(client));
        }
    }
    assert_eq!(gateway.problems(), [""; 0]);
}

/// Two Services have the same endpoint, and the client uses both from one port.
fn endpoints_see_the_clients_own_ports_where_they_are_free(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let app = |name, vip| {
        let app = App::new(name, &[family.vip(vip)]).tcp(80, 9000).udp(80, 9000).local_policy();
        app.ready_here(family.backend(0))
    };
    let _gateway = Gateway::start(&world, &[app("one", 0), app("other", 1)]);
    let (from, vips) = (at(family.client(0), 40_000), [0, 1].map(|n| at(family.vip(n), 80)));
    let datagrams = world.client.run(|| UdpSocket::bind(from)).expect("a port of the client");
    datagrams.set_read_timeout(Some(io_deadline())).expect("a socket takes a time-out");
    let over_udp = |to| {
        let mut buffer = [0; 100];
        datagrams.send_to(b"?", to).expect("the gateway is the way");
        let size = datagrams.recv(&mut buffer).expect("an answer");
        let answer = buffer.get(..size).expect("what was received");
        Answer::parse(&String::from_utf8_lossy(answer)).expect("the server's own").peer
    };
    let over_tcp = |from: SocketAddr, to: SocketAddr| {
        let connect = || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            // A reset at the end leaves the port free.
            socket.set_linger(Some(Duration::ZERO))?;
            socket.bind(&from.into())?;
            socket.connect_timeout(&to.into(), io_deadline())?;
            tcp::Conversation::on(socket.into())
        };
        world.client.run(connect).expect("the connection is served")
    };
    let open = vips.map(|vip| over_tcp(from, vip));
    for seen in [open.each_ref().map(|it| it.with.peer), vips.map(over_udp)] {
        let [first, second] = seen;
        assert_eq!((first, second.ip()), (from, from.ip()));
        assert_ne!(second.port(), from.port(), "the endpoint must tell them apart");
    }
    // The client connects again from the same port, once the gateway has seen the end of the first connection.
    drop(open);
    eventually("the port is free towards the endpoint", || {
        let seen = over_tcp(from, vips[1]).with.peer;
        if seen == from { Ok(()) } else { Err(seen) }
    });
    // The port is in the range of servers on the gateway's host.
    let low = over_tcp(at(from.ip(), 1000), vips[0]).with.peer;
    assert_eq!(low.ip(), from.ip());
    assert_ne!(low.port(), 1000);
}

fn clients_inside_the_cluster_show_the_gateway(family: Family) {
    let world = World::new(2);
    let _servers = serve(&world, family);
    let app = web(family).ready(family.backend(0)).ready_here(family.backend(1));
    let _gateway = Gateway::start(&world, &[app]);
    let inside = world.backend(0);
    for _ in 0..20 {
        let answer = inside.run(|| tcp::ask(vip(family))).expect("the connection is served");
        let number = if answer.name == "backend-0" { 0 } else { 1 };
        assert_eq!(answer.peer.ip(), family.gateway_towards(number));
    }
    let answer = udp::Client::new(inside, family.backend(0), vip(family)).ask().expect("an answer");
    assert_ne!(answer.peer.ip(), family.backend(0));
}

fn long_streams_and_datagrams_arrive_whole(family: Family) {
    let world = World::new(1);
    let endpoint = at(family.backend(0), 9000);
    let (_tcp, accepted) = tcp::Server::handing_over(world.backend(0), endpoint);
    let _udp = udp::Server::echo(world.backend(0), endpoint);
    let _gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    let connect = || tcp::connect_from(Some(family.client(0)), vip(family), io_deadline());
    let client = world.client.run(connect).expect("the frontend is open");
    let server = accepted.recv_timeout(io_deadline()).expect("the connection is passed on");
    assert_eq!(server.peer_addr().expect("it is connected").ip(), family.client(0));
    let plan = |seed| Plan { seed, bytes: 20_000_000, start: Start::AtOnce };
    let sending = std::thread::spawn(move || exchange(&client, plan(1)));
    assert_eq!(exchange(&server, plan(2)).expect("the server's side"), plan(1).fingerprint());
    assert_eq!(sending.join().unwrap().expect("the client's side"), plan(2).fingerprint());
    // Longer than a packet, so that they are fragmented.
    let datagram = vec![7; 20_000];
    let client = udp::Client::new(&world.client, family.client(0), vip(family));
    assert_eq!(client.exchange(&datagram).expect("an answer"), datagram);
}

fn clients_own_addresses_pass_the_kernels_check_of_senders(family: Family) {
    let world = World::new(1);
    for setting in ["rp_filter", "src_valid_mark"] {
        for interface in ["all", "backend-0"] {
            world.gateway.sysctl(&format!("ipv4/conf/{interface}/{setting}"), "1");
        }
    }
    let _servers = serve(&world, family);
    let _gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    for answer in ask(&world, family, 0) {
        assert_eq!(answer.peer.ip(), family.client(0));
    }
}

/// Like a Pod with `hostNetwork: true`: its answers leave from the gateway's host itself.
fn endpoints_on_the_gateways_host_are_reached(family: Family) {
    let world = World::new(1);
    let endpoint = at(family.gateway_towards(0), 9000);
    let _tcp = tcp::Server::who_am_i(&world.gateway, endpoint, "gateway");
    let _udp = udp::Server::who_am_i(&world.gateway, endpoint, "gateway");
    let gateway = Gateway::start(&world, &[web(family).ready_here(endpoint.ip())]);
    for answer in ask(&world, family, 0) {
        assert_eq!(answer.peer.ip(), endpoint.ip());
    }
    for counter in ["sheave_tcp_source_lost_total", "sheave_udp_source_lost_total"] {
        assert_eq!(gateway.metric(counter, &[]), 1.0, "{counter}");
    }
}

/// NetworkPolicies and Pods trust source addresses, and a tenant chooses the proxy and the endpoint.
fn no_proxy_can_claim_the_address_of_a_pod(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let peer = format!("{}/{}", family.client(0), family.host_prefix());
    let app = web(family)
        .annotation("sheave.dev/accept-proxy", &peer)
        .annotation("sheave.dev/client-source", "transparent")
        .ready_here(family.backend(0));
    let gateway = Gateway::start_with(&world, &[app], &any_peer());
    let seen = |client| ask_as(&world, family, client).expect("an answer").peer.ip();
    assert_eq!(seen(family.client(98)), family.client(98));
    assert_eq!(seen(family.backend(9)), family.gateway_towards(0));
    assert_eq!(gateway.metric("sheave_tcp_source_lost_total", &[]), 1.0);
}

/// A trusted proxy may name any client, even one whose answers would stay on the gateway's host.
fn addresses_that_come_to_the_gateways_host_and_go_are_followed(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let peer = format!("{}/{}", family.client(0), family.host_prefix());
    let app = web(family).annotation("sheave.dev/accept-proxy", &peer).ready_here(family.backend(0));
    let _gateway = Gateway::start_with(&world, &[app], &any_peer());
    let seen = |client| ask_as(&world, family, client).expect("an answer").peer.ip();
    let expect = |client, expected| {
        eventually(&format!("{expected} is seen of {client}"), || match seen(client) {
            ip if ip == expected => Ok(()),
            ip => Err(ip),
        });
    };
    let (nobody, gateway) = (family.client(99), family.gateway_towards(0));
    let cidr = format!("{nobody}/{}", family.host_prefix());
    assert_eq!(seen(nobody), nobody);
    for object in [format!("addr {{}} {cidr} dev client"), format!("route {{}} local {cidr} dev lo")] {
        world.gateway.ip(&[object.replace("{}", "add")]);
        expect(nobody, gateway);
        world.gateway.ip(&[object.replace("{}", "del")]);
        expect(nobody, nobody);
    }
    // The kernel sends no notification when these routes disappear.
    let link = ["link add gone type veth peer name gone-too", "link set gone up"].map(str::to_owned);
    world.gateway.ip(&[&link[..], &[format!("route add local {cidr} dev gone")]].concat());
    expect(nobody, gateway);
    world.gateway.ip(&["link del gone".to_owned()]);
    expect(nobody, nobody);
}

/// For example, an endpoint whose route to the client does not lead through the gateway.
fn traffic_flows_where_answers_to_the_client_do_not_come_back(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let lost = family.client(0);
    world.backend(0).ip(&[format!("route add blackhole {lost}/{}", family.host_prefix())]);
    let gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    let seen = |client| world.client.run(|| tcp::ask_from(client, vip(family))).expect("an answer").peer.ip();
    assert_eq!(seen(lost), family.gateway_towards(0));
    assert_eq!(seen(family.client(1)), family.client(1));
    assert_eq!(gateway.metric("sheave_tcp_source_lost_total", &[]), 1.0);
}

/// A reset from the endpoint's host over TCP, and ICMP over UDP: both are addressed to the client.
fn a_closed_port_of_the_endpoint_is_heard_of(family: Family) {
    let world = World::new(1);
    let gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    let error = world.client.run(|| tcp::ask(vip(family))).expect_err("nobody serves");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    let client = udp::Client::new(&world.client, family.client(0), vip(family));
    client.send(b"?").expect("the gateway takes it");
    eventually("the gateway hears of it", || match gateway.metric("sheave_udp_endpoint_errors_total", &[]) {
        0.0 => Err(gateway.get("/metrics")),
        _ => Ok(()),
    });
}

fn what_passes_through_is_not_given_to_others_transparent_listeners(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let _gateway = Gateway::start(&world, &[web(family).ready_here(family.backend(0))]);
    ask(&world, family, 0);
    let listener = world.gateway.run(|| transparent_on_all_addresses(family, 7000));
    let client =
        world.client.run(|| UdpSocket::bind(at(family.client(0), 0))).expect("an address of the client");
    // They arrive in this order, if both arrive.
    client.send_to(b"to somebody else", at(family.black_hole(), 7000)).expect("the gateway is the way");
    client.send_to(b"to the gateway", at(family.gateway(), 7000)).expect("the gateway is the way");
    let mut buffer = [0; 64];
    let size = listener.recv(&mut buffer).expect("the gateway's own datagram");
    assert_eq!(buffer.get(..size), Some(b"to the gateway".as_slice()));
}

fn transparent_on_all_addresses(family: Family, port: u16) -> UdpSocket {
    let any: SocketAddr = match family {
        Family::V4 => ([0; 4], port).into(),
        Family::V6 => ([0_u16; 8], port).into(),
    };
    let socket = Socket::new(Domain::for_address(any), Type::DGRAM, None).expect("a socket");
    // The flag of the socket is the same for both families (`do_ip_setsockopt` in net/ipv4/ip_sockglue.c).
    socket.set_ip_transparent_v4(true).expect("root may");
    socket.bind(&any.into()).expect("the port is free");
    socket.set_read_timeout(Some(io_deadline())).expect("a socket takes a time-out");
    socket.into()
}

fn without_the_capability_endpoints_see_the_gateway(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let app = web(family).ready_here(family.backend(0));
    let settings = Settings { without: &["net_admin"], ..Settings::default() };
    let gateway = Gateway::start_with(&world, std::slice::from_ref(&app), &settings);
    for answer in ask(&world, family, 0) {
        assert_eq!(answer.peer.ip(), family.gateway_towards(0));
    }
    let problems = gateway.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problem = problems.concat();
    for part in ["Service e2e/web", "ClientAddressLost", "CAP_NET_ADMIN", "the gateway's address"] {
        assert!(problem.contains(part), "{problem}");
    }
    assert_eq!(traces(&world.gateway), [""; 0]);
}

/// Traces of the return path on a host, as seen by other programs: lines of `nft` and `ip` that belong to it.
fn traces(host: &Host) -> Vec<String> {
    let commands: [(&str, &[&str]); 5] = [
        ("nft", &["list", "tables"]),
        ("ip", &["-4", "rule"]),
        ("ip", &["-6", "rule"]),
        ("ip", &["-4", "route", "show", "table", "all"]),
        ("ip", &["-6", "route", "show", "table", "all"]),
    ];
    let lines = commands.iter().flat_map(|(program, arguments)| {
        let output = host.finish(program, arguments).expect_success();
        output.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    lines.filter(|line| ["sheave", "0x1000", "7432"].iter().any(|mark| line.contains(mark))).collect()
}

#[test]
fn an_orderly_end_leaves_nothing_behind() {
    let world = World::new(1);
    let app = web(Family::V4).ready_here(Family::V4.backend(0));
    let mut gateway = Gateway::start(&world, &[app]);
    // One table, and for each family two rules and a route.
    let there = traces(&world.gateway);
    assert_eq!(there.len(), 7, "{there:#?}");
    gateway.terminate();
    assert!(gateway.wait().success());
    assert_eq!(traces(&world.gateway), [""; 0]);
}

#[test]
fn routing_rules_that_others_remove_come_back() {
    let world = World::new(1);
    let app = web(Family::V4).ready_here(Family::V4.backend(0));
    let _gateway = Gateway::start(&world, &[app]);
    let there = traces(&world.gateway);
    world.gateway.ip(&["rule del priority 61".to_owned(), "route flush table 7432".to_owned()]);
    assert_ne!(traces(&world.gateway), there);
    eventually("the way back is there again", || {
        let now = traces(&world.gateway);
        if now == there { Ok(()) } else { Err(format!("{now:#?}")) }
    });
}

#[test]
fn a_killed_gateway_leaves_no_table() {
    let world = World::new(1);
    let app = web(Family::V4).ready_here(Family::V4.backend(0));
    let mut gateway = Gateway::start(&world, &[app]);
    assert!(traces(&world.gateway).iter().any(|line| line.contains("inet sheave-")));
    gateway.kill();
    gateway.wait();
    let left = traces(&world.gateway);
    assert!(!left.iter().any(|line| line.contains("inet sheave-")), "{left:#?}");
}

#[test]
fn nothing_is_left_on_the_machine_while_nobody_asks_for_it() {
    let world = World::new(1);
    let app =
        |name: &str| App::new(name, &[Family::V4.vip(0)]).tcp(80, 9000).ready_here(Family::V4.backend(0));
    let gateway = Gateway::start(&world, &[app("web")]);
    assert_eq!(traces(&world.gateway), [""; 0]);
    gateway.apply(&[app("web").local_policy()]);
    eventually("the way back is there", || {
        let traces = traces(&world.gateway);
        if traces.len() == 7 { Ok(()) } else { Err(format!("{traces:#?}")) }
    });
}
