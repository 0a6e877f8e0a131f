//! Numbered rows with their counters, and the rates between two counts.

use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;

use super::messages::{COUNTERS, Counters, LabelledRow, LiveClient, LiveEndpoint, LiveService, RowsMessage};
use super::recent::Recent;
use super::table::ItemLabel;
use crate::views::top::TopTraffic;

/// Label of a numbered row.
pub(super) trait TrackedLabel {
    /// Identity of a row, which stays when its number or state changes.
    type Key: Eq + Hash + Clone;

    /// Whether all counts of a new row are from the last second. Otherwise they may be older.
    const BEGINS_EMPTY: bool = false;

    fn key(&self) -> Self::Key;
}

impl TrackedLabel for LiveService {
    type Key = Self;

    fn key(&self) -> Self {
        self.clone()
    }
}

impl TrackedLabel for LiveEndpoint {
    type Key = (LiveService, String, String);

    fn key(&self) -> Self::Key {
        (self.of.clone(), self.cluster.clone(), self.endpoint.clone())
    }
}

impl TrackedLabel for LiveClient {
    type Key = String;

    const BEGINS_EMPTY: bool = true;

    fn key(&self) -> Self::Key {
        self.prefix.clone()
    }
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct TrackedRow<L> {
    pub(super) label: Rc<L>,
    /// The label as shown.
    pub(super) shown: Rc<ItemLabel>,
    /// `None` until the gateway has sent them.
    counters: Option<Counters>,
    pub(super) traffic: TopTraffic,
    recent: Recent,
}

/// All rows of a kind.
#[derive(Clone, Debug)]
pub(super) struct Tracked<L: TrackedLabel> {
    rows: HashMap<u32, TrackedRow<L>>,
    numbers: HashMap<L::Key, u32>,
    /// Row numbers, ordered by the shown text.
    sorted: Vec<u32>,
    clock: RateClock,
}

impl<L: TrackedLabel> Default for Tracked<L> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
            numbers: HashMap::new(),
            sorted: Vec::new(),
            clock: RateClock::default(),
        }
    }
}

impl<L: TrackedLabel> Tracked<L> {
    /// Rows, ordered by the shown text.
    pub(super) fn rows(&self) -> impl Iterator<Item = &TrackedRow<L>> {
        self.numbered().map(|(_, row)| row)
    }

    /// The same with their numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u32, &TrackedRow<L>)> {
        self.sorted.iter().filter_map(|id| Some((*id, self.rows.get(id)?)))
    }

    /// Bars of what a row has opened recently.
    pub(super) fn bars(&self, id: u32, width: usize) -> Option<String> {
        Some(self.rows.get(&id)?.recent.bars(self.clock.last?, width))
    }

    pub(super) fn get_mut(&mut self, key: &L::Key) -> Option<&mut TrackedRow<L>> {
        self.rows.get_mut(self.numbers.get(key)?)
    }

    pub(super) fn contains(&self, key: &L::Key) -> bool {
        self.numbers.contains_key(key)
    }

    /// Clock of the last count.
    pub(super) fn clock(&self) -> RateClock {
        self.clock
    }

    /// Applies counts. Rows that are missing from the message had no traffic. Returns whether rows were added,
    /// removed or changed.
    pub(super) fn take(&mut self, message: RowsMessage<L>, show: impl Fn(&L) -> ItemLabel) -> bool {
        let RowsMessage { uptime_milliseconds, reset, gone, rows, counts } = message;
        let labelled = reset || !gone.is_empty() || !rows.is_empty();
        let before = if reset { self.reset() } else { HashMap::new() };
        for id in gone {
            if let Some(row) = self.rows.remove(&id) {
                self.numbers.remove(&row.label.key());
            }
        }
        for LabelledRow { id, label } in rows {
            let key = label.key();
            // Until the next count, keep the state from before the stream was reopened.
            let known = self.rows.get(&id).map(TrackedRow::counts);
            let (counters, traffic, recent) = known.or_else(|| before.get(&key).copied()).unwrap_or_default();
            let shown = Rc::new(show(&label));
            self.numbers.insert(key, id);
            self.rows.insert(id, TrackedRow { label: Rc::new(label), shown, counters, traffic, recent });
        }
        let seconds = self.clock.advance(uptime_milliseconds);
        if !reset {
            self.rows.values_mut().for_each(TrackedRow::rest);
        }
        for (id, counters) in counts {
            let Some(row) = self.rows.get_mut(&id) else { continue };
            let past = row.counters.replace(counters);
            if reset {
                row.traffic.open = counters.0[1];
            } else {
                let begin = if L::BEGINS_EMPTY { Counters::default() } else { counters };
                row.traffic = between(past.unwrap_or(begin), counters, seconds);
                row.recent
                    .add(uptime_milliseconds, row.traffic.opened_per_second * seconds.unwrap_or_default());
            }
        }
        if labelled {
            self.sort();
        }
        labelled
    }

    /// Sorts rows by their text. Rows arrive and leave rarely, so this does not run each second.
    fn sort(&mut self) {
        let mut sorted: Vec<(&Rc<ItemLabel>, u32)> =
            self.rows.iter().map(|(id, row)| (&row.shown, *id)).collect();
        sorted.sort_unstable_by(|one, other| one.0.texts.cmp(&other.0.texts));
        self.sorted = sorted.into_iter().map(|(_, id)| id).collect();
    }

    fn reset(&mut self) -> HashMap<L::Key, Counts> {
        self.numbers.clear();
        let rows = self.rows.drain();
        rows.map(|(_, row)| (row.label.key(), row.counts())).collect()
    }
}

/// What a row keeps when its number changes.
type Counts = (Option<Counters>, TopTraffic, Recent);

impl<L> TrackedRow<L> {
    fn counts(&self) -> Counts {
        (self.counters, self.traffic, self.recent)
    }

    fn rest(&mut self) {
        self.traffic = TopTraffic { open: self.traffic.open, ..TopTraffic::default() };
    }
}

/// Clock of the counts, in the uptime of the gateway.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateClock {
    last: Option<u64>,
    /// Seconds between the last two counts; `None` without two counts of the same process.
    pub(super) seconds: Option<f64>,
}

impl RateClock {
    /// Records a count, and returns the seconds since the previous one.
    fn advance(&mut self, uptime: u64) -> Option<f64> {
        let milliseconds = self.last.replace(uptime).and_then(|last| uptime.checked_sub(last));
        self.seconds = milliseconds.filter(|it| *it > 0).map(|it| it as f64 / 1000.0);
        self.seconds
    }
}

/// Sum over the whole gateway.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    clock: RateClock,
    counters: Counters,
    pub(super) traffic: TopTraffic,
}

impl Total {
    pub(super) fn take(&mut self, uptime: u64, counters: Counters) {
        let seconds = self.clock.advance(uptime);
        self.traffic = between(self.counters, counters, seconds);
        self.counters = counters;
    }
}

/// Rates between two counts. A counter that falls, as when a frontend is removed, counts as no traffic.
fn between(before: Counters, now: Counters, seconds: Option<f64>) -> TopTraffic {
    let rate = |at: usize| {
        let moved = now.0[at].saturating_sub(before.0[at]) as f64;
        seconds.map_or(0.0, |seconds| moved / seconds)
    };
    const { assert!(COUNTERS == 6, "each counter is one of these") };
    TopTraffic {
        open: now.0[1],
        opened_per_second: rate(0),
        client_bytes_per_second: rate(2),
        endpoint_bytes_per_second: rate(3),
        datagrams_per_second: rate(4),
        errors_per_second: rate(5),
    }
}
