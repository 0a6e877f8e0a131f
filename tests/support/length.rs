//! Length of a run: short in `tests/run`, long in `tests/soak`. Decided only here.

use std::sync::LazyLock;

/// Whether this is a long run.
static SOAK: LazyLock<bool> =
    LazyLock::new(|| std::env::var("SHEAVE_TEST_SOAK").is_ok_and(|value| value == "1"));

/// Selects a value by the length of the run.
pub fn by_length<T>(short: T, long: T) -> T {
    if *SOAK { long } else { short }
}
