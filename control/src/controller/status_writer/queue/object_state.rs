//! State of one object in the queue: the desired state, the last writes, and when to write next.

use std::time::{Duration, Instant};

use super::contest::WriteContest;
use super::{Now, WriteJob};
use crate::backoff::Backoff;
use crate::controller::api_writer::{ApiAnswer, Conflict};
use crate::controller::ownership::Ownership;
use crate::controller::status_writer::next_step::{Urgency, WriteStep};
use crate::controller::status_writer::target::{WriteSubject, fingerprint};
use crate::controller::status_writer::write_notice::WriteNotice;
use crate::token_bucket::TokenBucket;

/// How long a write's answer outranks the watch cache.
const CACHE_LAG: Duration = Duration::from_secs(30);
/// Longest wait for an object whose writes get no answer. For an outage of the whole server, the queue pauses.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// How long addresses must be announced by the same gateways before a message names them: most moves are undone soon, as when a
/// gateway restarts.
const SETTLE: Duration = Duration::from_secs(10);
/// How many changes of a condition's status in a row are written immediately, and the time for one more after that. Three
/// restarts in a row are published as they happen; ten thousand Services whose endpoints flap together cost 500 writes a second.
const CHANGES: (u32, Duration) = (6, Duration::from_secs(20));
/// Failures after which a rejection is reported. Races are resolved by then.
const REPORTED_AFTER: u32 = 3;
/// Failures after which a problem is reported that a newer object or a recovered server usually resolves.
const LONG_REPORTED_AFTER: u32 = 6;

/// Next action for an object.
#[must_use]
pub(super) enum NextWrite {
    Rest,
    Wait(Instant),
    Write { step: WriteStep, urgency: Urgency, fingerprint: u64, force: bool, version: String },
}

/// The object from the API server's last answer, which is newer than the version in the cache.
struct WrittenObject {
    /// `None` if it was deleted.
    object: Option<WriteSubject>,
    version: String,
    until: Instant,
}

/// State of one object. The default is an unknown object without a desired state.
#[derive(Default)]
pub(super) struct ObjectState {
    pub(super) uid: String,
    /// Version in the cache.
    pub(super) cached: String,
    pub(super) writing: bool,
    pub(super) queued: bool,
    pub(super) not_before: Option<Instant>,
    /// The desired state; `None` while the object is as desired.
    subject: Option<WriteSubject>,
    released: bool,
    known: Option<WrittenObject>,
    /// The version that a write was based on and that was outdated. Any other version ends the wait.
    stale: Option<String>,
    failures: Backoff,
    /// The notice about rejected writes, while they are rejected.
    pub(super) refused: Option<WriteNotice>,
    contest: WriteContest,
    force: bool,
    /// Whether the cache still shows a state that we changed more than [`CACHE_LAG`] ago, or the server was restored to an
    /// earlier state.
    is_lagging: bool,
    /// Whether a `ClearStatus` succeeded.
    cleared: bool,
    /// Until then, a status may appear that was sent before the object was released, so that the finalizer stays.
    unsettled: Option<Instant>,
    /// Tokens left of [`CHANGES`], once one was used.
    changes: Option<TokenBucket>,
    /// Until then, no status is written that differs only in texts.
    minor_after: Option<Instant>,
    /// Fingerprint of the write that waits until it has been the same for [`SETTLE`], and the start of that time.
    settling: Option<(u64, Instant)>,
    /// Fingerprint of the last write of each kind of step. If the same has to be written again, others have undone it.
    written: [Option<u64>; 4],
}

