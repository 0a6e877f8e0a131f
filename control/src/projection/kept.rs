//! What an object keeps that is not served, or not any longer: the addresses and ports that its status publishes.

use sheave_model::FrontendSource;

use super::allocator::NodeFamilies;
use super::options::{Options, Role};
use super::plan::Rank;
use super::published::{Published, asks, has_finalizer};
use super::{multi_cluster, requests};
use crate::api::store::{Objects, ServiceKey};

/// What an object that is not served, or not any longer, keeps until its status is cleared.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) rank: Rank,
    pub(super) published: Published,
    pub(super) node_families: NodeFamilies,
    /// It is not cleared either: who replaces the Service of a MultiClusterService takes it away for a moment.
    pub(super) stays_published: bool,
    /// What it was given may be written, and not seen yet.
    pub(super) unseen: bool,
}

/// What this object keeps, of which there is no plan: all that its status publishes. A gateway that has not heard of a change may
/// serve it as long, and another process may decide about it. Only a controller gives addresses, and so only it keeps them.
pub(super) fn kept(key: &ServiceKey, objects: &Objects, options: &Options) -> Option<Kept> {
    if !matches!(options.role, Role::Controller { .. }) {
        return None;
    }
    let (metadata, status, is_ours) = match key.source {
        FrontendSource::Service => {
            let service = objects.services.get(key)?;
            (&service.metadata, service.status.as_ref(), asks(service, options)?)
        }
        FrontendSource::MultiClusterService => {
            let service = objects.fleet.services.get(key)?;
            let template = multi_cluster::template(&objects.fleet, key);
            let is_ours = multi_cluster::whose(service, template, options).is_ok();
            (&service.metadata, service.status.as_ref(), is_ours)
        }
    };
    if !is_ours && !has_finalizer(metadata, options) {
        return None;
    }
    let of_fleet = key.source == FrontendSource::MultiClusterService;
    Some(Kept {
        rank: Rank::new(key, metadata),
        published: Published::read(status),
        node_families: requests::node_families(status),
        stays_published: of_fleet && is_ours && multi_cluster::template(&objects.fleet, key).is_none(),
        unseen: metadata.deletion_timestamp.is_some()
            || multi_cluster::is_suspended(key, &objects.fleet, options),
    })
}
