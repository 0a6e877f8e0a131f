//! Exports in the queue: when to list what is there, and what follows from the answer to a write. They have their own limit and
//! their own pauses, so that neither thousands of them nor a webhook that is down for them delays a status. Each is written again
//! when Karmada's own controller has a new leader.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use super::WriteJob;
use crate::api::store::ServiceKey;
use crate::backoff::Backoff;
use crate::controller::api_writer::ApiAnswer;
use crate::controller::service_exports::{
    Collector, DesiredExport, ExportDiff, ExportList, ExportObject, ExportStep, LeaseRead, Outdated,
};
use crate::controller::status_writer::next_step::{Urgency, WriteStep};
use crate::controller::status_writer::target::WriteTarget;
use crate::controller::status_writer::write_notice::WriteNotice;
use crate::token_bucket::TokenBucket;

/// Writes of exports under way at the same time: nobody waits for one as for a status.
const MOST: usize = 8;
/// What others changed or deleted of ours is seen after this at the latest.
const LIST_AGAIN: Duration = Duration::from_secs(600);
/// What was refused is tried again after this at the latest: a definition or a right may be there by then.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// The first pause after a failure, at most: each further one in a row is twice as long, up to [`TRY_AGAIN`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// What is being deleted is looked at again after this: Karmada has finalizers of its own there.
const GOING: Duration = Duration::from_secs(5);
/// Exports that are written at once for a new leader of Karmada's controller, and the time after which one more is. Each makes
/// Karmada write to all members of the export, and the first one for a member is enough for it to collect everything there.
const TOUCHES: (u32, Duration) = (20, Duration::from_millis(100));

/// All exports that are desired, and what is known of those that are there.
pub(super) struct Exports {
    diff: ExportDiff,
    /// Those that may not be as desired.
    open: BTreeSet<ServiceKey>,
    /// The last one that was looked at: the others come first.
    last: Option<ServiceKey>,
    /// When to list the next time; none before the first.
    list_at: Option<Instant>,
    listing: bool,
    /// Whether a list has succeeded.
    listed: bool,
    /// A list and writes are never under way together, so that the list shows what was written.
    writing: HashSet<ServiceKey>,
    /// Nothing is written before, after a failure.
    not_before: Option<Instant>,
    /// Counts the pauses: writes sent before a pause that fail after it do not make it longer.
    epoch: u64,
    backoff: Backoff,
    /// What was reported, and has not gone since.
    reported: BTreeSet<String>,
    /// What was met since the last list.
    met: BTreeSet<String>,
    pub(super) notices: Vec<WriteNotice>,
    collector: Collector,
    /// Full before the first touch.
    touches: Option<TokenBucket>,
    /// Those that wait for their touch, and when the next one may have it.
    untouched: BTreeSet<ServiceKey>,
    touch_at: Option<Instant>,
    /// Those whose endpoints may be out of date, as reported.
    outdated: BTreeMap<ServiceKey, Outdated>,
}

impl Default for Exports {
    fn default() -> Self {
        Self {
            diff: ExportDiff::default(),
            open: BTreeSet::new(),
            last: None,
            list_at: None,
            listing: false,
            listed: false,
            writing: HashSet::new(),
            not_before: None,
            epoch: 0,
            backoff: Backoff::new(FIRST_PAUSE, TRY_AGAIN),
            reported: BTreeSet::new(),
            met: BTreeSet::new(),
            notices: Vec::new(),
            collector: Collector::default(),
            touches: None,
            untouched: BTreeSet::new(),
            touch_at: None,
            outdated: BTreeMap::new(),
        }
    }
}

impl Exports {
    pub(super) fn start_list(&mut self, now: Instant) -> bool {
        let start = self.may_list() && self.is_list_due(now);
        self.listing |= start;
        start
    }

    pub(super) fn set_desired(&mut self, key: ServiceKey, desired: DesiredExport) {
        if !matches!(desired, DesiredExport::Kept(_)) {
            self.mark(&key, None);
        }
        if self.diff.set_desired(&key, desired) {
            self.open.insert(key);
        }
    }

    pub(super) fn forget(&mut self, key: ServiceKey) {
        self.mark(&key, None);
        if self.diff.forget(&key) {
            self.open.insert(key);
        }
    }

    pub(super) fn wakes_at(&self) -> Option<Instant> {
        let list = self.list_at.filter(|_| self.may_list());
        let write = self.not_before.filter(|_| self.listed && !self.listing && self.next_key().is_some());
        let touch = self.touch_at.filter(|_| self.not_before.is_none() && self.writing.len() < MOST);
        let read = self.collector.wakes_at().filter(|_| self.diff.keys().next().is_some());
        [list, write, touch, read].into_iter().flatten().min()
    }

    /// Whether the Lease of Karmada's controller is to be read now. Then [`Self::on_read`] is to be called with the answer.
    pub(super) fn start_read(&mut self, now: Instant) -> bool {
        self.diff.keys().next().is_some() && self.collector.start_read(now)
    }

