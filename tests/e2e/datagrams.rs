//! Tests of UDP: which endpoint a flow has and keeps, datagrams of every size, and the source address of answers.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::support::gateway::{APPS, Gateway, Settings};
use crate::support::manifest::{App, at, file};
use crate::support::patience::{eventually, eventually_within, io_deadline, let_pass, patience};
use crate::support::tcp::Answer;
use crate::support::udp::{Client, LARGEST, Server};
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    datagrams_of_every_size_arrive_intact_both_ways,
    every_ready_endpoint_gets_flows_and_no_other,
    a_flow_keeps_its_endpoint_and_its_port,
    a_flow_stays_while_its_endpoint_terminates_and_serves,
    a_flow_moves_when_its_endpoint_is_gone,
    a_client_with_a_fixed_port_moves_with_its_next_datagram,
    a_flow_moves_when_its_endpoints_port_changes,
    a_flow_ends_with_the_last_serving_endpoint,
    a_flow_is_untouched_by_changes_of_other_services,
    a_flow_is_untouched_by_what_does_not_concern_its_endpoint,
    answers_come_from_the_address_that_was_asked,
    a_client_with_affinity_stays_with_its_endpoint,
    an_idle_flow_ends_and_a_busy_one_does_not,
    a_flow_recovers_when_its_endpoint_was_away,
    an_endpoint_that_leads_back_by_nat_gets_a_few_flows_and_no_more,
);

fn vip(family: Family) -> SocketAddr {
    at(family.vip(0), 53)
}

fn dns(family: Family) -> App {
    App::new("dns", &[family.vip(0)]).udp(53, 5300)
}

fn client(world: &World, family: Family) -> Client {
    Client::new(&world.client, family.client(0), vip(family))
}

fn moved(client: &Client, from: &Answer) -> Answer {
    eventually("the flow has moved", || match client.ask_briefly() {
        Ok(answer) if answer.name != from.name => Ok(answer),
        other => Err(format!("{other:?}")),
    })
}

fn datagrams_of_every_size_arrive_intact_both_ways(family: Family) {
    let world = World::new(1);
    let _server = Server::echo(world.backend(0), at(family.backend(0), 5300));
    let _gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0))]);
    let client = client(&world, family);
    let mut random = fastrand::Rng::with_seed(53);
    for size in [0, 1, 0, 512, 1472, 1473, 9000, 32_768, 65_000, LARGEST, 0, LARGEST] {
        let mut datagram = vec![0; size];
        random.fill(&mut datagram);
        let echo = client.exchange(&datagram).unwrap_or_else(|error| panic!("{size} bytes: {error}"));
        assert!(echo == datagram, "{size} bytes came back as {}", echo.len());
    }
    // A flow may also begin with an empty datagram.
    let fresh = Client::new(&world.client, family.client(1), vip(family));
    assert_eq!(fresh.exchange(b"").unwrap(), b"");
}

fn every_ready_endpoint_gets_flows_and_no_other(family: Family) {
    let world = World::new(5);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let app = dns(family).all_ready((0..3).map(|n| family.backend(n)));
    let app = app.unready(family.backend(3)).terminating(family.backend(4));
    let _gateway = Gateway::start(&world, &[app]);
    let ask = |n| Client::new(&world.client, family.client(n % CLIENTS), vip(family)).ask().unwrap().name;
    let served: BTreeSet<String> = (0..100).map(ask).collect();
    assert_eq!(served, (0..3).map(|n| format!("backend-{n}")).collect());
}

fn a_flow_keeps_its_endpoint_and_its_port(family: Family) {
    let world = World::new(3);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let _gateway = Gateway::start(&world, &[dns(family).all_ready((0..3).map(|n| family.backend(n)))]);
    let clients: Vec<Client> = (0..20).map(|_| client(&world, family)).collect();
    let homes: Vec<Answer> = clients.iter().map(|client| client.ask().unwrap()).collect();
    let ports: BTreeSet<SocketAddr> = homes.iter().map(|home| home.peer).collect();
    assert_eq!(ports.len(), clients.len(), "flows are told apart at the endpoint");
    for _ in 0..10 {
        for (client, home) in clients.iter().zip(&homes) {
            assert_eq!(client.ask().unwrap(), *home);
        }
    }
}

fn a_flow_stays_while_its_endpoint_terminates_and_serves(family: Family) {
    let world = World::new(2);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0))]);
    let old = client(&world, family);
    let home = old.ask().unwrap();
    gateway.apply(&[dns(family).terminating(family.backend(0)).ready(family.backend(1))]);
    eventually("new flows go to the ready endpoint", || match client(&world, family).ask() {
        Ok(answer) if answer.name == "backend-1" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(old.ask().unwrap(), home);
}

fn a_flow_moves_when_its_endpoint_is_gone(family: Family) {
    let world = World::new(2);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0))]);
    let client = client(&world, family);
    let home = client.ask().unwrap();
    gateway.apply(&[dns(family).ready(family.backend(1))]);
    assert_eq!(moved(&client, &home).name, "backend-1");
    // An endpoint that does not serve counts as removed, and the flow moves back at once.
    let home = client.ask().unwrap();
    gateway.apply(&[dns(family).ready(family.backend(0)).unready(family.backend(1))]);
    assert_eq!(moved(&client, &home).name, "backend-0");
}

