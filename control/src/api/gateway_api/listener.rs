//! Listeners of Gateways and ListenerSets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use serde::{Deserialize, Serialize};

/// A port and protocol on which a Gateway accepts traffic, and the routes that may attach to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    /// Name, unique in its object.
    pub name: String,
    /// Server name, exact or with the first label `*`; only with HTTP, HTTPS and TLS. Empty is equal to absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// 1 to 65535.
    pub port: i32,
    /// `TCP`, `UDP`, `TLS`, `HTTP`, `HTTPS`, or a name with a domain prefix.
    pub protocol: String,
    /// Only with TLS and HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// Routes that may attach. Absent means routes of the object's own namespace, of every kind that the protocol has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_routes: Option<AllowedRoutes>,
}

/// TLS settings of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerTls {
    /// `Terminate` (default) or `Passthrough`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// Routes that may attach to a listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllowedRoutes {
    /// Namespaces of the routes. `from` is `Same` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespacesFrom>,
    /// Kinds of the routes; empty means every kind that the protocol has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<RouteGroupKind>,
}

/// A choice of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespacesFrom {
    /// `All`, `Same`, `Selector` or `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// With `Selector`: labels of the namespaces. An empty selector selects all, an absent one none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// A kind of route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteGroupKind {
    /// The group of the Gateway API if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Kind, such as `TCPRoute`.
    pub kind: String,
}

/// Status of a listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerStatus {
    /// Name of the listener.
    pub name: String,
    /// Kinds of routes that can attach.
    pub supported_kinds: Vec<RouteGroupKind>,
    /// Number of attached routes.
    pub attached_routes: i32,
    /// `Accepted`, `Conflicted`, `Programmed` and `ResolvedRefs`.
    pub conditions: Vec<Condition>,
}
