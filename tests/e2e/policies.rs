//! Tests of access to a frontend, and of what refused clients see: silence where Kubernetes drops, an error
//! where it rejects.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use crate::support::gateway::{Gateway, by_kernel, steers};
use crate::support::host::Host;
use crate::support::manifest::{App, at, node_with_networks, vip};
use crate::support::patience::{eventually, patience};
use crate::support::world::{Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    a_service_without_endpoints_refuses_connections,
    a_service_without_endpoints_refuses_datagrams,
    endpoints_that_come_and_go_open_and_close_the_frontend,
    local_policy_serves_outside_clients_from_this_node_only,
    local_policy_without_local_endpoints_drops_outside_clients_silently,
    clients_of_a_cluster_of_many_networks_count_as_inside,
    source_ranges_drop_other_clients_silently,
    source_ranges_of_two_halves_admit_everyone,
    of_two_services_at_one_address_the_first_serves,
    a_taken_port_is_a_problem_of_one_frontend_only,
);

/// A Service on a TCP and a UDP port of the same number.
fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000)
}

/// Servers of both protocols on every backend.
fn serve(world: &World, family: Family) -> (Vec<tcp::Server>, Vec<udp::Server>) {
    let tcp = tcp::Server::on_every_backend(world, family, 9000);
    (tcp, udp::Server::on_every_backend(world, family, 9000))
}

fn expect_refused(host: &Host, to: SocketAddr) {
    let error = host.run(|| tcp::connect(to)).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

/// Names of the endpoints that answer over TCP. Asks often enough to get all of them.
fn who_serves(host: &Host, to: SocketAddr) -> BTreeSet<String> {
    (0..40).map(|_| host.run(|| tcp::ask(to)).expect("the request is served").name).collect()
}

/// Checks that neither protocol gives an answer or an error.
pub(crate) fn expect_dropped(world: &World, family: Family, client: u16) {
    expect_dropped_at(world, vip(family), family.client(client));
}

/// Same for another frontend and any client.
pub(crate) fn expect_dropped_at(world: &World, to: SocketAddr, from: IpAddr) {
    let connecting = world.client.run(|| tcp::connect_from(Some(from), to, patience(0.7)));
    let error = connecting.expect_err("the connection is dropped");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "silence, not an error: {error}");
    udp::Client::new(&world.client, from, to).expect_silence(patience(0.7));
}

/// Checks that both protocols are served.
pub(crate) fn expect_served(world: &World, family: Family, client: u16) {
    let from = family.client(client);
    world.client.run(|| tcp::ask_from(from, vip(family))).expect("the connection is served");
    udp::Client::new(&world.client, from, vip(family)).ask().expect("the datagram is answered");
}

fn a_service_without_endpoints_refuses_connections(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let _gateway = Gateway::start(&world, &[web(family)]);
    expect_refused(&world.client, vip(family));
    expect_refused(world.backend(0), vip(family));
}

