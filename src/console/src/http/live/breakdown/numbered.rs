//! Rows with stable numbers, and the events between two states.

use std::cmp::Ordering;

use axum::body::Bytes;
use serde::Serialize;
use sheave_model::FrontendAddr;

use crate::http::live::event::event;

/// Label of a row. Its order starts with its key.
pub(super) trait Label: Ord + Serialize {
    /// Name of the events.
    const EVENT: &'static str;
    /// Number of counters in a row.
    const WIDTH: usize;

    /// Compares the keys. Rows with equal keys are the same row.
    fn compare_keys(&self, other: &Self) -> Ordering;
}

/// Row without a number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LabelledFrontends<L> {
    pub(super) label: L,
    /// Frontends whose counters the row sums up, sorted.
    pub(super) frontends: Vec<FrontendAddr>,
}

struct NumberedRow<L> {
    id: u32,
    row: LabelledFrontends<L>,
    counts: Vec<u64>,
}

/// Rows, sorted by key.
pub(super) struct NumberedRows<L> {
    rows: Vec<NumberedRow<L>>,
    uptime: u64,
    /// Unused numbers below `next`.
    free: Vec<u32>,
    next: u32,
    /// Event with all rows, for new viewers until the next change.
    all: Option<Bytes>,
}

/// JSON of an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RowsEvent<'a, L> {
    /// Uptime of the count.
    uptime_milliseconds: u64,
    /// Whether all earlier rows are discarded.
    reset: bool,
    /// Numbers of removed rows, which may be reused at once. A row gets a new number when it sums up different frontends: a frontend
    /// keeps its counters when it moves to another Service, and they are not traffic of that second.
    gone: Vec<u32>,
    /// Rows that are new or have a new label.
    rows: Vec<RowEntry<'a, L>>,
    /// Number and counters of each row whose counters changed.
    counts: Vec<(u32, &'a [u64])>,
}

#[derive(Serialize)]
struct RowEntry<'a, L> {
    id: u32,
    #[serde(flatten)]
    label: &'a L,
}

impl<L: Label> NumberedRows<L> {
    pub(super) fn new() -> Self {
        Self { rows: Vec::new(), uptime: 0, free: Vec::new(), next: 0, all: None }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Applies labels, if they changed, and the counters of all rows. Returns the event with the changes.
    pub(super) fn advance(
        &mut self,
        uptime: u64,
        labels: Option<Vec<LabelledFrontends<L>>>,
        counts: &[u64],
    ) -> String {
        (self.uptime, self.all) = (uptime, None);
        let (gone, labelled) = labels.map(|labels| self.relabel(labels)).unwrap_or_default();
        let mut moved = Vec::new();
        for (at, (row, now)) in self.rows.iter_mut().zip(counts.chunks_exact(L::WIDTH)).enumerate() {
            if row.counts != now {
                row.counts.clear();
                row.counts.extend_from_slice(now);
                moved.push(at);
            }
        }
        let entry = |at: usize| RowEntry { id: self.rows[at].id, label: &self.rows[at].row.label };
        let counted = |at: usize| (self.rows[at].id, self.rows[at].counts.as_slice());
        let rows_event = RowsEvent {
            uptime_milliseconds: uptime,
            reset: false,
            gone,
            rows: labelled.into_iter().map(entry).collect(),
            counts: moved.into_iter().map(counted).collect(),
        };
        event(L::EVENT, None, &rows_event)
    }

    /// Event with all rows as of the last call.
    pub(super) fn all(&mut self) -> Bytes {
        let Self { rows, uptime, all, .. } = self;
        let everything = all.get_or_insert_with(|| {
            let entries = rows.iter().map(|it| RowEntry { id: it.id, label: &it.row.label });
            let counts = rows.iter().map(|it| (it.id, it.counts.as_slice()));
            let rows_event = RowsEvent {
                uptime_milliseconds: *uptime,
                reset: true,
                gone: Vec::new(),
                rows: entries.collect(),
                counts: counts.collect(),
            };
            event(L::EVENT, None, &rows_event).into()
        });
        everything.clone()
    }

    /// Applies labels. Returns the numbers of removed rows, and the indexes of rows that are new or have a new label.
    fn relabel(&mut self, labels: Vec<LabelledFrontends<L>>) -> (Vec<u32>, Vec<usize>) {
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        let mut old = std::mem::take(&mut self.rows).into_iter().peekable();
        let mut rows = Vec::with_capacity(labels.len());
        for row in labels {
            let order = |it: &NumberedRow<L>| it.row.label.compare_keys(&row.label);
            while let Some(before) = old.next_if(|it| order(it).is_lt()) {
                gone.push(before.id);
            }
            match old.next_if(|it| order(it).is_eq()) {
                Some(before) if before.row == row => rows.push(before),
                Some(before) if before.row.frontends == row.frontends => {
                    changed.push(rows.len());
                    rows.push(NumberedRow { row, ..before });
                }
                before => {
                    gone.extend(before.map(|it| it.id));
                    changed.push(rows.len());
                    rows.push(NumberedRow { id: self.number(), row, counts: Vec::new() });
                }
            }
        }
        gone.extend(old.map(|row| row.id));
        self.free.extend(&gone);
        self.rows = rows;
        (gone, changed)
    }

    fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}
