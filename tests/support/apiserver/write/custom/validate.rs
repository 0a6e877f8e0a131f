//! Validation of a value against a structural schema, with the texts of kube-openapi `pkg/validation`.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::super::causes::{duplicate, unsupported};
use crate::apiserver::status::Cause;

/// Position of a value.
#[derive(Clone, Default)]
pub(crate) struct Place {
    /// Path from the object's root, as in causes.
    pub field: String,
    /// Path from the validated value, as in texts; for status writes that is the status.
    pub body: String,
}

impl Place {
    /// Position of a field.
    pub(crate) fn member(&self, name: &str) -> Self {
        let below = |path: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        Self { field: below(&self.field), body: below(&self.body) }
    }

    fn element(&self, index: usize) -> Self {
        Self { field: format!("{}[{index}]", self.field), body: format!("{}[{index}]", self.body) }
    }

    fn invalid(&self, value: &Value, why: &str) -> Cause {
        Cause::invalid(&self.field, value, &format!("{} in body {why}", self.body))
    }
}

/// Validates a value.
pub(crate) fn check(schema: &Value, value: &Value, place: &Place) -> Vec<Cause> {
    if value.is_null() && schema["nullable"] == Value::Bool(true) {
        return Vec::new();
    }
    if let Some(cause) = check_type(schema, value, place) {
        return vec![cause];
    }
    let mut causes = match value {
        Value::String(text) => check_text(schema, text, place),
        Value::Number(_) => check_number(schema, value, place),
        Value::Array(items) => check_list(schema, items, place),
        Value::Object(fields) => check_object(schema, fields, place),
        _ => Vec::new(),
    };
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let words: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.push(unsupported(&place.field, value.as_str().unwrap_or_default(), &words));
    }
    causes
}

fn check_type(schema: &Value, value: &Value, place: &Place) -> Option<Cause> {
    let expected = schema["type"].as_str()?;
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        return None;
    }
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if found == expected || expected == "number" && found == "integer" {
        return None;
    }
    let message =
        format!("Invalid value: {found:?}: {} in body must be of type {expected}: {found:?}", place.body);
    Some(Cause::new("FieldValueTypeInvalid", &place.field, message))
}

fn check_text(schema: &Value, text: &str, place: &Place) -> Vec<Cause> {
    let mut causes = Vec::new();
    let value = json!(text);
    if let Some(limit) = schema["maxLength"].as_u64()
        && text.chars().count() as u64 > limit
    {
        let message = format!("Too long: may not be more than {limit} bytes");
        causes.push(Cause::new("FieldValueTooLong", &place.field, message));
    }
    if let Some(limit) = schema["minLength"].as_u64()
        && (text.chars().count() as u64) < limit
    {
        causes.push(place.invalid(&value, &format!("should be at least {limit} chars long")));
    }
    // The length is checked first, and the pattern only if it is valid.
    if let Some(pattern) = schema["pattern"].as_str()
        && causes.is_empty()
        && Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))
    {
        causes.push(place.invalid(&value, &format!("should match '{pattern}'")));
    }
    if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
        let why = format!("{} in body must be of type date-time: {text:?}", place.body);
        causes.push(Cause::invalid(&place.field, &value, &why));
    }
    causes
}

fn check_number(schema: &Value, value: &Value, place: &Place) -> Vec<Cause> {
    let number = value.as_f64().unwrap_or_default();
    let mut causes = Vec::new();
    if let Some(least) = schema["minimum"].as_f64()
        && number < least
    {
        let why = format!("should be greater than or equal to {}", schema["minimum"]);
        causes.push(place.invalid(value, &why));
    }
    if let Some(most) = schema["maximum"].as_f64()
        && number > most
    {
        let why = format!("should be less than or equal to {}", schema["maximum"]);
        causes.push(place.invalid(value, &why));
    }
    let fits = value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    if schema["format"] == "int32" && !fits {
        // The server has no path for this error.
        let why = format!("Checked value must be of type integer with format int32 in {}", place.body);
        causes.push(Cause::invalid("<nil>", &json!(""), &why));
    }
    causes
}

fn check_list(schema: &Value, items: &[Value], place: &Place) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(limit) = schema["maxItems"].as_u64()
        && items.len() as u64 > limit
    {
        let message = format!("Too many: {}: must have at most {limit} items", items.len());
        causes.push(Cause::new("FieldValueTooMany", &place.field, message));
    }
    if let Some(limit) = schema["minItems"].as_u64()
        && (items.len() as u64) < limit
    {
        causes.push(place.invalid(&json!(items.len()), &format!("should have at least {limit} items")));
    }
    for (index, item) in items.iter().enumerate() {
        causes.extend(check(&schema["items"], item, &place.element(index)));
    }
    let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect(),
        Some("set") => Vec::new(),
        _ => return causes,
    };
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let own: Map<String, Value> =
            keys.iter().map(|key| ((*key).to_owned(), item[*key].clone())).collect();
        let own = if keys.is_empty() { item.clone() } else { Value::Object(own) };
        if !seen.insert(own.to_string()) {
            causes.push(duplicate(&place.element(index).field, &own));
        }
    }
    causes
}

fn check_object(schema: &Value, fields: &Map<String, Value>, place: &Place) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            causes.push(Cause::required(&place.member(name).field, ""));
        }
    }
    if let Some(limit) = schema["maxProperties"].as_u64()
        && fields.len() as u64 > limit
    {
        let message = format!("Too many: {}: must have at most {limit} items", fields.len());
        causes.push(Cause::new("FieldValueTooMany", &place.field, message));
    }
    for (name, value) in fields {
        let below = &schema["properties"][name];
        let below = if below.is_null() { &schema["additionalProperties"] } else { below };
        if below.is_object() {
            causes.extend(check(below, value, &place.member(name)));
        }
    }
    causes
}
