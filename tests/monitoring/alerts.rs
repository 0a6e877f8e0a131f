//! Tests of alerts with real processes: which ones fire when something breaks, and that none fire before and after. `timing`
//! tests how long each waits; here, conditions need not last.

use std::fs;

use crate::prometheus::Prometheus;
use crate::rules;
use crate::scene::{Scene, WEB};
use crate::stage::{Role, wait_until_gone};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};

/// Waits until exactly these alerts fire.
fn expect(prometheus: &Prometheus<'_>, when: &str, alerts: &[&str]) {
    eventually_within(patience(60.0), when, || {
        let firing = prometheus.firing();
        if firing == alerts { Ok(()) } else { Err(format!("{firing:?} instead of {alerts:?}")) }
    });
    let shown = prometheus.alerts().to_string();
    assert!(!shown.contains("error expanding template") && !shown.contains("<no value>"), "{when}: {shown}");
}

#[test]
fn alerts_about_services_fire_while_something_is_wrong_with_one() {
    let cluster = Cluster::simulated("alerts");
    let scene = Scene::new(&cluster);
    let road = scene.stage.road();
    let gateway = scene.scraped(Role::Gateway, &road, "");
    let controller = scene.scraped(Role::Controller, &road, "");
    let _processes = [&gateway, &controller].map(|it| scene.stage.start(&it.home));
    let _udp = scene.udp_servers();
    let mut servers = scene.stage.endpoints();
    let address = scene.address();
    scene.stage.wait_until_served(address, 80);
    let _load = scene.load(address);
    let targets = [("sheave", gateway.metrics), ("sheave-controller", controller.metrics)];
    let prometheus = Prometheus::start(&scene.stage.host, &targets, &rules::impatient());
    let expect = |when: &str, alerts: &[&str]| expect(&prometheus, when, alerts);
    eventually_within(patience(30.0), "both are scraped", || match prometheus.query("up == 1").len() {
        2 => Ok(()),
        scraped => Err(scraped),
    });
    expect("all is well", &[]);

    scene.ready(&[]);
    // No frontend is open, so no connection fails.
    expect("there is no endpoint", &["SheaveServiceWithoutEndpoints"]);
    scene.ready(&[0, 1]);
    expect("there are endpoints again", &[]);

    drop(servers.remove(0));
    expect("an endpoint refuses connections", &["SheaveEndpointsUnhealthy"]);
    scene.ready(&[0]);
    expect("it is the only one", &["SheaveConnectionsFail", "SheaveEndpointsUnhealthy"]);
    scene.ready(&[1, 2]);
    expect("it has gone", &[]);

    scene.web("sheave.dev/max-connection-rate: \"1\"");
    expect("more clients come than may", &["SheaveLimitReached"]);
    scene.web("");
    expect("all may come", &[]);

    scene.other("second");
    expect("the pool has no further address", &["SheavePoolExhausted"]);
    scene.other("third");
    expect("a Service waits for one", &["SheavePoolExhausted", "SheaveProblems"]);
    for name in ["second", "third"] {
        cluster.delete("Service", name);
        wait_until_gone(&cluster, "Service", name);
    }
    expect("there is an address again", &[]);

    scene.stage.gateway_is(false, None);
    expect("no gateway is ready", &["SheaveNoGatewayReady"]);
    assert!(cluster.get("Service", WEB).is_some());
}

#[test]
fn alerts_about_processes_fire_while_one_is_away_or_knows_nothing() {
    let cluster = Cluster::simulated("alerts");
    let scene = Scene::new(&cluster);
    let (road, of_controller) = (scene.stage.road(), scene.stage.road());
    let gateway = scene.scraped(Role::Gateway, &road, "");
    // It checks every second whether the Lease is still its own.
    let election = "leaderElection: {leaseDuration: 4s, renewDeadline: 2s, retryPeriod: 1s}\n";
    let controller = scene.scraped(Role::Controller, &of_controller, election);
    let _controller = scene.stage.start(&controller.home);
    let process = scene.stage.start(&gateway.home);
    let _servers = (scene.stage.endpoints(), scene.udp_servers());
    let address = scene.address();
    scene.stage.wait_until_served(address, 80);
    let targets = [("sheave", gateway.metrics), ("sheave-controller", controller.metrics)];
    let prometheus = Prometheus::start(&scene.stage.host, &targets, &rules::impatient());
    let expect = |when: &str, alerts: &[&str]| expect(&prometheus, when, alerts);
    expect("all is well", &[]);
    let snapshot = gateway.home.snapshot();
    eventually_within(patience(20.0), "there is a snapshot", || {
        fs::metadata(&snapshot).map(drop).map_err(|error| error.to_string())
    });

    road.close();
    expect("the gateway does not reach the API server", &["SheaveWatchFails"]);
    process.kill();
    expect("the gateway is gone", &["SheaveNoGateway", "SheaveTargetDown"]);
    let process = scene.stage.start(&gateway.home);
    expect("another one goes by the snapshot", &["SheaveServesFromSnapshot", "SheaveWatchFails"]);
    process.kill();
    fs::remove_file(&snapshot).expect("the snapshot is removed");
    let _process = scene.stage.launch(&gateway.home);
    expect("another one knows nothing", &["SheaveGatewayNotReady", "SheaveWatchFails"]);
    road.reopen();
    expect("the API server is back", &[]);

    of_controller.close();
    expect("the controller does not reach the API server", &["SheaveNoLeader"]);
    of_controller.reopen();
    expect("it leads again", &[]);
}
