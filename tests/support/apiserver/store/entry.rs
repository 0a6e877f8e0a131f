//! Stored object: its bytes, and the parts that selectors need.

use std::collections::BTreeMap;

use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::apiserver::kind::Kind;
use crate::apiserver::kind::registry::Served;

/// Selectable fields besides name and namespace, by shelf: name in selectors and path in objects.
const SELECTABLE: &[(&str, &[(&str, &str)])] = &[
    ("services", &[("spec.clusterIP", "/spec/clusterIP"), ("spec.type", "/spec/type")]),
    ("nodes", &[("spec.unschedulable", "/spec/unschedulable")]),
    ("namespaces", &[("status.phase", "/status/phase")]),
    (
        "pods",
        &[
            ("spec.nodeName", "/spec/nodeName"),
            ("status.phase", "/status/phase"),
            ("status.podIP", "/status/podIP"),
        ],
    ),
    (
        "events",
        &[
            ("involvedObject.kind", "/involvedObject/kind"),
            ("involvedObject.namespace", "/involvedObject/namespace"),
            ("involvedObject.name", "/involvedObject/name"),
            ("involvedObject.uid", "/involvedObject/uid"),
            ("regarding.kind", "/involvedObject/kind"),
            ("regarding.namespace", "/involvedObject/namespace"),
            ("regarding.name", "/involvedObject/name"),
            ("regarding.uid", "/involvedObject/uid"),
            ("reason", "/reason"),
            ("type", "/type"),
            ("reportingController", "/reportingComponent"),
        ],
    ),
];

/// Selectable fields of a kind, with their paths in objects.
pub(crate) fn selectable(served: &Served) -> Vec<(String, String)> {
    let built_in =
        SELECTABLE.iter().find(|(shelf, _)| *shelf == served.shelf).map_or(&[][..], |(_, fields)| fields);
    let built_in = built_in.iter().map(|&(name, path)| (name.to_owned(), path.to_owned()));
    let custom = served.selectable.iter().map(|path| {
        let name = path.trim_start_matches('.');
        (name.to_owned(), format!("/{}", name.replace('.', "/")))
    });
    built_in.chain(custom).collect()
}

/// Stored object.
#[derive(Debug)]
pub struct Entry {
    /// `namespace/name`, or `name` for kinds without namespaces; sorts as in etcd.
    pub key: String,
    /// `metadata.resourceVersion`.
    pub revision: u64,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Selectable fields with their values.
    pub fields: Vec<(String, String)>,
    /// JSON without `apiVersion` and `kind`, which depend on the requested version.
    rest: Bytes,
}

impl Entry {
    /// Serializes an object.
    pub fn new(served: &Served, mut object: Value, revision: u64) -> Self {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let namespace = metadata["namespace"].as_str();
        let key = key(namespace, name);
        let mut fields = vec![
            ("metadata.name".to_owned(), name.to_owned()),
            ("metadata.namespace".to_owned(), namespace.unwrap_or_default().to_owned()),
        ];
        fields.extend(selectable(served).into_iter().map(|(name, path)| {
            let value = match object.pointer(&path) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            };
            (name, value)
        }));
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let labels =
            labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        let map = object.as_object_mut().expect("an object");
        map.remove("apiVersion");
        map.remove("kind");
        let rest = serde_json::to_vec(&object).expect("JSON serialises").into();
        Self { key, revision, labels, fields, rest }
    }

    /// The parsed object with `apiVersion` and `kind`.
    pub fn object(&self, kind: &Kind) -> Value {
        let mut object: Value = serde_json::from_slice(&self.rest).expect("it was serialised here");
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
        object
    }

    /// Appends the object as JSON with `apiVersion` and `kind`.
    pub fn write_whole(&self, kind: &Kind, out: &mut Vec<u8>) {
        out.extend_from_slice(
            format!(r#"{{"kind":"{}","apiVersion":"{}","#, kind.kind, kind.api_version()).as_bytes(),
        );
        out.extend_from_slice(&self.rest[1..]);
    }

    /// Appends the object as JSON without `apiVersion` and `kind`, as in lists of built-in kinds.
    pub fn write_bare(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.rest);
    }
}

/// Key of an object.
pub(crate) fn key(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}
