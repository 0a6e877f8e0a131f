//! Desired state of one Service or MultiClusterService in its API.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::LoadBalancerIngress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sheave_model::FrontendAddr;

use super::port_errors::{PortFailure, port_statuses};
use super::service_exports::Outdated;
use super::service_object::ServiceObject;
use crate::api::names::ANNOUNCED;
use crate::api::problem::Problem;
use crate::net;
use crate::projection::service_health::Fault;
use crate::projection::{IP_MODE, Ingress, MultiClusterStatus, NodeFamilies};

/// The desired state of one Service in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// The Service is managed by this installation: finalizer, ingress and conditions. If it is being deleted, this means the
    /// same as `Released`.
    Published(DesiredStatus),
    /// The Service is not managed by this installation, or no longer: all marks are removed from it.
    Released,
}

/// The desired status of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredStatus {
    /// One entry for each address, each with every port of the Service.
    pub ingress: Vec<Ingress>,
    /// Problems of this Service.
    pub problems: Vec<Problem>,
    /// Number of gateways that count as serving it.
    pub gateways: usize,
    /// Whether that number is zero because the ready gateways do not answer the controller.
    pub silent: bool,
    /// Faults of frontends, for clients that may reach any gateway.
    pub faults: Vec<(FrontendAddr, Fault)>,
    /// Ports on which gateways could not listen.
    pub failed_ports: Vec<PortFailure>,
    /// Member clusters of a MultiClusterService.
    pub fleet: Option<Box<MultiClusterStatus>>,
    /// Why the endpoints of a MultiClusterService may be out of date, if they may.
    pub outdated: Option<Outdated>,
    /// Families in which its addresses are those of gateway nodes; `None` for no condition about it.
    pub node_families: Option<NodeFamilies>,
    /// The gateways that announce its addresses.
    pub announcement: Announcement,
}

/// The gateways that announce the addresses of a Service, as far as known. Gateways are identified by their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub enum Announcement {
    /// No condition: no address of it needs an announcement, or gateways announce none.
    #[default]
    NotNeeded,
    /// The reports do not show it yet: an existing condition stays.
    Unknown,
    /// Each address is announced by one gateway, or by all that can serve it.
    ByOne(BTreeMap<IpAddr, String>),
    /// No gateway announces these addresses.
    ByNone(BTreeSet<IpAddr>),
    /// Several gateways announce these addresses at the same time.
    BySeveral(BTreeMap<IpAddr, BTreeSet<String>>),
}

impl Announcement {
    /// The existing condition that an apply has to repeat so that it stays.
    pub(super) fn kept<'c>(&self, conditions: &'c [Condition]) -> Option<&'c Condition> {
        conditions.iter().find(|condition| *self == Self::Unknown && condition.type_ == ANNOUNCED)
    }

    /// Whether `conditions` contain one that no longer applies. An apply removes only what we applied, and is sent only if
    /// something else differs, too.
    pub(super) fn is_outlived_in(&self, conditions: &[Condition]) -> bool {
        *self == Self::NotNeeded && conditions.iter().any(|condition| condition.type_ == ANNOUNCED)
    }
}

impl DesiredStatus {
    /// The desired `status.loadBalancer.ingress` of the object.
    pub(super) fn ingress_of(&self, object: &ServiceObject) -> Vec<LoadBalancerIngress> {
        let entries = self.ingress.iter().map(|entry| {
            let ports = port_statuses(object, entry, &self.failed_ports);
            LoadBalancerIngress {
                ip: Some(entry.ip.to_string()),
                ip_mode: Some(IP_MODE.into()),
                // Keep a hostname that others wrote, unless Karmada would reject the object for it.
                hostname: entry.hostname.clone().filter(|name| net::is_host_name(name)),
                // API servers do not store an empty list, so it would always differ.
                ports: (!ports.is_empty()).then_some(ports),
            }
        });
        entries.collect()
    }
}
