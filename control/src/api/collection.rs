//! Collections of objects, keyed the way the projection looks them up.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::service_key::ServiceKey;

/// Namespace and name of an object; the namespace of cluster-scoped ones is empty.
pub type ObjectKey = (Arc<str>, Arc<str>);

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
