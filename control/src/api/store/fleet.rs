//! The objects of a Karmada control plane as last seen, under the MultiClusterServices that they are about. It must not know
//! where the objects come from or what they mean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource as _};

use super::differs::metadata_differs;
use super::{SERVICE_NAME_LABEL, ServiceKey, name_of, namespace_of, replace_map};
use crate::api::karmada::{Cluster, Manifest, MultiClusterService, ResourceBinding, Work};
use crate::api::problem::{ObjectRef, Problem, reason};

/// Namespace and name of a Work.
pub type WorkKey = (Arc<str>, Arc<str>);

/// By which labels collected Works name their MultiClusterService, and those of ServiceExports their Service.
const OWNER_LABELS: [[&str; 2]; 2] = [
    ["multiclusterservice.karmada.io/namespace", "multiclusterservice.karmada.io/name"],
    ["endpointslice.karmada.io/namespace", "endpointslice.karmada.io/name"],
];

/// In front of the name of the Service that Karmada derives from a ServiceImport (`names.GenerateDerivedServiceName`).
const DERIVED_PREFIX: &str = "derived-";

/// What a Karmada control plane has. Everything but clusters is kept under the key of a MultiClusterService, whether that
/// exists or not: the one of the object's own name, or the one that the object is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    /// Every MultiClusterService.
    pub services: BTreeMap<ServiceKey, Arc<MultiClusterService>>,
    /// The Services on the Karmada API server: what member clusters' Services are made from.
    pub templates: BTreeMap<ServiceKey, Arc<Service>>,
    /// Works that carry EndpointSlices or Services.
    pub works: BTreeMap<ServiceKey, BTreeMap<WorkKey, Arc<Work>>>,
    /// EndpointSlices that Karmada imported from member clusters.
    pub imported: BTreeMap<ServiceKey, BTreeMap<Arc<str>, Arc<EndpointSlice>>>,
    /// Where the Services run.
    pub bindings: BTreeMap<ServiceKey, Arc<ResourceBinding>>,
    /// Member clusters by name. While there is none nothing is known of clusters: the API that serves them may fail alone.
    pub clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
}

impl Fleet {
    /// Takes a whole new state, and answers which MultiClusterServices it makes a difference to.
    pub(super) fn replace(&mut self, new: Self) -> BTreeSet<ServiceKey> {
        let mut dirty = BTreeSet::new();
        dirty.extend(replace_map(&mut self.services, new.services, differs));
        dirty.extend(replace_map(&mut self.templates, new.templates, differs));
        dirty.extend(replace_map(&mut self.bindings, new.bindings, differs));
        dirty.extend(replace_nested(&mut self.works, new.works));
        dirty.extend(replace_nested(&mut self.imported, new.imported));
        dirty.extend(self.replace_clusters(new.clusters));
        dirty
    }

    /// Clusters make a difference to every MultiClusterService.
    pub(super) fn replace_clusters(&mut self, new: BTreeMap<Arc<str>, Arc<Cluster>>) -> BTreeSet<ServiceKey> {
        if replace_map(&mut self.clusters, new, cluster_differs).is_empty() {
            return BTreeSet::new();
        }
        self.services.keys().cloned().collect()
    }

    /// Adds an object, in place of the one of the same name.
    pub fn put_service(&mut self, service: impl Into<Arc<MultiClusterService>>) {
        let service = service.into();
        self.services.insert(own_key(&service.metadata), service);
    }

    /// As [`Self::put_service`].
    pub fn put_template(&mut self, template: impl Into<Arc<Service>>) {
        let template = template.into();
        self.templates.insert(own_key(&template.metadata), template);
    }

    /// As [`Self::put_service`]; a Work that is about no Service is not kept.
    pub fn put_work(&mut self, work: impl Into<Arc<Work>>) {
        let work = work.into();
        if let Some(owner) = work_owner(&work) {
            self.works.entry(owner).or_default().insert(work_key(&work.metadata), work);
        }
    }

    /// As [`Self::put_service`]; a slice that is about no Service is not kept.
    pub fn put_imported(&mut self, slice: impl Into<Arc<EndpointSlice>>) {
        let slice = slice.into();
        if let Some(owner) = imported_owner(&slice) {
            self.imported.entry(owner).or_default().insert(name_of(&slice.metadata), slice);
        }
    }

    /// As [`Self::put_service`]; a binding of something else than a Service is not kept.
    pub fn put_binding(&mut self, binding: impl Into<Arc<ResourceBinding>>) {
        let binding = binding.into();
        if let Some(owner) = binding_owner(&binding) {
            self.bindings.insert(owner, binding);
        }
    }

    /// As [`Self::put_service`].
    pub fn put_cluster(&mut self, cluster: impl Into<Arc<Cluster>>) {
        let cluster = cluster.into();
        self.clusters.insert(name_of(&cluster.metadata), cluster);
    }
}

/// The MultiClusterService of an object's own name.
pub(super) fn own_key(metadata: &ObjectMeta) -> ServiceKey {
    ServiceKey::multi_cluster(&namespace_of(metadata), &name_of(metadata))
}

