//! Write queue: decides which write is sent next. No I/O; the caller passes time, objects and answers.

mod contest;
mod exports;
mod object_state;

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::exports::Exports;
use self::object_state::{NextWrite, ObjectState};
use crate::api::store::ServiceKey;
use crate::backoff::Backoff;
use crate::controller::api_writer::ApiAnswer;
use crate::controller::ownership::Ownership;
use crate::controller::service_exports::{DesiredExport, ExportList, LeaseRead};
use crate::controller::status_writer::next_step::{Urgency, WriteStep};
use crate::controller::status_writer::target::{WriteSubject, WriteTarget};
use crate::controller::status_writer::write_notice::WriteNotice;

/// Largest number of concurrent writes: enough to write 20,000 objects in less than 20 s even if each is synced to disk before
/// the answer. Each takes a seat of the API server's priority level `workload-low` (245 by default). Writes beyond these wait
/// there, or get a 429.
const MOST: usize = 32;
/// First and longest pause while the API server is unavailable, so that recovery is noticed soon.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(40));

/// Current time, for waiting and for conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) time: Timestamp,
}

/// A write to send.
#[derive(Clone, Debug)]
pub(super) struct WriteJob {
    pub(super) target: WriteTarget,
    pub(super) step: WriteStep,
    /// Whether to take fields from other managers.
    pub(super) force: bool,
    urgency: Urgency,
    pub(super) uid: String,
    /// Version of the object that it was computed from.
    pub(super) version: String,
    /// Version of the object in the cache.
    pub(super) cached: String,
    fingerprint: u64,
    epoch: u64,
}

impl WriteJob {
    /// Resource name for RBAC rules.
    fn resource(&self) -> &'static str {
        match (&self.target, &self.step) {
            (WriteTarget::Pool(_), _) => "addresspools/status",
            (WriteTarget::GatewayApi(key), step) => key.resource(!step.is_about_finalizers()),
            (target, WriteStep::AddFinalizer(_) | WriteStep::RemoveFinalizer(_)) if target.is_of_fleet() => {
                "multiclusterservices"
            }
            (_, WriteStep::AddFinalizer(_) | WriteStep::RemoveFinalizer(_)) => "services",
            (target, _) if target.is_of_fleet() => "multiclusterservices/status",
            _ => "services/status",
        }
    }
}

/// All desired states, and the state of their writes.
pub(super) struct WriteQueue {
    options: Ownership,
    states: HashMap<WriteTarget, ObjectState>,
    ready: VecDeque<WriteTarget>,
    delayed: BTreeSet<(Instant, WriteTarget)>,
    writing: usize,
    /// Number of pauses so far. A write that was sent before a pause and fails after it does not extend the pause.
    epoch: u64,
    outage: Backoff,
    paused: Option<Instant>,
    forbidden: HashSet<&'static str>,
    /// Objects whose rejected writes were reported.
    refused: HashSet<WriteTarget>,
    notices: Vec<WriteNotice>,
    exports: Exports,
}

impl WriteQueue {
    pub(super) fn new(options: Ownership) -> Self {
        Self {
            options,
            states: HashMap::new(),
            ready: VecDeque::new(),
            delayed: BTreeSet::new(),
            writing: 0,
            epoch: 0,
            outage: Backoff::new(OUTAGE.0, OUTAGE.1),
            paused: None,
            forbidden: HashSet::new(),
            refused: HashSet::new(),
            notices: Vec::new(),
            exports: Exports::default(),
        }
    }

    /// Sets the desired state of an object, with the version in the cache.
    pub(super) fn set_desired(&mut self, target: WriteTarget, subject: WriteSubject, now: Now) {
        let state = match self.states.entry(target.clone()) {
            Slot::Occupied(slot) => slot.into_mut(),
            Slot::Vacant(_) if subject.next_step(false, &self.options, now.time) == WriteStep::Nothing => {
                return;
            }
            Slot::Vacant(slot) => slot.insert(ObjectState::default()),
        };
        state.set_desired(subject, now);
        self.report_refusal(&target);
        self.enqueue(target, now);
    }

