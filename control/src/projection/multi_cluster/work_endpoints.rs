//! Endpoints of a Service in each cluster: from Works with its collected slices, and from slices that Karmada imported. Separates
//! originals from the copies that Karmada makes for consumers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::clusters::Clusters;
use crate::api::karmada::{COLLECTED_LABEL, EXECUTION_SPACE_PREFIX, Manifest, Work, cluster_of_namespace};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::api::store::{KarmadaObjects, ObjectKey, SERVICE_NAME_LABEL, SOURCE_CLUSTER_LABEL, ServiceKey};
use crate::projection::endpoints;
use crate::projection::plan::{ListedSlice, NotCounted, SliceOrigin, UncountedSlice};

/// Annotations of an imported slice with the Work that it comes from. Versions before v1.11 do not set them.
const WORK_NAMESPACE: &str = "work.karmada.io/namespace";

const WORK_NAME: &str = "work.karmada.io/name";

/// Label of a Work and of objects that are created from it.
const PERMANENT_ID: &str = "work.karmada.io/permanent-id";

/// Prefix of an imported slice's name. The cluster's name, a dash and the slice's own name follow (karmada pkg/util/names).
const NAME_PREFIX: &str = "imported-";

/// Adds an imported slice.
pub(super) fn read_imported<'a>(
    key: &ServiceKey,
    slice: &Arc<EndpointSlice>,
    clusters: &Clusters<'a>,
    sources: &mut CollectedEndpoints<'a>,
) {
    let Some(cluster) = imported_cluster(key, slice, clusters) else {
        let mut report = Report::about(endpoints::slice_ref(slice));
        let message = format!(
            "nothing says which cluster the slice is from: there is no annotation {WORK_NAMESPACE}, and \
                               its name does not begin with imported- and a cluster's name; it is left out"
        );
        report.add(
            reason::CLUSTER_NOT_FOUND,
            format!("metadata.annotations[{WORK_NAMESPACE}]"),
            None,
            message,
        );
        return sources.problems.extend(report.into_problems());
    };
    let verdict = match clusters.judge(cluster) {
        _ if is_dispatched(slice) => Err(NotCounted::Dispatched),
        Ok(()) if is_imported_copy(slice, cluster, sources) => Err(NotCounted::Imported),
        other => other,
    };
    if verdict == Err(NotCounted::Unregistered) {
        let mut report = Report::about(endpoints::slice_ref(slice));
        unregistered(cluster, imported_cluster_field(slice), &mut report);
        sources.problems.extend(report.into_problems());
    }
    match verdict {
        Err(why) => sources.leave(cluster, slice, why),
        Ok(()) => {
            let part: &mut ClusterEndpoints<'_> = sources.parts.entry(cluster.into()).or_default();
            part.slices.push(ListedSlice { slice: slice.clone(), origin: SliceOrigin::Copy });
        }
    }
}

fn imported_cluster<'s>(
    key: &ServiceKey,
    slice: &'s EndpointSlice,
    clusters: &Clusters<'s>,
) -> Option<&'s str> {
    let from_name = || {
        let rest = slice.metadata.name.as_deref()?.strip_prefix(NAME_PREFIX)?;
        clusters.longest_prefix(rest)
    };
    let from_work = || {
        let id = label(slice, PERMANENT_ID)?;
        let works = clusters.fleet.works.get(key)?;
        let has = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get(PERMANENT_ID).is_some_and(|it| it == id)
        };
        let (name, _) = works.iter().find(|(_, work)| work.metadata.labels.as_ref().is_some_and(has))?;
        cluster_of_namespace(&name.0)
    };
    let named = label(slice, SOURCE_CLUSTER_LABEL).filter(|name| !name.is_empty());
    let annotated = || annotation(slice, WORK_NAMESPACE).and_then(cluster_of_namespace);
    named.or_else(annotated).or_else(from_name).or_else(from_work)
}

/// The field that names the slice's cluster.
fn imported_cluster_field(slice: &EndpointSlice) -> String {
    if label(slice, SOURCE_CLUSTER_LABEL).is_some_and(|name| !name.is_empty()) {
        return format!("metadata.labels[{SOURCE_CLUSTER_LABEL}]");
    }
    match annotation(slice, WORK_NAMESPACE) {
        Some(_) => format!("metadata.annotations[{WORK_NAMESPACE}]"),
        None => "metadata.name".to_owned(),
    }
}

/// Whether a usable Work has the slice itself.
fn is_imported_copy(slice: &EndpointSlice, cluster: &str, sources: &CollectedEndpoints<'_>) -> bool {
    let work = annotation(slice, WORK_NAMESPACE).zip(annotation(slice, WORK_NAME));
    if let Some((namespace, name)) = work {
        let key = (namespace.into(), name.into());
        if sources.collected.contains(&key) {
            return true;
        }
    }
    let name = slice.metadata.name.as_deref().unwrap_or_default();
    let own = name.strip_prefix(NAME_PREFIX).and_then(|it| it.strip_prefix(cluster)?.strip_prefix('-'));
    let part = sources.parts.get(cluster);
    let mut slices = part.into_iter().flat_map(|part| &part.slices);
    own.is_some_and(|own| {
        slices.any(|it| {
            !matches!(it.origin, SliceOrigin::Copy) && it.slice.metadata.name.as_deref() == Some(own)
        })
    })
}

