//! Waiting in tests, which happens only here. Every deadline is scaled by `SHEAVE_TEST_PATIENCE`, so that a slow machine
//! needs only one variable.

use std::fmt::Display;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Factor of `SHEAVE_TEST_PATIENCE`; 1 if unset.
static FACTOR: LazyLock<f64> = LazyLock::new(|| {
    let Ok(text) = std::env::var("SHEAVE_TEST_PATIENCE") else { return 1.0 };
    match text.parse() {
        Ok(factor) if factor > 0.0 => factor,
        _ => panic!("SHEAVE_TEST_PATIENCE={text:?} is not a positive number"),
    }
});

/// Limits of pauses between two probes of a condition: short at first, then an eighth of the elapsed time, since probes
/// take processor time from others.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

/// Deadline for an action that takes much less than `seconds` on any machine.
pub fn patience(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds * *FACTOR)
}

/// Deadline of a single socket operation: long enough to never matter, short enough to end a hung test.
pub fn io_deadline() -> Duration {
    patience(20.0)
}

/// Lets `time` pass. Only for cases about time itself: expiry, pacing, drains. Use [`eventually`] to wait for a fact.
#[expect(clippy::disallowed_methods, reason = "test threads are not workers; expiry can only be waited for")]
pub fn let_pass(time: Duration) {
    std::thread::sleep(time);
}

/// Repeats `probe` until it returns `Ok`, and returns that; panics with the last `Err` after ten seconds (scaled).
pub fn eventually<T, E: Display>(what: &str, probe: impl FnMut() -> Result<T, E>) -> T {
    eventually_within(patience(10.0), what, probe)
}

/// Like [`eventually`], with another deadline.
pub fn eventually_within<T, E: Display>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    let started = Instant::now();
    loop {
        match probe() {
            Ok(value) => return value,
            Err(error) if started.elapsed() > limit => panic!("not within {limit:?}: {what}: {error}"),
            Err(_) => let_pass((started.elapsed() / 8).clamp(PAUSES.0, PAUSES.1)),
        }
    }
}
