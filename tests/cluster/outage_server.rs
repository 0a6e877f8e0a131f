//! Tests of an unreachable API server: gateways keep forwarding, even those that are started meanwhile, and report it.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crate::outage_kit::{
    RECOVERY, address, load, metric, published_service, served, wait_for_answer, wait_for_snapshot,
    wait_for_status, wait_until_true_to_the_server,
};
use crate::stage::{Home, Role, Sheave, Stage};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually, eventually_within, let_pass, patience};
use crate::support::road::Road;

/// Pause of the client with two gateways between requests, since ports stay in TIME_WAIT for a minute.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(4);

/// Waits until every kind has an error.
fn wait_until_noticed(gateway: &Sheave<'_>) {
    wait_for_status(gateway, "the gateway knows that the server is away", |status| {
        status["source"]["kinds"].as_array().unwrap().iter().all(|kind| kind["error"].is_string())
    });
}

#[test]
fn a_gateway_forwards_all_through_an_outage() {
    let cluster = Cluster::start("outage");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    published_service(&cluster, "web", address(100));
    stage.slice("web", &[0, 1]);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, ""));
    let load = load(&stage, vec![address(100)]);
    road.close();
    wait_until_noticed(&gateway);
    gateway.wait_for_log("the API server cannot be reached: ");
    assert!(gateway.is_ready(), "a gateway that forwards is ready");
    assert!(metric(&gateway, "sheave_source_last_heard_seconds{kind=\"Service\"}").is_some());
    assert_eq!(
        metric(&gateway, "sheave_source_from_snapshot"),
        Some(0.0),
        "what it knows is newer than the snapshot"
    );
    let text = gateway.status_text();
    // How each connection ended decides which kinds share a line.
    let told = "cannot be watched: the API server cannot be reached: ";
    assert!(text.contains(told) && text.contains("their last known state stays in force"), "{text}");
    // Changes during the outage.
    stage.slice("web", &[2]);
    published_service(&cluster, "later", address(101));
    stage.slice("later", &[1]);
    load.wait_for(300);
    assert_ne!(stage.ask(address(100), 80).unwrap(), "endpoint-2", "the server cannot have said so");
    road.reopen();
    wait_for_answer(&stage, address(100), 80, "endpoint-2");
    wait_for_answer(&stage, address(101), 80, "endpoint-1");
    wait_until_true_to_the_server(&gateway, &cluster);
    load.expect_no_failure();
    gateway.wait_for_log("can be read now");
    wait_for_status(&gateway, "nothing is wrong any more", |status| {
        status["source"]["kinds"].as_array().unwrap().iter().all(|kind| kind["error"].is_null())
    });
    let text = gateway.status_text();
    assert!(text.contains("Nothing is wrong.\n"), "{text}");
}

/// Kind of outage.
#[derive(Clone, Copy)]
enum Away {
    /// Connections are refused.
    Refusing,
    /// Connections are accepted, but get no answer.
    Hanging,
}

impl Away {
    fn begin(self, road: &Road<'_>) {
        match self {
            Self::Refusing => road.close(),
            Self::Hanging => road.jam(),
        }
    }

    fn end(self, road: &Road<'_>) {
        match self {
            Self::Refusing => road.reopen(),
            Self::Hanging => road.free(),
        }
    }
}

/// Ends a gateway that has a snapshot, and restarts it during the outage.
fn restarts_without_the_server(name: &str, role: Role, away: Away) {
    let cluster = Cluster::start(name);
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    published_service(&cluster, "web", address(102));
    published_service(&cluster, "api", address(103));
    stage.slice("web", &[0]);
    stage.slice("api", &[1]);
    let road = stage.road();
    let home = stage.home(role, &road, "");
    let gateway = stage.start(&home);
    assert_eq!(metric(&gateway, "sheave_source_from_snapshot"), Some(0.0));
    let before = served(&gateway, &cluster);
    assert_eq!(before.len(), 2);
    wait_for_snapshot(&gateway);
    away.begin(&road);
    gateway.kill();
    stage.ask(address(102), 80).unwrap_err();

    let gateway = stage.start(&home);
    assert_eq!(served(&gateway, &cluster), before, "the same table");
    assert_eq!(stage.ask(address(102), 80).unwrap(), "endpoint-0");
    assert_eq!(stage.ask(address(103), 80).unwrap(), "endpoint-1");
    tells_of_the_snapshot(&gateway);
    // Changes during the outage.
    stage.slice("web", &[2]);
    cluster.delete("Service", "api");
    let load = load(&stage, vec![address(102)]);
    load.wait_for(100);
    away.end(&road);
    wait_for_answer(&stage, address(102), 80, "endpoint-2");
    wait_until_true_to_the_server(&gateway, &cluster);
    // If there is a controller, its finalizer keeps the Service until the lease of the killed one has expired.
    eventually_within(patience(RECOVERY), "what was deleted is served no more", || {
        match stage.ask(address(103), 80) {
            Err(_) => Ok(()),
            Ok(name) => Err(name),
        }
    });
    load.expect_no_failure();
    gateway.wait_for_log("the API server answers again: the snapshot is no longer used");
    assert_eq!(metric(&gateway, "sheave_source_from_snapshot"), Some(0.0));
    let status = gateway.page("/api/status");
    assert_eq!(
        (&status["source"]["fromSnapshot"], &status["source"]["synced"]),
        (&false.into(), &true.into())
    );
}

