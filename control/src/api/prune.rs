//! Pruning of objects before they are kept, since most fields are never read. Fields that the projection or the controller reads
//! must stay.

use serde_json::{Map, Value, json};

use super::names::{sets_shared_finalizer, shared_finalizer_key};

type Fields = Map<String, Value>;

/// The manager of each field; about half the size of an object's metadata.
const MANAGED_FIELDS: &str = "managedFields";
/// A second copy of the whole object, as `kubectl apply` left it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Prunes the fields that no kept object of any kind needs.
pub(crate) fn metadata(object: &mut Fields) {
    // The kind is known from the list, and the typed objects have no such fields.
    object.remove("kind");
    object.remove("apiVersion");
    fields_of_metadata(object);
}

fn fields_of_metadata(object: &mut Fields) {
    let Some(metadata) = inside(object, "metadata") else { return };
    for name in ["ownerReferences", "selfLink", "generateName"] {
        metadata.remove(name);
    }
    match shared_finalizers_managers(metadata) {
        managers if managers.is_empty() => metadata.remove(MANAGED_FIELDS),
        managers => metadata.insert(MANAGED_FIELDS.to_owned(), managers.into()),
    };
    if let Some(annotations) = inside(metadata, "annotations") {
        annotations.remove(LAST_APPLIED);
    }
}

/// Entries of the managers that set the shared finalizer. Only they show whether this installation did.
fn shared_finalizers_managers(metadata: &Fields) -> Vec<Value> {
    let entries = metadata.get(MANAGED_FIELDS).and_then(Value::as_array).into_iter().flatten();
    let own = entries.filter(|entry| sets_shared_finalizer(&entry["fieldsV1"]));
    let kept = |entry: &Value| {
        json!({"manager": entry["manager"], "operation": entry["operation"],
               "fieldsV1": {"f:metadata": {"f:finalizers": {shared_finalizer_key(): {}}}}})
    };
    own.map(kept).collect()
}

/// Removes from endpoints the Pod reference, the hostname, and the deprecated map that zone and node name replaced.
pub(super) fn slice(slice: &mut Fields) {
    let Some(endpoints) = slice.get_mut("endpoints").and_then(Value::as_array_mut) else { return };
    for endpoint in endpoints.iter_mut().filter_map(Value::as_object_mut) {
        for name in ["targetRef", "deprecatedTopology", "hostname"] {
            endpoint.remove(name);
        }
    }
}

/// Keeps only the addresses of the status: a kubelet writes conditions, images and volumes over and over.
pub(super) fn node(node: &mut Fields) {
    if let Some(status) = inside(node, "status") {
        status.retain(|name, _| name == "addresses");
    }
    if let Some(metadata) = inside(node, "metadata") {
        metadata.remove("annotations");
    }
}

/// Keeps only the labels of a Namespace, and what identifies its version.
pub(super) fn namespace(namespace: &mut Fields) {
    namespace.retain(|name, _| name == "metadata");
    if let Some(metadata) = inside(namespace, "metadata") {
        metadata.retain(|name, _| ["name", "labels", "uid", "resourceVersion"].contains(&name.as_str()));
    }
}

/// Prefix of the annotations that Karmada adds to every object that it propagates. They are never read.
const TEMPLATE_STAMPS: &str = "resourcetemplate.karmada.io/";

/// Prunes the objects that a Work carries like the same objects elsewhere, and drops objects of other kinds together with their
/// status. A manifest keeps its kind, which is recorded nowhere else.
pub(super) fn work(work: &mut Fields) {
    let workload = inside(work, "spec").and_then(|spec| inside(spec, "workload"));
    let manifests = workload.and_then(|workload| workload.get_mut("manifests"));
    for manifest in manifests.and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(manifest) = manifest.as_object_mut() else { continue };
        match manifest.get("kind").and_then(Value::as_str) {
            Some("EndpointSlice") => slice(manifest),
            Some("Service") => {}
            _ => manifest.retain(|name, _| name == "kind"),
        }
        fields_of_metadata(manifest);
        let annotations = inside(manifest, "metadata").and_then(|metadata| inside(metadata, "annotations"));
        if let Some(annotations) = annotations {
            annotations.retain(|name, _| !name.starts_with(TEMPLATE_STAMPS));
        }
    }
    let statuses = inside(work, "status").and_then(|status| status.get_mut("manifestStatuses"));
    if let Some(statuses) = statuses.and_then(Value::as_array_mut) {
        statuses.retain(|status| status["identifier"]["kind"] == "Service");
    }
}

