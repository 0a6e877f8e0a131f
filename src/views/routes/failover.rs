//! How traffic is spread over clusters, as the JSON shows it.

use serde::{Deserialize, Serialize};
use sheave_model::{Check, CheckKind, Failover, Spread};

/// The rules between the clusters of one frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailoverView {
    /// `endpoints`: every endpoint gets the same; `clusters`: by weight, whatever their size.
    pub(crate) spread: String,
    /// In percent.
    pub(crate) overprovisioning: u16,
    /// In percent.
    pub(crate) panic_threshold: u8,
    /// Active health check of endpoints in other clusters; null = passive only.
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

impl From<&Failover> for FailoverView {
    fn from(failover: &Failover) -> Self {
        let spread = match failover.spread {
            Spread::Endpoints => "endpoints",
            Spread::Backends => "clusters",
        };
        Self {
            spread: spread.to_owned(),
            overprovisioning: failover.overprovisioning,
            panic_threshold: failover.panic_threshold,
            check: failover.check.as_ref().map(CheckView::from),
        }
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
