//! Tests of the cluster that a client of a MultiClusterService gets while all are reachable: by weights, by the number of
//! endpoints, by priority, and by how much of the first ones is ready.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::support::fleet::{Cluster, Exposure};
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{at, vip};
use crate::support::members::{cluster_of, endpoints, serve, tally};
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    clusters_with_weights_share_by_them_whatever_their_size,
    a_cluster_that_is_not_named_has_weight_one,
    without_weights_every_endpoint_gets_the_same,
    the_second_tier_is_unused_while_the_first_is_healthy,
    traffic_spills_over_by_as_much_as_the_first_tier_lacks,
    datagrams_are_spread_over_clusters_by_weight,
    a_cluster_whose_pods_are_not_reached_is_used_by_its_own_load_balancer,
);

/// Enough requests for shares to show.
const REQUESTS: u16 = 2500;

fn shop(family: Family) -> Exposure {
    Exposure::new("shop", &[family.vip(0)]).tcp(80, 9000)
}

fn known(count: u16) -> Vec<Cluster> {
    (0..count).map(|index| Cluster::new(&format!("m{index}"))).collect()
}

fn start<'w>(world: &'w World, exposure: &Exposure) -> Gateway<'w> {
    let clusters = known(u16::try_from(world.backends.len()).unwrap());
    Gateway::start_in_fleet(world, std::slice::from_ref(exposure), &clusters, &Settings::default())
}

/// Panics unless the cluster got this percentage, within 5 points: five standard deviations of [`REQUESTS`] fair choices.
fn expect_percent(tally: &BTreeMap<String, usize>, cluster: &str, percent: usize) {
    let all: usize = tally.values().sum();
    let got = tally.get(cluster).copied().unwrap_or_default() * 1000 / all;
    assert!(
        got.abs_diff(10 * percent) <= 50,
        "{cluster} got {got} of 1000 in place of {percent} %: {tally:?}"
    );
}

fn clusters_with_weights_share_by_them_whatever_their_size(family: Family) {
    let world = World::with_addresses(2, 3);
    let _servers = [serve(&world, family, 0, 1, 9000), serve(&world, family, 1, 3, 9000)];
    let exposure = shop(family).ready("m0", endpoints(family, 0, 1)).ready("m1", endpoints(family, 1, 3));
    let weighted = |weights| exposure.clone().annotation("sheave.dev/cluster-weights", weights);
    let gateway = start(&world, &weighted("m0=3,m1=1"));
    expect_percent(&tally(&world, family, vip(family), REQUESTS), "m0", 75);
    gateway.expose(&[weighted("m0=1,m1=1")]);
    expect_percent(&tally(&world, family, vip(family), REQUESTS), "m0", 50);
    gateway.expose(&[weighted("m0=0,m1=1")]);
    assert!(!tally(&world, family, vip(family), 100).contains_key("m0"), "0 is nothing beside others");
    assert_eq!(gateway.problems(), Vec::<String>::new());
}

fn a_cluster_that_is_not_named_has_weight_one(family: Family) {
    let world = World::new(3);
    let _servers = [0, 1, 2].map(|cluster| serve(&world, family, cluster, 1, 9000));
    let names = ["m0", "m1", "m2"];
    let exposure = (0..)
        .zip(names)
        .fold(shop(family), |shop, (index, name)| shop.ready(name, endpoints(family, index, 1)));
    let _gateway = start(&world, &exposure.annotation("sheave.dev/cluster-weights", "m0=2"));
    let tally = tally(&world, family, vip(family), REQUESTS);
    for (name, percent) in names.into_iter().zip([50, 25, 25]) {
        expect_percent(&tally, name, percent);
    }
}

fn without_weights_every_endpoint_gets_the_same(family: Family) {
    let world = World::with_addresses(2, 4);
    let _servers = [serve(&world, family, 0, 1, 9000), serve(&world, family, 1, 4, 9000)];
    let exposure = shop(family).ready("m0", endpoints(family, 0, 1)).ready("m1", endpoints(family, 1, 4));
    let _gateway = start(&world, &exposure);
    expect_percent(&tally(&world, family, vip(family), REQUESTS), "m1", 80);
}

fn the_second_tier_is_unused_while_the_first_is_healthy(family: Family) {
    let world = World::new(3);
    let servers = [0, 1, 2].map(|cluster| serve(&world, family, cluster, 1, 9000));
    let last = shop(family)
        .annotation("sheave.dev/cluster-priority", "m0,m1>m2")
        .ready("m2", endpoints(family, 2, 1));
    let both = last.clone().ready("m0", endpoints(family, 0, 1)).ready("m1", endpoints(family, 1, 1));
    let gateway = start(&world, &both);
    let first = tally(&world, family, vip(family), REQUESTS);
    expect_percent(&first, "m0", 50);
    expect_percent(&first, "m1", 50);
    assert_eq!(servers[2][0].accepted(), 0, "nothing spills over");
    gateway.expose(&[last.unready("m0", endpoints(family, 0, 1)).unready("m1", endpoints(family, 1, 1))]);
    assert_eq!(tally(&world, family, vip(family), 40).into_keys().collect::<Vec<_>>(), ["m2"]);
    gateway.expose(&[both]);
    assert!(!tally(&world, family, vip(family), 100).contains_key("m2"), "it is back in the first tier");
}