impl ObjectState {
    /// Sets the desired state, with the version in the cache.
    pub(super) fn set_desired(&mut self, cached: WriteSubject, now: Now) {
        if self.uid != cached.uid() {
            let uid = cached.uid().to_owned();
            *self = Self { uid, writing: self.writing, queued: self.queued, ..Self::default() };
        }
        cached.version().clone_into(&mut self.cached);
        let is_over = |known: &WrittenObject| known.until <= now.instant;
        if self
            .known
            .as_ref()
            .is_some_and(|known| !is_older(&cached, known) || known.object.is_none() && is_over(known))
        {
            self.known = None;
        }
        let is_lagging = self.known.as_ref().is_some_and(is_over);
        let subject = match &self.known {
            Some(known) if !is_lagging => known.object.as_ref().map(|object| cached.of(object)),
            _ => Some(cached),
        };
        if let Some(subject) = &subject {
            self.reset_for(subject);
        }
        self.is_lagging = is_lagging;
        self.subject = subject;
    }

    /// Ends waits, and forgets writes that belong to the previous subject.
    fn reset_for(&mut self, subject: &WriteSubject) {
        if self.released != subject.is_released() {
            let (uid, known) = (std::mem::take(&mut self.uid), self.known.take());
            let (writing, queued, released) = (self.writing, self.queued, subject.is_released());
            let cached = std::mem::take(&mut self.cached);
            *self = Self { uid, known, cached, writing, queued, released, ..Self::default() };
        }
        if self.stale.as_ref().is_some_and(|version| version != subject.version()) {
            self.stale = None;
            self.not_before = None;
        }
    }

    /// Drops the desired state and ignores answers that are still to come.
    pub(super) fn forget(&mut self) {
        *self = Self { writing: self.writing, queued: self.queued, ..Self::default() };
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.uid.is_empty()
    }

    /// Whether the state is still needed: for what others undid, or for what the cache does not show yet.
    pub(super) fn is_needed(&self, now: Instant) -> bool {
        let gone = self.known.as_ref().is_some_and(|known| known.until > now);
        gone || self.written.iter().any(Option::is_some) || self.cleared || !self.contest.is_over(now)
    }

    /// The next action. `is_forced` is whether fields are taken from other managers without an attempt to share them.
    pub(super) fn plan(&mut self, is_forced: bool, options: &Ownership, now: Now) -> NextWrite {
        let Some(subject) = &self.subject else { return NextWrite::Rest };
        if self.unsettled.is_some_and(|until| until <= now.instant) {
            // What has appeared meanwhile is not cleared yet.
            (self.unsettled, self.cleared) = (None, false);
        }
        let mut step = subject.next_step(self.cleared, options, now.time);
        if step == WriteStep::Nothing {
            self.subject = None;
            self.refused = None;
            self.settling = None;
            return NextWrite::Rest;
        }
        if let (WriteStep::RemoveFinalizer(_), Some(until)) = (&step, self.unsettled) {
            return NextWrite::Wait(until);
        }
        if let WriteStep::ApplyStatus(body) = &mut step
            && self.is_lagging
        {
            // The finalizer in the cache may be gone by now, and a status without a finalizer would never be cleared.
            body["metadata"]["resourceVersion"] = subject.version().into();
        }
        let fingerprint = fingerprint(&step);
        let settled = self.settling.filter(|(settling, _)| *settling == fingerprint);
        self.settling = None;
        let urgency = subject.urgency(&step);
        let not_before = match urgency {
            Urgency::Now => None,
            Urgency::Status => self.changes.map(|changes| changes.next_at(now.instant.into()).into_std()),
            Urgency::Minor => self.minor_after,
            Urgency::Settled => {
                let (_, since) = *self.settling.insert(settled.unwrap_or((fingerprint, now.instant)));
                self.minor_after.max(Some(since + SETTLE))
            }
        };
        if let Some(at) = not_before.filter(|at| *at > now.instant) {
            return NextWrite::Wait(at);
        }
        if self.not_before.is_none_or(|at| at <= now.instant) && self.has_written(&step, fingerprint) {
            let wait = self.contest.undone(now.instant);
            self.not_before = Some(now.instant + wait);
        }
        if let Some(at) = self.not_before.filter(|at| *at > now.instant) {
            return NextWrite::Wait(at);
        }
        let version = subject.version().to_owned();
        NextWrite::Write {
            force: (self.force || is_forced) && matches!(step, WriteStep::ApplyStatus(_)),
            step,
            urgency,
            fingerprint,
            version,
        }
    }

