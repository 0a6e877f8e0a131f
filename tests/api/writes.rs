//! Tests of writes that were not recorded: freed values are reused, schemas set defaults and validate custom
//! resources, and owners are distinguished.

use serde_json::{Value, json};

use crate::support::apiserver::ApiServer;
use crate::support::http::{Outgoing, exchange};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn ask(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = Outgoing::new(method, path, &server.token("admin"), body);
    let answer = exchange(server.address(), &request).expect("the server answers");
    (answer.status, answer.json())
}

fn apply(server: &ApiServer, path: &str, manager: &str, body: &Value) -> (u16, Value) {
    let path = format!("{path}?fieldManager={manager}");
    let mut request = Outgoing::new("PATCH", &path, &server.token("admin"), body);
    request.headers.retain(|(name, _)| name != "Content-Type");
    request.headers.push(("Content-Type".to_owned(), "application/apply-patch+yaml".to_owned()));
    let answer = exchange(server.address(), &request).expect("the server answers");
    (answer.status, answer.json())
}

fn service(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    json_patch::merge(&mut whole, spec);
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": whole})
}

fn with_fixed_values(name: &str) -> Value {
    service(name, &json!({"clusterIP": "10.96.0.77", "ports": [{"port": 80, "nodePort": 30077}]}))
}

#[test]
fn addresses_and_node_ports_of_deleted_services_are_free_again() {
    let server = ApiServer::start();
    assert_eq!(ask(&server, "POST", SERVICES, &with_fixed_values("one")).0, 201);
    assert_eq!(ask(&server, "POST", SERVICES, &with_fixed_values("two")).0, 422);
    assert_eq!(ask(&server, "DELETE", &format!("{SERVICES}/one"), &Value::Null).0, 200);
    assert_eq!(ask(&server, "POST", SERVICES, &with_fixed_values("two")).0, 201);
}

#[test]
fn refused_services_keep_nothing() {
    let server = ApiServer::start();
    let mut wrong = with_fixed_values("one");
    wrong["spec"]["sessionAffinity"] = json!("Cookie");
    assert_eq!(ask(&server, "POST", SERVICES, &wrong).0, 422);
    assert_eq!(ask(&server, "POST", SERVICES, &with_fixed_values("one")).0, 201);
}

#[test]
fn dry_runs_take_nothing() {
    let server = ApiServer::start();
    let path = format!("{SERVICES}?dryRun=All");
    assert_eq!(ask(&server, "POST", &path, &with_fixed_values("one")).0, 201);
    assert_eq!(ask(&server, "POST", SERVICES, &with_fixed_values("one")).0, 201);
}

#[test]
fn several_conflicts_name_every_field_of_every_manager() {
    let server = ApiServer::start();
    let path = format!("{SERVICES}/web");
    let first = service("web", &json!({"externalTrafficPolicy": "Local", "selector": {"app": "a"}}));
    assert_eq!(apply(&server, &path, "one", &first).0, 201);
    let second = service("web", &json!({"externalTrafficPolicy": "Cluster", "selector": {"app": "b"}}));
    let (status, answer) = apply(&server, &path, "two", &second);
    assert_eq!(status, 409);
    assert_eq!(
        answer["message"],
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.externalTrafficPolicy\n- .spec.selector"
    );
    assert_eq!(answer["details"]["causes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn objects_without_managers_belong_to_whoever_was_before_the_first_apply() {
    let server = ApiServer::start();
    let mut untracked = service("web", &json!({"externalTrafficPolicy": "Local"}));
    untracked["metadata"]["namespace"] = json!("default");
    server.load([untracked]);
    let wish = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"externalTrafficPolicy": "Cluster"}});
    let (status, answer) = apply(&server, &format!("{SERVICES}/web"), "one", &wish);
    assert_eq!(status, 409, "{answer}");
    assert_eq!(
        answer["message"],
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .spec.externalTrafficPolicy"
    );
}

#[test]
fn slices_count_changes_of_what_they_say() {
    let server = ApiServer::start();
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice =
        json!({"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]});
    assert_eq!(ask(&server, "POST", slices, &slice).1["metadata"]["generation"], 1);
    let path = format!("{slices}/a");
    let changes = [
        (json!({"metadata": {"annotations": {"a": "b"}}}), 1),
        (json!({"metadata": {"labels": {"a": "b"}}}), 2),
        (json!({"endpoints": [{"addresses": ["10.0.0.2"]}]}), 3),
        (json!({"endpoints": [{"addresses": ["10.0.0.2"]}]}), 3),
    ];
    for (patch, generation) in changes {
        let (status, answer) = ask(&server, "PATCH", &path, &patch);
        assert_eq!((status, &answer["metadata"]["generation"]), (200, &json!(generation)), "{patch}");
    }
}

fn pools() -> Value {
    let spec = json!({"type": "object", "required": ["addresses"], "properties": {
        "addresses": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^[0-9.]+$"}},
        "priority": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9, "default": 5},
        "mode": {"type": "object", "default": {}, "properties": {"name": {"type": "string", "default": "auto"}}}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
        "spec": spec, "status": {"type": "object", "properties": {"used": {"type": "integer"}}}}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pools.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Pool", "plural": "pools"},
            "versions": [version]}})
}

#[test]
fn schemas_fill_in_and_bound_custom_resources() {
    let server = ApiServer::start();
    server.load([pools()]);
    let path = "/apis/example.com/v1/pools";
    let pool = |spec: &Value| json!({"metadata": {"name": "a"}, "spec": spec});
    let refused = [
        (json!({}), "spec.addresses: Required value"),
        (
            json!({"addresses": ["1.1.1.1", "1.1.1.2", "1.1.1.3"]}),
            "spec.addresses: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"addresses": ["x"]}),
            "spec.addresses[0]: Invalid value: \"x\": spec.addresses[0] in body should match '^[0-9.]+$'",
        ),
        (
            json!({"addresses": [], "priority": 10}),
            "spec.priority: Invalid value: 10: spec.priority in body should be less than or equal to 9",
        ),
    ];
    for (spec, why) in refused {
        let (status, answer) = ask(&server, "POST", path, &pool(&spec));
        assert_eq!(status, 422, "{spec}");
        assert_eq!(answer["message"], format!("Pool.example.com \"a\" is invalid: {why}"));
    }
    let (status, answer) = ask(&server, "POST", path, &pool(&json!({"addresses": ["1.1.1.1"]})));
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["spec"], json!({"addresses": ["1.1.1.1"], "priority": 5, "mode": {"name": "auto"}}));
}
