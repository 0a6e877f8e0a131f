//! The objects of a cluster and of a Karmada control plane as last seen, keyed the way the projection looks them up.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::address_pool::AddressPool;
pub use super::collection::{Collection, ObjectKey, Place};
use super::gateway_api::{
    Gateway, GatewayClass, ListenerSet, ReferenceGrant, RouteKey, RouteKind, TcpRoute, TlsRoute, UdpRoute,
};
use super::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};
use super::routes::{AnyRoute, ParentKey, RouteCollection};
use super::service_import::ServiceImport;
use super::service_key::ServiceKey;

/// Objects of one cluster. Slices are kept under the Service that their label names, whether it exists or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// Services.
    pub services: BTreeMap<ServiceKey, Arc<Service>>,
    /// EndpointSlices by Service, then by slice name.
    pub slices: BTreeMap<ServiceKey, BTreeMap<Arc<str>, Arc<EndpointSlice>>>,
    /// Nodes by name.
    pub nodes: BTreeMap<Arc<str>, Arc<Node>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<Arc<str>, Arc<Namespace>>,
    /// Address pools by name.
    pub pools: BTreeMap<Arc<str>, Arc<AddressPool>>,
    /// Objects of the Gateway API, and ServiceImports; empty where these APIs are not installed.
    pub gateway_api: GatewayApiObjects,
    /// Objects of the Karmada control plane; empty without one.
    pub fleet: KarmadaObjects,
}

/// Objects of the Gateway API, and what their routes refer to beside Services.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayApiObjects {
    /// GatewayClasses by name.
    pub classes: BTreeMap<Arc<str>, Arc<GatewayClass>>,
    /// Gateways.
    pub gateways: BTreeMap<ServiceKey, Arc<Gateway>>,
    /// ListenerSets.
    pub listener_sets: BTreeMap<ObjectKey, Arc<ListenerSet>>,
    /// TCPRoutes.
    pub tcp_routes: RouteCollection<TcpRoute>,
    /// UDPRoutes.
    pub udp_routes: RouteCollection<UdpRoute>,
    /// TLSRoutes.
    pub tls_routes: RouteCollection<TlsRoute>,
    /// ReferenceGrants.
    pub grants: BTreeMap<ObjectKey, Arc<ReferenceGrant>>,
    /// ServiceImports.
    pub imports: BTreeMap<ObjectKey, Arc<ServiceImport>>,
    /// EndpointSlices of ServiceImports by their key, which has the source of a Service, then by slice name.
    pub import_slices: BTreeMap<ServiceKey, BTreeMap<Arc<str>, Arc<EndpointSlice>>>,
}

impl GatewayApiObjects {
    /// The route with this key.
    pub fn route(&self, key: &RouteKey) -> Option<AnyRoute> {
        let name = (Arc::clone(&key.namespace), Arc::clone(&key.name));
        match key.kind {
            RouteKind::Tcp => self.tcp_routes.find(&name).cloned().map(AnyRoute::Tcp),
            RouteKind::Udp => self.udp_routes.find(&name).cloned().map(AnyRoute::Udp),
            RouteKind::Tls => self.tls_routes.find(&name).cloned().map(AnyRoute::Tls),
        }
    }

    /// The routes of every kind.
    pub fn routes(&self) -> impl Iterator<Item = AnyRoute> {
        of_any_kind(self.tcp_routes.values(), self.udp_routes.values(), self.tls_routes.values())
    }

    /// The routes of every kind that name this parent.
    pub fn routes_of_parent<'a>(&'a self, parent: &'a ParentKey) -> impl Iterator<Item = AnyRoute> + use<'a> {
        let Self { tcp_routes, udp_routes, tls_routes, .. } = self;
        of_any_kind(tcp_routes.of_parent(parent), udp_routes.of_parent(parent), tls_routes.of_parent(parent))
    }

    /// The routes of every kind that name this Service or ServiceImport as a backend.
    pub fn routes_of_backend<'a>(
        &'a self,
        backend: &'a ServiceKey,
    ) -> impl Iterator<Item = AnyRoute> + use<'a> {
        let Self { tcp_routes, udp_routes, tls_routes, .. } = self;
        of_any_kind(
            tcp_routes.of_backend(backend),
            udp_routes.of_backend(backend),
            tls_routes.of_backend(backend),
        )
    }

    /// The routes of every kind that name a backend in this namespace from another one.
    pub(super) fn routes_across_into<'a>(
        &'a self,
        namespace: &'a Arc<str>,
    ) -> impl Iterator<Item = AnyRoute> + use<'a> {
        let Self { tcp_routes, udp_routes, tls_routes, .. } = self;
        of_any_kind(
            tcp_routes.across_into(namespace),
            udp_routes.across_into(namespace),
            tls_routes.across_into(namespace),
        )
    }

    /// The Gateway behind a parent: itself, or the one that the ListenerSet names.
    pub fn gateway_behind(&self, parent: ParentKey) -> Option<ServiceKey> {
        match parent {
            ParentKey::Gateway(key) => Some(key),
            ParentKey::ListenerSet(set) => match ParentKey::of_set(self.listener_sets.get(&set)?)? {
                ParentKey::Gateway(key) => Some(key),
                ParentKey::ListenerSet(_) => None,
            },
        }
    }
}

fn of_any_kind<'a>(
    tcp: impl Iterator<Item = &'a Arc<TcpRoute>>,
    udp: impl Iterator<Item = &'a Arc<UdpRoute>>,
    tls: impl Iterator<Item = &'a Arc<TlsRoute>>,
) -> impl Iterator<Item = AnyRoute> {
    let tcp = tcp.cloned().map(AnyRoute::Tcp);
    tcp.chain(udp.cloned().map(AnyRoute::Udp)).chain(tls.cloned().map(AnyRoute::Tls))
}

/// Objects of a Karmada control plane. Everything but clusters is kept under the key of a MultiClusterService, whether that
/// exists or not: the one with the object's own name, or the one that the object refers to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KarmadaObjects {
    /// MultiClusterServices.
    pub services: BTreeMap<ServiceKey, Arc<MultiClusterService>>,
    /// Services on the Karmada API server: the templates of the Services in member clusters.
    pub templates: BTreeMap<ServiceKey, Arc<Service>>,
    /// Works that carry EndpointSlices or Services.
    pub works: BTreeMap<ServiceKey, BTreeMap<ObjectKey, Arc<Work>>>,
    /// EndpointSlices that Karmada imported from member clusters.
    pub imported: BTreeMap<ServiceKey, BTreeMap<Arc<str>, Arc<EndpointSlice>>>,
    /// ResourceBindings, which name the clusters of a Service.
    pub bindings: BTreeMap<ServiceKey, Arc<ResourceBinding>>,
    /// Member clusters by name. An empty map means that clusters are unknown: the API that serves them can fail alone.
    pub clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
}
