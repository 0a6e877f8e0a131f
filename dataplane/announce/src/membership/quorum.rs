//! Whether this gateway may own addresses: leases of a majority or an answer of the tie-breaker, and the hold-down after a start or a fence.

use std::time::{Duration, Instant};

use super::options::MembershipOptions;

/// How many members give this gateway a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quorum {
    /// Members from which this gateway has a lease, and itself.
    pub votes: usize,
    /// Members that count, and itself.
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

/// How a process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Afresh, with no address. The process before this one on the same node had this hold-down if it was lost: killed or crashed, rather than
    /// ended as planned.
    Fresh(Option<HoldDown>),
    /// The process before this one on the same node handed over, and has stopped.
    Continued(Continuation),
}

/// State that a process hands over to its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// Whether it may own addresses.
    pub eligible: bool,
    /// How long its quorum still holds. What passes between the processes is to be subtracted.
    pub lease_left: Duration,
    /// Its hold-down.
    pub hold_down: Duration,
    /// `failAfter` in its last heartbeat.
    pub fail_after: Duration,
    /// Longest `failAfter` that others may still rely on: one that it promised before, or a process before it.
    pub longest_fail_after: Duration,
}

/// State of the others while this gateway could own nothing, as far as it has heard of them since.
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
    pub(super) since: Instant,
    /// Since when it has not been eligible.
    pub(super) away_since: Instant,
    /// Others went on without it.
    missed: bool,
    /// The fence or restart counts as a loss once others are known to have gone on: where all were away together, no link flaps.
    uncounted: bool,
    /// When somebody was heard last before the fence, if all had been silent for longer than an interval then.
    pub(super) quiet_since: Option<Instant>,
    pub(super) hold_down: HoldDown,
    /// Until when the leases of the process before this one hold.
    pub(super) inherited: Option<Instant>,
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
            quiet_since: None,
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

    /// Ends the fence; true if there was one. Where all were silent for no longer than such an interruption, the others may have kept their leases by
    /// chance: nothing is lost.
    pub(super) fn unfence(&mut self, interruption: Duration, now: Instant) -> bool {
        if self.fenced {
            self.since = now;
            let short = self.quiet_since.take().is_some_and(|since| now < since + interruption);
            self.uncounted &= !short;
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

/// How long is waited, and whether the next loss makes it longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldDown {
    /// How long what returns is waited for.
    pub time: Duration,
    /// The next loss doubles it: there was one before that is not forgiven.
    pub doubles: bool,
}

impl HoldDown {
    pub(super) fn new(options: &MembershipOptions) -> Self {
        Self { time: options.hold_down, doubles: false }
    }

    /// Goes on with the hold-down of a process before this one.
    pub(super) fn continued(options: &MembershipOptions, time: Duration) -> Self {
        let time = time.clamp(options.hold_down, options.longest_hold_down.max(options.hold_down));
        // Only losses that are not forgiven have made it longer.
        Self { time, doubles: time > options.hold_down }
    }

    /// Something was lost.
    pub(super) fn lost(&mut self, options: &MembershipOptions) {
        if self.doubles {
            self.time = (self.time * 2).min(options.longest_hold_down.max(options.hold_down));
        }
        self.doubles = true;
    }

    /// How long it must stay for its losses to be forgiven.
    pub(super) fn forgiven_after(&self, options: &MembershipOptions) -> Duration {
        self.time + options.longest_hold_down
    }

    /// Forgives losses if there was none since then for long enough.
    pub(super) fn stayed(&mut self, since: Instant, options: &MembershipOptions, now: Instant) {
        if self.doubles && now >= since + self.forgiven_after(options) {
            *self = Self::new(options);
        }
    }
}