fn a_service_without_endpoints_refuses_datagrams(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let _gateway = Gateway::start(&world, &[web(family)]);
    let client = udp::Client::new(&world.client, family.client(0), vip(family));
    let error = client.exchange(b"?").expect_err("nobody is bound");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

fn endpoints_that_come_and_go_open_and_close_the_frontend(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let gateway = Gateway::start(&world, &[web(family)]);
    expect_refused(&world.client, vip(family));
    for _ in 0..3 {
        gateway.apply(&[web(family).ready(family.backend(0))]);
        eventually("the frontend is open", || world.client.run(|| tcp::ask(vip(family))));
        eventually("and for datagrams", || {
            udp::Client::new(&world.client, family.client(0), vip(family)).ask_briefly()
        });
        gateway.apply(&[web(family).unready(family.backend(0))]);
        eventually("the frontend is closed", || match world.client.run(|| tcp::ask(vip(family))) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let client = udp::Client::new(&world.client, family.client(0), vip(family));
        eventually("and for datagrams", || match client.ask_briefly() {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

fn local_policy_serves_outside_clients_from_this_node_only(family: Family) {
    let world = World::new(3);
    let _servers = serve(&world, family);
    let app = web(family).local_policy().ready(family.backend(0)).ready(family.backend(1));
    let _gateway = Gateway::start(&world, &[app.ready_here(family.backend(2))]);
    assert_eq!(who_serves(&world.client, vip(family)), BTreeSet::from(["backend-2".to_owned()]));
    let everyone: BTreeSet<String> = (0..3).map(|n| format!("backend-{n}")).collect();
    assert_eq!(who_serves(world.backend(0), vip(family)), everyone);
    for _ in 0..10 {
        let outside = udp::Client::new(&world.client, family.client(0), vip(family));
        assert_eq!(outside.ask().unwrap().name, "backend-2");
    }
}

fn local_policy_without_local_endpoints_drops_outside_clients_silently(family: Family) {
    let world = World::new(2);
    let _servers = serve(&world, family);
    let app = web(family).local_policy().ready(family.backend(1));
    let gateway = Gateway::start(&world, std::slice::from_ref(&app));
    expect_dropped(&world, family, 0);
    assert_eq!(who_serves(world.backend(0), vip(family)), BTreeSet::from(["backend-1".to_owned()]));
    let inside = udp::Client::new(world.backend(0), family.backend(0), vip(family));
    assert_eq!(inside.ask().unwrap().name, "backend-1");
    // A local endpoint opens the same frontend to external clients.
    gateway.apply(&[app.ready_here(family.backend(0))]);
    eventually("outside clients are served", || {
        world.client.run(|| tcp::connect_from(None, vip(family), patience(0.5)))
    });
    expect_served(&world, family, 1);
}

fn clients_of_a_cluster_of_many_networks_count_as_inside(family: Family) {
    let world = World::new(2);
    let _servers = serve(&world, family);
    let apps: Vec<App> = (0..2)
        .map(|n| App::new(&format!("web-{n}"), &[family.vip(n)]).tcp(80, 9000).udp(80, 9000).local_policy())
        .map(|app| app.ready(family.backend(1)))
        .collect();
    let gateway = Gateway::start(&world, &apps);
    let before = gateway.generation();
    gateway.write("more-nodes.yaml", &node_with_networks(family, 500));
    eventually("the nodes are known", || match gateway.generation() {
        now if now > before => Ok(()),
        now => Err(format!("still generation {now}")),
    });
    for n in 0..2 {
        let vip = at(family.vip(n), 80);
        assert_eq!(who_serves(world.backend(0), vip), BTreeSet::from(["backend-1".to_owned()]));
        // Its source address is the address that it connects to.
        assert_eq!(who_serves(&world.gateway, vip), BTreeSet::from(["backend-1".to_owned()]));
    }
    expect_dropped(&world, family, 0);
}

fn source_ranges_drop_other_clients_silently(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let only = |client| vec![format!(" {}/{} ", family.client(client), family.host_prefix())];
    let app = web(family).ready(family.backend(0));
    let gateway = Gateway::start(&world, &[app.clone().source_ranges(&only(1))]);
    expect_served(&world, family, 1);
    expect_dropped(&world, family, 0);
    // Clients inside the cluster are not exempt.
    let inside = world.backend(0).run(|| tcp::connect_from(None, vip(family), patience(0.7)));
    assert_eq!(inside.unwrap_err().kind(), ErrorKind::TimedOut);

    gateway.apply(&[app.clone().source_ranges(&only(0))]);
    eventually("the new range counts", || {
        world.client.run(|| tcp::connect_from(Some(family.client(0)), vip(family), patience(0.5)))
    });
    expect_served(&world, family, 0);
    expect_dropped(&world, family, 1);

    gateway.apply(&[app]);
    eventually("everyone is admitted", || {
        world.client.run(|| tcp::connect_from(Some(family.client(1)), vip(family), patience(0.5)))
    });
    expect_served(&world, family, 1);
}

fn source_ranges_of_two_halves_admit_everyone(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let halves = match family {
        Family::V4 => ["0.0.0.0/1", "128.0.0.0/1"],
        Family::V6 => ["::/1", "8000::/1"],
    };
    let app = web(family).ready(family.backend(0)).source_ranges(&halves.map(str::to_owned));
    let _gateway = Gateway::start(&world, &[app]);
    expect_served(&world, family, 0);
}

fn of_two_services_at_one_address_the_first_serves(family: Family) {
    let world = World::new(2);
    let _servers = serve(&world, family);
    let app = |name, endpoint| App::new(name, &[family.vip(0)]).tcp(80, 9000).ready(family.backend(endpoint));
    let gateway = Gateway::start(&world, &[app("second", 1), app("first", 0)]);
    assert_eq!(who_serves(&world.client, vip(family)), BTreeSet::from(["backend-0".to_owned()]));
    let problems = gateway.problems().join("\n");
    assert!(problems.contains("Service e2e/second") && problems.contains("e2e/first"), "{problems}");
    // Without its owner, the other Service gets the address.
    gateway.apply(&[app("second", 1)]);
    eventually("the second Service serves", || match world.client.run(|| tcp::ask(vip(family))) {
        Ok(answer) if answer.name == "backend-1" => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

fn a_taken_port_is_a_problem_of_one_frontend_only(family: Family) {
    let world = World::new(1);
    let _servers = serve(&world, family);
    let squatter = tcp::Server::who_am_i(&world.gateway, vip(family), "squatter");
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).tcp(81, 9000).ready(family.backend(0));
    let gateway = Gateway::start(&world, &[app]);
    let served = BTreeSet::from(["backend-0".to_owned()]);
    assert_eq!(who_serves(&world.client, at(family.vip(0), 81)), served);
    if steers() || by_kernel() {
        // Only at addresses of the node itself do its programs come first.
        assert_eq!(who_serves(&world.client, vip(family)), served, "no process is in the way");
        assert_eq!(gateway.problems(), Vec::<String>::new());
        return;
    }
    let told = format!("{}", vip(family));
    eventually("the frontend that cannot be bound is named", || {
        let text = gateway.warnings();
        if text.contains(&told) { Ok(()) } else { Err(text) }
    });
    drop(squatter);
    eventually("the frontend is bound as soon as it can be", || {
        match world.client.run(|| tcp::ask(vip(family))) {
            Ok(answer) if answer.name == "backend-0" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn a_dual_stack_service_serves_each_family_from_its_own_endpoints() {
    let world = World::new(2);
    let _v4 = tcp::Server::on_every_backend(&world, Family::V4, 9000);
    let _v6 = tcp::Server::on_every_backend(&world, Family::V6, 9000);
    let app = App::new("web", &Family::BOTH.map(|family| family.vip(0))).tcp(80, 9000);
    let app = app.ready(Family::V4.backend(0)).ready(Family::V6.backend(1));
    let _gateway = Gateway::start(&world, &[app]);
    for (family, name) in [(Family::V4, "backend-0"), (Family::V6, "backend-1")] {
        assert_eq!(who_serves(&world.client, vip(family)), BTreeSet::from([name.to_owned()]), "{family}");
    }
}
