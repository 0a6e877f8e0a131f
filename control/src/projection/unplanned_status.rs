//! Addresses and ports in the status of an object that is not served, or no longer served.

use std::net::IpAddr;

use sheave_model::{FrontendAddr, FrontendSource};

use super::allocator::NodeFamilies;
use super::gateway_api::plan::is_ours;
use super::gateway_api::sets_of;
use super::options::{Options, Role};
use super::plan::Rank;
use super::published::{Published, asks, has_finalizer};
use super::status::{Ingress, LoadBalancerStatus, PortStatus};
use super::{multi_cluster, requests};
use crate::api::problem::reason;
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

impl UnplannedStatus {
    /// The status of an object that keeps these addresses, with the ports that it has published there, although it is not served.
    pub(super) fn reserving(&self, addresses: &[IpAddr]) -> LoadBalancerStatus {
        let port =
            |addr: FrontendAddr, error| PortStatus { port: addr.port, protocol: addr.protocol.name(), error };
        let ingress = addresses.iter().map(|&ip| {
            let own = self.published.ports().filter(|addr| addr.ip == ip).map(|addr| port(addr, None));
            let others = self.published.whole().get(&ip);
            let lost = others.into_iter().flatten().map(|addr| port(*addr, Some(reason::ADDRESS_IN_USE)));
            Ingress { ip, hostname: None, ports: own.chain(lost).collect(), whole: others.is_some() }
        });
        let service = self.rank.key.clone();
        LoadBalancerStatus { service, ingress: ingress.collect(), node_families: self.node_families }
    }
}

/// Addresses and ports of an object without a plan: everything that its status publishes. A gateway that has not received a
/// change yet may still serve it, and another process may decide about it. A single process publishes nothing.
pub(super) fn unplanned_status(
    key: &ServiceKey,
    objects: &Objects,
    options: &Options,
) -> Option<UnplannedStatus> {
    if options.role == Role::Standalone {
        return None;
    }
    let (metadata, status, is_ours, stays_published) = match key.source {
        FrontendSource::Service => {
            let service = objects.services.get(key)?;
            (&service.metadata, service.status.as_ref(), asks(service, options)?, false)
        }
        FrontendSource::MultiClusterService => {
            let service = objects.fleet.services.get(key)?;
            let template = multi_cluster::template(&objects.fleet, key);
            let is_ours = multi_cluster::whose(service, template, options).is_ok();
            let is_meant = service.spec.types.iter().any(|it| it == "LoadBalancer");
            let stays_published = is_ours && is_meant && template.is_none();
            (&service.metadata, service.status.as_ref(), is_ours, stays_published)
        }
        FrontendSource::Gateway => return of_gateway(key, objects),
    };
    if !is_ours && !has_finalizer(metadata, options) {
        return None;
    }
    Some(UnplannedStatus {
        rank: Rank::new(key, metadata),
        uid: metadata.uid.clone(),
        published: Published::read(key.source, status),
        node_families: requests::node_families(status),
        stays_published,
        unseen: metadata.deletion_timestamp.is_some()
            || multi_cluster::is_suspended(key, &objects.fleet, options),
    })
}

/// Load balancer addresses that an object of another load balancer publishes, even if we serve it on other kinds of frontends.
pub(super) fn foreign_addresses(key: &ServiceKey, objects: &Objects, options: &Options) -> Vec<IpAddr> {
    let is_ours = match key.source {
        FrontendSource::Service => objects.services.get(key).and_then(|service| asks(service, options)),
        FrontendSource::MultiClusterService => objects.fleet.services.get(key).map(|service| {
            multi_cluster::whose(service, multi_cluster::template(&objects.fleet, key), options).is_ok()
        }),
        FrontendSource::Gateway => {
            objects.gateway_api.gateways.get(key).map(|gateway| is_ours(gateway, objects, options))
        }
    };
    if is_ours != Some(false) || options.role == Role::Gateway {
        return Vec::new();
    }
    Published::of(key, objects).map(|(_, published)| published.addresses).unwrap_or_default()
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
