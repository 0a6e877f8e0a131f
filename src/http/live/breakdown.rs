//! The counters of all Services, endpoints or clients, for those who look at all of them: rows have numbers, and after the first time
//! only what changed is sent.

mod clients;
mod endpoints;
mod numbered;
mod services;

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use serde::Deserialize;
use sheave_dataplane::select::ActiveTable;
use sheave_dataplane::{ClientTraffic, Observer, TrafficWatch};
use sheave_model::FrontendAddr;

use self::clients::ClientRows;
use self::endpoints::EndpointLabel;
use self::numbered::{Label, LabelledFrontends, NumberedRows};
use self::services::ServiceLabel;

/// How long workers have to look at all that they have open: milliseconds, while they are not stuck.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whose counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum TrafficBy {
    Services,
    Endpoints,
    Clients,
}

impl TrafficBy {
    /// Whether workers have to collect something for it.
    fn is_collected(self) -> bool {
        matches!(self, Self::Endpoints | Self::Clients)
    }
}

/// Those that somebody looks at.
#[derive(Default)]
pub(super) struct TrafficBreakdowns {
    services: Option<Breakdown<ServiceLabel>>,
    endpoints: Option<Breakdown<EndpointLabel>>,
    clients: Option<ClientRows>,
    watch: Option<TrafficWatch>,
    /// The uptime at which workers were last asked.
    counted: u64,
}

impl TrafficBreakdowns {
    /// An event for each of those that are `wanted`; the others are given up.
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

    /// All rows, for somebody who begins to look.
    pub(super) fn all(&mut self, by: TrafficBy, observer: &Observer, uptime: u64) -> Bytes {
        let begins = match by {
            TrafficBy::Services => false,
            // What is chosen is counted all the time and what is passed on when workers are asked: rates need both of one moment.
            TrafficBy::Endpoints => self.endpoints.is_none(),
            TrafficBy::Clients => self.watch.is_none(),
        };
        let traffic = if begins { self.count(observer, uptime) } else { None };
        // What is collected next is that of the time since then, whenever somebody begins to look.
        let began = self.counted;
        match by {
            TrafficBy::Services => Breakdown::all(&mut self.services, observer, uptime),
            TrafficBy::Endpoints => Breakdown::all(&mut self.endpoints, observer, began),
            TrafficBy::Clients => self.all_clients(traffic, observer, began),
        }
    }

    /// Asks workers, who are asked from now on. Of clients that somebody looks at nothing is lost: it is in their next event.
    fn count(&mut self, observer: &Observer, uptime: u64) -> Option<ClientTraffic> {
        self.counted = uptime;
        let traffic = self.watch.get_or_insert_with(|| observer.watch_traffic()).count(PATIENCE)?;
        if let Some(clients) = &mut self.clients {
            clients.take(&traffic);
            return None;
        }
        Some(traffic)
    }

    /// Those that begin to look have all rows when workers have answered.
    fn all_clients(&mut self, traffic: Option<ClientTraffic>, observer: &Observer, uptime: u64) -> Bytes {
        let clients = self.clients.get_or_insert_with(|| ClientRows::new(uptime));
        let _nobody_has_it_yet = clients.advance(traffic, &observer.table(), uptime);
        clients.all()
    }
}

/// The counters of one kind of row.
struct Breakdown<L> {
    rows: NumberedRows<L>,
    /// The row of each thing that is counted, in the order of the table.
    places: Vec<usize>,
    /// Weak, so that no table is kept for those who look.
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

/// A kind of row.
trait Counted: Label + Sized {
    /// Of each thing that is counted, in the order of the table, with the frontend that counts it.
    fn labels(table: &ActiveTable) -> Vec<(Self, FrontendAddr)>;

    /// The counters of so many rows, one row after the other, by the row of each thing that is counted.
    fn counts(observer: &Observer, table: &ActiveTable, places: &[usize], rows: usize) -> Vec<u64>;
}

/// The labels in their order, one for each key, and the place there of each that was given.
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
    // They came in the order of their labels, in which states of endpoints differ by frontend.
    merged.iter_mut().for_each(|row| row.frontends.sort_unstable());
    (merged, places)
}

#[cfg(test)]
mod tests;
