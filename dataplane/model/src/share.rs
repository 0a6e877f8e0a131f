//! Share of a whole, for texts.

use std::fmt;

/// Share of a whole. Displays in whole percent, such as `30%`; `<1%` and `>99%` for what is neither nothing nor everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// Size of the part.
    pub part: u64,
    /// Size of the whole.
    pub whole: u64,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, whole) = (u128::from(self.part), u128::from(self.whole));
        if part == 0 || whole == 0 {
            return f.write_str("0%");
        }
        match (200 * part + whole) / (2 * whole) {
            0 => f.write_str("<1%"),
            100.. if part < whole => f.write_str(">99%"),
            percent => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nothing_is_0_and_only_everything_is_100_percent() {
        let shown =
            [(0, 9), (1, 1_000_000), (1, 3), (2, 3), (995, 1000), (999_999, 1_000_000), (7, 7), (1, 0)];
        let texts = shown.map(|(part, whole)| Share { part, whole }.to_string());
        assert_eq!(texts, ["0%", "<1%", "33%", "67%", ">99%", ">99%", "100%", "0%"]);
        assert_eq!(Share { part: u64::MAX, whole: u64::MAX }.to_string(), "100%");
    }
}
