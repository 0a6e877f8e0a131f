//! Text of the routing table: aligned columns for frontends, clusters, endpoints and status, and the Problems.

use std::borrow::Cow;
use std::fmt::Write as _;

use sheave_model::Share;

use super::super::problem::LISTED;
use super::{ClientSourceView, EndpointView, FrontendView, RouteView, RoutesView};
use crate::views::escape::line;
use crate::views::numbers::counted;
use crate::views::steering::SteeringView;
use crate::views::text_table::{columns, or_dash};

/// The whole text, with a newline at the end.
pub(super) fn render(view: &RoutesView, wide: bool) -> String {
    let mut text = line(&format!(
        "Routing table of node {}, generation {}: {}.",
        view.node,
        view.generation,
        counted(view.frontends.len(), "frontend")
    ));
    let frontends: Vec<Cow<'_, FrontendView>> =
        view.frontends.iter().flat_map(FrontendView::of_routes).collect();
    text.extend(view.steering.iter().map(SteeringView::to_text));
    if !frontends.is_empty() {
        text += "\nFrontends: where traffic is accepted, and what clients get\n";
        text += &columns(&frontend_rows(&frontends, wide));
    }
    let parts = part_rows(&frontends);
    if parts.len() > 1 {
        text += "\nSplits: how new connections are divided over the backends of routes\n";
        text += &columns(&parts);
    }
    let clusters = cluster_rows(&frontends);
    if clusters.len() > 1 {
        text += "\nClusters: how traffic is divided, priority 0 first\n";
        text += &columns(&clusters);
    }
    let endpoints = endpoint_rows(&frontends);
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
        writeln!(text, "\nNot served: {}", counted(view.not_served.len(), "object")).unwrap_or_default();
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

fn frontend_rows(frontends: &[Cow<'_, FrontendView>], wide: bool) -> Vec<Vec<String>> {
    let listeners = frontends.iter().any(|frontend| frontend.listener.is_some());
    let mut header = vec!["FRONTEND", "KIND", "SERVICE", "PORT"];
    header.extend(LISTENERS.iter().filter(|_| listeners));
    header.extend(["FROM OUTSIDE", "FROM THE CLUSTER", "AFFINITY", "ALLOWED"]);
    header.extend(WIDE.iter().filter(|_| wide));
    let mut rows = vec![header.into_iter().map(str::to_owned).collect()];
    rows.extend(frontends.iter().map(|frontend| {
        let mut row = vec![frontend.place(), frontend.kind.clone()];
        row.extend(owner(frontend));
        if listeners {
            let names = [&frontend.listener, &frontend.route];
            row.extend(names.map(|name| or_dash(name.as_deref().unwrap_or_default())));
        }
        row.extend([outcome(frontend, &frontend.external), outcome(frontend, &frontend.internal)]);
        row.extend(clients(frontend));
        if wide {
            row.extend(details(frontend));
        }
        row
    }));
    rows
}

/// Additional columns if there are Gateways.
const LISTENERS: [&str; 2] = ["LISTENER", "ROUTE"];

/// Service and port that a frontend belongs to; dashes for a listener, which has a column of its own.
fn owner(frontend: &FrontendView) -> [String; 2] {
    if frontend.listener.is_some() {
        return ["-", "-"].map(str::to_owned);
    }
    [service(&frontend.service, &frontend.source), or_dash(&frontend.port_name)]
}

/// Affinity and allowed clients.
fn clients(frontend: &FrontendView) -> [String; 2] {
    let affinity = frontend.affinity.as_ref().map_or_else(
        || "-".to_owned(),
        |affinity| format!("client address, {} s", affinity.client_ip.timeout_seconds),
    );
    let allowed = match frontend.source_ranges.as_slice() {
        [] if frontend.admits_nobody => "nobody".to_owned(),
        [] => "all".to_owned(),
        ranges => ranges.join(", "),
    };
    [affinity, allowed]
}

/// Parts of each frontend that is split.
fn part_rows(frontends: &[Cow<'_, FrontendView>]) -> Vec<Vec<String>> {
    let header = ["FRONTEND", "BACKEND", "WEIGHT", "SHARE", "GOES TO"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for frontend in frontends {
        let mut place = frontend.place();
        rows.extend(frontend.parts().iter().map(|part| {
            vec![
                std::mem::take(&mut place),
                part.reference.clone(),
                part.weight.to_string(),
                frontend.share(std::iter::once(part)).to_string(),
                part.outcome(&frontend.external),
            ]
        }));
    }
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
fn cluster_rows(frontends: &[Cow<'_, FrontendView>]) -> Vec<Vec<String>> {
    let header = ["FRONTEND", "CLUSTER", "PRIORITY", "WEIGHT", "SERVE", "OF"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for frontend in frontends {
        let mut place = frontend.place();
        let own = frontend.backends.iter().filter(|_| frontend.failover.is_some());
        let pools = frontend.parts().iter().filter_map(|part| part.pool.as_ref());
        let pools = pools.filter(|pool| pool.failover.is_some());
        let backends = own.chain(pools.flat_map(|pool| &pool.backends));
        rows.extend(backends.map(|backend| {
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
    match source {
        "MultiClusterService" => format!("{name} (multi-cluster)"),
        "Gateway" => format!("{name} (Gateway)"),
        _ => name.to_owned(),
    }
}

fn endpoint_rows(frontends: &[Cow<'_, FrontendView>]) -> Vec<Vec<String>> {
    let header = ["FRONTEND", "ENDPOINT", "STATE", "CLUSTER", "NODE", "ZONE", "WEIGHT", "USED"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let split = frontends.iter().any(|frontend| !frontend.parts().is_empty());
    if split {
        rows[0].insert(1, "BACKEND".to_owned());
    }
    for frontend in frontends {
        let mut place = frontend.place();
        for (part, backend) in frontend.all_backends() {
            for endpoint in &backend.endpoints {
                let here = if endpoint.local { " (here)" } else { "" };
                let mut row = vec![
                    // Shown once per frontend.
                    std::mem::take(&mut place),
                    endpoint.address.clone(),
                    endpoint.state.clone(),
                    backend.cluster.clone(),
                    format!("{}{here}", or_dash(&endpoint.node)),
                    or_dash(&endpoint.zone),
                    endpoint.weight.to_string(),
                    used(frontend, endpoint).to_owned(),
                ];
                if split {
                    row.insert(1, part.unwrap_or("-").to_owned());
                }
                rows.push(row);
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
        _ if frontend.server_names.is_some() => "reset: no route".to_owned(),
        "Forward" => {
            let endpoints = counted(route.endpoints.len(), "endpoint");
            match frontend.refused_share(route) {
                Share { part: 0, .. } => endpoints,
                refused => format!("{endpoints}, {refused} refused"),
            }
        }
        "Reject" if frontend.listener.is_some() && frontend.route.is_none() => "refused: no route".to_owned(),
        "Reject" => "refused: no endpoints".to_owned(),
        "Drop" => "dropped: none here".to_owned(),
        other => other.to_owned(),
    }
}
