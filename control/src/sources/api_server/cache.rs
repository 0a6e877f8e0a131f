//! The objects of one kind as last heard of, and what of them is news: the task that follows the kind writes, the consumer
//! takes. SyncState are keys, so a consumer that is slow gets the latest state and not a backlog. It must not know the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::item::Item;
use super::resources::{Key, Need, Watched};
use super::{Batch, KindStatus};
use crate::api::problem::Problem;
use crate::api::store::Delta;

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
pub(super) struct Staging<T: Watched> {
    objects: BTreeMap<Key, Arc<T::Object>>,
    problems: BTreeMap<Key, Problem>,
}

impl<T: Watched> Default for Staging<T> {
    /// Empty.
    fn default() -> Self {
        Self { objects: BTreeMap::new(), problems: BTreeMap::new() }
    }
}

impl<T: Watched> Staging<T> {
    /// An object that was listed is gone before the list is complete.
    pub(super) fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
        self.problems.remove(key);
    }
}

/// The objects of one kind.
pub(super) struct Cache<T: Watched> {
    news: Arc<SyncState>,
    state: Mutex<State<T>>,
}

struct State<T: Watched> {
    objects: BTreeMap<Key, Arc<T::Object>>,
    /// Of objects whose latest version cannot be read, or whose reader has a complaint.
    unreadable: BTreeMap<Key, Problem>,
    /// Of the kind as a whole.
    trouble: Option<Problem>,
    changed: Changed,
    /// When the first of the news came.
    since: Option<Instant>,
    status: KindStatus,
    /// Nobody waits for it any more.
    counted: bool,
}

enum Changed {
    /// These came, changed or went, with what the change was triggered by.
    Keys(BTreeMap<Key, Option<Timestamp>>),
    /// There was a list.
    All,
}

impl<T: Watched> Cache<T> {
    pub(super) fn new(news: Arc<SyncState>) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            trouble: None,
            changed: Changed::Keys(BTreeMap::new()),
            since: None,
            status: KindStatus::new(T::RESOURCE.kind, T::RESOURCE.need != Need::Spared),
            counted: false,
        };
        Self { news, state: Mutex::new(state) }
    }

    /// Puts one object of a list on the stage. A version that is kept already is not read again.
    pub(super) fn stage_one(&self, stage: &mut Staging<T>, item: Item) {
        let key = item.key.clone();
        if !item.concerns::<T>() {
            return stage.remove(&key);
        }
        let kept = stage.objects.get(&key).cloned().or_else(|| self.object(&key));
        let object = match kept {
            Some(kept) if item.is::<T>(kept.as_ref()) => Some(kept),
            kept => match item.read::<T>(kept.is_some()) {
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
            if let Some(complaint) = T::complaint(&object) {
                stage.problems.entry(key.clone()).or_insert(complaint);
            }
            stage.objects.insert(key, object);
        }
    }

    /// The list is complete: whatever is not in it is gone.
    pub(super) fn replace(&self, stage: Staging<T>) {
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
        if state.trouble.as_ref() == Some(&problem) {
            return false;
        }
        // The message alone does not name what is missing.
        let Problem { object, message, .. } = &problem;
        state.status.error = Some(format!("{} {} {message}", object.kind, object.name));
        state.trouble = Some(problem);
        if T::RESOURCE.need == Need::Required && state.status.synced {
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
        if T::RESOURCE.need == Need::Required {
            self.news.failed();
        }
        let mut state = self.lock();
        state.status.error = Some(problem.message.clone());
        if state.trouble.as_ref() == Some(&problem) {
            return false;
        }
        state.trouble = Some(problem);
        if T::RESOURCE.need == Need::Optional && !state.status.synced {
            self.all_are_known(&mut state);
        } else {
            self.tell(&mut state);
        }
        true
    }

    /// A watch brought an object.
    pub(super) fn put(&self, item: Item) {
        let key = item.key.clone();
        if !item.concerns::<T>() {
            return self.remove(&key);
        }
        let kept = self.object(&key);
        if kept.as_ref().is_some_and(|kept| item.is::<T>(kept.as_ref())) {
            return;
        }
        let read = item.read::<T>(kept.is_some());
        let mut state = self.lock();
        match read {
            Ok(object) => {
                let before = kept.as_ref().and_then(|kept| T::triggered(kept));
                let triggered = T::triggered(&object).filter(|new| Some(*new) != before);
                state.unreadable.remove(&key);
                state.unreadable.extend(T::complaint(&object).map(|complaint| (key.clone(), complaint)));
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
    pub(super) fn remove(&self, key: &Key) {
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
        if state.trouble.take().is_some() {
            self.tell(&mut state);
        }
        state.status.error.take().is_some()
    }

    /// A list or watch could not be had. Answers whether that is new.
    pub(super) fn failed(&self, error: &str) -> bool {
        if T::RESOURCE.need != Need::Spared {
            self.news.failed();
        }
        let mut state = self.lock();
        state.status.error.replace(error.to_owned()).is_none()
    }

    /// A watch is started again.
    pub(super) fn restarted(&self) {
        self.lock().status.restarts += 1;
    }

    fn object(&self, key: &Key) -> Option<Arc<T::Object>> {
        self.lock().objects.get(key).cloned()
    }

    fn all_are_known(&self, state: &mut State<T>) {
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

    fn count(&self, state: &mut State<T>) {
        if !std::mem::replace(&mut state.counted, true) {
            self.news.one_synced();
        }
    }

    fn tell(&self, state: &mut State<T>) {
        state.since.get_or_insert_with(Instant::now);
        self.news.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changed {
    /// Of several changes to one object the first counts: it waited longest.
    fn note(&mut self, key: Key, triggered: Option<Timestamp>) {
        if let Self::Keys(keys) = self {
            let earliest = keys.entry(key).or_default();
            *earliest = (*earliest).or(triggered);
        }
    }
}

impl<T: Watched> Subscription for Cache<T> {
    fn take(&self, batch: &mut Batch) -> bool {
        let mut state = self.lock();
        let Some(since) = state.since.take() else { return false };
        batch.received = batch.received.min(since);
        match std::mem::replace(&mut state.changed, Changed::Keys(BTreeMap::new())) {
            Changed::All => {
                batch.changes.push(T::change(Delta::All(state.objects.values().cloned().collect())));
            }
            Changed::Keys(keys) => {
                for (key, triggered) in keys {
                    batch.triggered.extend(triggered);
                    let delta = match state.objects.get(&key) {
                        Some(object) => Delta::Put(object.clone()),
                        None => Delta::Gone { namespace: key.namespace, name: key.name },
                    };
                    batch.changes.push(T::change(delta));
                }
            }
        }
        true
    }

    fn problems(&self) -> Vec<Problem> {
        let state = self.lock();
        state.trouble.iter().chain(state.unreadable.values()).cloned().collect()
    }

    fn status(&self) -> KindStatus {
        let state = self.lock();
        KindStatus { objects: state.objects.len(), ..state.status.clone() }
    }
}

#[cfg(test)]
mod tests;
