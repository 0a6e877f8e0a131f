//! Services as events: all of them for a new page, and the changes for a page that returns.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use serde::Serialize;

use super::event::event;
use crate::views::services::ServiceRow;

/// Services per event; a browser takes a few milliseconds for this many.
const AT_ONCE: usize = 500;
/// Size of the kept changes in bytes. A page that has missed more gets everything.
const KEPT: usize = 1 << 20;

/// Current Services and recent changes.
pub(super) struct ServiceEvents {
    /// Random, so that it differs between processes and between periods with pages.
    epoch: u128,
    version: u64,
    /// Rows, sorted by name and kind.
    rows: Vec<ServiceRow>,
    /// Recent events with their versions.
    changes: VecDeque<(u64, String)>,
    /// Events with all rows of this version.
    all: Option<Vec<Bytes>>,
}

/// New or changed rows, and removed ones.
#[derive(Debug, Default, Serialize)]
struct ServicesEvent<'a> {
    /// Whether all earlier rows are discarded.
    reset: bool,
    rows: Vec<&'a ServiceRow>,
    removed: Vec<RemovedRow<'a>>,
    /// Number of rows that follow in further events.
    more: usize,
}

#[derive(Debug, Serialize)]
struct RemovedRow<'a> {
    service: &'a str,
    source: &'static str,
}

impl ServiceEvents {
    pub(super) fn new() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Self { epoch, version: 0, rows: Vec::new(), changes: VecDeque::new(), all: None }
    }

    /// Applies the current rows, and returns the events with the changes.
    pub(super) fn advance(&mut self, rows: Vec<ServiceRow>) -> String {
        let before = std::mem::replace(&mut self.rows, rows);
        let change = difference(&before, &self.rows);
        if change.rows.is_empty() && change.removed.is_empty() {
            return String::new();
        }
        self.version += 1;
        self.all = None;
        let id = format!("{:x}-{}", self.epoch, self.version);
        let events = chunks(change, &id).concat();
        self.changes.push_back((self.version, events.clone()));
        let mut kept: usize = self.changes.iter().map(|(_, events)| events.len()).sum();
        while kept > KEPT
            && let Some((_, dropped)) = self.changes.pop_front()
        {
            kept -= dropped.len();
        }
        events
    }

    /// Events that a page is missing after its last event, or all if it has none.
    pub(super) fn since(&mut self, last_event: Option<&str>) -> VecDeque<Bytes> {
        let version = last_event.and_then(|id| self.version_of(id));
        let first_kept = self.changes.front().map_or(self.version + 1, |(version, _)| *version);
        match version {
            Some(version) if version + 1 >= first_kept && version <= self.version => {
                let lacking = self.changes.iter().filter(|(later, _)| *later > version);
                lacking.map(|(_, events)| Bytes::from(events.clone())).collect()
            }
            _ => self.all().iter().cloned().collect(),
        }
    }

    fn version_of(&self, id: &str) -> Option<u64> {
        let (epoch, version) = id.split_once('-')?;
        let same = u128::from_str_radix(epoch, 16).is_ok_and(|epoch| epoch == self.epoch);
        version.parse().ok().filter(|_| same)
    }

    fn all(&mut self) -> &[Bytes] {
        let Self { epoch, version, rows, all, .. } = self;
        all.get_or_insert_with(|| {
            let id = format!("{epoch:x}-{version}");
            let everything =
                ServicesEvent { reset: true, rows: rows.iter().collect(), ..ServicesEvent::default() };
            chunks(everything, &id).into_iter().map(Bytes::from).collect()
        })
    }
}

/// Splits an event. Only the last part has the ID, so a page that misses it starts again.
fn chunks(of_all: ServicesEvent<'_>, id: &str) -> Vec<String> {
    let ServicesEvent { mut reset, rows, removed, .. } = of_all;
    let (mut removed, mut rest, mut parts) = (Some(removed), rows.as_slice(), Vec::new());
    loop {
        let (now, later) = rest.split_at(rest.len().min(AT_ONCE));
        let part = ServicesEvent {
            reset: std::mem::take(&mut reset),
            rows: now.to_vec(),
            removed: removed.take().unwrap_or_default(),
            more: later.len(),
        };
        parts.push(event("services", later.is_empty().then_some(id), &part));
        if later.is_empty() {
            return parts;
        }
        rest = later;
    }
}

/// Difference of two sorted lists.
fn difference<'a>(before: &'a [ServiceRow], now: &'a [ServiceRow]) -> ServicesEvent<'a> {
    let (mut change, mut old, mut new) =
        (ServicesEvent::default(), before.iter().peekable(), now.iter().peekable());
    let key = |row: &'a ServiceRow| (row.service.as_str(), row.source);
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return change,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => key(old).cmp(&key(new)),
        };
        let gone = old.next_if(|_| order.is_le());
        let here = new.next_if(|_| order.is_ge());
        match (gone, here) {
            (Some(gone), None) => {
                change.removed.push(RemovedRow { service: &gone.service, source: gone.source });
            }
            (gone, Some(here)) if gone != Some(here) => change.rows.push(here),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
