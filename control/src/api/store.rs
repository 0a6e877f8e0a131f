//! Store of the objects of one cluster as last seen, and the set of Services to project again. Sources write to it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::Endpoint;
use kube::Resource as _;

use super::kinds::{Affects, ChangeVisitor, Kind, KindVisitor, Owner, object_key, visit_kinds};
pub use super::kinds::{Change, ControlPlane, Delta};
use super::object::differs;
use super::objects::Collection;
pub use super::objects::{KarmadaObjects, ObjectKey, Objects};
pub(crate) use super::owners::SOURCE_CLUSTER_LABEL;
use super::owners::names_of;
pub use super::owners::{SERVICE_NAME_LABEL, service_key, slice_owner};
pub use super::service_key::ServiceKey;

/// Scope of the next projection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Dirty {
    /// Nothing changed.
    Nothing,
    /// These Services changed, or their slices did, including additions and removals.
    Services(BTreeSet<ServiceKey>),
    /// These Services changed, and so did something that any Service may depend on: a Node, a pool.
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

    /// Records a change that any Service may depend on.
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

/// The objects of one cluster, and what changed since the last projection.
///
/// Changes come one at a time, as from a watch, or as a complete set, as from a list. Either way, an object that equals its
/// predecessor dirties nothing and keeps its `Arc`.
#[derive(Debug)]
pub struct Store {
    objects: Objects,
    dirty: Dirty,
    /// Whether every MultiClusterService is dirty.
    fleet_touched: bool,
    /// Owner keys of objects that are kept under another object, by their line name in a snapshot: an update may change the
    /// owner, and a deletion names only the object.
    owners: BTreeMap<&'static str, BTreeMap<ObjectKey, ServiceKey>>,
}

impl Default for Store {
    /// Empty, with nothing dirty.
    fn default() -> Self {
        Self {
            objects: Objects::default(),
            dirty: Dirty::Nothing,
            fleet_touched: false,
            owners: BTreeMap::new(),
        }
    }
}

impl Objects {
    /// Adds or replaces an object. An object that belongs to no Service is dropped.
    pub fn put<K: Kind>(&mut self, object: impl Into<Arc<K::Object>>) {
        let object = object.into();
        if let Some(owner) = K::owner(&object) {
            let key = object_key(object.meta());
            K::collection_mut(self).insert(&owner, &key, object);
        }
    }
}

impl Store {
    /// The objects as last seen.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns what changed since the last call.
    pub fn take_dirty(&mut self) -> Dirty {
        if std::mem::take(&mut self.fleet_touched) {
            self.objects.fleet.services.keys().for_each(|key| self.dirty.add(key.clone()));
        }
        std::mem::replace(&mut self.dirty, Dirty::Nothing)
    }

    /// Whether nothing changed since [`Self::take_dirty`].
    pub fn is_clean(&self) -> bool {
        self.dirty.is_nothing() && !self.fleet_touched
    }

    /// Applies a change from a source.
    pub fn apply(&mut self, change: Change) {
        change.visit(self);
    }

    /// Replaces all objects, as after a list: an object that `new` lacks is gone.
    pub fn replace(&mut self, new: &Objects) {
        self.replace_part(ControlPlane::Local, new);
        self.replace_part(ControlPlane::Karmada, new);
    }

    /// Replaces all objects of one API server and leaves the others unchanged.
    pub fn replace_part(&mut self, plane: ControlPlane, new: &Objects) {
        visit_kinds(&mut Replace { store: self, plane, new });
    }

    /// Adds or replaces an object.
    pub fn put<K: Kind>(&mut self, object: impl Into<Arc<K::Object>>) {
        let object = object.into();
        let key = object_key(object.meta());
        let owner = K::owner(&object);
        if is_indexed::<K>() {
            let before = self.owners.entry(K::ROW.line).or_default();
            if before.get(&key) != owner.as_ref() {
                self.remove_at::<K>(&key, |_| true);
            }
        }
        let Some(owner) = owner else { return };
        let old = K::collection(&self.objects).get(&owner, &key);
        if old.is_some_and(|old| Arc::ptr_eq(old, &object) || **old == *object) {
            return;
        }
        let changed = old.is_none_or(|old| differs(&**old, &*object));
        let any_namespace = !self.objects.namespaces.is_empty();
        if changed && let Some(old) = old {
            K::dependents(&self.objects, old, &mut |key| self.dirty.add(key));
        }
        let new = Arc::clone(&object);
        let owner = K::collection_mut(&mut self.objects).insert(&owner, &key, object);
        if changed {
            K::dependents(&self.objects, &new, &mut |key| self.dirty.add(key));
            self.touch::<K>(&owner, &key, any_namespace);
        }
        if is_indexed::<K>() {
            // There are as many of these as endpoint slices, most of them in the namespace of their owner, so share that string.
            let (namespace, name) = key;
            let namespace = if namespace == owner.namespace { owner.namespace.clone() } else { namespace };
            self.owners.entry(K::ROW.line).or_default().insert((namespace, name), owner);
        }
    }

