//! Statuses of the Gateway API: from an object of the cache and its desired status to the next write. Pure functions: the object alone
//! decides, so a controller may stop after any write.
//!
//! GatewayClasses, Gateways and ListenerSets are applied (server-side apply of `/status`). The status of a route is one list that
//! several controllers share, so it is replaced as a whole, for the version that it was computed from.

pub mod class;
mod condition_list;
pub mod gateway;
pub mod listener_set;
mod listeners;
pub mod route_parents;
#[cfg(test)]
pub(in crate::controller) mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::Resource as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::class::DesiredClass;
use self::gateway::DesiredGateway;
use self::listener_set::DesiredListenerSet;
use self::route_parents::DesiredParents;
use super::status_writer::next_step::{Urgency, WriteStep};
use crate::api::gateway_api::{
    Gateway, GatewayClass, ListenerSet, RouteKey, RouteKind, TcpRoute, TlsRoute, UdpRoute,
};
use crate::api::objects::ObjectKey;
use crate::api::problem::ObjectRef;
use crate::api::routes::AnyRoute;
use crate::api::store::ServiceKey;

/// Identity of an object of the Gateway API that has a status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GatewayApiKey {
    /// A GatewayClass.
    Class(Arc<str>),
    /// A Gateway.
    Gateway(ServiceKey),
    /// A ListenerSet.
    ListenerSet(ObjectKey),
    /// A route.
    Route(RouteKey),
}

impl GatewayApiKey {
    /// The object as Problems name it.
    pub fn object(&self) -> ObjectRef {
        match self {
            Self::Class(name) => {
                ObjectRef { kind: GatewayClass::KIND, namespace: "".into(), name: Arc::clone(name) }
            }
            Self::Gateway(key) => key.object(),
            Self::ListenerSet(key) => ListenerSet::object(key),
            Self::Route(key) => key.object(),
        }
    }

    /// Resource name for RBAC rules, of the status or of the object itself.
    pub(super) fn resource(&self, is_status: bool) -> &'static str {
        match self {
            Self::Class(_) if is_status => "gatewayclasses/status",
            Self::Class(_) => "gatewayclasses",
            Self::Gateway(_) => "gateways/status",
            Self::ListenerSet(_) => "listenersets/status",
            Self::Route(RouteKey { kind, .. }) => match kind {
                RouteKind::Tcp => "tcproutes/status",
                RouteKind::Udp => "udproutes/status",
                RouteKind::Tls => "tlsroutes/status",
            },
        }
    }

    /// Path of the kind's objects in the namespace, and the object's name.
    pub(super) fn url_path(&self) -> (String, &Arc<str>) {
        match self {
            Self::Class(name) => (GatewayClass::url_path(&(), None), name),
            Self::Gateway(key) => (Gateway::url_path(&(), Some(&key.namespace)), &key.name),
            Self::ListenerSet((namespace, name)) => (ListenerSet::url_path(&(), Some(namespace)), name),
            Self::Route(RouteKey { namespace, name, kind }) => {
                let path = match kind {
                    RouteKind::Tcp => TcpRoute::url_path(&(), Some(namespace)),
                    RouteKind::Udp => UdpRoute::url_path(&(), Some(namespace)),
                    RouteKind::Tls => TlsRoute::url_path(&(), Some(namespace)),
                };
                (path, name)
            }
        }
    }
}

/// The last known version of an object of the Gateway API, and its desired status. `None` releases it: this installation does not
/// implement it any more.
#[derive(Clone, Debug)]
pub enum GatewayApiSubject {
    /// A GatewayClass of this installation.
    Class(Arc<GatewayClass>, Arc<DesiredClass>),
    /// A Gateway.
    Gateway(Arc<Gateway>, Option<Arc<DesiredGateway>>),
    /// A ListenerSet.
    ListenerSet(Arc<ListenerSet>, Option<Arc<DesiredListenerSet>>),
    /// A route. One that names none of our Gateways has no desired parents.
    Route(AnyRoute, Arc<DesiredParents>),
}

