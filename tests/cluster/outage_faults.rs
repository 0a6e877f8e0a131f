//! Tests of a faulty API server, which refuses, forgets, delays or holds back. Traffic is not affected, and changes take
//! effect once the server has recovered. Only the test API server can do this.

use std::time::Duration;

use serde_json::json;

use crate::outage_kit::{
    address, kind, load, metric, published_service, serve_web, served, wait_for_answer, wait_for_status,
    wait_until_true_to_the_server,
};
use crate::stage::{Role, Stage, pool, service, wait_for_addresses};
use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::apiserver::status::Status;
use crate::support::cluster::{Account, Cluster};
use crate::support::patience::eventually;

/// Requests of the gateway only.
fn gateways(verb: &str, resource: &str) -> Matching {
    Matching::new(verb, resource).by(Account::Gateway.user())
}

fn expired() -> Fault {
    Fault::Answer(Status::new(410, "Expired", "too old resource version: 1 (600)"))
}

/// A gateway whose connections are cut while the slice changes, and that meets the fault when it reconnects.
fn survives(name: &str, fault: impl FnOnce(&ApiServer)) {
    let cluster = Cluster::simulated(name);
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 10);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, ""));
    let load = load(&stage, vec![address(10)]);
    load.wait_for(20);
    road.close();
    stage.slice("web", &[1]);
    fault(server);
    road.reopen();
    wait_for_answer(&stage, address(10), 80, "endpoint-1");
    // Wait for the faults as well: a list is in force before the next watch is requested, which may be the last request that
    // fails.
    eventually("every fault is met", || match server.faults().outstanding() {
        0 => Ok(()),
        left => Err(format!("{left} to go")),
    });
    server.faults().clear();
    stage.slice("web", &[2]);
    wait_for_answer(&stage, address(10), 80, "endpoint-2");
    wait_until_true_to_the_server(&gateway, &cluster);
    load.expect_no_failure();
    wait_for_status(&gateway, "all is well again", |status| {
        status["source"]["kinds"].as_array().unwrap().iter().all(|kind| kind["error"].is_null())
    });
}

#[test]
fn expired_within_the_watch_where_lists_are_refused_for_a_while() {
    survives("forgot-busy", |server| {
        server.compact();
        // The first request is the watch that is too old, the second the streamed list, the third the watch after the paged
        // list.
        server.faults().plan(gateways("watch", "endpointslices"), 1, expired());
        server.faults().plan(gateways("watch", "endpointslices"), 2, Fault::too_many_requests(1));
    });
}

#[test]
fn a_slow_server() {
    survives("slow", |server| server.faults().delay(Some(Duration::from_millis(400))));
}

#[test]
fn nothing_is_served_before_every_kind_was_listed() {
    let cluster = Cluster::simulated("first");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 10);
    let road = stage.road();
    // A refused list must not count as an empty one.
    server.faults().plan(gateways("watch", "services"), 1, Fault::internal_error());
    server.faults().plan(gateways("list", "services"), 1000, Fault::internal_error());
    let mut gateway = stage.launch(&stage.home(Role::Gateway, &road, ""));
    gateway
        .wait_for_log("the API server answers 500: Internal error occurred: etcdserver: request timed out");
    let known = eventually("the slices are listed", || match gateway.page("/api/status") {
        status if kind(&status, "EndpointSlice")["synced"] == true => Ok(status),
        status => Err(status.to_string()),
    });
    assert_eq!((&known["source"]["synced"], &known["frontends"]), (&json!(false), &json!(0)), "{known}");
    let why = "not ready: objects have not been listed from the API server yet; see /api/status\n";
    assert_eq!(gateway.readiness().unwrap(), (503, why.to_owned()));
    assert!(served(&gateway, &cluster).is_empty());
    stage.ask(address(10), 80).unwrap_err();
    let text = gateway.status_text();
    assert!(text.contains("it serves nothing until the API server at http://127.0.0.1:"), "{text}");

    server.faults().clear();
    gateway.wait_until_ready();
    assert_eq!(stage.ask(address(10), 80).unwrap(), "endpoint-0");
}

#[test]
fn a_cache_that_lags_behind_does_not_bring_back_the_past() {
    let cluster = Cluster::simulated("stale");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 10);
    server.faults().freeze_cached_reads();
    stage.slice("web", &[1]);
    published_service(&cluster, "later", address(11));
    stage.slice("later", &[2]);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, ""));
    assert_eq!(stage.ask(address(10), 80).unwrap(), "endpoint-1");
    assert_eq!(stage.ask(address(11), 80).unwrap(), "endpoint-2");
    road.cut();
    server.compact();
    stage.slice("web", &[2]);
    wait_for_answer(&stage, address(10), 80, "endpoint-2");
    wait_until_true_to_the_server(&gateway, &cluster);
}

#[test]
fn a_status_that_stays_refused_is_logged_counted_and_in_the_status_until_it_is_written() {
    let cluster = Cluster::simulated("refused");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    pool(&cluster, "refused", "203.0.113.60");
    let denied =
        Status::new(403, "Forbidden", "admission webhook \"frozen.example.com\" denied the request: not now");
    server.faults().plan(Matching::new("patch", "services/status"), 1000, Fault::Answer(denied));
    service(&cluster, "web", "");
    let controller = stage.start(&stage.home(Role::Controller, &road, ""));
    let refusal = "the API server refuses its status: admission webhook";
    controller.wait_for_log(refusal);
    let status = wait_for_status(&controller, "the Problem is listed", |status| {
        let problems = status["controller"]["problems"].as_array().expect("a list");
        problems.iter().any(|problem| problem["reason"] == "WriteRefused")
    });
    assert_eq!(status["controller"]["writeFailures"], 1, "{status}");
    assert_eq!(metric(&controller, "sheave_controller_write_failures"), Some(1.0));
    assert!(controller.status_text().contains("keeps refusing what the controller writes to 1 object"));
    server.faults().clear();
    wait_for_status(&controller, "the failure is over", |status| {
        status["controller"]["writeFailures"] == 0 && status["controller"]["problems"] == json!([])
    });
    assert_eq!(wait_for_addresses(&cluster, "web"), [address(60)]);
    controller.wait_for_log("the API server refuses no write of it any more");
    assert_eq!(controller.log().matches(refusal).count(), 1, "{}", controller.log());
}