    /// Drops the desired state of an object that is gone.
    pub(super) fn forget(&mut self, target: &WriteTarget) {
        if let Some(state) = self.states.get_mut(target) {
            state.forget();
            if !state.writing {
                self.states.remove(target);
            }
            self.report_refusal(target);
        }
    }

    /// Sets the desired export of a MultiClusterService, which makes Karmada collect its endpoints.
    pub(super) fn set_export(&mut self, key: ServiceKey, desired: DesiredExport) {
        self.exports.set_desired(key, desired);
    }

    /// Drops the desired export of a MultiClusterService that is gone.
    pub(super) fn forget_export(&mut self, key: ServiceKey) {
        self.exports.forget(key);
    }

    /// Whether to list the existing exports now. If so, the caller must pass the answer to [`listed`](Self::listed).
    pub(super) fn start_list(&mut self, now: Now) -> bool {
        self.exports.start_list(now.instant)
    }

    /// Records the existing exports and compares everything again.
    pub(super) fn listed(&mut self, listed: ExportList, now: Now) {
        self.exports.on_list(listed, self.options.field_manager(), now.instant);
    }

    /// Whether to read the Lease of Karmada's controller now. If so, the caller must pass the answer to
    /// [`on_collector`](Self::on_collector).
    pub(super) fn start_collector_read(&mut self, now: Now) -> bool {
        self.exports.start_read(now.instant)
    }

    /// Records the Lease of Karmada's controller, which collects the endpoints of exports.
    pub(super) fn on_collector(&mut self, read: &LeaseRead, now: Now) {
        self.exports.on_read(read, now.instant);
    }

    /// Drops all desired states after the loss of leadership.
    pub(super) fn drop_everything(&mut self) {
        for state in self.states.values_mut() {
            state.forget();
        }
        self.states.retain(|_, state| state.writing);
        self.exports = Exports::default();
        self.refused.clear();
        self.ready.clear();
        self.delayed.clear();
    }

    /// Whether [`next`](Self::next) may return a write.
    pub(super) fn may_write(&mut self, now: Now) -> bool {
        while let Some((at, _)) = self.delayed.first() {
            if *at > now.instant {
                break;
            }
            if let Some((_, target)) = self.delayed.pop_first() {
                self.enqueue(target, now);
            }
        }
        self.may_write_object(now) || self.exports.may_write(now.instant)
    }

    fn may_write_object(&self, now: Now) -> bool {
        let paused = self.paused.is_some_and(|until| until > now.instant);
        !self.ready.is_empty() && self.writing < MOST && !paused
    }

    /// The next write to send. It counts as in flight until it is passed to [`finished`](Self::finished).
    pub(super) fn next(&mut self, now: Now) -> Option<WriteJob> {
        if self.may_write(now)
            && let Some(job) = self.next_object(now)
        {
            return Some(job);
        }
        self.exports.next(now.instant)
    }

    fn next_object(&mut self, now: Now) -> Option<WriteJob> {
        while self.may_write_object(now) {
            let target = self.ready.pop_front()?;
            let Some(state) = self.states.get_mut(&target) else { continue };
            state.queued = false;
            if state.writing {
                continue;
            }
            match state.plan(target.is_forced(), &self.options, now) {
                NextWrite::Rest => {
                    if !state.is_needed(now.instant) {
                        self.states.remove(&target);
                    }
                    self.report_refusal(&target);
                }
                NextWrite::Wait(until) => {
                    self.delayed.insert((until, target));
                }
                NextWrite::Write { step, urgency, fingerprint, force, version } => {
                    let (uid, cached) = (state.uid.clone(), state.cached.clone());
                    state.writing = true;
                    self.writing += 1;
                    return Some(WriteJob {
                        target,
                        step,
                        force,
                        urgency,
                        uid,
                        version,
                        cached,
                        fingerprint,
                        epoch: self.epoch,
                    });
                }
            }
        }
        None
    }

