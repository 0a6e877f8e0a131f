//! The objects of one cluster as last seen, indexed the way the projection asks for them, and which Services have to be
//! projected again. Sources write here; it must not know where the objects come from or what they mean.

mod change;
mod differs;
mod fleet;
mod key;
mod owners;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use self::change::{Change, Delta};
use self::differs::{namespace_differs, node_differs, pool_differs, service_differs, slice_differs};
pub(crate) use self::fleet::unreadable_owner;
pub use self::fleet::{Fleet, WorkKey};
pub use self::key::ServiceKey;
use self::owners::Owners;
use crate::api::address_pool::AddressPool;

/// The label by which an EndpointSlice names its Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// The same for slices that were brought from another cluster for a ServiceImport (KEP-1645, `LabelServiceName`).
const IMPORTED_SERVICE_NAME_LABEL: &str = "multicluster.kubernetes.io/service-name";

/// Which cluster such a slice is from (KEP-1645, `LabelSourceCluster`).
pub(crate) const SOURCE_CLUSTER_LABEL: &str = "multicluster.kubernetes.io/source-cluster";

/// The objects of one cluster. Slices are kept under the Service that their label names, whether it exists or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// Every Service.
    pub services: BTreeMap<ServiceKey, Arc<Service>>,
    /// EndpointSlices by Service, then by slice name.
    pub slices: BTreeMap<ServiceKey, BTreeMap<Arc<str>, Arc<EndpointSlice>>>,
    /// Nodes by name.
    pub nodes: BTreeMap<Arc<str>, Arc<Node>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<Arc<str>, Arc<Namespace>>,
    /// Address pools by name.
    pub pools: BTreeMap<Arc<str>, Arc<AddressPool>>,
    /// What the Karmada control plane has; empty without one.
    pub fleet: Fleet,
}

/// What has to be projected again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Dirty {
    /// Nothing changed.
    Nothing,
    /// These Services, or slices of theirs, changed, came or went.
    Services(BTreeSet<ServiceKey>),
    /// Beside these Services something changed that any Service may depend on: a Node, a pool.
    Shared(BTreeSet<ServiceKey>),
    /// Any object may have changed.
    Everything,
}

impl Dirty {
    /// Adds one Service.
    pub fn add(&mut self, key: ServiceKey) {
        match self {
            Self::Nothing => *self = Self::Services(BTreeSet::from([key])),
            Self::Services(keys) | Self::Shared(keys) => {
                keys.insert(key);
            }
            Self::Everything => {}
        }
    }

    /// Adds what any Service may depend on.
    pub fn add_shared(&mut self) {
        match self {
            Self::Nothing => *self = Self::Shared(BTreeSet::new()),
            Self::Services(keys) => *self = Self::Shared(std::mem::take(keys)),
            Self::Shared(_) | Self::Everything => {}
        }
    }

    /// Whether there is nothing to project.
    pub fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }
}

/// The objects of one cluster together with what changed since the projection last looked.
///
/// Changes come one by one, as from a watch, or as a whole, as from a list. Either way an object that is equal to the
/// one before dirties nothing and keeps its `Arc`.
#[derive(Debug)]
pub struct Store {
    objects: Objects,
    dirty: Dirty,
    /// Under which Service a slice is kept: an update may move it, and a deletion names the slice alone.
    slice_owners: BTreeMap<SliceKey, ServiceKey>,
    /// The same for what a Karmada control plane has.
    owners: Owners,
}

/// Namespace and name of an EndpointSlice.
type SliceKey = (Arc<str>, Arc<str>);

impl Default for Store {
    /// Empty, with nothing dirty.
    fn default() -> Self {
        Self {
            objects: Objects::default(),
            dirty: Dirty::Nothing,
            slice_owners: BTreeMap::new(),
            owners: Owners::default(),
        }
    }
}

impl Store {
    /// The objects as last seen.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// What changed since this was last asked.
    pub fn take_dirty(&mut self) -> Dirty {
        std::mem::replace(&mut self.dirty, Dirty::Nothing)
    }

    /// Whether nothing changed since [`Self::take_dirty`].
    pub fn is_clean(&self) -> bool {
        self.dirty.is_nothing()
    }

    /// Takes a whole new state, as after a list: what is missing from it is gone.
    pub fn replace(&mut self, mut new: Objects) {
        let fleet = std::mem::take(&mut new.fleet);
        self.replace_local(new);
        self.replace_fleet(fleet);
    }

    /// Takes a whole new state of everything but the Karmada control plane, which is as before.
    pub fn replace_local(&mut self, new: Objects) {
        self.replace_services(new.services);
        self.replace_slices(new.slices);
        self.replace_nodes(new.nodes);
        self.replace_namespaces(new.namespaces);
        self.replace_pools(new.pools);
    }

