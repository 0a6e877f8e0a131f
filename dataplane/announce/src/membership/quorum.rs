//! Whether this gateway may own addresses: leases of a majority or an answer of the tie-breaker, and the hold-down after it was fenced.

use std::time::Instant;

use super::hold_down::HoldDown;
use super::options::MembershipOptions;
use super::start::{Continuation, Start};

/// How many members give this gateway a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quorum {
    /// It, and the members from which it has a lease.
    pub votes: usize,
    /// It, and the members that count.
    pub members: usize,
    /// Whether the tie-breaker has answered in time.
    pub tie_breaker: bool,
}

impl Quorum {
    /// Whether more than half of the members give it a lease.
    pub fn is_majority(self) -> bool {
        self.votes * 2 > self.members
    }

    /// Whether it may own addresses. Where the majority is lost, for good perhaps, whoever reaches the tie-breaker goes on, alone if need be: two
    /// owners for a moment are better than none until somebody edits a list.
    pub fn holds(self) -> bool {
        self.is_majority() || self.tie_breaker
    }
}

/// Until when these leases suffice, of the members that count; none where no lease is needed.
pub(super) fn quorum_until(
    mut leases: Vec<Instant>,
    members: usize,
    tie: Option<Instant>,
) -> Option<Instant> {
    leases.sort_unstable_by(|a, b| b.cmp(a));
    let others = (members / 2).checked_sub(1)?;
    leases.get(others).copied().max(tie)
}

/// What the others were while this gateway could own nothing, as far as it has heard of them since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    /// Some may own addresses.
    pub(super) eligible: bool,
    /// Some may, and have not shown that meanwhile they could not either.
    pub(super) went_on: bool,
    /// There are some, and all that may own something are heard.
    pub(super) complete: bool,
}

/// Fenced or not, and whether it has been long enough without a fence.
#[derive(Debug)]
pub(super) struct Standby {
    pub(super) fenced: bool,
    pub(super) eligible: bool,
    /// Since when it has had a quorum.
    since: Instant,
    /// Since when it has not been eligible.
    away_since: Instant,
    /// Others went on without it.
    missed: bool,
    /// What made it wait is a loss, once others are known to have gone on: where all were away together, nothing flaps.
    uncounted: bool,
    hold_down: HoldDown,
    /// Until when the leases of the process before this one hold.
    inherited: Option<Instant>,
}

impl Standby {
    pub(super) fn new(options: &MembershipOptions, start: Start, now: Instant) -> Self {
        let fresh = Self {
            fenced: true,
            eligible: false,
            since: now,
            away_since: now,
            missed: false,
            uncounted: false,
            hold_down: HoldDown::new(options),
            inherited: None,
        };
        match start {
            Start::Fresh(None) => fresh,
            Start::Fresh(Some(HoldDown { time, doubles })) => {
                let hold_down = HoldDown { time: HoldDown::continued(options, time).time, doubles };
                Self { hold_down, uncounted: true, ..fresh }
            }
            Start::Continued(Continuation { eligible, lease_left, hold_down, .. }) => Self {
                fenced: false,
                eligible,
                hold_down: HoldDown::continued(options, hold_down),
                inherited: Some(now + lease_left.min(options.fail_after_max)),
                ..fresh
            },
        }
    }

    /// How long it must have a quorum before it becomes eligible, while others are, and whether that has grown.
    pub(super) fn hold_down(&self) -> HoldDown {
        self.hold_down
    }

    pub(super) fn inherited(&self) -> Option<Instant> {
        self.inherited
    }

    /// Since when it has had a quorum, if it has one.
    pub(super) fn unfenced_since(&self) -> Instant {
        self.since
    }

    /// Since when it has not been eligible.
    pub(super) fn away_since(&self) -> Instant {
        self.away_since
    }

    /// Fences; true if it was not.
    pub(super) fn fence(&mut self, now: Instant) -> bool {
        self.eligible = false;
        self.inherited = None;
        if self.fenced {
            return false;
        }
        (self.fenced, self.away_since) = (true, now);
        (self.missed, self.uncounted) = (false, true);
        true
    }

    /// Ends the fence; true if there was one.
    pub(super) fn unfence(&mut self, now: Instant) -> bool {
        if self.fenced {
            self.since = now;
        }
        std::mem::take(&mut self.fenced)
    }

    /// When it becomes eligible. Those who were away together go on together, an interval after they have heard each other: until then all
    /// have said so.
    pub(super) fn next_due(&self, options: &MembershipOptions, others: Others) -> Option<Instant> {
        let wait = match others {
            Others { eligible: true, .. } if self.missed => self.hold_down.time,
            Others { eligible, complete, .. } if eligible || complete && !self.missed => options.interval,
            _ => options.fail_after,
        };
        (!self.fenced && !self.eligible).then(|| self.since + wait)
    }

    /// Becomes eligible if it is time.
    pub(super) fn update(&mut self, options: &MembershipOptions, others: Others, now: Instant) -> bool {
        if self.fenced {
            return false;
        }
        let told = now >= self.since + options.interval;
        if told && others.went_on && !self.eligible && !self.missed {
            self.missed = true;
            if std::mem::take(&mut self.uncounted) {
                self.hold_down.lost(options);
            }
        }
        self.hold_down.stayed(self.since, options, now);
        let due = self.next_due(options, others).is_some_and(|due| now >= due);
        self.eligible |= due;
        due
    }
}
