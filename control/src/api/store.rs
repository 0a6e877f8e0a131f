//! The objects of one cluster as last seen, and which Services have to be projected again. Sources write here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::Endpoint;
use kube::Resource as _;

use super::kinds::{Affects, ChangeVisitor, Kind, KindVisitor, Owner, object_key, visit_kinds};
pub use super::kinds::{Change, ControlPlane, Delta};
use super::object::differs;
use super::objects::Collection;
pub use super::objects::{Fleet, ObjectKey, Objects};
pub(crate) use super::owners::SOURCE_CLUSTER_LABEL;
use super::owners::names_of;
pub use super::owners::{SERVICE_NAME_LABEL, service_key, slice_owner};
pub use super::service_key::ServiceKey;

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
    /// Every MultiClusterService is dirty.
    fleet_touched: bool,
    /// Under what objects are kept that are about another one, by the name of their lines in a snapshot: an update may move
    /// them, and a deletion names the object alone.
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
    /// Adds an object, in place of the one of the same name. One that is about no Service is not kept.
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

    /// What changed since this was last asked.
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

    /// Applies what a source reports.
    pub fn apply(&mut self, change: Change) {
        change.visit(self);
    }

    /// Takes a whole new state, as after a list: what is missing from it is gone.
    pub fn replace(&mut self, new: &Objects) {
        self.replace_part(ControlPlane::Local, new);
        self.replace_part(ControlPlane::Karmada, new);
    }

    /// Takes a whole new state of what one API server has; the other part is as before.
    pub fn replace_part(&mut self, plane: ControlPlane, new: &Objects) {
        visit_kinds(&mut Replace { store: self, plane, new });
    }

    /// An object came or changed.
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
        let owner = K::collection_mut(&mut self.objects).insert(&owner, &key, object);
        if changed {
            self.touch::<K>(&owner, &key, any_namespace);
        }
        if is_indexed::<K>() {
            // There are as many as endpoint slices, most of them in the namespace of their owner.
            let (namespace, name) = key;
            let namespace = if namespace == owner.namespace { owner.namespace.clone() } else { namespace };
            self.owners.entry(K::ROW.line).or_default().insert((namespace, name), owner);
        }
    }

    /// An object went.
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
        // Another object may have taken the place that an owner has for one.
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
            K::collection_mut(&mut self.objects).remove(&owner, key);
            self.touch::<K>(&owner, key, any_namespace);
        }
    }

    /// Takes all there are of a kind. What came is added before the rest is removed, so that a kind is not empty in between.
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
        }
    }

    /// Pools may select the Services of a Namespace by its labels. Whether any Namespace is known decides for all, but by the
    /// next look that may be as before.
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

/// Whether objects of the kind are kept under another one, which a deletion does not name.
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

/// Takes each kind of one API server from a whole new state.
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

/// Whether new traffic may go there; also when nothing is said (EndpointConditions in discovery/v1).
pub(crate) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

#[cfg(test)]
mod tests;
