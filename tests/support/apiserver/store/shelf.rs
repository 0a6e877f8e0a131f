//! The objects of one kind, and the changes that led to them.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use super::Entry;

/// Objects by key.
pub(crate) type Entries = BTreeMap<String, Arc<Entry>>;

/// How many changes are remembered. A real server's cache holds between 100 and 102,400 per kind, by need.
const HISTORY: usize = 20_000;

/// What a change made of an object.
#[derive(Clone, Debug)]
pub(crate) enum After {
    /// This.
    Live(Arc<Entry>),
    /// It was removed; its last content, under the revision of the removal.
    Gone(Arc<Entry>),
}

impl After {
    /// The object, dead or alive.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        match self {
            Self::Live(entry) | Self::Gone(entry) => entry,
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// What was there.
    pub before: Option<Arc<Entry>>,
    /// What came of it.
    pub after: After,
}

impl Change {
    /// The change's revision.
    pub(crate) fn revision(&self) -> u64 {
        self.after.entry().revision
    }
}

/// The history does not reach back to the revision that was asked for.
#[derive(Debug)]
pub(crate) struct TooOld;

/// The objects of one kind.
pub(crate) struct Shelf {
    entries: Entries,
    history: VecDeque<Change>,
    /// Changes up to this revision are forgotten.
    forgotten: u64,
    /// The revision of the newest change.
    last: u64,
    /// Tells watches of `last`; dropped when the kind is no longer served.
    news: watch::Sender<u64>,
}

impl Shelf {
    /// An empty shelf, of whose history nothing is known up to a revision.
    pub(super) fn new(forgotten: u64) -> Self {
        let news = watch::Sender::new(0);
        Self { entries: Entries::new(), history: VecDeque::new(), forgotten, last: 0, news }
    }

    /// The object under a key.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.entries.get(key).map(Arc::clone)
    }

    /// All objects as they are now.
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// All objects as they were at a revision.
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

    /// The changes after a revision.
    pub(crate) fn changes_after(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, TooOld> {
        if revision < self.forgotten {
            return Err(TooOld);
        }
        let first = self.history.partition_point(|change| change.revision() <= revision);
        Ok(self.history.range(first..))
    }

    /// The revision of the newest change of this kind; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Changes up to this revision are forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Tells of changes; ends when the kind is no longer served.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Ends all watches once they have told the changes until now.
    pub(crate) fn close(&mut self) {
        self.news = watch::Sender::new(self.last);
    }

    /// Forgets the changes up to a revision.
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
