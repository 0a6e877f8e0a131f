//! Addresses and ports in the status of an object that is not served, or no longer served.

use sheave_model::FrontendSource;

use super::allocator::NodeFamilies;
use super::gateway_api::sets_of;
use super::options::{Options, Role};
use super::plan::Rank;
use super::published::{Published, asks, has_finalizer};
use super::{multi_cluster, requests};
use crate::api::store::{Objects, ServiceKey};

/// Addresses and ports that an object which is not served keeps until its status is cleared.
#[derive(Debug)]
pub(super) struct UnplannedStatus {
    pub(super) rank: Rank,
    pub(super) uid: Option<String>,
    pub(super) published: Published,
    pub(super) node_families: NodeFamilies,
    /// Whether the status is not cleared either: replacing the Service of a MultiClusterService removes it for a moment.
    pub(super) stays_published: bool,
    /// Whether allocated addresses may be written but not visible yet.
    pub(super) unseen: bool,
}

/// Addresses and ports of an object without a plan: everything that its status publishes. A gateway that has not received a
/// change yet may still serve it, and another process may decide about it. Only a controller allocates addresses, so only a
/// controller keeps them.
pub(super) fn unplanned_status(
    key: &ServiceKey,
    objects: &Objects,
    options: &Options,
) -> Option<UnplannedStatus> {
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
        FrontendSource::Gateway => return of_gateway(key, objects),
    };
    if !is_ours && !has_finalizer(metadata, options) {
        return None;
    }
    let of_fleet = key.source == FrontendSource::MultiClusterService;
    Some(UnplannedStatus {
        rank: Rank::new(key, metadata),
        uid: metadata.uid.clone(),
        published: Published::read(status),
        node_families: requests::node_families(status),
        stays_published: of_fleet && is_ours && multi_cluster::template(&objects.fleet, key).is_none(),
        unseen: metadata.deletion_timestamp.is_some()
            || multi_cluster::is_suspended(key, &objects.fleet, options),
    })
}

/// Claims of a Gateway that is being deleted or has changed to a class of another controller, until our part of its status is removed.
fn of_gateway(key: &ServiceKey, objects: &Objects) -> Option<UnplannedStatus> {
    let gateway = objects.gateway_api.gateways.get(key)?;
    if !gateway.is_marked() {
        return None;
    }
    Some(UnplannedStatus {
        rank: Rank::new(key, &gateway.metadata),
        uid: gateway.metadata.uid.clone(),
        published: Published::of_gateway(gateway, sets_of(key, &objects.gateway_api)),
        node_families: requests::node_families_of(&gateway.status.as_ref()?.conditions),
        stays_published: false,
        unseen: false,
    })
}
