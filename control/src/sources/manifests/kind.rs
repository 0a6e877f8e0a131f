//! The kinds that manifests may be of, and in which folder each belongs. It must not know how they are read.

use k8s_openapi::Resource as _;
use serde_json::{Map, Value};

use super::Of;
use crate::api::address_pool;
use crate::api::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};

/// Which of our kinds a document is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Service,
    Slice,
    Node,
    Namespace,
    Pool,
    MultiClusterService,
    Work,
    Binding,
    Cluster,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Service,
        Self::Slice,
        Self::Node,
        Self::Namespace,
        Self::Pool,
        Self::MultiClusterService,
        Self::Work,
        Self::Binding,
        Self::Cluster,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Slice => "EndpointSlice",
            Self::Node => "Node",
            Self::Namespace => "Namespace",
            Self::Pool => address_pool::KIND,
            Self::MultiClusterService => MultiClusterService::KIND,
            Self::Work => Work::KIND,
            Self::Binding => ResourceBinding::KIND,
            Self::Cluster => Cluster::KIND,
        }
    }

    /// As in a sentence: `a Service`, `an AddressPool`.
    pub(super) fn with_article(self) -> String {
        let name = self.name();
        let article = if name.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
        format!("{article} {name}")
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::Service | Self::Node | Self::Namespace => "v1",
            Self::Slice => "discovery.k8s.io/v1",
            Self::Pool => address_pool::API_VERSION,
            Self::MultiClusterService => MultiClusterService::API_VERSION,
            Self::Work => Work::API_VERSION,
            Self::Binding => ResourceBinding::API_VERSION,
            Self::Cluster => Cluster::API_VERSION,
        }
    }

    pub(super) fn is_namespaced(self) -> bool {
        !matches!(self, Self::Node | Self::Namespace | Self::Pool | Self::Cluster)
    }

    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether that is an API version by which the kind can be read.
    pub(super) fn has_api_version(self, found: &str) -> bool {
        // What is read of a binding was the same in its first version.
        found == self.api_version() || (self == Self::Binding && found == "work.karmada.io/v1alpha1")
    }

    /// What a folder of these manifests does with it.
    pub(super) fn use_in(self, of: Of) -> Use {
        match (self, of) {
            (Self::Service | Self::Slice, _)
            | (Self::Node | Self::Namespace | Self::Pool, Of::Cluster)
            | (Self::MultiClusterService | Self::Work | Self::Binding | Self::Cluster, Of::Karmada) => {
                Use::Taken
            }
            // A control plane has Namespaces of its own, and may have Nodes.
            (Self::Node | Self::Namespace, Of::Karmada) => Use::None,
            (Self::Pool, Of::Karmada)
            | (Self::MultiClusterService | Self::Work | Self::Binding | Self::Cluster, Of::Cluster) => {
                Use::Elsewhere
            }
        }
    }
}

/// What becomes of an object of a known kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Use {
    Taken,
    /// It may be there.
    None,
    /// It is in the wrong folder.
    Elsewhere,
}

/// Whether unknown fields of the kind are nobody's mistake: of what Karmada writes only a part is known here.
pub(super) fn is_lenient(kind: &str) -> bool {
    [MultiClusterService::KIND, Work::KIND, ResourceBinding::KIND, Cluster::KIND].contains(&kind)
}

/// Whether the object's API group is one of those that our kinds are of. Other groups have kinds of the same names
/// (Knative's Service, Longhorn's Node), which are foreign to us. An object without a readable group counts as ours, to be
/// told of.
pub(super) fn is_of_our_groups(fields: &Map<String, Value>) -> bool {
    let found = fields.get("apiVersion").and_then(Value::as_str).map(group).unwrap_or_default();
    Kind::ALL.iter().any(|kind| group(kind.api_version()) == found)
}

/// The group of an API version; the core group has the empty name.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
