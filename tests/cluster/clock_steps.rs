//! Tests of clocks that are set or that differ between machines: leaders stay, and snapshots are used.

use serde_json::Value;

use crate::outage_kit::{address, serve_web, wait_for_snapshot};
use crate::scene::{LEASE, wait_until_leading};
use crate::stage::{Home, REST, Role, Sheave, Stage, pool, service, wait_for_addresses};
use crate::support::clock::Clock;
use crate::support::cluster::Cluster;
use crate::support::patience::let_pass;

const HOUR: i64 = 3600;

/// So short that decisions by the wrong clock show within [`REST`].
const ELECTION: &str = "leaderElection: {leaseDuration: 8s, renewDeadline: 6s, retryPeriod: 1s}\n";

fn lease(cluster: &Cluster) -> Value {
    cluster.get("Lease", LEASE).expect("there is a leader")["spec"].clone()
}

fn start<'s>(stage: &'s Stage<'_>, clock: &Clock, home: &Home) -> Sheave<'s> {
    let mut sheave = stage.launch_behind(&clock.prefix(), home);
    sheave.wait_until_ready();
    sheave
}

#[test]
fn whoever_leads_leads_on_whatever_the_clocks_show() {
    let cluster = Cluster::start("clocks");
    let stage = Stage::new(&cluster);
    let roads = [stage.road(), stage.road()];
    let clocks = [Clock::new(), Clock::new()];
    pool(&cluster, "clocks", "203.0.113.60-203.0.113.69");
    let start = |number: usize| {
        start(&stage, &clocks[number], &stage.home(Role::Controller, &roads[number], ELECTION))
    };
    let leader = start(0);
    wait_until_leading(&leader);
    let standby = start(1);
    let transitions = lease(&cluster)["leaseTransitions"].clone();
    for (step, hours) in [[1, 0], [-1, 1], [1, -1]].into_iter().enumerate() {
        let before = lease(&cluster)["renewTime"].clone();
        clocks.iter().zip(hours).for_each(|(clock, hours)| clock.set(hours * HOUR));
        let_pass(REST);
        assert_eq!(leader.page("/api/status")["controller"]["leading"], true, "{}", leader.log());
        assert_eq!(standby.page("/api/status")["controller"]["leading"], false);
        assert_eq!(lease(&cluster)["leaseTransitions"], transitions);
        let now = lease(&cluster)["renewTime"].clone();
        assert_ne!(
            before.as_str().and_then(|time| time.get(11..13)),
            now.as_str().and_then(|time| time.get(11..13)),
            "the leader's clock shows in the Lease: {before} {now}"
        );
        let name = format!("web-{step}");
        service(&cluster, &name, "");
        wait_for_addresses(&cluster, &name);
    }
    assert!(!leader.log().contains("no more"), "{}", leader.log());
    // The last renewal is an hour ahead of this machine's clock, and two hours ahead of the standby's.
    leader.kill();
    wait_until_leading(&standby);
    service(&cluster, "next", "");
    wait_for_addresses(&cluster, "next");
}

#[test]
fn a_snapshot_of_tomorrow_is_used_like_any_other() {
    let cluster = Cluster::start("future");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 140);
    let (road, clock) = (stage.road(), Clock::new());
    let home = stage.home(Role::Gateway, &road, "");
    let start = || start(&stage, &clock, &home);
    for hours in [24, -24] {
        clock.set(hours * HOUR);
        let gateway = start();
        wait_for_snapshot(&gateway);
        road.close();
        gateway.kill();
        clock.set(0);
        let gateway = start();
        assert_eq!(stage.ask(address(140), 80).expect("it serves"), "endpoint-0");
        let snapshot = gateway.page("/api/status")["source"]["snapshot"].clone();
        assert!(snapshot["ageSeconds"].is_u64(), "{snapshot}");
        road.reopen();
        gateway.kill();
    }
}
