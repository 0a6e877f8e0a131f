//! Tests of two member clusters whose Pods have the same addresses, each behind its own interface.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::support::fleet::{Cluster, Exposure};
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{at, vip};
use crate::support::members::tally;
use crate::support::patience::{eventually, eventually_within, patience};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    clusters_with_the_same_addresses_are_kept_apart_by_interface,
    the_same_addresses_on_one_way_are_told,
    checks_go_by_the_interface_of_each_cluster,
    a_cluster_whose_interface_is_missing_costs_no_request_and_is_used_when_it_comes,
    datagrams_go_on_when_the_interface_of_their_cluster_is_made_anew,
);

/// The interfaces are named after each cluster's link on the gateway.
const BY_INTERFACE: &str = "clusters:\n  m0: {interface: backend-0}\n  m1: {interface: backend-1}\n";

fn shared(family: Family) -> IpAddr {
    match family {
        Family::V4 => [10, 77, 0, 2].into(),
        Family::V6 => [0xfd77, 0, 0, 0, 0, 0, 0, 2].into(),
    }
}

/// Both clusters have the address; the route that the gateway prefers leads to the first one.
fn overlapping_world(family: Family) -> World {
    let world = World::new(2);
    for (index, backend) in (0..).zip(&world.backends) {
        backend.own([shared(family)]);
        lead_there(&world, family, index);
    }
    world.gateway.sysctl("ipv4/conf/all/rp_filter", "0");
    world
}

fn lead_there(world: &World, family: Family, index: u16) {
    let (ip, prefix, next) = (shared(family), family.host_prefix(), family.backend(index));
    let metric = 100 * (index + 1);
    world.gateway.ip(&[format!("route add {ip}/{prefix} via {next} dev backend-{index} metric {metric}")]);
    // Answers of the second one come from an address whose route leads to the first one.
    world.gateway.sysctl(&format!("ipv4/conf/backend-{index}/rp_filter"), "0");
}

fn shop(family: Family) -> Exposure {
    Exposure::new("shop", &[family.vip(0)])
        .tcp(80, 9000)
        .udp(53, 5300)
        .ready("m0", [shared(family)])
        .ready("m1", [shared(family)])
}

fn servers(world: &World, family: Family) -> (Vec<tcp::Server>, Vec<udp::Server>) {
    let named = || (0..).map(|index| format!("m{index}")).zip(&world.backends);
    let tcp = named().map(|(name, host)| tcp::Server::who_am_i(host, at(shared(family), 9000), &name));
    let udp = named().map(|(name, host)| udp::Server::who_am_i(host, at(shared(family), 5300), &name));
    (tcp.collect(), udp.collect())
}

fn start<'w>(world: &'w World, exposure: Exposure, config: &'static str) -> Gateway<'w> {
    let clusters = [Cluster::new("m0"), Cluster::new("m1")];
    Gateway::start_in_fleet(world, &[exposure], &clusters, &Settings { config, ..Settings::default() })
}

fn overlaps(gateway: &Gateway<'_>) -> usize {
    gateway.problems().iter().filter(|problem| problem.contains("OverlappingAddresses")).count()
}

fn clusters_with_the_same_addresses_are_kept_apart_by_interface(family: Family) {
    let world = overlapping_world(family);
    let _servers = servers(&world, family);
    let gateway = start(&world, shop(family), BY_INTERFACE);
    assert_eq!(overlaps(&gateway), 0, "{:?}", gateway.problems());
    let both = tally(&world, family, vip(family), 200);
    assert!(["m0", "m1"].iter().all(|name| both.get(*name).is_some_and(|&count| count > 50)), "{both:?}");
    let flows = (0..200).map(|_| {
        udp::Client::new(&world.client, family.client(0), at(family.vip(0), 53)).ask().unwrap().name
    });
    assert_eq!(flows.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), ["m0", "m1"]);

    // A drain applies to one cluster, although both have the address.
    let mut old =
        eventually("m0 takes a connection", || match world.client.run(|| Conversation::open(vip(family))) {
            Ok(talk) if talk.with.name == "m0" => Ok(talk),
            other => Err(format!("{:?}", other.map(|talk| talk.with))),
        });
    gateway.expose(&[shop(family).annotation("sheave.dev/drain", "m0")]);
    assert_eq!(tally(&world, family, vip(family), 50).into_keys().collect::<Vec<_>>(), ["m1"]);
    old.say("still there?").unwrap();
}