    /// Takes back a write that [`next`](Self::next) returned and that is not sent. Its object is released no earlier than `until`.
    pub(super) fn postpone(&mut self, job: &WriteJob, until: Instant, now: Now) {
        self.writing -= 1;
        if let Some(state) = self.states.get_mut(&job.target) {
            state.writing = false;
            state.hold_finalizer(until);
            self.enqueue(job.target.clone(), now);
        }
    }

    /// When to call [`next`](Self::next) again if nothing else happens.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        let paused = self.paused.filter(|_| !self.ready.is_empty() && self.writing < MOST);
        let delayed = self.delayed.first().map(|(at, _)| *at);
        [paused, delayed, self.exports.wakes_at()].into_iter().flatten().min()
    }

    /// Processes the answer to a write.
    pub(super) fn finished(&mut self, job: &WriteJob, answer: ApiAnswer, now: Now) {
        if matches!(job.target, WriteTarget::Export(_)) {
            self.exports.on_answer(job, answer, self.options.field_manager(), now.instant);
            return;
        }
        self.writing -= 1;
        self.on_server_answer(job, &answer, now);
        let Some(state) = self.states.get_mut(&job.target) else { return };
        state.writing = false;
        if state.uid == job.uid {
            self.notices.extend(state.on_answer(job, answer, now));
        }
        let forgotten = state.is_forgotten();
        self.report_refusal(&job.target);
        if forgotten {
            self.states.remove(&job.target);
        } else {
            self.enqueue(job.target.clone(), now);
        }
    }

    /// Reports when writes of an object start or stop being rejected permanently.
    fn report_refusal(&mut self, target: &WriteTarget) {
        let refused = self.states.get(target).and_then(|state| state.refused.as_ref());
        match refused {
            Some(notice) if self.refused.insert(target.clone()) => self.notices.push(notice.clone()),
            None if self.refused.remove(target) => {
                self.notices.push(WriteNotice::Recovered { object: target.object() });
            }
            _ => {}
        }
    }

    /// Notices for users since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<WriteNotice> {
        self.notices.append(&mut self.exports.notices);
        std::mem::take(&mut self.notices)
    }

    /// Updates what is known of the server and our permissions.
    fn on_server_answer(&mut self, job: &WriteJob, answer: &ApiAnswer, now: Now) {
        let resource = job.resource();
        if let Some((reason, retry_after)) = answer.outage() {
            if job.epoch == self.epoch {
                let wait = self.outage.pause(retry_after);
                self.epoch += 1;
                self.paused = Some(now.instant + wait);
                if self.outage.failures() == 1 {
                    tracing::warn!(object = %job.target.object(), reason, "the API server accepts no writes: retrying");
                }
            }
            return;
        }
        match answer {
            ApiAnswer::Forbidden(message) if self.forbidden.insert(resource) => {
                let message = message.clone();
                self.notices.push(WriteNotice::Forbidden { verb: "patch", resource, message });
            }
            ApiAnswer::Done(_) => {
                self.forbidden.remove(resource);
            }
            _ => {}
        }
        if self.outage.failures() > 0 {
            tracing::info!("the API server accepts writes again");
        }
        self.outage.reset();
        self.paused = None;
    }

    fn enqueue(&mut self, target: WriteTarget, now: Now) {
        let Some(state) = self.states.get_mut(&target) else { return };
        if state.writing || state.queued {
            return;
        }
        match state.not_before.filter(|at| *at > now.instant) {
            Some(at) => {
                self.delayed.insert((at, target));
            }
            None => {
                state.queued = true;
                self.ready.push_back(target);
            }
        }
    }
}

#[cfg(test)]
mod tests;
