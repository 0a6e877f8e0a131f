//! `Work` (`work.karmada.io/v1alpha1`): objects that Karmada applies in one member cluster, or has collected from there.
//! Manifests are decoded on arrival, so that nothing is kept of those that are not used.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::lenient;
use crate::api::decode;
use crate::text::{MAX_MESSAGE_BYTES, cut_middle};

/// Largest length in bytes of a manifest's error, which is part of a message.
const LONGEST_WHY: usize = MAX_MESSAGE_BYTES / 2;

/// Objects of the member cluster that the Work's namespace names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Standard metadata; the namespace names the cluster.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Objects that it carries.
    #[serde(default)]
    spec: WorkSpec,
    /// Status of the objects in the cluster. A field that cannot be parsed counts as absent.
    #[serde(default, deserialize_with = "lenient::value")]
    status: WorkStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct WorkSpec {
    workload: Workload,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Workload {
    manifests: Vec<Manifest>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lenient::list")]
    manifest_statuses: Vec<ManifestStatus>,
}

/// One object that a Work carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Manifest {
    /// Endpoints that were collected from the cluster.
    EndpointSlice(Arc<EndpointSlice>),
    /// A Service as applied in the cluster.
    Service(Arc<Service>),
    /// An object of a kind that is not used.
    Other {
        /// Its kind; empty if it has none.
        kind: String,
    },
    /// An object of a used kind that cannot be decoded.
    Broken {
        /// Its kind.
        kind: String,
        /// The decoding error.
        why: String,
    },
}

/// Status of one manifest in the member cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ManifestStatus {
    /// The manifest that this is about.
    pub identifier: ManifestIdentifier,
    /// The part of the object's status that Karmada collects; for a LoadBalancer Service `{"loadBalancer": …}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
}

/// Identifies a manifest of a Work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ManifestIdentifier {
    /// Kind, for example `Service`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Work {
    /// A Work that carries these manifests and has no status.
    pub fn new(metadata: ObjectMeta, manifests: Vec<Manifest>) -> Self {
        Self { metadata, spec: WorkSpec { workload: Workload { manifests } }, status: WorkStatus::default() }
    }

    /// Objects that it carries.
    pub fn manifests(&self) -> &[Manifest] {
        &self.spec.workload.manifests
    }

    /// Status of the objects in the member cluster.
    pub fn manifest_statuses(&self) -> &[ManifestStatus] {
        &self.status.manifest_statuses
    }

    /// Whether Karmada collected it from the member cluster, as opposed to applying it there. Copies dispatched to other clusters
    /// have the other labels, but not this one.
    pub fn is_collected(&self) -> bool {
        self.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(super::COLLECTED_LABEL))
    }

    /// Name of the member cluster that it belongs to; `None` if its namespace is not an execution space.
    pub fn cluster(&self) -> Option<&str> {
        super::cluster_of_namespace(self.metadata.namespace.as_deref()?)
    }
}

impl Manifest {
    /// Decodes one manifest. It never fails, so that one bad manifest does not make the whole Work unreadable.
    fn read(value: Value) -> Self {
        let Value::Object(mut fields) = value else {
            return Self::Broken { kind: String::new(), why: "is not an object".to_owned() };
        };
        let text = |fields: &Map<String, Value>, name| {
            fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (kind, api_version) = (text(&fields, "kind"), text(&fields, "apiVersion"));
        decode::drop_nulls(&mut fields);
        let read = match (api_version.as_str(), kind.as_str()) {
            ("discovery.k8s.io/v1", "EndpointSlice") => serde_json::from_value(Value::Object(fields))
                .map(|slice| Self::EndpointSlice(Arc::new(slice))),
            ("v1", "Service") => {
                decode::complete_conditions(&mut fields);
                serde_json::from_value(Value::Object(fields)).map(|service| Self::Service(Arc::new(service)))
            }
            _ => Ok(Self::Other { kind: kind.clone() }),
        };
        // The error quotes the value, which can be as long as an object.
        read.unwrap_or_else(|error| Self::Broken { kind, why: cut_middle(error.to_string(), LONGEST_WHY) })
    }
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::read)
    }
}

/// Writes what was decoded, so that a Work on disk decodes to the same value; for unused kinds only the kind.
impl Serialize for Manifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // k8s-openapi writes kind and apiVersion.
            Self::EndpointSlice(slice) => slice.serialize(serializer),
            Self::Service(service) => service.serialize(serializer),
            Self::Other { kind } => json!({ "kind": kind }).serialize(serializer),
            // Decodes to `Broken` again, though with a different message.
            Self::Broken { kind, why } => {
                json!({"apiVersion": api_version(kind), "kind": kind, "metadata": why}).serialize(serializer)
            }
        }
    }
}

fn api_version(kind: &str) -> &'static str {
    if kind == "EndpointSlice" { "discovery.k8s.io/v1" } else { "v1" }
}

crate::api::resource::resource!(Work, "work.karmada.io", "v1alpha1", "works", NamespaceResourceScope);
