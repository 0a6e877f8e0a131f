//! The Gateway API (`gateway.networking.k8s.io/v1`) as far as layer 4 needs it. Fields that Sheave does not read are ignored, and
//! values are kept as text: a value of a later version must not make an object unreadable.

mod class;
mod gateway;
mod listener;
mod listener_set;
mod reference_grant;
mod references;
mod route;
pub(super) mod rules;

pub use self::class::{GatewayClass, GatewayClassSpec, GatewayClassStatus, SupportedFeature};
pub use self::gateway::{
    AllowedListeners, Gateway, GatewayAddress, GatewayInfrastructure, GatewaySpec, GatewayStatus,
};
pub use self::listener::{
    AllowedRoutes, Listener, ListenerStatus, ListenerTls, NamespacesFrom, RouteGroupKind, transport,
};
pub use self::listener_set::{ListenerSet, ListenerSetSpec, ListenerSetStatus};
pub use self::reference_grant::{GrantFrom, GrantTo, ReferenceGrant, ReferenceGrantSpec};
pub use self::references::{BackendReference, ParentReference};
pub use self::route::{RouteKey, RouteKind, RouteRule, RouteSpec, RouteStatus, TcpRoute, TlsRoute, UdpRoute};

pub use self::rules::Breach;
pub(crate) use self::rules::{MOST_ADDRESSES, MOST_LISTENERS};

/// API group of all kinds here.
pub const GROUP: &str = "gateway.networking.k8s.io";
