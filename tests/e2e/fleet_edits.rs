//! Tests of changes in the Karmada control plane while traffic flows.

use serde_json::Value;

use crate::support::fleet::{Cluster, Exposure};
use crate::support::gateway::{Gateway, Settings};
use crate::support::load::Load;
use crate::support::manifest::{App, at, vip};
use crate::support::members::{endpoints, serve, tally};
use crate::support::patience::eventually;
use crate::support::tcp::{self, Conversation};
use crate::support::world::{Family, World};

for_both_families!(
    clusters_come_and_go_under_load_and_fail_no_request,
    clusters_that_nothing_is_known_of_change_nothing,
    services_and_multi_cluster_services_are_served_side_by_side,
    an_exposure_that_is_gone_refuses_and_finishes_its_connections,
);

fn shop(family: Family) -> Exposure {
    Exposure::new("shop", &[family.vip(0)]).tcp(80, 9000)
}

fn known() -> [Cluster; 3] {
    ["m0", "m1", "m2"].map(Cluster::new)
}

fn start<'w>(world: &'w World, exposures: &[Exposure]) -> Gateway<'w> {
    Gateway::start_in_fleet(world, exposures, &known(), &Settings::default())
}

fn clusters_come_and_go_under_load_and_fail_no_request(family: Family) {
    let world = World::new(3);
    let servers = [0, 1, 2].map(|cluster| serve(&world, family, cluster, 1, 9000));
    let without = |gone: u16| {
        let there = (0..3).filter(|cluster| *cluster != gone);
        there.fold(shop(family), |shop, cluster| {
            shop.ready(&format!("m{cluster}"), endpoints(family, cluster, 1))
        })
    };
    let gateway = start(&world, &[without(0)]);
    let load = Load::start(&world.client, 4, move |thread| {
        tcp::ask_from(family.client(u16::try_from(thread).expect("few threads")), vip(family)).map(drop)
    });
    for round in 1..=12 {
        load.wait_for(20);
        gateway.expose(&[without(round % 3)]);
        let gone = format!("m{}", round % 3);
        assert!(!tally(&world, family, vip(family), 20).contains_key(&gone), "{gone} has gone");
    }
    load.expect_no_failure();
    assert!(servers.iter().flatten().all(|server| server.accepted() > 10), "each had its turns");
}

/// Routes of a frontend, without counters.
fn frontend(gateway: &Gateway<'_>, family: Family) -> Value {
    let routes = gateway.routes();
    let frontends = routes.get("frontends").and_then(Value::as_array).expect("routes have frontends");
    let address = family.vip(0).to_string();
    let of_shop = |frontend: &&Value| frontend.get("address").and_then(Value::as_str) == Some(&address);
    frontends.iter().find(of_shop).cloned().unwrap_or_else(|| panic!("no frontend {address}: {routes}"))
}

/// Cluster objects come from another API server than the rest, which may fail on its own.
fn clusters_that_nothing_is_known_of_change_nothing(family: Family) {
    let world = World::new(3);
    let _servers = [0, 1, 2].map(|cluster| serve(&world, family, cluster, 1, 9000));
    let all = (0..3).fold(shop(family), |shop, cluster| {
        shop.ready(&format!("m{cluster}"), endpoints(family, cluster, 1))
    });
    let all = all.annotation("sheave.dev/cluster-priority", "m0,m1>m2");
    let gateway = start(&world, std::slice::from_ref(&all));
    let before = frontend(&gateway, family);
    gateway.set_clusters(&[]);
    // Read after the clusters were removed, or together with that.
    let other = Exposure::new("other", &[family.vip(1)]).tcp(80, 9000).ready("m2", endpoints(family, 2, 1));
    gateway.expose(&[all, other]);
    assert_eq!(frontend(&gateway, family), before);
    let tally = tally(&world, family, vip(family), 40);
    assert_eq!(tally.into_keys().collect::<Vec<_>>(), ["m0", "m1"]);
    assert_eq!(gateway.problems(), Vec::<String>::new());
}

fn services_and_multi_cluster_services_are_served_side_by_side(family: Family) {
    let world = World::new(3);
    let _servers = [0, 1, 2].map(|cluster| serve(&world, family, cluster, 1, 9000));
    let far = shop(family).ready("m0", endpoints(family, 0, 1)).ready("m1", endpoints(family, 1, 1));
    let gateway = start(&world, &[far]);
    gateway.apply(&[App::new("web", &[family.vip(1)]).tcp(80, 9000).ready(family.backend(2))]);
    let near = tally(&world, family, at(family.vip(1), 80), 20);
    assert_eq!(near.into_keys().collect::<Vec<_>>(), ["m2"]);
    let far = tally(&world, family, vip(family), 40);
    assert_eq!(far.into_keys().collect::<Vec<_>>(), ["m0", "m1"]);
    let source = frontend(&gateway, family).get("source").cloned();
    assert_eq!(source, Some(Value::from("MultiClusterService")));
}

fn an_exposure_that_is_gone_refuses_and_finishes_its_connections(family: Family) {
    let world = World::new(3);
    let _servers = [0, 1, 2].map(|cluster| serve(&world, family, cluster, 1, 9000));
    let gateway = start(&world, &[shop(family).ready("m0", endpoints(family, 0, 1))]);
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    gateway.expose(&[]);
    eventually("it refuses", || match world.client.run(|| tcp::connect(vip(family))) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    });
    talk.say("still there?").unwrap();
}
