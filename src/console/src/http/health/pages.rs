//! `/healthz` and `/livez` of the proxy as a whole (pkg/proxy/healthcheck/proxy_health.go). `/healthz` reports whether load balancers
//! may send traffic to this node, `/livez` whether the process should keep running. On a node that is to be deleted (KEP-3836), and
//! while the gateway drains, only `/healthz` fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::any;
use jiff::Timestamp;
use serde::Serialize;

use super::proxy_health::{HealthReport, ProxyHealth};

/// Both families share one loop, table and workers, so their health is the same.
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// The pages with their request counts. Clones share the counts.
#[derive(Clone, Debug)]
pub struct HealthPages {
    proxy: ProxyHealth,
    /// `/healthz`.
    pub healthz: Arc<PageCounter>,
    /// `/livez`.
    pub livez: Arc<PageCounter>,
}

/// Number of responses of a page, by result.
#[derive(Debug, Default)]
pub struct PageCounter {
    well: AtomicU64,
    unwell: AtomicU64,
}

impl PageCounter {
    fn count(&self, well: bool) {
        let answers = if well { &self.well } else { &self.unwell };
        answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of responses by status code.
    pub(crate) fn by_code(&self) -> [(&'static str, u64); 2] {
        [("200", self.well.load(Ordering::Relaxed)), ("503", self.unwell.load(Ordering::Relaxed))]
    }
}

impl HealthPages {
    pub(super) fn new(proxy: ProxyHealth) -> Self {
        Self { proxy, healthz: Arc::default(), livez: Arc::default() }
    }

    /// Router for any method, like Go's `ServeMux`.
    pub(super) fn router(&self) -> Router {
        Router::new().route("/healthz", any(healthz)).route("/livez", any(livez)).with_state(self.clone())
    }
}

async fn healthz(State(pages): State<HealthPages>) -> Response {
    let report = pages.proxy.report();
    let well = report.healthy && report.eligible;
    pages.healthz.count(well);
    super::answer(well, Body::new(&report, well, Some(report.eligible)).text())
}

async fn livez(State(pages): State<HealthPages>) -> Response {
    let report = pages.proxy.report();
    pages.livez.count(report.healthy);
    super::answer(report.healthy, Body::new(&report, report.healthy, None).text())
}

/// JSON of kube-proxy's `ProxyHealth`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    /// Now if the proxy is healthy, else the time of the last proof of health.
    last_updated: Timestamp,
    current_time: Timestamp,
    /// Only in `/healthz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    /// Health of the process, regardless of the node.
    healthy: bool,
    status: BTreeMap<&'static str, FamilyHealth>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyHealth {
    last_updated: Timestamp,
    healthy: bool,
}

impl Body {
    fn new(report: &HealthReport, well: bool, node_eligible: Option<bool>) -> Self {
        let &HealthReport { now, proven, healthy, .. } = report;
        Self {
            last_updated: if well { now } else { proven },
            current_time: now,
            node_eligible,
            healthy,
            status: FAMILIES.map(|family| (family, FamilyHealth { last_updated: proven, healthy })).into(),
        }
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(healthy: bool) -> HealthReport {
        let time = |text: &str| text.parse().unwrap();
        let (now, proven) = (time("2026-03-01T12:00:00.25Z"), time("2026-03-01T11:59:58Z"));
        HealthReport { now, proven, healthy, eligible: true, serving: healthy }
    }

    #[test]
    fn a_healthy_proxy_is_up_to_date_now() {
        assert_eq!(
            Body::new(&report(true), true, Some(true)).text(),
            r#"{"lastUpdated":"2026-03-01T12:00:00.25Z","currentTime":"2026-03-01T12:00:00.25Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:58Z","healthy":true},"IPv6":{"lastUpdated":"2026-03-01T11:59:58Z","healthy":true}}}"#
        );
    }

    #[test]
    fn an_unhealthy_proxy_tells_since_when_and_livez_says_nothing_of_the_node() {
        assert_eq!(
            Body::new(&report(false), false, None).text(),
            r#"{"lastUpdated":"2026-03-01T11:59:58Z","currentTime":"2026-03-01T12:00:00.25Z","healthy":false,"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:58Z","healthy":false},"IPv6":{"lastUpdated":"2026-03-01T11:59:58Z","healthy":false}}}"#
        );
    }

    #[tokio::test]
    async fn an_unwanted_node_fails_healthz_but_not_livez_and_both_are_counted() {
        let pages = HealthPages::new(ProxyHealth::new());
        let ask = async || {
            let (healthz, livez) = (healthz(State(pages.clone())).await, livez(State(pages.clone())).await);
            (healthz.status().as_u16(), livez.status().as_u16())
        };
        assert_eq!(ask().await, (503, 200), "of the node nothing is known yet");
        pages.proxy.set_eligible(true);
        assert_eq!(ask().await, (200, 200));
        pages.proxy.drain();
        assert_eq!(ask().await, (503, 200));
        assert_eq!(pages.healthz.by_code(), [("200", 1), ("503", 2)]);
        assert_eq!(pages.livez.by_code(), [("200", 3), ("503", 0)]);
    }
}
