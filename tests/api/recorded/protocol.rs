//! Replays of errors that do not depend on objects.

use serde_json::json;

use super::Replay;

#[test]
fn what_is_not_there_is_told_in_three_ways() {
    Replay::at(888).all("05-events-lease-errors/not-found");
}

#[test]
fn methods_media_types_and_bodies_are_checked() {
    Replay::at(888).all("05-events-lease-errors/protocol-errors");
}

#[test]
fn people_get_indented_answers() {
    const YAML: usize = 5;
    Replay::at(888).steps("05-events-lease-errors/pretty-print", |step| step != YAML);
}

#[test]
fn rights_are_checked_before_existence() {
    let mut replay = Replay::at(888);
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "lb-readonly"},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
        ],
    });
    replay.server.authorize("lb-readonly", &[reader]);
    replay.server.authorize("nobody-user", &[]);
    replay.all("05-events-lease-errors/auth-errors");
}
