//! What a source has to say: one object came, changed or went, or this is the whole list. It must not know how the source
//! found out.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{ServiceKey, Store, name_of, service_key, slice_owner};
use crate::address_pool::AddressPool;

/// News of one kind of object.
#[derive(Clone, Debug)]
pub enum Change {
    /// Of Services.
    Services(Delta<Service>),
    /// Of EndpointSlices.
    Slices(Delta<EndpointSlice>),
    /// Of Nodes.
    Nodes(Delta<Node>),
    /// Of Namespaces.
    Namespaces(Delta<Namespace>),
    /// Of AddressPools.
    Pools(Delta<AddressPool>),
}

/// What became of the objects of one kind.
#[derive(Clone, Debug)]
pub enum Delta<T> {
    /// One came or changed.
    Put(Arc<T>),
    /// One went; its namespace is empty for cluster-scoped kinds.
    Gone {
        /// The object's namespace.
        namespace: Arc<str>,
        /// The object's name.
        name: Arc<str>,
    },
    /// These are all there are, as after a list: whatever is missing is gone.
    All(Vec<Arc<T>>),
}

impl Store {
    /// Takes in what a source says.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Services(Delta::Put(service)) => self.upsert_service(service),
            Change::Services(Delta::Gone { namespace, name }) => {
                self.remove_service(&ServiceKey::of_service(namespace, name));
            }
            Change::Services(Delta::All(services)) => {
                self.replace_services(
                    services.into_iter().map(|it| (service_key(&it.metadata), it)).collect(),
                );
            }
            Change::Slices(Delta::Put(slice)) => self.upsert_slice(slice),
            Change::Slices(Delta::Gone { namespace, name }) => self.remove_slice(&namespace, &name),
            Change::Slices(Delta::All(slices)) => self.replace_slices(by_owner(slices)),
            Change::Nodes(Delta::Put(node)) => self.upsert_node(node),
            Change::Nodes(Delta::Gone { name, .. }) => self.remove_node(&name),
            Change::Nodes(Delta::All(nodes)) => self.replace_nodes(by_name(nodes, |it| &it.metadata)),
            Change::Namespaces(Delta::Put(namespace)) => self.upsert_namespace(namespace),
            Change::Namespaces(Delta::Gone { name, .. }) => self.remove_namespace(&name),
            Change::Namespaces(Delta::All(all)) => self.replace_namespaces(by_name(all, |it| &it.metadata)),
            Change::Pools(Delta::Put(pool)) => self.upsert_pool(pool),
            Change::Pools(Delta::Gone { name, .. }) => self.remove_pool(&name),
            Change::Pools(Delta::All(pools)) => self.replace_pools(by_name(pools, |it| &it.metadata)),
        }
    }
}

fn by_name<T>(objects: Vec<Arc<T>>, metadata: impl Fn(&T) -> &ObjectMeta) -> BTreeMap<Arc<str>, Arc<T>> {
    objects.into_iter().map(|object| (name_of(metadata(&object)), object)).collect()
}

/// Slices whose label names no Service belong to nobody.
fn by_owner(slices: Vec<Arc<EndpointSlice>>) -> BTreeMap<ServiceKey, BTreeMap<Arc<str>, Arc<EndpointSlice>>> {
    let mut owners: BTreeMap<ServiceKey, BTreeMap<_, _>> = BTreeMap::new();
    for slice in slices {
        if let Some(owner) = slice_owner(&slice) {
            owners.entry(owner).or_default().insert(name_of(&slice.metadata), slice);
        }
    }
    owners
}
