//! Tests of `kubectl wait --for=condition=sheave.dev/Programmed service/web`, with the requests of kubectl 1.36 (from a kube-apiserver's
//! audit log) and the evaluation of `k8s.io/kubectl/pkg/cmd/wait`. The name of a condition ends at the first `=`, so it may contain a
//! slash.

use serde_json::{Value, json};

use crate::support::apiserver::ApiServer;
use crate::support::http::{Incoming, Outgoing, exchange};

const CONDITION: &str = "sheave.dev/Programmed";
const WATCH: &str = "/api/v1/namespaces/shop/services?allowWatchBookmarks=true&fieldSelector=metadata.name%3Dweb\
                     &resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=551&watch=true";

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}, "status": {"loadBalancer": {}},
    })
}

/// Whether the condition is met, as in kubectl: case-insensitive, and not for a condition of an older generation.
fn is_met(service: &Value) -> bool {
    let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
    let generation = service["metadata"]["generation"].as_i64().unwrap_or(0);
    conditions.into_iter().any(|condition| {
        let named = condition["type"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(CONDITION));
        let observed = condition["observedGeneration"].as_i64().unwrap_or(generation);
        named && observed >= generation && condition["status"] == "True"
    })
}

fn next(watch: &mut Incoming) -> Value {
    watch.line().expect("a line").expect("no end")
}

#[test]
fn kubectl_wait_learns_of_a_condition() {
    let server = ApiServer::start();
    server.load([service("web"), service("other")]);
    let token = server.token("tester");
    let ask = |method: &str, path: &str, body: &Value| {
        exchange(server.address(), &Outgoing::new(method, path, &token, body)).expect("an answer")
    };
    let found = ask("GET", "/api/v1/namespaces/shop/services/web", &Value::Null).json();
    assert!(!is_met(&found));
    let mut watch = ask("GET", WATCH, &Value::Null);
    let first = next(&mut watch);
    assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("web")));
    assert_eq!(next(&mut watch)["type"], "BOOKMARK", "the other Service is not asked for");
    for (status, met) in [("False", false), ("True", true)] {
        let condition = json!({"type": CONDITION, "status": status, "reason": "Programmed", "message": "",
                               "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = json!({"status": {"conditions": [condition]}});
        assert_eq!(ask("PATCH", "/api/v1/namespaces/shop/services/web/status", &patch).status, 200);
        let event = next(&mut watch);
        assert_eq!(event["type"], "MODIFIED");
        assert_eq!(is_met(&event["object"]), met, "{event}");
    }
}
