//! A Service or MultiClusterService: the two kinds that have a `ServiceStatus`.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource as _;
use serde_json::Value;
use sheave_model::FrontendSource;

use crate::api::gateway_api::Gateway;
use crate::api::karmada::MultiClusterService;
use crate::api::names::{FROM_GATEWAY_NODES, PROGRAMMED};
use crate::api::store::{Objects, ServiceKey};
use crate::net;
use crate::projection::{LoadBalancerStatus, Published};

/// Value of `spec.type` and `spec.types`.
const LOAD_BALANCER: &str = "LoadBalancer";

/// A Service or MultiClusterService.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceObject {
    /// A Service of the cluster that the gateways run in.
    Service(Arc<Service>),
    /// A MultiClusterService of the Karmada control plane.
    MultiClusterService(Arc<MultiClusterService>),
}

impl From<&Arc<Service>> for ServiceObject {
    fn from(service: &Arc<Service>) -> Self {
        Self::Service(Arc::clone(service))
    }
}

impl From<&Arc<MultiClusterService>> for ServiceObject {
    fn from(service: &Arc<MultiClusterService>) -> Self {
        Self::MultiClusterService(Arc::clone(service))
    }
}

impl ServiceObject {
    /// The object with this key, if it exists.
    pub fn find(objects: &Objects, key: &ServiceKey) -> Option<Self> {
        match key.source {
            FrontendSource::Service => objects.services.get(key).map(Self::from),
            FrontendSource::MultiClusterService => objects.fleet.services.get(key).map(Self::from),
            FrontendSource::Gateway => None,
        }
    }

    /// Whether it is a Service or a MultiClusterService.
    pub fn source(&self) -> FrontendSource {
        match self {
            Self::Service(_) => FrontendSource::Service,
            Self::MultiClusterService(_) => FrontendSource::MultiClusterService,
        }
    }

    /// Its key.
    pub fn key(&self) -> ServiceKey {
        let metadata = self.metadata();
        ServiceKey {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            source: self.source(),
        }
    }

    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Service(service) => &service.metadata,
            Self::MultiClusterService(service) => &service.metadata,
        }
    }

    /// The addresses in its status.
    pub fn ingress(&self) -> &[LoadBalancerIngress] {
        let status = self.status().and_then(|status| status.load_balancer.as_ref());
        status.and_then(|status| status.ingress.as_deref()).unwrap_or_default()
    }

    /// Whether its status already has these addresses.
    pub(super) fn has_addresses(&self, status: &LoadBalancerStatus) -> bool {
        let published = self.ingress().iter().map(|entry| entry.ip.as_deref().unwrap_or_default().to_owned());
        published.eq(status.ingress.iter().map(|entry| entry.ip.to_string()))
    }

    /// Addresses and ports that its status publishes.
    pub(super) fn published(&self) -> Published {
        Published::read(self.source(), self.status())
    }

    /// Entries of [`Self::ingress`], with their index, for which Karmada's webhook rejects every later change of the object,
    /// including changes of its finalizers (karmada `pkg/util/lifted/validatingmcs.go`). The webhook does not validate writes to
    /// `/status`. A Service has no such entries, because API servers validate its status on write.
    pub fn locks(&self) -> impl Iterator<Item = (usize, &LoadBalancerIngress)> {
        let looked_at = matches!(self, Self::MultiClusterService(_));
        self.ingress().iter().enumerate().filter(move |(_, entry)| looked_at && !is_valid(entry))
    }

    /// Whether it requests a load balancer.
    pub fn is_load_balancer(&self) -> bool {
        match self {
            Self::Service(service) => {
                service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some(LOAD_BALANCER)
            }
            Self::MultiClusterService(service) => service.spec.types.iter().any(|it| it == LOAD_BALANCER),
        }
    }

    /// Whether its conditions report that gateways serve it.
    pub(in crate::controller) fn is_programmed(&self) -> bool {
        self.conditions().iter().any(|condition| condition.type_ == PROGRAMMED && condition.status == "True")
    }

    /// Whether it has the condition about addresses of gateway nodes.
    pub(crate) fn shows_origin(&self) -> bool {
        self.conditions().iter().any(|condition| condition.type_ == FROM_GATEWAY_NODES)
    }

    /// Its finalizers, including duplicates.
    pub(super) fn finalizers(&self) -> &[String] {
        self.metadata().finalizers.as_deref().unwrap_or_default()
    }

    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|held| held == finalizer)
    }

    pub(super) fn conditions(&self) -> &[Condition] {
        self.status().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
    }

    /// API version and kind, for request bodies.
    pub(in crate::controller) fn type_names(source: FrontendSource) -> (&'static str, &'static str) {
        match source {
            FrontendSource::Service => (Service::API_VERSION, Service::KIND),
            FrontendSource::MultiClusterService => {
                (MultiClusterService::API_VERSION, MultiClusterService::KIND)
            }
            FrontendSource::Gateway => (Gateway::API_VERSION, Gateway::KIND),
        }
    }

    /// Path of the kind's objects, in one Namespace or in all.
    pub(super) fn url_path(source: FrontendSource, namespace: Option<&str>) -> String {
        match source {
            FrontendSource::Service => Service::url_path(&(), namespace),
            FrontendSource::MultiClusterService => MultiClusterService::url_path(&(), namespace),
            FrontendSource::Gateway => Gateway::url_path(&(), namespace),
        }
    }

    /// Decodes the object as an API server sends it.
    ///
    /// # Errors
    /// If the value is not an object of this kind.
    pub(super) fn from_json(source: FrontendSource, object: Value) -> serde_json::Result<Self> {
        Ok(match source {
            FrontendSource::Service => Self::Service(Arc::new(serde_json::from_value(object)?)),
            FrontendSource::MultiClusterService => {
                Self::MultiClusterService(Arc::new(serde_json::from_value(object)?))
            }
            FrontendSource::Gateway => {
                return Err(serde::de::Error::custom("a Gateway has no status of a Service"));
            }
        })
    }

    fn status(&self) -> Option<&ServiceStatus> {
        match self {
            Self::Service(service) => service.status.as_ref(),
            Self::MultiClusterService(service) => service.status.as_ref(),
        }
    }
}

fn is_valid(entry: &LoadBalancerIngress) -> bool {
    let ip = entry.ip.as_deref().filter(|ip| !ip.is_empty());
    let hostname = entry.hostname.as_deref().filter(|name| !name.is_empty());
    ip.is_none_or(|ip| ip.parse::<IpAddr>().is_ok()) && hostname.is_none_or(net::is_host_name)
}
