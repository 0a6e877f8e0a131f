//! `sheave replay`: what new manifests, or the loss of a node, zone or cluster, do to the connections of a log.
//!
//! One pass over the log, in bounded memory: lines are read and merged by time, ordered by the starts of their connections, and each
//! connection is picked an endpoint from the table of the new manifests, as if that table had been in force all along.

mod chooser;
mod client_records;
mod connection;
mod csv;
mod log_line;
mod log_reader;
mod merged_logs;
mod names;
mod new_table;
mod open_connections;
mod progress;
mod report;
mod start_order;
mod tally;

#[cfg(test)]
mod tests;

use sheave_control::projection::AbsentEndpoints;

use self::chooser::{Chooser, Chosen, Refusal, RouteState};
use self::client_records::ClientRecords;
use self::connection::ReplayedConnection;
use self::merged_logs::{MergedLogs, SkippedLine, UnreadableLog};
use self::names::LoggedNames;
use self::new_table::NewTable;
use self::progress::Progress;
use self::report::Report;
use self::start_order::{StartOrder, WINDOW};
use self::tally::{After, Tally};
use crate::arguments::Replay;
use crate::exit::Exit;
use crate::options::Options;
use crate::stdout::{complain, print, render};
use crate::views::numbers::count;
use crate::views::replay::{ReplayView, SkippedLineView, WithoutView};

/// Prints what the new manifests do to the connections of the logs. Exits 0 if nothing changes for them.
pub fn run(command: &Replay, config: &Options) -> Exit {
    match replayed(command, config) {
        Err(exit) => exit,
        Ok(view) => match print(&render(&view, || view.to_text(), command.output)) {
            Exit::Ok if !view.is_unchanged() => Exit::Differs,
            exit => exit,
        },
    }
}

fn replayed(command: &Replay, config: &Options) -> Result<ReplayView, Exit> {
    // clap requires one of the flags.
    let folders = command.folders().ok_or(Exit::Usage)?;
    let absent = AbsentEndpoints {
        nodes: command.without_node.iter().cloned().collect(),
        zones: command.without_zone.iter().cloned().collect(),
        clusters: command.without_cluster.iter().cloned().collect(),
    };
    let without = WithoutView {
        nodes: absent.nodes.iter().cloned().collect(),
        zones: absent.zones.iter().cloned().collect(),
        clusters: absent.clusters.iter().cloned().collect(),
    };
    let table = NewTable::read(folders, absent, config)?;
    let unreadable = |error: UnreadableLog| {
        complain(&error.to_string());
        Exit::Data
    };
    let mut logs = MergedLogs::open(&command.logs).map_err(unreadable)?;
    let mut replay = TrafficReplay::new(table, WINDOW);
    replay.run(&mut logs).map_err(unreadable)?;
    if logs.connections == 0 {
        complain("no line of the log is of a connection");
        logs.named.iter().for_each(|it| complain(&format!("{}:{}: {}", it.log, it.line, it.message)));
        return Err(Exit::Data);
    }
    let mut view = replay.view(&config.projection.node);
    view.without = without;
    view.log.skipped = logs.skipped;
    view.log.skipped_lines = logs.named.into_iter().map(skipped_view).collect();
    Ok(view)
}

fn skipped_view(SkippedLine { log, line, message }: SkippedLine) -> SkippedLineView {
    SkippedLineView { log, line, message }
}

/// A replay that is running.
struct TrafficReplay {
    table: NewTable,
    names: LoggedNames,
    order: StartOrder,
    chooser: Chooser,
    tally: Tally,
    clients: ClientRecords,
}

impl TrafficReplay {
    /// A replay with this table, in which this many connections wait for earlier ones.
    fn new(table: NewTable, window: usize) -> Self {
        Self {
            table,
            names: LoggedNames::default(),
            order: StartOrder::new(window),
            chooser: Chooser::new(),
            tally: Tally::default(),
            clients: ClientRecords::default(),
        }
    }

