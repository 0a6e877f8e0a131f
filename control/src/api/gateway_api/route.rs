//! Routes of layer 4: `TCPRoute`, `UDPRoute` and `TLSRoute`, which have the same fields but for the server names of TLS.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::references::{BackendReference, ParentReference};
use crate::api::problem::ObjectRef;

/// Kind of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteKind {
    /// `TCPRoute`.
    Tcp,
    /// `UDPRoute`.
    Udp,
    /// `TLSRoute`.
    Tls,
}

impl RouteKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Tls];

    /// The kind as in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCPRoute",
            Self::Udp => "UDPRoute",
            Self::Tls => "TLSRoute",
        }
    }
}

/// Kind, namespace and name of a route. Displays as `TCPRoute namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Kind.
    pub kind: RouteKind,
}

impl RouteKey {
    /// The route as Problems name it.
    pub fn object(&self) -> ObjectRef {
        let (namespace, name) = (Arc::clone(&self.namespace), Arc::clone(&self.name));
        ObjectRef { kind: self.kind.name(), namespace, name }
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// Parents and backends of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteSpec {
    /// Gateways, ListenerSets or listeners that it attaches to, at most 32.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ParentReference>,
    /// Server names, exact or with the first label `*`; only in a TLSRoute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    /// Exactly one rule.
    pub rules: Vec<RouteRule>,
}

/// Backends of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteRule {
    /// 1 to 16 backends, which share the traffic by weight.
    pub backend_refs: Vec<BackendReference>,
}

/// Status of a route: one entry for each parent and controller. Entries of other controllers are kept as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteStatus {
    /// At most 32 entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<Value>,
}

macro_rules! route {
    ($(#[doc = $doc:literal])* $name:ident, $kind:literal, $plural:literal) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            /// Standard metadata.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// Parents and backends.
            #[serde(default)]
            pub spec: RouteSpec,
            /// State at each parent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<RouteStatus>,
        }

        impl k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = "gateway.networking.k8s.io/v1";
            const GROUP: &'static str = "gateway.networking.k8s.io";
            const KIND: &'static str = $kind;
            const VERSION: &'static str = "v1";
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::NamespaceResourceScope;
        }

        impl k8s_openapi::Metadata for $name {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

route! {
    /// Sends the TCP connections of listeners to backends.
    TcpRoute, "TCPRoute", "tcproutes"
}
route! {
    /// Sends the UDP flows of listeners to backends.
    UdpRoute, "UDPRoute", "udproutes"
}
route! {
    /// Sends the TLS connections of listeners to backends by server name, without terminating them.
    TlsRoute, "TLSRoute", "tlsroutes"
}
