//! The objects of a cluster and of a Karmada control plane as last seen, keyed the way the projection looks them up.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::address_pool::AddressPool;
use super::gateway_api::{Gateway, GatewayClass, ListenerSet, ReferenceGrant, TcpRoute, TlsRoute, UdpRoute};
use super::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};
use super::routes::RouteCollection;
use super::service_import::ServiceImport;
use super::service_key::ServiceKey;

/// Namespace and name of an object; the namespace of cluster-scoped ones is empty.
pub type ObjectKey = (Arc<str>, Arc<str>);

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

/// Key of an object in a collection: the Service that it belongs to, its own name, or both.
pub trait Place {
    /// The key of an object that belongs to `owner`.
    fn new(owner: &ServiceKey, key: &ObjectKey) -> Self;
}

impl Place for ServiceKey {
    fn new(owner: &ServiceKey, _: &ObjectKey) -> Self {
        owner.clone()
    }
}

impl Place for Arc<str> {
    fn new(_: &ServiceKey, (_, name): &ObjectKey) -> Self {
        Arc::clone(name)
    }
}

impl Place for ObjectKey {
    fn new(_: &ServiceKey, key: &ObjectKey) -> Self {
        key.clone()
    }
}

/// The objects of one kind.
pub trait Collection {
    /// Type of the objects.
    type Object;
    /// Inserts or replaces an object. Returns the owner, sharing its strings with other objects.
    fn insert(&mut self, owner: &ServiceKey, key: &ObjectKey, object: Arc<Self::Object>) -> ServiceKey;
    /// The object with this key.
    fn get(&self, owner: &ServiceKey, key: &ObjectKey) -> Option<&Arc<Self::Object>>;
    /// Removes the object with this key.
    fn remove(&mut self, owner: &ServiceKey, key: &ObjectKey);
    /// All objects.
    fn iter(&self) -> impl Iterator<Item = &Arc<Self::Object>>;
}

impl<P: Place + Ord, T> Collection for BTreeMap<P, Arc<T>> {
    type Object = T;

    fn insert(&mut self, owner: &ServiceKey, key: &ObjectKey, object: Arc<T>) -> ServiceKey {
        self.insert(P::new(owner, key), object);
        owner.clone()
    }

    fn get(&self, owner: &ServiceKey, key: &ObjectKey) -> Option<&Arc<T>> {
        self.get(&P::new(owner, key))
    }

    fn remove(&mut self, owner: &ServiceKey, key: &ObjectKey) {
        self.remove(&P::new(owner, key));
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.values()
    }
}

impl<P: Place + Ord, T> Collection for BTreeMap<ServiceKey, BTreeMap<P, Arc<T>>> {
    type Object = T;

    fn insert(&mut self, owner: &ServiceKey, key: &ObjectKey, object: Arc<T>) -> ServiceKey {
        let entry = self.entry(owner.clone());
        let owner = entry.key().clone();
        entry.or_default().insert(P::new(&owner, key), object);
        owner
    }

    fn get(&self, owner: &ServiceKey, key: &ObjectKey) -> Option<&Arc<T>> {
        self.get(owner)?.get(&P::new(owner, key))
    }

    fn remove(&mut self, owner: &ServiceKey, key: &ObjectKey) {
        let Some(objects) = self.get_mut(owner) else { return };
        objects.remove(&P::new(owner, key));
        if objects.is_empty() {
            self.remove(owner);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.values().flat_map(BTreeMap::values)
    }
}
