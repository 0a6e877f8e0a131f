//! The two time formats of the API, with the errors of Go's `time.Parse`.

use jiff::Timestamp;
use serde_json::Value;

/// `metav1.Time`: truncates fractions and converts to UTC.
pub(super) fn seconds(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    let time: Timestamp = text.parse().map_err(|_| {
        format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\"")
    })?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// `metav1.MicroTime`: exactly six digits of fraction.
pub(super) fn micros(value: &Value) -> Result<String, String> {
    let text = text(value)?;
    let refused = |rest: &str, part: &str| {
        format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest:?} as {part:?}"
        )
    };
    let (_, rest) =
        text.split_at_checked("2006-01-02T15:04:05".len()).ok_or_else(|| refused(text, "2006"))?;
    let digits = |part: &str| part.starts_with('.') && part[1..].bytes().all(|byte| byte.is_ascii_digit());
    let Some((_, zone)) = rest.split_at_checked(".000000".len()).filter(|(fraction, _)| digits(fraction))
    else {
        return Err(refused(rest, ".000000"));
    };
    if !zone.starts_with(['Z', '+', '-']) {
        return Err(refused(zone, "Z07:00"));
    }
    let time: Timestamp = text.parse().map_err(|_| refused(text, "2006"))?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("parsing time {value} as a string"))
}
