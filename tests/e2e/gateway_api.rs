//! Tests of Gateways with TCPRoutes and UDPRoutes: which backend a client reaches, in which proportion, and what happens when a
//! route, a grant or a backend goes.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at};
use crate::support::patience::eventually;
use crate::support::tcp::{self, Conversation, Server};
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    connections_are_split_by_weight,
    flows_are_split_by_weight_and_stay,
    an_invalid_backend_refuses_its_share,
    the_oldest_route_serves_and_the_next_follows,
    a_route_attaches_by_section_and_port,
    a_revoked_grant_refuses_new_connections,
    a_client_with_affinity_stays_with_its_part,
    clusters_of_a_service_import_share_by_weight,
);

/// File of the Gateway and its routes.
const FILE: &str = "gateway.yaml";

/// A Gateway in the namespace `infra` on the first address, with these listeners.
pub(crate) fn gateway_on(family: Family, listeners: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: sheave}}\n\
         spec: {{controllerName: sheave.dev/gateway}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: gw, namespace: infra}}\n\
         spec: {{gatewayClassName: sheave, listeners: [{listeners}]}}\n\
         status: {{addresses: [{{type: IPAddress, value: '{}'}}]}}\n",
        family.vip(0)
    )
}

/// A listener that admits routes of every namespace.
fn listener(name: &str, port: u16, protocol: &str) -> String {
    format!(
        "{{name: {name}, port: {port}, protocol: {protocol}, allowedRoutes: {{namespaces: {{from: All}}}}}}"
    )
}

/// A route in `namespace`, created on this day of a month, with more of its first parentRef and its backends.
pub(crate) fn route(
    kind: &str,
    (namespace, name, day): (&str, &str, u8),
    parent: &str,
    backends: &str,
) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\n\
         metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: '2026-01-{day:02}T00:00:00Z'}}\n\
         spec: {{parentRefs: [{{name: gw, namespace: infra{parent}}}], rules: [{{backendRefs: [{backends}]}}]}}\n"
    )
}

/// Services `v0`, `v1`, ... with one endpoint each.
fn versions(family: Family, number: u16) -> Vec<App> {
    let version = |n: u16| {
        let app = App::new(&format!("v{n}"), &[family.vip(0)]).of_type("ClusterIP");
        app.tcp(80, 9000).udp(53, 9000).ready(family.backend(n))
    };
    (0..number).map(version).collect()
}

pub(crate) fn start<'w>(
    world: &'w World,
    family: Family,
    versions_of: u16,
    manifest: &str,
    ready: SocketAddr,
) -> Gateway<'w> {
    let gateway = Gateway::start(world, &versions(family, versions_of));
    gateway.write(FILE, manifest);
    eventually("the Gateway is served", || {
        let routes = gateway.routes();
        let frontends = routes.get("frontends").and_then(|it| it.as_array()).cloned().unwrap_or_default();
        let is_it = |frontend: &serde_json::Value| {
            frontend.get("address").and_then(|it| it.as_str()) == Some(&ready.ip().to_string())
                && frontend.get("port").and_then(serde_json::Value::as_u64) == Some(u64::from(ready.port()))
        };
        if frontends.iter().any(is_it) { Ok(()) } else { Err(format!("{frontends:?}")) }
    });
    gateway
}

