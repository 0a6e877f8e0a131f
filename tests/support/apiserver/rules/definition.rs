//! CustomResourceDefinitions: storing one serves its kind, and removing it removes the kind with all objects.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::apiserver::kind::registry::Served;
use crate::apiserver::shared::World;
use crate::apiserver::store::Entry;

const SHELF: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Adds what the server's own controllers set in a definition: names, stored versions, and the Established
/// condition.
pub(super) fn complete(object: &mut Value, now: &str) {
    let kind = object["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let names = &mut object["spec"]["names"];
    for (key, value) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if names[key].is_null() {
            names[key] = json!(value);
        }
    }
    if object["spec"]["conversion"].is_null() {
        object["spec"]["conversion"] = json!({"strategy": "None"});
    }
    if !object["status"]["conditions"].is_null() {
        return;
    }
    let condition = |name: &str, reason: &str, message: &str| json!({"type": name, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message});
    let stored = object["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true);
    let stored: Vec<Value> = stored.map(|version| version["name"].clone()).collect();
    object["status"] = json!({
        "acceptedNames": object["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    });
}

/// Serves the kind of a definition that is stored.
pub(crate) fn follow(world: &mut World, served: &Served, object: &Value) {
    if served.shelf == SHELF {
        world.registry.define(object);
    }
}

/// Removes the kind of a removed definition.
pub(crate) fn unfollow(world: &mut World, served: &Served, gone: &Arc<Entry>) {
    if served.shelf != SHELF {
        return;
    }
    let definition = gone.object(&served.kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["plural"]));
    if let Some(custom) = world.registry.find_plural(&group, &plural) {
        let keys: Vec<String> = world.store.shelf(&custom.shelf).entries().keys().cloned().collect();
        for key in keys {
            world.store.remove(&custom, &key);
        }
        world.store.shelf(&custom.shelf).close();
    }
    world.registry.forget(&definition);
}
