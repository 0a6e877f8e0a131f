//! Text of the routing table: aligned columns for frontends, clusters, endpoints and status, and the Problems.

use std::fmt::Write as _;

use super::super::problem::LISTED;
use super::{ClientSourceView, EndpointView, FrontendView, RouteView, RoutesView};
use crate::views::escape::line;
use crate::views::steering::SteeringView;
use crate::views::text_table::{columns, or_dash};

/// The whole text, with a newline at the end.
pub(super) fn render(view: &RoutesView, wide: bool) -> String {
    let mut text = line(&format!(
        "Routing table of node {}, generation {}: {}.",
        view.node,
        view.generation,
        count(view.frontends.len(), "frontend")
    ));
    text.extend(view.steering.iter().map(SteeringView::to_text));
    if !view.frontends.is_empty() {
        text += "\nFrontends: where traffic is accepted, and what clients get\n";
        text += &columns(&frontend_rows(view, wide));
    }
    let clusters = cluster_rows(view);
    if clusters.len() > 1 {
        text += "\nClusters: how traffic is divided, priority 0 first\n";
        text += &columns(&clusters);
    }
    let endpoints = endpoint_rows(view);
    if endpoints.len() > 1 {
        text += "\nEndpoints: where it goes\n";
        text += &columns(&endpoints);
    }
    if !view.status.is_empty() {
        text += "\nStatus: what would be published, and which ports have trouble\n";
        text += &columns(&status_rows(view));
    }
    if !view.not_served.is_empty() {
        // Writing to a String cannot fail.
        writeln!(text, "\nNot served: {} of type LoadBalancer", count(view.not_served.len(), "object"))
            .unwrap_or_default();
        for note in view.not_served.iter().take(LISTED) {
            text += &line(&format!("  {note}"));
        }
        if let more @ 1.. = view.not_served.len().saturating_sub(LISTED) {
            writeln!(text, "  and {more} more; -o json lists all").unwrap_or_default();
        }
    }
    if !view.notes.is_empty() {
        text += "\nNotes\n";
        text.extend(view.notes.iter().map(|note| line(&format!("  {note}"))));
    }
    if !view.problems.is_empty() {
        text += "\nProblems\n";
        text.extend(view.problems.iter().map(|problem| line(&format!("  {problem}"))));
    }
    text
}