    /// Takes a whole new state of the Karmada control plane.
    pub fn replace_fleet(&mut self, new: Fleet) {
        for key in self.objects.fleet.replace(new) {
            self.dirty.add(key);
        }
        self.owners.learn(&mut self.objects.fleet);
    }

    /// A Service came or changed.
    pub fn upsert_service(&mut self, service: impl Into<Arc<Service>>) {
        let service = service.into();
        let key = service_key(&service.metadata);
        let old = self.objects.services.get(&key);
        if old.is_none_or(|old| service_differs(old, &service)) {
            self.dirty.add(key.clone());
        }
        self.objects.services.insert(key, service);
    }

    /// A Service went.
    pub fn remove_service(&mut self, key: &ServiceKey) {
        if self.objects.services.remove(key).is_some() {
            self.dirty.add(key.clone());
        }
    }

    /// An EndpointSlice came or changed; its label may have moved it to another Service, or to none.
    pub fn upsert_slice(&mut self, slice: impl Into<Arc<EndpointSlice>>) {
        let slice = slice.into();
        let key = slice_key(&slice.metadata);
        let owner = slice_owner(&slice);
        if self.slice_owners.get(&key) != owner.as_ref() {
            self.remove_slice(&key.0, &key.1);
        }
        let Some(owner) = owner else { return };
        let slices = self.objects.slices.entry(owner.clone()).or_default();
        if slices.get(&key.1).is_none_or(|old| slice_differs(old, &slice)) {
            self.dirty.add(owner.clone());
        }
        slices.insert(key.1.clone(), slice);
        self.slice_owners.insert(key, owner);
    }

    /// An EndpointSlice went.
    pub fn remove_slice(&mut self, namespace: &str, name: &str) {
        let Some(owner) = self.slice_owners.remove(&(namespace.into(), name.into())) else { return };
        if let Some(slices) = self.objects.slices.get_mut(&owner) {
            slices.remove(name);
            if slices.is_empty() {
                self.objects.slices.remove(&owner);
            }
        }
        self.dirty.add(owner);
    }

    /// A Node came or changed.
    pub fn upsert_node(&mut self, node: impl Into<Arc<Node>>) {
        let node = node.into();
        let name = name_of(&node.metadata);
        if self.objects.nodes.get(&name).is_none_or(|old| node_differs(old, &node)) {
            self.dirty.add_shared();
        }
        self.objects.nodes.insert(name, node);
    }

    /// A Node went.
    pub fn remove_node(&mut self, name: &str) {
        if self.objects.nodes.remove(name).is_some() {
            self.dirty.add_shared();
        }
    }

    /// A Namespace came or changed.
    pub fn upsert_namespace(&mut self, namespace: impl Into<Arc<Namespace>>) {
        let namespace = namespace.into();
        let name = name_of(&namespace.metadata);
        let any = !self.objects.namespaces.is_empty();
        let old = self.objects.namespaces.insert(name.clone(), namespace.clone());
        if old.is_none_or(|old| namespace_differs(&old, &namespace)) {
            self.dirty_namespace(&name, any);
        }
    }

    /// A Namespace went.
    pub fn remove_namespace(&mut self, name: &str) {
        if let Some((name, _)) = self.objects.namespaces.remove_entry(name) {
            self.dirty_namespace(&name, true);
        }
    }

    /// An AddressPool came or changed.
    pub fn upsert_pool(&mut self, pool: impl Into<Arc<AddressPool>>) {
        let pool = pool.into();
        let name = name_of(&pool.metadata);
        if self.objects.pools.get(&name).is_none_or(|old| pool_differs(old, &pool)) {
            self.dirty.add_shared();
        }
        self.objects.pools.insert(name, pool);
    }

    /// An AddressPool went.
    pub fn remove_pool(&mut self, name: &str) {
        if self.objects.pools.remove(name).is_some() {
            self.dirty.add_shared();
        }
    }

    fn replace_services(&mut self, new: BTreeMap<ServiceKey, Arc<Service>>) {
        for key in replace_map(&mut self.objects.services, new, service_differs) {
            self.dirty.add(key);
        }
    }

    fn replace_slices(&mut self, new: BTreeMap<ServiceKey, BTreeMap<Arc<str>, Arc<EndpointSlice>>>) {
        self.slice_owners.clear();
        for (owner, slices) in &new {
            let keys = slices.keys().map(|name| (owner.namespace.clone(), name.clone()));
            self.slice_owners.extend(keys.map(|key| (key, owner.clone())));
        }
        let gone: Vec<ServiceKey> =
            self.objects.slices.keys().filter(|owner| !new.contains_key(*owner)).cloned().collect();
        for owner in gone {
            self.objects.slices.remove(&owner);
            self.dirty.add(owner);
        }
        for (owner, slices) in new {
            let kept = self.objects.slices.entry(owner.clone()).or_default();
            if !replace_map(kept, slices, slice_differs).is_empty() {
                self.dirty.add(owner);
            }
        }
    }

