//! Lines of a connection log, as read back: the fields that a replay needs, borrowed from the line, and what can be wrong with them.

use std::borrow::Cow;
use std::net::SocketAddr;

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::views::escape::visible;

/// Maximum length of a quoted value in a message.
const QUOTED: usize = 60;

/// Fields of a line. Unknown keys of other versions are ignored, and only `time`, `service`, `frontend` and `client` must be there.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LogLine<'a> {
    #[serde(borrow)]
    pub(super) time: Option<Text<'a>>,
    pub(super) service: Option<Text<'a>>,
    pub(super) port_name: Option<Text<'a>>,
    pub(super) source: Option<Text<'a>>,
    pub(super) frontend: Option<Text<'a>>,
    pub(super) client: Option<Text<'a>>,
    pub(super) proxy: Option<Text<'a>>,
    pub(super) endpoint: Option<Text<'a>>,
    pub(super) cluster: Option<Text<'a>>,
    pub(super) node: Option<Text<'a>>,
    pub(super) duration_seconds: Option<f64>,
    pub(super) client_bytes: Option<u64>,
    pub(super) endpoint_bytes: Option<u64>,
    pub(super) reason: Option<Text<'a>>,
}

/// Text of a field, borrowed unless it has escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Reason why a line is skipped.
#[derive(Debug, Error, PartialEq)]
pub(super) enum LineError {
    /// A cut line, or one of another program.
    #[error("it is no JSON object: {0}")]
    NotJson(String),
    /// A line that is longer than any of a connection log.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// A CSV line has bytes that are no text, or an open quote.
    #[error("it is no line of CSV")]
    NotCsv,
    /// A CSV line has another number of fields than the header.
    #[error("it has {found} fields, and the header has {columns}")]
    Fields { found: usize, columns: usize },
    /// A key is missing.
    #[error("there is no {0}")]
    Missing(&'static str),
    /// A value cannot be used.
    #[error("{key}: {value:?} is not {expected}")]
    Value { key: &'static str, value: String, expected: &'static str },
    /// The log has more different names than a replay counts.
    #[error("the log has more than {count} {what}; connections of further ones are not counted")]
    TooMany { count: usize, what: &'static str },
}

/// Keys of text, and keys of numbers with what they are.
const TEXTS: [&str; 11] = [
    "time", "service", "portName", "source", "frontend", "client", "proxy", "endpoint", "cluster", "node",
    "reason",
];
const BYTES: [&str; 2] = ["clientBytes", "endpointBytes"];

impl<'a> LogLine<'a> {
    /// Reads a line of JSON.
    pub(super) fn of_json(line: &'a [u8]) -> Result<Self, LineError> {
        serde_json::from_slice(line).map_err(|error| wrong_json(line, &error))
    }

    /// The field with this key.
    pub(super) fn set(&mut self, key: &'static str, value: Cow<'a, str>) -> Result<(), LineError> {
        // In CSV, an empty field is a missing one.
        if value.is_empty() {
            return Ok(());
        }
        let number = |expected| LineError::value(key, &value, expected);
        match key {
            "durationSeconds" => {
                self.duration_seconds = Some(value.parse().map_err(|_| number("a number of seconds"))?);
            }
            "clientBytes" => {
                self.client_bytes = Some(value.parse().map_err(|_| number("a number of bytes"))?);
            }
            "endpointBytes" => {
                self.endpoint_bytes = Some(value.parse().map_err(|_| number("a number of bytes"))?);
            }
            _ => {
                if let Some(field) = self.text_mut(key) {
                    *field = Some(Text(value));
                }
            }
        }
        Ok(())
    }

    fn text_mut(&mut self, key: &str) -> Option<&mut Option<Text<'a>>> {
        Some(match key {
            "time" => &mut self.time,
            "service" => &mut self.service,
            "portName" => &mut self.port_name,
            "source" => &mut self.source,
            "frontend" => &mut self.frontend,
            "client" => &mut self.client,
            "proxy" => &mut self.proxy,
            "endpoint" => &mut self.endpoint,
            "cluster" => &mut self.cluster,
            "node" => &mut self.node,
            "reason" => &mut self.reason,
            _ => return None,
        })
    }
}

/// The key of this name that a replay reads.
pub(super) fn known_key(name: &str) -> Option<&'static str> {
    TEXTS.into_iter().chain(BYTES).chain(["durationSeconds"]).find(|key| *key == name)
}

