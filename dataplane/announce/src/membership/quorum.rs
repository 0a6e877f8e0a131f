//! Whether this gateway may own addresses: leases of a majority, and the hold-down after it was fenced.

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
    /// Whether exactly half of the members can be heard: with an odd number of them there is no half.
    pub fn may_tie(self) -> bool {
        self.members.is_multiple_of(2)
    }

    /// Whether the votes suffice.
    pub fn holds(self) -> bool {
        let Self { votes, members, tie_breaker } = self;
        votes * 2 > members || (votes * 2 == members && tie_breaker)
    }
}

/// Until when these leases suffice, of the members that count; none where no lease is needed.
pub(super) fn quorum_until(
    mut leases: Vec<Instant>,
    members: usize,
    tie: Option<Instant>,
) -> Option<Instant> {
    leases.sort_unstable_by(|a, b| b.cmp(a));
    let with = |others: usize| leases.get(others.checked_sub(1)?).copied();
    let majority = with(members / 2);
    if !members.is_multiple_of(2) {
        return majority;
    }
    let half = match (members / 2, tie) {
        (_, None) => None,
        (1, tie) => tie,
        (half, Some(tie)) => with(half - 1).map(|lease| lease.min(tie)),
    };
    majority.max(half)
}

/// Fenced or not, and whether it has been long enough without a fence.
#[derive(Debug)]
pub(super) struct Standby {
    pub(super) fenced: bool,
    pub(super) eligible: bool,
    /// Since when it has had a quorum.
    since: Instant,
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
            hold_down: HoldDown::new(options),
            inherited: None,
        };
        match start {
            Start::Fresh(lost) => {
                let hold_down = lost.map_or(fresh.hold_down, |lost| lost.after_loss(options));
                Self { hold_down, ..fresh }
            }
            Start::Continued(Continuation { eligible, lease_left, hold_down }) => Self {
                fenced: false,
                eligible,
                hold_down: HoldDown::continued(options, hold_down),
                inherited: Some(now + lease_left.min(options.fail_after)),
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

    /// Fences; true if it was not.
    pub(super) fn fence(&mut self, options: &MembershipOptions) -> bool {
        self.eligible = false;
        self.inherited = None;
        if self.fenced {
            return false;
        }
        self.fenced = true;
        self.hold_down.lost(options);
        true
    }

    /// Ends the fence; true if there was one.
    pub(super) fn unfence(&mut self, now: Instant) -> bool {
        if self.fenced {
            self.since = now;
        }
        std::mem::take(&mut self.fenced)
    }

    /// When it becomes eligible, or the hold-down is short again.
    pub(super) fn next_due(&self, options: &MembershipOptions, others: bool) -> Option<Instant> {
        let wait = if others { self.hold_down.time } else { options.fail_after };
        (!self.fenced && !self.eligible).then(|| self.since + wait)
    }

    /// Becomes eligible if it is time; `others` = others are.
    pub(super) fn update(&mut self, options: &MembershipOptions, others: bool, now: Instant) -> bool {
        if !self.fenced {
            self.hold_down.stayed(self.since, options, now);
        }
        let due = self.next_due(options, others).is_some_and(|due| now >= due);
        self.eligible |= due;
        due
    }
}
