//! Decides which write goes out next. Pure: time, objects and answers are handed in. It must not know how writes are sent.

mod entry;

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::entry::{Entry, Plan};
use super::answer::Answer;
use super::backoff::Backoff;
use super::subject::{Subject, Target};
use super::write_trouble::WriteTrouble;
use crate::controller::publication::{PublishOptions, Step};

/// Writes under way at the same time, so that 20,000 take less than 20 s also where each is on a disk before it is answered. Of
/// the seats that an API server has for level `workload-low` of priority and fairness (245 by default) each takes one; what is
/// beyond waits there, or is told to come again (429).
const MOST: usize = 32;
/// While the API server is away there is nothing to be polite about, but once it is back nobody should wait long.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Now, for waiting and for conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    pub(super) time: Timestamp,
}

/// One write to be sent.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) target: Target,
    pub(super) step: Step,
    /// Take fields from other managers.
    pub(super) force: bool,
    uid: String,
    version: String,
    meaning: u64,
    epoch: u64,
}

impl Job {
    /// What RBAC calls the resource.
    fn resource(&self) -> &'static str {
        match (&self.target, &self.step) {
            (Target::Pool(_), _) => "addresspools/status",
            (target, Step::AddFinalizer(_) | Step::RemoveFinalizer(_)) if target.is_of_fleet() => {
                "multiclusterservices"
            }
            (_, Step::AddFinalizer(_) | Step::RemoveFinalizer(_)) => "services",
            (target, _) if target.is_of_fleet() => "multiclusterservices/status",
            _ => "services/status",
        }
    }
}

/// All that is wanted, and what became of it so far.
pub(super) struct Desk {
    options: PublishOptions,
    entries: HashMap<Target, Entry>,
    ready: VecDeque<Target>,
    delayed: BTreeSet<(Instant, Target)>,
    writing: usize,
    /// Counts the pauses: writes sent before a pause that fail after it do not make it longer.
    epoch: u64,
    outage: Backoff,
    paused: Option<Instant>,
    forbidden: HashSet<&'static str>,
    /// Objects of which it was told that their writes are refused.
    refused: HashSet<Target>,
    troubles: Vec<WriteTrouble>,
}

impl Desk {
    pub(super) fn new(options: PublishOptions) -> Self {
        Self {
            options,
            entries: HashMap::new(),
            ready: VecDeque::new(),
            delayed: BTreeSet::new(),
            writing: 0,
            epoch: 0,
            outage: Backoff::default(),
            paused: None,
            forbidden: HashSet::new(),
            refused: HashSet::new(),
            troubles: Vec::new(),
        }
    }

    /// What is to be true of an object, and the object as the cache has it.
    pub(super) fn desire(&mut self, target: Target, subject: Subject, now: Moment) {
        let entry = match self.entries.entry(target.clone()) {
            Slot::Occupied(slot) => slot.into_mut(),
            Slot::Vacant(_) if subject.next_step(false, &self.options, now.time) == Step::Nothing => return,
            Slot::Vacant(slot) => slot.insert(Entry::default()),
        };
        entry.desire(subject, now);
        self.compare(&target);
        self.enqueue(target, now);
    }

    /// The object has gone.
    pub(super) fn forget(&mut self, target: &Target) {
        if let Some(entry) = self.entries.get_mut(target) {
            entry.forget();
            if !entry.writing {
                self.entries.remove(target);
            }
            self.compare(target);
        }
    }

    /// Somebody else decides from now on.
    pub(super) fn drop_everything(&mut self) {
        for entry in self.entries.values_mut() {
            entry.forget();
        }
        self.entries.retain(|_, entry| entry.writing);
        self.refused.clear();
        self.ready.clear();
        self.delayed.clear();
    }

    /// Whether [`next`](Self::next) may have something.
    pub(super) fn may_write(&mut self, now: Moment) -> bool {
        while let Some((at, _)) = self.delayed.first() {
            if *at > now.instant {
                break;
            }
            if let Some((_, target)) = self.delayed.pop_first() {
                self.enqueue(target, now);
            }
        }
        let paused = self.paused.is_some_and(|until| until > now.instant);
        !self.ready.is_empty() && self.writing < MOST && !paused
    }

