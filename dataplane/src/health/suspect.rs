//! Suspects: endpoints that connections failed to reach, and the consecutive failures among these. Workers report every failure, but
//! successes only of suspects. Two failures are therefore consecutive only if a success between them would have been noticed and
//! reported. In doubt, a connection of the health task decides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{Protocol, ServicePort};

use super::outlier::{FAILURES, Outlier, Transition};
use super::success_watch::{SuccessWatch, WatchState};
use crate::handover::FailureRecord;

/// Failures within this time count as one. Of connections that it starts together, a worker notices refusals at once (connect(2) on a
/// short path returns them) and successes in its next turn, so their order means nothing.
const BURST: Duration = Duration::from_millis(20);

/// Delay before the health task connects after enough failures that are not known to be consecutive: a success that is about to be
/// reported comes first.
const OPINION_AFTER: Duration = Duration::from_millis(100);

/// Time of a failure, and the state of the watch at that time.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailureMoment {
    pub(super) at: Instant,
    /// State of the endpoint's watch at that moment; `None` if the endpoint was no suspect yet.
    pub(super) watch: Option<WatchState>,
}

impl FailureMoment {
    fn is_unbroken_until(&self, later: &Self) -> bool {
        self.watch.zip(later.watch).is_some_and(|(watch, later)| watch.is_unbroken_until(later))
    }
}

/// An endpoint that connections failed to reach.
#[derive(Debug)]
pub(super) struct Suspect {
    outlier: Outlier,
    watch: Arc<SuccessWatch>,
    /// Number of failures since the last known success, consecutive or not.
    failures: u8,
    /// The last of the consecutive failures.
    last: Option<FailureMoment>,
    /// Whether its last failure was a missing answer: then only an answer proves that it serves.
    silent: bool,
    /// Whether it sees the clients' own addresses, and so may refuse the gateway's.
    sees_clients: bool,
    /// When the health task is to connect.
    opinion_due: Option<Instant>,
    /// Time of its next queued deadline.
    scheduled: Option<Instant>,
}

impl Suspect {
    /// Creates a suspect that did not fail before `now`; `number` is the number of its watch.
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

    /// Restores a suspect of another process. Successes since then are unknown, so its next failure begins a new sequence.
    pub(super) fn restored(record: &FailureRecord, number: u32, now: Instant) -> Self {
        let last = Some(FailureMoment { at: now, watch: None });
        let outlier = Outlier::restored(record, now);
        Self { outlier, failures: record.failures, last, silent: record.silent, ..Self::new(number, now) }
    }

    /// The record that another process restores.
    pub(super) fn record(&self, now: Instant) -> FailureRecord {
        FailureRecord { silent: self.silent, ..self.outlier.record(now) }
    }

    /// The watch shared with the workers.
    pub(super) fn watch(&self) -> &Arc<SuccessWatch> {
        &self.watch
    }

    /// Records a failed connection; `jitter` as in [`Outlier::failed`].
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

    /// Records a successful connection.
    pub(super) fn succeeded(&mut self) -> Transition {
        (self.failures, self.last, self.opinion_due) = (0, None, None);
        self.outlier.succeeded()
    }

    /// Whether new traffic avoids it.
    pub(super) fn is_ejected(&self) -> bool {
        self.outlier.is_ejected()
    }

    /// Whether it is being tried.
    pub(super) fn is_on_trial(&self) -> bool {
        self.outlier.is_on_trial()
    }

    /// Sets whether its last failure was a missing answer.
    pub(super) fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    /// Records that it sees the clients' own addresses.
    pub(super) fn set_sees_clients(&mut self) {
        self.sees_clients = true;
    }

    pub(super) fn sees_clients(&self) -> bool {
        self.sees_clients
    }

    /// Ends a trial in which a client sent datagrams for a while without an answer or an error. A protocol without answers cannot show
    /// more.
    pub(super) fn acquit(&mut self, now: Instant) {
        if !self.silent {
            self.outlier.acquit(now);
        }
    }

    /// The next deadline, unless an earlier one is queued already.
    pub(super) fn schedule(&mut self) -> Option<Instant> {
        let due = [self.outlier.due(), self.opinion_due].into_iter().flatten().min()?;
        let earlier = self.scheduled.is_none_or(|scheduled| due < scheduled);
        earlier.then(|| *self.scheduled.insert(due))
    }

    /// Whether the deadline at `at` is current; removes it.
    pub(super) fn takes_turn(&mut self, at: Instant) -> bool {
        self.scheduled.take_if(|scheduled| *scheduled == at).is_some()
    }

    /// Whether the health task is to connect now. Not for UDP, where connecting shows nothing.
    pub(super) fn takes_opinion(&mut self, service: &ServicePort, now: Instant) -> bool {
        self.opinion_due.take_if(|due| *due <= now).is_some() && service.protocol == Protocol::Tcp
    }

    /// Postpones the health task's connection, since this machine was short of a resource.
    pub(super) fn postpone_opinion(&mut self, now: Instant) {
        if self.failures >= FAILURES {
            self.opinion_due = Some(now + OPINION_AFTER);
        }
    }

    /// Begins a trial if it is due.
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
