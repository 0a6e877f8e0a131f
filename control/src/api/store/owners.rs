//! Under which MultiClusterService each object of a Karmada control plane is kept: an update may move it, and a deletion names
//! the object alone. It must not know where the objects come from or what they mean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::Metadata;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::fleet::{self, Fleet, Nested, WorkKey, binding_owner, imported_owner, work_owner};
use super::{Delta, ServiceKey, name_of, namespace_of};
use crate::api::karmada::{ResourceBinding, Work};

/// Namespace and name.
type Key = (Arc<str>, Arc<str>);

/// The owners of what a fleet has.
#[derive(Debug, Default)]
pub(super) struct Owners {
    works: Index,
    imported: Index,
    bindings: Index,
}

type Index = BTreeMap<Key, ServiceKey>;

/// A kind of which one owner has many.
trait Owned: Metadata<Ty = ObjectMeta> + Clone + PartialEq {
    /// By what the objects of one owner are told apart.
    type Inner: Ord + Clone;
    fn owner(&self) -> Option<ServiceKey>;
    fn inner(key: &Key) -> Self::Inner;
    fn kept(fleet: &mut Fleet) -> &mut Nested<Self::Inner, Self>;
    fn index(owners: &mut Owners) -> &mut Index;
}

impl Owned for Work {
    type Inner = WorkKey;

    fn owner(&self) -> Option<ServiceKey> {
        work_owner(self)
    }

    fn inner(key: &Key) -> WorkKey {
        key.clone()
    }

    fn kept(fleet: &mut Fleet) -> &mut Nested<WorkKey, Self> {
        &mut fleet.works
    }

    fn index(owners: &mut Owners) -> &mut Index {
        &mut owners.works
    }
}

impl Owned for EndpointSlice {
    type Inner = Arc<str>;

    fn owner(&self) -> Option<ServiceKey> {
        imported_owner(self)
    }

    fn inner(key: &Key) -> Arc<str> {
        key.1.clone()
    }

    fn kept(fleet: &mut Fleet) -> &mut Nested<Arc<str>, Self> {
        &mut fleet.imported
    }

    fn index(owners: &mut Owners) -> &mut Index {
        &mut owners.imported
    }
}

/// Which MultiClusterServices a change makes a difference to.
pub(super) type Touched = BTreeSet<ServiceKey>;

impl Owners {
    /// Forgets everything, and learns what `fleet` has.
    pub(super) fn learn(&mut self, fleet: &mut Fleet) {
        self.learn_one::<Work>(fleet);
        self.learn_one::<EndpointSlice>(fleet);
        self.bindings =
            fleet.bindings.iter().map(|(owner, binding)| (key(&**binding), owner.clone())).collect();
    }

    /// News of Works: of those that were collected from member clusters, or of the others. The two are listed apart, so that a
    /// list of the one says nothing of the other, and a Work that changes sides goes from one and comes to the other in
    /// whatever order.
    pub(super) fn works(&mut self, fleet: &mut Fleet, delta: Delta<Work>, collected: bool) -> Touched {
        self.take(fleet, delta, |work| work.is_collected() == collected)
    }

    /// News of slices that Karmada imported.
    pub(super) fn imported(&mut self, fleet: &mut Fleet, delta: Delta<EndpointSlice>) -> Touched {
        self.take(fleet, delta, |_| true)
    }

    /// News of bindings. Karmada makes one for each Service.
    pub(super) fn bindings(&mut self, fleet: &mut Fleet, delta: Delta<ResourceBinding>) -> Touched {
        let mut touched = Touched::new();
        match delta {
            Delta::Put(binding) => {
                let (key, owner) = (key(&*binding), binding_owner(&binding));
                if self.bindings.get(&key) != owner.as_ref() {
                    touched.extend(self.remove_binding(fleet, &key));
                }
                let Some(owner) = owner else { return touched };
                let old = fleet.bindings.insert(owner.clone(), binding.clone());
                if old.is_none_or(|old| fleet::differs(&*old, &*binding)) {
                    touched.insert(owner.clone());
                }
                self.bindings.insert(key, owner);
            }
            Delta::Gone { namespace, name } => touched.extend(self.remove_binding(fleet, &(namespace, name))),
            Delta::All(bindings) => {
                let owned = bindings.into_iter().filter_map(|it| Some((binding_owner(&it)?, it)));
                touched.extend(super::replace_map(&mut fleet.bindings, owned.collect(), fleet::differs));
                self.bindings =
                    fleet.bindings.iter().map(|(owner, it)| (self::key(&**it), owner.clone())).collect();
            }
        }
        touched
    }

