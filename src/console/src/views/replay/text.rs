//! Result of a replay as text.

use super::{
    LoadView, RefusalView, ReplayCountsView, ReplayView, ReplayedEndpointView, ReplayedLogView,
    ReplayedServiceView, WithoutView,
};
use crate::views::escape::line;
use crate::views::numbers::{bytes, count};
use crate::views::problem::LISTED;
use crate::views::text_table::{columns, or_dash};

/// Maximum number of rows of a table.
const ROWS: usize = 40;

impl ReplayView {
    /// Text for people: the summary, tables of loads, and who is refused or moved.
    pub(crate) fn to_text(&self) -> String {
        let mut text = self.summary();
        text += &self.services_table();
        text += &self.endpoints_table();
        text += &self.clusters_table();
        text += &self.refusals();
        text += &self.lost_affinity();
        text += &list("Skipped lines", &self.log.skipped_texts(), self.log.skipped);
        let problems: Vec<String> = self.problems.iter().take(LISTED).map(ToString::to_string).collect();
        text += &list("Problems of the manifests", &problems, self.problems.len() as u64);
        text + &list("Notes", &self.notes, self.notes.len() as u64)
    }

    fn summary(&self) -> String {
        let ReplayCountsView { total, moved, refused, newly_served, .. } = self.connections;
        let ReplayedLogView { from, to, .. } = &self.log;
        let about = if self.services.iter().all(|service| service.exact) { "" } else { "about " };
        let served = match newly_served {
            0 => String::new(),
            served => format!(", {} that had no endpoint", verb(served, "gets one", "get one")),
        };
        let mut text = line(&format!(
            "{} from {from} to {to}, replayed for node {}{}.",
            connections(total),
            or_dash(&self.node),
            self.without.to_text()
        ));
        text += &match self.is_unchanged() {
            true => line("Nothing changes for them."),
            false => line(&format!(
                "{about}{} to another endpoint, {} refused{served}.",
                verb(moved, "goes", "go"),
                verb(refused, "is", "are")
            )),
        };
        text
    }

    fn services_table(&self) -> String {
        let row = |service: &ReplayedServiceView| {
            let ReplayCountsView { total, moved, refused, clients_moved, .. } = service.connections;
            let about = if service.exact || moved == 0 { "" } else { "about " };
            let name = service.name();
            vec![
                name,
                number(total),
                format!("{about}{}", number(moved)),
                number(refused),
                if service.has_affinity() { number(clients_moved) } else { "-".to_owned() },
            ]
        };
        let header = ["SERVICE", "CONNECTIONS", "MOVED", "REFUSED", "CLIENTS MOVED"];
        table("Services", &header, self.services.iter().map(row).collect())
    }

    fn endpoints_table(&self) -> String {
        let rows = self.services.iter().flat_map(|service| {
            let row = |endpoint: &ReplayedEndpointView| {
                let ReplayedEndpointView { endpoint, cluster, node, before, after } = endpoint;
                let place = [service.name(), endpoint.clone(), or_dash(cluster), or_dash(node)];
                place.into_iter().chain(loads(*before, *after)).collect()
            };
            service.endpoints.iter().map(row)
        });
        let header =
            ["SERVICE", "ENDPOINT", "CLUSTER", "NODE", "BEFORE", "AFTER", "BYTES BEFORE", "BYTES AFTER"];
        table("Endpoints: connections, and their share", &header, rows.collect())
    }

    fn clusters_table(&self) -> String {
        if self.clusters.len() < 2 {
            return String::new();
        }
        let row = |it: &super::ReplayedClusterView| {
            [or_dash(&it.cluster)].into_iter().chain(loads(it.before, it.after)).collect()
        };
        let header = ["CLUSTER", "BEFORE", "AFTER", "BYTES BEFORE", "BYTES AFTER"];
        table("Clusters", &header, self.clusters.iter().map(row).collect())
    }

