//! How the health of endpoints counts, as the JSON shows it.

use serde::{Deserialize, Serialize};
use sheave_model::{Check, CheckKind, HealthPolicy};

/// How the health of one frontend's endpoints counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HealthView {
    /// In percent.
    pub(crate) panic_threshold: u8,
    /// Active check of each endpoint; null = only connections show its health.
    pub(crate) check: Option<CheckView>,
    /// How long a new or returned endpoint takes to get its full share; 0 = it gets that at once.
    pub(crate) slow_start_millis: u64,
}

/// How an endpoint is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckView {
    /// `tcp`, `http`, `grpc` or `udp`.
    pub(crate) kind: String,
    /// Of `http` alone.
    pub(crate) path: Option<String>,
    /// Of `grpc` alone; empty = the server as a whole.
    #[serde(default)]
    pub(crate) service: Option<String>,
    /// Of `udp` alone: the datagram, with `%XX` for bytes that are no printable ASCII.
    pub(crate) payload: Option<String>,
    /// Of `udp` alone: how the answer begins.
    pub(crate) answer: Option<String>,
    /// Null = the endpoint's own.
    pub(crate) port: Option<u16>,
    /// From one question to the next.
    pub(crate) interval_millis: u64,
    /// How long an answer may take.
    pub(crate) timeout_millis: u64,
    /// So many failures in a row make it unhealthy.
    pub(crate) failures: u8,
    /// So many answers in a row make it healthy again.
    pub(crate) successes: u8,
}

impl From<&HealthPolicy> for HealthView {
    fn from(policy: &HealthPolicy) -> Self {
        Self {
            panic_threshold: policy.panic_threshold,
            check: policy.check.as_ref().map(CheckView::from),
            slow_start_millis: millis(policy.slow_start),
        }
    }
}

impl From<&Check> for CheckView {
    fn from(check: &Check) -> Self {
        let (mut path, mut service, mut payload, mut answer) = (None, None, None, None);
        let kind = match &check.kind {
            CheckKind::Tcp => "tcp",
            CheckKind::Http { path: of_http } => {
                path = Some(of_http.as_ref().to_owned());
                "http"
            }
            CheckKind::Grpc { service: named } => {
                service = Some(named.as_ref().to_owned());
                "grpc"
            }
            CheckKind::Udp { payload: sent, answer: expected } => {
                (payload, answer) = (Some(escaped(sent)), Some(escaped(expected)));
                "udp"
            }
        };
        Self {
            kind: kind.to_owned(),
            path,
            service,
            payload,
            answer,
            port: check.port,
            interval_millis: millis(check.interval),
            timeout_millis: millis(check.timeout),
            failures: check.failures,
            successes: check.successes,
        }
    }
}

/// As in the annotation.
fn escaped(bytes: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'%' => "%25".to_owned(),
        byte if byte.is_ascii_graphic() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    bytes.iter().map(escape).collect()
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