fn annotation<'a>(slice: &'a EndpointSlice, name: &str) -> Option<&'a str> {
    slice.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Annotation of copies for consumers, with the cluster that they come from (karmada pkg/apis/networking/v1alpha1,
/// `EndpointSliceProvisionClusterAnnotation`).
const PROVISION_ANNOTATION: &str = "endpointslice.karmada.io/provision-cluster";

/// Label with the manager of a slice (discovery/v1, `LabelManagedBy`).
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

/// Controller that makes the copies for consumers.
const DISPATCHER: &str = "endpointslice-dispatch-controller.karmada.io";

/// Controller that imports slices into the control plane. In a member cluster such a slice is also a copy (karmada
/// pkg/util/helper/mcs.go, `IsEndpointSliceManagedByKarmada`).
const IMPORTER: &str = "endpointslice-controller.karmada.io";

/// Objects of one cluster.
#[derive(Default)]
pub(super) struct ClusterEndpoints<'a> {
    pub(super) slices: Vec<ListedSlice>,
    /// Works that carry the Service as it is in the cluster.
    pub(super) services: Vec<(&'a ObjectKey, &'a Work, &'a Service)>,
}

/// Objects of all clusters.
#[derive(Default)]
pub(super) struct CollectedEndpoints<'a> {
    pub(super) parts: BTreeMap<Arc<str>, ClusterEndpoints<'a>>,
    pub(super) left: Vec<UncountedSlice>,
    pub(super) problems: Vec<Problem>,
    /// Names of Works with usable slices, and of these slices.
    pub(super) collected: BTreeSet<&'a ObjectKey>,
}

impl CollectedEndpoints<'_> {
    pub(super) fn leave(&mut self, cluster: &str, slice: &Arc<EndpointSlice>, why: NotCounted) {
        self.left.push(UncountedSlice { cluster: cluster.into(), slice: slice.clone(), why });
    }
}

/// Collects everything that belongs to the Service.
pub(super) fn collect<'a>(
    key: &ServiceKey,
    fleet: &'a KarmadaObjects,
    clusters: &Clusters<'a>,
) -> CollectedEndpoints<'a> {
    let mut sources = CollectedEndpoints::default();
    for (name, work) in fleet.works.get(key).into_iter().flatten() {
        if work.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match cluster_of_namespace(&name.0) {
            Some(cluster) => read_work(key, (name, work, cluster), clusters, &mut sources),
            None => sources.problems.extend(outside(name, work)),
        }
    }
    for slice in fleet.imported.get(key).into_iter().flat_map(BTreeMap::values) {
        if slice.metadata.deletion_timestamp.is_none() {
            read_imported(key, slice, clusters, &mut sources);
        }
    }
    let names = fleet.templates.get(key).into_iter().flat_map(|template| attributed_hostnames(template));
    for name in names.filter(|name| clusters.is_name(name) && clusters.judge(name).is_ok()) {
        sources.parts.entry(name.into()).or_default();
    }
    sources
}

/// Problems of a Work that was collected from an unknown place. Other Works in such a namespace do not concern member clusters.
fn outside(name: &ObjectKey, work: &Work) -> Vec<Problem> {
    let mut report = Report::about(work_ref(name));
    if work.is_collected() {
        let message = format!(
            "{:?} is not the namespace of a member cluster's Works, {EXECUTION_SPACE_PREFIX} and its name; the Work is not used",
            name.0
        );
        report.invalid("metadata.namespace", message);
    }
    report.into_problems()
}

/// Reports the name of a cluster that does not exist.
pub(super) fn unregistered(cluster: &str, field: String, report: &mut Report) {
    let message = format!("no member cluster is called {cluster:?}; nothing of it is used");
    report.add(reason::CLUSTER_NOT_FOUND, field, None, message);
}

