//! Conditions of a Service, and how a condition is updated.

mod announced;
mod multi_cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use k8s_openapi::Resource as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{FrontendAddr, Protocol};

pub use self::multi_cluster::{
    CLUSTERS_IN_TROUBLE, CLUSTERS_UNKNOWN, ENDPOINTS_OUTDATED, HEALTHY, NO_ENDPOINTS, RESOLVED, TAKEN,
};
use crate::api::condition::DesiredCondition;
use crate::api::names::{ALLOCATED, FROM_GATEWAY_NODES, PORTS_PUBLISHED, PROGRAMMED, READY};
use crate::api::problem::{Problem, reason};
use crate::api::published_ports;
use crate::controller::desired_status::DesiredStatus;
use crate::controller::port_errors::reason_not_served;
use crate::net::Family;
use crate::projection::gateway_api::conditions::ADDRESS_NOT_USABLE;
use crate::projection::service_health::Fault;
use crate::projection::{Ingress, NodeFamilies};
use crate::text::first_few;

/// Reason of `sheave.dev/Allocated` when it is true.
pub const HAS_ADDRESSES: &str = "Allocated";
/// Reason of `sheave.dev/Programmed` when it is true.
pub const SERVED: &str = "Programmed";
/// Reason of `sheave.dev/Ready` when it is true.
pub const ENDPOINTS_READY: &str = "EndpointsReady";
/// Reason of `sheave.dev/Ready` when it is true only for now: terminating endpoints have no replacement.
pub const ENDPOINTS_TERMINATING: &str = "EndpointsTerminating";
/// Reason of `sheave.dev/Ready`, and of `sheave.dev/Degraded`: the policy is Local, and no gateway runs on a node with an
/// endpoint.
pub const NO_LOCAL_ENDPOINT: &str = "NoLocalEndpoint";
/// Reason of `sheave.dev/Ready`, and of `sheave.dev/Degraded`: the source ranges exclude every client.
pub const NOBODY_ADMITTED: &str = "NobodyAdmitted";
/// Reason of a Gateway's `sheave.dev/Ready`: no route is attached to a listener.
pub const NO_ROUTE: &str = "NoRoute";
/// Reason of a Gateway's `sheave.dev/Ready`: no backend of a route with a weight is valid.
pub const NO_VALID_BACKEND: &str = "NoValidBackend";
/// Reason of a Gateway's `sheave.dev/Ready`: none of its listeners is programmed.
pub const LISTENERS_NOT_PROGRAMMED: &str = "ListenersNotProgrammed";
/// Reason of a Gateway's `sheave.dev/Ready` when it is true for a part of the traffic: the share of some backends is refused.
pub const SHARES_REFUSED: &str = "SharesRefused";
/// Reason of a Gateway's `sheave.dev/Ready` when it is true for a part of the traffic: routes of some server names do not serve.
pub const NAMES_REFUSED: &str = "NamesRefused";
/// Reason of `sheave.dev/Programmed`: no gateway is ready, or no ready gateway answers the controller.
pub const NO_GATEWAY: &str = "NoGateway";
/// Reason of `sheave.dev/Programmed`: some ports are not served.
pub const PORTS_IN_TROUBLE: &str = "PortsInTrouble";

/// Reason of `sheave.dev/FromGatewayNodes` when it is false.
pub const FROM_POOLS: &str = "AddressPools";

/// Reason of `sheave.dev/PortsPublished` when it is true.
const PORTS: &str = "Ports";
/// Reason of `sheave.dev/PortsPublished` when it is false.
const NO_PORTS: &str = "NoPorts";

/// How many ports or addresses a message lists. A Service can have hundreds, and the first few are enough to start with.
const LISTED: usize = 8;

/// The conditions of a Service or of a MultiClusterService.
pub fn conditions_for(desired_status: &DesiredStatus) -> Vec<DesiredCondition> {
    let mut conditions = match &desired_status.fleet {
        None => {
            let programmed = programmed(desired_status);
            let ready = ready(desired_status, &programmed);
            vec![allocated(desired_status), programmed, ready]
        }
        Some(fleet) => {
            let mut conditions = multi_cluster::conditions_across_clusters(desired_status, fleet);
            conditions.extend(ports_published(&desired_status.ingress));
            conditions
        }
    };
    conditions.extend(desired_status.node_families.map(from_gateway_nodes));
    conditions.extend(announced::announced_condition(&desired_status.announcement));
    conditions
}

