//! Durations in the notation of Kubernetes and Go, in whole numbers (`50us`, `500ms`, `2s`, `1m30s`, `1h`), and waiting for an
//! optional point in time.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration such as 500ms, 2s, 1m30s or 1h")]
pub struct DurationError;

/// Parses a sum of whole numbers with units.
///
/// # Errors
/// If the text is malformed or the duration overflows.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() || text.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(DurationError)?;
        let number: u64 = rest[..digits].parse().map_err(|_| DurationError)?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let micros: u64 = match &rest[..letters] {
            "us" => 1,
            "ms" => 1000,
            "s" => 1_000_000,
            "m" => 60 * 1_000_000,
            "h" => 60 * 60 * 1_000_000,
            _ => return Err(DurationError),
        };
        rest = &rest[letters..];
        let part = Duration::from_micros(number.checked_mul(micros).ok_or(DurationError)?);
        total = total.checked_add(part).ok_or(DurationError)?;
    }
    Ok(total)
}

/// Time until `due` on the wall clock; zero if it has passed.
pub fn time_until(due: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default()
}

/// Waits until `due`, or forever without one. Cancel safe.
pub async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sums_of_units_are_read() {
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1h1m30s"), Ok(Duration::from_secs(3690)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_has_no_unit_or_another_one_is_refused() {
        for text in [
            "",
            "2",
            "s",
            "2 s",
            "-2s",
            "1.5s",
            "2d",
            "2S",
            "2s3",
            "99999999999999999999s",
            "99999999999999999h",
        ] {
            assert_eq!(parse_duration(text), Err(DurationError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            prop_assert!(parse_duration(&text).is_ok() || parse_duration(&text) == Err(DurationError));
        }

        #[test]
        fn every_sum_is_read(h in 0u64..100, m in 0u64..100, s in 0u64..100, ms in 0u64..5000) {
            let length = Duration::from_millis(((h * 60 + m) * 60 + s) * 1000 + ms);
            prop_assert_eq!(parse_duration(&format!("{h}h{m}m{s}s{ms}ms")), Ok(length));
        }
    }
}
