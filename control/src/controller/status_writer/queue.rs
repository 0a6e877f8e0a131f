//! The write queue: decides which write goes out next. Pure: time, objects and answers are handed in.

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

/// Writes under way at the same time, so that 20,000 take less than 20 s also where each is on a disk before it is answered. Of
/// the seats that an API server has for level `workload-low` of priority and fairness (245 by default) each takes one; what is
/// beyond waits there, or gets a 429.
const MOST: usize = 32;
/// The first and the longest pause while the API server is away, at most: once it is back nobody should wait long.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(40));

/// Now, for waiting and for conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) time: Timestamp,
}

/// One write to be sent.
#[derive(Clone, Debug)]
pub(super) struct WriteJob {
    pub(super) target: WriteTarget,
    pub(super) step: WriteStep,
    /// Take fields from other managers.
    pub(super) force: bool,
    urgency: Urgency,
    uid: String,
    version: String,
    fingerprint: u64,
    epoch: u64,
}

impl WriteJob {
    /// The resource as RBAC rules name it.
    fn resource(&self) -> &'static str {
        match (&self.target, &self.step) {
            (WriteTarget::Pool(_), _) => "addresspools/status",
            (target, WriteStep::AddFinalizer(_) | WriteStep::RemoveFinalizer(_)) if target.is_of_fleet() => {
                "multiclusterservices"
            }
            (_, WriteStep::AddFinalizer(_) | WriteStep::RemoveFinalizer(_)) => "services",
            (target, _) if target.is_of_fleet() => "multiclusterservices/status",
            _ => "services/status",
        }
    }
}

/// Everything that is desired, and the state of its writes.
pub(super) struct WriteQueue {
    options: Ownership,
    states: HashMap<WriteTarget, ObjectState>,
    ready: VecDeque<WriteTarget>,
    delayed: BTreeSet<(Instant, WriteTarget)>,
    writing: usize,
    /// Counts the pauses: writes sent before a pause that fail after it do not make it longer.
    epoch: u64,
    outage: Backoff,
    paused: Option<Instant>,
    forbidden: HashSet<&'static str>,
    /// Objects whose refused writes were reported.
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

    /// Sets what is desired of an object, with the object as the cache has it.
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

    /// The object has gone.
    pub(super) fn forget(&mut self, target: &WriteTarget) {
        if let Some(state) = self.states.get_mut(target) {
            state.forget();
            if !state.writing {
                self.states.remove(target);
            }
            self.report_refusal(target);
        }
    }

    /// What is to be there so that Karmada collects the endpoints of a MultiClusterService.
    pub(super) fn set_export(&mut self, key: ServiceKey, desired: DesiredExport) {
        self.exports.set_desired(key, desired);
    }

    /// The MultiClusterService has gone.
    pub(super) fn forget_export(&mut self, key: ServiceKey) {
        self.exports.forget(key);
    }

    /// Whether it is to be listed now which exports there are. Then [`listed`](Self::listed) is to be called with the answer.
    pub(super) fn start_list(&mut self, now: Now) -> bool {
        self.exports.start_list(now.instant)
    }

    /// Takes what there is of exports; everything is compared again.
    pub(super) fn listed(&mut self, listed: ExportList, now: Now) {
        self.exports.on_list(listed, self.options.field_manager(), now.instant);
    }

    /// Whether the Lease of Karmada's controller is to be read now. Then [`on_collector`](Self::on_collector) is to be called
    /// with the answer.
    pub(super) fn start_collector_read(&mut self, now: Now) -> bool {
        self.exports.start_read(now.instant)
    }

    /// Takes the Lease of Karmada's controller, which collects the endpoints of what is exported.
    pub(super) fn on_collector(&mut self, read: &LeaseRead, now: Now) {
        self.exports.on_read(read, now.instant);
    }

    /// Leadership is lost: forgets everything.
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

    /// Whether [`next`](Self::next) may have something.
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

    /// The next write to send. It is under way until [`finished`](Self::finished) is called with it.
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
            match state.plan(&self.options, now) {
                NextWrite::Rest => {
                    if !state.is_needed(now.instant) {
                        self.states.remove(&target);
                    }
                    self.report_refusal(&target);
                }
                NextWrite::Wait(until) => {
                    self.delayed.insert((until, target));
                }
                NextWrite::Write { step, urgency, fingerprint, force, uid, version } => {
                    state.writing = true;
                    self.writing += 1;
                    return Some(WriteJob {
                        target,
                        step,
                        force,
                        urgency,
                        uid,
                        version,
                        fingerprint,
                        epoch: self.epoch,
                    });
                }
            }
        }
        None
    }

    /// When [`next`](Self::next) should be asked again, if nothing else happens.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        let paused = self.paused.filter(|_| !self.ready.is_empty() && self.writing < MOST);
        let delayed = self.delayed.first().map(|(at, _)| *at);
        [paused, delayed, self.exports.wakes_at()].into_iter().flatten().min()
    }

    /// The write was answered.
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

    /// Reports when writes of an object begin or cease to be refused for good.
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

    /// The notices for users since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<WriteNotice> {
        self.notices.append(&mut self.exports.notices);
        std::mem::take(&mut self.notices)
    }

    /// What an answer shows about the server and our rights there.
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
