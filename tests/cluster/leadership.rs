//! Tests with several controllers: one leads, and the others stand by. A controller that has lost the lead writes
//! nothing, whatever it knew.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{LEASE, our_conditions, wait_for, wait_until_clean, wait_until_leading};
use crate::stage::{
    REST, Role, Sheave, Stage, pool, published, service, wait_for_addresses, wait_until_gone,
};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::road::Road;

/// Two controllers, each with its own road. The first leads, and has published Service `web`.
struct Pair<'a> {
    cluster: &'a Cluster,
    leader: Sheave<'a>,
    standby: Sheave<'a>,
    road: &'a Road<'a>,
    addresses: Vec<std::net::IpAddr>,
}

fn two_controllers(name: &str, case: impl FnOnce(Pair<'_>)) {
    let cluster = Cluster::start(name);
    let stage = Stage::new(&cluster);
    let (first, second) = (stage.road(), stage.road());
    let homes = [&first, &second].map(|road| stage.home(Role::Controller, road, ""));
    pool(&cluster, name, "203.0.113.50-203.0.113.59");
    let leader = stage.start(&homes[0]);
    wait_until_leading(&leader);
    let standby = stage.start(&homes[1]);
    service(&cluster, "web", "");
    let addresses = wait_for_addresses(&cluster, "web");
    eventually_within(patience(20.0), "the other sees who leads", || {
        let status = standby.page("/api/status");
        if status["controller"]["leader"].is_string() { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(standby.page("/api/status")["controller"]["leading"], false);
    case(Pair { cluster: &cluster, leader, standby, road: &first, addresses });
}

#[test]
fn the_other_takes_over_when_the_leader_dies() {
    two_controllers("dies", |pair| {
        pair.leader.kill();
        service(pair.cluster, "next", "");
        wait_until_leading(&pair.standby);
        wait_for_addresses(pair.cluster, "next");
        assert_eq!(published(&pair.cluster.get("Service", "web").unwrap()), pair.addresses);
    });
}

#[test]
fn the_other_takes_over_at_once_when_the_leader_is_stopped() {
    two_controllers("stops", |pair| {
        assert!(pair.leader.stop().success());
        let lease = pair.cluster.get("Lease", LEASE).unwrap();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let standby = pair.standby.page("/api/status")["controller"].clone();
        assert!(holder.is_empty() || standby["leading"] == true, "{lease} {standby}");
        // Shorter than the lease, so the Lease must have been released.
        eventually_within(patience(10.0), "the other leads", || {
            let status = pair.standby.page("/api/status");
            if status["controller"]["leading"] == true { Ok(()) } else { Err(status.to_string()) }
        });
        service(pair.cluster, "next", "");
        wait_for_addresses(pair.cluster, "next");
        assert_eq!(published(&pair.cluster.get("Service", "web").unwrap()), pair.addresses);
    });
}

#[test]
fn a_leader_goes_by_a_configuration_that_it_reads_again() {
    let cluster = Cluster::start("reread");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let home = stage.home(Role::Controller, &road, "");
    pool(&cluster, "reread", "203.0.113.50-203.0.113.59");
    let leader = stage.start(&home);
    wait_until_leading(&leader);
    service(&cluster, "web", "");
    let addresses = wait_for_addresses(&cluster, "web");
    let holder = || cluster.get("Lease", LEASE).unwrap()["spec"]["leaseTransitions"].clone();
    let before = holder();
    cluster.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: classless}\nspec: {type: LoadBalancer, \
         allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}\n",
    );
    stage.add_to_config(
        &home,
        "handleUnclassified: true\nleaderElection: {retryPeriod: 1s}\nsteering: never\n",
    );
    leader.signal(Signal::SIGHUP);
    wait_for_addresses(&cluster, "classless");
    let log = leader.log();
    let named = [
        "in_force=\"handleUnclassified\"",
        "needs_restart=\"leaderElection.retryPeriod\"",
        "unused=\"steering\"",
    ];
    assert!(named.iter().all(|named| log.contains(named)), "{log}");
    assert_eq!(published(&cluster.get("Service", "web").unwrap()), addresses);
    assert_eq!(holder(), before, "it has led all the time");
}

#[test]
fn a_leader_that_is_cut_off_stops_and_the_other_takes_over() {
    two_controllers("cutoff", |pair| {
        // A write that is on the road when it is jammed arrives once it is free.
        pool_status_has_settled(pair.cluster, "cutoff", 1);
        pair.road.jam();
        service(pair.cluster, "next", "");
        wait_until_leading(&pair.standby);
        wait_until_not_leading(&pair.leader);
        let next = wait_for_addresses(pair.cluster, "next");
        assert_eq!(published(&pair.cluster.get("Service", "web").unwrap()), pair.addresses);
        pool_status_has_settled(pair.cluster, "cutoff", 2);
        let before = versions(pair.cluster);
        pair.road.free();
        eventually_within(patience(30.0), "it sees who leads now", || {
            let status = pair.leader.page("/api/status");
            if status["controller"]["leader"].is_string() { Ok(()) } else { Err(status.to_string()) }
        });
        let_pass(REST);
        assert_eq!(versions(pair.cluster), before, "neither of the two has anything to write");
        assert_eq!(wait_for_addresses(pair.cluster, "next"), next);
        assert_eq!(pair.leader.page("/api/status")["controller"]["leading"], false);
    });
}

#[test]
fn a_leader_that_was_stopped_in_its_tracks_writes_nothing_when_it_goes_on() {
    two_controllers("frozen", |pair| {
        let cluster = pair.cluster;
        pair.leader.signal(Signal::SIGSTOP);
        // The sleeping leader gets all of these changes only after it wakes up, or would revert them by what it knows.
        let away = json!({"spec": {"type": "ClusterIP"}});
        cluster.merge("Service", "web", "someone", &away).unwrap();
        service(cluster, "next", "");
        wait_until_leading(&pair.standby);
        wait_until_clean(cluster, "web");
        assert_eq!(wait_for_addresses(cluster, "next"), pair.addresses, "the address went to the next one");
        pool_status_has_settled(cluster, "frozen", 1);
        let before = versions(cluster);
        pair.leader.signal(Signal::SIGCONT);
        wait_until_not_leading(&pair.leader);
        let_pass(REST);
        assert_eq!(versions(cluster), before, "it has written by what it knew");
        let log = pair.leader.log();
        assert_eq!(log.matches("no more").count(), 1, "the loss is logged once: {log}");
        assert!(our_conditions(&cluster.get("Service", "web").unwrap()).is_empty());
        // The other one still leads.
        cluster.delete("Service", "next");
        wait_until_gone(cluster, "Service", "next");
    });
}

fn wait_until_not_leading(controller: &Sheave<'_>) {
    eventually_within(patience(40.0), "it leads no more", || {
        let status = controller.page("/api/status");
        if status["controller"]["leading"] == false { Ok(()) } else { Err(status.to_string()) }
    });
}

/// The status of a pool may lag behind by some seconds.
fn pool_status_has_settled(cluster: &Cluster, name: &str, used: u64) {
    wait_for(cluster, ("AddressPool", name), "counts what is used", |pool| pool["status"]["used"] == used);
}

/// Revisions of everything that controllers decide. Events of the leader may follow later.
fn versions(cluster: &Cluster) -> Vec<Value> {
    let kinds = ["Service", "AddressPool"];
    let objects = kinds.iter().flat_map(|kind| cluster.list(kind));
    objects.map(|object| json!([object["metadata"]["name"], object["metadata"]["resourceVersion"]])).collect()
}