fn frontend_rows(view: &RoutesView, wide: bool) -> Vec<Vec<String>> {
    let header =
        ["FRONTEND", "KIND", "SERVICE", "PORT", "FROM OUTSIDE", "FROM THE CLUSTER", "AFFINITY", "ALLOWED"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    if wide {
        rows[0].extend(WIDE.map(str::to_owned));
    }
    rows.extend(view.frontends.iter().map(|frontend| {
        let affinity = frontend.affinity.as_ref().map_or_else(
            || "-".to_owned(),
            |affinity| format!("client address, {} s", affinity.client_ip.timeout_seconds),
        );
        let allowed = match frontend.source_ranges.as_slice() {
            [] if frontend.admits_nobody => "nobody".to_owned(),
            [] => "all".to_owned(),
            ranges => ranges.join(", "),
        };
        let mut row = vec![
            frontend.place(),
            frontend.kind.clone(),
            service(&frontend.service, &frontend.source),
            or_dash(&frontend.port_name),
            outcome(frontend, &frontend.external),
            outcome(frontend, &frontend.internal),
            affinity,
            allowed,
        ];
        if wide {
            row.extend(details(frontend));
        }
        row
    }));
    rows
}

/// Additional columns of `-o wide`.
const WIDE: [&str; 4] = ["APP PROTOCOL", "BALANCE", "ENDPOINTS SEE", "ACCEPT PROXY"];

fn details(frontend: &FrontendView) -> [String; 4] {
    let ClientSourceView { external, internal } = &frontend.client_source;
    let seen = if external == internal {
        external.clone()
    } else {
        format!("{external} outside, {internal} inside")
    };
    let app_protocol = frontend.app_protocol.as_deref().unwrap_or_default();
    [app_protocol, &frontend.balance, &seen, &frontend.accept_proxy.join(", ")].map(or_dash)
}

/// Clusters of each frontend that has several.
fn cluster_rows(view: &RoutesView) -> Vec<Vec<String>> {
    let header = ["FRONTEND", "CLUSTER", "PRIORITY", "WEIGHT", "SERVE", "OF"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for frontend in view.frontends.iter().filter(|frontend| frontend.failover.is_some()) {
        let mut place = frontend.place();
        rows.extend(frontend.backends.iter().map(|backend| {
            vec![
                std::mem::take(&mut place),
                backend.cluster.clone(),
                backend.priority.to_string(),
                backend.weight.to_string(),
                backend.endpoints.len().to_string(),
                backend.capacity.to_string(),
            ]
        }));
    }
    rows
}

/// `namespace/name`, marked if it is not a Service.
fn service(name: &str, source: &str) -> String {
    if source == "MultiClusterService" { format!("{name} (multi-cluster)") } else { name.to_owned() }
}

fn endpoint_rows(view: &RoutesView) -> Vec<Vec<String>> {
    let header = ["FRONTEND", "ENDPOINT", "STATE", "CLUSTER", "NODE", "ZONE", "WEIGHT", "USED"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for frontend in &view.frontends {
        let mut place = frontend.place();
        for backend in &frontend.backends {
            for endpoint in &backend.endpoints {
                let here = if endpoint.local { " (here)" } else { "" };
                rows.push(vec![
                    // Shown once per frontend.
                    std::mem::take(&mut place),
                    endpoint.address.clone(),
                    endpoint.state.clone(),
                    backend.cluster.clone(),
                    format!("{}{here}", or_dash(&endpoint.node)),
                    or_dash(&endpoint.zone),
                    endpoint.weight.to_string(),
                    used(frontend, endpoint).to_owned(),
                ]);
            }
        }
    }
    rows
}

fn status_rows(view: &RoutesView) -> Vec<Vec<String>> {
    let header = ["SERVICE", "ADDRESS", "HOSTNAME", "PORTS IN TROUBLE"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for status in &view.status {
        let row = |address: &str, hostname: &str, trouble: &str| {
            [service(&status.service, &status.source).as_str(), address, hostname, trouble]
                .map(or_dash)
                .to_vec()
        };
        rows.extend(status.ingress.iter().map(|ingress| {
            let trouble = ingress.ports.iter().filter_map(|port| {
                Some(format!("{}/{} {}", port.port, port.protocol, port.error.as_deref()?))
            });
            let trouble = trouble.collect::<Vec<_>>().join(", ");
            row(&ingress.ip, ingress.hostname.as_deref().unwrap_or_default(), &trouble)
        }));
        if status.ingress.is_empty() {
            rows.push(row("none yet", "", ""));
        }
    }
    rows
}

/// Clients for which an endpoint may be chosen.
fn used(frontend: &FrontendView, endpoint: &EndpointView) -> &'static str {
    let external = frontend.external.endpoints.contains(&endpoint.address);
    let internal = frontend.internal.endpoints.contains(&endpoint.address);
    match (external, internal) {
        (true, true) => "for all",
        (true, false) => "from outside only",
        (false, true) => "from the cluster only",
        (false, false) => "not now",
    }
}

fn outcome(frontend: &FrontendView, route: &RouteView) -> String {
    if frontend.closed.is_some() {
        return "closed here".to_owned();
    }
    match route.action.as_str() {
        "Forward" => count(route.endpoints.len(), "endpoint"),
        "Reject" => "refused: no endpoints".to_owned(),
        "Drop" => "dropped: none here".to_owned(),
        other => other.to_owned(),
    }
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
