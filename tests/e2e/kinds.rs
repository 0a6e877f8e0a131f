//! Tests of all kinds of frontends of a Service at once, and of changes of its type.

use std::io::ErrorKind;
use std::net::SocketAddr;

use crate::support::gateway::{Gateway, Settings};
use crate::support::host::Host;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, patience};
use crate::support::tcp;
use crate::support::world::{Family, World};

for_both_families!(
    every_kind_of_frontend_is_served_by_its_own_policy,
    one_affinity_holds_over_all_kinds_of_frontends,
    a_service_that_is_no_load_balancer_any_more_is_closed_there_alone,
    a_node_that_uses_its_own_frontend_is_inside_the_cluster,
);

/// All kinds of frontends; the second served address may be used as an external one.
const ALL_KINDS: &str = "frontends: [LoadBalancer, ExternalIP, NodePort, ClusterIP]\n\
    externalIPs: {allow: [203.0.113.11/32, \"2001:db8::11/128\"]}\n";

fn start<'w>(world: &'w World, apps: &[App]) -> Gateway<'w> {
    Gateway::start_with(world, apps, &Settings { config: ALL_KINDS, ..Settings::default() })
}

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)])
        .tcp(80, 9000)
        .node_port(30080)
        .spec(&format!("externalIPs: [\"{}\"]", family.vip(1)))
}

/// The gateway's cluster address is routed to it, like traffic that kube-proxy captures.
fn world(family: Family, app: &App) -> World {
    let world = World::new(2);
    world.gateway.own([app.cluster_ip(family)]);
    world
}

fn cluster(family: Family, app: &App) -> SocketAddr {
    at(app.cluster_ip(family), 80)
}

fn outward(family: Family) -> [SocketAddr; 3] {
    [at(family.vip(0), 80), at(family.vip(1), 80), at(family.gateway(), 30080)]
}

fn names(host: &Host, to: SocketAddr) -> Vec<String> {
    let names = (0..30).map(|_| host.run(|| tcp::ask(to)).expect("the request is served").name);
    let names: std::collections::BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

fn every_kind_of_frontend_is_served_by_its_own_policy(family: Family) {
    let app = web(family).local_policy().annotation("sheave.dev/client-source", "gateway");
    let world = world(family, &app);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let app = app.ready(family.backend(0)).ready_here(family.backend(1));
    let gateway = start(&world, std::slice::from_ref(&app));
    for to in outward(family) {
        assert_eq!(names(&world.client, to), ["backend-1"], "{to}");
        assert_eq!(names(world.backend(0), to), ["backend-0", "backend-1"], "{to}");
    }
    assert_eq!(names(&world.client, cluster(family, &app)), ["backend-0", "backend-1"]);
    let closer = app.clone().spec("internalTrafficPolicy: Local");
    gateway.apply(std::slice::from_ref(&closer));
    for host in [&world.client, world.backend(0)] {
        assert_eq!(names(host, cluster(family, &app)), ["backend-1"]);
    }
}

fn one_affinity_holds_over_all_kinds_of_frontends(family: Family) {
    let app = web(family).affinity(600);
    let world = world(family, &app);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let app = app.all_ready([0, 1].map(|n| family.backend(n)));
    let _gateway = start(&world, std::slice::from_ref(&app));
    let first = world.client.run(|| tcp::ask(outward(family)[0])).unwrap().name;
    for to in [outward(family).as_slice(), &[cluster(family, &app)]].concat() {
        assert_eq!(names(&world.client, to), [first.as_str()], "{to}");
    }
}

fn a_service_that_is_no_load_balancer_any_more_is_closed_there_alone(family: Family) {
    let app = web(family).ready(family.backend(0));
    let world = world(family, &app);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = start(&world, std::slice::from_ref(&app));
    let load_balancer = outward(family)[0];
    let connect = || world.client.run(|| tcp::connect_from(None, load_balancer, patience(5.0)));
    let mut open = world.client.run(|| tcp::Conversation::open(load_balancer)).unwrap();
    for type_ in ["NodePort", "ClusterIP"] {
        gateway.apply(&[app.clone().of_type(type_)]);
        eventually("the load balancer address is closed", || match connect() {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        });
        // Open connections continue, and so does what the new type still has.
        open.say("still there?").unwrap();
        assert_eq!(names(&world.client, outward(family)[1]), ["backend-0"]);
        assert_eq!(names(&world.client, cluster(family, &app)), ["backend-0"]);
    }
    let refused = world.client.run(|| tcp::connect(outward(family)[2]));
    assert_eq!(
        refused.unwrap_err().kind(),
        ErrorKind::ConnectionRefused,
        "a ClusterIP Service has no node port"
    );
    gateway.apply(&[app]);
    eventually("it is a load balancer again", connect);
}

fn a_node_that_uses_its_own_frontend_is_inside_the_cluster(family: Family) {
    let app = web(family).local_policy().ready(family.backend(0));
    let world = world(family, &app);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _gateway = start(&world, &[app]);
    // No endpoint is local, so external clients get no answer; the node itself is served at any of its
    // addresses.
    let load_balancer = outward(family)[0];
    let outside = world.client.run(|| tcp::connect_from(None, load_balancer, patience(0.7)));
    assert_eq!(outside.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(names(&world.gateway, load_balancer), ["backend-0"]);
}
