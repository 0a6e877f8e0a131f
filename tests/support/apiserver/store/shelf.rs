//! Shelf: the objects of one kind, and their recent changes.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use super::Entry;

/// Objects by key.
pub(crate) type Entries = BTreeMap<String, Arc<Entry>>;

/// Number of changes that are kept. The cache of a real server holds between 100 and 102,400 per kind, as
/// needed.
const HISTORY: usize = 20_000;

/// Result of a change.
#[derive(Clone, Debug)]
pub(crate) enum After {
    /// New state of the object.
    Live(Arc<Entry>),
    /// The object was removed; its last content, with the revision of the removal.
    Gone(Arc<Entry>),
}

impl After {
    /// The object, removed or not.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        match self {
            Self::Live(entry) | Self::Gone(entry) => entry,
        }
    }
}

/// Change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// State before.
    pub before: Option<Arc<Entry>>,
    /// State after.
    pub after: After,
}

impl Change {
    /// Revision of the change.
    pub(crate) fn revision(&self) -> u64 {
        self.after.entry().revision
    }
}

/// Error: the history does not reach back to the requested revision.
#[derive(Debug)]
pub(crate) struct TooOld;

/// Objects of one kind.
pub(crate) struct Shelf {
    entries: Entries,
    history: VecDeque<Change>,
    /// Revision up to which changes were dropped.
    forgotten: u64,
    /// Revision of the newest change.
    last: u64,
    /// Notifies watches of `last`; dropped when the kind is no longer served.
    news: watch::Sender<u64>,
}

impl Shelf {
    /// Empty shelf without history up to a revision.
    pub(super) fn new(forgotten: u64) -> Self {
        let news = watch::Sender::new(0);
        Self { entries: Entries::new(), history: VecDeque::new(), forgotten, last: 0, news }
    }

    /// Object with this key.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.entries.get(key).map(Arc::clone)
    }

    /// Current objects.
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Objects as of a revision.
    pub(crate) fn entries_at(&self, revision: u64) -> Result<Cow<'_, Entries>, TooOld> {
        if revision < self.forgotten {
            return Err(TooOld);
        }
        if revision >= self.last {
            return Ok(Cow::Borrowed(&self.entries));
        }
        let mut entries = self.entries.clone();
        for change in self.history.iter().rev().take_while(|change| change.revision() > revision) {
            match &change.before {
                Some(before) => drop(entries.insert(before.key.clone(), Arc::clone(before))),
                None => drop(entries.remove(&change.after.entry().key)),
            }
        }
        Ok(Cow::Owned(entries))
    }

    /// Changes after a revision.
    pub(crate) fn changes_after(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, TooOld> {
        if revision < self.forgotten {
            return Err(TooOld);
        }
        let first = self.history.partition_point(|change| change.revision() <= revision);
        Ok(self.history.range(first..))
    }

    /// Revision of the newest change of this kind; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Revision up to which changes were dropped.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Notifications of changes, which end when the kind is no longer served.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Ends all watches after they have sent the changes so far.
    pub(crate) fn close(&mut self) {
        self.news = watch::Sender::new(self.last);
    }

    /// Drops changes up to a revision.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.history.retain(|change| change.revision() > revision);
        self.forgotten = self.forgotten.max(revision);
    }

    pub(super) fn put(&mut self, entry: Arc<Entry>) {
        let before = self.entries.insert(entry.key.clone(), Arc::clone(&entry));
        self.record(Change { before, after: After::Live(entry) });
    }

    pub(super) fn remove(&mut self, key: &str, gone: Arc<Entry>) {
        let before = self.entries.remove(key);
        self.record(Change { before, after: After::Gone(gone) });
    }

    fn record(&mut self, change: Change) {
        self.last = change.revision();
        self.history.push_back(change);
        if self.history.len() > HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.forgotten = oldest.revision();
        }
        self.news.send_replace(self.last);
    }
}
