//! The state of one object in the queue: what is desired, what was written, and how long to wait.

use std::time::{Duration, Instant};

use super::contest::Contest;
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
/// The longest wait for an object whose writes get no answer; the queue pauses for the server as a whole.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// How long addresses have to be announced by the same gateways before a message names these: most moves are undone, as when a
/// gateway restarts.
const SETTLE: Duration = Duration::from_secs(10);
/// How often in a row the status of conditions is written as it changes, and after which time once more. Three restarts in a row are
/// told as they happen; ten thousand Services whose endpoints flap together cost 500 writes a second.
const CHANGES: (u32, Duration) = (6, Duration::from_secs(20));
/// Failures after which a refusal is reported: races are over by then.
const REPORTED_AFTER: u32 = 3;
/// The same for failures that a newer object, or a server that comes back, usually ends.
const LONG_REPORTED_AFTER: u32 = 6;

/// What to do next.
#[must_use]
pub(super) enum NextWrite {
    Rest,
    Wait(Instant),
    Write { step: WriteStep, urgency: Urgency, fingerprint: u64, force: bool, uid: String, version: String },
}

/// The object as the API server last sent it to us, which is newer than what the cache has.
struct WrittenObject {
    /// `None`: it has gone.
    object: Option<WriteSubject>,
    version: String,
    until: Instant,
}

/// One object. The default knows nothing.
#[derive(Default)]
pub(super) struct ObjectState {
    pub(super) uid: String,
    pub(super) writing: bool,
    pub(super) queued: bool,
    pub(super) not_before: Option<Instant>,
    /// What is desired; none while the object is as it should be.
    subject: Option<WriteSubject>,
    released: bool,
    known: Option<WrittenObject>,
    /// The version for which a write came too late: any other ends the wait.
    stale: Option<String>,
    failures: Backoff,
    /// The notice about refused writes, while they are refused.
    pub(super) refused: Option<WriteNotice>,
    contest: Contest,
    force: bool,
    /// The cache still has what we changed more than [`CACHE_LAG`] ago, or the server has been restored to a time before that.
    is_lagging: bool,
    /// `ClearStatus` was carried out.
    cleared: bool,
    /// What is left of [`CHANGES`], once one was written.
    changes: Option<TokenBucket>,
    /// Until then no status is written that differs in words alone.
    minor_after: Option<Instant>,
    /// The write that waits until it has been the same for [`SETTLE`], by its fingerprint, and since when it has.
    settling: Option<(u64, Instant)>,
    /// What was written last, by kind of step: if it has to be written again, somebody has undone it.
    written: [Option<u64>; 4],
}