    /// Keeps the finalizer until then, and clears the status once more before it goes.
    pub(super) fn hold_finalizer(&mut self, until: Instant) {
        self.unsettled = Some(until);
    }

    fn has_written(&self, step: &WriteStep, fingerprint: u64) -> bool {
        kind(step).is_some_and(|kind| self.written[kind] == Some(fingerprint))
    }

    /// Processes the answer to a write for this object.
    pub(super) fn on_answer(&mut self, job: &WriteJob, answer: ApiAnswer, now: Now) -> Option<WriteNotice> {
        let (message, reported_after) = match answer {
            ApiAnswer::Done(body) => return self.written(job, &body, now),
            ApiAnswer::Conflict(conflict) if !job.force => return self.contested(job, conflict, now),
            ApiAnswer::Conflict(conflict) => {
                self.wait(Duration::MAX, now);
                (format!("it belongs to {}", conflict.rivals.join(", ")), REPORTED_AFTER)
            }
            // Only the watch decides whether it is gone: the answer may come from a server that does not have it.
            ApiAnswer::Gone => {
                self.wait_for_newer(job, now);
                ("it has no such object".to_owned(), LONG_REPORTED_AFTER)
            }
            ApiAnswer::Stale | ApiAnswer::Exists => {
                self.wait_for_newer(job, now);
                ("the object has changed, and no watch shows how".to_owned(), LONG_REPORTED_AFTER)
            }
            ApiAnswer::Forbidden(message) => {
                self.wait(Duration::MAX, now);
                (message, REPORTED_AFTER)
            }
            ApiAnswer::Refused(message) | ApiAnswer::Failed(message) | ApiAnswer::Undefined(message) => {
                self.wait_after_refusal(job, now);
                (message, REPORTED_AFTER)
            }
            ApiAnswer::Unauthenticated(reason)
            | ApiAnswer::Busy { reason, .. }
            | ApiAnswer::Unreachable { reason } => {
                self.wait(LONGEST_SILENCE, now);
                (reason, LONG_REPORTED_AFTER)
            }
        };
        // The first message stays, because a different one would be another Event.
        if self.failures.failures() >= reported_after && self.refused.is_none() {
            let (object, what) = (job.target.object(), part(&job.step));
            self.refused = Some(WriteNotice::Refused { object, what, message });
        }
        None
    }

    fn wait(&mut self, longest: Duration, now: Now) {
        self.not_before = Some(now.instant + self.failures.pause(None).min(longest));
    }

    /// Like [`wait`](Self::wait), but only until there is another version of the object.
    fn wait_for_newer(&mut self, job: &WriteJob, now: Now) {
        self.wait(Duration::MAX, now);
        self.stale = Some(job.version.clone());
        if let Some(subject) = self.subject.take() {
            self.reset_for(&subject);
            self.subject = Some(subject);
        }
    }

    fn gone(&mut self, version: String, now: Now) {
        self.subject = None;
        self.known = Some(WrittenObject { object: None, version, until: now.instant + CACHE_LAG });
    }

