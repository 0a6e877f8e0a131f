//! How a gateway takes part.

use std::sync::Arc;
use std::time::Duration;

use crate::ability::LARGEST_WEIGHT;
use crate::heartbeat::{LONGEST_FAIL_AFTER, LONGEST_NAME};

/// How many times `fail_after` it can become by default.
const LONGER: u32 = 4;
/// The shortest interval: below, the scheduler of a busy machine decides who is alive.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// How a gateway takes part.
#[derive(Clone, Debug)]
pub struct MembershipOptions {
    /// The name of its node.
    pub node: Arc<str>,
    /// The name of the installation: gateways of others on the same network are ignored.
    pub fleet: Arc<str>,
    /// The UDP port of heartbeats on every gateway.
    pub port: u16,
    /// The time between heartbeats.
    pub interval: Duration,
    /// The silence after which a member is believed dead.
    pub fail_after: Duration,
    /// The longest silence that round trips make of it.
    pub fail_after_max: Duration,
    /// How long a gateway without which others went on has had a quorum before it owns addresses; doubles each time that they do.
    pub hold_down: Duration,
    /// How many addresses it owns, relative to others: 1 to [`LARGEST_WEIGHT`].
    pub weight: u8,
    /// The longest hold-down; this long after it, without a fence, the next one is `hold_down` again.
    pub longest_hold_down: Duration,
}

/// Why options are unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The name of the node is empty or too long.
    #[error("the node's name has {0} bytes; 1 to {LONGEST_NAME} are possible")]
    NodeName(usize),
    /// The interval is too short.
    #[error("the interval is {0:?}; {SHORTEST_INTERVAL:?} is the shortest")]
    Interval(Duration),
    /// One lost heartbeat would be a failure.
    #[error("failAfter is {0:?}; it must be at least three intervals and at most {LONGEST_FAIL_AFTER:?}")]
    FailAfter(Duration),
    /// The maximum is shorter than `failAfter`.
    #[error("failAfterMax is {0:?}; it must be at least failAfter and at most {LONGEST_FAIL_AFTER:?}")]
    FailAfterMax(Duration),
    /// The hold-down would end before others that went on believe the gateway dead.
    #[error("holdDown is {0:?}; it must not be shorter than failAfterMax")]
    HoldDown(Duration),
    /// The weight is out of its range.
    #[error("the weight is {0}; 1 to {LARGEST_WEIGHT} are possible")]
    Weight(u8),
}

impl MembershipOptions {
    /// Options with the defaults of the protocol.
    pub fn new(node: Arc<str>, fleet: Arc<str>, port: u16) -> Self {
        Self {
            node,
            fleet,
            port,
            interval: Duration::from_millis(100),
            fail_after: Duration::from_millis(350),
            fail_after_max: Duration::from_millis(350) * LONGER,
            hold_down: Duration::from_secs(5),
            weight: 1,
            longest_hold_down: Duration::from_mins(1),
        }
    }

    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        let name = self.node.len();
        if !(1..=LONGEST_NAME).contains(&name) {
            return Err(OptionsError::NodeName(name));
        }
        if self.interval < SHORTEST_INTERVAL {
            return Err(OptionsError::Interval(self.interval));
        }
        if !(self.interval * 3..=LONGEST_FAIL_AFTER).contains(&self.fail_after) {
            return Err(OptionsError::FailAfter(self.fail_after));
        }
        if !(self.fail_after..=LONGEST_FAIL_AFTER).contains(&self.fail_after_max) {
            return Err(OptionsError::FailAfterMax(self.fail_after_max));
        }
        if self.hold_down < self.fail_after_max {
            return Err(OptionsError::HoldDown(self.hold_down));
        }
        if !(1..=LARGEST_WEIGHT).contains(&self.weight) {
            return Err(OptionsError::Weight(self.weight));
        }
        Ok(())
    }

    /// The shortest time between two heartbeats, whatever happens.
    pub(super) fn gap(&self) -> Duration {
        self.interval / 20
    }

    /// A round trip for which `fail_after` has room anyway.
    pub(super) fn prompt(&self) -> Duration {
        self.interval / 2
    }

    /// How long an address that another alive gateway may still announce is waited for, where round trips are short.
    pub fn hand_over(&self) -> Duration {
        self.fail_after * 2
    }
}

/// Time by which a lease ends earlier than its grantor believes, and a member is silent longer than it must: room for clocks
/// that run apart, and for the withdrawal.
pub(super) fn margin(fail_after: Duration) -> Duration {
    fail_after / 16
}
