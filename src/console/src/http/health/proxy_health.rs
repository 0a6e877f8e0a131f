//! Health of the gateway as a whole: the state behind every health check.
//!
//! kube-proxy is unhealthy when a change has waited for more than two sync periods (pkg/proxy/healthcheck/proxy_health.go). Here, the
//! event loop regularly proves that it has applied all changes and that every worker answers. After the same time without a proof, the
//! gateway is unhealthy.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

/// Two sync periods of 30 s, which is kube-proxy's default.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A moment on the monotonic clock, for measuring, and on the wall clock, for display.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timepoint {
    measured: Instant,
    shown: Timestamp,
}

impl Timepoint {
    pub(super) fn now() -> Self {
        Self { measured: Instant::now(), shown: Timestamp::now() }
    }
}

/// Proofs of the control loop so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct HealthState {
    /// Time of the last proof of health.
    proven: Timepoint,
    /// Whether load balancers may send traffic to the node.
    eligible: bool,
    draining: bool,
}

/// Health of the proxy. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ProxyHealth(watch::Sender<HealthState>);

/// Health of the proxy at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HealthReport {
    /// Time of the report.
    pub(super) now: Timestamp,
    /// Time of the last proof of health.
    pub(super) proven: Timestamp,
    /// Whether the process works. If not, only a restart helps.
    pub(super) healthy: bool,
    /// Whether load balancers may send traffic to the node.
    pub(super) eligible: bool,
    /// Whether new traffic is forwarded: the process works and does not drain.
    pub(super) serving: bool,
}

impl ProxyHealth {
    /// Healthy, on a node that is not known yet.
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(HealthState { proven: Timepoint::now(), eligible: false, draining: false }))
    }

    pub(super) fn set_eligible(&self, eligible: bool) {
        self.0.send_modify(|signs| signs.eligible = eligible);
    }

    pub(super) fn drain(&self) {
        self.0.send_modify(|signs| signs.draining = true);
    }

    /// Marks the proxy as healthy as of this call, once `answers` has resolved to true.
    pub(super) fn proven_by(&self, answers: impl Future<Output = bool> + Send + 'static) {
        let (signs, now) = (self.0.clone(), Timepoint::now());
        tokio::spawn(async move {
            if answers.await {
                signs.send_modify(|signs| signs.proven = now);
            }
        });
    }

    pub(super) fn report(&self) -> HealthReport {
        self.0.borrow().report(Timepoint::now())
    }
}

impl HealthState {
    fn report(&self, now: Timepoint) -> HealthReport {
        let healthy = now.measured.saturating_duration_since(self.proven.measured) < TIMEOUT;
        HealthReport {
            now: now.shown,
            proven: self.proven.shown,
            healthy,
            // A draining gateway counts like a node that is to be deleted.
            eligible: self.eligible && !self.draining,
            serving: healthy && !self.draining,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Timepoint, seconds: u64) -> Timepoint {
        let passed = Duration::from_secs(seconds);
        Timepoint { measured: start.measured + passed, shown: start.shown + passed }
    }

    #[test]
    fn it_is_healthy_for_a_minute_after_the_last_proof() {
        let start = Timepoint::now();
        let signs = HealthState { proven: start, eligible: true, draining: false };
        let report = signs.report(after(start, 59));
        assert!(report.healthy && report.serving && report.eligible);
        let report = signs.report(after(start, 60));
        assert!(!report.healthy && !report.serving && report.eligible);
        assert_eq!((report.proven, report.now), (start.shown, after(start, 60).shown));
        let proven_again = HealthState { proven: after(start, 60), ..signs };
        assert!(proven_again.report(after(start, 61)).healthy);
    }

    #[test]
    fn a_draining_proxy_is_healthy_but_takes_nothing_new() {
        let start = Timepoint::now();
        let report = HealthState { proven: start, eligible: true, draining: true }.report(start);
        assert!(report.healthy && !report.serving && !report.eligible);
    }

    #[tokio::test]
    async fn only_workers_that_answer_prove_it_healthy() {
        let proxy = ProxyHealth::new();
        let proven = || proxy.report().proven;
        let (first, mut changes) = (proven(), proxy.0.subscribe());
        proxy.proven_by(async { false });
        tokio::task::yield_now().await;
        assert_eq!(proven(), first);
        proxy.proven_by(async { true });
        changes.changed().await.unwrap();
        assert!(proven() > first);
    }
}
