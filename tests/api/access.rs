//! Tests of permissions from roles, and of the record of their use.

use serde_json::{Value, json};

use crate::support::apiserver::ApiServer;
use crate::support::apiserver::access::Permission;
use crate::support::http::{Outgoing, exchange};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/sheave-system/leases";

fn status(server: &ApiServer, user: &str, method: &str, path: &str, body: &Value) -> u16 {
    let request = Outgoing::new(method, path, &server.token(user), body);
    exchange(server.address(), &request).expect("an answer").status
}

fn role(kind: &str, namespace: &str, group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": "some", "namespace": namespace},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": verbs}],
    })
}

fn permission(verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> Permission {
    Permission {
        user: "gateway".to_owned(),
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.map(str::to_owned),
    }
}

#[test]
fn users_without_rules_may_do_everything() {
    let server = ApiServer::start();
    assert_eq!(status(&server, "anyone", "GET", SERVICES, &Value::Null), 200);
    assert_eq!(server.refused(), []);
}

#[test]
fn grants_that_were_not_used_are_listed() {
    let server = ApiServer::start();
    server.authorize("gateway", &[role("ClusterRole", "", "", "services", &["get", "list", "watch"])]);
    assert_eq!(status(&server, "gateway", "GET", "/api/v1/services", &Value::Null), 200);
    let unused = [permission("get", "", "services", None), permission("watch", "", "services", None)];
    assert_eq!(server.unused_rules("gateway"), unused);
    assert_eq!(server.refused(), []);
}

#[test]
fn what_no_rule_grants_is_refused_and_listed() {
    let server = ApiServer::start();
    server.authorize("gateway", &[role("ClusterRole", "", "", "services", &["get", "patch"])]);
    let path = format!("{SERVICES}/web/status");
    assert_eq!(status(&server, "gateway", "PATCH", &path, &json!({})), 403);
    assert_eq!(server.refused(), [permission("patch", "", "services/status", Some("default"))]);
    assert_eq!(server.unused_rules("gateway").len(), 2, "a refused request uses nothing");
}

#[test]
fn roles_hold_in_their_namespace_alone() {
    let server = ApiServer::start();
    let role = role("Role", "sheave-system", "coordination.k8s.io", "leases", &["list"]);
    server.authorize("gateway", &[role]);
    assert_eq!(status(&server, "gateway", "GET", LEASES, &Value::Null), 200);
    let elsewhere = LEASES.replace("sheave-system", "default");
    assert_eq!(status(&server, "gateway", "GET", &elsewhere, &Value::Null), 403);
    assert_eq!(status(&server, "gateway", "GET", "/apis/coordination.k8s.io/v1/leases", &Value::Null), 403);
}

#[test]
fn resource_names_narrow_a_rule() {
    let server = ApiServer::start();
    let mut role = role("ClusterRole", "", "", "services", &["get", "list"]);
    role["rules"][0]["resourceNames"] = json!(["web"]);
    server.authorize("gateway", &[role]);
    assert_eq!(status(&server, "gateway", "GET", &format!("{SERVICES}/web"), &Value::Null), 404);
    assert_eq!(status(&server, "gateway", "GET", &format!("{SERVICES}/db"), &Value::Null), 403);
    assert_eq!(status(&server, "gateway", "GET", SERVICES, &Value::Null), 403);
    let selected = format!("{SERVICES}?fieldSelector=metadata.name%3Dweb");
    assert_eq!(status(&server, "gateway", "GET", &selected, &Value::Null), 200);
}

#[test]
fn creating_by_put_needs_the_right_to_create() {
    let server = ApiServer::start();
    let role = role("ClusterRole", "", "coordination.k8s.io", "leases", &["update"]);
    server.authorize("gateway", &[role]);
    let lease = json!({"metadata": {"name": "leader"}, "spec": {}});
    assert_eq!(status(&server, "gateway", "PUT", &format!("{LEASES}/leader"), &lease), 403);
    assert_eq!(server.objects("leases"), Vec::<Value>::new());
}

#[test]
fn every_request_is_recorded_as_rbac_names_it() {
    let server = ApiServer::start();
    let lease = json!({"metadata": {"name": "leader"}, "spec": {}});
    assert_eq!(status(&server, "controller", "POST", LEASES, &lease), 201);
    assert_eq!(status(&server, "controller", "GET", LEASES, &Value::Null), 200);
    assert_eq!(status(&server, "controller", "DELETE", &format!("{LEASES}/leader"), &Value::Null), 200);
    let told: Vec<_> = server
        .requests()
        .into_iter()
        .map(|request| {
            (request.user, request.verb, request.group, request.resource, request.name, request.status)
        })
        .collect();
    let expected = |verb: &str, name: Option<&str>, status: u16| {
        let words = ["controller", verb, "coordination.k8s.io", "leases"].map(str::to_owned);
        let [user, verb, group, resource] = words;
        (user, verb, group, resource, name.map(str::to_owned), Some(status))
    };
    let all = [
        expected("create", Some("leader"), 201),
        expected("list", None, 200),
        expected("delete", Some("leader"), 200),
    ];
    assert_eq!(told, all);
    assert_eq!(server.writes().len(), 2);
}

#[test]
fn kubeconfigs_carry_address_namespace_and_user() {
    let server = ApiServer::start();
    let config: Value = serde_json::from_str(&server.kubeconfig("gateway")).expect("JSON");
    assert_eq!(config["clusters"][0]["cluster"]["server"], server.url());
    assert_eq!(config["contexts"][0]["context"]["namespace"], "sheave-system");
    let token = config["users"][0]["user"]["token"].as_str().expect("a token");
    let request = Outgoing::new("GET", SERVICES, token, &Value::Null);
    assert_eq!(exchange(server.address(), &request).expect("an answer").status, 200);
    assert_eq!(server.requests()[0].user, "gateway");
}
