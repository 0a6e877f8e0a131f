//! Ownership of objects: the Service or MultiClusterService that an object belongs to.

use std::sync::Arc;

use k8s_openapi::Resource as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::karmada::{Manifest, ResourceBinding, Work};
use super::problem::{ObjectRef, Problem, reason};
use super::service_key::ServiceKey;

/// Label with which an EndpointSlice names its Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// Label with which a slice that was imported for a ServiceImport names its Service (KEP-1645, `LabelServiceName`).
const IMPORTED_SERVICE_NAME_LABEL: &str = "multicluster.kubernetes.io/service-name";

/// Label with the source cluster of an imported slice (KEP-1645, `LabelSourceCluster`).
pub(crate) const SOURCE_CLUSTER_LABEL: &str = "multicluster.kubernetes.io/source-cluster";

/// Labels with which collected Works name their MultiClusterService, and Works of ServiceExports their Service.
const OWNER_LABELS: [[&str; 2]; 2] = [
    ["multiclusterservice.karmada.io/namespace", "multiclusterservice.karmada.io/name"],
    ["endpointslice.karmada.io/namespace", "endpointslice.karmada.io/name"],
];

/// Name prefix of the Service that Karmada derives from a ServiceImport (`names.GenerateDerivedServiceName`).
const DERIVED_PREFIX: &str = "derived-";

/// The namespace and name in `metadata` as the key of a Service.
pub fn service_key(metadata: &ObjectMeta) -> ServiceKey {
    ServiceKey::of_service(namespace_of(metadata), name_of(metadata))
}

/// The Service that a slice belongs to: the one that its label names, in its own namespace. Imported slices name the Service that
/// was exported in their cluster. Implementations that also create a local Service name that one with the ordinary label, which
/// takes precedence. An imported slice without a source cluster belongs to no Service: its nodes and zones would be mistaken for
/// local ones.
pub fn slice_owner(slice: &EndpointSlice) -> Option<ServiceKey> {
    let labels = slice.metadata.labels.as_ref()?;
    let label = |name: &str| labels.get(name).filter(|value| !value.is_empty());
    let imported = || label(SOURCE_CLUSTER_LABEL).and(label(IMPORTED_SERVICE_NAME_LABEL));
    let name = label(SERVICE_NAME_LABEL).or_else(imported)?;
    Some(ServiceKey::of_service(namespace_of(&slice.metadata), name.as_str().into()))
}

/// The ServiceImport that a slice belongs to, as a key with the source of a Service: the one that the label of the Multi-Cluster
/// Services API names, in the slice's own namespace. A slice without a source cluster belongs to none.
pub(super) fn import_owner(slice: &EndpointSlice) -> Option<ServiceKey> {
    let labels = slice.metadata.labels.as_ref()?;
    let label = |name: &str| labels.get(name).filter(|value| !value.is_empty());
    let name = label(SOURCE_CLUSTER_LABEL).and(label(IMPORTED_SERVICE_NAME_LABEL))?;
    Some(ServiceKey::of_service(namespace_of(&slice.metadata), name.as_str().into()))
}

/// Whether the slice comes from another cluster. A backendRef of kind Service uses the cluster's own slices only (GEP-1748).
pub(crate) fn is_imported(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.get(SOURCE_CLUSTER_LABEL).is_some_and(|name| !name.is_empty()))
}

/// The label that a slice without a Service lacks.
pub(crate) fn missing_label(slice: &EndpointSlice) -> &'static str {
    let labels = slice.metadata.labels.as_ref();
    let is_imported = labels.is_some_and(|labels| labels.contains_key(IMPORTED_SERVICE_NAME_LABEL));
    if is_imported { SOURCE_CLUSTER_LABEL } else { SERVICE_NAME_LABEL }
}

/// The MultiClusterService with the object's own name.
pub(super) fn own_key(metadata: &ObjectMeta) -> ServiceKey {
    ServiceKey::multi_cluster(&namespace_of(metadata), &name_of(metadata))
}

/// The MultiClusterService that a Work belongs to: by its labels if it was collected, otherwise by the Service that it carries.
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

/// The Problem of a Work that belongs to no Service because a manifest cannot be decoded. The store does not keep such a Work, so
/// only its reader can report it.
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

/// The MultiClusterService that an imported slice belongs to: its label names that Service, or the one derived from it.
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

pub(super) fn namespace_of(metadata: &ObjectMeta) -> Arc<str> {
    metadata.namespace.as_deref().unwrap_or_default().into()
}

pub(super) fn name_of(metadata: &ObjectMeta) -> Arc<str> {
    metadata.name.as_deref().unwrap_or_default().into()
}

/// Namespace and name, borrowed because lists are long.
pub(crate) fn names_of(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
