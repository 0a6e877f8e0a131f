//! An endpoint that connections failed to reach, and which of these failures are in a row. Workers report failures as they notice them,
//! and successes only of suspects; so two failures are in a row only if a success between them would have been noticed and reported.
//! What cannot be told from that, a connection of the health task decides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{Protocol, ServicePort};

use super::outlier::{FAILURES, Outlier, Transition};
use super::success_watch::{SuccessWatch, WatchState};
use crate::handover::FailureRecord;

/// Failures within this time count as one. Of connections that it begins together, a worker notices refusals at once (connect(2) on
/// a short path returns them) and successes in its next turn, so their order says nothing.
const BURST: Duration = Duration::from_millis(20);

/// How long after enough failures the health task connects by itself, if they are not known to be in a row: a success that is
/// under way comes first.
const OPINION_AFTER: Duration = Duration::from_millis(100);

/// When a failure was noticed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailureMoment {
    pub(super) at: Instant,
    /// The endpoint's watch at that moment; `None` if it was no suspect yet.
    pub(super) watch: Option<WatchState>,
}

impl FailureMoment {
    fn is_unbroken_until(&self, later: &Self) -> bool {
        self.watch.zip(later.watch).is_some_and(|(watch, later)| watch.is_unbroken_until(later))
    }
}

/// A suspect.
#[derive(Debug)]
pub(super) struct Suspect {
    outlier: Outlier,
    watch: Arc<SuccessWatch>,
    /// Failures since the last known success, whether in a row or not.
    failures: u8,
    /// The last failure of the row.
    last: Option<FailureMoment>,
    /// Its last failure was that it did not answer: only an answer says that it is well.
    silent: bool,
    /// It sees the clients' own addresses, and may refuse the gateway's.
    sees_clients: bool,
    /// When the health task is to connect by itself.
    opinion_due: Option<Instant>,
    /// When it is looked at next.
    scheduled: Option<Instant>,
}

impl Suspect {
    /// One that did not fail before `now`. `number` is that of its watch.
    pub(super) fn new(number: u32, now: Instant) -> Self {
        Self {
            outlier: Outlier::new(now),
            watch: Arc::new(SuccessWatch::armed(number)),
            failures: 0,
            last: None,
            silent: false,
            sees_clients: false,
            opinion_due: None,
            scheduled: None,
        }
    }

    /// One that another process knew. Successes since then are unknown, so its next failure begins another row.
    pub(super) fn restored(record: &FailureRecord, number: u32, now: Instant) -> Self {
        let last = Some(FailureMoment { at: now, watch: None });
        let outlier = Outlier::restored(record, now);
        Self { outlier, failures: record.failures, last, silent: record.silent, ..Self::new(number, now) }
    }

    /// What another process is told of it.
    pub(super) fn record(&self, now: Instant) -> FailureRecord {
        FailureRecord { silent: self.silent, ..self.outlier.record(now) }
    }

    /// What its workers share.
    pub(super) fn watch(&self) -> &Arc<SuccessWatch> {
        &self.watch
    }

    /// A connection failed. `jitter` as in [`Outlier::failed`].
    pub(super) fn failed(&mut self, moment: FailureMoment, now: Instant, jitter: u64) -> Transition {
        self.watch.arm();
        self.failures = self.failures.saturating_add(1);
        let transition = match &self.last {
            Some(last) if !last.is_unbroken_until(&moment) => {
                self.outlier.break_row();
                self.count(moment, now, jitter)
            }
            Some(last) if moment.at.saturating_duration_since(last.at) < BURST => Transition::None,
            Some(_) | None => self.count(moment, now, jitter),
        };
        if self.outlier.is_ejected() {
            (self.failures, self.last, self.opinion_due) = (0, None, None);
        } else if self.failures >= FAILURES {
            self.opinion_due.get_or_insert(now + OPINION_AFTER);
        }
        transition
    }

    fn count(&mut self, moment: FailureMoment, now: Instant, jitter: u64) -> Transition {
        self.last = Some(moment);
        self.outlier.failed(now, jitter)
    }

    /// A connection succeeded.
    pub(super) fn succeeded(&mut self) -> Transition {
        (self.failures, self.last, self.opinion_due) = (0, None, None);
        self.outlier.succeeded()
    }

    /// Whether new traffic avoids it.
    pub(super) fn is_ejected(&self) -> bool {
        self.outlier.is_ejected()
    }

    /// Whether it is tried.
    pub(super) fn is_on_trial(&self) -> bool {
        self.outlier.is_on_trial()
    }

    /// Whether its last failure was that it did not answer.
    pub(super) fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    /// It sees the clients' own addresses.
    pub(super) fn set_sees_clients(&mut self) {
        self.sees_clients = true;
    }

    /// Whether it sees the clients' own addresses.
    pub(super) fn sees_clients(&self) -> bool {
        self.sees_clients
    }

    /// A client has tried it for a while, without an answer or an error. That is all that a protocol without answers can show.
    pub(super) fn acquit(&mut self, now: Instant) {
        if !self.silent {
            self.outlier.acquit(now);
        }
    }

    /// When to look at it next, unless that was said before.
    pub(super) fn schedule(&mut self) -> Option<Instant> {
        let due = [self.outlier.due(), self.opinion_due].into_iter().flatten().min()?;
        let earlier = self.scheduled.is_none_or(|scheduled| due < scheduled);
        earlier.then(|| *self.scheduled.insert(due))
    }

    /// Whether it was to be looked at then.
    pub(super) fn takes_turn(&mut self, at: Instant) -> bool {
        self.scheduled.take_if(|scheduled| *scheduled == at).is_some()
    }

    /// Whether the health task is to connect now. Of UDP a connection says nothing.
    pub(super) fn takes_opinion(&mut self, service: &ServicePort, now: Instant) -> bool {
        self.opinion_due.take_if(|due| *due <= now).is_some() && service.protocol == Protocol::Tcp
    }

    /// The health task could not find out: this machine lacked something.
    pub(super) fn postpone_opinion(&mut self, now: Instant) {
        if self.failures >= FAILURES {
            self.opinion_due = Some(now + OPINION_AFTER);
        }
    }

    /// Begins a trial when it is due.
    pub(super) fn expire(&mut self, now: Instant) -> Transition {
        let transition = self.outlier.expire(now);
        if transition == Transition::Trial {
            self.watch.arm();
        }
        transition
    }
}

#[cfg(test)]
mod tests;