/// The factor is 1.4: the tier carries all traffic down to 72 % of its endpoints, and then 1.4 times its health.
fn traffic_spills_over_by_as_much_as_the_first_tier_lacks(family: Family) {
    const ENDPOINTS: u16 = 10;
    let world = World::with_addresses(2, ENDPOINTS);
    let _first = serve(&world, family, 0, ENDPOINTS, 9000);
    let second = serve(&world, family, 1, 2, 9000);
    let with = |ready: u16| {
        let all = endpoints(family, 0, ENDPOINTS);
        let (ready, unready) = all.split_at(usize::from(ready));
        shop(family)
            .annotation("sheave.dev/cluster-priority", "m0>m1")
            .ready("m0", ready.to_vec())
            .unready("m0", unready.to_vec())
            .ready("m1", endpoints(family, 1, 2))
    };
    let accepted = || second.iter().map(crate::support::tcp::Server::accepted).sum::<usize>();
    let gateway = start(&world, &with(ENDPOINTS));
    tally(&world, family, vip(family), 100);
    gateway.expose(&[with(8)]);
    tally(&world, family, vip(family), 100);
    assert_eq!(accepted(), 0, "8 of 10 are enough for all");
    gateway.expose(&[with(5)]);
    expect_percent(&tally(&world, family, vip(family), REQUESTS), "m0", 70);
    gateway.expose(&[with(2)]);
    expect_percent(&tally(&world, family, vip(family), REQUESTS), "m0", 28);
    let tight = |ready| with(ready).annotation("sheave.dev/overprovisioning", "100");
    gateway.expose(&[tight(5)]);
    expect_percent(&tally(&world, family, vip(family), REQUESTS), "m0", 50);
    gateway.expose(&[with(0)]);
    assert_eq!(tally(&world, family, vip(family), 40).into_keys().collect::<Vec<_>>(), ["m1"]);
}

fn datagrams_are_spread_over_clusters_by_weight(family: Family) {
    let world = World::with_addresses(2, 2);
    let serve = |cluster: u16| {
        let serve = |(number, ip)| {
            let name = format!("m{cluster}-{number}");
            udp::Server::who_am_i(world.backend(usize::from(cluster)), at(ip, 5300), &name)
        };
        (0..).zip(endpoints(family, cluster, 2)).map(serve).collect::<Vec<_>>()
    };
    let _servers = [serve(0), serve(1)];
    let exposure = Exposure::new("names", &[family.vip(0)])
        .udp(53, 5300)
        .annotation("sheave.dev/cluster-weights", "m0=3,m1=1")
        .ready("m0", endpoints(family, 0, 2))
        .ready("m1", endpoints(family, 1, 2));
    let _gateway = start(&world, &exposure);
    let to = at(family.vip(0), 53);
    let (mut tally, mut clients) = (BTreeMap::new(), Vec::new());
    for round in 0..REQUESTS {
        let client = udp::Client::new(&world.client, family.client(round % CLIENTS), to);
        let name = client.ask().unwrap().name;
        *tally.entry(cluster_of(&name).to_owned()).or_insert(0) += 1;
        clients.extend((round < 400).then_some((client, name)));
    }
    expect_percent(&tally, "m0", 75);
    for (client, name) in clients {
        assert_eq!(client.ask().unwrap().name, name, "a flow stays where it is");
    }
}

fn a_cluster_whose_pods_are_not_reached_is_used_by_its_own_load_balancer(family: Family) {
    let world = World::new(2);
    // Pods serve the target port, load balancers the port of the Service.
    let _pods = serve(&world, family, 0, 1, 9000);
    let _balancers = [0, 1].map(|cluster| serve(&world, family, cluster, 1, 80));
    let exposure = shop(family)
        .ready("m0", endpoints(family, 0, 1))
        .ingress("m0", family.backend(0))
        .ingress("m1", family.backend(1));
    let gateway = start(&world, &exposure);
    let addresses = |gateway: &Gateway<'_>| {
        let routes = gateway.routes();
        let endpoints = routes.pointer("/frontends/0/external/endpoints").cloned().unwrap_or_default();
        serde_json::from_value::<Vec<SocketAddr>>(endpoints).expect("endpoints are addresses")
    };
    let ways = |port| vec![at(family.backend(0), port), at(family.backend(1), 80)];
    assert_eq!(addresses(&gateway), ways(9000), "pods where they were collected");
    expect_percent(&tally(&world, family, vip(family), REQUESTS), "m0", 50);
    gateway.expose(&[exposure.annotation("sheave.dev/cluster-endpoints", "ingress")]);
    assert_eq!(addresses(&gateway), ways(80));
    expect_percent(&tally(&world, family, vip(family), REQUESTS), "m0", 50);
}
