//! Ordinary Services whose slices say which cluster they are from: the MCS API of sig-multicluster, for those who have no
//! Karmada. Slices without the label are of the gateway's own cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{Path, Weight};

use super::super::Options;
use super::super::annotations::DRAIN;
use super::super::members::{Listed, Member, Origin};
use super::super::topology::Scope;
use super::tiers::{self, Region, Tiers};
use super::{Found, clusters, sources};
use crate::api::problem::report::Report;
use crate::api::store::SOURCE_CLUSTER_LABEL;

/// `None` if no slice says where it is from.
pub(super) fn members<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    options: &Options,
    report: &mut Report,
) -> Option<Found> {
    let mut any = false;
    let mut by_cluster: BTreeMap<Arc<str>, Vec<Listed>> = BTreeMap::new();
    for slice in slices {
        let source = sources::label(slice, SOURCE_CLUSTER_LABEL).filter(|name| !name.is_empty());
        any |= source.is_some();
        let cluster = source.unwrap_or(&options.cluster).into();
        by_cluster.entry(cluster).or_default().push(Listed { slice: slice.clone(), origin: Origin::Object });
    }
    if !any {
        return None;
    }
    let names: BTreeSet<Arc<str>> = by_cluster.keys().cloned().collect();
    let region = Region { own: &options.cluster, clusters: &BTreeMap::new() };
    let tiers = Tiers::read(service, &names, &region, report);
    let drained = tiers::list(service, DRAIN, report);
    clusters::check_names(DRAIN, drained.iter().map(String::as_str), &names, report);
    let member = |(cluster, slices): (Arc<str>, Vec<Listed>)| {
        let own = *cluster == *options.cluster;
        let scope = match (drained.iter().any(|name| **name == *cluster), own) {
            (true, _) => Scope::Closed,
            (false, true) => Scope::Own,
            (false, false) => Scope::Other,
        };
        Member {
            path: options.fleet.paths.get(&cluster).copied().unwrap_or(Path::DEFAULT),
            weight: Weight(tiers.weight(&cluster)),
            priority: tiers.priority(&cluster),
            scope,
            own,
            slices,
            cluster,
        }
    };
    Some(Found {
        members: by_cluster.into_iter().map(member).collect(),
        standing: Vec::new(),
        spread: tiers.spread(),
        left: Vec::new(),
        nothing_collected: false,
        problems: Vec::new(),
    })
}
