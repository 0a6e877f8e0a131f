//! URL paths of kinds.

use serde_json::Value;

/// Kind, group and version, plural, and whether its objects have a namespace.
const KINDS: &[(&str, &str, &str, bool)] = &[
    ("Service", "v1", "services", true),
    ("Node", "v1", "nodes", false),
    ("Namespace", "v1", "namespaces", false),
    ("ServiceAccount", "v1", "serviceaccounts", true),
    ("ConfigMap", "v1", "configmaps", true),
    ("EndpointSlice", "discovery.k8s.io/v1", "endpointslices", true),
    ("Lease", "coordination.k8s.io/v1", "leases", true),
    ("Event", "events.k8s.io/v1", "events", true),
    ("ClusterRole", "rbac.authorization.k8s.io/v1", "clusterroles", false),
    ("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", "clusterrolebindings", false),
    ("Role", "rbac.authorization.k8s.io/v1", "roles", true),
    ("RoleBinding", "rbac.authorization.k8s.io/v1", "rolebindings", true),
    ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", "validatingadmissionpolicies", false),
    (
        "ValidatingAdmissionPolicyBinding",
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        false,
    ),
    ("CustomResourceDefinition", "apiextensions.k8s.io/v1", "customresourcedefinitions", false),
    ("AddressPool", "sheave.dev/v1alpha1", "addresspools", false),
    ("MultiClusterService", "networking.karmada.io/v1alpha1", "multiclusterservices", true),
    ("Work", "work.karmada.io/v1alpha1", "works", true),
    ("ResourceBinding", "work.karmada.io/v1alpha2", "resourcebindings", true),
    ("Cluster", "cluster.karmada.io/v1alpha1", "clusters", false),
    ("ServiceExport", "multicluster.x-k8s.io/v1alpha1", "serviceexports", true),
    ("PropagationPolicy", "policy.karmada.io/v1alpha1", "propagationpolicies", true),
];

/// Path of an object with a namespace.
pub(super) fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    of(&text(&object["kind"]), &text(&metadata["namespace"]), &text(&metadata["name"]))
}

/// Path of an object; if `name` is empty, that of the kind with a trailing slash.
pub(super) fn of(kind: &str, namespace: &str, name: &str) -> String {
    let (_, version, plural, namespaced) = entry(kind);
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let scope = if *namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    format!("{root}/{version}{scope}/{plural}/{name}")
}

/// Path of all objects of a kind, in all namespaces.
pub(super) fn everywhere(kind: &str) -> String {
    let (_, version, plural, _) = entry(kind);
    format!("{}/{version}/{plural}", if version.contains('/') { "/apis" } else { "/api" })
}

pub(super) fn is_namespaced(kind: &str) -> bool {
    entry(kind).3
}

fn entry(kind: &str) -> &'static (&'static str, &'static str, &'static str, bool) {
    KINDS.iter().find(|(known, ..)| *known == kind).unwrap_or_else(|| panic!("no path is known for {kind}"))
}