fn tells_of_the_snapshot(gateway: &Sheave<'_>) {
    gateway.wait_for_log("the API server does not answer: serving its last known objects from the snapshot");
    assert_eq!(metric(gateway, "sheave_source_from_snapshot"), Some(1.0));
    let status = gateway.page("/api/status");
    assert_eq!(
        (&status["source"]["fromSnapshot"], &status["source"]["synced"]),
        (&true.into(), &false.into())
    );
    assert!(status["source"]["snapshot"]["ageSeconds"].is_u64(), "{status}");
    let text = gateway.status_text();
    let told = " old, and sees no changes until the API server at ";
    assert!(text.contains("it serves from the snapshot, ") && text.contains(told), "{text}");
}

#[test]
fn a_gateway_that_is_started_while_the_server_is_away_serves_by_the_snapshot() {
    restarts_without_the_server("restart", Role::Gateway, Away::Refusing);
}

#[test]
fn a_gateway_that_is_started_while_the_server_hangs_serves_by_the_snapshot() {
    restarts_without_the_server("hang", Role::Gateway, Away::Hanging);
}

#[test]
fn a_gateway_with_its_controller_serves_by_the_snapshot_as_well() {
    restarts_without_the_server("restart-run", Role::Run, Away::Refusing);
}

#[test]
fn connections_survive_while_gateways_are_replaced_one_after_another_and_the_server_is_away() {
    let cluster = Cluster::start("rolling");
    let stages = [Stage::new(&cluster), Stage::new(&cluster)];
    let _endpoints = stages.each_ref().map(Stage::endpoints);
    published_service(&cluster, "web", address(104));
    stages[0].slice("web", &[0, 1]);
    let roads = stages.each_ref().map(Stage::road);
    let homes = [0, 1].map(|index| stages[index].home(Role::Gateway, &roads[index], ""));
    let mut gateways = [0, 1].map(|index| Some(stages[index].start(&homes[index])));
    gateways.iter().flatten().for_each(|gateway| wait_for_snapshot(gateway));
    let (stop, done, replaced) = (AtomicBool::new(false), AtomicU64::new(0), AtomicUsize::new(NOBODY));
    thread::scope(|scope| {
        let client = scope.spawn(|| ask_either(&stages, &stop, &done, &replaced));
        let stopping = Stopping(&stop);
        roads.iter().for_each(Road::close);
        for index in [0, 1, 0, 1] {
            replaced.store(index, Ordering::SeqCst);
            replace(&stages[index], &homes[index], &mut gateways[index], &done);
        }
        replaced.store(NOBODY, Ordering::SeqCst);
        // Changes after all this take effect on both.
        stages[0].slice("web", &[2]);
        roads.iter().for_each(Road::reopen);
        for stage in &stages {
            wait_for_answer(stage, address(104), 80, "endpoint-2");
        }
        drop(stopping);
        assert_eq!(client.join().unwrap(), Vec::<String>::new(), "no connection failed");
    });
}

/// No gateway is being replaced.
const NOBODY: usize = usize::MAX;

/// Sets the flag when dropped, so that threads stop however the case ends.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Replaces a gateway like a DaemonSet: the new Pod starts after the old one has ended.
fn replace<'s>(stage: &'s Stage<'_>, home: &Home, gateway: &mut Option<Sheave<'s>>, done: &AtomicU64) {
    if let Some(old) = gateway.take() {
        assert!(old.stop().success());
    }
    let new = stage.start(home);
    assert_eq!(metric(&new, "sheave_source_from_snapshot"), Some(1.0));
    *gateway = Some(new);
    let target = done.load(Ordering::SeqCst) + 50;
    eventually("clients meet the new one", || match done.load(Ordering::SeqCst) {
        now if now >= target => Ok(()),
        now => Err(format!("{} to go", target - now)),
    });
}

/// A client that has the addresses of both gateways, as from two DNS records, and tries the other one if a connection is refused.
/// Only the gateway that is being replaced may refuse, and an accepted connection must not fail. This does not show whether the
/// replacement itself refuses connections.
fn ask_either(
    stages: &[Stage<'_>; 2],
    stop: &AtomicBool,
    done: &AtomicU64,
    replaced: &AtomicUsize,
) -> Vec<String> {
    let mut failures = Vec::new();
    while !stop.load(Ordering::SeqCst) && failures.len() < 5 {
        let first = fastrand::usize(..2);
        let mut answered = false;
        for index in [first, 1 - first] {
            let before = replaced.load(Ordering::SeqCst);
            let answer = stages[index].ask(address(104), 80);
            let may_refuse = [before, replaced.load(Ordering::SeqCst)].contains(&index);
            match answer {
                Ok(_) => answered = true,
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && may_refuse => continue,
                Err(error) => failures
                    .push(format!("request {}, gateway {index}: {error}", done.load(Ordering::SeqCst))),
            }
            break;
        }
        if !answered && failures.is_empty() {
            failures.push(format!("request {}: nobody listens", done.load(Ordering::SeqCst)));
        }
        done.fetch_add(1, Ordering::SeqCst);
        let_pass(PAUSE);
    }
    failures
}
