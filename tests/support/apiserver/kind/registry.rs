//! Registry of the served kinds: the built-in ones, and those of CustomResourceDefinitions.

use std::sync::Arc;

use serde_json::Value;

use super::Kind;

/// Group, version, kind, plural, namespaced, subresources and short names, in the order of discovery.
type Row =
    (&'static str, &'static str, &'static str, &'static str, bool, &'static [&'static str], &'static str);

const STATUS: &[&str] = &["status"];

const BUILT_IN: &[Row] = &[
    ("", "v1", "ConfigMap", "configmaps", true, &[], "cm"),
    ("", "v1", "Event", "events", true, &[], "ev"),
    ("", "v1", "Namespace", "namespaces", false, &["finalize", "status"], "ns"),
    ("", "v1", "Node", "nodes", false, STATUS, "no"),
    ("", "v1", "Pod", "pods", true, STATUS, "po"),
    ("", "v1", "Secret", "secrets", true, &[], ""),
    ("", "v1", "ServiceAccount", "serviceaccounts", true, &[], "sa"),
    ("", "v1", "Service", "services", true, STATUS, "svc"),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
        STATUS,
        "crd",
    ),
    ("apps", "v1", "DaemonSet", "daemonsets", true, STATUS, "ds"),
    ("apps", "v1", "Deployment", "deployments", true, STATUS, "deploy"),
    ("coordination.k8s.io", "v1", "Lease", "leases", true, &[], ""),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true, &[], ""),
    ("events.k8s.io", "v1", "Event", "events", true, &[], "ev"),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true, &[], "netpol"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true, STATUS, "pdb"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false, &[], ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false, &[], ""),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true, &[], ""),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", true, &[], ""),
];

/// Kind that Karmada's aggregated API server adds; all other Karmada kinds are custom ones.
const AGGREGATED: &Row =
    &("cluster.karmada.io", "v1alpha1", "Cluster", "clusters", false, &["proxy", "status"], "");

/// Served kind, with data for discovery and storage.
#[derive(Debug)]
pub struct Served {
    /// Kind that writes are checked against.
    pub kind: Kind,
    /// Name of the shelf with the objects. Versions of a kind share it, and so do both groups of Events.
    pub shelf: String,
    /// Singular name in discovery.
    pub singular: String,
    /// Short names, such as `svc`.
    pub short_names: Vec<String>,
    /// Categories for `kubectl get`, such as `karmada-io`.
    pub categories: Vec<String>,
    /// Field paths that a CRD declares as selectable, such as `.spec.type`.
    pub selectable: Vec<String>,
    /// Whether the first request is still to be answered with "storage is (re)initializing".
    pub fresh: std::sync::atomic::AtomicBool,
    /// Whether an aggregated server serves the kind, which may be away on its own.
    pub aggregated: bool,
}

impl Served {
    /// Whether objects have the shape of `events.k8s.io`. They are stored in the shape of the core group.
    pub fn reshapes_events(&self) -> bool {
        self.kind.group == "events.k8s.io"
    }
}

/// All served kinds.
#[derive(Debug)]
pub struct Registry {
    served: Vec<Arc<Served>>,
}

impl Registry {
    /// The built-in kinds.
    pub fn new() -> Self {
        Self { served: BUILT_IN.iter().map(|row| Arc::new(built_in(row))).collect() }
    }

    /// Kind of `/apis/<group>/<version>/.../<plural>`.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        let matches = |served: &&Arc<Served>| {
            let kind = &served.kind;
            kind.group == group && kind.version == version && kind.plural == plural
        };
        self.served.iter().find(matches).map(Arc::clone)
    }

    /// Kind of an object.
    pub fn find_by_object(&self, object: &Value) -> Option<Arc<Served>> {
        let api_version = object["apiVersion"].as_str()?;
        let name = object["kind"].as_str()?;
        let matches =
            |served: &&Arc<Served>| served.kind.api_version() == api_version && served.kind.kind == name;
        self.served.iter().find(matches).map(Arc::clone)
    }

    /// Any version of a kind.
    pub fn find_plural(&self, group: &str, plural: &str) -> Option<Arc<Served>> {
        let matches = |served: &&Arc<Served>| served.kind.group == group && served.kind.plural == plural;
        self.served.iter().find(matches).map(Arc::clone)
    }

    /// All kinds, by group.
    pub fn all(&self) -> &[Arc<Served>] {
        &self.served
    }

    /// Serves the kinds of a CustomResourceDefinition, replacing earlier ones of the same name.
    pub fn define(&mut self, definition: &Value) {
        self.forget(definition);
        self.served.extend(custom(definition).map(Arc::new));
    }

    /// Serves Karmada's Clusters, as its aggregated API server does.
    pub fn aggregate(&mut self) {
        let clusters = Served { aggregated: true, ..built_in(AGGREGATED) };
        self.served.retain(|served| served.shelf != clusters.shelf);
        self.served.push(Arc::new(clusters));
    }

    /// Stops serving the kinds of a definition.
    pub fn forget(&mut self, definition: &Value) {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        self.served.retain(|served| served.kind.group != group || served.kind.plural != plural);
    }
}

/// Name of the shelf of a kind.
pub fn shelf_name(group: &str, plural: &str) -> String {
    match group {
        "" | "events.k8s.io" => plural.to_owned(),
        group => format!("{plural}.{group}"),
    }
}

fn built_in(row: &Row) -> Served {
    let &(group, version, kind, plural, namespaced, subresources, short) = row;
    Served {
        kind: Kind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
            subresources: subresources.iter().map(|&name| name.to_owned()).collect(),
            custom: false,
            schema: None,
        },
        shelf: shelf_name(group, plural),
        singular: kind.to_lowercase(),
        short_names: short.split_whitespace().map(str::to_owned).collect(),
        categories: Vec::new(),
        selectable: Vec::new(),
        fresh: false.into(),
        aggregated: false,
    }
}

fn custom(definition: &Value) -> impl Iterator<Item = Served> + '_ {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    versions.iter().filter(|version| version["served"] == true).map(move |version| {
        let names = &spec["names"];
        let kind = text(&names["kind"]);
        let subresources = version["subresources"].as_object().map(|map| map.keys().cloned().collect());
        let short_names = names["shortNames"].as_array().map(Vec::as_slice).unwrap_or_default();
        let categories = names["categories"].as_array().map(Vec::as_slice).unwrap_or_default();
        let selectable = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
        Served {
            shelf: shelf_name(&text(&spec["group"]), &text(&names["plural"])),
            singular: names["singular"].as_str().map_or_else(|| kind.to_lowercase(), str::to_owned),
            short_names: short_names.iter().map(text).collect(),
            categories: categories.iter().map(text).collect(),
            aggregated: false,
            selectable: selectable.iter().map(|field| text(&field["jsonPath"])).collect(),
            fresh: true.into(),
            kind: Kind {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                plural: text(&names["plural"]),
                kind,
                namespaced: spec["scope"] == "Namespaced",
                subresources: subresources.unwrap_or_default(),
                custom: true,
                schema: version["schema"].get("openAPIV3Schema").cloned(),
            },
        }
    })
}
