//! Guard between a source and the store that holds deletions back if a list lacks nearly all objects.
//!
//! An API server may return an empty list although no object was deleted: after it restarted before its storage, at a wrong
//! address, or after a mistake in permissions or selectors. Accepting such a list would remove every address at once, while
//! waiting a minute costs little. So the objects in the list are accepted at once, and missing ones stay for a while: until a
//! newer list or event has them again, until they are deleted by name, or until the time is over and the newest list still lacks
//! them.
//!
//! Deletions by name are accepted, however many come at once. Each means that the server had the object, knows its last content
//! and was requested to delete it: it is no artifact of a cache, and no later list reverts it. The deletion of a namespace or a
//! CRD is intentional. A gateway that ignores a malfunctioning controller for a minute does not stop it, but meanwhile sends
//! clients to endpoints that are really gone.
//!
//! Every kind is guarded whose loss takes traffic away ([`Row::guarded_as`](crate::api::kinds::Row)). Of most kinds, fewer than ten
//! objects may disappear at once. Of Nodes, Namespaces, AddressPools and GatewayClasses a cluster has few, and many objects depend on
//! each, so even a single one is held: without its class a Gateway belongs to nobody, without Namespaces routes detach from listeners
//! that select them by label, without Nodes a gateway does not know its own address, and without pools other nodes than theirs
//! announce an address. Of a Karmada control plane, bindings are guarded, too: unless Works of Services are read, only they have the
//! addresses of a cluster's own load balancer. Imported slices are not: they repeat what Works contain.

mod pending;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::pending::PendingDeletion;
use crate::api::kinds::{ChangeVisitor, Kind};
use crate::api::store::{Change, Delta, Objects};

/// A kind whose deletions are held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldKind {
    /// Name of the kind, for example `Service`, possibly with a qualifier.
    pub kind: &'static str,
    /// Number of objects when the newest list came.
    pub there: usize,
    /// Number of objects in the newest list.
    pub listed: usize,
    /// Number of objects that are kept although the list lacks them.
    pub kept: usize,
    /// Start of the hold.
    pub since: Instant,
    /// Time at which the list is accepted.
    pub until: Instant,
}

/// Guard of one source.
#[derive(Debug)]
pub struct MassDeletionGuard {
    hold: Duration,
    /// Pending deletions by kind.
    pending: BTreeMap<&'static str, PendingDeletion>,
}

impl MassDeletionGuard {
    /// A guard that holds deletions back for `hold`.
    pub fn new(hold: Duration) -> Self {
        Self { hold, pending: BTreeMap::new() }
    }

    /// Sets the duration of later holds.
    pub fn set_hold(&mut self, hold: Duration) {
        self.hold = hold;
    }

    /// The change to apply to the store, which has `objects`, before the next change is passed in: the change itself, or a list
    /// completed with the missing objects that stay for now.
    #[must_use]
    pub fn admit(&mut self, change: Change, objects: &Objects, now: Instant) -> Change {
        change.visit(Judge { guard: self, objects, now })
    }

    /// Time of the next [`release`](Self::release) if nothing else happens before.
    pub fn due(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.until).min()
    }

    /// Accepts the lists whose hold is over. Returns a deletion for each missing object.
    pub fn release(&mut self, now: Instant) -> Vec<Change> {
        let up = self.pending.extract_if(.., |_, pending| pending.until <= now);
        up.flat_map(|(_, pending)| pending.accept()).collect()
    }

    /// Deletions that are currently held back, by kind.
    pub fn holding(&self) -> Vec<HeldKind> {
        self.pending.values().map(PendingDeletion::held).collect()
    }
}

/// Evaluates a change of one kind.
struct Judge<'a> {
    guard: &'a mut MassDeletionGuard,
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