    fn refusals(&self) -> String {
        let refusals = self.services.iter().flat_map(|service| {
            let sentence = |refusal: &RefusalView| {
                let RefusalView { message, connections: count, clients, .. } = refusal;
                let clients = clients.join(", ");
                format!("{}: {}: {message} (clients: {clients})", service.name(), connections(*count))
            };
            service.refusals.iter().map(sentence)
        });
        let refusals: Vec<String> = refusals.collect();
        list("Refused, and why", first(&refusals), refusals.len() as u64)
    }

    fn lost_affinity(&self) -> String {
        let lost = self.services.iter().filter(|service| service.connections.clients_moved > 0);
        let sentence = |service: &ReplayedServiceView| {
            let affinity = &service.affinity;
            let (lost, clients) = (number(affinity.lost), number(affinity.clients));
            format!(
                "{}: {lost} of {clients} clients go to another endpoint than before, for example {}",
                service.name(),
                affinity.lost_clients.join(", ")
            )
        };
        let lost: Vec<String> = lost.map(sentence).collect();
        list("Affinity lost", first(&lost), lost.len() as u64)
    }
}

impl ReplayedServiceView {
    /// Service and port.
    fn name(&self) -> String {
        let kind = if self.source == "Service" { String::new() } else { format!("{} ", self.source) };
        let port = if self.port_name.is_empty() { String::new() } else { format!(" {}", self.port_name) };
        format!("{kind}{}{port}", self.service)
    }

    /// Whether clients have an endpoint to lose.
    fn has_affinity(&self) -> bool {
        self.affinity.enabled || self.connections.clients_moved > 0
    }
}

impl ReplayedLogView {
    fn skipped_texts(&self) -> Vec<String> {
        let text = |it: &super::SkippedLineView| format!("{}:{}: {}", it.log, it.line, it.message);
        self.skipped_lines.iter().map(text).collect()
    }
}

impl WithoutView {
    fn to_text(&self) -> String {
        let kinds = [("node", &self.nodes), ("zone", &self.zones), ("cluster", &self.clusters)];
        let named = |(kind, names): (&str, &Vec<String>)| {
            names.iter().map(|name| format!("{kind} {name}")).collect::<Vec<_>>()
        };
        let names: Vec<String> = kinds.into_iter().flat_map(named).collect();
        if names.is_empty() { String::new() } else { format!(", without {}", names.join(", ")) }
    }
}

fn loads(before: LoadView, after: LoadView) -> [String; 4] {
    let load = |load: LoadView| format!("{} ({:.1} %)", number(load.connections), load.share * 100.0);
    let all_bytes = |load: LoadView| bytes(load.client_bytes as f64 + load.endpoint_bytes as f64);
    [load(before), load(after), all_bytes(before), all_bytes(after)]
}

fn number(number: u64) -> String {
    count(number as f64)
}

/// A number with its verb.
fn verb(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

fn connections(count: u64) -> String {
    format!("{} connection{}", number(count), if count == 1 { "" } else { "s" })
}

fn first(lines: &[String]) -> &[String] {
    &lines[..lines.len().min(ROWS)]
}

/// A heading with aligned rows; nothing without any.
fn table(heading: &str, header: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let more = rows.len().saturating_sub(ROWS);
    let header = header.iter().map(|&cell| cell.to_owned()).collect();
    let shown: Vec<Vec<String>> = [header].into_iter().chain(rows.into_iter().take(ROWS)).collect();
    let more = if more > 0 { line(&format!("  and {more} more, with -o json")) } else { String::new() };
    format!("\n{}{}{more}", line(heading), columns(&shown))
}

/// A heading with lines, the first ones of `count`; nothing without any.
fn list(heading: &str, lines: &[String], count: u64) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let listed: String = lines.iter().map(|text| line(&format!("  - {text}"))).collect();
    let more = count.saturating_sub(lines.len() as u64);
    let more = if more > 0 { line(&format!("  and {} more", number(more))) } else { String::new() };
    format!("\n{}{listed}{more}", line(heading))
}
