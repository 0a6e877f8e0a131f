//! Compact numbers for people, for `top` and texts. The status page formats its own (`page/format.js`); `page/formats.json` holds both to
//! the same results.

/// Formats a count: 12,345.
pub(crate) fn count(number: f64) -> String {
    let digits = rounded(number, 0);
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things that have a plural with s: 1 frontend, 2 frontends.
pub(crate) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Formats a rate per second in at most five characters: 0, 0.4, 17, 1,204, 12k, 3.4M.
pub(crate) fn rate(number: f64) -> String {
    if number >= 9_999.5 {
        return scaled(number, &["", "k", "M", "G", "T"]);
    }
    if number > 0.0 && number < 9.95 { rounded(number, 1) } else { count(number) }
}

/// Formats a count in at most five characters: 9, 1,204, 12k.
pub(crate) fn short_count(number: u64) -> String {
    if number < 10 { number.to_string() } else { rate(number as f64) }
}

/// Formats bytes in at most six characters: 0 B, 812 B, 1.2 kB, 34 MB.
pub(crate) fn bytes(number: f64) -> String {
    if number < 999.5 {
        return format!("{} B", rounded(number, 0));
    }
    scaled(number, &[" B", " kB", " MB", " GB", " TB", " PB", " EB"])
}

fn scaled(mut number: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while number >= 999.5 && unit + 1 < units.len() {
        number /= 1000.0;
        unit += 1;
    }
    let text = rounded(number, usize::from(number < 9.95 && unit > 0));
    text + units[unit]
}

/// Formats with a fixed number of decimals. A half is rounded up, as in browsers; the standard library rounds it to even.
fn rounded(number: f64, decimals: usize) -> String {
    format!("{:.decimals$}", number.next_up())
}

/// Formats a time in seconds in short form: `42 s`, `3 min`, `5 h 20 min`, `9 d 4 h`.
pub(crate) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{minutes} min"),
        7_200..172_800 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// tests/page checks the page's functions against the same table.
    #[test]
    fn numbers_are_as_the_shared_table_has_them() {
        let table: BTreeMap<String, Vec<(f64, String)>> =
            serde_json::from_str(include_str!("../page/formats.json")).unwrap();
        assert_eq!(table.len(), 4);
        for (format, rows) in table {
            for (number, text) in rows {
                let shown = match format.as_str() {
                    "count" => count(number),
                    "rate" => rate(number),
                    "bytes" => bytes(number),
                    "span" => span(number as u64),
                    other => panic!("{other}"),
                };
                assert_eq!(shown, text, "{format} of {number}");
            }
        }
    }
}
