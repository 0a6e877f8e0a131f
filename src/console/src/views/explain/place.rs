//! Frontend that a question is about.

use std::sync::Arc;

use sheave_control::projection::explain::{ServedService, SpecPort};
use sheave_model::{Frontend, FrontendKind};

use super::question::{Port, Question};

/// Frontends that match a question.
pub(super) enum Place {
    /// This frontend, and others that match as well.
    Found(Arc<Frontend>, Vec<Arc<Frontend>>),
    /// The Service has the port, but no matching frontend, for this reason.
    Nowhere(String),
    /// The Service has no such port, for this reason.
    NoSuchPort(String),
}

/// Finds the frontend: of those that match, the first of the client's family. Node ports come last, since they have another address
/// on each gateway, and users who mean them name the port or address.
pub(super) fn find(question: &Question, served: &ServedService<'_>) -> Place {
    let mut frontends: Vec<&Arc<Frontend>> = served.frontends().iter().collect();
    frontends.sort_unstable_by_key(|frontend| (frontend.kind == FrontendKind::NodePort, frontend.addr));
    let listed = served.ports();
    let known = listed.iter().any(|port| lists(port, question))
        || frontends.iter().any(|frontend| fits_port(frontend, question, served));
    if !known {
        return Place::NoSuchPort(no_such_port(question, &listed));
    }
    let fitting: Vec<&Arc<Frontend>> =
        frontends.iter().copied().filter(|frontend| fits(frontend, question, served)).collect();
    let reached = fitting.iter().position(|frontend| of_clients_family(frontend, question));
    match reached {
        Some(index) => {
            let others = fitting.iter().enumerate().filter(|(other, _)| *other != index);
            let others = others.map(|(_, frontend)| Arc::clone(frontend)).collect();
            Place::Found(Arc::clone(fitting[index]), others)
        }
        None => Place::Nowhere(nowhere(question, &fitting, &frontends)),
    }
}

fn fits(frontend: &Frontend, question: &Question, served: &ServedService<'_>) -> bool {
    fits_port(frontend, question, served)
        && question.address.is_none_or(|address| address == frontend.addr.ip)
}

/// Whether the port matches: either that of the frontend or that of the Service, which differ for node ports.
fn fits_port(frontend: &Frontend, question: &Question, served: &ServedService<'_>) -> bool {
    let port = match &question.port {
        None => true,
        Some(Port::Number(number)) => {
            frontend.addr.port == *number || served.port_of(frontend) == Some(*number)
        }
        Some(Port::Name(name)) => *frontend.service.port_name == **name,
    };
    port && question.protocol.is_none_or(|protocol| protocol == frontend.addr.protocol)
}

fn of_clients_family(frontend: &Frontend, question: &Question) -> bool {
    question.client.is_none_or(|client| client.ip.is_ipv4() == frontend.addr.ip.is_ipv4())
}

fn lists(port: &SpecPort, question: &Question) -> bool {
    let number = match &question.port {
        None => true,
        Some(Port::Number(number)) => port.port == i32::from(*number),
        Some(Port::Name(name)) => port.name == *name,
    };
    number && question.protocol.is_none_or(|protocol| protocol.to_string() == port.protocol)
}

fn no_such_port(question: &Question, listed: &[SpecPort]) -> String {
    let asked = match (&question.port, question.protocol) {
        (Some(port), Some(protocol)) => format!("{protocol} port {port}"),
        (Some(port), None) => format!("port {port}"),
        (None, Some(protocol)) => format!("{protocol} port"),
        (None, None) => return "the Service has no ports".to_owned(),
    };
    let ports: Vec<String> = listed.iter().map(name_of).collect();
    format!("the Service has no {asked}; it has {}", ports.join(", "))
}

fn name_of(port: &SpecPort) -> String {
    let SpecPort { name, port, protocol } = port;
    if name.is_empty() { format!("{port}/{protocol}") } else { format!("{port}/{protocol} ({name})") }
}

fn nowhere(question: &Question, fitting: &[&Arc<Frontend>], all: &[&Arc<Frontend>]) -> String {
    let list = |frontends: &[&Arc<Frontend>]| {
        frontends.iter().map(|frontend| frontend.addr.to_string()).collect::<Vec<_>>().join(", ")
    };
    match question.client {
        Some(client) if !fitting.is_empty() => {
            let family = if client.ip.is_ipv4() { "IPv4" } else { "IPv6" };
            format!(
                "no frontend of the Service is {family}, as the client is; it is served on {}",
                list(fitting)
            )
        }
        _ if all.is_empty() => "the Service has no frontend on this gateway".to_owned(),
        _ => format!("no frontend of the Service fits what is asked for; it is served on {}", list(all)),
    }
}
