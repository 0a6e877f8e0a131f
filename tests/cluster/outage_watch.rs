//! Tests of watches that are cut, and of bursts: whatever happens to the events, the last state is served.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::outage_kit::{
    RECOVERY, address, change, load, publish, published_service, serve_web, wait_for_answer, wait_for_status,
    wait_until_true_to_the_server,
};
use crate::stage::{Role, Sheave, Stage};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};

/// Services whose slices change all the time.
const SERVICES: u8 = 8;
/// How often every watch is cut.
const CUTS: u32 = 100;
/// Endpoints of each turn. There is always one, so that no connection has to fail.
const READY: [&[usize]; 5] = [&[0], &[0, 1], &[1, 2], &[2], &[0, 1, 2]];
/// Changes of one slice in a burst.
const BURST: u64 = 1000;

/// Ends the churn however the case ends, since a scope waits for its threads.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn generation(gateway: &Sheave<'_>) -> u64 {
    gateway.page("/api/status")["generation"].as_u64().expect("a table has a generation")
}

fn wait_for_more(what: &str, than: u64, mut count: impl FnMut() -> u64) {
    eventually_within(patience(RECOVERY), what, || match count() {
        now if now > than => Ok(()),
        now => Err(format!("still {now}")),
    });
}

#[test]
fn watches_that_are_cut_a_hundred_times_under_churn_lose_nothing() {
    let cluster = Cluster::start("cuts");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    let addresses: Vec<IpAddr> = (0..SERVICES).map(|number| address(70 + number)).collect();
    for (number, address) in addresses.iter().enumerate() {
        published_service(&cluster, &format!("web-{number}"), *address);
        stage.slice(&format!("web-{number}"), READY[0]);
    }
    published_service(&cluster, "moving", address(90));
    stage.slice("moving", READY[0]);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, ""));
    let load = load(&stage, addresses);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _until = Until(&stop);
        scope.spawn(|| churn(&cluster, &stage, &stop));
        for _ in 0..CUTS {
            let (changes, connections) = (generation(&gateway), road.connections());
            // Cut watches only after they have sent something.
            wait_for_more("changes arrive", changes, || generation(&gateway));
            road.cut();
            wait_for_more("it comes back", connections as u64, || road.connections() as u64);
        }
    });
    wait_until_true_to_the_server(&gateway, &cluster);
    load.expect_no_failure();
    let status = wait_for_status(&gateway, "every watch runs", |status| {
        status["source"]["kinds"].as_array().unwrap().iter().all(|kind| kind["error"].is_null())
    });
    assert_eq!(status["problems"], 0, "{status}");
}

/// Changes slices all the time, and occasionally a Service.
fn churn(cluster: &Cluster, stage: &Stage<'_>, stop: &AtomicBool) {
    for turn in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let name = format!("web-{}", turn % usize::from(SERVICES));
        stage.slice(&name, READY[fastrand::usize(..READY.len())]);
        if turn % 16 == 0 {
            publish(cluster, "moving", address(if turn % 32 == 0 { 90 } else { 91 }));
        }
    }
}

#[test]
fn a_burst_of_a_thousand_changes_becomes_a_few_updates() {
    let cluster = Cluster::start("burst");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 65);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, ""));
    let before = generation(&gateway);
    // They pile up on the road, and reach the gateway at once.
    road.jam();
    for turn in 0..BURST {
        let ready = if turn % 2 == 0 { "10.1.0.7" } else { "10.1.0.8" };
        let endpoints = json!([{"addresses": [ready], "conditions": {"ready": true}}]);
        change(&cluster, "EndpointSlice", "web-1", &json!({"endpoints": endpoints}));
    }
    stage.slice("web", &[2]);
    road.free();
    wait_for_answer(&stage, address(65), 80, "endpoint-2");
    wait_until_true_to_the_server(&gateway, &cluster);
    let updates = generation(&gateway) - before;
    assert!((1..=BURST / 10).contains(&updates), "{updates} updates for {BURST} changes");
}
