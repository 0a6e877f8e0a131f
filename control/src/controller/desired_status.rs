//! What the controller wants to be true of one Service or MultiClusterService in its API.

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
use crate::projection::{FleetStatus, Ingress, NodeFamilies};

/// The desired state of one Service in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// It is ours: finalizer, ingress and conditions. While it is being deleted this means the same as `Released`.
    Published(DesiredStatus),
    /// It is not ours, or not any longer: nothing of ours is left on it.
    Released,
}

/// The desired status of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredStatus {
    /// One entry per address, each with every port of the Service.
    pub ingress: Vec<Ingress>,
    /// What is wrong with this Service.
    pub problems: Vec<Problem>,
    /// How many gateways count as serving it.
    pub gateways: usize,
    /// There are none because those that are ready do not answer the controller.
    pub silent: bool,
    /// What is wrong with frontends, for clients who may come to any gateway.
    pub faults: Vec<(FrontendAddr, Fault)>,
    /// Ports on which gateways could not listen.
    pub failed_ports: Vec<PortFailure>,
    /// The clusters behind it, of a MultiClusterService.
    pub fleet: Option<Box<FleetStatus>>,
    /// Why the endpoints behind a MultiClusterService may be out of date, if they may.
    pub outdated: Option<Outdated>,
    /// The families in which it has addresses of gateway nodes; `None` = no condition about it.
    pub node_families: Option<NodeFamilies>,
    /// Which gateways announce its addresses.
    pub announcement: Announcement,
}

/// Which gateways announce the addresses of a Service, as far as is known. Gateways are known by their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub enum Announcement {
    /// It has no address that gateways would announce, or they announce none: no condition about it.
    #[default]
    NotNeeded,
    /// The reports do not show it yet: what its condition says stays.
    Unknown,
    /// Each address by one gateway, or by all that can serve it.
    ByOne(BTreeMap<IpAddr, String>),
    /// These by none.
    ByNone(BTreeSet<IpAddr>),
    /// These by several at the same time.
    BySeveral(BTreeMap<IpAddr, BTreeSet<String>>),
}

impl Announcement {
    /// The condition among these that an apply has to repeat so that it stays.
    pub(super) fn kept<'c>(&self, conditions: &'c [Condition]) -> Option<&'c Condition> {
        conditions.iter().find(|condition| *self == Self::Unknown && condition.type_ == ANNOUNCED)
    }

    /// Whether these have a condition that no longer applies: an apply takes away only what we applied, and only where
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
                ip_mode: Some("Proxy".into()),
                // What others wrote there is kept, unless Karmada would refuse the object for it.
                hostname: entry.hostname.clone().filter(|name| net::is_host_name(name)),
                // API servers do not store an empty list, so it would always differ.
                ports: (!ports.is_empty()).then_some(ports),
            }
        });
        entries.collect()
    }
}
