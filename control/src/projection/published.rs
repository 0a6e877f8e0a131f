//! Addresses and ports in the status of an object, whatever it requests now. No other Service gets them until the write that
//! removes them from the status has been observed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus, Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize as _;
use serde_json::Value;
use sheave_model::{FrontendAddr, FrontendSource, Protocol};

use super::gateway_api::conditions::PROGRAMMED;
use super::gateway_api::sets_of;
use super::options::{Options, Role};
use super::status::port_error;
use super::{class, ports};
use crate::api::gateway_api::{Gateway, GatewayStatus, Listener, ListenerSet, ListenerStatus, transport};
use crate::api::names::{self, PORTS_PUBLISHED};
use crate::api::problem::reason;
use crate::api::published_ports;
use crate::api::store::{Objects, ServiceKey};
use crate::net;

/// Addresses at which every port belongs to an object, each with those that do not.
pub(super) type WholeAddresses = BTreeMap<IpAddr, BTreeSet<FrontendAddr>>;

/// Addresses and ports in a status, or in a write of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    pub(crate) addresses: Vec<IpAddr>,
    /// Addresses without a list of ports: every port counts as listed, except those with the error that another Service has them.
    whole: WholeAddresses,
    /// Ports that are listed without the error that another Service has them.
    ports: BTreeSet<FrontendAddr>,
    /// Whether any port is listed with that error.
    pub(super) lost_some: bool,
}

impl Published {
    /// Reads the status of a Service or MultiClusterService; invalid addresses are left out. The definition of a
    /// MultiClusterService has no place for ports without an error, so a condition lists those that it has. A status from before
    /// there was such a condition publishes whole addresses.
    pub(crate) fn read(source: FrontendSource, status: Option<&ServiceStatus>) -> Self {
        let mut published = Self::default();
        let Some(status) = status else { return published };
        let ingress = status.load_balancer.as_ref().and_then(|status| status.ingress.as_deref());
        for ingress in ingress.unwrap_or_default() {
            published.add(source, ingress);
        }
        let mut conditions = status.conditions.iter().flatten();
        if source == FrontendSource::MultiClusterService
            && let Some(condition) = conditions.find(|condition| condition.type_ == PORTS_PUBLISHED)
        {
            published.whole.clear();
            published.ports = listed_at(&published.addresses, condition);
        }
        published
    }

    /// Claims of an object of the API server, with its metadata; `None` if there is no such object.
    pub(crate) fn of<'a>(key: &ServiceKey, objects: &'a Objects) -> Option<(&'a ObjectMeta, Self)> {
        Some(match key.source {
            FrontendSource::Service => {
                let service = objects.services.get(key)?;
                (&service.metadata, Self::read(key.source, service.status.as_ref()))
            }
            FrontendSource::MultiClusterService => {
                let service = objects.fleet.services.get(key)?;
                (&service.metadata, Self::read(key.source, service.status.as_ref()))
            }
            FrontendSource::Gateway => {
                let gateway = objects.gateway_api.gateways.get(key)?;
                (&gateway.metadata, Self::of_gateway(gateway, sets_of(key, &objects.gateway_api)))
            }
        })
    }

    /// Claims of a write of a status. Our writes of Gateways and MultiClusterServices list the ports.
    pub(crate) fn written(source: FrontendSource, status: &Value) -> Self {
        match source {
            FrontendSource::Service | FrontendSource::MultiClusterService => {
                Self::read(source, ServiceStatus::deserialize(status).ok().as_ref())
            }
            FrontendSource::Gateway => {
                let status = GatewayStatus::deserialize(status).ok();
                Self::of_gateway(&Gateway { status, ..Gateway::default() }, [])
            }
        }
    }

    /// The part that `seen` does not have.
    pub(crate) fn beyond(mut self, seen: &Self) -> Self {
        self.ports.retain(|addr| !seen.has(*addr));
        self.whole.retain(|ip, others| {
            let Some(others_before) = seen.whole.get(ip) else { return true };
            let gained = others_before.difference(others).filter(|addr| !seen.has(**addr));
            self.ports.extend(gained);
            false
        });
        self.addresses.retain(|ip| {
            let has_port = || self.ports.iter().any(|addr| addr.ip == *ip);
            !seen.addresses.contains(ip) || self.whole.contains_key(ip) || has_port()
        });
        self
    }

    /// Adds what another write publishes.
    pub(crate) fn add_all(&mut self, other: Self) {
        for ip in other.addresses {
            if !self.addresses.contains(&ip) {
                self.addresses.push(ip);
            }
        }
        self.ports.extend(other.ports);
        add_whole(&mut self.whole, &other.whole);
    }

    /// Whether it publishes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Claims of a Gateway's status: its addresses, and the ports that its condition lists there. A status without that
    /// condition publishes the listeners that are programmed, its own and those of the ListenerSets that name it.
    pub(super) fn of_gateway<'a>(
        gateway: &Gateway,
        sets: impl IntoIterator<Item = &'a Arc<ListenerSet>>,
    ) -> Self {
        let listed = gateway.status.iter().flat_map(|status| &status.addresses);
        let mut addresses = Vec::new();
        for ip in listed.filter_map(|it| net::parse_ip(it.value.as_deref()?).ok()) {
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        let ports = match gateway.condition(PORTS_PUBLISHED) {
            Some(condition) => listed_at(&addresses, condition),
            None => {
                let mut ports = BTreeSet::new();
                let status = gateway.status.as_ref().map(|status| status.listeners.as_slice());
                programmed(&gateway.metadata, &gateway.spec.listeners, status, &mut ports);
                for set in sets {
                    let status = set.status.as_ref().map(|status| status.listeners.as_slice());
                    programmed(&set.metadata, &set.spec.listeners, status, &mut ports);
                }
                let at = |ip: &IpAddr| {
                    let ip = *ip;
                    ports.iter().map(move |(port, protocol)| FrontendAddr {
                        ip,
                        port: *port,
                        protocol: *protocol,
                    })
                };
                addresses.iter().flat_map(at).collect()
            }
        };
        Self { addresses, ports, ..Self::default() }
    }

    fn add(&mut self, source: FrontendSource, ingress: &LoadBalancerIngress) {
        let Some(ip) = ingress.ip.as_deref().and_then(|text| net::parse_ip(text).ok()) else { return };
        if !self.addresses.contains(&ip) {
            self.addresses.push(ip);
        }
        let in_use = port_error(reason::ADDRESS_IN_USE);
        let addr_of = |port: &PortStatus| {
            let (port, protocol) = (u16::try_from(port.port).ok()?, Protocol::named(&port.protocol)?);
            Some(FrontendAddr { ip, port, protocol })
        };
        let ports = ingress.ports.as_deref().unwrap_or_default();
        let (lost, listed): (Vec<&PortStatus>, Vec<&PortStatus>) =
            ports.iter().partition(|port| port.error.as_deref() == Some(&in_use));
        self.lost_some |= !lost.is_empty();
        // A MultiClusterService lists only ports with an error.
        if ports.is_empty() || source == FrontendSource::MultiClusterService {
            let lost = lost.into_iter().filter_map(addr_of).collect();
            add_whole(&mut self.whole, &[(ip, lost)].into());
        } else {
            self.ports.extend(listed.into_iter().filter_map(addr_of));
        }
    }

    /// Whether the address is published with this port.
    pub(crate) fn has(&self, addr: FrontendAddr) -> bool {
        self.ports.contains(&addr) || self.whole.get(&addr.ip).is_some_and(|others| !others.contains(&addr))
    }

    /// Ports that are listed.
    pub(super) fn ports(&self) -> impl Iterator<Item = FrontendAddr> {
        self.ports.iter().copied()
    }

    /// Addresses without a list of ports.
    pub(super) fn whole(&self) -> &WholeAddresses {
        &self.whole
    }
}

