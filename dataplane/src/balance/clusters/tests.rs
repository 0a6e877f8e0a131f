//! Tests of choosing a cluster first: shares, no unnecessary moves of clients, retries.

use proptest::prelude::*;

use super::*;
use crate::balance::hash;
use crate::balance::tests::{endpoint, input};

/// Clusters with these loads and numbers of endpoints; the indices continue from cluster to cluster.
fn clusters(sizes: &[(u64, u32)]) -> Vec<ClusterSpec> {
    let mut index = 0;
    let mut clusters = Vec::new();
    for (number, &(load, size)) in sizes.iter().enumerate() {
        let member = |place: u32| ClusterMember {
            index: index + place,
            identity: hash::endpoint(endpoint(1000 * number as u32 + place)),
            weight: 100,
        };
        let members = (0..size).map(member).collect();
        clusters.push(ClusterSpec { identity: hash::cluster(&format!("member{number}")), load, members });
        index += size;
    }
    clusters
}

fn maglev(clusters: &[ClusterSpec]) -> Clusters {
    Clusters::new(Inside::Maglev, clusters.to_vec(), &[])
}

/// The cluster and the identity of the endpoint that a client gets.
fn goes(clusters: &[ClusterSpec], balancer: &Clusters, client: u64) -> (u64, u64) {
    let index = balancer.choose(&PickInput { hash: hash::mix(client), ..input() }) as u32;
    let hit = |cluster: &ClusterSpec| {
        let member = cluster.members.iter().find(|member| member.index == index)?;
        Some((cluster.identity, member.identity))
    };
    clusters.iter().find_map(hit).unwrap()
}

/// The choice for each of 10,000 clients.
fn all(clusters: &[ClusterSpec]) -> Vec<(u64, u64)> {
    let balancer = maglev(clusters);
    (1..=10_000).map(|client| goes(clusters, &balancer, client)).collect()
}

#[test]
fn clusters_are_chosen_by_load_whatever_their_size() {
    let clusters = clusters(&[(3, 2), (1, 50), (4, 7)]);
    let chosen = all(&clusters);
    for (cluster, wanted) in clusters.iter().zip([0.375, 0.125, 0.5]) {
        let hits = chosen.iter().filter(|(identity, _)| *identity == cluster.identity).count();
        assert!((hits as f64 / chosen.len() as f64 - wanted).abs() < 0.02, "wanted {wanted}, got {hits}");
    }
}

#[test]
fn decisions_are_the_same_in_every_version() {
    let clusters = clusters(&[(100, 3), (50, 3), (1, 3)]);
    let balancer = maglev(&clusters);
    let choices: Vec<usize> =
        (1..=12).map(|client| balancer.choose(&PickInput { hash: hash::mix(client), ..input() })).collect();
    assert_eq!(choices, [5, 3, 1, 2, 1, 0, 1, 1, 5, 0, 2, 1]);
}

#[test]
fn endpoints_that_come_and_go_in_one_cluster_move_no_client_of_another() {
    let before = clusters(&[(1, 10), (1, 10), (1, 10)]);
    let mut after = before.clone();
    after[1].members.remove(4);
    let gone = before[1].members[4].identity;
    for ((cluster, endpoint), after) in all(&before).into_iter().zip(all(&after)) {
        assert_eq!(after.0, cluster, "every client stays in its cluster");
        if cluster != before[1].identity {
            assert_eq!(after.1, endpoint);
        }
        assert_ne!(after.1, gone);
    }
}

#[test]
fn a_cluster_of_many_endpoints_has_a_table_and_keeps_it_while_they_are_the_same() {
    let before = clusters(&[(1, 33), (1, 40), (1, 32)]);
    let mut after = before.clone();
    after[1].members.remove(4);
    after[0].load = 7;
    after[0].members.iter_mut().for_each(|member| member.index += 1);
    let known: Vec<Arc<Maglev>> = maglev(&before).maglevs().cloned().collect();
    assert_eq!(known.len(), 2);
    let balancer = Clusters::new(Inside::Maglev, after, &known);
    let kept = |maglev: &&Arc<Maglev>| known.iter().any(|known| Arc::ptr_eq(known, maglev));
    assert_eq!((balancer.maglevs().count(), balancer.maglevs().filter(kept).count()), (2, 1));
    assert_eq!(Clusters::new(Inside::LeastConnections, before, &[]).maglevs().count(), 0);
}

#[test]
fn after_two_failures_in_a_cluster_the_client_goes_to_another() {
    let clusters = clusters(&[(1, 10), (1, 10), (1, 10)]);
    let balancer = maglev(&clusters);
    for client in 1..200 {
        let mut tried: Vec<usize> = Vec::new();
        let mut visited = Vec::new();
        for _ in 0..5 {
            let was_tried = |index: usize| tried.contains(&index);
            let ask = PickInput { hash: hash::mix(client), tried: Some(&was_tried), ..input() };
            let index = balancer.choose(&ask);
            visited.push(index / 10);
            tried.push(index);
        }
        assert!(visited[0] == visited[1] && visited[1] != visited[2], "{visited:?}");
        assert!(visited[2] == visited[3] && visited[3] != visited[4], "{visited:?}");
        assert_ne!(visited[4], visited[0]);
    }
}

proptest! {
    #[test]
    fn a_load_that_falls_moves_only_clients_of_its_cluster(
        loads in prop::collection::vec(1u64..1 << 40, 2..20), fallen in any::<prop::sample::Index>(), part in 0.0f64..1.0,
    ) {
        let before = clusters(&loads.iter().map(|&load| (load, 1)).collect::<Vec<_>>());
        let mut after = before.clone();
        let fallen = fallen.index(after.len());
        after[fallen].load = ((after[fallen].load as f64 * part) as u64).max(1);
        let balancers = [maglev(&before), maglev(&after)];
        for client in 1..500 {
            let went = goes(&before, &balancers[0], client);
            prop_assert!(went.0 == before[fallen].identity || goes(&after, &balancers[1], client) == went);
        }
    }

    #[test]
    fn retries_reach_every_candidate_once_before_any_twice(
        sizes in prop::collection::vec((1u64..100, 1u32..6), 1..6), client in any::<u64>(),
    ) {
        let balancer = maglev(&clusters(&sizes));
        let candidates: u32 = sizes.iter().map(|&(_, size)| size).sum();
        let mut tried: Vec<usize> = Vec::new();
        for _ in 0..candidates {
            let was_tried = |index: usize| tried.contains(&index);
            let next = balancer.choose(&PickInput { hash: client, tried: Some(&was_tried), ..input() });
            prop_assert!(!tried.contains(&next));
            tried.push(next);
        }
        let again = balancer.choose(&PickInput { hash: client, tried: Some(&|_| true), ..input() });
        prop_assert_eq!(again, tried[0]);
    }
}
