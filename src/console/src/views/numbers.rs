//! Compact numbers for people, formatted like those of the status page (`page/format.js`).

/// Formats a count: 12,345.
pub(crate) fn count(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate per second in at most five characters: 0, 0.4, 17, 1,204, 12k, 3.4M.
pub(crate) fn rate(number: f64) -> String {
    if number >= 9_999.5 {
        return scaled(number, &["", "k", "M", "G", "T"]);
    }
    if number > 0.0 && number < 9.95 { format!("{number:.1}") } else { count(number) }
}

/// Formats a count in at most five characters: 9, 1,204, 12k.
pub(crate) fn short_count(number: u64) -> String {
    if number < 10 { number.to_string() } else { rate(number as f64) }
}

/// Formats bytes in at most six characters: 0 B, 812 B, 1.2 kB, 34 MB.
pub(crate) fn bytes(number: f64) -> String {
    if number < 999.5 {
        return format!("{number:.0} B");
    }
    scaled(number, &[" B", " kB", " MB", " GB", " TB", " PB", " EB"])
}

fn scaled(mut number: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while number >= 999.5 && unit + 1 < units.len() {
        number /= 1000.0;
        unit += 1;
    }
    let text = if number < 9.95 && unit > 0 { format!("{number:.1}") } else { format!("{number:.0}") };
    text + units[unit]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_the_status_page_has_them() {
        for (number, text) in [
            (0.0, "0"),
            (0.4, "0.4"),
            (9.94, "9.9"),
            (9.96, "10"),
            (1_204.0, "1,204"),
            (9_999.0, "9,999"),
            (12_000.0, "12k"),
            (999_600.0, "1.0M"),
            (3_400_000.0, "3.4M"),
        ] {
            assert_eq!(rate(number), text, "{number}");
        }
        for (number, text) in [(0.0, "0 B"), (812.0, "812 B"), (1_234.0, "1.2 kB"), (34_000_000.0, "34 MB")] {
            assert_eq!(bytes(number), text, "{number}");
        }
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(count(123.0), "123");
    }
}
