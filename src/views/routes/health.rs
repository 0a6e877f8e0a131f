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
}

/// How an endpoint is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckView {
    /// `tcp` or `http`.
    pub(crate) kind: String,
    /// Of `http` alone.
    pub(crate) path: Option<String>,
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
        Self { panic_threshold: policy.panic_threshold, check: policy.check.as_ref().map(CheckView::from) }
    }
}

impl From<&Check> for CheckView {
    fn from(check: &Check) -> Self {
        let (kind, path) = match &check.kind {
            CheckKind::Tcp => ("tcp", None),
            CheckKind::Http { path } => ("http", Some(path.as_ref().to_owned())),
        };
        Self {
            kind: kind.to_owned(),
            path,
            port: check.port,
            interval_millis: millis(check.interval),
            timeout_millis: millis(check.timeout),
            failures: check.failures,
            successes: check.successes,
        }
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
