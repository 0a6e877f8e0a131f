//! Which ports of a Service have an error, and how `status.loadBalancer.ingress[].ports` reports it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::PortStatus as ApiPortStatus;

use super::service_object::ServiceObject;
use crate::projection::{Ingress, PortStatus, port_error};

/// A port that a gateway could not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortFailure {
    /// One of the Service's addresses.
    pub ip: IpAddr,
    /// As in the Service.
    pub port: u16,
    /// As in the Service.
    pub protocol: &'static str,
    /// One of [`crate::api::problem::reason`].
    pub reason: &'static str,
}

/// The ports of an address in `status`. The definition of a MultiClusterService requires an error for each: ports that are served are
/// left out.
pub(super) fn port_statuses(
    object: &ServiceObject,
    entry: &Ingress,
    failed: &[PortFailure],
) -> Vec<ApiPortStatus> {
    let with_all = matches!(object, ServiceObject::Service(_));
    let ports = entry.ports.iter().map(|status| ApiPortStatus {
        port: status.port.into(),
        protocol: status.protocol.into(),
        error: reason_not_served(status, entry.ip, failed).map(port_error),
    });
    ports.filter(|status| with_all || status.error.is_some()).collect()
}

/// Why the port is not served on this address: what the projection knows comes before what gateways report.
pub(super) fn reason_not_served(
    status: &PortStatus,
    ip: IpAddr,
    failed: &[PortFailure],
) -> Option<&'static str> {
    let reported = failed
        .iter()
        .filter(|failure| {
            failure.ip == ip && failure.port == status.port && failure.protocol == status.protocol
        })
        .map(|failure| failure.reason);
    // Gateways may fail for different reasons, in any order: the text must not depend on who reported first.
    status.error.or_else(|| reported.min())
}
