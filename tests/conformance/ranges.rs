//! Ranges in case files. `{1..64}` in a string repeats the outermost list element with that string outside of further lists, or the entry of a
//! mapping whose key it is. Equal ranges in it count together, different ones make every combination. A string that is nothing but a range
//! becomes a number.

use serde_json::{Map, Value};

/// Replaces all ranges.
pub(crate) fn expand(value: Value) -> Value {
    match value {
        Value::Array(elements) => {
            let repeated = elements.into_iter().flat_map(|element| {
                let ranges = ranges_in(&element);
                repeat(element, &ranges)
            });
            Value::Array(repeated.map(expand).collect())
        }
        Value::Object(entries) => {
            let mut all = Map::new();
            for (key, value) in entries {
                let ranges = ranges_of(&key);
                for mut entry in repeat(Value::Array(vec![key.into(), value]), &ranges) {
                    let key = entry[0].as_str().unwrap_or_default().to_owned();
                    all.insert(key, expand(entry[1].take()));
                }
            }
            Value::Object(all)
        }
        other => other,
    }
}

/// A range with its text.
type Range = (String, u32, u32);

fn repeat(value: Value, ranges: &[Range]) -> Vec<Value> {
    let Some(((text, first, last), others)) = ranges.split_first() else { return vec![value] };
    let numbers = *first..=*last;
    numbers.flat_map(|number| repeat(with_number(&value, text, number), others)).collect()
}

/// The different ranges in all strings, without those in lists and below keys with a range.
fn ranges_in(value: &Value) -> Vec<Range> {
    let mut ranges = match value {
        Value::String(text) => ranges_of(text),
        Value::Object(entries) => {
            let entries = entries.iter().filter(|(key, _)| ranges_of(key).is_empty());
            entries.flat_map(|(_, value)| ranges_in(value)).collect()
        }
        _ => Vec::new(),
    };
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

fn ranges_of(text: &str) -> Vec<Range> {
    text.match_indices('{').filter_map(|(at, _)| range(&text[at..])).collect()
}

/// The range at the start of the text.
fn range(text: &str) -> Option<Range> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let (first, last) = inner.split_once("..")?;
    Some((format!("{{{inner}}}"), first.parse().ok()?, last.parse().ok()?))
}

fn with_number(value: &Value, range: &str, number: u32) -> Value {
    match value {
        Value::String(text) if text == range => number.into(),
        Value::String(text) => text.replace(range, &number.to_string()).into(),
        Value::Array(elements) => elements.iter().map(|it| with_number(it, range, number)).collect(),
        Value::Object(entries) => {
            let entry = |(key, it): (&String, &Value)| {
                (key.replace(range, &number.to_string()), with_number(it, range, number))
            };
            entries.iter().map(entry).collect()
        }
        other => other.clone(),
    }
}
