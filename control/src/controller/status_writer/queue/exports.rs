//! Exports in the queue: when to list existing objects, and how to proceed after the answer to a write. They have their own
//! concurrency limit and pauses, so that neither thousands of exports nor a broken webhook for them delays a status. Each is
//! written again when Karmada's own controller has a new leader.

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

/// Largest number of concurrent writes of exports, which are less urgent than a status.
const MOST: usize = 8;
/// Longest time until changes and deletions by others are noticed.
const LIST_AGAIN: Duration = Duration::from_secs(600);
/// Longest time until a rejected write is retried: the definition or the permission may exist by then.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// Longest first pause after a failure. It doubles with each further failure in a row, up to [`TRY_AGAIN`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Time until an object that is being deleted is checked again: Karmada has finalizers of its own on it.
const GOING: Duration = Duration::from_secs(5);
/// Burst of exports written for a new leader of Karmada's controller, and the time for one more after it. Each write makes
/// Karmada write to all members of the export, and the first one for a member makes it collect everything there.
const TOUCHES: (u32, Duration) = (20, Duration::from_millis(100));

/// All desired exports, and the known state of the existing ones.
pub(super) struct Exports {
    diff: ExportDiff,
    /// Exports that may differ from the desired state.
    open: BTreeSet<ServiceKey>,
    /// The last export that was processed; the next one after it comes first.
    last: Option<ServiceKey>,
    /// Time of the next list; `None` before the first.
    list_at: Option<Instant>,
    listing: bool,
    /// Whether a list has succeeded.
    listed: bool,
    /// Exports with a write in flight. Lists and writes never overlap, so that a list includes all writes.
    writing: HashSet<ServiceKey>,
    /// No writes before this time, after a failure.
    not_before: Option<Instant>,
    /// Number of pauses so far. A write that was sent before a pause and fails after it does not extend the pause.
    epoch: u64,
    backoff: Backoff,
    /// Notices that were reported and still apply.
    reported: BTreeSet<String>,
    /// Notices since the last list.
    met: BTreeSet<String>,
    pub(super) notices: Vec<WriteNotice>,
    collector: Collector,
    /// Limit of touches; full before the first one.
    touches: Option<TokenBucket>,
    /// Exports that wait for their touch, and the time of the next one.
    untouched: BTreeSet<ServiceKey>,
    touch_at: Option<Instant>,
    /// Exports whose endpoints may be out of date, as reported.
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

    /// Whether to read the Lease of Karmada's controller now. If so, the caller must pass the answer to [`Self::on_read`].
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

    /// Records and reports whether the endpoints of an export may be out of date.
    fn mark(&mut self, key: &ServiceKey, outdated: Option<Outdated>) {
        let before = match outdated {
            Some(why) => self.outdated.insert(key.clone(), why),
            None => self.outdated.remove(key),
        };
        if before != outdated {
            self.notices.push(WriteNotice::EndpointsOutdated { object: key.object(), outdated });
        }
    }

    /// Withdraws [`Outdated::WriteRefused`], because the export now names the current term.
    fn written_for_the_leader(&mut self, key: &ServiceKey) {
        if self.outdated.get(key) == Some(&Outdated::WriteRefused) {
            self.mark(key, None);
        }
    }

    /// Takes a token for a touch. Without one, the export waits.
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

    /// Opens one of the exports that wait for their touch.
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
                // Notices that did not recur since the last list no longer apply.
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
        // What was known may have changed, so list before writing again.
        (self.list_at, self.not_before) = (Some(until), Some(until));
    }

    /// Whether [`next`](Self::next) may return a write.
    pub(super) fn may_write(&mut self, now: Instant) -> bool {
        self.not_before = self.not_before.filter(|at| *at > now);
        self.release_untouched(now);
        let known = self.listed && !self.listing && !self.is_list_due(now);
        known && self.not_before.is_none() && self.next_key().is_some()
    }

    /// An export that may differ from the desired state and has no write in flight.
    fn next_key(&self) -> Option<&ServiceKey> {
        if self.writing.len() >= MOST {
            return None;
        }
        let later = self.last.as_ref().map(|last| self.open.range((Excluded(last), Unbounded)));
        later.into_iter().flatten().chain(&self.open).find(|key| !self.writing.contains(*key))
    }

    /// The next write, which is then in flight.
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
                        cached: String::new(),
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
        // The export is no longer in `writing` if everything was dropped in the meantime.
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
            // Another object, no object, or the kind is gone.
            _ => self.list_soon(key, now),
        }
    }

    fn written(&mut self, key: &ServiceKey) {
        self.backoff.reset();
        self.open.insert(key.clone());
    }

    /// Pauses all writes. After that, other exports come first.
    fn pause(&mut self, job: &WriteJob, key: &ServiceKey, why: &str, asked: Option<Duration>, now: Instant) {
        tracing::debug!(object = %key.object(), why, "an export could not be written: retrying later");
        self.open.insert(key.clone());
        if job.epoch == self.epoch {
            self.epoch += 1;
            self.not_before = Some(now + self.backoff.pause(asked));
        }
    }

    /// Lists again soon, after a pause.
    fn list_soon(&mut self, key: &ServiceKey, now: Instant) {
        let pause = self.backoff.pause(None);
        self.give_up(key, pause, now);
    }

    /// Leaves the export as it is until the next list, at most `pause` from now, unless its desired state has changed in the
    /// meantime.
    fn give_up(&mut self, key: &ServiceKey, pause: Duration, now: Instant) {
        if !self.open.contains(key) {
            self.diff.close(key);
        }
        self.list_at = self.list_at.map(|at| at.min(now + pause));
    }

    /// Reports a notice if it is new.
    fn report(&mut self, notice: WriteNotice) {
        // Messages of API servers can contain versions and times, so only the stable parts identify a notice.
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

/// Kind and name of an object, for messages.
fn what(part: ExportObject, key: &ServiceKey) -> String {
    format!("{} {}", part.kind(), part.name(key))
}
