//! Tests of session affinity across clusters: a client stays with its endpoint, and if that is removed, with
//! its cluster.

use std::collections::BTreeSet;

use crate::support::fleet::{Cluster, Exposure};
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::at;
use crate::support::members::{cluster_of, endpoints, serve};
use crate::support::tcp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    a_client_whose_endpoint_leaves_stays_in_its_cluster,
    a_client_whose_cluster_drains_moves_once,
);

/// Number of endpoints in each cluster.
const ENDPOINTS: u16 = 4;

fn shop(family: Family) -> Exposure {
    Exposure::new("shop", &[family.vip(0)]).tcp(80, 9000).affinity(3600)
}

fn all(family: Family) -> Exposure {
    shop(family).ready("m0", endpoints(family, 0, ENDPOINTS)).ready("m1", endpoints(family, 1, ENDPOINTS))
}

fn start(world: &World, family: Family) -> Gateway<'_> {
    let clusters = [Cluster::new("m0"), Cluster::new("m1")];
    Gateway::start_in_fleet(world, &[all(family)], &clusters, &Settings::default())
}

fn ask_as(world: &World, family: Family, client: u16) -> String {
    let ask = || tcp::ask_from(family.client(client), at(family.vip(0), 80));
    world.client.run(ask).expect("the request is served").name
}

/// Endpoint of each client. Asks several times, so that each worker has served each client.
fn homes(world: &World, family: Family) -> Vec<String> {
    let home = |client| {
        let home = ask_as(world, family, client);
        for _ in 0..10 {
            assert_eq!(ask_as(world, family, client), home, "client {client}");
        }
        home
    };
    (0..CLIENTS).map(home).collect()
}

fn a_client_whose_endpoint_leaves_stays_in_its_cluster(family: Family) {
    let world = World::with_addresses(2, ENDPOINTS);
    let _servers = [0, 1].map(|cluster| serve(&world, family, cluster, ENDPOINTS, 9000));
    let gateway = start(&world, family);
    let mut before = homes(&world, family);
    let used: BTreeSet<&str> = before.iter().map(|home| cluster_of(home)).collect();
    assert_eq!(used.len(), 2, "{CLIENTS} clients share one cluster: {before:?}");
    // Each endpoint in turn is removed from both clusters, and returns when the next one is removed.
    for gone in 0..ENDPOINTS {
        let rest = |cluster| {
            let ip = family.backend_address(cluster, gone);
            endpoints(family, cluster, ENDPOINTS).into_iter().filter(move |other| *other != ip)
        };
        gateway.expose(&[shop(family).ready("m0", rest(0)).ready("m1", rest(1))]);
        let after = homes(&world, family);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(cluster_of(before), cluster_of(after), "{before} to {after} without -{gone}");
            if !before.ends_with(&format!("-{gone}")) {
                assert_eq!(before, after, "its endpoint is still there");
            }
        }
        before = after;
    }
}

fn a_client_whose_cluster_drains_moves_once(family: Family) {
    let world = World::with_addresses(2, ENDPOINTS);
    let _servers = [0, 1].map(|cluster| serve(&world, family, cluster, ENDPOINTS, 9000));
    let gateway = start(&world, family);
    let before = homes(&world, family);
    gateway.expose(&[all(family).annotation("sheave.dev/drain", "m0")]);
    let drained = homes(&world, family);
    for (before, after) in before.iter().zip(&drained) {
        assert_eq!(cluster_of(after), "m1");
        if cluster_of(before) == "m1" {
            assert_eq!(before, after, "its cluster is not drained");
        }
    }
    gateway.expose(&[all(family)]);
    assert_eq!(homes(&world, family), drained, "nobody moves back");
}
