//! Counters of each Service: the sum over its frontends.

use std::cmp::Ordering;

use serde::Serialize;
use sheave_dataplane::Observer;
use sheave_dataplane::select::ActiveTable;
use sheave_model::{Frontend, FrontendAddr};

use super::Counted;
use super::numbered::Label;
use crate::views::routes::{row_name, source_name};
use crate::views::traffic::TrafficCounts;

/// Service or listener with frontends.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct ServiceLabel {
    service: String,
    source: &'static str,
}

impl Label for ServiceLabel {
    const EVENT: &'static str = "serviceTraffic";
    const WIDTH: usize = TrafficCounts::WIDTH;

    fn compare_keys(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Counted for ServiceLabel {
    fn labels(table: &ActiveTable) -> Vec<(Self, FrontendAddr)> {
        let label =
            |it: &Frontend| Self { service: row_name(&it.service), source: source_name(it.service.source) };
        table.table().frontends().iter().map(|it| (label(it), it.addr)).collect()
    }

    fn counts(observer: &Observer, table: &ActiveTable, places: &[usize], rows: usize) -> Vec<u64> {
        let mut counts = vec![TrafficCounts::default(); rows];
        for (frontend, place) in table.table().frontends().iter().zip(places) {
            if let Some(workers) = observer.counters(frontend.addr).and_then(|weak| weak.upgrade()) {
                counts[*place].add_frontend(&workers);
            }
        }
        counts.iter().flat_map(TrafficCounts::listed).collect()
    }
}
