//! Server names of TLS listeners that share a port: which listener and route has each of them. The narrowest listener that has a name is
//! final: a name that it has no route for falls through to no other one. Within it, the oldest route has a name, each name by itself.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use sheave_model::{PatternMap, ServerNamePattern};

use super::attachment::Attachment;
use super::listeners::MergedListener;

/// Largest number of names of one port; those of the youngest routes beyond it lead nowhere.
const MOST_NAMES: usize = 65_536;

/// Target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameTarget {
    /// Index of the listener.
    pub(super) listener: usize,
    /// Index of the route.
    pub(super) route: usize,
}

/// Number of names that a route has at a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NameCount {
    /// Names that lead to the route.
    pub(super) won: usize,
    /// Names that listener and route have in common.
    pub(super) wanted: usize,
}

/// The server names of a port.
#[derive(Debug, Default)]
pub(super) struct PortNames {
    /// Target of each name; `None` if its listener has no route for it.
    pub(super) targets: BTreeMap<ServerNamePattern, Option<NameTarget>>,
    /// Names of each route at each listener.
    pub(super) counts: BTreeMap<NameTarget, NameCount>,
}

impl PortNames {
    /// The names of the listeners with these indexes, which have one port. `routes` are sorted by age.
    pub(super) fn new(
        merged: &[MergedListener<'_>],
        listeners: &[usize],
        routes: &[(usize, &Attachment)],
    ) -> Self {
        let mut this = Self::default();
        let mut owners = PatternMap::default();
        let mut open = None;
        for &at in listeners {
            match merged[at].pattern.clone() {
                Some(pattern) => owners.add(pattern, at),
                None => open = Some(at),
            }
        }
        let here: BTreeSet<usize> = listeners.iter().copied().collect();
        for &(route, attachment) in routes {
            for &listener in attachment.listeners.iter().filter(|it| here.contains(it)) {
                let names: BTreeSet<_> = merged[listener].common(&attachment.hostnames).collect();
                let count = NameCount { won: 0, wanted: names.len() };
                let target = NameTarget { listener, route };
                this.counts.insert(target, count);
                for name in names {
                    let is_owner = owners.covering(name).copied().or(open) == Some(listener);
                    if is_owner && this.targets.len() < MOST_NAMES {
                        this.give(name, target);
                    }
                }
            }
        }
        for pattern in listeners.iter().filter_map(|&at| merged[at].pattern.clone()) {
            this.targets.entry(pattern).or_default();
        }
        this
    }

    /// Gives a name to a route, unless an older one has it.
    fn give(&mut self, name: &ServerNamePattern, target: NameTarget) {
        if let Entry::Vacant(free) = self.targets.entry(name.clone()) {
            free.insert(Some(target));
            self.counts.entry(target).or_default().won += 1;
        }
    }
}

#[cfg(test)]
mod tests;