    /// Removes an object.
    pub fn remove<K: Kind>(&mut self, namespace: &str, name: &str) {
        self.remove_at::<K>(&(namespace.into(), name.into()), K::includes);
    }

    fn remove_at<K: Kind>(&mut self, key: &ObjectKey, meant: impl Fn(&K::Object) -> bool) {
        let owner = if is_indexed::<K>() {
            self.owners.get(K::ROW.line).and_then(|owners| owners.get(key)).cloned()
        } else {
            Some(K::own_key(key))
        };
        let Some(owner) = owner else { return };
        let kept = K::collection(&self.objects).get(&owner, key);
        // Another object may have replaced it, if its owner has room for only one.
        let is_it = |kept: &&Arc<K::Object>| !is_indexed::<K>() || object_key(kept.meta()) == *key;
        let is_there = kept.filter(is_it);
        if is_there.is_some_and(|kept| !meant(kept)) {
            return;
        }
        let is_there = is_there.is_some();
        if is_indexed::<K>() {
            self.owners.entry(K::ROW.line).or_default().remove(key);
        }
        if is_there {
            let any_namespace = !self.objects.namespaces.is_empty();
            if let Some(old) = K::collection(&self.objects).get(&owner, key) {
                K::dependents(&self.objects, old, &mut |key| self.dirty.add(key));
            }
            K::collection_mut(&mut self.objects).remove(&owner, key);
            self.touch::<K>(&owner, key, any_namespace);
        }
    }

    /// Replaces all objects of a kind. New objects are added before missing ones are removed, so that the kind is never empty in
    /// between.
    fn put_all<K: Kind>(&mut self, listed: Vec<Arc<K::Object>>) {
        let names: HashSet<_> = listed.iter().map(|object| names_of(object.meta())).collect();
        let missing = K::all(&self.objects).filter(|object| !names.contains(&names_of(object.meta())));
        let missing: Vec<ObjectKey> = missing.map(|object| object_key(object.meta())).collect();
        listed.into_iter().for_each(|object| self.put::<K>(object));
        missing.iter().for_each(|key| self.remove_at::<K>(key, K::includes));
    }

    fn touch<K: Kind>(&mut self, owner: &ServiceKey, (_, name): &ObjectKey, any_namespace: bool) {
        match K::ROW.affects {
            Affects::Owner => self.dirty.add(owner.clone()),
            Affects::All => self.dirty.add_shared(),
            Affects::Namespace => self.touch_namespace(name, any_namespace),
            Affects::Fleet => self.fleet_touched = !self.objects.fleet.services.is_empty(),
            Affects::Dependents => {}
        }
    }

    /// Marks the Services of a Namespace dirty, because pools may select them by its labels. If the first Namespace came or the
    /// last one went, every Service is affected, even if that is undone before the next projection.
    fn touch_namespace(&mut self, name: &Arc<str>, any_before: bool) {
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
}

/// Whether objects of the kind are kept under another object, which a deletion does not name.
fn is_indexed<K: Kind>() -> bool {
    matches!(K::OWNER, Owner::Of(_))
}

impl ChangeVisitor for &mut Store {
    type Output = ();

    fn visit<K: Kind>(self, delta: Delta<K::Object>) {
        match delta {
            Delta::Put(object) => self.put::<K>(object),
            Delta::Gone { namespace, name } => self.remove_at::<K>(&(namespace, name), K::includes),
            Delta::All(listed) => self.put_all::<K>(listed),
        }
    }
}

/// Replaces each kind of one API server from a complete set of objects.
struct Replace<'a> {
    store: &'a mut Store,
    plane: ControlPlane,
    new: &'a Objects,
}

impl KindVisitor for Replace<'_> {
    fn visit<K: Kind>(&mut self) {
        if K::ROW.plane == self.plane {
            self.store.put_all::<K>(K::all(self.new).cloned().collect());
        }
    }
}

/// Whether new traffic may go to the endpoint; true if the condition is absent (EndpointConditions in discovery/v1).
pub(crate) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

#[cfg(test)]
mod tests;
