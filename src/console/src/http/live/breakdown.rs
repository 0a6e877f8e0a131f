//! Counters of all Services, endpoints or clients, for viewers that follow all rows. Rows have numbers, and after the first event
//! only changes are sent.

mod clients;
mod endpoints;
mod numbered;
mod services;

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer};
use sheave_dataplane::select::ActiveTable;
use sheave_dataplane::{ClientTraffic, Observer, TrafficWatch};
use sheave_model::FrontendAddr;

use self::clients::ClientRows;
use self::endpoints::EndpointLabel;
use self::numbered::{Label, LabelledFrontends, NumberedRows};
use self::services::ServiceLabel;

/// How long workers may take to count their open connections. They need milliseconds unless they are stuck.
const PATIENCE: Duration = Duration::from_millis(500);

/// Kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum TrafficBy {
    Services,
    Endpoints,
    Clients,
}

impl TrafficBy {
    /// Reads names that are separated by commas.
    pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Self>, D::Error> {
        let names = String::deserialize(deserializer)?;
        names.split(',').map(|name| Self::deserialize(name.into_deserializer())).collect()
    }

    /// Whether workers must collect these counters.
    fn is_collected(self) -> bool {
        matches!(self, Self::Endpoints | Self::Clients)
    }
}

/// Breakdowns that have viewers.
#[derive(Default)]
pub(super) struct TrafficBreakdowns {
    services: Option<Breakdown<ServiceLabel>>,
    endpoints: Option<Breakdown<EndpointLabel>>,
    clients: Option<ClientRows>,
    watch: Option<TrafficWatch>,
    /// Uptime when workers were last asked.
    counted: u64,
}

impl TrafficBreakdowns {
    /// Returns an event for each `wanted` breakdown, and drops the others.
    pub(super) fn advance(
        &mut self,
        wanted: &[TrafficBy],
        observer: &Observer,
        uptime: u64,
    ) -> Vec<(TrafficBy, String)> {
        let mut events = Vec::new();
        if !wanted.contains(&TrafficBy::Services) {
            self.services = None;
        }
        if !wanted.contains(&TrafficBy::Endpoints) {
            self.endpoints = None;
        }
        if !wanted.contains(&TrafficBy::Clients) {
            self.clients = None;
        }
        if !wanted.iter().any(|by| by.is_collected()) {
            self.watch = None;
        }
        let traffic = self.watch.as_mut().and_then(|watch| watch.count(PATIENCE));
        self.counted = uptime;
        events.extend(self.services.as_mut().map(|it| (TrafficBy::Services, it.advance(observer, uptime))));
        events.extend(self.endpoints.as_mut().map(|it| (TrafficBy::Endpoints, it.advance(observer, uptime))));
        let clients = self.clients.as_mut();
        events.extend(clients.map(|it| (TrafficBy::Clients, it.advance(traffic, &observer.table(), uptime))));
        events
    }

    /// Event with all rows, for a new viewer.
    pub(super) fn all(&mut self, by: TrafficBy, observer: &Observer, uptime: u64) -> Bytes {
        let begins = match by {
            TrafficBy::Services => false,
            // New connections are counted all the time, but bytes only when workers are asked. Rates need both from the same moment.
            TrafficBy::Endpoints => self.endpoints.is_none(),
            TrafficBy::Clients => self.watch.is_none(),
        };
        let traffic = if begins { self.count(observer, uptime) } else { None };
        // The next collection covers the time since then, even for viewers that arrive later.
        let began = self.counted;
        match by {
            TrafficBy::Services => Breakdown::all(&mut self.services, observer, uptime),
            TrafficBy::Endpoints => Breakdown::all(&mut self.endpoints, observer, began),
            TrafficBy::Clients => self.all_clients(traffic, observer, began),
        }
    }

    /// Asks the workers to count, and starts the collection if needed. The counts of clients are kept for the next event of current
    /// viewers.
    fn count(&mut self, observer: &Observer, uptime: u64) -> Option<ClientTraffic> {
        self.counted = uptime;
        let traffic = self.watch.get_or_insert_with(|| observer.watch_traffic()).count(PATIENCE)?;
        if let Some(clients) = &mut self.clients {
            clients.take(&traffic);
            return None;
        }
        Some(traffic)
    }

    /// A new viewer gets all rows once the workers have answered.
    fn all_clients(&mut self, traffic: Option<ClientTraffic>, observer: &Observer, uptime: u64) -> Bytes {
        let clients = self.clients.get_or_insert_with(|| ClientRows::new(uptime));
        let _nobody_has_it_yet = clients.advance(traffic, &observer.table(), uptime);
        clients.all()
    }
}

/// Counters of one kind of rows.
struct Breakdown<L> {
    rows: NumberedRows<L>,
    /// Row index of each counted item, in the order of the table.
    places: Vec<usize>,
    /// Weak, so that viewers do not keep an old table alive.
    table: Weak<ActiveTable>,
}

impl<L: Counted> Breakdown<L> {
    fn advance(&mut self, observer: &Observer, uptime: u64) -> String {
        let table = observer.table();
        let mut labels = None;
        if !self.table.ptr_eq(&Arc::downgrade(&table)) {
            let (new, places) = merged(L::labels(&table));
            (labels, self.places, self.table) = (Some(new), places, Arc::downgrade(&table));
        }
        let rows = labels.as_ref().map_or(self.rows.len(), Vec::len);
        let counts = L::counts(observer, &table, &self.places, rows);
        self.rows.advance(uptime, labels, &counts)
    }

    fn all(this: &mut Option<Self>, observer: &Observer, uptime: u64) -> Bytes {
        if let Some(breakdown) = this {
            return breakdown.rows.all();
        }
        let mut begun = Self { rows: NumberedRows::new(), places: Vec::new(), table: Weak::new() };
        let _nobody_has_them_yet = begun.advance(observer, uptime);
        this.insert(begun).rows.all()
    }
}

/// Kind of rows that the data plane counts.
trait Counted: Label + Sized {
    /// Labels of all counted items, in the order of the table, each with the frontend that counts it.
    fn labels(table: &ActiveTable) -> Vec<(Self, FrontendAddr)>;

    /// Counters of all `rows`, row by row. `places` has the row index of each counted item.
    fn counts(observer: &Observer, table: &ActiveTable, places: &[usize], rows: usize) -> Vec<u64>;
}

/// Sorts labels and merges those with equal keys. Also returns the row index of each input.
fn merged<L: Label>(labels: Vec<(L, FrontendAddr)>) -> (Vec<LabelledFrontends<L>>, Vec<usize>) {
    let mut sorted: Vec<_> = labels.into_iter().enumerate().map(|(at, label)| (label, at)).collect();
    sorted.sort_unstable();
    let mut places = vec![0; sorted.len()];
    let mut merged: Vec<LabelledFrontends<L>> = Vec::new();
    for ((label, frontend), at) in sorted {
        match merged.last_mut().filter(|last| last.label.compare_keys(&label).is_eq()) {
            Some(row) => row.frontends.push(frontend),
            None => merged.push(LabelledFrontends { label, frontends: vec![frontend] }),
        }
        places[at] = merged.len() - 1;
    }
    // Equal keys are sorted by label, which includes states that differ by frontend.
    merged.iter_mut().for_each(|row| row.frontends.sort_unstable());
    (merged, places)
}

#[cfg(test)]
mod tests;