    fn replace_nodes(&mut self, new: BTreeMap<Arc<str>, Arc<Node>>) {
        if !replace_map(&mut self.objects.nodes, new, node_differs).is_empty() {
            self.dirty.add_shared();
        }
    }

    fn replace_namespaces(&mut self, new: BTreeMap<Arc<str>, Arc<Namespace>>) {
        let any = !self.objects.namespaces.is_empty();
        let changed = replace_map(&mut self.objects.namespaces, new, namespace_differs);
        changed.iter().for_each(|name| self.dirty_namespace(name, any));
    }

    /// Pools may select the Services of a Namespace by its labels. Whether any Namespace is known decides for all, but by the
    /// next look that may be as before.
    fn dirty_namespace(&mut self, name: &Arc<str>, any_before: bool) {
        if any_before == self.objects.namespaces.is_empty() {
            self.dirty.add_shared();
        }
        let first = ServiceKey::of_service(name.clone(), Arc::default());
        let services = self.objects.services.range(first.clone()..).map(|(key, _)| key);
        let fleet = self.objects.fleet.services.range(first..).map(|(key, _)| key);
        let is_there = |key: &&ServiceKey| key.namespace == *name;
        for key in services.take_while(is_there).chain(fleet.take_while(is_there)) {
            self.dirty.add(key.clone());
        }
    }

    fn replace_pools(&mut self, new: BTreeMap<Arc<str>, Arc<AddressPool>>) {
        if !replace_map(&mut self.objects.pools, new, pool_differs).is_empty() {
            self.dirty.add_shared();
        }
    }
}

/// Makes `kept` hold what `new` holds and answers the keys that came, changed or went. Objects equal to the ones
/// before keep their `Arc`.
fn replace_map<K: Ord + Clone, V: PartialEq>(
    kept: &mut BTreeMap<K, Arc<V>>,
    new: BTreeMap<K, Arc<V>>,
    differs: impl Fn(&V, &V) -> bool,
) -> Vec<K> {
    let mut changed: Vec<K> = kept.keys().filter(|key| !new.contains_key(*key)).cloned().collect();
    for key in &changed {
        kept.remove(key);
    }
    for (key, object) in new {
        let old = kept.get(&key);
        if old.is_some_and(|old| Arc::ptr_eq(old, &object) || **old == *object) {
            continue;
        }
        if old.is_none_or(|old| differs(old, &object)) {
            changed.push(key.clone());
        }
        kept.insert(key, object);
    }
    changed
}

/// The namespace and name in `metadata`, as a Service's key.
pub fn service_key(metadata: &ObjectMeta) -> ServiceKey {
    ServiceKey::of_service(namespace_of(metadata), name_of(metadata))
}

/// The Service that a slice belongs to: the one that its label names, in its own namespace. Slices from other clusters name
/// the Service that was exported there; implementations that also make a Service of their own for it name that one by the
/// ordinary label, which wins. One from nobody knows where is nobody's: its nodes and zones would be taken for ours.
pub fn slice_owner(slice: &EndpointSlice) -> Option<ServiceKey> {
    let labels = slice.metadata.labels.as_ref()?;
    let label = |name: &str| labels.get(name).filter(|value| !value.is_empty());
    let imported = || label(SOURCE_CLUSTER_LABEL).and(label(IMPORTED_SERVICE_NAME_LABEL));
    let name = label(SERVICE_NAME_LABEL).or_else(imported)?;
    Some(ServiceKey::of_service(namespace_of(&slice.metadata), name.as_str().into()))
}

/// The label for want of which a slice belongs to no Service.
pub(crate) fn missing_label(slice: &EndpointSlice) -> &'static str {
    let labels = slice.metadata.labels.as_ref();
    let is_imported = labels.is_some_and(|labels| labels.contains_key(IMPORTED_SERVICE_NAME_LABEL));
    if is_imported { SOURCE_CLUSTER_LABEL } else { SERVICE_NAME_LABEL }
}

/// Whether new traffic may go there; also when nothing is said (EndpointConditions in discovery/v1).
pub(crate) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

fn slice_key(metadata: &ObjectMeta) -> SliceKey {
    (namespace_of(metadata), name_of(metadata))
}

fn namespace_of(metadata: &ObjectMeta) -> Arc<str> {
    metadata.namespace.as_deref().unwrap_or_default().into()
}

fn name_of(metadata: &ObjectMeta) -> Arc<str> {
    metadata.name.as_deref().unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
