//! Comparison of recorded answers with ours.
//!
//! Values that differ between any two servers are compared by relation: uids, cluster addresses and node ports must
//! be equal where the recorded ones are, revisions must also have the same order, and times must be times. Everything
//! else must be identical.

use std::collections::BTreeMap;

use serde_json::Value;

/// Fields whose values a server generates. Equal values must stay equal.
const MADE_UP: &[&str] =
    &["uid", "resourceVersion", "clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort"];

/// Fields with times.
const TIMES: &[&str] = &["creationTimestamp", "deletionTimestamp", "time"];

/// Correspondence of the two servers' values over all steps of a replay.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Our value by field and recorded value.
    pairs: BTreeMap<(String, String), String>,
    /// Fields that are ignored.
    left_out: Vec<&'static str>,
}

impl Comparison {
    /// Comparison that ignores these fields at any depth.
    pub(crate) fn leaving_out(fields: &[&'static str]) -> Self {
        Self { left_out: fields.to_vec(), ..Self::default() }
    }

    /// Differences, one line each.
    pub(crate) fn differences(&mut self, recorded: &Value, ours: &Value) -> Vec<String> {
        let mut found = Vec::new();
        self.compare("", recorded, ours, &mut found);
        found
    }

    /// Our value for a recorded one, if known.
    pub(crate) fn ours(&self, field: &str, recorded: &str) -> Option<&str> {
        self.pairs.get(&(field.to_owned(), recorded.to_owned())).map(String::as_str)
    }

    /// Replaces recorded uids and revisions in a request's body with ours.
    pub(crate) fn translate(&self, body: &mut Value) {
        match body {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    match value.as_str().and_then(|text| self.ours(key, text)) {
                        Some(ours) => *value = ours.into(),
                        None => self.translate(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.translate(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn compare(&mut self, path: &str, recorded: &Value, ours: &Value, found: &mut Vec<String>) {
        match (recorded, ours) {
            (Value::Object(theirs), Value::Object(own)) => {
                for (key, value) in theirs {
                    if self.left_out.contains(&key.as_str()) {
                        continue;
                    }
                    let path = format!("{path}.{key}");
                    match own.get(key) {
                        Some(own) => self.compare(&path, value, own, found),
                        None => found.push(format!("{path}: {value} is missing")),
                    }
                }
                let surplus = own.keys().filter(|key| !theirs.contains_key(*key));
                for key in surplus.filter(|key| !self.left_out.contains(&key.as_str())) {
                    found.push(format!("{path}.{key}: {} is too much", own[key]));
                }
            }
            (Value::Array(theirs), Value::Array(own)) => {
                if theirs.len() != own.len() {
                    found.push(format!("{path}: {} elements, not {}", own.len(), theirs.len()));
                }
                for (index, (value, own)) in theirs.iter().zip(own).enumerate() {
                    self.compare(&format!("{path}[{index}]"), value, own, found);
                }
            }
            (recorded, ours) => found.extend(self.compare_leaf(path, recorded, ours)),
        }
    }

    fn compare_leaf(&mut self, path: &str, recorded: &Value, ours: &Value) -> Option<String> {
        let field = path.rsplit('.').next().unwrap_or_default().split('[').next().unwrap_or_default();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (recorded, ours) = (text(recorded), text(ours));
        if MADE_UP.contains(&field) && recorded != "None" && !recorded.is_empty() {
            return self.pair(path, field, &recorded, &ours);
        }
        if TIMES.contains(&field) && is_time(&recorded) {
            return (!is_time(&ours)).then(|| format!("{path}: {ours:?} is not a time"));
        }
        let (recorded, ours) = (masked(&recorded), masked(&ours));
        (recorded != ours).then(|| format!("{path}: {ours:?}, not {recorded:?}"))
    }

    /// Records that the two values correspond, unless that contradicts an earlier record.
    fn pair(&mut self, path: &str, field: &str, recorded: &str, ours: &str) -> Option<String> {
        let family = if field == "clusterIPs" { "clusterIP" } else { field };
        let known =
            self.pairs.entry((family.to_owned(), recorded.to_owned())).or_insert_with(|| ours.to_owned());
        if known != ours {
            return Some(format!("{path}: {ours}, where {recorded} was {known} before"));
        }
        let others = self.pairs.iter().filter(|((field, value), _)| field == family && value != recorded);
        for ((_, value), own) in others {
            let ordered = |a: &str, b: &str| a.parse::<u64>().ok().cmp(&b.parse().ok());
            if own == ours {
                return Some(format!("{path}: {ours} for both {recorded} and {value}"));
            }
            if field == "resourceVersion" && ordered(recorded, value) != ordered(ours, own) {
                return Some(format!(
                    "{path}: {recorded} and {value} are in another order than {ours} and {own}"
                ));
            }
        }
        None
    }
}

fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}

/// Masks the generated part of a message: the object that Go prints in its own field order.
fn masked(text: &str) -> String {
    match (text.find("Invalid value: \"{"), text.find("}\": ")) {
        (Some(from), Some(to)) if from < to => format!("{}<object>{}", &text[..from], &text[to + 2..]),
        _ => text.to_owned(),
    }
}