pub(super) fn work_key(metadata: &ObjectMeta) -> WorkKey {
    (namespace_of(metadata), name_of(metadata))
}

/// Which MultiClusterService a Work is about: by its labels if it was collected, else by the Service that it carries.
pub(super) fn work_owner(work: &Work) -> Option<ServiceKey> {
    let labels = work.metadata.labels.as_ref();
    let label = |name: &str| labels.and_then(|labels| labels.get(name)).filter(|value| !value.is_empty());
    let labelled = OWNER_LABELS.iter().find_map(|[namespace, name]| label(namespace).zip(label(name)));
    if let Some((namespace, name)) = labelled {
        return Some(ServiceKey::multi_cluster(namespace, name));
    }
    work.manifests().iter().find_map(|manifest| match manifest {
        Manifest::Service(service) => Some(own_key(&service.metadata)),
        Manifest::EndpointSlice(slice) => imported_owner(slice),
        Manifest::Other { .. } | Manifest::Broken { .. } => None,
    })
}

/// What is wrong with a Work that is about no Service because a manifest cannot be read. It is kept under none, so that only
/// who reads it can tell.
pub(crate) fn unreadable_owner(work: &Work) -> Option<Problem> {
    if work.metadata.deletion_timestamp.is_some() || work_owner(work).is_some() {
        return None;
    }
    let mut manifests = work.manifests().iter().enumerate();
    manifests.find_map(|(index, manifest)| match manifest {
        Manifest::Broken { kind, why } => Some(Problem {
            object: ObjectRef {
                kind: Work::KIND,
                namespace: namespace_of(&work.metadata),
                name: name_of(&work.metadata),
            },
            reason: reason::INVALID_MANIFEST,
            field: format!("spec.workload.manifests[{index}]"),
            message: format!(
                "{} cannot be read: {why}; no label says which Service the Work is about, so nothing of it is used",
                if kind.is_empty() { "the manifest" } else { kind }
            ),
            port: None,
        }),
        Manifest::EndpointSlice(_) | Manifest::Service(_) | Manifest::Other { .. } => None,
    })
}

/// Which MultiClusterService an imported slice is about: the Service that its label names, or that this was derived from.
pub(super) fn imported_owner(slice: &EndpointSlice) -> Option<ServiceKey> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL)?;
    let name = name.strip_prefix(DERIVED_PREFIX).unwrap_or(name);
    (!name.is_empty()).then(|| ServiceKey::multi_cluster(&namespace_of(&slice.metadata), name))
}

pub(super) fn binding_owner(binding: &ResourceBinding) -> Option<ServiceKey> {
    let resource = &binding.spec.resource;
    let is_service = resource.kind == "Service" && matches!(resource.api_version.as_str(), "" | "v1");
    is_service.then(|| ServiceKey::multi_cluster(&resource.namespace, &resource.name))
}

/// Leaves out what every write changes and nothing is decided by.
pub(super) fn differs<T: Metadata<Ty = ObjectMeta> + Clone + PartialEq>(old: &T, new: &T) -> bool {
    let content = |object: &T| {
        let mut object = object.clone();
        let metadata = object.metadata_mut();
        metadata.resource_version = None;
        metadata.managed_fields = None;
        metadata.generation = None;
        object
    };
    content(old) != content(new)
}

/// Karmada writes the status of a Cluster every ten seconds (`cluster-status-update-frequency`). Of its conditions only those
/// that turned count: messages tell what was tried last.
pub(super) fn cluster_differs(old: &Cluster, new: &Cluster) -> bool {
    let conditions = |cluster: &Cluster| -> Vec<_> {
        let conditions = cluster.status.conditions.iter();
        conditions
            .map(|it| {
                (it.type_.clone(), it.status.clone(), it.last_transition_time.clone(), it.reason.clone())
            })
            .collect()
    };
    old.spec != new.spec
        || old.status.remedy_actions != new.status.remedy_actions
        || old.status.api_enablements != new.status.api_enablements
        || conditions(old) != conditions(new)
        || metadata_differs(&old.metadata, &new.metadata)
}

/// What many objects of one MultiClusterService are kept in.
pub(super) type Nested<K, V> = BTreeMap<ServiceKey, BTreeMap<K, Arc<V>>>;

pub(super) fn replace_nested<K: Ord + Clone, V: Metadata<Ty = ObjectMeta> + Clone + PartialEq>(
    kept: &mut Nested<K, V>,
    new: Nested<K, V>,
) -> BTreeSet<ServiceKey> {
    let mut dirty: BTreeSet<ServiceKey> =
        kept.keys().filter(|owner| !new.contains_key(*owner)).cloned().collect();
    kept.retain(|owner, _| !dirty.contains(owner));
    for (owner, objects) in new {
        let kept = kept.entry(owner.clone()).or_default();
        if !replace_map(kept, objects, differs).is_empty() {
            dirty.insert(owner);
        }
    }
    dirty
}