/// Same as in Kubernetes' own tests (test/e2e/network/conntrack.go): each datagram is sent by a new socket with the same
/// port, which is one flow to the gateway.
fn a_client_with_a_fixed_port_moves_with_its_next_datagram(family: Family) {
    let world = World::new(2);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0))]);
    let client = || Client::bound(&world.client, at(family.client(0), 54_321), vip(family));
    assert_eq!(client().ask().unwrap().name, "backend-0");
    gateway.write(APPS, &file(&[dns(family).ready(family.backend(1))]));
    eventually_within(patience(2.0), "the edit moves the client", || match client().ask_briefly() {
        Ok(answer) if answer.name == "backend-1" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for n in [0, 1, 0] {
        gateway.apply(&[dns(family).ready(family.backend(n))]);
        let answer = client().ask().expect("not a datagram is lost once the table is there");
        assert_eq!(answer.name, format!("backend-{n}"));
    }
}

fn a_flow_moves_when_its_endpoints_port_changes(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let _other = Server::who_am_i(world.backend(0), at(family.backend(0), 5301), "other-port");
    let gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0))]);
    let client = client(&world, family);
    let home = client.ask().unwrap();
    gateway.apply(&[App::new("dns", &[family.vip(0)]).udp(53, 5301).ready(family.backend(0))]);
    assert_eq!(moved(&client, &home).name, "other-port");
}

/// Same as with kube-proxy.
fn a_flow_ends_with_the_last_serving_endpoint(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0))]);
    let old = client(&world, family);
    let home = old.ask().unwrap();
    let refused = |client: &Client| match client.ask_briefly() {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    };
    gateway.apply(&[dns(family).unready(family.backend(0))]);
    eventually("the flow has ended", || refused(&old));
    eventually("new clients are refused", || refused(&client(&world, family)));
    gateway.apply(&[dns(family).ready(family.backend(0))]);
    let again = eventually("the client is served again", || old.ask_briefly());
    assert_ne!(again.peer, home.peer, "by another flow");
}

fn a_flow_is_untouched_by_changes_of_other_services(family: Family) {
    let world = World::new(2);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let other = |n| App::new("other", &[family.vip(1)]).udp(53, 5300).tcp(53, 5300).ready(family.backend(n));
    let kept = dns(family).all_ready([family.backend(0), family.backend(1)]);
    let gateway = Gateway::start(&world, &[kept.clone(), other(0)]);
    let client = client(&world, family);
    let home = client.ask().unwrap();
    let changes = [vec![kept.clone(), other(1)], vec![kept.clone()], vec![kept, other(0)]];
    for apps in changes {
        gateway.apply(&apps);
        for _ in 0..20 {
            assert_eq!(client.ask().unwrap(), home);
        }
    }
}

/// With another socket, the endpoint would see another source port.
fn a_flow_is_untouched_by_what_does_not_concern_its_endpoint(family: Family) {
    let world = World::new(3);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let [one, two, three] = [0, 1, 2].map(|n| family.backend(n));
    let other = |n| App::new("other", &[family.vip(1)]).udp(53, 5300).ready(family.backend(n));
    // In turn on three endpoints: each version differs from the last two, since the gateway may not have read the newer
    // of these.
    let mut others = (1..).map(|n| other(n % 3));
    let mut change_the_other = |gateway: &Gateway<'_>| gateway.apply(others.next().as_slice());
    let text = |app: &App| file(std::slice::from_ref(app));
    let first = dns(family).ready(one);
    let gateway = Gateway::start(&world, &[other(0)]);
    gateway.write("dns.yaml", &text(&first));
    let client = client(&world, family);
    let home = eventually("the Service is served", || client.ask_briefly());
    let changes = [
        dns(family).all_ready([one, two]),
        dns(family).all_ready([two, one]),
        dns(family).ready(one).unready(two).terminating(three),
        first.clone().affinity(3600),
        first.source_ranges(&[format!("{}/{}", family.client(0), family.host_prefix())]),
    ];
    for dns in changes {
        gateway.write("dns.yaml", &text(&dns));
        // The table's change for the other Service shows that the files have been read.
        change_the_other(&gateway);
        assert_eq!(client.ask().unwrap(), home, "after {dns:?}");
        gateway.write("dns.yaml", &format!("# The same objects again.\n{}", text(&dns)));
        change_the_other(&gateway);
        assert_eq!(client.ask().unwrap(), home, "after {dns:?} once more");
    }
    assert_eq!(gateway.metric("sheave_udp_flows_total", &["dns"]), 1.0);
    assert_eq!(gateway.metric("sheave_udp_repicked_total", &[]), 0.0);
}

