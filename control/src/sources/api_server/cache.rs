//! The objects of one kind as last seen, and what of them changed: the task that follows the kind writes, the
//! consumer takes. Changes are kept as keys, so a consumer that is slow gets the latest state and not a backlog.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::item::Item;
use super::{Batch, KindStatus};
use crate::api::kinds::{Kind, Need};
use crate::api::object::ApiObject as _;
use crate::api::problem::Problem;
use crate::api::store::{Delta, ObjectKey};

/// How far the first lists are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Nothing has failed.
    Waiting,
    /// Some list failed at least once.
    Failed,
    /// Every wanted kind is known.
    Synced,
}

/// What all kinds share.
#[derive(Debug)]
pub(super) struct SyncState {
    pub(super) arrived: Notify,
    pub(super) start: watch::Sender<Start>,
    unsynced: AtomicUsize,
}

impl SyncState {
    pub(super) fn of(kinds: usize) -> Self {
        Self {
            arrived: Notify::new(),
            start: watch::Sender::new(Start::Waiting),
            unsynced: AtomicUsize::new(kinds),
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.unsynced.load(Ordering::Acquire) == 0
    }

    fn one_synced(&self) {
        if self.unsynced.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.start.send_replace(Start::Synced);
        }
    }

    fn failed(&self) {
        self.start.send_if_modified(|start| {
            let first = *start == Start::Waiting;
            if first {
                *start = Start::Failed;
            }
            first
        });
    }
}

/// A kind, whichever it is.
pub(super) trait Subscription: Send + Sync {
    /// Adds the news to `batch`; they are no news any more. Answers whether there were any.
    fn take(&self, batch: &mut Batch) -> bool;
    fn problems(&self) -> Vec<Problem>;
    fn status(&self) -> KindStatus;
}

/// The objects of a list that is under way, and those that cannot be read.
pub(super) struct Staging<K: Kind> {
    objects: BTreeMap<ObjectKey, Arc<K::Object>>,
    problems: BTreeMap<ObjectKey, Problem>,
}

impl<K: Kind> Default for Staging<K> {
    /// Empty.
    fn default() -> Self {
        Self { objects: BTreeMap::new(), problems: BTreeMap::new() }
    }
}

impl<K: Kind> Staging<K> {
    /// An object that was listed is gone before the list is complete.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
        self.problems.remove(key);
    }
}

/// The objects of one kind.
pub(super) struct Cache<K: Kind> {
    news: Arc<SyncState>,
    state: Mutex<State<K>>,
}

struct State<K: Kind> {
    objects: BTreeMap<ObjectKey, Arc<K::Object>>,
    /// Of objects whose latest version cannot be read, or whose reader has a warning.
    unreadable: BTreeMap<ObjectKey, Problem>,
    /// Of the kind as a whole.
    problem: Option<Problem>,
    changed: Changed,
    /// When the first of the news came.
    since: Option<Instant>,
    status: KindStatus,
    /// Nobody waits for it any more.
    counted: bool,
}

enum Changed {
    /// These came, changed or went, with what the change was triggered by.
    Keys(BTreeMap<ObjectKey, Option<Timestamp>>),
    /// There was a list.
    All,
}

