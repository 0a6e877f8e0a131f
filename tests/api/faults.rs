//! Tests of the faults that can be enabled, and of stopping the server and removing custom kinds.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::host::Host;
use crate::support::http::{Incoming, Outgoing, exchange};
use crate::support::patience::eventually;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const WATCH: &str = "/apis/coordination.k8s.io/v1/leases?watch=1&resourceVersion=0";

fn try_request(server: &ApiServer, method: &str, path: &str, body: &Value) -> io::Result<Incoming> {
    exchange(server.address(), &Outgoing::new(method, path, &server.token("tester"), body))
}

fn request(server: &ApiServer, method: &str, path: &str, body: &Value) -> Incoming {
    try_request(server, method, path, body).expect("an answer")
}

fn get(server: &ApiServer, path: &str) -> Incoming {
    request(server, "GET", path, &Value::Null)
}

fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
           "metadata": {"name": name, "namespace": "default"}, "spec": {}})
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

#[test]
fn cut_watches_are_reset_and_can_begin_again() {
    let server = ApiServer::start();
    server.load([lease("first")]);
    let mut watch = get(&server, WATCH);
    assert_eq!(watch.line().expect("a line").expect("no end")["object"]["metadata"]["name"], "first");
    assert_eq!(server.faults().cut_watches(), 1);
    let error = watch.line().expect_err("the watch is cut");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    let mut watch = get(&server, WATCH);
    assert_eq!(watch.line().expect("a line").expect("no end")["type"], "ADDED");
}

#[test]
fn cutting_leaves_other_connections_alone() {
    let server = ApiServer::start();
    server.faults().delay(Some(Duration::from_millis(50)));
    assert_eq!(server.faults().cut_watches(), 0);
    assert_eq!(get(&server, LEASES).status, 200);
}

#[test]
fn watches_are_refused_until_they_are_not() {
    let server = ApiServer::start();
    server.faults().refuse_watches(true);
    assert_eq!(get(&server, WATCH).status, 503);
    assert_eq!(get(&server, LEASES).status, 200);
    server.faults().refuse_watches(false);
    assert_eq!(get(&server, WATCH).status, 200);
}

#[test]
fn planned_answers_come_as_often_as_planned() {
    let server = ApiServer::start();
    server.faults().plan(Matching::new("create", "leases"), 1, Fault::too_many_requests(7));
    server.faults().plan(Matching::new("create", "leases"), 1, Fault::internal_error());
    server.faults().plan(Matching::new("*", "leases").by("tester"), 1, Fault::unavailable());
    server.faults().plan(Matching::new("create", "*"), 1, Fault::conflict());
    server.faults().plan(Matching::new("*", "*").by("nobody"), 1, Fault::conflict());
    let throttled = request(&server, "POST", LEASES, &lease("some"));
    assert_eq!((throttled.status, throttled.headers("Retry-After")), (429, vec!["7"]));
    let codes: Vec<u16> = (0..4).map(|_| request(&server, "POST", LEASES, &lease("some")).status).collect();
    assert_eq!(codes, [500, 503, 409, 201]);
    assert_eq!(server.faults().outstanding(), 1);
}

#[test]
fn answers_are_delayed() {
    let server = ApiServer::start();
    let delay = Duration::from_millis(200);
    server.faults().delay(Some(delay));
    let started = Instant::now();
    assert_eq!(get(&server, LEASES).status, 200);
    assert!(started.elapsed() >= delay, "{:?}", started.elapsed());
}

#[test]
fn frozen_caches_show_the_past_at_revision_zero_only() {
    let server = ApiServer::start();
    server.load([lease("old")]);
    let frozen = server.revision();
    server.faults().freeze_cached_reads();
    server.load([lease("new")]);
    let stale = get(&server, &format!("{LEASES}?resourceVersion=0")).json();
    assert_eq!(
        (names(&stale), stale["metadata"]["resourceVersion"].as_str()),
        (vec!["old"], Some(frozen.to_string().as_str()))
    );
    assert_eq!(get(&server, &format!("{LEASES}/new?resourceVersion=0")).status, 404);
    assert_eq!(names(&get(&server, LEASES).json()), ["new", "old"]);
    server.faults().clear();
    assert_eq!(names(&get(&server, &format!("{LEASES}?resourceVersion=0")).json()), ["new", "old"]);
}

#[test]
fn lost_answers_belong_to_writes_that_happened() {
    let server = ApiServer::start();
    server.faults().plan(Matching::new("create", "leases"), 1, Fault::LoseAnswer);
    let error = try_request(&server, "POST", LEASES, &lease("some")).expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    assert_eq!(server.objects("leases").len(), 1);
    assert_eq!(server.writes()[0].status, None);
    assert_eq!(request(&server, "POST", LEASES, &lease("some")).status, 409);
}