impl LineError {
    pub(super) fn value(key: &'static str, value: &str, expected: &'static str) -> Self {
        let value = visible(value);
        let cut = value.char_indices().nth(QUOTED).map_or(value.len(), |(end, _)| end);
        Self::Value { key, value: value[..cut].to_owned(), expected }
    }
}

/// Text of a field that must be there.
pub(super) fn required<'t>(key: &'static str, text: Option<&'t Text<'_>>) -> Result<&'t str, LineError> {
    text.map(|Text(text)| &**text).filter(|text| !text.is_empty()).ok_or(LineError::Missing(key))
}

/// Text of a field that may be missing.
pub(super) fn or_empty<'t>(text: Option<&'t Text<'_>>) -> &'t str {
    text.map_or("", |Text(text)| text)
}

/// Address and port in a field, as IPv4 if it is mapped to IPv6.
pub(super) fn address(key: &'static str, text: &str) -> Result<SocketAddr, LineError> {
    let addr: SocketAddr = text.parse().map_err(|_| LineError::value(key, text, "an address and a port"))?;
    Ok(SocketAddr::new(addr.ip().to_canonical(), addr.port()))
}

/// The field that is wrong, looked for only once a line cannot be read.
fn wrong_json(line: &[u8], error: &serde_json::Error) -> LineError {
    let Ok(fields) = serde_json::from_slice::<Map<String, Value>>(line) else {
        return not_json(error);
    };
    let wrong = |keys: &[&'static str], expected, fits: fn(&Value) -> bool| {
        let mut values = keys.iter().filter_map(|&key| Some((key, fields.get(key)?)));
        let (key, value) = values.find(|(_, value)| !value.is_null() && !fits(value))?;
        Some(LineError::value(key, &value.to_string(), expected))
    };
    wrong(&TEXTS, "text", Value::is_string)
        .or_else(|| wrong(&BYTES, "a number of bytes", Value::is_u64))
        .or_else(|| wrong(&["durationSeconds"], "a number of seconds", Value::is_number))
        .unwrap_or_else(|| not_json(error))
}

/// The error without the number of the line, of which there is only one.
fn not_json(error: &serde_json::Error) -> LineError {
    let text = error.to_string();
    let why = text.split(" at line ").next().unwrap_or_default();
    LineError::NotJson(format!("{why} at column {}", error.column()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_named_with_its_value() {
        let error = |line: &str| LogLine::of_json(line.as_bytes()).unwrap_err().to_string();
        assert_eq!(error(r#"{"clientBytes":"12"}"#), r#"clientBytes: "\"12\"" is not a number of bytes"#);
        assert_eq!(error(r#"{"client":7}"#), r#"client: "7" is not text"#);
        assert!(error(r#"{"time":"2026-11-"#).starts_with("it is no JSON object: EOF"));
        assert!(error("[1]").starts_with("it is no JSON object"));
        assert_eq!(
            address("client", "192.0.2.1").unwrap_err().to_string(),
            r#"client: "192.0.2.1" is not an address and a port"#
        );
    }

    #[test]
    fn lines_of_other_versions_are_read() {
        let line = LogLine::of_json(br#"{"later":[{}],"service":"a\u202eb","node":null}"#).unwrap();
        assert_eq!(required("service", line.service.as_ref()), Ok("a\u{202e}b"));
        assert_eq!(or_empty(line.node.as_ref()), "");
        assert_eq!(required("time", line.time.as_ref()), Err(LineError::Missing("time")));
    }

    #[test]
    fn a_value_in_a_message_is_short_and_visible() {
        let long = LineError::value("client", &"\u{1b}[2J".repeat(100), "an address").to_string();
        assert!(long.len() < 120 && !long.contains('\u{1b}'), "{long}");
    }
}
