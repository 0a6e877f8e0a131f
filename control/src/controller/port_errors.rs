//! Errors of a Service's ports, and their form in `status.loadBalancer.ingress[].ports`.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::PortStatus as ApiPortStatus;
use sheave_model::{FrontendAddr, Protocol};

use super::service_object::ServiceObject;
use crate::projection::{Ingress, PortStatus, port_error};

/// A port that a gateway could not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortFailure {
    /// One of the Service's addresses.
    pub ip: IpAddr,
    /// Port, as in the Service.
    pub port: u16,
    /// Protocol, as in the Service.
    pub protocol: &'static str,
    /// One of [`crate::api::problem::reason`].
    pub reason: &'static str,
    /// Whether no gateway that is ready could open it.
    pub everywhere: bool,
}

impl PortFailure {
    /// The frontend.
    pub(super) fn addr(&self) -> Option<FrontendAddr> {
        let protocol = Protocol::named(self.protocol)?;
        Some(FrontendAddr { ip: self.ip, port: self.port, protocol })
    }
}

/// The `ports` of an address in the status. A MultiClusterService's definition requires an error for each entry, so for these
/// only failed ports are listed.
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

/// Why the port is not served on this address. An error from the projection takes precedence over reports of gateways.
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
    // Gateways can fail for different reasons and report in any order; the text must not depend on the order.
    status.error.or_else(|| reported.min())
}