/// Our own conditions of a Gateway. `programmed` is its standard condition, and `is_served` whether any listener is.
pub(super) fn gateway_conditions(
    desired_status: &DesiredStatus,
    programmed: &DesiredCondition,
    is_served: bool,
) -> Vec<DesiredCondition> {
    let ready = if programmed.holds && !is_served {
        let message = "No listener is programmed: see the conditions of each.".to_owned();
        DesiredCondition::no(READY, LISTENERS_NOT_PROGRAMMED, message)
    } else if is_served && programmed.reason == ADDRESS_NOT_USABLE {
        // The addresses that can be used serve all the same.
        answered(desired_status)
    } else {
        ready(desired_status, programmed)
    };
    let announced = announced::announced_condition(&desired_status.announcement);
    let from_nodes = desired_status.node_families.map(from_gateway_nodes);
    std::iter::once(ready)
        .chain(ports_published(&desired_status.ingress))
        .chain(announced)
        .chain(from_nodes)
        .collect()
}

/// The ports that a Gateway or MultiClusterService has at its addresses: not those that another object has there. `None` if
/// it is unknown which it has.
fn ports_published(ingress: &[Ingress]) -> Option<DesiredCondition> {
    if ingress.iter().any(|entry| entry.whole) {
        return None;
    }
    let of_address = |entry: &Ingress| {
        let ip = entry.ip;
        let own = entry.ports.iter().filter(|port| port.error != Some(reason::ADDRESS_IN_USE));
        let own = own.filter_map(|port| Some((port.port, Protocol::named(port.protocol)?)));
        own.map(|(port, protocol)| FrontendAddr { ip, port, protocol }).collect::<Vec<_>>()
    };
    let ports: BTreeSet<FrontendAddr> = ingress.iter().flat_map(of_address).collect();
    let (kind, reason, message) = (PORTS_PUBLISHED, PORTS, published_ports::write(&ports));
    match ports.is_empty() {
        // Processes read the whole message, however long it is.
        false => Some(DesiredCondition { kind, holds: true, reason, message }),
        true if ingress.is_empty() => None,
        true => Some(DesiredCondition::no(kind, NO_PORTS, "It has no port at its addresses.".to_owned())),
    }
}

fn from_gateway_nodes(families: NodeFamilies) -> DesiredCondition {
    let Some(name) = families.name() else {
        let message = "None of its addresses is taken for that of a gateway node.";
        return DesiredCondition::no(FROM_GATEWAY_NODES, FROM_POOLS, message.to_owned());
    };
    let of_families: Vec<String> =
        Family::ALL.into_iter().filter(|it| families.has(*it)).map(|it| it.to_string()).collect();
    let message = format!(
        "Its {} addresses are those of gateway nodes, and change with them.",
        of_families.join(" and ")
    );
    DesiredCondition::yes(FROM_GATEWAY_NODES, name, message)
}

fn allocated(desired_status: &DesiredStatus) -> DesiredCondition {
    let addresses = addresses(desired_status);
    let missing = messages(desired_status, reason::NO_ADDRESS);
    if !missing.is_empty() {
        let held = if addresses.is_empty() { String::new() } else { format!(" It has {addresses}.") };
        return DesiredCondition::no(ALLOCATED, reason::NO_ADDRESS, format!("{missing}{held}"));
    }
    if addresses.is_empty() {
        return not_served(desired_status, ALLOCATED).unwrap_or_else(|| no_address(ALLOCATED));
    }
    DesiredCondition::yes(ALLOCATED, HAS_ADDRESSES, format!("It has {addresses}."))
}

fn programmed(desired_status: &DesiredStatus) -> DesiredCondition {
    if let Some(condition) = not_served(desired_status, PROGRAMMED) {
        return condition;
    }
    let addresses = addresses(desired_status);
    if addresses.is_empty() {
        return no_address(PROGRAMMED);
    }
    if desired_status.gateways == 0 {
        let message = if desired_status.silent {
            format!("No gateway that is ready answers the controller, so none is known to serve {addresses}.")
        } else {
            format!("No gateway is ready to serve {addresses}.")
        };
        return DesiredCondition::no(PROGRAMMED, NO_GATEWAY, message);
    }
    let failed = failed_ports(desired_status);
    if !failed.is_empty() {
        return DesiredCondition::no(PROGRAMMED, PORTS_IN_TROUBLE, describe(&failed, desired_status));
    }
    // The message has no number of gateways: it would change with each that comes or goes, and with it the status of every
    // Service.
    DesiredCondition::yes(PROGRAMMED, SERVED, format!("Gateways serve it on {addresses}."))
}

