//! Tests of draining a cluster, in each way that requests it: open connections continue, no new ones arrive, and the
//! cluster is used again as soon as nothing requests a drain.

use crate::support::fleet::{Cluster, Exposure};
use crate::support::gateway::{Gateway, Settings};
use crate::support::load::Load;
use crate::support::manifest::{at, vip};
use crate::support::members::{cluster_of, endpoints, serve, tally};
use crate::support::patience::{eventually, eventually_within, patience};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    the_annotation_drains_a_cluster,
    the_annotation_of_a_cluster_drains_it,
    a_cluster_that_is_being_deleted_drains,
    a_taint_that_evicts_drains_a_cluster_and_others_do_not,
    flows_of_a_drained_cluster_go_on,
    a_cluster_that_is_not_ready_keeps_its_traffic_until_the_hold_is_over,
);

fn shop(family: Family) -> Exposure {
    let ready =
        |shop: Exposure, cluster: u16| shop.ready(&format!("m{cluster}"), endpoints(family, cluster, 2));
    (0..2).fold(Exposure::new("shop", &[family.vip(0)]).tcp(80, 9000).udp(53, 5300), ready)
}

fn clusters(first: Cluster) -> [Cluster; 2] {
    [first, Cluster::new("m1")]
}

fn start(world: &World, family: Family) -> Gateway<'_> {
    let known = clusters(Cluster::new("m0"));
    Gateway::start_in_fleet(world, &[shop(family)], &known, &Settings::default())
}

/// An open connection to the cluster.
fn conversation_with(world: &World, family: Family, cluster: &str) -> Conversation {
    eventually(&format!("{cluster} takes a connection"), || {
        match world.client.run(|| Conversation::open(vip(family))) {
            Ok(talk) if cluster_of(&talk.with.name) == cluster => Ok(talk),
            other => Err(format!("{:?}", other.map(|talk| talk.with))),
        }
    })
}

/// Drains cluster m0 under load, and restores it.
fn expect_a_drain(family: Family, drain: impl FnOnce(&Gateway<'_>), bring_back: impl FnOnce(&Gateway<'_>)) {
    let world = World::with_addresses(2, 2);
    let servers = [0, 1].map(|cluster| serve(&world, family, cluster, 2, 9000));
    let accepted = || servers[0].iter().map(tcp::Server::accepted).sum::<usize>();
    let gateway = start(&world, family);
    let mut talks = ["m0", "m1"].map(|cluster| conversation_with(&world, family, cluster));
    let load = Load::start(&world.client, 2, move |thread| {
        tcp::ask_from(family.client(u16::try_from(thread).expect("few threads")), vip(family)).map(drop)
    });
    load.wait_for(20);
    drain(&gateway);
    eventually("nothing new comes", || {
        let tally = tally(&world, family, vip(family), 20);
        if tally.contains_key("m0") { Err(format!("{tally:?}")) } else { Ok(()) }
    });
    let before = accepted();
    load.wait_for(50);
    assert_eq!(accepted(), before, "it takes nothing");
    for talk in &mut talks {
        talk.say("still there?").expect("what is open goes on");
    }
    bring_back(&gateway);
    eventually("it is back", || {
        let tally = tally(&world, family, vip(family), 20);
        if tally.contains_key("m0") { Ok(()) } else { Err(format!("{tally:?}")) }
    });
    for talk in &mut talks {
        talk.say("still there?").expect("what is open goes on");
    }
    load.expect_no_failure();
}

fn the_annotation_drains_a_cluster(family: Family) {
    expect_a_drain(
        family,
        |gateway| gateway.expose(&[shop(family).annotation("sheave.dev/drain", "m0")]),
        |gateway| gateway.expose(&[shop(family)]),
    );
}

fn the_annotation_of_a_cluster_drains_it(family: Family) {
    expect_a_drain(
        family,
        |gateway| gateway.set_clusters(&clusters(Cluster::new("m0").drained())),
        |gateway| gateway.set_clusters(&clusters(Cluster::new("m0"))),
    );
}

fn a_cluster_that_is_being_deleted_drains(family: Family) {
    expect_a_drain(
        family,
        |gateway| gateway.set_clusters(&clusters(Cluster::new("m0").deleted())),
        |gateway| gateway.set_clusters(&clusters(Cluster::new("m0"))),
    );
}

/// Karmada itself adds `NoSchedule` to every cluster that is not Ready, which says nothing about its workloads.
fn a_taint_that_evicts_drains_a_cluster_and_others_do_not(family: Family) {
    expect_a_drain(
        family,
        |gateway| gateway.set_clusters(&clusters(Cluster::new("m0").tainted("NoExecute"))),
        |gateway| gateway.set_clusters(&clusters(Cluster::new("m0").tainted("NoSchedule"))),
    );
}

fn flows_of_a_drained_cluster_go_on(family: Family) {
    let world = World::with_addresses(2, 2);
    let serve = |cluster: u16| {
        let host = world.backend(usize::from(cluster));
        let serve = |ip| udp::Server::who_am_i(host, at(ip, 5300), &format!("m{cluster}"));
        endpoints(family, cluster, 2).into_iter().map(serve).collect::<Vec<_>>()
    };
    let _servers = [serve(0), serve(1)];
    let gateway = start(&world, family);
    let client = || udp::Client::new(&world.client, family.client(0), at(family.vip(0), 53));
    let name = |client: &udp::Client| client.ask().expect("the flow is served").name;
    let open = eventually("a flow with m0", || {
        let client = client();
        if name(&client) == "m0" { Ok(client) } else { Err("m1") }
    });
    gateway.expose(&[shop(family).annotation("sheave.dev/drain", "m0")]);
    for _ in 0..40 {
        assert_eq!(name(&client()), "m1", "nothing new comes");
        assert_eq!(name(&open), "m0", "what is open goes on");
    }
}

/// Ready is only about the cluster's API server.
fn a_cluster_that_is_not_ready_keeps_its_traffic_until_the_hold_is_over(family: Family) {
    let world = World::with_addresses(2, 2);
    let _servers = [0, 1].map(|cluster| serve(&world, family, cluster, 2, 9000));
    let away = |moment: &str| clusters(Cluster::new("m0").not_ready_since(moment));
    let long_ago = away("2026-01-01T00:00:00Z");
    let gateway = Gateway::start_in_fleet(&world, &[shop(family)], &long_ago, &Settings::default());
    let both = tally(&world, family, vip(family), 40);
    assert!(both.contains_key("m0"), "without a hold its endpoints count: {both:?}");
    drop(gateway);

    let settings = Settings { config: "karmada: {notReadyHold: 5s}\n", ..Settings::default() };
    let ready = clusters(Cluster::new("m0"));
    let gateway = Gateway::start_in_fleet(&world, &[shop(family)], &ready, &settings);
    let mut talk = conversation_with(&world, family, "m0");
    gateway.set_clusters(&away(&jiff::Timestamp::now().to_string()));
    // There are no other changes: the end of the hold must be noticed on its own.
    eventually_within(patience(30.0), "the hold is over", || {
        let tally = tally(&world, family, vip(family), 20);
        if tally.contains_key("m0") { Err(format!("{tally:?}")) } else { Ok(()) }
    });
    talk.say("still there?").expect("what is open goes on");
    gateway.set_clusters(&ready);
    drop(conversation_with(&world, family, "m0"));
}
