//! Replays with custom kinds: before they are defined, when they are defined, and after they are removed.
//!
//! Not replayed: a real server does not serve a kind until some milliseconds after its definition was created. Here it
//! is served at once, or answers 429 first if enabled.

use serde_json::{Value, json};

use super::Replay;
use crate::comparison::Comparison;
use crate::support::karmada;
use crate::transcript::Transcript;

/// Definition of a kind of `multicluster.x-k8s.io` without a schema.
fn multi_cluster(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.multicluster.x-k8s.io")},
        "spec": {"group": "multicluster.x-k8s.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                 "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {}}]},
    })
}

fn definition(text: &str) -> Value {
    serde_json::from_str(text).expect("a definition")
}

#[test]
fn kinds_appear_with_their_definition() {
    const NAME: &str = "06-karmada/crd-appears";
    let mut replay = Replay::new();
    replay.comparison = Comparison::leaving_out(&["storageVersionHash"]);
    replay.steps(NAME, |step| step < 2);
    replay.server.load([definition(karmada::MULTI_CLUSTER_SERVICE)]);
    replay.steps(NAME, |step| step >= 2);
}

#[test]
fn new_kinds_ask_for_patience() {
    let mut replay = Replay::new();
    replay.server.faults().slow_definitions(true);
    replay.server.load([multi_cluster("serviceimports", "ServiceImport")]);
    replay.all("06-karmada/crd-startup");
}

#[test]
fn a_restart_asks_for_patience_with_what_nobody_has_used_since() {
    const NAME: &str = "06-karmada/restart-first-request";
    let mut replay = Replay::new();
    replay.server.load([karmada::MULTI_CLUSTER_SERVICE, karmada::WORK].map(definition));
    replay.server.load([multi_cluster("serviceimports", "ServiceImport")]);
    replay.server.load(Transcript::read(NAME).listed(0));
    replay.server.skip_to(1906);
    replay.steps(NAME, |step| step < 2);
    replay.server.faults().slow_definitions(true);
    replay.steps(NAME, |step| step >= 2);
}

#[test]
fn objects_go_with_their_definition() {
    const NAME: &str = "06-karmada/crd-deleted";
    let mut replay = Replay::new();
    replay.server.load([definition(karmada::MULTI_CLUSTER_SERVICE)]);
    let transcript = Transcript::read(NAME);
    let lines = transcript.steps[1].response.watch.as_ref().expect("a watch").len();
    replay.server.skip_to(1000);
    replay.server.load((0..lines).map(|line| {
        let mut object = transcript.seen(1, line);
        object["metadata"]["resourceVersion"] = Value::Null;
        object
    }));
    replay.server.skip_to(1075);
    let answer = replay.ask(&transcript.steps[1]);
    assert!(replay.server.unload(
        "customresourcedefinitions",
        None,
        "multiclusterservices.networking.karmada.io"
    ));
    replay.check(NAME, 1, &transcript.steps[1], answer);
    replay.steps(NAME, |step| step == 0);
    replay.server.faults().slow_definitions(true);
    replay.server.load([multi_cluster("serviceexports", "ServiceExport")]);
    replay.steps(NAME, |step| step == 2);
}
