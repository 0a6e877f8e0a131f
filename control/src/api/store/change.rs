//! What a source has to say: one object came, changed or went, or this is the whole list. It must not know how the source
//! found out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Fleet, ServiceKey, Store, fleet, name_of, replace_map, service_key, slice_owner};
use crate::api::address_pool::AddressPool;
use crate::api::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};

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
    /// Of the Karmada control plane's MultiClusterServices.
    MultiClusterServices(Delta<MultiClusterService>),
    /// Of the Services there.
    Templates(Delta<Service>),
    /// Of the Works that were collected from member clusters. A list of them says nothing of other Works.
    CollectedWorks(Delta<Work>),
    /// Of the Works that carry a Service to a member cluster; a list says nothing of those that were collected.
    ServiceWorks(Delta<Work>),
    /// Of the EndpointSlices on the Karmada API server.
    Imported(Delta<EndpointSlice>),
    /// Of ResourceBindings.
    Bindings(Delta<ResourceBinding>),
    /// Of member clusters.
    Clusters(Delta<Cluster>),
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
            Change::MultiClusterServices(_)
            | Change::Templates(_)
            | Change::CollectedWorks(_)
            | Change::ServiceWorks(_)
            | Change::Imported(_)
            | Change::Bindings(_)
            | Change::Clusters(_) => self.apply_to_fleet(change),
        }
    }

    fn apply_to_fleet(&mut self, change: Change) {
        let (fleet, owners) = (&mut self.objects.fleet, &mut self.owners);
        let touched = match change {
            Change::MultiClusterServices(delta) => take_own(&mut fleet.services, delta, fleet::differs),
            Change::Templates(delta) => take_own(&mut fleet.templates, delta, fleet::differs),
            Change::CollectedWorks(delta) => owners.works(fleet, delta, true),
            Change::ServiceWorks(delta) => owners.works(fleet, delta, false),
            Change::Imported(delta) => owners.imported(fleet, delta),
            Change::Bindings(delta) => owners.bindings(fleet, delta),
            Change::Clusters(delta) => take_cluster(fleet, delta),
            Change::Services(_)
            | Change::Slices(_)
            | Change::Nodes(_)
            | Change::Namespaces(_)
            | Change::Pools(_) => return,
        };
        touched.into_iter().for_each(|key| self.dirty.add(key));
    }
}

/// Takes news of objects that are kept under their own names.
fn take_own<T: Metadata<Ty = ObjectMeta> + PartialEq>(
    kept: &mut BTreeMap<ServiceKey, Arc<T>>,
    delta: Delta<T>,
    differs: impl Fn(&T, &T) -> bool,
) -> BTreeSet<ServiceKey> {
    let own_key = |object: &Arc<T>| fleet::own_key(object.metadata());
    match delta {
        Delta::Put(object) => {
            let key = own_key(&object);
            let old = kept.insert(key.clone(), object.clone());
            old.is_none_or(|old| differs(&old, &object)).then_some(key).into_iter().collect()
        }
        Delta::Gone { namespace, name } => {
            let gone = kept.remove_entry(&ServiceKey::multi_cluster(&namespace, &name));
            gone.map(|(key, _)| key).into_iter().collect()
        }
        Delta::All(objects) => {
            let new = objects.into_iter().map(|object| (own_key(&object), object)).collect();
            replace_map(kept, new, differs).into_iter().collect()
        }
    }
}

/// Takes news of member clusters, which make a difference to every MultiClusterService.
fn take_cluster(fleet: &mut Fleet, delta: Delta<Cluster>) -> BTreeSet<ServiceKey> {
    let differs = match delta {
        Delta::Put(cluster) => {
            let old = fleet.clusters.insert(name_of(&cluster.metadata), cluster.clone());
            old.is_none_or(|old| fleet::cluster_differs(&old, &cluster))
        }
        Delta::Gone { name, .. } => fleet.clusters.remove(&name).is_some(),
        Delta::All(clusters) => return fleet.replace_clusters(by_name(clusters, |it| &it.metadata)),
    };
    if differs { fleet.services.keys().cloned().collect() } else { BTreeSet::new() }
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