    pub(super) fn on_read(&mut self, read: &LeaseRead, now: Instant) {
        self.collector.on_read(read, now);
        if let Err(ApiAnswer::Forbidden(message)) = read {
            self.report(WriteNotice::CollectorUnreadable { message: message.clone() });
        }
        if self.diff.set_collector(self.collector.term()) {
            let exported = self.diff.exported().count();
            tracing::debug!(exported, term = self.collector.term(), "Karmada's controller has a new leader");
            self.open.extend(self.diff.keys().cloned());
        }
        if self.collector.is_away() {
            let untold = self.diff.exported().filter(|key| !self.outdated.contains_key(*key));
            let untold: Vec<ServiceKey> = untold.cloned().collect();
            untold.iter().for_each(|key| self.mark(key, Some(Outdated::CollectorAway)));
        } else {
            let away = self.outdated.iter().filter(|(_, why)| **why == Outdated::CollectorAway);
            let back: Vec<ServiceKey> = away.map(|(key, _)| key.clone()).collect();
            back.iter().for_each(|key| self.mark(key, None));
        }
    }

    /// Reports whether the endpoints of an export may be out of date.
    fn mark(&mut self, key: &ServiceKey, outdated: Option<Outdated>) {
        let before = match outdated {
            Some(why) => self.outdated.insert(key.clone(), why),
            None => self.outdated.remove(key),
        };
        if before != outdated {
            self.notices.push(WriteNotice::EndpointsOutdated { object: key.object(), outdated });
        }
    }

    /// The export is as the present leader of Karmada's controller has to see it.
    fn written_for_the_leader(&mut self, key: &ServiceKey) {
        if self.outdated.get(key) == Some(&Outdated::WriteRefused) {
            self.mark(key, None);
        }
    }

    /// Takes a token for a touch; otherwise the export waits for one.
    fn may_touch(&mut self, key: &ServiceKey, now: Instant) -> bool {
        let now = now.into();
        let bucket = self.touches.get_or_insert_with(|| TokenBucket::new(TOUCHES.0, TOUCHES.1, now));
        let may = bucket.has_one(now);
        if may {
            bucket.take(now);
        } else {
            self.untouched.insert(key.clone());
            self.touch_at = Some(bucket.next_at(now).into());
        }
        may
    }

    /// One of those that wait for their touch may have it.
    fn release_untouched(&mut self, now: Instant) {
        if self.touch_at.is_some_and(|at| at <= now) {
            self.open.extend(self.untouched.pop_first());
            self.touch_at = self.touch_at.filter(|_| !self.untouched.is_empty());
        }
    }

    fn may_list(&self) -> bool {
        !self.listing && self.writing.is_empty() && self.diff.keys().next().is_some()
    }

    fn is_list_due(&self, now: Instant) -> bool {
        self.list_at.is_none_or(|at| at <= now)
    }

    pub(super) fn on_list(&mut self, listed: ExportList, manager: &str, now: Instant) {
        self.listing = false;
        match listed {
            Ok(all) => {
                self.diff.replace(all, manager);
                self.open.extend(self.diff.keys().cloned());
                self.listed = true;
                self.list_at = Some(now + LIST_AGAIN);
                // What was not met again has gone.
                self.reported = std::mem::take(&mut self.met);
                return;
            }
            Err((part, ApiAnswer::Forbidden(message))) => self.report(WriteNotice::ExportForbidden {
                verb: "list",
                resource: part.definition(),
                message,
            }),
            Err((part, ApiAnswer::Undefined(_) | ApiAnswer::Gone)) => {
                self.report(WriteNotice::ExportUndefined { definition: part.definition() });
            }
            Err((part, answer)) => {
                tracing::debug!(resource = part.definition(), %answer, "could not be listed: tried again later");
            }
        }
        let until = now + self.backoff.pause(None);
        // What was known before may have changed: the list comes first.
        (self.list_at, self.not_before) = (Some(until), Some(until));
    }

    /// Whether [`next`](Self::next) may have something.
    pub(super) fn may_write(&mut self, now: Instant) -> bool {
        self.not_before = self.not_before.filter(|at| *at > now);
        self.release_untouched(now);
        let known = self.listed && !self.listing && !self.is_list_due(now);
        known && self.not_before.is_none() && self.next_key().is_some()
    }

    /// One that may not be as desired, and of which no write is under way.
    fn next_key(&self) -> Option<&ServiceKey> {
        if self.writing.len() >= MOST {
            return None;
        }
        let later = self.last.as_ref().map(|last| self.open.range((Excluded(last), Unbounded)));
        later.into_iter().flatten().chain(&self.open).find(|key| !self.writing.contains(*key))
    }