/// The two cannot be told apart: the only route leads to one of them, and clients must not be misdirected silently.
fn the_same_addresses_on_one_way_are_told(family: Family) {
    let world = overlapping_world(family);
    let _servers = servers(&world, family);
    let gateway = start(&world, shop(family), "");
    assert!(overlaps(&gateway) > 0, "{:?}", gateway.problems());
    assert_eq!(tally(&world, family, vip(family), 20).into_keys().collect::<Vec<_>>(), ["m0"]);
    gateway.expose(&[shop(family).without_endpoints().ready("m0", [shared(family)])]);
    assert_eq!(overlaps(&gateway), 0, "{:?}", gateway.problems());
}

/// Through the route that the gateway prefers, m1 would seem as unhealthy as m0, and m0 as healthy as m1.
fn checks_go_by_the_interface_of_each_cluster(family: Family) {
    let world = overlapping_world(family);
    let _servers = servers(&world, family);
    let checked = shop(family)
        .annotation("sheave.dev/health-check", "tcp:9000 interval=1s timeout=500ms failures=2 successes=1");
    let gateway = start(&world, checked, BY_INTERFACE);
    for (ill, well) in [(0, "m1"), (1, "m0")] {
        world.cut(ill);
        eventually_within(patience(30.0), "the gateway has found out", || {
            // The Service has a port of each protocol, with one endpoint there.
            match gateway.metric("sheave_endpoints_unhealthy", &[]) {
                2.0 => Ok(()),
                other => Err(format!("{other} endpoints are unhealthy")),
            }
        });
        assert_eq!(tally(&world, family, vip(family), 20).into_keys().collect::<Vec<_>>(), [well]);
        mend(&world, family, ill);
        eventually_within(patience(30.0), "the gateway has found out", || {
            match gateway.metric("sheave_endpoints_unhealthy", &[]) {
                0.0 => Ok(()),
                other => Err(format!("{other} endpoints are unhealthy")),
            }
        });
    }
}

/// The shared address is on loopback, and was not lost.
fn mend(world: &World, family: Family, index: u16) {
    world.mend(index);
    let addresses = world.backend(usize::from(index)).finish("ip", &["addr", "show", "lo"]).expect_success();
    assert!(addresses.contains(&shared(family).to_string()), "{addresses}");
}

/// For example, a tunnel that is set up after the gateway has started.
const LATE: &str = "clusters:\n  m0: {interface: backend-0}\n  m1: {interface: wg-m1}\n";

fn a_cluster_whose_interface_is_missing_costs_no_request_and_is_used_when_it_comes(family: Family) {
    let world = overlapping_world(family);
    let _servers = servers(&world, family);
    let _gateway = start(&world, shop(family), LATE);
    assert_eq!(tally(&world, family, vip(family), 40).into_keys().collect::<Vec<_>>(), ["m0"]);
    world.gateway.ip(&["link set backend-1 name wg-m1".to_owned()]);
    eventually_within(patience(60.0), "the second cluster is used", || {
        let tally = tally(&world, family, vip(family), 20);
        if tally.contains_key("m1") { Ok(()) } else { Err(format!("{tally:?}")) }
    });
}

/// For example, a tunnel that is recreated. The client never falls silent, so its flow never expires.
fn datagrams_go_on_when_the_interface_of_their_cluster_is_made_anew(family: Family) {
    let world = overlapping_world(family);
    let _servers = servers(&world, family);
    for (exposure, index) in
        [(shop(family), None), (shop(family).without_endpoints().ready("m1", [shared(family)]), Some(1))]
    {
        let _gateway = start(&world, exposure, BY_INTERFACE);
        let client = udp::Client::new(&world.client, family.client(0), at(family.vip(0), 53));
        let name = client.ask().unwrap().name;
        let index = index.unwrap_or(u16::from(name == "m1"));
        assert_eq!(name, format!("m{index}"));
        world.replace(index);
        lead_there(&world, family, index);
        eventually_within(patience(10.0), "the client is answered", || client.ask_briefly());
    }
}