impl ObjectState {
    /// Sets what is desired, with the object as the cache has it.
    pub(super) fn set_desired(&mut self, cached: WriteSubject, now: Now) {
        if self.uid != cached.uid() {
            let uid = cached.uid().to_owned();
            *self = Self { uid, writing: self.writing, queued: self.queued, ..Self::default() };
        }
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

    /// Ends the waits and forgets the writes that belong to the subject before.
    fn reset_for(&mut self, subject: &WriteSubject) {
        if self.released != subject.is_released() {
            let (uid, known) = (std::mem::take(&mut self.uid), self.known.take());
            let (writing, queued, released) = (self.writing, self.queued, subject.is_released());
            *self = Self { uid, known, writing, queued, released, ..Self::default() };
        }
        if self.stale.as_ref().is_some_and(|version| version != subject.version()) {
            self.stale = None;
            self.not_before = None;
        }
    }

    /// Nothing is desired any more, and answers that are still to come are ignored.
    pub(super) fn forget(&mut self) {
        *self = Self { writing: self.writing, queued: self.queued, ..Self::default() };
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.uid.is_empty()
    }

    /// Whether it holds what is still needed: what others undid, and what the cache does not have yet.
    pub(super) fn is_needed(&self, now: Instant) -> bool {
        let gone = self.known.as_ref().is_some_and(|known| known.until > now);
        gone || self.written.iter().any(Option::is_some) || self.cleared || !self.contest.is_over(now)
    }

    pub(super) fn plan(&mut self, options: &Ownership, now: Now) -> NextWrite {
        let Some(subject) = &self.subject else { return NextWrite::Rest };
        let mut step = subject.next_step(self.cleared, options, now.time);
        if step == WriteStep::Nothing {
            self.subject = None;
            self.refused = None;
            self.settling = None;
            return NextWrite::Rest;
        }
        if let WriteStep::ApplyStatus(body) = &mut step
            && self.is_lagging
        {
            // A finalizer that the cache shows may be gone: nobody would ever clear a status without one.
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
        let (uid, version) = (self.uid.clone(), subject.version().to_owned());
        NextWrite::Write {
            force: self.force && matches!(step, WriteStep::ApplyStatus(_)),
            step,
            urgency,
            fingerprint,
            uid,
            version,
        }
    }

    fn has_written(&self, step: &WriteStep, fingerprint: u64) -> bool {
        kind(step).is_some_and(|kind| self.written[kind] == Some(fingerprint))
    }

    /// Takes the answer to a write for this object.
    pub(super) fn on_answer(&mut self, job: &WriteJob, answer: ApiAnswer, now: Now) -> Option<WriteNotice> {
        let (message, reported_after) = match answer {
            ApiAnswer::Done(body) => return self.written(job, &body, now),
            ApiAnswer::Conflict(conflict) if !job.force => return self.contested(job, conflict, now),
            ApiAnswer::Conflict(conflict) => {
                self.wait(Duration::MAX, now);
                (format!("it belongs to {}", conflict.rivals.join(", ")), REPORTED_AFTER)
            }
            // The watch decides whether it has gone: whoever answered may not be the server that holds it.
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
        // The first message stays: another in its place would be another Event.
        if self.failures.failures() >= reported_after && self.refused.is_none() {
            let (object, what) = (job.target.object(), part(&job.step));
            self.refused = Some(WriteNotice::Refused { object, what, message });
        }
        None
    }

    fn wait(&mut self, longest: Duration, now: Now) {
        self.not_before = Some(now.instant + self.failures.pause(None).min(longest));
    }

    /// As [`wait`](Self::wait), unless there is an object of another version, or until there is.
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
            // Either may undo the other, and does it by our own will.
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
        if matches!(job.step, WriteStep::ApplyStatus(_)) && !minor.is_zero() {
            self.minor_after = Some(now.instant + minor);
        }
        self.not_before = (!pause.is_zero()).then(|| now.instant + pause);
        self.renew(body, now);
        let ended = self.contest.written();
        (ended && !job.force && self.contest.goes_on()).then(|| WriteNotice::Contested {
            object: job.target.object(),
            fields: vec![part(&job.step).into()],
            rivals: Vec::new(),
        })
    }

    /// The answer has the object as it is now. If the cache was faster, or it cannot be read, the cache decides.
    fn renew(&mut self, body: &[u8], now: Now) {
        let Some(subject) = &self.subject else { return };
        let Some(renewed) = subject.renewed(body).filter(|renewed| renewed.uid() == self.uid) else { return };
        let version = renewed.version().to_owned();
        if renewed.is_gone() {
            // It has the version of before (the store deletes, and does not update), so the cache cannot show it.
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

    /// Often the object has just changed so that this write makes no sense; a newer object shows it.
    fn wait_after_refusal(&mut self, job: &WriteJob, now: Now) {
        if self.failures.failures() + 1 < REPORTED_AFTER {
            self.wait_for_newer(job, now);
        } else {
            self.wait(Duration::MAX, now);
        }
    }
}

/// Whether the cache does not have what we know. Versions are numbers that grow (Kubernetes 1.35 promises it, KEP-5504); if
/// a server's are not, any other version counts as newer.
fn is_older(cached: &WriteSubject, known: &WrittenObject) -> bool {
    match (cached.version().parse::<u64>(), known.version.parse::<u64>()) {
        (Ok(cached), Ok(version)) if known.object.is_none() => cached <= version,
        (Ok(cached), Ok(version)) => cached < version,
        _ => false,
    }
}

/// The places in [`ObjectState::written`] of two kinds of step.
const STATUS: usize = 1;
const REST: usize = 3;

fn kind(step: &WriteStep) -> Option<usize> {
    match step {
        WriteStep::AddFinalizer(_) => Some(0),
        WriteStep::ApplyStatus(_) => Some(STATUS),
        WriteStep::RemoveFinalizer(_) => Some(2),
        WriteStep::RemoveRest(_) => Some(REST),
        // What it leaves belongs to others, so it is never undone.
        WriteStep::ClearStatus(_) | WriteStep::Nothing | WriteStep::Export(_) => None,
    }
}

/// The part of the object that a step writes.
fn part(step: &WriteStep) -> &'static str {
    match step {
        WriteStep::AddFinalizer(_) | WriteStep::RemoveFinalizer(_) => "metadata.finalizers",
        _ => "status",
    }
}
