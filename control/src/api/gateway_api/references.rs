//! References of routes: to the Gateways that they attach to, and to the backends that serve them.

use serde::{Deserialize, Serialize};

use super::GROUP;

/// A Gateway or ListenerSet, or some of its listeners, that a route or ListenerSet attaches to. A status repeats it unchanged, so
/// absent fields stay absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentReference {
    /// The group of the Gateway API if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `Gateway` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The route's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the parent.
    pub name: String,
    /// Name of the only listener to attach to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// Port of the only listeners to attach to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

impl ParentReference {
    /// Whether it names a Gateway.
    pub fn is_gateway(&self) -> bool {
        self.is_of_group() && matches!(self.kind.as_deref(), None | Some("Gateway"))
    }

    /// Whether it names a ListenerSet.
    pub fn is_listener_set(&self) -> bool {
        self.is_of_group() && self.kind.as_deref() == Some("ListenerSet")
    }

    fn is_of_group(&self) -> bool {
        self.group.as_deref().is_none_or(|group| group == GROUP)
    }

    /// Namespace of the parent of an object in `own`.
    pub fn namespace_in<'a>(&'a self, own: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(own)
    }
}

/// A backend of a route, and its share of the traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendReference {
    /// The core group if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `Service` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The route's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the backend.
    pub name: String,
    /// Port of the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// 0 to 1,000,000; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

impl BackendReference {
    /// Namespace of the backend of a route in `own`.
    pub fn namespace_in<'a>(&'a self, own: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(own)
    }
}
