//! Rows of `sheave top`: their columns, sort order and filter.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::arguments::TopRows;
use crate::views::numbers::{bytes, rate, short_count};
use crate::views::top::TopTraffic;

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) label: Rc<ItemLabel>,
    pub(super) traffic: TopTraffic,
    /// Percentage of new connections; only for clusters.
    pub(super) share: Option<f64>,
}

/// The parts of a row that do not change each second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ItemLabel {
    /// Text columns, in order, with control characters made visible.
    pub(super) texts: Vec<String>,
    pub(super) severity: Severity,
    /// Number of ready endpoints, and of all; only for Services and clusters.
    pub(super) ready: Option<(usize, usize)>,
    /// Number of Services; only for clusters.
    pub(super) services: usize,
    /// Number of clients that the row sums up; 0 for an ordinary row.
    pub(super) stands_for: usize,
    /// Note that is shown when the row is selected.
    pub(super) note: String,
    /// Searchable text in lower case, for the filter.
    pub(super) words: String,
}

/// Severity of a row's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    #[default]
    Fine,
    Warning,
    Bad,
}

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// The text at this index.
    Text(usize),
    /// Number of Services of a cluster.
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
    /// Name for `--sort`.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Width on a screen; the first column takes the leftover space.
    pub(super) width: u16,
    pub(super) cell: Cell,
}

const fn column(name: &'static str, title: &'static str, width: u16, cell: Cell) -> Column {
    Column { name, title, width, cell }
}

/// Columns of all rows.
const OPEN: Column = column("open", "OPEN", 5, Cell::Open);
const NEW: Column = column("new", "NEW/s", 5, Cell::Opened);
const IN: Column = column("in", "IN/s", 6, Cell::FromClients);
const OUT: Column = column("out", "OUT/s", 6, Cell::ToClients);

const SERVICES: [Column; 9] = [
    column("service", "SERVICE", 0, Cell::Text(0)),
    column("state", "STATE", 8, Cell::Text(1)),
    column("ready", "READY", 7, Cell::Ready),
    OPEN,
    NEW,
    IN,
    OUT,
    column("datagrams", "DGRAM/s", 7, Cell::Datagrams),
    column("errors", "ERR/s", 5, Cell::Errors),
];

const ENDPOINTS: [Column; 8] = [
    column("endpoint", "ENDPOINT", 0, Cell::Text(0)),
    column("service", "SERVICE", 13, Cell::Text(1)),
    column("cluster", "CLUSTER", 8, Cell::Text(2)),
    column("state", "STATE", 11, Cell::Text(3)),
    OPEN,
    NEW,
    IN,
    OUT,
];

const CLUSTERS: [Column; 8] = [
    column("cluster", "CLUSTER", 0, Cell::Text(0)),
    column("services", "SERVICES", 8, Cell::Services),
    column("ready", "READY", 11, Cell::Ready),
    OPEN,
    NEW,
    column("share", "SHARE", 6, Cell::Share),
    IN,
    OUT,
];

const CLIENTS: [Column; 6] = [
    column("clients", "CLIENTS", 0, Cell::Text(0)),
    column("service", "SERVICE", 20, Cell::Text(1)),
    OPEN,
    NEW,
    IN,
    OUT,
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

/// Index of a column by its name.
///
/// # Errors
/// The valid names, if there is no such column.
pub(super) fn column_named(rows: TopRows, name: &str) -> Result<usize, String> {
    let columns = columns(rows);
    columns.iter().position(|column| column.name == name).ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        format!("there is no column {name:?}; sort by {}", names.join(", "))
    })
}

impl Cell {
    /// Whether the column is right-aligned and sorted in descending order.
    pub(super) fn is_number(self) -> bool {
        !matches!(self, Self::Text(_))
    }

    /// Formats the cell of a row.
    pub(super) fn show(self, item: &Item) -> String {
        match self {
            Self::Text(at) => item.label.texts.get(at).cloned().unwrap_or_default(),
            Self::Services => item.label.services.to_string(),
            Self::Ready => match item.label.ready {
                Some((ready, of)) => format!("{ready}/{of}"),
                None => "-".to_owned(),
            },
            Self::Open => short_count(item.traffic.open),
            Self::Opened | Self::Datagrams | Self::Errors => rate(self.number(item)),
            Self::FromClients | Self::ToClients => bytes(self.number(item)),
            Self::Share => item.share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0} %")),
        }
    }

    /// Number of a cell, by which rows are sorted; 0 for texts.
    fn number(self, item: &Item) -> f64 {
        let traffic = &item.traffic;
        match self {
            Self::Text(_) => 0.0,
            Self::Services => item.label.services as f64,
            // A row that lacks fewer endpoints sorts as greater.
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

/// Sort order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// Index of the sort column.
    pub(super) column: usize,
    pub(super) reversed: bool,
}

impl Order {
    /// Default order: most new connections first.
    pub(super) fn usual(rows: TopRows) -> Self {
        let column = columns(rows).iter().position(|column| column.cell == Cell::Opened);
        Self { column: column.unwrap_or_default(), reversed: false }
    }

    /// Describes the order for people.
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

    /// Sorts rows: texts from a to z, states worst first, numbers greatest first. The sort is stable, and
    /// rows arrive ordered by their text, so a second without traffic leaves that order.
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
    /// Whether the label matches all words of the filter, which is in lower case.
    pub(super) fn has(&self, filter: &str) -> bool {
        filter.split_whitespace().all(|word| self.words.contains(word))
    }
}
