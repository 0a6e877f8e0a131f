//! Discovery of the served kinds, and health of the server.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::kind::registry::Served;
use super::super::reply::Reply;
use super::super::shared::Shared;
use super::super::status::Status;

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Verbs of custom kinds, in the order of a real server.
const CUSTOM_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Answers a path that is not about objects. Every authenticated user may get these, as `system:discovery`
/// and `system:public-info-viewer` allow.
pub(super) fn answer(shared: &Shared, path: &str) -> Reply {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let world = shared.world();
    let served = world.registry.all();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Reply::text(200, "ok"),
        ["version"] => Reply::json(200, &version()).pretty(),
        ["api"] => Reply::json(200, &json!({"kind": "APIVersions", "versions": ["v1"]})),
        ["api", "v1"] => Reply::json(200, &resources(served, "", "v1")),
        ["apis"] => Reply::json(200, &groups(served)),
        ["apis", group] => group_named(served, group).map_or_else(Reply::page_not_found, |group| {
            let mut told = json!({"kind": "APIGroup", "apiVersion": "v1"});
            told.as_object_mut().expect("an object").extend(group.as_object().cloned().unwrap_or_default());
            Reply::json(200, &told)
        }),
        ["apis", group, version] if is_away(shared, served, group, version) => Reply::service_unavailable(),
        ["apis", group, version] => versions(served, group, version),
        _ => Reply::page_not_found(),
    }
}

/// Whether the resources of a group version are unavailable. The group itself stays known while its server is
/// away.
fn is_away(shared: &Shared, served: &[Arc<Served>], group: &str, version: &str) -> bool {
    let of_version = |served: &&Arc<Served>| served.kind.group == group && served.kind.version == version;
    shared.faults().aggregated_away && served.iter().any(|served| of_version(&served) && served.aggregated)
}

fn versions(served: &[Arc<Served>], group: &str, version: &str) -> Reply {
    let of_group = || served.iter().filter(|served| served.kind.group == group);
    if of_group().any(|served| served.kind.version == version) {
        return Reply::json(200, &resources(served, group, version));
    }
    if of_group().any(|served| !served.kind.custom) {
        let text = "the server could not find the requested resource";
        return Status::new(404, "NotFound", text).about("", "", "").into();
    }
    Reply::page_not_found()
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.0",
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.27.3", "compiler": "gc", "platform": "linux/amd64",
    })
}

fn resources(served: &[Arc<Served>], group: &str, version: &str) -> Value {
    let of_version =
        served.iter().filter(|served| served.kind.group == group && served.kind.version == version);
    let resources: Vec<Value> = of_version.flat_map(|served| rows(served)).collect();
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": name, "resources": resources});
    // The list of the core group predates this field.
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    list
}

fn rows(served: &Served) -> Vec<Value> {
    let kind = &served.kind;
    let mut row = json!({
        "name": kind.plural, "singularName": served.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": if kind.custom { CUSTOM_VERBS } else { VERBS },
    });
    if !served.short_names.is_empty() {
        row["shortNames"] = json!(served.short_names);
    }
    if !served.categories.is_empty() {
        row["categories"] = json!(served.categories);
    }
    let parts = kind.subresources.iter().map(|subresource| {
        json!({
            "name": format!("{}/{subresource}", kind.plural), "singularName": "",
            "namespaced": kind.namespaced, "kind": kind.kind, "verbs": ["get", "patch", "update"],
        })
    });
    std::iter::once(row).chain(parts).collect()
}

fn groups(served: &[Arc<Served>]) -> Value {
    let mut names: Vec<&str> = served.iter().map(|served| served.kind.group.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let groups: Vec<Value> = names.iter().filter_map(|name| group_named(served, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_named(served: &[Arc<Served>], name: &str) -> Option<Value> {
    let mut versions: Vec<&str> = served
        .iter()
        .filter(|served| !name.is_empty() && served.kind.group == name)
        .map(|served| served.kind.version.as_str())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let told: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let preferred = told.last()?.clone();
    Some(json!({"name": name, "versions": told, "preferredVersion": preferred}))
}
