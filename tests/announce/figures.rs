//! The figures that cases print, and the marks that those of the long form must meet.

use std::time::Duration;

use crate::support::length::by_length;

/// The middle, the 99th percentile and the longest, for people.
pub(crate) fn spread(times: &[Duration]) -> String {
    let [middle, late, longest] = [50, 99, 100].map(|percent| percentile(times, percent));
    format!("median {middle:?}, p99 {late:?}, longest {longest:?} of {}", times.len())
}

/// So many in a hundred of the times are not longer.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Prints whether a figure meets its mark. The long form fails if it does not; in the short one other tests take the processors.
pub(crate) fn mark(name: &str, limit: Duration, value: Duration) {
    let met = value < limit;
    println!("mark {}: {name}: {value:?}, must be less than {limit:?}", if met { "met" } else { "missed" });
    assert!(met || by_length(true, false), "{name}: {value:?}, must be less than {limit:?}");
}
