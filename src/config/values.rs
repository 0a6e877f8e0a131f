//! Types of single values: validation, and hints for invalid values.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;
use sheave_console::views::validation::ConfigMistake;
use sheave_control::api::address_pool::is_interface_name;
use sheave_control::api::store::ServiceKey;
use sheave_control::text;
use sheave_control::time;

/// Reason why a value is invalid, without its key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ValueError {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl<T: Into<String>> From<T> for ValueError {
    fn from(message: T) -> Self {
        Self { message: message.into(), hint: None }
    }
}

impl ValueError {
    /// Error for a value that is not the expected type.
    pub(super) fn expected(expected: &str, value: &Value) -> Self {
        format!("{value} is not {expected}").into()
    }

    /// Adds what to write instead.
    #[must_use]
    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Maximum of a timeout. Longer ones stand for "forever", which is not a timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Maximum of `busyPoll`. With longer pauses, the time to wake a thread does not matter.
const MAX_BUSY_POLL: Duration = Duration::from_millis(10);

/// Parses the text of a file.
pub(super) fn document(text: &str) -> Result<Value, ConfigMistake> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Value::Null);
    }
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        let message = format!("not readable as YAML: {text}");
        ConfigMistake { path: String::new(), message, hint: None }
    })
}

/// Wraps `read`: an empty string is `None`.
pub(super) fn optional<T>(
    read: impl Fn(&Value) -> Result<T, ValueError>,
) -> impl Fn(&Value) -> Result<Option<T>, ValueError> {
    move |value| if value == "" { Ok(None) } else { read(value).map(Some) }
}

pub(super) fn boolean(value: &Value) -> Result<bool, ValueError> {
    value.as_bool().ok_or_else(|| ValueError::expected("true or false", value))
}

/// Parses a whole number from `least` to `most`.
pub(super) fn between<T>(least: T, most: T) -> impl Fn(&Value) -> Result<T, ValueError>
where
    T: TryFrom<u64> + PartialOrd + Copy + std::fmt::Display,
{
    move |value| {
        let number = value.as_u64().and_then(|number| T::try_from(number).ok());
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| ValueError::expected(&format!("a whole number from {least} to {most}"), value))
    }
}

/// Parses the name of a network interface.
pub(super) fn interface(value: &Value) -> Result<String, ValueError> {
    match value.as_str() {
        Some(text) if is_interface_name(text) => Ok(text.to_owned()),
        _ => Err(ValueError::expected("the name of a network interface", value)),
    }
}

pub(super) fn path(value: &Value) -> Result<PathBuf, ValueError> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Ok(text.into()),
        _ => Err(ValueError::expected("a path", value)),
    }
}

/// Parses the name of a node or cluster: a DNS subdomain (RFC 1123), as object names are.
pub(super) fn name(value: &Value) -> Result<String, ValueError> {
    match value.as_str() {
        Some(text) if is_subdomain(text) => Ok(text.to_owned()),
        _ => Err(ValueError::expected("a name of small letters, digits, '-' and '.'", value)),
    }
}

/// Parses an object name of the form `namespace/name`.
pub(super) fn namespaced(value: &Value) -> Result<ServiceKey, ValueError> {
    let parts = value.as_str().and_then(|text| text.split_once('/'));
    match parts {
        Some((namespace, name)) if is_subdomain(namespace) && is_subdomain(name) => {
            Ok(ServiceKey::new(namespace, name))
        }
        _ => Err(ValueError::expected("a namespace and a name", value)
            .hint("write it as sheave-system/sheave-gateways")),
    }
}

/// Parses `spec.loadBalancerClass`: a qualified name with an optional prefix.
pub(super) fn class(value: &Value) -> Result<String, ValueError> {
    let is_class = |text: &str| match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_label_value(name),
        None => is_label_value(text),
    };
    match value.as_str() {
        Some(text) if is_class(text) => Ok(text.to_owned()),
        _ => Err(ValueError::expected("a class", value).hint("write it as example.com/name")),
    }
}

pub(super) fn cidr(value: &Value) -> Result<IpNet, ValueError> {
    let wrong = ValueError::expected("a CIDR", value);
    let text = value.as_str().unwrap_or_default().trim();
    match text.parse::<IpNet>() {
        Ok(net) if net.addr() == net.network() => Ok(net),
        Ok(net) => Err(ValueError::from(format!("{value} has bits set behind its prefix length"))
            .hint(format!("write {} or {}", net.trunc(), IpNet::from(net.addr())))),
        Err(_) => match text.parse::<std::net::IpAddr>() {
            Ok(address) => Err(wrong.hint(format!("write {}", IpNet::from(address)))),
            Err(_) => Err(wrong.hint("write it as 10.0.0.0/8 or 2001:db8::/32")),
        },
    }
}

/// Parses a port or a range of ports.
pub(super) fn ports(value: &Value) -> Result<RangeInclusive<u16>, ValueError> {
    let wrong = || {
        ValueError::expected("a port or a range of ports", value).hint("write it as 22 or \"10248-10260\"")
    };
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(wrong()),
    };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(wrong()),
    }
}

pub(super) fn socket(value: &Value) -> Result<SocketAddr, ValueError> {
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        ValueError::expected("an address and port", value)
            .hint("write it as \"127.0.0.1:9841\" or \"[::1]:9841\"; a name is not resolved")
    })
}

/// Parses a duration greater than zero.
pub(super) fn timeout(value: &Value) -> Result<Duration, ValueError> {
    let length = delay(value)?;
    if length.is_zero() {
        return Err("must be longer than zero".into());
    }
    Ok(length)
}

/// Parses a duration; zero = no delay.
pub(super) fn delay(value: &Value) -> Result<Duration, ValueError> {
    length(value, "a duration", (MAX_TIMEOUT, "a year"), ("500ms, 2s, 1m30s or 1h", "s"))
}

/// Parses how long a worker may poll for traffic; zero = not at all.
pub(super) fn busy_poll(value: &Value) -> Result<Duration, ValueError> {
    length(value, "a duration of at most 10ms", (MAX_BUSY_POLL, "10ms"), ("50us, 1ms or 0s", "us"))
}

/// Parses a duration of at most `most`, whose name is for messages. `examples` are the hint for an invalid value, the unit
/// the hint for a missing unit.
fn length(
    value: &Value,
    wanted: &str,
    (most, name): (Duration, &str),
    (examples, unit): (&str, &str),
) -> Result<Duration, ValueError> {
    let wrong = ValueError::expected(wanted, value);
    match value.as_str().map(time::parse_duration) {
        Some(Ok(length)) if length > most => Err(format!("{value} is longer than {name}").into()),
        Some(Ok(length)) => Ok(length),
        Some(Err(_)) => Err(wrong.hint(format!("write it as {examples}"))),
        None => Err(wrong.hint(format!("write it with a unit, as {value}{unit}"))),
    }
}

/// Parses one of a few words.
pub(super) fn one_of<T: Copy>(words: &[(&'static str, T)]) -> impl Fn(&Value) -> Result<T, ValueError> {
    move |value| {
        let text = value.as_str().unwrap_or_default();
        if let Some(&(_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(meaning);
        }
        let known: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
        let wrong = ValueError::expected(&format!("one of {}", known.join(", ")), value);
        Err(match text::closest(text, known) {
            Some(word) => wrong.hint(format!("did you mean {word}?")),
            None => wrong,
        })
    }
}

/// Whether the text is a DNS subdomain (RFC 1123).
pub(super) fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 63 && edge(text.bytes().next()) && edge(text.bytes().last()) && text.bytes().all(inner)
}
