//! The rows that `sheave top` shows: their columns, their order, and which of them are searched for.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::cli::TopRows;
use crate::views::numbers::{bytes, rate, short_count};
use crate::views::top::TopTraffic;

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) label: Rc<ItemLabel>,
    pub(super) traffic: TopTraffic,
    /// Part of what is new, in percent; of clusters alone.
    pub(super) share: Option<f64>,
}

/// What of a row does not move.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ItemLabel {
    /// The text columns, in their order; nothing in them is unseen.
    pub(super) texts: Vec<String>,
    pub(super) severity: Severity,
    /// Endpoints that are ready, and all; of Services and clusters alone.
    pub(super) ready: Option<(usize, usize)>,
    /// Of clusters alone.
    pub(super) services: usize,
    /// How many rows it is in place of; 0 for one that is itself.
    pub(super) stands_for: usize,
    /// What people should know of it.
    pub(super) note: String,
    /// In lower case, for the filter.
    pub(super) words: String,
}

/// How bad a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    #[default]
    Fine,
    Warning,
    Bad,
}

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// The text at this place.
    Text(usize),
    /// How many Services a cluster has.
    Services,
    Ready,
    Open,
    Opened,
    FromClients,
    ToClients,
    Datagrams,
    Errors,
    Share,
}

/// One column.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// As `--sort` has it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// On a screen; the first column takes what is left.
    pub(super) width: u16,
    pub(super) cell: Cell,
}

const fn column(name: &'static str, title: &'static str, width: u16, cell: Cell) -> Column {
    Column { name, title, width, cell }
}

const SERVICES: [Column; 9] = [
    column("service", "SERVICE", 0, Cell::Text(0)),
    column("state", "STATE", 8, Cell::Text(1)),
    column("ready", "READY", 7, Cell::Ready),
    column("open", "OPEN", 5, Cell::Open),
    column("new", "NEW/s", 5, Cell::Opened),
    column("in", "IN/s", 6, Cell::FromClients),
    column("out", "OUT/s", 6, Cell::ToClients),
    column("datagrams", "DGRAM/s", 7, Cell::Datagrams),
    column("errors", "ERR/s", 5, Cell::Errors),
];

const ENDPOINTS: [Column; 8] = [
    column("endpoint", "ENDPOINT", 0, Cell::Text(0)),
    column("service", "SERVICE", 13, Cell::Text(1)),
    column("cluster", "CLUSTER", 8, Cell::Text(2)),
    column("state", "STATE", 11, Cell::Text(3)),
    column("open", "OPEN", 5, Cell::Open),
    column("new", "NEW/s", 5, Cell::Opened),
    column("in", "IN/s", 6, Cell::FromClients),
    column("out", "OUT/s", 6, Cell::ToClients),
];

const CLUSTERS: [Column; 8] = [
    column("cluster", "CLUSTER", 0, Cell::Text(0)),
    column("services", "SERVICES", 8, Cell::Services),
    column("ready", "READY", 11, Cell::Ready),
    column("open", "OPEN", 5, Cell::Open),
    column("new", "NEW/s", 5, Cell::Opened),
    column("share", "SHARE", 6, Cell::Share),
    column("in", "IN/s", 6, Cell::FromClients),
    column("out", "OUT/s", 6, Cell::ToClients),
];

const CLIENTS: [Column; 6] = [
    column("clients", "CLIENTS", 0, Cell::Text(0)),
    column("service", "SERVICE", 20, Cell::Text(1)),
    column("open", "OPEN", 5, Cell::Open),
    column("new", "NEW/s", 5, Cell::Opened),
    column("in", "IN/s", 6, Cell::FromClients),
    column("out", "OUT/s", 6, Cell::ToClients),
];

/// The columns of these rows.
pub(super) fn columns(rows: TopRows) -> &'static [Column] {
    match rows {
        TopRows::Services => &SERVICES,
        TopRows::Endpoints => &ENDPOINTS,
        TopRows::Clusters => &CLUSTERS,
        TopRows::Clients => &CLIENTS,
    }
}

