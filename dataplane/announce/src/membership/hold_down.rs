//! How long what has returned is waited for: longer each time that it was lost again, until it has stayed for a while.

use std::time::{Duration, Instant};

use super::options::MembershipOptions;

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

    /// Of a process that another one continues.
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

    /// It has stayed since then.
    pub(super) fn stayed(&mut self, since: Instant, options: &MembershipOptions, now: Instant) {
        if self.doubles && now >= since + self.forgiven_after(options) {
            *self = Self::new(options);
        }
    }
}