#[test]
fn swallowed_requests_are_neither_carried_out_nor_answered() {
    let server = ApiServer::start();
    server.faults().plan(Matching::new("create", "leases"), 1, Fault::Swallow);
    let address = server.address();
    let outgoing = Outgoing::new("POST", LEASES, &server.token("tester"), &lease("some"));
    let waiting = std::thread::spawn(move || exchange(address, &outgoing).map(|answer| answer.status));
    eventually("the request has come", || match server.faults().outstanding() {
        0 => Ok(()),
        left => Err(format!("{left} faults outstanding")),
    });
    assert_eq!(get(&server, LEASES).status, 200, "others are served");
    server.stop();
    waiting.join().expect("no panic").expect_err("never answered");
    assert_eq!(server.objects("leases"), Vec::<Value>::new());
}

#[test]
fn a_stopped_server_comes_back_with_its_objects() {
    let server = ApiServer::start();
    server.load([lease("kept")]);
    let mut watch = get(&server, WATCH);
    assert!(watch.line().expect("a line").is_some());
    server.stop();
    watch.line().expect_err("the watch ends without a proper end");
    let error = try_request(&server, "GET", LEASES, &Value::Null).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    server.resume();
    assert_eq!(names(&get(&server, LEASES).json()), ["kept"]);
}

#[test]
fn dropped_servers_leave_nobody_listening() {
    let server = ApiServer::start();
    let outgoing = Outgoing::new("GET", LEASES, &server.token("tester"), &Value::Null);
    let address = server.address();
    drop(server);
    let error = exchange(address, &outgoing).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

#[test]
fn servers_live_in_the_host_that_starts_them() {
    let host = Host::new("control plane");
    let server = host.run(ApiServer::start);
    try_request(&server, "GET", LEASES, &Value::Null).expect_err("another host");
    assert_eq!(host.run(|| get(&server, LEASES).status), 200);
    server.stop();
    server.resume();
    assert_eq!(host.run(|| get(&server, LEASES).status), 200);
}

#[test]
fn bookmarks_follow_the_pace_that_is_set() {
    let server = ApiServer::start();
    server.bookmark_every(Duration::from_millis(20));
    let mut watch = get(&server, &format!("{WATCH}&allowWatchBookmarks=true"));
    assert_eq!(watch.line().expect("a line").expect("no end")["type"], "BOOKMARK");
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pools.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": "pools", "kind": "Pool"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer"}, "shared": {"type": "boolean", "default": true},
                }}}}},
            }],
        },
    })
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const POOLS: &str = "/apis/example.com/v1/pools";

#[test]
fn definitions_serve_their_kind_and_take_it_away() {
    let server = ApiServer::start();
    assert_eq!(get(&server, POOLS).rest().expect("a body"), "404 page not found\n");
    assert_eq!(request(&server, "POST", DEFINITIONS, &definition()).status, 201);
    let empty = get(&server, POOLS).json();
    assert_eq!((&empty["metadata"]["continue"], &empty["items"]), (&json!(""), &json!([])));
    let pool = json!({"metadata": {"name": "a"}, "spec": {"size": 3, "unknown": 1}});
    let created = request(&server, "POST", POOLS, &pool).json();
    assert_eq!(created["spec"], json!({"size": 3, "shared": true}), "pruned and completed");
    assert_eq!(created["metadata"]["generation"], 1);
    let watch = get(&server, &format!("{POOLS}?watch=1&resourceVersion={}", server.revision()));
    assert_eq!(
        request(&server, "DELETE", &format!("{DEFINITIONS}/pools.example.com"), &Value::Null).status,
        200
    );
    let lines = watch.lines().expect("a clean end");
    assert_eq!(lines.iter().map(|line| line["type"].as_str()).collect::<Vec<_>>(), [Some("DELETED")]);
    assert_eq!(get(&server, POOLS).status, 404);
}

#[test]
fn new_kinds_may_need_a_second_request() {
    let server = ApiServer::start();
    server.faults().slow_definitions(true);
    server.load([definition()]);
    let first = get(&server, POOLS);
    assert_eq!((first.status, first.headers("Retry-After")), (429, vec!["1"]));
    assert_eq!(get(&server, POOLS).status, 200);
}

#[test]
fn watches_end_when_history_is_lost_while_they_are_away() {
    let server = ApiServer::start();
    server.load([lease("some")]);
    let revision = server.revision();
    server.load([lease("other")]);
    server.compact();
    let path = format!("/apis/coordination.k8s.io/v1/leases?watch=1&resourceVersion={revision}");
    let lines = get(&server, &path).lines().expect("a clean end");
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["type"], &lines[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
}