/// The place of a column by its name.
///
/// # Errors
/// The names that there are.
pub(super) fn column_named(rows: TopRows, name: &str) -> Result<usize, String> {
    let columns = columns(rows);
    columns.iter().position(|column| column.name == name).ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        format!("there is no column {name:?}; sort by {}", names.join(", "))
    })
}

impl Cell {
    /// Whether it is aligned to the right, and most come first.
    pub(super) fn is_number(self) -> bool {
        !matches!(self, Self::Text(_))
    }

    /// What is shown.
    pub(super) fn show(self, item: &Item) -> String {
        let traffic = &item.traffic;
        match self {
            Self::Text(at) => item.label.texts.get(at).cloned().unwrap_or_default(),
            Self::Services => item.label.services.to_string(),
            Self::Ready => match item.label.ready {
                Some((ready, of)) => format!("{ready}/{of}"),
                None => "-".to_owned(),
            },
            Self::Open => short_count(traffic.open),
            Self::Opened => rate(traffic.opened_per_second),
            Self::FromClients => bytes(traffic.client_bytes_per_second),
            Self::ToClients => bytes(traffic.endpoint_bytes_per_second),
            Self::Datagrams => rate(traffic.datagrams_per_second),
            Self::Errors => rate(traffic.errors_per_second),
            Self::Share => item.share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0} %")),
        }
    }

    /// What numbers are sorted by.
    fn number(self, item: &Item) -> f64 {
        let traffic = &item.traffic;
        match self {
            Self::Text(_) => 0.0,
            Self::Services => item.label.services as f64,
            // Fewer missing ones count as more.
            Self::Ready => item.label.ready.map_or(0.0, |(ready, of)| ready as f64 - of as f64),
            Self::Open => traffic.open as f64,
            Self::Opened => traffic.opened_per_second,
            Self::FromClients => traffic.client_bytes_per_second,
            Self::ToClients => traffic.endpoint_bytes_per_second,
            Self::Datagrams => traffic.datagrams_per_second,
            Self::Errors => traffic.errors_per_second,
            Self::Share => item.share.unwrap_or_default(),
        }
    }
}

/// An order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The place of its column.
    pub(super) column: usize,
    pub(super) reversed: bool,
}

impl Order {
    /// Of most new connections first.
    pub(super) fn usual(rows: TopRows) -> Self {
        let column = columns(rows).iter().position(|column| column.cell == Cell::Opened);
        Self { column: column.unwrap_or_default(), reversed: false }
    }

    /// For people.
    pub(super) fn describe(self, rows: TopRows) -> String {
        let Some(column) = columns(rows).get(self.column) else { return String::new() };
        let way = match (column.cell.is_number(), column.name, self.reversed) {
            (true, _, false) => "most first",
            (true, _, true) => "least first",
            (false, "state", false) => "worst first",
            (false, "state", true) => "best first",
            (false, _, false) => "a to z",
            (false, _, true) => "z to a",
        };
        format!("{}, {way}", column.title)
    }

    /// Sorts rows: texts from a to z, states the worst first, numbers the greatest first. Equal ones
    /// stay as they are: by their texts, in which a second without traffic has little to sort.
    pub(super) fn sort(self, rows: TopRows, items: &mut [Item]) {
        let Some(column) = columns(rows).get(self.column) else { return };
        let cell = column.cell;
        let by_column = |one: &Item, other: &Item| match cell {
            Cell::Text(_) if column.name == "state" => other.label.severity.cmp(&one.label.severity),
            Cell::Text(at) => one.label.texts.get(at).cmp(&other.label.texts.get(at)),
            _ => cell.number(other).total_cmp(&cell.number(one)),
        };
        let turned = |order: Ordering| if self.reversed { order.reverse() } else { order };
        items.sort_by(|one, other| turned(by_column(one, other)));
    }
}

impl ItemLabel {
    /// Whether it has all words of the filter, which is in lower case.
    pub(super) fn has(&self, filter: &str) -> bool {
        filter.split_whitespace().all(|word| self.words.contains(word))
    }
}
