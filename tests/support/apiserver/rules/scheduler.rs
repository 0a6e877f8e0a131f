//! Karmada's scheduler, as far as it places ServiceExports (`pkg/scheduler`, as of v1.19.0-rc.0). A policy is scheduled when
//! it is created or changed, and when the labels or the generation of a Cluster change. Clusters without the API are skipped
//! (plugin `APIEnablement`), and a change of `status.apiEnablements` does not trigger scheduling.

use serde_json::{Value, json};

use crate::apiserver::kind::registry::Served;
use crate::apiserver::shared::World;
use crate::apiserver::store::Entry;
use crate::apiserver::store::entry::key;

const CLUSTERS: &str = "clusters.cluster.karmada.io";
const POLICIES: &str = "propagationpolicies.policy.karmada.io";

/// Schedules the policies that depend on a stored object. `live` is its earlier state.
pub(crate) fn follow(world: &mut World, served: &Served, live: Option<&Value>, stored: &Entry, now: &str) {
    let changed = |now: &Value, fields: &[&str]| {
        live.is_none_or(|before| fields.iter().any(|field| before.pointer(field) != now.pointer(field)))
    };
    let object = || stored.object(&served.kind);
    match served.shelf.as_str() {
        POLICIES if changed(&object(), &["/spec"]) => schedule(world, &object(), now),
        CLUSTERS if changed(&object(), &["/metadata/labels", "/metadata/generation"]) => {
            for policy in objects(world, "policy.karmada.io", "propagationpolicies") {
                schedule(world, &policy, now);
            }
        }
        _ => {}
    }
}

fn objects(world: &mut World, group: &str, plural: &str) -> Vec<Value> {
    let Some(served) = world.registry.find_plural(group, plural) else { return Vec::new() };
    let entries = world.store.shelf(&served.shelf).entries();
    entries.values().map(|entry| entry.object(&served.kind)).collect()
}

/// Writes the ResourceBinding of the ServiceExport that a policy selects.
fn schedule(world: &mut World, policy: &Value, now: &str) {
    let selected = &policy["spec"]["resourceSelectors"][0];
    let bindings = world.registry.find_plural("work.karmada.io", "resourcebindings");
    let (Some(bindings), "ServiceExport") = (bindings, selected["kind"].as_str().unwrap_or_default()) else {
        return;
    };
    let name = format!("{}-serviceexport", selected["name"].as_str().unwrap_or_default());
    let place = key(policy["metadata"]["namespace"].as_str(), &name);
    let before = world.store.get(&bindings, &place).map(|entry| entry.object(&bindings.kind));
    let scheduled = before.as_ref().map(|binding| &binding["spec"]["clusters"]);
    let fit: Vec<Value> = objects(world, "cluster.karmada.io", "clusters")
        .iter()
        .filter(|cluster| fits(cluster, policy, scheduled))
        .map(|cluster| json!({"name": cluster["metadata"]["name"]}))
        .collect();
    let mut binding = before.clone().unwrap_or_else(|| {
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
               "metadata": {"name": name, "namespace": policy["metadata"]["namespace"]},
               "spec": {"resource": selected}})
    });
    binding["spec"]["clusters"] = json!(fit);
    if before.as_ref() != Some(&binding) {
        world.store.put(&bindings, binding, now, false);
    }
}

/// Whether a cluster passes the filters ClusterAffinity, TaintToleration and APIEnablement.
fn fits(cluster: &Value, policy: &Value, scheduled: Option<&Value>) -> bool {
    let name = &cluster["metadata"]["name"];
    let placement = &policy["spec"]["placement"];
    let has = |list: &Value, item: &Value| list.as_array().is_some_and(|list| list.contains(item));
    let named = &placement["clusterAffinity"]["clusterNames"];
    let is_named = named.as_array().is_none_or(Vec::is_empty) || has(named, name);
    let tolerated = cluster["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
        || has(&placement["clusterTolerations"], &json!({"operator": "Exists"}));
    let kind = |resource: &Value| resource["kind"] == policy["spec"]["resourceSelectors"][0]["kind"];
    let mut enabled = cluster["status"]["apiEnablements"].as_array().into_iter().flatten();
    let enabled = enabled.any(|it| {
        it["groupVersion"] == policy["spec"]["resourceSelectors"][0]["apiVersion"]
            && it["resources"].as_array().is_some_and(|all| all.iter().any(kind))
    });
    let mut conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
    let whole = conditions.any(|it| it["type"] == "CompleteAPIEnablements" && it["status"] == "True");
    let stays = !whole && scheduled.is_some_and(|clusters| has(clusters, &json!({"name": name})));
    is_named && !has(&placement["clusterAffinity"]["exclude"], name) && tolerated && (enabled || stays)
}
