//! One kind's doubt: when it begins, what it keeps, and what ends it. What is doubted is only that objects are missing; so
//! it is the set of their names, while the store holds the objects.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Resource as _;

use super::Held;
use crate::api::kinds::{Kind, object_key};
use crate::api::owners::names_of;
use crate::api::store::{Change, Delta, ObjectKey, Objects};

/// Fewer objects than these may go at once without a question: that happens in small clusters.
const PLENTY: usize = 10;
/// A list is doubted if it lacks this many of a hundred objects.
const NEARLY_ALL: usize = 90;

/// A list that is not believed yet.
#[derive(Debug)]
pub(super) struct Doubt {
    kind: &'static str,
    /// What says that one is gone.
    gone: fn(ObjectKey) -> Change,
    /// What the newest list lacks and nothing since has settled; never empty.
    missing: BTreeSet<ObjectKey>,
    there: usize,
    listed: usize,
    since: Instant,
    pub(super) until: Instant,
}

impl Doubt {
    pub(super) fn held(&self) -> Held {
        let Self { kind, there, listed, since, until, ref missing, .. } = *self;
        Held { kind, there, listed, kept: missing.len(), since, until }
    }

    /// What it held back is gone.
    pub(super) fn believe(self) -> impl Iterator<Item = Change> {
        self.tell_believed();
        self.missing.into_iter().map(self.gone)
    }

    fn tell_begun(&self, hold: Duration) {
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

    fn tell_believed(&self) {
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

fn tell_ended(kind: &str) {
    tracing::info!(
        kind,
        "what the API server says of {}s is believed again: nothing of them is held back any more",
        kind
    );
}

/// Judges a whole list. Answers the objects that it lacks and that stay for now.
///
/// While there is a doubt, only a list that has more than a tenth of the doubted objects ends it: otherwise a few new ones
/// would make the same wrong list look better.
pub(super) fn judge<K: Kind>(
    kind: &'static str,
    doubt: &mut Option<Doubt>,
    listed: &[Arc<K::Object>],
    objects: &Objects,
    hold: Duration,
    now: Instant,
) -> Vec<Arc<K::Object>> {
    let in_list: HashSet<(&str, &str)> = listed.iter().map(|object| names_of(object.meta())).collect();
    let there = K::all(objects).count();
    let missing: Vec<Arc<K::Object>> =
        K::all(objects).filter(|object| !in_list.contains(&names_of(object.meta()))).cloned().collect();
    let still_doubted = doubt.as_ref().is_some_and(|doubt| {
        let lacks = |(namespace, name): &&ObjectKey| !in_list.contains(&(&**namespace, &**name));
        nearly_all(doubt.missing.iter().filter(lacks).count(), doubt.missing.len())
    });
    let begins = there >= PLENTY && nearly_all(missing.len(), there);
    if missing.is_empty() || !(still_doubted || begins) {
        if doubt.take().is_some() {
            tell_ended(kind);
        }
        return Vec::new();
    }
    let since = doubt.as_ref().map_or(now, |doubt| doubt.since);
    let newest = Doubt {
        kind,
        gone: |(namespace, name)| K::change(Delta::Gone { namespace, name }),
        missing: missing.iter().map(|object| object_key(object.meta())).collect(),
        there,
        listed: listed.len(),
        since,
        until: since + hold,
    };
    if doubt.is_none() {
        newest.tell_begun(hold);
    }
    *doubt = Some(newest);
    missing
}

/// An object that came, changed or was deleted by name is in doubt no more. With the last one the doubt ends.
pub(super) fn settle<K: Kind>(kind: &str, doubt: &mut Option<Doubt>, delta: &Delta<K::Object>) {
    let Some(Doubt { missing, .. }) = doubt else { return };
    match delta {
        Delta::Put(object) => missing.remove(&object_key(object.meta())),
        Delta::Gone { namespace, name } => missing.remove(&(namespace.clone(), name.clone())),
        Delta::All(_) => false,
    };
    if missing.is_empty() {
        *doubt = None;
        tell_ended(kind);
    }
}

fn nearly_all(missing: usize, of: usize) -> bool {
    missing * 100 >= of * NEARLY_ALL
}
