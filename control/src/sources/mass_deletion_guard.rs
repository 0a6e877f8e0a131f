//! Holds deletions back where a list lacks nearly everything that was there, between the source and the store.
//!
//! An API server may answer with an empty list although nobody deleted anything: one that came back before its storage
//! did, one behind the wrong address, one whose permissions or selectors were changed by mistake. Accepting it removes every
//! address at once; waiting a minute costs little. So what such a list has is accepted at once, and what it lacks stays
//! for a while: until a newer list or event has it again, until it is deleted by name, or until the time is up and the
//! newest list still lacks it.
//!
//! Deletions by name are accepted, however many come at once. Each says that the server had the object, knows its last
//! content and was told to delete it: that is no slip of a cache, and no list that comes a minute later takes it back. A
//! namespace that is deleted, or a CRD, is meant; a controller that has gone wild is not stopped by a gateway which looks
//! away for a minute, while endpoints that are gone in truth would be sent clients meanwhile.
//!
//! Held back are Services, EndpointSlices and Nodes, and of a Karmada control plane MultiClusterServices, their
//! templates, Works and Clusters. Namespaces and pools are not: without them nothing that is published is taken
//! away, although addresses may move to gateways that their pools leave out. Neither are imported slices and bindings, which repeat what Works contain.

mod pending;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::pending::PendingDeletion;
use crate::api::kinds::{ChangeVisitor, Kind};
use crate::api::store::{Change, Delta, Objects};

/// One kind of which deletions are held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// As `Service`, or which Services.
    pub kind: &'static str,
    /// Objects that there were when the newest list came.
    pub there: usize,
    /// Objects that the newest list had.
    pub listed: usize,
    /// Objects that are kept although no list has them.
    pub kept: usize,
    /// When the hold began.
    pub since: Instant,
    /// When the list is accepted.
    pub until: Instant,
}

/// The guard of one source.
#[derive(Debug)]
pub struct Guard {
    hold: Duration,
    /// By kind.
    pending: BTreeMap<&'static str, PendingDeletion>,
}

impl Guard {
    /// Holds deletions back for as long as `hold`.
    pub fn new(hold: Duration) -> Self {
        Self { hold, pending: BTreeMap::new() }
    }

    /// Holds other lists back for as long as `hold` from now on.
    pub fn set_hold(&mut self, hold: Duration) {
        self.hold = hold;
    }

    /// Answers what to apply to the store, which has `objects`, before the next change is judged: the change as it came, or a
    /// list completed by the objects that it lacks and that stay for now.
    #[must_use]
    pub fn admit(&mut self, change: Change, objects: &Objects, now: Instant) -> Change {
        change.visit(Judge { guard: self, objects, now })
    }

    /// When [`release`](Self::release) has something to say, if nothing else happens before.
    pub fn due(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.until).min()
    }

    /// Accepts the lists whose time is up: what they lack is gone, object by object.
    pub fn release(&mut self, now: Instant) -> Vec<Change> {
        let up = self.pending.extract_if(.., |_, pending| pending.until <= now);
        up.flat_map(|(_, pending)| pending.accept()).collect()
    }

    /// What is held back now, by kind.
    pub fn holding(&self) -> Vec<Held> {
        self.pending.values().map(PendingDeletion::held).collect()
    }
}

/// Judges a change of one kind.
struct Judge<'a> {
    guard: &'a mut Guard,
    objects: &'a Objects,
    now: Instant,
}

impl ChangeVisitor for Judge<'_> {
    type Output = Change;

    fn visit<K: Kind>(self, delta: Delta<K::Object>) -> Change {
        let Some(kind) = K::ROW.guarded_as else { return K::change(delta) };
        let mut pending = self.guard.pending.remove(kind);
        let delta = match delta {
            Delta::All(mut listed) => {
                let hold = self.guard.hold;
                listed.extend(pending::judge::<K>(kind, &mut pending, &listed, self.objects, hold, self.now));
                Delta::All(listed)
            }
            Delta::Put(_) | Delta::Gone { .. } => {
                pending::settle::<K>(kind, &mut pending, &delta);
                delta
            }
        };
        self.guard.pending.extend(pending.map(|pending| (kind, pending)));
        K::change(delta)
    }
}

#[cfg(test)]
mod tests;
