//! Listeners of Gateways and ListenerSets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use serde::{Deserialize, Serialize};
use sheave_model::Protocol;

use super::GROUP;
use super::route::RouteKind;

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

impl Listener {
    /// Namespaces of the routes that may attach, if it names any.
    pub fn namespaces(&self) -> Option<&NamespacesFrom> {
        self.allowed_routes.as_ref()?.namespaces.as_ref()
    }

    /// Kinds of the routes that may attach; empty means every kind that the protocol has.
    pub fn allowed_kinds(&self) -> &[RouteGroupKind] {
        self.allowed_routes.as_ref().map(|allowed| allowed.kinds.as_slice()).unwrap_or_default()
    }
}

/// The transport protocol of a listener with this protocol: all but UDP use TCP.
pub fn transport(protocol: &str) -> Protocol {
    if protocol == Protocol::Udp.name() { Protocol::Udp } else { Protocol::Tcp }
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

impl NamespacesFrom {
    /// Whether labels of Namespaces decide.
    pub fn is_by_labels(&self) -> bool {
        self.from.as_deref() == Some("Selector")
    }
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

impl RouteGroupKind {
    /// Whether it is this kind.
    pub fn is(&self, kind: RouteKind) -> bool {
        self.kind == kind.name() && self.group.as_deref().is_none_or(|group| group == GROUP)
    }
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

impl ListenerStatus {
    /// Whether the condition of this type is True.
    pub fn holds(&self, kind: &str) -> bool {
        self.conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
    }

    /// Whether it is True for this generation of the object.
    pub fn holds_for(&self, kind: &str, generation: Option<i64>) -> bool {
        let mut conditions = self.conditions.iter().filter(|condition| condition.type_ == kind);
        conditions.any(|it| it.status == "True" && it.observed_generation == generation)
    }
}
