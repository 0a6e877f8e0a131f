//! Slices that Karmada imported from member clusters: which cluster one is from, and whether it is a copy of one that a Work
//! has. Nothing on them says the cluster in so many words.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::super::endpoints;
use super::super::members::{Listed, Origin};
use super::clusters::Clusters;
use super::sources::{self, NotCounted, Part, Sources};
use crate::api::karmada::cluster_of_namespace;
use crate::api::problem::reason;
use crate::api::problem::report::Report;
use crate::api::store::{SOURCE_CLUSTER_LABEL, ServiceKey};

/// On a slice: the Work that it was imported from. Versions before v1.11 do not set it.
const WORK_NAMESPACE: &str = "work.karmada.io/namespace";
const WORK_NAME: &str = "work.karmada.io/name";
/// On a Work, and on what comes of it.
const PERMANENT_ID: &str = "work.karmada.io/permanent-id";
/// Before the cluster's name, a dash and the slice's own name (karmada pkg/util/names).
const NAME_PREFIX: &str = "imported-";

/// Takes a slice in.
pub(super) fn read<'a>(
    key: &ServiceKey,
    slice: &Arc<EndpointSlice>,
    clusters: &Clusters<'a>,
    sources: &mut Sources<'a>,
) {
    let Some(cluster) = cluster(key, slice, clusters) else {
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
        _ if sources::is_dispatched(slice) => Err(NotCounted::Dispatched),
        Ok(()) if is_copy(slice, cluster, sources) => Err(NotCounted::Imported),
        other => other,
    };
    if verdict == Err(NotCounted::Unregistered) {
        let mut report = Report::about(endpoints::slice_ref(slice));
        sources::unregistered(cluster, cluster_field(slice), &mut report);
        sources.problems.extend(report.into_problems());
    }
    match verdict {
        Err(why) => sources.leave(cluster, slice, why),
        Ok(()) => {
            let part: &mut Part<'_> = sources.parts.entry(cluster.into()).or_default();
            part.slices.push(Listed { slice: slice.clone(), origin: Origin::Copy });
        }
    }
}

fn cluster<'s>(key: &ServiceKey, slice: &'s EndpointSlice, clusters: &Clusters<'s>) -> Option<&'s str> {
    let from_name = || {
        let rest = slice.metadata.name.as_deref()?.strip_prefix(NAME_PREFIX)?;
        clusters.longest_prefix(rest)
    };
    let from_work = || {
        let id = sources::label(slice, PERMANENT_ID)?;
        let works = clusters.fleet.works.get(key)?;
        let has = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get(PERMANENT_ID).is_some_and(|it| it == id)
        };
        let (name, _) = works.iter().find(|(_, work)| work.metadata.labels.as_ref().is_some_and(has))?;
        cluster_of_namespace(&name.0)
    };
    let named = sources::label(slice, SOURCE_CLUSTER_LABEL).filter(|name| !name.is_empty());
    let annotated = || annotation(slice, WORK_NAMESPACE).and_then(cluster_of_namespace);
    named.or_else(annotated).or_else(from_name).or_else(from_work)
}

/// What says which cluster it is from.
fn cluster_field(slice: &EndpointSlice) -> String {
    if sources::label(slice, SOURCE_CLUSTER_LABEL).is_some_and(|name| !name.is_empty()) {
        return format!("metadata.labels[{SOURCE_CLUSTER_LABEL}]");
    }
    match annotation(slice, WORK_NAMESPACE) {
        Some(_) => format!("metadata.annotations[{WORK_NAMESPACE}]"),
        None => "metadata.name".to_owned(),
    }
}

/// Whether a Work that counts has the slice itself.
fn is_copy(slice: &EndpointSlice, cluster: &str, sources: &Sources<'_>) -> bool {
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
        slices.any(|it| !matches!(it.origin, Origin::Copy) && it.slice.metadata.name.as_deref() == Some(own))
    })
}

fn annotation<'a>(slice: &'a EndpointSlice, name: &str) -> Option<&'a str> {
    slice.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}
