//! Cache of the objects of one kind and of their changes: the task that watches the kind writes to it, and the consumer takes
//! changes from it. Changes are stored as keys, so a slow consumer gets the latest state and not a backlog.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::item::Item;
use super::{Batch, KindStatus, kind_problems};
use crate::api::gateway_api::GROUP;
use crate::api::kinds::{Kind, Need, Row};
use crate::api::object::ApiObject as _;
use crate::api::problem::Problem;
use crate::api::store::{Delta, ObjectKey};

/// Progress of the first lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// No list has failed.
    Waiting,
    /// Some list has failed at least once.
    Failed,
    /// Every wanted kind is known.
    Synced,
}

/// State that all kinds share.
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

/// Subscription to a kind, independent of its type.
pub(super) trait Subscription: Send + Sync {
    /// Moves the pending changes to `batch`. Returns whether there were any.
    fn take(&self, batch: &mut Batch) -> bool;
    fn problems(&self) -> Vec<Problem>;
    fn status(&self) -> KindStatus;
    /// Whether the kind is watched only while the server has a certain definition.
    fn is_conditional(&self) -> bool;
    /// Whether the server does not have that definition.
    fn is_absent(&self) -> bool;
    /// Whether it was listed, and its definition has been there since.
    fn is_followed(&self) -> bool;
    /// Whether the consumer has taken a list of it.
    fn is_taken(&self) -> bool;
    /// Whether the server has refused it for long enough that this is no accident.
    fn is_refused(&self) -> bool;
    /// The Problem that this is where Gateways are wanted: without the kind, they serve less than their definitions promise.
    fn absence(&self) -> Option<Problem>;
    fn is_built_in(&self) -> bool;
    fn row(&self) -> Row;
}

/// Objects of a list in progress, and those that cannot be decoded.
pub(super) struct Staging<K: Kind> {
    objects: BTreeMap<ObjectKey, Arc<K::Object>>,
    problems: BTreeMap<ObjectKey, Problem>,
}

impl<K: Kind> Default for Staging<K> {
    /// An empty staging area.
    fn default() -> Self {
        Self { objects: BTreeMap::new(), problems: BTreeMap::new() }
    }
}

impl<K: Kind> Staging<K> {
    /// Removes an object that was deleted before the list is complete.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
        self.problems.remove(key);
    }
}

/// Objects of one kind.
pub(super) struct Cache<K: Kind> {
    news: Arc<SyncState>,
    /// Whether the kind is watched only while the server has a certain definition.
    conditional: bool,
    state: Mutex<State<K>>,
}

struct State<K: Kind> {
    objects: BTreeMap<ObjectKey, Arc<K::Object>>,
    /// Problems of objects whose latest version cannot be decoded, or whose reader has a warning.
    unreadable: BTreeMap<ObjectKey, Problem>,
    /// Problem of the kind as a whole.
    problem: Option<Problem>,
    changed: Changed,
    /// Arrival of the first pending change.
    since: Option<Instant>,
    status: KindStatus,
    /// Whether startup no longer waits for it.
    counted: bool,
    /// Whether the server has the definition; `None` while that is unknown.
    defined: Option<bool>,
    /// Whether it was listed, and its definition has been there since.
    followed: bool,
    /// Whether the consumer has taken a list. Before that, its objects may be missing although the server has listed them.
    taken: bool,
    /// Whether [`Cache::is_denied`] was called before any list.
    refused: bool,
}

enum Changed {
    /// Objects that were added, changed or removed, with the trigger time of the change.
    Keys(BTreeMap<ObjectKey, Option<Timestamp>>),
    /// All objects, after a list.
    All,
}