impl<K: Kind> Cache<K> {
    pub(super) fn new(news: Arc<SyncState>) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            problem: None,
            changed: Changed::Keys(BTreeMap::new()),
            since: None,
            status: KindStatus::new(K::ROW.resource.kind, K::ROW.need != Need::Spared),
            counted: false,
        };
        Self { news, state: Mutex::new(state) }
    }

    /// Puts one object of a list on the stage. A version that is kept already is not read again.
    pub(super) fn stage_one(&self, stage: &mut Staging<K>, item: Item) {
        let key = item.key.clone();
        if !item.concerns::<K>() {
            return stage.remove(&key);
        }
        let kept = stage.objects.get(&key).cloned().or_else(|| self.object(&key));
        let object = match kept {
            Some(kept) if item.is::<K>(kept.as_ref()) => Some(kept),
            kept => match item.read::<K>(kept.is_some()) {
                Ok(object) => {
                    stage.problems.remove(&key);
                    Some(object)
                }
                Err(problem) => {
                    stage.problems.insert(key.clone(), *problem);
                    kept
                }
            },
        };
        if let Some(object) = object {
            if let Some(warning) = object.warning() {
                stage.problems.entry(key.clone()).or_insert(warning);
            }
            stage.objects.insert(key, object);
        }
    }

    /// The list is complete: whatever is not in it is gone.
    pub(super) fn replace(&self, stage: Staging<K>) {
        let mut state = self.lock();
        state.objects = stage.objects;
        state.unreadable = stage.problems;
        state.status.lists += 1;
        self.all_are_known(&mut state);
    }

    /// There are none, as the server does not know the kind. Where it once did and nothing works without, that is doubted: what
    /// is deleted is deleted object by object, before its definition is. Answers whether that is new.
    pub(super) fn is_missing(&self, problem: Problem) -> bool {
        let mut state = self.lock();
        if state.problem.as_ref() == Some(&problem) {
            return false;
        }
        // The message alone does not name what is missing.
        let Problem { object, message, .. } = &problem;
        state.status.error = Some(format!("{} {} {message}", object.kind, object.name));
        state.problem = Some(problem);
        if K::ROW.need == Need::Required && state.status.synced {
            self.tell(&mut state);
        } else {
            state.objects.clear();
            state.unreadable.clear();
            self.all_are_known(&mut state);
        }
        true
    }

    /// We may not read them. What is known stays; of an optional kind nothing is known at first, which is as good as none.
    /// Answers whether that is new.
    pub(super) fn is_denied(&self, problem: Problem) -> bool {
        if K::ROW.need == Need::Required {
            self.news.failed();
        }
        let mut state = self.lock();
        state.status.error = Some(problem.message.clone());
        if state.problem.as_ref() == Some(&problem) {
            return false;
        }
        state.problem = Some(problem);
        if K::ROW.need == Need::Optional && !state.status.synced {
            self.all_are_known(&mut state);
        } else {
            self.tell(&mut state);
        }
        true
    }

    /// A watch brought an object.
    pub(super) fn put(&self, item: Item) {
        let key = item.key.clone();
        if !item.concerns::<K>() {
            return self.remove(&key);
        }
        let kept = self.object(&key);
        if kept.as_ref().is_some_and(|kept| item.is::<K>(kept.as_ref())) {
            return;
        }
        let read = item.read::<K>(kept.is_some());
        let mut state = self.lock();
        match read {
            Ok(object) => {
                let before = kept.as_ref().and_then(|kept| kept.triggered());
                let triggered = object.triggered().filter(|new| Some(*new) != before);
                state.unreadable.remove(&key);
                state.unreadable.extend(object.warning().map(|warning| (key.clone(), warning)));
                state.objects.insert(key.clone(), object.clone());
                state.changed.note(key, triggered.and_then(|time| time.parse().ok()));
            }
            Err(problem) => {
                state.unreadable.insert(key, *problem);
            }
        }
        self.tell(&mut state);
    }

    /// A watch said that an object is gone.
    pub(super) fn remove(&self, key: &ObjectKey) {
        let mut state = self.lock();
        let unreadable = state.unreadable.remove(key).is_some();
        if state.objects.remove(key).is_some() {
            state.changed.note(key.clone(), None);
        } else if !unreadable {
            return;
        }
        self.tell(&mut state);
    }

    /// The server sent something, while something else of the kind is still amiss.
    pub(super) fn answered(&self) {
        self.lock().status.heard = Some(Instant::now());
    }

    /// The server answered, or sent something, and nothing is amiss. Answers whether it had been lost.
    pub(super) fn heard(&self) -> bool {
        let mut state = self.lock();
        state.status.heard = Some(Instant::now());
        if state.problem.take().is_some() {
            self.tell(&mut state);
        }
        state.status.error.take().is_some()
    }

    /// A list or watch could not be had. Answers whether that is new.
    pub(super) fn failed(&self, error: &str) -> bool {
        if K::ROW.need != Need::Spared {
            self.news.failed();
        }
        let mut state = self.lock();
        state.status.error.replace(error.to_owned()).is_none()
    }

    /// A watch is started again.
    pub(super) fn restarted(&self) {
        self.lock().status.restarts += 1;
    }

    fn object(&self, key: &ObjectKey) -> Option<Arc<K::Object>> {
        self.lock().objects.get(key).cloned()
    }

    fn all_are_known(&self, state: &mut State<K>) {
        state.changed = Changed::All;
        state.status.synced = true;
        self.count(state);
        self.tell(state);
    }

    /// It was waited for long enough; until it is listed nothing is known of it.
    pub(super) fn excuse(&self) {
        self.count(&mut self.lock());
        self.news.arrived.notify_one();
    }

    fn count(&self, state: &mut State<K>) {
        if !std::mem::replace(&mut state.counted, true) {
            self.news.one_synced();
        }
    }

    fn tell(&self, state: &mut State<K>) {
        state.since.get_or_insert_with(Instant::now);
        self.news.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changed {
    /// Of several changes to one object the first counts: it waited longest.
    fn note(&mut self, key: ObjectKey, triggered: Option<Timestamp>) {
        if let Self::Keys(keys) = self {
            let earliest = keys.entry(key).or_default();
            *earliest = (*earliest).or(triggered);
        }
    }
}

impl<K: Kind> Subscription for Cache<K> {
    fn take(&self, batch: &mut Batch) -> bool {
        let mut state = self.lock();
        let Some(since) = state.since.take() else { return false };
        batch.received = batch.received.min(since);
        match std::mem::replace(&mut state.changed, Changed::Keys(BTreeMap::new())) {
            Changed::All => {
                batch.changes.push(K::change(Delta::All(state.objects.values().cloned().collect())));
            }
            Changed::Keys(keys) => {
                for (key, triggered) in keys {
                    batch.triggered.extend(triggered);
                    let delta = match state.objects.get(&key) {
                        Some(object) => Delta::Put(object.clone()),
                        None => Delta::Gone { namespace: key.0, name: key.1 },
                    };
                    batch.changes.push(K::change(delta));
                }
            }
        }
        true
    }

    fn problems(&self) -> Vec<Problem> {
        let state = self.lock();
        state.problem.iter().chain(state.unreadable.values()).cloned().collect()
    }

    fn status(&self) -> KindStatus {
        let state = self.lock();
        KindStatus { objects: state.objects.len(), ..state.status.clone() }
    }
}

#[cfg(test)]
mod tests;