    /// The next write, which is then under way.
    pub(super) fn next(&mut self, now: Instant) -> Option<WriteJob> {
        while self.may_write(now) {
            let key = self.next_key()?.clone();
            self.open.remove(&key);
            self.last = Some(key.clone());
            match self.diff.next_step(&key) {
                ExportStep::Nothing => {
                    self.written_for_the_leader(&key);
                    self.diff.close(&key);
                }
                ExportStep::Wait => self.give_up(&key, GOING, now),
                ExportStep::Taken(part) => {
                    self.report(WriteNotice::ExportTaken { object: key.object(), what: what(part, &key) });
                    self.give_up(&key, TRY_AGAIN, now);
                }
                step if step.is_touch() && !self.may_touch(&key, now) => {}
                step => {
                    self.writing.insert(key.clone());
                    return Some(WriteJob {
                        target: WriteTarget::Export(key),
                        step: WriteStep::Export(step),
                        force: false,
                        urgency: Urgency::Now,
                        uid: String::new(),
                        version: String::new(),
                        fingerprint: 0,
                        epoch: self.epoch,
                    });
                }
            }
        }
        None
    }

    pub(super) fn on_answer(&mut self, job: &WriteJob, answer: ApiAnswer, manager: &str, now: Instant) {
        let (WriteTarget::Export(key), WriteStep::Export(step)) = (&job.target, &job.step) else { return };
        // None is under way where everything was dropped meanwhile.
        let Some((part, verb)) = step.write().filter(|_| self.writing.remove(key)) else { return };
        let deleted = verb == "delete";
        let fails = matches!(answer, ApiAnswer::Failed(_) | ApiAnswer::Forbidden(_) | ApiAnswer::Refused(_));
        if fails && step.is_touch() {
            self.mark(key, Some(Outdated::WriteRefused));
        }
        match answer {
            ApiAnswer::Done(_) | ApiAnswer::Gone | ApiAnswer::Undefined(_) if deleted => {
                self.diff.remove(key, part);
                self.written(key);
            }
            ApiAnswer::Done(body) => match serde_json::from_slice(&body) {
                Ok(object) => {
                    if part == ExportObject::Export {
                        self.written_for_the_leader(key);
                    }
                    self.diff.put(part, object, manager);
                    self.written(key);
                }
                Err(_) => self.list_soon(key, now),
            },
            ApiAnswer::Failed(why) => self.pause(job, key, &why, None, now),
            ApiAnswer::Busy { reason, retry_after } => self.pause(job, key, &reason, retry_after, now),
            ApiAnswer::Unauthenticated(reason) | ApiAnswer::Unreachable { reason } => {
                self.pause(job, key, &reason, None, now);
            }
            ApiAnswer::Forbidden(message) => {
                self.report(WriteNotice::ExportForbidden { verb, resource: part.definition(), message });
                self.give_up(key, TRY_AGAIN, now);
            }
            ApiAnswer::Refused(message) => {
                let (object, what) = (key.object(), what(part, key));
                self.report(WriteNotice::ExportRefused { object, what, message });
                self.give_up(key, TRY_AGAIN, now);
            }
            // Another object, none, or no such kind any more.
            _ => self.list_soon(key, now),
        }
    }

    fn written(&mut self, key: &ServiceKey) {
        self.backoff.reset();
        self.open.insert(key.clone());
    }

    /// Nothing is written for a while, and then the others first.
    fn pause(&mut self, job: &WriteJob, key: &ServiceKey, why: &str, asked: Option<Duration>, now: Instant) {
        tracing::debug!(object = %key.object(), why, "an export could not be written: retrying later");
        self.open.insert(key.clone());
        if job.epoch == self.epoch {
            self.epoch += 1;
            self.not_before = Some(now + self.backoff.pause(asked));
        }
    }

    /// A list shows what exists.
    fn list_soon(&mut self, key: &ServiceKey, now: Instant) {
        let pause = self.backoff.pause(None);
        self.give_up(key, pause, now);
    }

    /// Leaves it as it is until the next list, which comes within `pause`, unless something else has been desired meanwhile.
    fn give_up(&mut self, key: &ServiceKey, pause: Duration, now: Instant) {
        if !self.open.contains(key) {
            self.diff.close(key);
        }
        self.list_at = self.list_at.map(|at| at.min(now + pause));
    }

    /// Reports what is new.
    fn report(&mut self, notice: WriteNotice) {
        // Messages of API servers may name versions and times: what differs in them alone is the same.
        let about = match &notice {
            WriteNotice::ExportUndefined { definition } => definition.clone(),
            WriteNotice::ExportForbidden { verb, resource, .. } => format!("{verb} {resource}"),
            WriteNotice::ExportRefused { object, what, .. } => format!("{object} {what}"),
            WriteNotice::ExportTaken { object, what } => format!("{object} {what} taken"),
            other => other.to_string(),
        };
        self.met.insert(about.clone());
        if self.reported.insert(about) {
            self.notices.push(notice);
        }
    }
}

/// Kind and name.
fn what(part: ExportObject, key: &ServiceKey) -> String {
    format!("{} {}", part.kind(), part.name(key))
}
