//! `spec.ports` of a Service as typed values. The target numbers come from the slices, never from `targetPort`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ServicePort;
use sheave_model::Protocol;

use crate::api::problem::report::Report;
use crate::api::problem::{ProblemPort, reason};

/// A port that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedPort {
    /// Name; empty for an unnamed port.
    pub(super) name: Arc<str>,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// Node port; `None` if there is none or it is invalid.
    pub(super) node_port: Option<u16>,
    pub(super) app_protocol: Option<Arc<str>>,
    /// Index in `spec.ports`.
    pub(super) index: usize,
}

/// A port of the Service, whether it can be served or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListedPort {
    pub(super) port: ProblemPort,
    /// Reason why it cannot be served.
    pub(super) refused: Option<&'static str>,
}

impl PlannedPort {
    /// The port as Problems name it.
    pub(super) fn problem_port(&self) -> ProblemPort {
        ProblemPort { port: self.port, protocol: self.protocol.name() }
    }
}

/// The port number, if it is valid.
pub(super) fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// The ports that can be served, and all that a status can list. Ports that cannot be served are reported. Ports that are not
/// `exposed`, by index, are skipped.
pub(super) fn plan(
    ports: &[ServicePort],
    exposed: impl Fn(usize) -> bool,
    report: &mut Report,
) -> (Vec<PlannedPort>, Vec<ListedPort>) {
    let mut planned: Vec<PlannedPort> = Vec::with_capacity(ports.len());
    let mut listed: Vec<ListedPort> = Vec::with_capacity(ports.len());
    for (index, port) in ports.iter().enumerate().filter(|(index, _)| exposed(*index)) {
        let Some(named) = named(index, port, report) else { continue };
        let refused = match candidate(index, port, named, report) {
            None => Some(reason::PROTOCOL_NOT_SUPPORTED),
            Some(candidate) if collides(&planned, &candidate, report) => Some(reason::INVALID_VALUE),
            Some(candidate) => {
                planned.push(candidate);
                None
            }
        };
        // A status has only one entry for each port and protocol.
        if !listed.iter().any(|other| other.port == named) {
            listed.push(ListedPort { port: named, refused });
        }
    }
    if ports.is_empty() {
        report.add(reason::NOT_SERVED, "spec.ports", None, "the Service has no ports; it is not served");
    }
    (planned, listed)
}

/// Number and protocol of a port, if the API allows them.
fn named(index: usize, port: &ServicePort, report: &mut Report) -> Option<ProblemPort> {
    let Some(number) = number(port.port) else {
        let message = format!("{} is not a port (1 to 65535); it is not served", port.port);
        report.invalid(format!("spec.ports[{index}].port"), message);
        return None;
    };
    let protocol = match port.protocol.as_deref().unwrap_or_default() {
        "" | "TCP" => "TCP",
        "UDP" => "UDP",
        "SCTP" => "SCTP",
        other => {
            let message = format!("{other:?} is not TCP or UDP; port {number} is not served");
            report.invalid(format!("spec.ports[{index}].protocol"), message);
            return None;
        }
    };
    Some(ProblemPort { port: number, protocol })
}

/// The port, if its protocol can be forwarded.
fn candidate(
    index: usize,
    port: &ServicePort,
    named: ProblemPort,
    report: &mut Report,
) -> Option<PlannedPort> {
    let Some(protocol) = Protocol::named(named.protocol) else {
        let message = "SCTP cannot be forwarded; the port is not served";
        let field = format!("spec.ports[{index}].protocol");
        report.add(reason::PROTOCOL_NOT_SUPPORTED, field, Some(named), message);
        return None;
    };
    let asked = port.node_port.filter(|port| *port != 0);
    let node_port = asked.and_then(self::number);
    if let (Some(asked), None) = (asked, node_port) {
        let message = format!("{asked} is not a port (1 to 65535); the port has no node port");
        report.invalid_port(format!("spec.ports[{index}].nodePort"), named, message);
    }
    Some(PlannedPort {
        name: port.name.as_deref().unwrap_or_default().into(),
        port: named.port,
        protocol,
        node_port,
        app_protocol: port.app_protocol.as_deref().filter(|name| !name.is_empty()).map(Into::into),
        index,
    })
}

/// Whether the port has the number or name of an earlier one. The API server rejects both, but manifests can contain them. With
/// equal names, slices could not distinguish the ports, and affinity would be shared.
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