fn read_work<'a>(
    key: &ServiceKey,
    (name, work, cluster): (&'a ObjectKey, &'a Work, &str),
    clusters: &Clusters<'_>,
    sources: &mut CollectedEndpoints<'a>,
) {
    let labels = work.metadata.labels.as_ref();
    let collected = labels.is_some_and(|labels| labels.contains_key(COLLECTED_LABEL));
    let counts = clusters.judge(cluster);
    let mut report = Report::about(work_ref(name));
    if counts == Err(NotCounted::Unregistered) {
        unregistered(cluster, "metadata.namespace".to_owned(), &mut report);
    }
    for (index, manifest) in work.manifests().iter().enumerate() {
        let field = format!("spec.workload.manifests[{index}]");
        match manifest {
            Manifest::EndpointSlice(slice) => {
                let verdict = match counts.clone() {
                    _ if is_copy(work, collected, slice) => Err(NotCounted::Dispatched),
                    Ok(()) if !collected => Err(NotCounted::NotCollected),
                    other => other,
                };
                match verdict {
                    Err(why) => sources.leave(cluster, slice, why),
                    Ok(()) if slice.metadata.deletion_timestamp.is_some() => {}
                    Ok(()) if !is_of(slice, key, &field, &mut report) => {}
                    Ok(()) => {
                        let origin = SliceOrigin::Within(work_ref(name), field);
                        let part = sources.parts.entry(cluster.into()).or_default();
                        part.slices.push(ListedSlice { slice: slice.clone(), origin });
                        sources.collected.insert(name);
                    }
                }
            }
            Manifest::Service(service) if counts.is_ok() && is_named(service, key) => {
                let part = sources.parts.entry(cluster.into()).or_default();
                part.services.push((name, work, service));
            }
            Manifest::Broken { kind, why } if counts.is_ok() => broken(kind, why, field, &mut report),
            Manifest::Other { kind } if counts.is_ok() && collected => {
                let message =
                    format!("{kind:?} is not an EndpointSlice, which the Work should carry; it is not used");
                report.add(reason::INVALID_MANIFEST, field, None, message);
            }
            Manifest::Service(_) | Manifest::Broken { .. } | Manifest::Other { .. } => {}
        }
    }
    if counts.is_ok() && collected && work.manifests().is_empty() {
        let message = "there is no EndpointSlice in it, which the Work should carry; nothing of it is used";
        report.add(reason::INVALID_MANIFEST, "spec.workload.manifests", None, message);
    }
    sources.problems.extend(report.into_problems());
}

fn broken(kind: &str, why: &str, field: String, report: &mut Report) {
    let kind = if kind.is_empty() { "the manifest" } else { kind };
    let message = format!("{kind} cannot be read: {why}; it is left out");
    report.add(reason::INVALID_MANIFEST, field, None, message);
}

/// Whether a slice was made for consumers. The dispatcher names its Works like those that it copies, so in a cluster that is both
/// provider and consumer the two may become one: its labels and annotations cover both, and only the manifest shows which one it
/// has.
fn is_copy(work: &Work, collected: bool, slice: &EndpointSlice) -> bool {
    if is_karmadas(slice) {
        return true;
    }
    let annotations = work.metadata.annotations.as_ref();
    let Some(provider) = annotations.and_then(|all| all.get(PROVISION_ANNOTATION)) else { return false };
    // The name of a copy begins with the provider's name. The name of an original may, too, but an original has a manager.
    let unmanaged = label(slice, MANAGED_BY_LABEL).is_none();
    let name = slice.metadata.name.as_deref().unwrap_or_default();
    let named = name.strip_prefix(provider.as_str()).is_some_and(|rest| rest.starts_with('-'));
    !collected || (unmanaged && named)
}

/// Whether Karmada itself made the slice from another one.
fn is_karmadas(slice: &EndpointSlice) -> bool {
    is_dispatched(slice) || label(slice, MANAGED_BY_LABEL) == Some(IMPORTER)
}

/// Whether the slice itself is marked as made for consumers.
pub(super) fn is_dispatched(slice: &EndpointSlice) -> bool {
    let annotations = slice.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(PROVISION_ANNOTATION))
        || label(slice, MANAGED_BY_LABEL) == Some(DISPATCHER)
}

pub(super) fn label<'a>(slice: &'a EndpointSlice, name: &str) -> Option<&'a str> {
    slice.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// Whether the slice belongs to the Service that its Work is for. Karmada does not derive names in member clusters.
fn is_of(slice: &EndpointSlice, key: &ServiceKey, field: &str, report: &mut Report) -> bool {
    let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
    let service = label(slice, SERVICE_NAME_LABEL).unwrap_or_default();
    let (field, value) = if namespace != &*key.namespace {
        (format!("{field}.metadata.namespace"), namespace)
    } else if service != &*key.name {
        (format!("{field}.metadata.labels[{SERVICE_NAME_LABEL}]"), service)
    } else {
        return true;
    };
    let message =
        format!("{value:?} is not of the Service {key}, which the Work is about; the slice is left out");
    report.invalid(field, message);
    false
}

fn is_named(service: &Service, key: &ServiceKey) -> bool {
    let metadata = &service.metadata;
    metadata.namespace.as_deref() == Some(&*key.namespace) && metadata.name.as_deref() == Some(&*key.name)
}

pub(super) fn work_ref(name: &ObjectKey) -> ObjectRef {
    ObjectRef { kind: "Work", namespace: name.0.clone(), name: name.1.clone() }
}

/// Hostnames of addresses in a template's status. Some may be names of clusters.
pub(super) fn attributed_hostnames(template: &Service) -> impl Iterator<Item = &str> {
    let status = template.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    let entries = ingress.iter().filter(|it| it.ip.as_deref().is_some_and(|ip| !ip.is_empty()));
    entries.filter_map(|it| it.hostname.as_deref())
}