impl GatewayApiSubject {
    /// Metadata of the object.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Class(class, _) => &class.metadata,
            Self::Gateway(gateway, _) => &gateway.metadata,
            Self::ListenerSet(set, _) => &set.metadata,
            Self::Route(route, _) => route.metadata(),
        }
    }

    pub(super) fn is_released(&self) -> bool {
        matches!(self, Self::Gateway(_, None) | Self::ListenerSet(_, None))
    }

    /// The next write. `cleared` is whether a [`WriteStep::ClearStatus`] has succeeded since the object was last ours. Nothing is
    /// written to an object that did not come from an API server, or whose generation the desired status does not know.
    pub(crate) fn next_step(&self, cleared: bool, now: Timestamp) -> WriteStep {
        let metadata = self.metadata();
        let is_known = metadata.uid.is_some() && metadata.resource_version.is_some();
        if !is_known || self.generation().is_some_and(|generation| generation != metadata.generation) {
            return WriteStep::Nothing;
        }
        match self {
            Self::Class(class, desired) => class::next_step(class, desired, now),
            Self::Gateway(gateway, desired) => gateway::next_step(gateway, desired.as_deref(), cleared, now),
            Self::ListenerSet(set, desired) => listener_set::next_step(set, desired.as_deref(), cleared, now),
            Self::Route(route, desired) => route_parents::next_step(route, desired, now),
        }
    }

    /// Generation that the desired status was computed from, if there is one.
    fn generation(&self) -> Option<Option<i64>> {
        match self {
            Self::Class(_, desired) => Some(desired.generation),
            Self::Gateway(_, desired) => desired.as_ref().map(|it| it.generation),
            Self::ListenerSet(_, desired) => desired.as_ref().map(|it| it.generation),
            Self::Route(_, desired) => Some(desired.generation),
        }
    }

    /// When the step that [`Self::next_step`] returned is due.
    pub(super) fn urgency(&self, step: &WriteStep) -> Urgency {
        match (self, step) {
            (Self::Gateway(gateway, Some(desired)), WriteStep::ApplyStatus(_)) => {
                gateway::urgency(gateway, desired)
            }
            (Self::ListenerSet(set, Some(desired)), WriteStep::ApplyStatus(_)) => {
                listener_set::urgency(set, desired)
            }
            (Self::Route(route, desired), WriteStep::PatchParents { .. }) => {
                route_parents::urgency(route, desired)
            }
            _ => Urgency::Now,
        }
    }

    /// This desired status with the object from the API server's answer; `None` if the answer cannot be parsed.
    pub(super) fn renewed(&self, body: &[u8]) -> Option<Self> {
        Some(match self {
            Self::Class(_, desired) => Self::Class(parse(body)?, Arc::clone(desired)),
            Self::Gateway(_, desired) => Self::Gateway(parse(body)?, desired.clone()),
            Self::ListenerSet(_, desired) => Self::ListenerSet(parse(body)?, desired.clone()),
            Self::Route(route, desired) => {
                let route = match route {
                    AnyRoute::Tcp(_) => AnyRoute::Tcp(parse(body)?),
                    AnyRoute::Udp(_) => AnyRoute::Udp(parse(body)?),
                    AnyRoute::Tls(_) => AnyRoute::Tls(parse(body)?),
                };
                Self::Route(route, Arc::clone(desired))
            }
        })
    }

    /// This desired status with another version of the object.
    pub(super) fn of(&self, object: &Self) -> Self {
        match (self, object) {
            (Self::Class(_, desired), Self::Class(class, _)) => {
                Self::Class(Arc::clone(class), Arc::clone(desired))
            }
            (Self::Gateway(_, desired), Self::Gateway(gateway, _)) => {
                Self::Gateway(Arc::clone(gateway), desired.clone())
            }
            (Self::ListenerSet(_, desired), Self::ListenerSet(set, _)) => {
                Self::ListenerSet(Arc::clone(set), desired.clone())
            }
            (Self::Route(_, desired), Self::Route(route, _)) => {
                Self::Route(route.clone(), Arc::clone(desired))
            }
            _ => self.clone(),
        }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Option<Arc<T>> {
    serde_json::from_slice(body).ok().map(Arc::new)
}

/// Server-side apply of a status. The API server writes the status of a custom resource into the existing object whatever uid the
/// body has, so the resourceVersion, which is unique to an object, protects a new one with the same name.
fn apply<T: k8s_openapi::Resource>(metadata: &ObjectMeta, status: &Value) -> Value {
    let mut body = json!({
        "apiVersion": T::API_VERSION,
        "kind": T::KIND,
        "metadata": {
            "name": metadata.name, "uid": metadata.uid, "resourceVersion": metadata.resource_version,
        },
        "status": status,
    });
    if let Some(namespace) = &metadata.namespace {
        body["metadata"]["namespace"] = json!(namespace);
    }
    body
}

/// Merge patch of a status, for the version that it was computed from.
fn merge(metadata: &ObjectMeta, status: &Value) -> Value {
    json!({
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": status,
    })
}
