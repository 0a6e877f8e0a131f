//! Storage: objects of every kind with the history of their changes, under a common revision counter.
//!
//! Objects are kept serialized, so that tens of thousands of them are small, and lists and watches only copy bytes.
//! Independent of HTTP, users and rules.

pub(super) mod entry;
pub(super) mod shelf;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

pub(super) use entry::Entry;
pub(super) use shelf::{After, Change, Shelf};

use super::kind::registry::Served;

/// All objects.
pub(super) struct Store {
    revision: u64,
    /// Revision up to which the history was dropped.
    compacted: u64,
    shelves: HashMap<String, Shelf>,
}

impl Store {
    /// An empty store at revision 1.
    pub(super) fn new() -> Self {
        Self { revision: 1, compacted: 0, shelves: HashMap::new() }
    }

    /// Revision of the newest change of any kind.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Skips revisions, as for writes and allocations of other kinds.
    pub(super) fn skip_to(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Shelf of a kind.
    pub(super) fn shelf(&mut self, name: &str) -> &mut Shelf {
        if !self.shelves.contains_key(name) {
            self.shelves.insert(name.to_owned(), Shelf::new(self.compacted));
        }
        self.shelves.get_mut(name).expect("made just now")
    }

    /// All shelves by name.
    pub(super) fn shelves(&mut self) -> impl Iterator<Item = (&String, &mut Shelf)> {
        self.shelves.iter_mut()
    }

    /// Object with this key.
    pub(super) fn get(&mut self, served: &Served, key: &str) -> Option<Arc<Entry>> {
        self.shelf(&served.shelf).get(key)
    }

    /// Stores an object under the next revision, or under its own `metadata.resourceVersion` if `keep` is set and it is
    /// newer than all others. Objects without a UID get one, and without a creationTimestamp they get `now`.
    pub(super) fn put(&mut self, served: &Served, mut object: Value, now: &str, keep: bool) -> Arc<Entry> {
        let own = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        self.revision = match own {
            Some(own) if keep && own > self.revision => own,
            _ => self.revision + 1,
        };
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.revision.to_string());
        for (key, value) in [("uid", new_uid()), ("creationTimestamp", now.to_owned())] {
            if metadata[key].as_str().is_none_or(str::is_empty) {
                metadata[key] = json!(value);
            }
        }
        let entry = Arc::new(Entry::new(served, object, self.revision));
        self.shelf(&served.shelf).put(Arc::clone(&entry));
        entry
    }

    /// Removes an object under the next revision. Returns its last content with that revision, which watches see as
    /// well.
    pub(super) fn remove(&mut self, served: &Served, key: &str) -> Option<Arc<Entry>> {
        let entry = self.get(served, key)?;
        self.revision += 1;
        let mut object = entry.object(&served.kind);
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let gone = Arc::new(Entry::new(served, object, self.revision));
        self.shelf(&served.shelf).remove(key, Arc::clone(&gone));
        Some(gone)
    }

    /// Drops all history. Clients that continue from an earlier revision get an error.
    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
        self.shelves.values_mut().for_each(|shelf| shelf.compact(self.compacted));
    }
}

/// A random UUID.
pub(super) fn new_uid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