    /// Replays logs to their end.
    fn run(&mut self, logs: &mut MergedLogs) -> Result<(), UnreadableLog> {
        let mut progress = Progress::start();
        while let Some(connection) = logs.next(&mut self.names)? {
            if let Some(first) = self.order.add(connection) {
                self.replay(&first);
            }
            progress.show(logs);
        }
        while let Some(next) = self.order.take() {
            self.replay(&next);
        }
        Ok(())
    }

    fn replay(&mut self, connection: &ReplayedConnection) {
        let id = connection.route;
        let mut route = self.chooser.route(self.table.active(), id, &self.names);
        let chosen = if connection.asked { Some(self.choose(connection, &mut route)) } else { None };
        let known = |endpoint| self.chooser.known(id, &route, endpoint, &mut self.names);
        let before = connection.endpoint.map(known);
        let after = match chosen {
            None => After::Unasked,
            Some(Chosen::Refused(refusal)) => After::Refused(refusal),
            Some(Chosen::Undecided) => After::Undecided,
            Some(Chosen::Endpoint(addr)) => {
                let endpoint = self.chooser.chosen(id, &route, addr, &mut self.names);
                endpoint.map_or(After::Undecided, After::Endpoint)
            }
        };
        self.tally.add(connection, route.logged, route.traits, before, after);
        if let (Some(before), After::Endpoint(now)) = (before, after) {
            self.clients.add(route.logged.service, connection.client.ip(), before.id, now);
        }
    }

    /// Chooses an endpoint, with the addresses that the log has if the manifests have none.
    fn choose(&mut self, connection: &ReplayedConnection, route: &mut RouteState) -> Chosen {
        let chosen = self.chooser.choose(self.table.active(), connection, route, &self.names);
        if !matches!(chosen, Chosen::Refused(Refusal::NoFrontend | Refusal::OtherService)) {
            return chosen;
        }
        self.table.note_frontends(&mut self.names);
        if !self.table.follow_addresses() {
            return chosen;
        }
        self.chooser.change_table();
        *route = self.chooser.route(self.table.active(), connection.route, &self.names);
        self.chooser.choose(self.table.active(), connection, route, &self.names)
    }

    /// The result.
    fn view(&self, node: &str) -> ReplayView {
        let report = Report { names: &self.names, active: self.table.active(), node };
        let mut view = report.view(&self.tally, &self.clients.by_service());
        view.log.late = self.order.late;
        if let Some(projected) = self.table.projected() {
            view.problems = projected.problems();
            view.notes = projected.nothing_found();
        }
        view.notes.extend(self.notes(&view));
        view
    }

    /// Sentences about what is missing, or was only estimated.
    fn notes(&self, view: &ReplayView) -> Vec<String> {
        let mut notes = Vec::new();
        let number = |number: u64| count(number as f64);
        if !view.services.iter().all(|service| service.exact) {
            let why = "least connections, round robin and random choose anew for each connection: their connections count as moved \
                       only as far as the loads of endpoints differ by more than chance";
            notes.push(why.to_owned());
        }
        let sentences = [
            (
                self.order.late,
                "connections lasted so long that they were placed late among those that began after them",
            ),
            (self.chooser.open.cut, "connections count as ended early, as too many were open at once"),
            (
                view.connections.undecided,
                "connections are left out, since a server name decides about them, which the log does not have",
            ),
            (
                view.connections.unasked,
                "connections ended before the gateway looked for an endpoint, and are not replayed",
            ),
        ];
        let sentences = sentences.into_iter().filter(|(number, _)| *number > 0);
        notes.extend(sentences.map(|(count, what)| format!("{} {what}", number(count))));
        if self.tally.services.values().any(|service| service.limited) {
            notes.push("limits of Services are not replayed: nobody is refused for them".to_owned());
        }
        if self.clients.full {
            notes.push(
                "there are more clients than are followed for affinity; the first million were".to_owned(),
            );
        }
        notes
    }
}
