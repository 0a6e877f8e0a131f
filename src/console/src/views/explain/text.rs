//! Text of an explanation: a headline, the reasons, and a table of endpoints.

use std::collections::HashSet;
use std::fmt::Write as _;

use sheave_control::projection::explain::{ExplainView, ExplainedEndpoint, ExplainedPart};
use sheave_model::Share;

use super::answer::gateway_api::refused_share;
use crate::views::escape::{line, visible};
use crate::views::text_table::{columns, or_dash};

/// The whole text, with a newline at the end.
pub(crate) fn render(view: &ExplainView) -> String {
    let mut text = headline(view) + "\n";
    if !view.other_frontends.is_empty() {
        text += &line(&format!("The question fits {} as well.", view.other_frontends.join(", ")));
    }
    // The table already has the reasons of endpoints.
    let tabled: HashSet<String> = view.endpoints.iter().map(ExplainedEndpoint::sentence).collect();
    text += "\nWhy\n";
    for reason in view.reasons.iter().filter(|reason| !tabled.contains(*reason)) {
        text += &line(&format!("  - {reason}"));
    }
    let more = view.all_endpoints.as_ref().map_or(0, |all| all.count.saturating_sub(view.endpoints.len()));
    if !view.endpoints.is_empty() {
        text += "\nEndpoints\n";
        text += &columns(&rows(&view.endpoints));
    }
    for part in &view.split {
        text += "\n";
        text += &line(&part_title(part));
        if !part.endpoints.is_empty() {
            text += &columns(&rows(&part.endpoints));
        }
    }
    if more > 0 {
        let others = if view.endpoints.is_empty() { "\nEndpoints\n  " } else { "  and " };
        // Writing to a String cannot fail.
        writeln!(text, "{others}{more} more, which `sheave explain` on the gateway lists")
            .unwrap_or_default();
    }
    text
}

fn part_title(part: &ExplainedPart) -> String {
    let ExplainedPart { reference, weight, share, refused, .. } = part;
    let refused = refused.as_ref().map(|reason| format!(", refused: {reason}")).unwrap_or_default();
    format!("{reference}: {share} of new connections, weight {weight}{refused}")
}

pub(super) fn headline(view: &ExplainView) -> String {
    let (Some(frontend), Some(kind)) = (&view.frontend, &view.kind) else {
        let client = view.client.as_ref().map(|ip| format!(" for {ip}")).unwrap_or_default();
        let text = format!("{} {} is not served here{client}.", view.source, view.service);
        return visible(&text).into_owned();
    };
    let port = match &view.listener {
        Some(listener) => format!(", listener {listener}"),
        None if view.port_name.is_empty() => String::new(),
        None => format!(", port {}", view.port_name),
    };
    let origin = if view.origin.as_deref() == Some("internal") { "inside" } else { "outside" };
    let client = match (&view.client, view.client_port) {
        (Some(ip), Some(port)) => format!("{ip}, port {port}, {origin} the cluster,"),
        (Some(ip), None) => format!("{ip}, {origin} the cluster,"),
        (None, _) => format!("A client {origin} the cluster"),
    };
    let place = format!("{} {}{port}, on {frontend} ({kind})", view.source, view.service);
    line(&place) + &visible(&format!("{client} {}.", outcome(view)))
}

/// Outcome for the client, as the end of a sentence.
pub(crate) fn outcome(view: &ExplainView) -> String {
    if let Some(why) = &view.closed {
        return format!("is not served: the frontend is closed on this gateway: {why}");
    }
    if !view.allowed {
        return "may not use it: its packets are silently dropped".to_owned();
    }
    let of_parts = view.split.iter().flat_map(|part| &part.endpoints);
    let used = view.endpoints.iter().chain(of_parts).filter(|endpoint| endpoint.used);
    let addresses: HashSet<&str> = used.map(|endpoint| endpoint.address.as_str()).collect();
    let listed = || addresses.len();
    let used = view.all_endpoints.as_ref().map_or_else(listed, |all| all.used);
    let goes = match (view.action.as_deref(), &view.endpoint) {
        (Some("Forward"), Some(endpoint)) => format!("goes to {endpoint}"),
        (Some("Forward"), None) if used == 1 => "goes to the only endpoint".to_owned(),
        (Some("Forward"), None) => format!("goes to one of {used} endpoints"),
        (Some("Reject"), _) if view.listener.is_some() && view.route.is_none() => {
            return "is refused: no route is attached to the listener".to_owned();
        }
        (Some("Reject"), _) if !view.split.is_empty() => return "is refused: see the backends".to_owned(),
        (Some("Reject"), _) => return "is refused: no endpoint serves".to_owned(),
        _ => return "is silently dropped".to_owned(),
    };
    let share = match refused_share(view) {
        Share { part: 0, .. } => String::new(),
        _ if view.endpoint.is_some() => String::new(),
        share => format!(", but {share} of new connections are refused"),
    };
    goes + fails(view, used) + &share + &refused(view)
}

/// Clause about the health of the endpoints that the client can reach.
fn fails(view: &ExplainView, used: usize) -> &'static str {
    match (view.failing, &view.endpoint, used) {
        (false, ..) => "",
        (true, Some(_), _) | (true, None, 0 | 1) => ", which is unhealthy",
        (true, None, _) => ", all of which are unhealthy",
    }
}

fn refused(view: &ExplainView) -> String {
    let refusing = view.refusing.as_ref();
    refusing
        .map(|reason| format!(", but some new connections are being refused ({reason})"))
        .unwrap_or_default()
}

/// State in Kubernetes, and whether the endpoint is unhealthy.
fn state(endpoint: &ExplainedEndpoint) -> String {
    match endpoint.unhealthy {
        Some(_) => format!("{}, unhealthy", endpoint.state),
        None => endpoint.state.clone(),
    }
}

/// Rows of the table. The cluster and its weight are shown only if there are several clusters.
fn rows(endpoints: &[ExplainedEndpoint]) -> Vec<Vec<String>> {
    let clusters: HashSet<&str> = endpoints.iter().map(|endpoint| endpoint.cluster.as_str()).collect();
    let several = clusters.len() > 1;
    let mut header: Vec<String> =
        ["ENDPOINT", "STATE", "NODE", "ZONE", "SLICE", "USED", "WHY"].map(str::to_owned).to_vec();
    if several {
        header.insert(2, "CLUSTER".to_owned());
        header.insert(3, "WEIGHT".to_owned());
    }
    let mut rows = vec![header];
    rows.extend(endpoints.iter().map(|endpoint| {
        let here = if endpoint.local { " (here)" } else { "" };
        let used = match (endpoint.used, endpoint.share) {
            (true, Some(share)) => format!("{share} %"),
            (true, None) => "yes".to_owned(),
            (false, _) => "no".to_owned(),
        };
        let mut row = vec![
            or_dash(&endpoint.address),
            state(endpoint),
            format!("{}{here}", or_dash(&endpoint.node)),
            or_dash(&endpoint.zone),
            endpoint.slice.clone(),
            used,
            endpoint.reason.clone(),
        ];
        if several {
            row.insert(2, or_dash(&endpoint.cluster));
            row.insert(3, endpoint.weight.map_or_else(|| "-".to_owned(), |weight| weight.to_string()));
        }
        row
    }));
    rows
}
