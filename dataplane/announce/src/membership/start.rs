//! How a process started: afresh, after one that was lost, or in the place of one that handed over.

use std::time::Duration;

use super::hold_down::HoldDown;

/// How a process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing is announced. The process before this one on the same node had this hold-down if it was lost: killed or crashed, rather than
    /// ended as planned.
    Fresh(Option<HoldDown>),
    /// The process before this one on the same node handed over, and has stopped.
    Continued(Continuation),
}

/// What a process hands over to its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// It may own addresses.
    pub eligible: bool,
    /// How long its quorum still holds. What passes between the processes is to be subtracted.
    pub lease_left: Duration,
    /// Its hold-down.
    pub hold_down: Duration,
    /// Longest `failAfter` that others may rely on.
    pub fail_after: Duration,
}