    fn remove_binding(&mut self, fleet: &mut Fleet, gone: &Key) -> Option<ServiceKey> {
        let owner = self.bindings.remove(gone)?;
        // Another one may have taken its place.
        if fleet.bindings.get(&owner).is_none_or(|kept| key(&**kept) != *gone) {
            return None;
        }
        fleet.bindings.remove(&owner).map(|_| owner)
    }

    /// `is_told` says of which objects the source tells.
    fn take<T: Owned>(
        &mut self,
        fleet: &mut Fleet,
        delta: Delta<T>,
        is_told: impl Fn(&T) -> bool,
    ) -> Touched {
        match delta {
            Delta::Put(object) => self.put(fleet, &object),
            Delta::Gone { namespace, name } => {
                let key = (namespace, name);
                let told = self.get::<T>(fleet, &key).is_some_and(|kept| is_told(kept));
                if told { self.remove::<T>(fleet, &key).into_iter().collect() } else { Touched::new() }
            }
            Delta::All(listed) => {
                let others = T::kept(fleet).values().flat_map(BTreeMap::values);
                let others = others.filter(|object| !is_told(object)).cloned().collect::<Vec<_>>();
                let all: BTreeMap<Key, Arc<T>> =
                    others.into_iter().chain(listed).map(|object| (key(&*object), object)).collect();
                let mut new = Nested::<T::Inner, T>::new();
                for (key, object) in all {
                    if let Some(owner) = object.owner() {
                        new.entry(owner).or_default().insert(T::inner(&key), object);
                    }
                }
                let touched = fleet::replace_nested(T::kept(fleet), new);
                self.learn_one::<T>(fleet);
                touched
            }
        }
    }

    fn put<T: Owned>(&mut self, fleet: &mut Fleet, object: &Arc<T>) -> Touched {
        let mut touched = Touched::new();
        let (key, owner) = (key(&**object), object.owner());
        if T::index(self).get(&key) != owner.as_ref() {
            touched.extend(self.remove::<T>(fleet, &key));
        }
        let Some(owner) = owner else { return touched };
        let kept = T::kept(fleet).entry(owner.clone()).or_default();
        let old = kept.insert(T::inner(&key), object.clone());
        if old.is_none_or(|old| fleet::differs(&*old, &**object)) {
            touched.insert(owner.clone());
        }
        T::index(self).insert(key, owner);
        touched
    }

    fn get<'a, T: Owned>(&mut self, fleet: &'a mut Fleet, key: &Key) -> Option<&'a Arc<T>> {
        T::kept(fleet).get(T::index(self).get(key)?)?.get(&T::inner(key))
    }

    fn remove<T: Owned>(&mut self, fleet: &mut Fleet, key: &Key) -> Option<ServiceKey> {
        let owner = T::index(self).remove(key)?;
        let kept = T::kept(fleet);
        if let Some(objects) = kept.get_mut(&owner) {
            objects.remove(&T::inner(key));
            if objects.is_empty() {
                kept.remove(&owner);
            }
        }
        Some(owner)
    }

    fn learn_one<T: Owned>(&mut self, fleet: &mut Fleet) {
        let index = T::index(self);
        index.clear();
        for (owner, objects) in T::kept(fleet) {
            index.extend(objects.values().map(|object| (key(&**object), owner.clone())));
        }
    }
}

fn key(object: &impl Metadata<Ty = ObjectMeta>) -> Key {
    (namespace_of(object.metadata()), name_of(object.metadata()))
}
