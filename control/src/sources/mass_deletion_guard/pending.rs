//! Pending deletion of one kind: when it starts, what it keeps, and what ends it. It contains the names of the missing objects,
//! while the store has the objects.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Resource as _;

use super::HeldKind;
use crate::api::kinds::{Kind, object_key};
use crate::api::owners::names_of;
use crate::api::store::{Change, Delta, ObjectKey, Objects};

/// Percentage of missing objects at which a list is suspicious.
const NEARLY_ALL: usize = 90;

/// Objects that a list lacks, while their deletion is not accepted.
#[derive(Debug)]
pub(super) struct PendingDeletion {
    kind: &'static str,
    /// Creates the deletion of an object.
    gone: fn(ObjectKey) -> Change,
    /// Objects that the newest list lacks and that no later change has settled; never empty.
    missing: BTreeSet<ObjectKey>,
    there: usize,
    listed: usize,
    since: Instant,
    pub(super) until: Instant,
}

impl PendingDeletion {
    pub(super) fn held(&self) -> HeldKind {
        let Self { kind, there, listed, since, until, ref missing, .. } = *self;
        HeldKind { kind, there, listed, kept: missing.len(), since, until }
    }

    /// The deletions of the objects that were held back.
    pub(super) fn accept(self) -> impl Iterator<Item = Change> {
        self.log_accepted();
        self.missing.into_iter().map(self.gone)
    }

    fn log_begun(&self, hold: Duration) {
        tracing::warn!(
            kind = self.kind,
            there = self.there,
            listed = self.listed,
            kept = self.missing.len(),
            "the API server lists {} {}s where there were {}: the {} that it lacks stay in force for {hold:?}, in case the \
             list is wrong; if they were deleted on purpose, there is nothing to do but wait (`massDeletion.hold` in the \
             config says how long)",
            self.listed,
            self.kind,
            self.there,
            self.missing.len()
        );
    }

    fn log_accepted(&self) {
        tracing::warn!(
            kind = self.kind,
            gone = self.missing.len(),
            "after {:?} the API server still lists no more {}s: the {} that stayed in force are taken for deleted",
            self.until.duration_since(self.since),
            self.kind,
            self.missing.len()
        );
    }
}

fn log_ended(kind: &str) {
    tracing::info!(
        kind,
        "the API server lists {}s again as before: nothing of them is held back any more",
        kind
    );
}

/// Evaluates a complete list. Returns the missing objects that stay for now.
///
/// A pending deletion is ended only by a list with more than a tenth of its objects. Otherwise a few new objects would make the
/// same wrong list look better.
pub(super) fn judge<K: Kind>(
    kind: &'static str,
    pending: &mut Option<PendingDeletion>,
    listed: &[Arc<K::Object>],
    objects: &Objects,
    hold: Duration,
    now: Instant,
) -> Vec<Arc<K::Object>> {
    let in_list: HashSet<(&str, &str)> = listed.iter().map(|object| names_of(object.meta())).collect();
    let there = K::all(objects).count();
    let missing: Vec<Arc<K::Object>> =
        K::all(objects).filter(|object| !in_list.contains(&names_of(object.meta()))).cloned().collect();
    let still_pending = pending.as_ref().is_some_and(|pending| {
        let lacks = |(namespace, name): &&ObjectKey| !in_list.contains(&(&**namespace, &**name));
        nearly_all(pending.missing.iter().filter(lacks).count(), pending.missing.len())
    });
    let begins = there >= K::ROW.guarded_from && nearly_all(missing.len(), there);
    if missing.is_empty() || !(still_pending || begins) {
        if pending.take().is_some() {
            log_ended(kind);
        }
        return Vec::new();
    }
    let since = pending.as_ref().map_or(now, |pending| pending.since);
    let newest = PendingDeletion {
        kind,
        gone: |(namespace, name)| K::change(Delta::Gone { namespace, name }),
        missing: missing.iter().map(|object| object_key(object.meta())).collect(),
        there,
        listed: listed.len(),
        since,
        until: since + hold,
    };
    if pending.is_none() {
        newest.log_begun(hold);
    }
    *pending = Some(newest);
    missing
}

/// Settles an object that was added, changed or deleted by name. The hold ends with the last pending one.
pub(super) fn settle<K: Kind>(kind: &str, pending: &mut Option<PendingDeletion>, delta: &Delta<K::Object>) {
    let Some(PendingDeletion { missing, .. }) = pending else { return };
    match delta {
        Delta::Put(object) => missing.remove(&object_key(object.meta())),
        Delta::Gone { namespace, name } => missing.remove(&(namespace.clone(), name.clone())),
        Delta::All(_) => false,
    };
    if missing.is_empty() {
        *pending = None;
        log_ended(kind);
    }
}

fn nearly_all(missing: usize, of: usize) -> bool {
    missing * 100 >= of * NEARLY_ALL
}