impl<K: Kind> Cache<K> {
    pub(super) fn new(news: Arc<SyncState>, conditional: bool) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            problem: None,
            changed: Changed::Keys(BTreeMap::new()),
            since: None,
            status: KindStatus::new(K::ROW.resource.kind, K::ROW.need != Need::Spared && !conditional),
            counted: false,
            defined: None,
            followed: false,
            taken: false,
            refused: false,
        };
        Self { news, conditional, state: Mutex::new(state) }
    }

    /// Stages an object of a list. A version that is already kept is not decoded again.
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

    /// Replaces all objects by those of a complete list.
    pub(super) fn replace(&self, stage: Staging<K>) {
        let mut state = self.lock();
        state.objects = stage.objects;
        state.unreadable = stage.problems;
        state.status.lists += 1;
        state.followed = true;
        self.all_are_known(&mut state);
    }

    /// Records that the server does not know the kind, so that there are no objects. If the kind is required and was known
    /// before, its objects are kept: regular deletion removes objects one by one before their definition. Returns whether this is
    /// new.
    pub(super) fn is_missing(&self, problem: Problem) -> bool {
        let mut state = self.lock();
        if state.problem.as_ref() == Some(&problem) {
            return false;
        }
        // The message alone does not name the kind.
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

    /// Records that the server does not have the definition, with the Problem that this is, if any. Known objects stay: regular
    /// deletion removes objects one by one before their definition. Without any, the kind counts as empty and as listed, but no empty
    /// list is reported: a snapshot may hold objects. Returns whether this is new.
    pub(super) fn is_undefined(&self, problem: Option<Problem>) -> bool {
        let mut state = self.lock();
        let differs = state.defined.replace(false) != Some(false) || state.problem != problem;
        state.followed = false;
        state.status.error = problem.as_ref().map(|it| format!("{} {}", it.object, it.message));
        state.problem = problem;
        state.status.synced = true;
        self.count(&mut state);
        if differs {
            self.tell(&mut state);
        }
        differs
    }

    /// Records that the server did not know the kind when it was asked, whether its definition is gone or only comes again.
    pub(super) fn is_unknown(&self) {
        self.lock().followed = false;
    }

    /// Records that the server has had no definition since the start, so that objects of a snapshot are gone.
    pub(super) fn stays_undefined(&self) {
        let mut state = self.lock();
        if state.status.lists == 0 {
            self.all_are_known(&mut state);
        }
    }

    /// Records that the server has the definition.
    pub(super) fn is_defined(&self) {
        let mut state = self.lock();
        if state.defined.replace(true) == Some(false) {
            (state.status.synced, state.status.error) = (state.status.lists > 0, None);
            if state.problem.take().is_some() {
                self.tell(&mut state);
            }
        }
    }

    /// Whether startup no longer waits for the kind.
    pub(super) fn is_counted(&self) -> bool {
        self.lock().counted
    }

    /// Whether startup should no longer wait, because the kind fails or nothing is known of it.
    pub(super) fn is_awaited_in_vain(&self) -> bool {
        let state = self.lock();
        !state.counted && (state.status.error.is_some() || state.defined.is_none())
    }

    /// Records that reading the kind is forbidden. Known objects stay. Startup no longer waits for an optional kind, but no empty list
    /// is reported: there may be objects, and a snapshot may hold them. Returns whether this is new.
    pub(super) fn is_denied(&self, problem: Problem) -> bool {
        if K::ROW.need == Need::Required {
            self.news.failed();
        }
        let mut state = self.lock();
        state.status.error = Some(problem.message.clone());
        state.refused |= state.status.lists == 0;
        if state.problem.as_ref() == Some(&problem) {
            return false;
        }
        state.problem = Some(problem);
        if K::ROW.need == Need::Optional && !state.counted {
            state.status.needed = false;
            self.count(&mut state);
        }
        self.tell(&mut state);
        true
    }

    /// Stores an object from a watch.
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

    /// Removes an object that a watch reported as deleted.
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

    /// Records that the server answered, while another failure of the kind persists.
    pub(super) fn answered(&self) {
        self.lock().status.heard = Some(Instant::now());
    }

    /// Records that the server answered and nothing fails. Returns whether there was a failure before.
    pub(super) fn heard(&self) -> bool {
        let mut state = self.lock();
        state.status.heard = Some(Instant::now());
        if state.problem.take().is_some() {
            self.tell(&mut state);
        }
        state.status.error.take().is_some()
    }

    /// Records a failed list or watch. Returns whether the failure is new.
    pub(super) fn failed(&self, error: &str) -> bool {
        if K::ROW.need != Need::Spared && !self.conditional {
            self.news.failed();
        }
        let mut state = self.lock();
        state.status.error.replace(error.to_owned()).is_none()
    }

    /// Whether the kind was listed at least once.
    pub(super) fn was_listed(&self) -> bool {
        self.lock().status.lists > 0
    }

    /// Records the restart of a watch.
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

    /// Ends the wait for this kind at startup. Until it is listed, it stays unknown.
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
    /// Keeps the trigger time of the first of several changes to an object, because that waited longest.
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
                state.taken = state.status.lists > 0;
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

    fn is_conditional(&self) -> bool {
        self.conditional
    }

    fn is_absent(&self) -> bool {
        self.lock().defined == Some(false)
    }

    fn is_followed(&self) -> bool {
        self.lock().followed
    }

    fn is_taken(&self) -> bool {
        self.lock().taken
    }

    fn is_refused(&self) -> bool {
        self.lock().refused
    }

    fn absence(&self) -> Option<Problem> {
        let of_gateways = K::ROW.resource.group == GROUP && self.is_absent();
        let remedy = K::ROW.remedy.filter(|_| of_gateways && self.lock().problem.is_none())?;
        Some(kind_problems::missing(&K::ROW.resource, remedy))
    }

    fn is_built_in(&self) -> bool {
        K::ROW.resource.is_built_in()
    }

    fn row(&self) -> Row {
        K::ROW
    }
}

#[cfg(test)]
mod tests;
