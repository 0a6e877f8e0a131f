//! Rows of `sheave top`: their columns, sort order and filter.

use std::cmp::Ordering;
use std::rc::Rc;

use super::messages::LiveService;
use super::recent::SAMPLES;
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
    /// Number of the row, if it has counters of its own.
    pub(super) number: Option<u32>,
}

/// The parts of a row that do not change each second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ItemLabel {
    /// Text columns, in order, with control characters made visible.
    pub(super) texts: Vec<String>,
    /// Their widths on a screen.
    pub(super) widths: Vec<u16>,
    pub(super) severity: Severity,
    /// Number of ready endpoints, and of all; only for Services and clusters.
    pub(super) ready: Option<(usize, usize)>,
    /// Number of Services; only for clusters.
    pub(super) services: usize,
    /// Number of clients that the row sums up; 0 for an ordinary row.
    pub(super) stands_for: usize,
    /// Service that an explanation of the row is about.
    pub(super) of: Option<LiveService>,
    /// Reason for the state, or a remark; may be empty.
    pub(super) why: String,
    pub(super) why_width: u16,
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
    /// Bars of what was opened recently.
    Recent,
    /// The reason for the state.
    Why,
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

/// Name of the column with the state of a row.
pub(super) const STATE: &str = "state";

/// Columns of all rows.
const OPEN: Column = column("open", "OPEN", 5, Cell::Open);
const NEW: Column = column("new", "NEW/s", 5, Cell::Opened);
const IN: Column = column("in", "IN/s", 6, Cell::FromClients);
const OUT: Column = column("out", "OUT/s", 6, Cell::ToClients);

const SERVICES: [Column; 9] = [
    column("service", "SERVICE", 0, Cell::Text(0)),
    column(STATE, "STATE", 8, Cell::Text(1)),
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
    column(STATE, "STATE", 11, Cell::Text(3)),
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

const RECENT: Column = column("recent", "RECENT", SAMPLES as u16, Cell::Recent);
const WHY: Column = column("why", "WHY", 30, Cell::Why);
const NODE: Column = column("node", "NODE", 0, Cell::Text(4));

/// Further columns that a wide screen has room for, the most useful first. Rows are not sorted by them.
pub(super) fn wide_columns(rows: TopRows) -> &'static [Column] {
    match rows {
        TopRows::Services => &[WHY, RECENT],
        TopRows::Endpoints => &[WHY, NODE, RECENT],
        TopRows::Clusters => &[],
        TopRows::Clients => &[RECENT],
    }
}

/// Number of texts that tell rows apart; others may change.
pub(super) fn key_length(rows: TopRows) -> usize {
    if rows == TopRows::Endpoints { 3 } else { 1 }
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
        !matches!(self, Self::Text(_) | Self::Recent | Self::Why)
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
            Self::Why => item.label.why.clone(),
            // Drawn from the model, since it changes without the row.
            Self::Recent => String::new(),
        }
    }

    /// Number of a cell, by which rows are sorted; 0 for texts.
    fn number(self, item: &Item) -> f64 {
        let traffic = &item.traffic;
        match self {
            Self::Text(_) | Self::Recent | Self::Why => 0.0,
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
    /// Whether rows that are not well stand above all others.
    pub(super) state_first: bool,
}

impl Order {
    /// Default order: rows that are not well first, and then most new connections.
    pub(super) fn usual(rows: TopRows) -> Self {
        let column = columns(rows).iter().position(|column| column.cell == Cell::Opened);
        Self { column: column.unwrap_or_default(), reversed: false, state_first: true }
    }

    /// Describes the order for people.
    pub(super) fn describe(self, rows: TopRows) -> String {
        let Some(column) = columns(rows).get(self.column) else { return String::new() };
        let way = match (column.cell.is_number(), column.name, self.reversed) {
            (true, _, false) => "most first",
            (true, _, true) => "least first",
            (false, STATE, false) => "worst first",
            (false, STATE, true) => "best first",
            (false, _, false) => "a to z",
            (false, _, true) => "z to a",
        };
        let first = if self.by_state(rows) && column.name != STATE { "state, then " } else { "" };
        format!("{first}{}, {way}", column.title)
    }

    /// Whether the state decides before the column does.
    fn by_state(self, rows: TopRows) -> bool {
        self.state_first && columns(rows).iter().any(|column| column.name == STATE)
    }

    /// Sorts rows: texts from a to z, states worst first, numbers greatest first. The sort is stable, and
    /// rows arrive ordered by their text, so a second without traffic leaves that order.
    pub(super) fn sort(self, rows: TopRows, items: &mut [Item]) {
        let Some(column) = columns(rows).get(self.column) else { return };
        let (cell, by_state) = (column.cell, self.by_state(rows));
        let state = |one: &Item, other: &Item| other.label.severity.cmp(&one.label.severity);
        let by_column = |one: &Item, other: &Item| match cell {
            Cell::Text(_) if column.name == STATE => state(one, other),
            Cell::Text(at) => one.label.texts.get(at).cmp(&other.label.texts.get(at)),
            _ => cell.number(other).total_cmp(&cell.number(one)),
        };
        let turned = |order: Ordering| if self.reversed { order.reverse() } else { order };
        items.sort_by(|one, other| {
            let first = if by_state { state(one, other) } else { Ordering::Equal };
            first.then_with(|| turned(by_column(one, other)))
        });
    }
}

impl ItemLabel {
    /// Whether the label matches all words of the filter, which is in lower case.
    pub(super) fn has(&self, filter: &str) -> bool {
        filter.split_whitespace().all(|word| self.words.contains(word))
    }
}
