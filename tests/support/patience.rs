//! How long tests wait, and the only place where they do. Every deadline grows with `SHEAVE_TEST_PATIENCE`, so a slow
//! machine needs one variable and not many edits.

use std::fmt::Display;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The factor from `SHEAVE_TEST_PATIENCE`; 1 when unset.
static FACTOR: LazyLock<f64> = LazyLock::new(|| {
    let Ok(text) = std::env::var("SHEAVE_TEST_PATIENCE") else { return 1.0 };
    match text.parse() {
        Ok(factor) if factor > 0.0 => factor,
        _ => panic!("SHEAVE_TEST_PATIENCE={text:?} is not a positive number"),
    }
});

/// Pauses between two looks at something that is about to become true: short at first, and an eighth of the time that has
/// passed, for looks cost the processors that others need.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

/// A deadline for what should take much less than `seconds` on any machine.
pub fn patience(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds * *FACTOR)
}

/// The deadline for a single socket operation: long enough to never matter, short enough to end a hung test.
pub fn io_deadline() -> Duration {
    patience(20.0)
}

/// Lets `time` pass. Only for cases in which the passing of time is the subject: expiry, pacing, drains. Waiting for a
/// fact is [`eventually`].
#[expect(clippy::disallowed_methods, reason = "test threads are not workers; expiry can only be waited for")]
pub fn let_pass(time: Duration) {
    std::thread::sleep(time);
}

/// Looks until `probe` answers `Ok`, and returns that answer; panics with the last `Err` after ten patient seconds.
pub fn eventually<T, E: Display>(what: &str, probe: impl FnMut() -> Result<T, E>) -> T {
    eventually_within(patience(10.0), what, probe)
}

/// As [`eventually`], with the deadline given.
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
