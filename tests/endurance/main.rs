//! Endurance tests: the real binary under steady load through upgrades, crashes and faults. Every request is counted, and every
//! failure is told with the time at which it happened.
//!
//! Each case has a short form for `tests/run` and a long one for `tests/soak` ([`scale`]), and prints one line of figures.

#[cfg(test)]
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the kit serves several test programs; each uses a part of it")]
mod support;

#[cfg(test)]
mod load;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod timeline;
#[cfg(test)]
mod upgrades;