/// How many of these connections each server got; refused ones count as `reset`.
fn counts(world: &World, family: Family, to: SocketAddr, times: u16) -> BTreeMap<String, u16> {
    let mut counts = BTreeMap::new();
    for round in 0..times {
        let asked = world.client.run(|| tcp::ask_from(family.client(round % CLIENTS), to));
        let name = match asked {
            Ok(answer) => answer.name,
            Err(error) if is_reset(&error) => "reset".to_owned(),
            Err(error) => panic!("neither served nor reset: {error}"),
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

pub(crate) fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn connections_are_split_by_weight(family: Family) {
    let world = World::new(3);
    let servers = Server::on_every_backend(&world, family, 9000);
    let to = at(family.vip(0), 9300);
    let backends =
        "{name: v0, port: 80, weight: 70}, {name: v1, port: 80, weight: 30}, {name: v2, port: 80, weight: 0}";
    let manifest =
        gateway_on(family, &listener("tcp", 9300, "TCP")) + &route("TCPRoute", ("e2e", "a", 1), "", backends);
    let _gateway = start(&world, family, 3, &manifest, to);
    let counts = counts(&world, family, to, 500);
    // 350 are expected; a fair choice is outside of this range once in a million runs.
    assert!((295..=405).contains(counts.get("backend-0").unwrap_or(&0)), "{counts:?}");
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert_eq!(servers.get(2).map(Server::accepted), Some(0), "a weight of 0 gets nothing");
}

fn flows_are_split_by_weight_and_stay(family: Family) {
    let world = World::new(2);
    let _servers = udp::Server::on_every_backend(&world, family, 9000);
    let to = at(family.vip(0), 5300);
    let backends = "{name: v0, port: 53, weight: 3}, {name: v1, port: 53, weight: 1}";
    let manifest =
        gateway_on(family, &listener("udp", 5300, "UDP")) + &route("UDPRoute", ("e2e", "a", 1), "", backends);
    let gateway = start(&world, family, 2, &manifest, to);
    let clients: Vec<udp::Client> =
        (0..200).map(|n| udp::Client::new(&world.client, family.client(n % CLIENTS), to)).collect();
    let ask = || -> Vec<String> { clients.iter().map(|client| client.ask().unwrap().name).collect() };
    let first = ask();
    let heavy = first.iter().filter(|name| *name == "backend-0").count();
    assert!((110..=185).contains(&heavy), "{heavy} of 200 flows");
    assert_eq!(ask(), first, "a flow stays with its part");
    let other = backends.replace("weight: 3", "weight: 1");
    let before = gateway.generation();
    gateway.write(
        FILE,
        &(gateway_on(family, &listener("udp", 5300, "UDP"))
            + &route("UDPRoute", ("e2e", "a", 1), "", &other)),
    );
    eventually("the table changes", || if gateway.generation() > before { Ok(()) } else { Err("not yet") });
    assert_eq!(ask(), first, "open flows stay when weights change");
}

fn an_invalid_backend_refuses_its_share(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let (to, by_udp) = (at(family.vip(0), 9300), at(family.vip(0), 5300));
    let listeners = format!("{}, {}", listener("tcp", 9300, "TCP"), listener("udp", 5300, "UDP"));
    let backends =
        |port| format!("{{name: v0, port: {port}, weight: 1}}, {{name: gone, port: {port}, weight: 1}}");
    let manifest = gateway_on(family, &listeners)
        + &route("TCPRoute", ("e2e", "a", 1), "", &backends(80))
        + &route("UDPRoute", ("e2e", "a", 1), "", &backends(53));
    let gateway = start(&world, family, 1, &manifest, to);
    let counts = counts(&world, family, to, 200);
    assert!((55..=145).contains(counts.get("reset").unwrap_or(&0)), "{counts:?}");
    let answered = |n: u16| {
        let client = udp::Client::new(&world.client, family.client(n % CLIENTS), by_udp);
        match client.ask_briefly() {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => panic!("neither answered nor silent: {error}"),
        }
    };
    let answered = (0..24).filter(|n| answered(*n)).count();
    assert!((1..24).contains(&answered), "{answered} of 24 flows were answered");
    let problems = gateway.problems();
    assert!(
        problems.iter().any(|it| it.contains("BackendNotFound") && it.contains("TCPRoute")),
        "{problems:?}"
    );
}

fn the_oldest_route_serves_and_the_next_follows(family: Family) {
    let world = World::new(2);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let to = at(family.vip(0), 9310);
    let gateway_only = gateway_on(family, &listener("tcp", 9310, "TCP"));
    let young = route("TCPRoute", ("e2e", "a-young", 2), "", "{name: v1, port: 80}");
    let old = route("TCPRoute", ("e2e", "b-old", 1), "", "{name: v0, port: 80}");
    let gateway = start(&world, family, 2, &format!("{gateway_only}{young}{old}"), to);
    let served = counts(&world, family, to, 20);
    assert_eq!(served, BTreeMap::from([("backend-0".to_owned(), 20)]));
    let mut open = world.client.run(|| Conversation::open(to)).unwrap();
    gateway.write(FILE, &format!("{gateway_only}{young}"));
    eventually("the next route serves", || {
        let name = world.client.run(|| tcp::ask(to)).unwrap().name;
        if name == "backend-1" { Ok(()) } else { Err(name) }
    });
    open.say("an open connection stays with its endpoint").unwrap();
    gateway.write(FILE, &gateway_only);
    tcp::until_refused(&world.client, to);
}

fn a_route_attaches_by_section_and_port(family: Family) {
    let world = World::new(3);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let ports = [9300, 9301, 9302];
    let listeners: Vec<String> =
        (0..).zip(ports).map(|(n, port)| listener(&format!("l{n}"), port, "TCP")).collect();
    let manifest = gateway_on(family, &listeners.join(", "))
        + &route("TCPRoute", ("e2e", "a", 1), ", port: 9300", "{name: v0, port: 80}")
        + &route("TCPRoute", ("e2e", "b", 1), ", sectionName: l1", "{name: v1, port: 80}")
        + &route("TCPRoute", ("e2e", "c", 1), ", sectionName: l2, port: 9302", "{name: v2, port: 80}")
        + &route("TCPRoute", ("e2e", "d", 1), ", sectionName: l2, port: 9300", "{name: v0, port: 80}");
    let gateway = start(&world, family, 3, &manifest, at(family.vip(0), 9302));
    for (n, port) in ports.into_iter().enumerate() {
        let served = counts(&world, family, at(family.vip(0), port), 5);
        assert_eq!(served, BTreeMap::from([(format!("backend-{n}"), 5)]), "port {port}");
    }
    let problems = gateway.problems();
    assert!(
        problems.iter().any(|it| it.contains("NoMatchingParent") && it.contains("e2e/d")),
        "{problems:?}"
    );
}

fn a_revoked_grant_refuses_new_connections(family: Family) {
    let world = World::new(1);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let to = at(family.vip(0), 9320);
    let grant = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\n\
                 metadata: {name: shop, namespace: e2e}\n\
                 spec: {from: [{group: gateway.networking.k8s.io, kind: TCPRoute, namespace: shop}], \
                 to: [{group: '', kind: Service, name: v0}]}\n";
    let manifest = gateway_on(family, &listener("tcp", 9320, "TCP"))
        + &route("TCPRoute", ("shop", "a", 1), "", "{name: v0, namespace: e2e, port: 80}");
    let gateway = start(&world, family, 1, &format!("{manifest}{grant}"), to);
    let mut open = world.client.run(|| Conversation::open(to)).unwrap();
    gateway.write(FILE, &manifest);
    tcp::until_refused(&world.client, to);
    open.say("what is open drains").unwrap();
    let problems = gateway.problems();
    assert!(problems.iter().any(|it| it.contains("RefNotPermitted")), "{problems:?}");
    gateway.write(FILE, &format!("{manifest}{grant}"));
    eventually("it is served again", || world.client.run(|| tcp::ask(to)).map_err(|error| error.to_string()));
}

fn a_client_with_affinity_stays_with_its_part(family: Family) {
    let world = World::new(2);
    let _servers = Server::on_every_backend(&world, family, 9000);
    let to = at(family.vip(0), 9300);
    let backends = "{name: v0, port: 80}, {name: v1, port: 80}";
    let route = route("TCPRoute", ("e2e", "a", 1), "", backends)
        .replace("creationTimestamp", "annotations: {sheave.dev/affinity: ClientIP=1h}, creationTimestamp");
    let _gateway =
        start(&world, family, 2, &(gateway_on(family, &listener("tcp", 9300, "TCP")) + &route), to);
    for client in 0..CLIENTS {
        let ask = || world.client.run(|| tcp::ask_from(family.client(client), to)).unwrap().name;
        let home = ask();
        assert!((0..10).all(|_| ask() == home), "client {client} leaves {home}");
    }
}

fn clusters_of_a_service_import_share_by_weight(family: Family) {
    let world = World::new(2);
    let servers = Server::on_every_backend(&world, family, 9000);
    let to = at(family.vip(0), 9300);
    let kind = if family == Family::V4 { "IPv4" } else { "IPv6" };
    let slice = |cluster: &str, n: u16| {
        format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-{cluster}\n  namespace: e2e\n  \
             labels: {{multicluster.kubernetes.io/service-name: web, multicluster.kubernetes.io/source-cluster: {cluster}}}\n\
             addressType: {kind}\nports: [{{name: http, port: 9000}}]\nendpoints: [{{addresses: ['{}']}}]\n",
            family.backend(n)
        )
    };
    let import = "---\napiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceImport\nmetadata: {name: web, namespace: e2e}\n\
                  spec: {type: ClusterSetIP, ports: [{name: http, port: 80}]}\n";
    let backend = "{group: multicluster.x-k8s.io, kind: ServiceImport, name: web, port: 80}";
    let route = |annotation: &str| {
        route("TCPRoute", ("e2e", "a", 1), "", backend)
            .replace("creationTimestamp", &format!("annotations: {{{annotation}}}, creationTimestamp"))
    };
    let rest =
        gateway_on(family, &listener("tcp", 9300, "TCP")) + import + &slice("east", 0) + &slice("west", 1);
    let weights = route("sheave.dev/cluster-weights: 'east=3,west=1'");
    let gateway = start(&world, family, 0, &format!("{rest}{weights}"), to);
    let served = counts(&world, family, to, 200);
    assert!((110..=185).contains(served.get("backend-0").unwrap_or(&0)), "{served:?}");
    gateway.write(FILE, &format!("{rest}{}", route("sheave.dev/drain: east")));
    eventually("the cluster takes nothing new", || {
        let before = servers.first().map(Server::accepted);
        let served = counts(&world, family, to, 10);
        if servers.first().map(Server::accepted) == before { Ok(()) } else { Err(format!("{served:?}")) }
    });
}
