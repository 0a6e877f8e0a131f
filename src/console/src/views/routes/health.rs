//! JSON of health settings.

use serde::{Deserialize, Serialize};
use sheave_model::{Check, CheckKind, HealthPolicy};

/// Health settings of one frontend's endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthView {
    /// Minimum percentage of healthy endpoints below which health is ignored.
    pub panic_threshold: u8,
    /// Active check of each endpoint; null = health only follows from connections.
    pub check: Option<CheckView>,
    /// How long a new or recovered endpoint takes to reach its full share; 0 = no slow start.
    pub slow_start_millis: u64,
}

/// Active health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckView {
    /// `tcp`, `http`, `grpc` or `udp`.
    pub kind: String,
    /// Path; only for `http`.
    pub path: Option<String>,
    /// Service name; only for `grpc`. Empty = the server as a whole.
    #[serde(default)]
    pub service: Option<String>,
    /// Datagram to send, with `%XX` for bytes that are not printable ASCII; only for `udp`.
    pub payload: Option<String>,
    /// Expected beginning of the answer; only for `udp`.
    pub answer: Option<String>,
    /// Port; null = that of the endpoint.
    pub port: Option<u16>,
    /// Interval between checks.
    pub interval_millis: u64,
    /// Time limit of an answer.
    pub timeout_millis: u64,
    /// Consecutive failures after which the endpoint is unhealthy.
    pub failures: u8,
    /// Consecutive successes after which it is healthy again.
    pub successes: u8,
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

/// Escapes bytes as in the annotation.
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
