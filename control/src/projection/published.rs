//! What the status of an object publishes, whatever the object asks for by now: nobody else is given these addresses and ports until
//! the write that takes them out of the status has been seen.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus, Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sheave_model::{FrontendAddr, FrontendSource, Protocol};

use super::allocator::NodeFamilies;
use super::options::{Options, Role};
use super::plan::Rank;
use super::status::port_error;
use super::{class, multi_cluster, requests};
use crate::api::names;
use crate::api::problem::reason;
use crate::api::store::{Objects, ServiceKey};
use crate::net;

/// The addresses and ports in a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) addresses: Vec<IpAddr>,
    /// Those that list no ports: every port of the Service counts as listed.
    whole: BTreeSet<IpAddr>,
    /// Ports that are listed without an error that another Service has them.
    ports: BTreeSet<FrontendAddr>,
    /// Whether a port is listed with that error.
    pub(super) lost_some: bool,
}

impl Published {
    /// Reads a status; what is no address is left out.
    pub(super) fn read(status: Option<&ServiceStatus>) -> Self {
        let mut published = Self::default();
        let status = status.and_then(|status| status.load_balancer.as_ref());
        for ingress in status.and_then(|status| status.ingress.as_deref()).unwrap_or_default() {
            published.add(ingress);
        }
        published
    }

    fn add(&mut self, ingress: &LoadBalancerIngress) {
        let Some(ip) = ingress.ip.as_deref().and_then(|text| net::parse_ip(text).ok()) else { return };
        if !self.addresses.contains(&ip) {
            self.addresses.push(ip);
        }
        let in_use = port_error(reason::ADDRESS_IN_USE);
        let Some(ports) = ingress.ports.as_deref().filter(|ports| !ports.is_empty()) else {
            self.whole.insert(ip);
            return;
        };
        let (lost, listed): (Vec<&PortStatus>, Vec<&PortStatus>) =
            ports.iter().partition(|port| port.error.as_deref() == Some(&in_use));
        self.lost_some |= !lost.is_empty();
        self.ports.extend(listed.into_iter().filter_map(|port| {
            let protocol =
                [Protocol::Tcp, Protocol::Udp].into_iter().find(|it| it.name() == port.protocol)?;
            Some(FrontendAddr { ip, port: u16::try_from(port.port).ok()?, protocol })
        }));
    }

    /// Whether the address is published with this port.
    pub(super) fn has(&self, addr: FrontendAddr) -> bool {
        self.whole.contains(&addr.ip) || self.ports.contains(&addr)
    }

    /// The ports that are listed.
    pub(super) fn ports(&self) -> impl Iterator<Item = FrontendAddr> {
        self.ports.iter().copied()
    }
}

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

/// Whether a Service of type LoadBalancer asks for this installation; none of another type has anything in its status.
fn asks(service: &Service, options: &Options) -> Option<bool> {
    let spec = service.spec.as_ref()?;
    let type_ = spec.type_.as_deref().filter(|type_| *type_ == "LoadBalancer")?;
    Some(class::asks(spec, type_, options))
}

/// Whether a Service that is not ours any longer, but served here as something else, keeps what its status publishes.
pub(super) fn keeps(service: &Service, options: &Options) -> bool {
    matches!(options.role, Role::Controller { .. })
        && asks(service, options).is_some()
        && has_finalizer(&service.metadata, options)
}

fn has_finalizer(metadata: &ObjectMeta, options: &Options) -> bool {
    let finalizer = names::finalizer(&options.load_balancer_class);
    metadata.finalizers.iter().flatten().any(|held| *held == finalizer)
}