/// Whether new external clients get an answer, as far as is known.
fn ready(desired_status: &DesiredStatus, programmed: &DesiredCondition) -> DesiredCondition {
    if !programmed.holds {
        return DesiredCondition::no(
            READY,
            programmed.reason,
            format!("It is not served: see {}.", programmed.kind),
        );
    }
    answered(desired_status)
}

/// `Ready` of what gateways serve.
fn answered(desired_status: &DesiredStatus) -> DesiredCondition {
    if let Some((reason, message)) = unanswered(desired_status) {
        return DesiredCondition::no(READY, reason, message);
    }
    let leaving = ports_with(desired_status, |fault| *fault == Fault::OnlyTerminating);
    if !leaving.is_empty() {
        let message = format!("Every endpoint that is left terminates, and serves until then: {leaving}.");
        return DesiredCondition::yes(READY, ENDPOINTS_TERMINATING, message);
    }
    let refused = ports_with(desired_status, |fault| matches!(fault, Fault::RefusedShare { .. }));
    if !refused.is_empty() {
        let message =
            format!("Some backends are not valid or have no endpoint, so their share is refused: {refused}.");
        return DesiredCondition::yes(READY, SHARES_REFUSED, message);
    }
    let refused = ports_with(desired_status, |fault| matches!(fault, Fault::RefusedNames { .. }));
    if !refused.is_empty() {
        let message =
            format!("Routes of some server names do not serve, so their connections are refused: {refused}.");
        return DesiredCondition::yes(READY, NAMES_REFUSED, message);
    }
    let message = "Every port has an endpoint that is ready.".to_owned();
    DesiredCondition::yes(READY, ENDPOINTS_READY, message)
}

/// Selects faults.
type FaultTest = fn(&Fault) -> bool;

/// Why external clients get no answer on some ports, and on which ports. The reason is that of the first cause found.
fn unanswered(desired_status: &DesiredStatus) -> Option<(&'static str, String)> {
    let causes: [(_, _, FaultTest); 6] = [
        (NO_ENDPOINTS, "No endpoint is ready, so connections are refused", |fault| {
            matches!(fault, Fault::NoEndpoint(_) | Fault::NoneChosen)
        }),
        (
            NO_LOCAL_ENDPOINT,
            "externalTrafficPolicy is Local and no gateway runs on a node with an endpoint, so packets are dropped",
            |fault| *fault == Fault::NoLocalEndpoint,
        ),
        (
            reason::NO_COMMON_NODE,
            "The address is shared with Services that come first and have no node in common with this one, so packets are dropped",
            |fault| *fault == Fault::NoCommonNode,
        ),
        (NO_ROUTE, "No route is attached, so connections are refused", |fault| *fault == Fault::NoRoute),
        (NO_VALID_BACKEND, "No backend is valid, so connections are refused", |fault| {
            matches!(fault, Fault::NoWeight | Fault::NoBackend(_))
        }),
        (NOBODY_ADMITTED, "The source ranges admit nobody, so packets are dropped", |fault| {
            *fault == Fault::AdmitsNobody
        }),
    ];
    let mut found = causes.into_iter().filter_map(|(reason, text, is_meant)| {
        let ports = ports_with(desired_status, is_meant);
        (!ports.is_empty()).then(|| (reason, format!("{text}: {ports}.")))
    });
    let (reason, first) = found.next()?;
    let mut told = vec![first];
    told.extend(found.map(|(_, message)| message));
    if reason == NO_ENDPOINTS {
        told.extend(left_out(desired_status));
    }
    Some((reason, told.join(" ")))
}

/// Text like `port 80/TCP on 203.0.113.7; port 81/TCP on …`; empty if no frontend has such a fault.
fn ports_with(desired_status: &DesiredStatus, is_meant: impl Fn(&Fault) -> bool) -> String {
    let mut ports: BTreeMap<(u16, &str), BTreeSet<IpAddr>> = BTreeMap::new();
    for (addr, _) in desired_status.faults.iter().filter(|(_, fault)| is_meant(fault)) {
        ports.entry((addr.port, addr.protocol.name())).or_default().insert(addr.ip);
    }
    let ports =
        ports.iter().map(|((port, protocol), ips)| format!("port {port}/{protocol} on {}", listed(ips)));
    first_few(ports, "; ", LISTED)
}