fn inside<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::SHARED_FINALIZER;

    fn pruned(value: &Value, prune: impl Fn(&mut Fields)) -> Value {
        let mut fields = value.as_object().unwrap().clone();
        prune(&mut fields);
        Value::Object(fields)
    }

    #[test]
    fn what_only_other_writers_need_goes() {
        let service = json!({"kind": "Service", "apiVersion": "v1",
            "metadata": {"name": "web", "managedFields": [{}], "ownerReferences": [{}], "uid": "1",
                "annotations": {LAST_APPLIED: "{}", "sheave.dev/balance": "random"}},
            "spec": {"ports": []}, "status": {"conditions": [{"type": "theirs"}]}});
        let kept = json!({
            "metadata": {"name": "web", "uid": "1", "annotations": {"sheave.dev/balance": "random"}},
            "spec": {"ports": []}, "status": {"conditions": [{"type": "theirs"}]}});
        assert_eq!(pruned(&service, metadata), kept);
    }

    #[test]
    fn who_set_the_shared_finalizer_stays() {
        let entry = |manager: &str, finalizer: &str| {
            json!({"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z",
                   "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, format!("v:\"{finalizer}\""): {}}}, "f:spec": {}}})
        };
        let service = json!({"metadata": {"name": "web",
            "managedFields": [entry("kubectl", "example.com/other"), entry("sheave", SHARED_FINALIZER), {"manager": "x"}]}});
        let key = format!("v:\"{SHARED_FINALIZER}\"");
        let kept = json!({"metadata": {"name": "web", "managedFields": [
            {"manager": "sheave", "operation": "Update", "fieldsV1": {"f:metadata": {"f:finalizers": {key: {}}}}}]}});
        assert_eq!(pruned(&service, metadata), kept);
    }

    #[test]
    fn endpoints_keep_what_routes_are_made_of() {
        let endpoint = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1",
            "zone": "a", "hints": {"forZones": [{"name": "a"}]}});
        let mut full = endpoint.clone();
        full["targetRef"] = json!({"kind": "Pod", "name": "web-1"});
        full["deprecatedTopology"] = json!({"topology.kubernetes.io/zone": "a"});
        full["hostname"] = json!("web-1");
        assert_eq!(pruned(&json!({"endpoints": [full]}), slice), json!({"endpoints": [endpoint]}));
        assert_eq!(pruned(&json!({"endpoints": null}), slice), json!({"endpoints": null}));
    }

    #[test]
    fn nodes_keep_their_labels_spec_and_addresses() {
        let full = json!({"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"podCIDR": "10.1.0.0/24"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "images": [{}]}});
        let kept = json!({"metadata": {"name": "n1", "labels": {"a": "b"}}, "spec": {"podCIDR": "10.1.0.0/24"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
        assert_eq!(pruned(&full, node), kept);
    }

    #[test]
    fn namespaces_keep_their_labels() {
        let full = json!({"metadata": {"name": "shop", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        assert_eq!(pruned(&full, namespace), json!({"metadata": {"name": "shop", "labels": {"a": "b"}}}));
    }

    #[test]
    fn works_keep_the_slices_and_services_that_they_carry_and_what_is_said_of_these() {
        let full = json!({"spec": {"workload": {"manifests": [
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "web-1", "managedFields": [], "annotations": {
                    "resourcetemplate.karmada.io/uid": "u", "endpointslice.karmada.io/provision-cluster": "m"}},
                "endpoints": [{"addresses": ["10.1.0.7"], "targetRef": {"name": "web-1-x"}}]},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2}},
            null]}},
            "status": {"manifestStatuses": [{"identifier": {"kind": "Deployment"}, "status": {"replicas": 2}},
                {"identifier": {"kind": "Service"}, "status": {"loadBalancer": {}}}]}});
        let kept = json!({"spec": {"workload": {"manifests": [
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web-1",
                "annotations": {"endpointslice.karmada.io/provision-cluster": "m"}},
                "endpoints": [{"addresses": ["10.1.0.7"]}]},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}},
            {"kind": "Deployment"}, null]}},
            "status": {"manifestStatuses": [{"identifier": {"kind": "Service"}, "status": {"loadBalancer": {}}}]}});
        assert_eq!(pruned(&full, work), kept);
        for odd in [json!({"spec": {"workload": {"manifests": {}}}}), json!({"spec": null, "status": []})] {
            assert_eq!(pruned(&odd, work), odd);
        }
    }
}