    /// The next write to send. It is under way until [`finished`](Self::finished) is called with it.
    pub(super) fn next(&mut self, now: Moment) -> Option<Job> {
        while self.may_write(now) {
            let target = self.ready.pop_front()?;
            let Some(entry) = self.entries.get_mut(&target) else { continue };
            entry.queued = false;
            if entry.writing {
                continue;
            }
            match entry.plan(&self.options, now) {
                Plan::Rest => {
                    if !entry.is_worth_keeping(now.instant) {
                        self.entries.remove(&target);
                    }
                    self.compare(&target);
                }
                Plan::Wait(until) => {
                    self.delayed.insert((until, target));
                }
                Plan::Write { step, meaning, force, uid, version } => {
                    entry.writing = true;
                    self.writing += 1;
                    return Some(Job { target, step, force, uid, version, meaning, epoch: self.epoch });
                }
            }
        }
        None
    }

    /// When [`next`](Self::next) should be asked again, if nothing else happens.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        let paused = self.paused.filter(|_| !self.ready.is_empty() && self.writing < MOST);
        let delayed = self.delayed.first().map(|(at, _)| *at);
        [paused, delayed].into_iter().flatten().min()
    }

    /// The write was answered.
    pub(super) fn finished(&mut self, job: &Job, answer: Answer, now: Moment) {
        self.writing -= 1;
        self.notice(job, &answer, now);
        let Some(entry) = self.entries.get_mut(&job.target) else { return };
        entry.writing = false;
        if entry.uid == job.uid {
            self.troubles.extend(entry.learn(job, answer, now));
        }
        let forgotten = entry.is_forgotten();
        self.compare(&job.target);
        if forgotten {
            self.entries.remove(&job.target);
        } else {
            self.enqueue(job.target.clone(), now);
        }
    }

    /// Notes when writes of an object begin or cease to be refused for good.
    fn compare(&mut self, target: &Target) {
        let refused = self.entries.get(target).and_then(|entry| entry.refused.as_ref());
        match refused {
            Some(trouble) if self.refused.insert(target.clone()) => self.troubles.push(trouble.clone()),
            None if self.refused.remove(target) => {
                self.troubles.push(WriteTrouble::Recovered { object: target.object() });
            }
            _ => {}
        }
    }

    /// What users should be told since this was last asked.
    pub(super) fn happened(&mut self) -> Vec<WriteTrouble> {
        std::mem::take(&mut self.troubles)
    }

    /// What an answer says about the server and our rights there.
    fn notice(&mut self, job: &Job, answer: &Answer, now: Moment) {
        let resource = job.resource();
        match answer {
            Answer::Unreachable { reason, retry_after } => {
                if job.epoch == self.epoch {
                    let wait = self.outage.next(LONGEST_PAUSE).max(retry_after.unwrap_or_default());
                    self.epoch += 1;
                    self.paused = Some(now.instant + wait);
                    if self.outage.failures() == 1 {
                        tracing::warn!(object = %job.target.object(), reason, "the API server takes no writes; tried on");
                    }
                }
                return;
            }
            Answer::Forbidden(message) => {
                if self.forbidden.insert(resource) {
                    let message = message.clone();
                    self.troubles.push(WriteTrouble::Forbidden { verb: "patch", resource, message });
                }
            }
            Answer::Written(_) => {
                self.forbidden.remove(resource);
            }
            Answer::Gone | Answer::Stale | Answer::Held(_) | Answer::Refused(_) => {}
        }
        if self.outage.failures() > 0 {
            tracing::info!("the API server takes writes again");
        }
        self.outage.reset();
        self.paused = None;
    }

    fn enqueue(&mut self, target: Target, now: Moment) {
        let Some(entry) = self.entries.get_mut(&target) else { return };
        if entry.writing || entry.queued {
            return;
        }
        match entry.not_before.filter(|at| *at > now.instant) {
            Some(at) => {
                self.delayed.insert((at, target));
            }
            None => {
                entry.queued = true;
                self.ready.push_back(target);
            }
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
