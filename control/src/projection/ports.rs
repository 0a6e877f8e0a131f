//! `spec.ports` of a Service as typed values. What serves behind a port is said by the slices, never by `targetPort`.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ServicePort;
use sheave_dataplane::model::{FrontendAddr, Protocol};

use crate::problem::{ProblemPort, reason};
use crate::report::Report;

/// A port that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedPort {
    /// Empty for an unnamed port.
    pub(super) name: Arc<str>,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// Where it stands in `spec.ports`.
    pub(super) index: usize,
}

impl PlannedPort {
    /// Its frontend on an address.
    pub(super) fn on(&self, ip: IpAddr) -> FrontendAddr {
        FrontendAddr { ip, port: self.port, protocol: self.protocol }
    }

    /// How Problems name it.
    pub(super) fn problem_port(&self) -> ProblemPort {
        ProblemPort { port: self.port, protocol: protocol_name(self.protocol) }
    }
}

/// The name that the API gives a protocol.
pub(super) fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    }
}

/// The port number, if it is one.
pub(super) fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// The ports that can be served; every other one is reported.
pub(super) fn plan(ports: &[ServicePort], report: &mut Report) -> Vec<PlannedPort> {
    let mut planned: Vec<PlannedPort> = Vec::with_capacity(ports.len());
    for (index, port) in ports.iter().enumerate() {
        if let Some(candidate) = plan_one(index, port, report)
            && !collides(&planned, &candidate, report)
        {
            planned.push(candidate);
        }
    }
    if ports.is_empty() {
        report.add(reason::NOT_SERVED, "spec.ports", None, "the Service has no ports; it is not served");
    }
    planned
}

fn plan_one(index: usize, port: &ServicePort, report: &mut Report) -> Option<PlannedPort> {
    let Some(number) = number(port.port) else {
        let message = format!("{} is not a port (1 to 65535); it is not served", port.port);
        report.invalid(format!("spec.ports[{index}].port"), message);
        return None;
    };
    let field = || format!("spec.ports[{index}].protocol");
    let protocol = match port.protocol.as_deref().unwrap_or_default() {
        "" | "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => {
            let named = ProblemPort { port: number, protocol: "SCTP" };
            let message = "SCTP cannot be forwarded; the port is not served";
            report.add(reason::PROTOCOL_NOT_SUPPORTED, field(), Some(named), message);
            return None;
        }
        other => {
            let message = format!("{other:?} is not TCP or UDP; port {number} is not served");
            report.invalid(field(), message);
            return None;
        }
    };
    Some(PlannedPort { name: port.name.as_deref().unwrap_or_default().into(), port: number, protocol, index })
}

/// The API server refuses both collisions; manifests may hold them. Of two equal names the slices could not be told
/// apart, and affinity would be shared.
fn collides(planned: &[PlannedPort], candidate: &PlannedPort, report: &mut Report) -> bool {
    let same_protocol = || planned.iter().filter(|other| other.protocol == candidate.protocol);
    let (field, message) = if let Some(first) = same_protocol().find(|other| other.port == candidate.port) {
        let message =
            format!("the port is already defined by spec.ports[{}]; this one is not served", first.index);
        ("port", message)
    } else if let Some(first) = same_protocol().find(|other| other.name == candidate.name) {
        let message = format!(
            "{:?} is already the name of spec.ports[{}]; this port is not served",
            candidate.name, first.index
        );
        ("name", message)
    } else {
        return false;
    };
    let port = Some(candidate.problem_port());
    report.add(reason::INVALID_VALUE, format!("spec.ports[{}].{field}", candidate.index), port, message);
    true
}
