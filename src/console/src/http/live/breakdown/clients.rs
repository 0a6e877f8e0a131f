//! Networks of clients: open connections, and traffic since the network got a row.
//!
//! There may be as many networks as connections. Only those with the highest counters have rows, or that had them until a few seconds ago.
//! All others share one row.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use axum::body::Bytes;
use serde::Serialize;
use sheave_control::api::store::ServiceKey;
use sheave_dataplane::select::ActiveTable;
use sheave_dataplane::{ClientCounts, ClientPrefix, ClientTraffic};

use super::numbered::{Label, LabelledFrontends, NumberedRows};
use crate::views::routes::source_name;

/// Number of networks with rows for each counter. A list that is sorted by any counter is correct down to this position.
const MOST_BY_EACH: usize = 500;
/// Counters that decide which networks have rows.
const RANKS: [fn(&ClientCounts) -> u64; 4] =
    [|it| it.open, |it| it.opened, |it| it.client_bytes, |it| it.endpoint_bytes];
/// Up to this number, all networks have rows.
const ROWS: usize = RANKS.len() * MOST_BY_EACH;
/// Number of counts for which a row outlives its rank, so that the rows of occasional clients stay.
const LASTS: u32 = 10;

/// Rows with their counts.
pub(super) struct ClientRows {
    rows: NumberedRows<ClientLabel>,
    known: HashMap<ClientPrefix, KnownClient>,
    /// Counts of all networks without a row, since the first viewer.
    others: ClientCounts,
}

/// Network with a row.
#[derive(Default)]
struct KnownClient {
    counts: ClientCounts,
    service: Option<ServiceKey>,
    /// Number of counts since it was last among the highest.
    since_chosen: u32,
}

/// A network, or all networks without a row.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct ClientLabel {
    /// Empty for the networks without a row.
    prefix: String,
    /// Service with the most bytes for this network in the last second, or else with the most open connections.
    service: String,
    source: &'static str,
    /// Approximate number of networks without a row. If there are too many to tell apart, one that returns counts again.
    #[serde(skip_serializing_if = "is_zero")]
    others: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Label for ClientLabel {
    const EVENT: &'static str = "clientTraffic";
    const WIDTH: usize = 4;

    fn compare_keys(&self, other: &Self) -> Ordering {
        self.prefix.cmp(&other.prefix)
    }
}

impl ClientRows {
    /// Starts without rows, at this uptime.
    pub(super) fn new(uptime: u64) -> Self {
        let mut rows = NumberedRows::new();
        let _nobody_has_them_yet = rows.advance(uptime, None, &[]);
        Self { rows, known: HashMap::new(), others: ClientCounts::default() }
    }

    /// Applies the traffic since the last call and returns the event. Without traffic there is no event, since rates cover the time between
    /// two events.
    pub(super) fn advance(
        &mut self,
        traffic: Option<ClientTraffic>,
        table: &ActiveTable,
        uptime: u64,
    ) -> String {
        let Some(traffic) = traffic else { return String::new() };
        let clients = self.take(&traffic);
        self.name_services(&traffic, table);
        let without_row = clients.keys().filter(|client| !self.known.contains_key(client)).count();
        let (labels, counts) = self.labelled(traffic.merged() + without_row as u64);
        self.rows.advance(uptime, Some(labels), &counts)
    }

    /// Applies the traffic since the last call, for the next event.
    pub(super) fn take(&mut self, traffic: &ClientTraffic) -> HashMap<ClientPrefix, ClientCounts> {
        let mut clients = HashMap::<ClientPrefix, ClientCounts>::new();
        traffic.iter().for_each(|(client, _, counts)| *clients.entry(client).or_default() += counts);
        self.add(&clients);
        self.others += traffic.others();
        clients
    }

    /// Event with all rows as of the last call.
    pub(super) fn all(&mut self) -> Bytes {
        self.rows.all()
    }

    fn add(&mut self, clients: &HashMap<ClientPrefix, ClientCounts>) {
        let chosen = with_most(clients);
        for (client, known) in &mut self.known {
            known.counts.open = 0;
            known.since_chosen = if chosen.contains(client) { 0 } else { known.since_chosen + 1 };
        }
        let crowded = self.known.len() > ROWS;
        self.known.retain(|_, known| known.since_chosen == 0 || (known.since_chosen <= LASTS && !crowded));
        for client in chosen {
            self.known.entry(client).or_default();
        }
        self.others.open = 0;
        for (client, counts) in clients {
            let sum = self.known.get_mut(client).map_or(&mut self.others, |known| &mut known.counts);
            *sum += *counts;
        }
    }

    fn name_services(&mut self, traffic: &ClientTraffic, table: &ActiveTable) {
        let mut services = HashMap::<ClientPrefix, BTreeMap<ServiceKey, ClientCounts>>::new();
        for (client, frontend, counts) in
            traffic.iter().filter(|(client, ..)| self.known.contains_key(client))
        {
            let Some(active) = table.get(frontend) else { continue };
            let service = ServiceKey::from(&active.spec().service);
            *services.entry(client).or_default().entry(service).or_default() += counts;
        }
        for (client, services) in services {
            // Of equal Services, take the first by name, so that they do not alternate.
            let weight = |counts: &ClientCounts| (counts.bytes(), counts.open, counts.opened);
            let most = services.into_iter().rev().max_by_key(|(_, counts)| weight(counts));
            if let Some(known) = self.known.get_mut(&client) {
                known.service = most.map(|(service, _)| service);
            }
        }
    }

