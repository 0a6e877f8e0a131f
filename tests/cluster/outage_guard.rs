//! Tests of lists that lack nearly everything: traffic continues until they are accepted, and the gateway reports what it
//! holds back. Individual deletions are accepted. Only the test API server can forget its objects.

use std::net::IpAddr;

use serde_json::Value;

use crate::outage_kit::{
    address, load, metric, published_service, served, wait_for_snapshot, wait_for_status,
};
use crate::stage::{Role, Sheave, Stage};
use crate::support::apiserver::ApiServer;
use crate::support::cluster::Cluster;
use crate::support::patience::eventually;
use crate::support::road::Road;

/// Number of Services, each with a slice: enough for the guard to hold back their loss.
const SERVICES: u8 = 12;
/// Kinds of which all objects are lost.
const LOST: [&str; 2] = ["services", "endpointslices"];

fn addresses() -> Vec<IpAddr> {
    (0..SERVICES).map(|number| address(120 + number)).collect()
}

fn fill(cluster: &Cluster, stage: &Stage<'_>) {
    for (number, address) in addresses().into_iter().enumerate() {
        let name = format!("web-{number}");
        published_service(cluster, &name, address);
        stage.slice(&name, &[number % 3]);
    }
}

/// Makes the server forget all objects of the kinds in `LOST` without a trace, so that lists are empty. Returns the lost
/// objects.
fn forget(server: &ApiServer, road: &Road<'_>) -> Vec<Value> {
    road.close();
    let mut lost = Vec::new();
    for plural in LOST {
        for object in server.objects(plural) {
            let (namespace, name) = (object["metadata"]["namespace"].as_str(), &object["metadata"]["name"]);
            assert!(server.unload(plural, namespace, name.as_str().unwrap()));
            lost.push(object);
        }
    }
    server.compact();
    road.reopen();
    lost
}

fn wait_for_doubts(gateway: &Sheave<'_>) {
    let status = wait_for_status(gateway, "both lists are doubted", |status| {
        status["guard"].as_array().unwrap().len() == 2
    });
    for (doubt, kind) in status["guard"].as_array().unwrap().iter().zip(["EndpointSlice", "Service"]) {
        assert_eq!(doubt["kind"], kind, "{status}");
        for (key, count) in [("there", SERVICES), ("listed", 0), ("kept", SERVICES)] {
            assert_eq!(doubt[key], count, "{key}: {status}");
        }
    }
}

fn nothing_is_doubted(gateway: &Sheave<'_>) {
    wait_for_status(gateway, "nothing is doubted", |status| status["guard"].as_array().unwrap().is_empty());
}

fn held(gateway: &Sheave<'_>, kind: &str) -> Option<f64> {
    metric(gateway, &format!("sheave_guard_held_objects{{kind=\"{kind}\"}}"))
}

#[test]
fn a_list_that_is_empty_by_mistake_changes_nothing() {
    let cluster = Cluster::simulated("forgetful");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    fill(&cluster, &stage);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, "massDeletion: {hold: 10m}\n"));
    let before = served(&gateway, &cluster);
    assert_eq!(before.len(), usize::from(SERVICES));
    let load = load(&stage, addresses());
    let lost = forget(server, &road);
    wait_for_doubts(&gateway);
    gateway.wait_for_log(
        "the API server lists 0 Services where there were 12: the 12 that it lacks stay in force for 600s",
    );
    assert_eq!(held(&gateway, "Service"), Some(f64::from(SERVICES)));
    assert_eq!(held(&gateway, "Node"), Some(0.0));
    let text = gateway.status_text();
    assert!(text.contains("the API server lists 0 Services where there were 12"), "{text}");
    assert_eq!(served(&gateway, &cluster), before);
    load.wait_for(200);

    server.load(lost);
    nothing_is_doubted(&gateway);
    gateway.wait_for_log("the API server lists Services again as before");
    assert_eq!(held(&gateway, "Service"), Some(0.0));
    assert_eq!(served(&gateway, &cluster), before, "nothing has happened");
    load.expect_no_failure();
}

#[test]
fn a_list_that_stays_empty_is_believed_in_the_end() {
    let cluster = Cluster::simulated("emptied");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    fill(&cluster, &stage);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, "massDeletion: {hold: 3s}\n"));
    forget(server, &road);
    gateway.wait_for_log("the API server lists 0 EndpointSlices where there were 12");
    eventually("it is believed", || match served(&gateway, &cluster) {
        served if served.is_empty() => Ok(()),
        served => Err(format!("{served:?}")),
    });
    gateway.wait_for_log(
        "s the API server still lists no more Services: the 12 that stayed in force are taken for deleted",
    );
    nothing_is_doubted(&gateway);
    eventually("nobody listens any more", || match stage.ask(address(120), 80) {
        Err(_) => Ok(()),
        Ok(name) => Err(name),
    });
    assert!(gateway.is_ready());
}

#[test]
fn deletions_by_name_are_believed_at_once() {
    let cluster = Cluster::start("deleted");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    fill(&cluster, &stage);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, "massDeletion: {hold: 10m}\n"));
    assert_eq!(served(&gateway, &cluster).len(), usize::from(SERVICES));
    for number in 0..SERVICES {
        cluster.delete("Service", &format!("web-{number}"));
    }
    eventually("none is served any more", || match served(&gateway, &cluster) {
        served if served.is_empty() => Ok(()),
        served => Err(format!("{served:?}")),
    });
    assert_eq!(gateway.page("/api/status")["guard"], Value::Array(Vec::new()));
}

/// The guard also uses the snapshot: it holds back the lists of a server that comes back empty after a gateway's restart.
#[test]
fn a_server_that_comes_back_empty_does_not_empty_a_restarted_gateway() {
    let cluster = Cluster::simulated("restored");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    fill(&cluster, &stage);
    let road = stage.road();
    let home = stage.home(Role::Gateway, &road, "massDeletion: {hold: 10m}\n");
    let gateway = stage.start(&home);
    let before = served(&gateway, &cluster);
    wait_for_snapshot(&gateway);
    road.close();
    gateway.kill();
    let gateway = stage.start(&home);
    assert_eq!(metric(&gateway, "sheave_source_from_snapshot"), Some(1.0));
    let load = load(&stage, addresses());
    forget(server, &road);
    wait_for_doubts(&gateway);
    assert_eq!(metric(&gateway, "sheave_source_from_snapshot"), Some(0.0));
    assert_eq!(served(&gateway, &cluster), before);
    load.wait_for(100);
    load.expect_no_failure();
    assert_eq!(stage.ask(address(121), 80).unwrap(), "endpoint-1");
}