    fn written(&mut self, job: &WriteJob, body: &[u8], now: Now) -> Option<WriteNotice> {
        self.failures.reset();
        self.refused = None;
        self.force = false;
        self.cleared |= matches!(job.step, WriteStep::ClearStatus(_));
        if let Some(kind) = kind(&job.step) {
            // Each of the two may undo the other, intentionally.
            if kind == STATUS || kind == REST {
                (self.written[STATUS], self.written[REST]) = (None, None);
            }
            self.written[kind] = Some(job.fingerprint);
        }
        if job.urgency == Urgency::Status {
            let (burst, refill) = CHANGES;
            let changes = self.changes.get_or_insert(TokenBucket::new(burst, refill, now.instant.into()));
            changes.take(now.instant.into());
        }
        let (pause, minor) = (job.target.pause(), job.target.minor_pause());
        let is_status = matches!(job.step, WriteStep::ApplyStatus(_) | WriteStep::PatchParents { .. });
        if is_status && !minor.is_zero() {
            self.minor_after = Some(now.instant + minor);
        }
        self.not_before = (!pause.is_zero()).then(|| now.instant + pause);
        self.renew(body, now);
        let ended = self.contest.written();
        let is_told = job.force && !job.target.is_forced();
        (ended && !is_told && self.contest.goes_on()).then(|| WriteNotice::Contested {
            object: job.target.object(),
            fields: vec![part(&job.step).into()],
            rivals: Vec::new(),
        })
    }

    /// Uses the object in the answer, unless the cache is newer or the answer cannot be parsed.
    fn renew(&mut self, body: &[u8], now: Now) {
        let Some(subject) = &self.subject else { return };
        let Some(renewed) = subject.renewed(body).filter(|renewed| renewed.uid() == self.uid) else { return };
        let version = renewed.version().to_owned();
        if renewed.is_gone() {
            // The deleted object has its previous version (the store deletes without an update), so the cache cannot show a newer
            // one.
            self.gone(version, now);
            return;
        }
        let known = WrittenObject { object: Some(renewed.clone()), version, until: now.instant + CACHE_LAG };
        if is_older(subject, &known) || subject.version() == known.version {
            self.reset_for(&renewed);
            self.subject = Some(renewed);
            self.known = Some(known);
        }
    }

    fn contested(&mut self, job: &WriteJob, conflict: Conflict, now: Now) -> Option<WriteNotice> {
        self.force = true;
        if conflict.rivals.is_empty() {
            return None;
        }
        self.not_before = Some(now.instant + self.contest.undone(now.instant));
        Some(WriteNotice::Contested {
            object: job.target.object(),
            fields: conflict.fields,
            rivals: conflict.rivals,
        })
    }

    /// Waits after a rejection. Often the object has just changed so that the write no longer applies, and a newer version will
    /// show that.
    fn wait_after_refusal(&mut self, job: &WriteJob, now: Now) {
        if self.failures.failures() + 1 < REPORTED_AFTER {
            self.wait_for_newer(job, now);
        } else {
            self.wait(Duration::MAX, now);
        }
    }
}

/// Whether the cached version is older than the known one. Versions are increasing numbers (guaranteed by Kubernetes 1.35,
/// KEP-5504); if a server's are not, any other version counts as newer.
fn is_older(cached: &WriteSubject, known: &WrittenObject) -> bool {
    match (cached.version().parse::<u64>(), known.version.parse::<u64>()) {
        (Ok(cached), Ok(version)) if known.object.is_none() => cached <= version,
        (Ok(cached), Ok(version)) => cached < version,
        _ => false,
    }
}

/// Indexes in [`ObjectState::written`] of two kinds of step.
const STATUS: usize = 1;
const REST: usize = 2;

fn kind(step: &WriteStep) -> Option<usize> {
    match step {
        // One kind: a finalizer that we removed ourselves was not taken from us.
        WriteStep::AddFinalizer(_) | WriteStep::RemoveFinalizer(_) => Some(0),
        WriteStep::ApplyStatus(_) => Some(STATUS),
        WriteStep::RemoveRest(_) => Some(REST),
        WriteStep::PatchParents { .. } => Some(3),
        // What a clear leaves belongs to others, so it is never undone.
        WriteStep::ClearStatus(_) | WriteStep::Nothing | WriteStep::Export(_) => None,
    }
}

/// The part of the object that a step writes, for messages.
fn part(step: &WriteStep) -> &'static str {
    match step {
        WriteStep::AddFinalizer(_) | WriteStep::RemoveFinalizer(_) => "metadata.finalizers",
        WriteStep::PatchParents { .. } => "status.parents",
        _ => "status",
    }
}