/// Both addresses are the gateway's own, so the kernel would choose one by route if it were left to.
fn answers_come_from_the_address_that_was_asked(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let vips: Vec<_> = (0..3).map(|n| family.vip(n)).collect();
    let _gateway = Gateway::start(&world, &[App::new("dns", &vips).udp(53, 5300).ready(family.backend(0))]);
    let any = SocketAddr::new(family.client(0), 0);
    let socket = world.client.run(|| UdpSocket::bind(any)).unwrap();
    socket.set_read_timeout(Some(io_deadline())).unwrap();
    for vip in vips.iter().cycle().take(12) {
        socket.send_to(b"?", at(*vip, 53)).unwrap();
        let (_, from) = socket.recv_from(&mut [0; 100]).unwrap();
        assert_eq!(from, at(*vip, 53));
    }
}

fn a_client_with_affinity_stays_with_its_endpoint(family: Family) {
    let world = World::new(4);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let app = dns(family).all_ready((0..4).map(|n| family.backend(n))).affinity(3600);
    let _gateway = Gateway::start(&world, &[app]);
    let ask = |n| Client::new(&world.client, family.client(n), vip(family)).ask().unwrap().name;
    for client in 0..CLIENTS {
        let home = ask(client);
        for _ in 0..20 {
            assert_eq!(ask(client), home, "client {client}");
        }
    }
}

/// The endpoint sees the end of a flow as a new source port of the client's next datagram.
fn an_idle_flow_ends_and_a_busy_one_does_not(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 5300);
    let settings = Settings { udp_idle: "1s", ..Settings::default() };
    let _gateway = Gateway::start_with(&world, &[dns(family).ready(family.backend(0))], &settings);
    let client = client(&world, family);
    let home = client.ask().unwrap();
    for _ in 0..12 {
        let_pass(Duration::from_millis(200));
        assert_eq!(client.ask().unwrap(), home, "traffic keeps the flow");
    }
    let_pass(Duration::from_secs(3));
    assert_ne!(client.ask().unwrap().peer, home.peer, "the idle flow has ended");
}

fn a_flow_recovers_when_its_endpoint_was_away(family: Family) {
    let world = World::new(1);
    let _gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0))]);
    let client = client(&world, family);
    for _ in 0..3 {
        // The endpoint's host reports a closed port, which must not break the frontend.
        client.ask_briefly().expect_err("nobody is there");
    }
    let _servers = Server::on_every_backend(&world, family, 5300);
    eventually("the flow works", || client.ask_briefly());
}

/// Through NAT on the endpoint's host, or on the gateway's own, as with kube-proxy: no object shows either.
fn an_endpoint_that_leads_back_by_nat_gets_a_few_flows_and_no_more(family: Family) {
    for (ours, hook) in [(false, "prerouting"), (true, "output")] {
        let world = World::new(2);
        let _servers = Server::on_every_backend(&world, family, 5300);
        let host = if ours { &world.gateway } else { world.backend(0) };
        if !ours {
            host.sysctl("ipv4/ip_forward", "1");
            host.sysctl("ipv6/conf/all/forwarding", "1");
            // The kernel would otherwise drop packets from elsewhere with an address of this host.
            world.gateway.sysctl("ipv4/conf/all/accept_local", "1");
        }
        let layer = if family == Family::V4 { "ip" } else { "ip6" };
        let rules = format!(
            "table inet around {{\n chain around {{\n type nat hook {hook} priority -100;\n \
             {layer} daddr {endpoint} udp dport 5300 dnat {layer} to {vip}\n }}\n}}\n",
            endpoint = family.backend(0),
            vip = vip(family)
        );
        host.finish("nft", &[rules]).expect_success();
        let other = App::new("other", &[family.vip(1)]).udp(53, 5300).ready(family.backend(1));
        let gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0)), other]);
        client(&world, family).send(b"?").expect("the gateway is there");
        eventually("it is noticed", || match gateway.metric("sheave_udp_dropped_total", &["dns", "loop"]) {
            0.0 => Err(gateway.metric("sheave_udp_flows_total", &["dns"])),
            _ => Ok(()),
        });
        let_pass(Duration::from_millis(500));
        assert_eq!(gateway.metric("sheave_udp_flows_total", &["dns"]), 4.0, "{hook}");
        gateway.wait_for_log("an endpoint leads back to the gateway", 1..);
        // With an address that flows use as well.
        let here = Client::new(&world.gateway, family.gateway_towards(1), at(family.vip(1), 53));
        assert_eq!(here.ask().expect("a program of the gateway's host is served").name, "backend-1");
    }
}
