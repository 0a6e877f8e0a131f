//! Map of values that several owners share by key while any of them has one: limiters of Services, kernel programs and source
//! sets.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use sheave_model::{Frontend, FrontendSource};

/// A map that does not keep its values alive.
#[derive(Debug)]
pub(crate) struct WeakMap<K, V> {
    known: HashMap<K, Weak<V>, foldhash::fast::RandomState>,
    /// Number of entries left at the last removal of dead ones.
    left: usize,
}

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self { known: HashMap::default(), left: 0 }
    }
}

impl<K: Hash + Eq, V> WeakMap<K, V> {
    /// The value, if it has an owner.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.known.get(key).and_then(Weak::upgrade)
    }

    /// The values that have an owner.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, Arc<V>)> {
        self.known.iter().filter_map(|(key, value)| Some((key, value.upgrade()?)))
    }

    /// Adds a value to share.
    pub(crate) fn insert(&mut self, key: K, value: &Arc<V>) {
        // Not at each of thousands that are added together.
        if self.known.len() > 2 * self.left {
            self.known.retain(|_, value| value.strong_count() > 0);
            self.left = self.known.len();
        }
        self.known.insert(key, Arc::downgrade(value));
    }

    /// The value, created by `new` if it has no owner.
    pub(crate) fn get_or_insert(&mut self, key: K, new: impl FnOnce() -> V) -> Arc<V> {
        self.get(&key).unwrap_or_else(|| {
            let value = Arc::new(new());
            self.insert(key, &value);
            value
        })
    }
}

/// Identity of a Service with frontends.
pub(crate) type ServiceId = (FrontendSource, Arc<str>, Arc<str>);

/// The Service of a frontend.
pub(crate) fn service_id(frontend: &Frontend) -> ServiceId {
    let service = &frontend.service;
    (service.source, Arc::clone(&service.namespace), Arc::clone(&service.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shared_while_somebody_has_it_and_dead_ones_are_removed() {
        let mut map = WeakMap::<u32, u32>::default();
        let kept = map.get_or_insert(0, || 7);
        (1..100).for_each(|key| drop(map.get_or_insert(key, || 0)));
        assert!(Arc::ptr_eq(&kept, &map.get_or_insert(0, || 8)) && map.known.len() < 10);
        drop(kept);
        assert_eq!(*map.get_or_insert(0, || 8), 8);
    }
}
