//! Routes of one kind with the indexes that a change of another object needs: which routes name a parent or a backend.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::collection::{Collection, ObjectKey};
use super::gateway_api::{
    ListenerSet, ParentReference, RouteKey, RouteKind, RouteSpec, RouteStatus, TcpRoute, TlsRoute, UdpRoute,
};
use super::object::ApiObject;
use super::owners::names_of;
use super::service_key::ServiceKey;

/// A route of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyRoute {
    /// A TCPRoute.
    Tcp(Arc<TcpRoute>),
    /// A UDPRoute.
    Udp(Arc<UdpRoute>),
    /// A TLSRoute.
    Tls(Arc<TlsRoute>),
}

impl AnyRoute {
    /// Whether both are the same version of one route.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) => Arc::ptr_eq(one, other),
            (Self::Udp(one), Self::Udp(other)) => Arc::ptr_eq(one, other),
            (Self::Tls(one), Self::Tls(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Tcp(route) => &route.metadata,
            Self::Udp(route) => &route.metadata,
            Self::Tls(route) => &route.metadata,
        }
    }

    /// Its spec.
    pub fn spec(&self) -> &RouteSpec {
        match self {
            Self::Tcp(route) => &route.spec,
            Self::Udp(route) => &route.spec,
            Self::Tls(route) => &route.spec,
        }
    }

    /// Its status.
    pub fn status(&self) -> Option<&RouteStatus> {
        match self {
            Self::Tcp(route) => route.status.as_ref(),
            Self::Udp(route) => route.status.as_ref(),
            Self::Tls(route) => route.status.as_ref(),
        }
    }

    /// Kind, namespace and name.
    pub fn key(&self) -> RouteKey {
        let (namespace, name) = names_of(self.metadata());
        RouteKey { namespace: namespace.into(), name: name.into(), kind: self.kind() }
    }

    fn kind(&self) -> RouteKind {
        match self {
            Self::Tcp(_) => RouteKind::Tcp,
            Self::Udp(_) => RouteKind::Udp,
            Self::Tls(_) => RouteKind::Tls,
        }
    }
}

/// A type of route.
pub trait RouteObject: ApiObject {
    /// Its spec.
    fn spec(&self) -> &RouteSpec;
}

macro_rules! route_object {
    ($type:ident) => {
        impl RouteObject for $type {
            fn spec(&self) -> &RouteSpec {
                &self.spec
            }
        }
    };
}

route_object!(TcpRoute);
route_object!(UdpRoute);
route_object!(TlsRoute);

/// Parent of a route or ListenerSet: the key of a Gateway, or of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParentKey {
    /// A Gateway.
    Gateway(ServiceKey),
    /// A ListenerSet.
    ListenerSet(ObjectKey),
}

impl ParentKey {
    /// The parent of a ListenerSet.
    pub fn of_set(set: &ListenerSet) -> Option<Self> {
        Self::of(&set.spec.parent_ref, names_of(&set.metadata).0)
    }

    /// The parent that `reference` names in an object of namespace `own`; `None` if it is of another kind.
    pub fn of(reference: &ParentReference, own: &str) -> Option<Self> {
        let namespace = reference.namespace_in(own);
        if reference.is_gateway() {
            Some(Self::Gateway(ServiceKey::gateway(namespace, &reference.name)))
        } else if reference.is_listener_set() {
            Some(Self::ListenerSet((namespace.into(), reference.name.as_str().into())))
        } else {
            None
        }
    }
}

/// Routes of one kind.
#[derive(Clone, Debug)]
pub struct RouteCollection<T> {
    all: BTreeMap<ObjectKey, Arc<T>>,
    by_parent: BTreeMap<ParentKey, BTreeSet<ObjectKey>>,
    /// By the key of a Service or ServiceImport, which has the source of a Service.
    by_backend: BTreeMap<ServiceKey, BTreeSet<ObjectKey>>,
}

impl<T> Default for RouteCollection<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), by_parent: BTreeMap::new(), by_backend: BTreeMap::new() }
    }
}

/// Equal if the routes are: the indexes follow from them.
impl<T: PartialEq> PartialEq for RouteCollection<T> {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl<T: RouteObject> RouteCollection<T> {
    /// The routes that name this parent, sorted by namespace and name.
    pub fn of_parent(&self, parent: &ParentKey) -> impl Iterator<Item = &Arc<T>> {
        self.by_parent.get(parent).into_iter().flatten().filter_map(|key| self.all.get(key))
    }

    /// The routes that name this Service or ServiceImport as a backend.
    pub fn of_backend(&self, backend: &ServiceKey) -> impl Iterator<Item = &Arc<T>> {
        self.by_backend.get(backend).into_iter().flatten().filter_map(|key| self.all.get(key))
    }

    /// The routes that name a backend in this namespace from another one.
    pub(super) fn across_into<'a>(&'a self, namespace: &'a Arc<str>) -> impl Iterator<Item = &'a Arc<T>> {
        let first = ServiceKey::of_service(Arc::clone(namespace), Arc::default());
        let there =
            self.by_backend.range(first..).take_while(move |(backend, _)| backend.namespace == *namespace);
        let keys = there.flat_map(|(_, keys)| keys).filter(move |(own, _)| own != namespace);
        keys.filter_map(|key| self.all.get(key))
    }

    /// The route with this key.
    pub fn find(&self, key: &ObjectKey) -> Option<&Arc<T>> {
        self.all.get(key)
    }

    /// All routes.
    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.all.values()
    }

    fn unindex(&mut self, key: &ObjectKey) {
        let Some(old) = self.all.remove(key) else { return };
        for parent in parents(old.meta(), old.spec()) {
            leave(&mut self.by_parent, &parent, key);
        }
        for backend in backends(&*old) {
            leave(&mut self.by_backend, &backend, key);
        }
    }
}

/// The parents that a route names, of the kinds that can be ours.
pub(super) fn parents<'a>(
    metadata: &'a ObjectMeta,
    spec: &'a RouteSpec,
) -> impl Iterator<Item = ParentKey> + use<'a> {
    let own = names_of(metadata).0;
    spec.parent_refs.iter().filter_map(move |reference| ParentKey::of(reference, own))
}

fn backends<T: RouteObject>(route: &T) -> impl Iterator<Item = ServiceKey> {
    let own = names_of(route.meta()).0;
    let refs = route.spec().rules.iter().flat_map(|rule| &rule.backend_refs);
    refs.map(move |reference| ServiceKey::new(reference.namespace_in(own), &reference.name))
}

fn leave<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectKey>>, at: &K, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(at);
        }
    }
}

impl<T: RouteObject> Collection for RouteCollection<T> {
    type Object = T;

    fn insert(&mut self, owner: &ServiceKey, key: &ObjectKey, object: Arc<T>) -> ServiceKey {
        self.unindex(key);
        for parent in parents(object.meta(), object.spec()) {
            self.by_parent.entry(parent).or_default().insert(key.clone());
        }
        for backend in backends(&*object) {
            self.by_backend.entry(backend).or_default().insert(key.clone());
        }
        self.all.insert(key.clone(), object);
        owner.clone()
    }

    fn get(&self, _owner: &ServiceKey, key: &ObjectKey) -> Option<&Arc<T>> {
        self.all.get(key)
    }

    fn remove(&mut self, _owner: &ServiceKey, key: &ObjectKey) {
        self.unindex(key);
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.all.values()
    }
}
