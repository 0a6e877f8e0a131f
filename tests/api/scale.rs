//! Tests with as many objects as in the largest clusters.

use serde_json::{Value, json};

use crate::support::apiserver::ApiServer;
use crate::support::http::{Outgoing, exchange};

/// A tenth of the largest case; the full size is for the programs that need it.
const SERVICES: usize = 4_412;
const PAGE: usize = 500;

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("s{number:05}"), "namespace": "default", "labels": {"number": number.to_string()}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]},
    })
}

#[test]
fn bulk_loads_are_listed_in_pages_and_watched() {
    let server = ApiServer::start();
    let token = server.token("tester");
    let get = |path: &str| {
        exchange(server.address(), &Outgoing::new("GET", path, &token, &Value::Null)).expect("an answer")
    };
    server.load((0..SERVICES).map(service));
    let mut listed = 0;
    let mut next = String::new();
    loop {
        let list = get(&format!("/api/v1/services?limit={PAGE}&continue={next}")).json();
        listed += list["items"].as_array().expect("items").len();
        match list["metadata"]["continue"].as_str() {
            Some(token) => next = token.to_owned(),
            None => break,
        }
    }
    assert_eq!(listed, SERVICES);
    let mut watch = get(
        "/api/v1/services?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    );
    for _ in 0..SERVICES {
        assert_eq!(watch.line().expect("a line").expect("no end")["type"], "ADDED");
    }
    assert_eq!(watch.line().expect("a line").expect("no end")["type"], "BOOKMARK");
    server.load([service(7)]);
    let line = watch.line().expect("a line").expect("no end");
    assert_eq!((&line["type"], &line["object"]["metadata"]["name"]), (&json!("MODIFIED"), &json!("s00007")));
}