/// Ports in the condition that lists them, at those of the addresses that the status has.
fn listed_at(addresses: &[IpAddr], condition: &Condition) -> BTreeSet<FrontendAddr> {
    let listed = published_ports::read(&condition.message).into_iter();
    listed.filter(|addr| addresses.contains(&addr.ip)).collect()
}

/// Adds addresses without a list of ports: a port belongs to others only if it does so according to both.
pub(super) fn add_whole(all: &mut WholeAddresses, more: &WholeAddresses) {
    for (ip, others) in more {
        match all.get_mut(ip) {
            Some(known) => known.retain(|addr| others.contains(addr)),
            None => {
                all.insert(*ip, others.clone());
            }
        }
    }
}

/// Adds the ports of the listeners that a status calls programmed. One about another generation may have meant another port.
fn programmed(
    metadata: &ObjectMeta,
    listeners: &[Listener],
    status: Option<&[ListenerStatus]>,
    ports: &mut BTreeSet<(u16, Protocol)>,
) {
    let is_programmed = |name: &str| {
        let mut named = status.unwrap_or_default().iter().filter(|listener| listener.name == name);
        named.any(|listener| listener.holds_for(PROGRAMMED, metadata.generation))
    };
    let programmed = listeners.iter().filter(|listener| is_programmed(&listener.name));
    ports.extend(programmed.filter_map(|it| Some((ports::number(it.port)?, transport(&it.protocol)))));
}

/// Whether a Service is for this installation; `None` if its type is not LoadBalancer, because then its status is empty.
pub(super) fn asks(service: &Service, options: &Options) -> Option<bool> {
    let spec = service.spec.as_ref()?;
    let type_ = spec.type_.as_deref().filter(|type_| *type_ == "LoadBalancer")?;
    Some(class::asks(spec, type_, options))
}

/// Whether a Service that is no longer ours but still served here on other kinds of frontends keeps the addresses in its status.
pub(super) fn keeps(service: &Service, options: &Options) -> bool {
    matches!(options.role, Role::Controller { .. })
        && asks(service, options).is_some()
        && has_finalizer(&service.metadata, options)
}

/// Whether the object has the finalizer of this installation.
pub(super) fn has_finalizer(metadata: &ObjectMeta, options: &Options) -> bool {
    let finalizer = names::finalizer(&options.load_balancer_class);
    metadata.finalizers.iter().flatten().any(|held| *held == finalizer)
}