    /// Rows in the order of their labels, with their counters.
    fn labelled(&mut self, others: u64) -> (Vec<LabelledFrontends<ClientLabel>>, Vec<u64>) {
        if others == 0 {
            // The row disappears, and starts from zero when it returns.
            self.others = ClientCounts::default();
        }
        let known = self.known.iter().map(|(client, known)| (known.label(*client), known.counts));
        let mut rows: Vec<(ClientLabel, ClientCounts)> = known.collect();
        if others > 0 {
            rows.push((ClientLabel { others, ..ClientLabel::default() }, self.others));
        }
        rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let listed = |it: &ClientCounts| [it.opened, it.open, it.client_bytes, it.endpoint_bytes];
        let counts = rows.iter().flat_map(|(_, counts)| listed(counts)).collect();
        let labels = rows.into_iter().map(|(label, _)| LabelledFrontends { label, frontends: Vec::new() });
        (labels.collect(), counts)
    }
}

impl KnownClient {
    fn label(&self, client: ClientPrefix) -> ClientLabel {
        let service = self.service.as_ref();
        ClientLabel {
            prefix: client.to_string(),
            service: service.map(ServiceKey::to_string).unwrap_or_default(),
            source: service.map(|service| source_name(service.source)).unwrap_or_default(),
            others: 0,
        }
    }
}

/// Networks that are among the highest by any counter.
fn with_most(clients: &HashMap<ClientPrefix, ClientCounts>) -> HashSet<ClientPrefix> {
    if clients.len() <= ROWS {
        return clients.keys().copied().collect();
    }
    let mut chosen = HashSet::new();
    for rank in RANKS {
        let mut ranked: Vec<(u64, ClientPrefix)> =
            clients.iter().map(|(client, counts)| (rank(counts), *client)).collect();
        let (most, ..) = ranked.select_nth_unstable_by(MOST_BY_EACH, |one, other| other.cmp(one));
        chosen.extend(most.iter().filter(|(count, _)| *count > 0).map(|(_, client)| *client));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn network(number: usize) -> ClientPrefix {
        ClientPrefix::of(Ipv4Addr::from((number << 8) as u32).into())
    }

    fn open(open: usize) -> ClientCounts {
        ClientCounts { open: open as u64, opened: 1, ..ClientCounts::default() }
    }

    #[test]
    fn networks_with_the_most_of_anything_have_rows_and_the_others_are_one() {
        let mut clients: HashMap<_, _> = (0..100_000).map(|number| (network(number), open(number))).collect();
        let by_bytes: [fn(&mut ClientCounts) -> &mut u64; 2] =
            [|it| &mut it.client_bytes, |it| &mut it.endpoint_bytes];
        for (number, bytes) in (0..2).zip(by_bytes) {
            *bytes(clients.get_mut(&network(number)).unwrap()) = 1;
        }
        let mut rows = ClientRows::new(0);
        rows.add(&clients);
        assert!(
            (100_000 - MOST_BY_EACH..100_000).chain(0..2).all(|it| rows.known.contains_key(&network(it)))
        );
        assert!(rows.known.len() <= ROWS);
        let mut sum = rows.others;
        rows.known.values().for_each(|known| sum += known.counts);
        let mut expected = ClientCounts::default();
        clients.values().for_each(|counts| expected += *counts);
        assert_eq!(sum, expected);
        let (labels, counts) = rows.labelled(7);
        assert_eq!((labels[0].label.prefix.as_str(), labels[0].label.others), ("", 7));
        assert_eq!(counts[..2], [rows.others.opened, rows.others.open]);
        assert!(labels.is_sorted_by(|one, other| one.label.compare_keys(&other.label).is_lt()));
        // However many networks come and go, the number of rows is bounded by the highest and the previous ones.
        for second in 1..30 {
            let others =
                (0..100_000).map(|number| (network(second * 100_000 + number), open(number))).collect();
            rows.add(&others);
            assert!(rows.known.len() <= 2 * ROWS, "{}", rows.known.len());
        }
    }

    #[test]
    fn the_row_of_the_others_begins_anew_after_a_time_without_it() {
        let mut rows = ClientRows::new(0);
        rows.others = open(5);
        assert_eq!(rows.labelled(3).1, [1, 5, 0, 0]);
        assert_eq!(rows.labelled(0).1, [0; 0]);
        assert_eq!(rows.labelled(3).1, [0; 4]);
    }

    #[test]
    fn a_row_lasts_some_seconds_and_begins_anew_after_that() {
        let (mut rows, clients) = (ClientRows::new(0), HashMap::from([(network(1), open(3))]));
        rows.add(&clients);
        rows.add(&clients);
        for _ in 0..LASTS {
            rows.add(&HashMap::new());
            let counts = rows.known[&network(1)].counts;
            assert_eq!((counts.open, counts.opened), (0, 2));
        }
        rows.add(&HashMap::new());
        assert!(rows.known.is_empty());
        rows.add(&clients);
        assert_eq!(rows.known[&network(1)].counts, open(3));
    }
}
