//! Log sampling: the share of a Service's connections that is logged.

use std::fmt;

/// Share of all connections, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogSample(u32);

impl LogSample {
    /// No connection.
    pub const NONE: Self = Self(0);
    /// Every connection.
    pub const ALL: Self = Self(MILLION);

    /// Parses a percentage such as `1%`, `0.05%` or `100%` with at most four decimals; `None` if the text is anything
    /// else.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = match text.strip_suffix('%')?.split_once('.') {
            Some((_, "")) => return None,
            Some((whole, decimals)) => (whole, decimals),
            None => (text.strip_suffix('%')?, ""),
        };
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || whole.len() > 3
            || decimals.len() > 4
            || !are_digits(whole)
            || !are_digits(decimals)
        {
            return None;
        }
        let millionths = format!("{whole}{decimals:0<4}").parse().ok()?;
        (millionths <= MILLION).then_some(Self(millionths))
    }

    /// Whether nothing is logged.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether the connection with this random number is logged.
    pub fn takes(self, random: u64) -> bool {
        random % u64::from(MILLION) < u64::from(self.0)
    }
}

const MILLION: u32 = 1_000_000;

/// Formats as the percentage that [`LogSample::parse`] accepts.
impl fmt::Display for LogSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, decimals) = (self.0 / 10_000, format!("{:04}", self.0 % 10_000));
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            decimals => write!(f, "{whole}.{decimals}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_and_shown() {
        for text in ["0%", "1%", "100%", "0.0001%", "12.5%", "99.9999%"] {
            assert_eq!(LogSample::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(LogSample::parse("1.50%"), LogSample::parse("1.5%"));
        assert_eq!(
            (LogSample::parse("0%"), LogSample::parse("100%")),
            (Some(LogSample::NONE), Some(LogSample::ALL))
        );
        for text in [
            "",
            "%",
            "1",
            "101%",
            "100.0001%",
            "-1%",
            "+1%",
            "1.%",
            ".5%",
            "0.00001%",
            "1e1%",
            "1 %",
            "1%%",
            "१%",
        ] {
            assert_eq!(LogSample::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_sample_takes_its_part() {
        let taken = |text| {
            (0..MILLION).filter(|&random| LogSample::parse(text).unwrap().takes(random.into())).count()
        };
        assert_eq!(["0%", "0.0001%", "25%", "100%"].map(taken), [0, 1, 250_000, 1_000_000]);
        assert!(LogSample::ALL.takes(u64::MAX) && !LogSample::NONE.takes(0));
    }
}