/// Messages about endpoints and slices that were left out.
fn left_out(desired_status: &DesiredStatus) -> BTreeSet<String> {
    let left_out = |problem: &&Problem| {
        problem.object.kind == EndpointSlice::KIND || problem.reason == reason::ENDPOINT_LOOP
    };
    let why = desired_status.problems.iter().filter(left_out).map(|problem| {
        let slice = (problem.object.kind == EndpointSlice::KIND).then(|| format!("{}: ", problem.object));
        format!("{}{}", slice.unwrap_or_default(), sentence(problem))
    });
    why.collect()
}

fn no_address(kind: &'static str) -> DesiredCondition {
    DesiredCondition::no(kind, reason::NO_ADDRESS, "It has no address yet.".into())
}

fn not_served(desired_status: &DesiredStatus, kind: &'static str) -> Option<DesiredCondition> {
    let message = messages(desired_status, reason::NOT_SERVED);
    (!message.is_empty()).then(|| DesiredCondition::no(kind, reason::NOT_SERVED, message))
}

fn addresses(desired_status: &DesiredStatus) -> String {
    listed(&desired_status.ingress.iter().map(|ingress| ingress.ip).collect())
}

fn listed(addresses: &BTreeSet<IpAddr>) -> String {
    first_few(addresses.iter().map(IpAddr::to_string), ", ", LISTED)
}

/// Messages of the Problems that affect the Service as a whole, as sentences.
fn messages(desired_status: &DesiredStatus, reason: &str) -> String {
    let about = |problem: &&Problem| problem.reason == reason && problem.port.is_none();
    sentences(desired_status.problems.iter().filter(about))
}

/// Messages of the Problems as sentences, in a stable order and without duplicates.
pub(super) fn sentences<'a>(problems: impl Iterator<Item = &'a Problem>) -> String {
    let messages: BTreeSet<String> = problems.map(sentence).collect();
    let messages: Vec<_> = messages.into_iter().collect();
    messages.join(" ")
}

fn sentence(problem: &Problem) -> String {
    let mut text = problem.message.trim_end_matches('.').to_owned();
    if !problem.field.is_empty() {
        text = format!("{}: {text}", problem.field);
    }
    let mut chars = text.chars();
    match (problem.field.is_empty(), chars.next()) {
        (true, Some(first)) => format!("{}{}.", first.to_uppercase(), chars.as_str()),
        _ => format!("{text}."),
    }
}

/// Addresses of the ports that are not served, by port, protocol and reason.
type FailedPorts = BTreeMap<(u16, &'static str, &'static str), BTreeSet<IpAddr>>;

fn failed_ports(desired_status: &DesiredStatus) -> FailedPorts {
    let mut failed = FailedPorts::new();
    for ingress in &desired_status.ingress {
        for status in &ingress.ports {
            if let Some(reason) = reason_not_served(status, ingress.ip, &desired_status.failed_ports) {
                failed.entry((status.port, status.protocol, reason)).or_default().insert(ingress.ip);
            }
        }
    }
    failed
}

fn describe(failed: &FailedPorts, desired_status: &DesiredStatus) -> String {
    let mut text = String::from("Not served:");
    for (index, ((port, protocol, reason), ips)) in failed.iter().take(LISTED).enumerate() {
        let separator = if index == 0 { "" } else { ";" };
        // Writing to a String cannot fail.
        let _written = write!(text, "{separator} port {port}/{protocol} on {} ({reason})", listed(ips));
    }
    if failed.len() > LISTED {
        let _written = write!(text, "; and {} more", failed.len() - LISTED);
    }
    text.push('.');
    let explained = |problem: &&Problem| {
        let port = problem.port.map(|port| (port.port, port.protocol, problem.reason));
        port.is_some_and(|port| failed.keys().take(LISTED).any(|it| *it == port))
    };
    let details = sentences(desired_status.problems.iter().filter(explained));
    if details.is_empty() { text } else { format!("{text} {details}") }
}

#[cfg(test)]
mod tests;
