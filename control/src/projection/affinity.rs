//! `sessionAffinity` and its timeout.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceSpec;
use sheave_model::Affinity;

use crate::api::problem::report::Report;

/// What the API server fills in: three hours.
const DEFAULT_TIMEOUT_SECONDS: i32 = 10_800;
const TIMEOUT_FIELD: &str = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";

/// Reads the affinity; an invalid value is reported and its default taken.
pub(super) fn read(spec: &ServiceSpec, report: &mut Report) -> Affinity {
    match spec.session_affinity.as_deref().unwrap_or_default() {
        "" | "None" => Affinity::None,
        "ClientIP" => Affinity::ClientIp { timeout: timeout(spec, report) },
        other => {
            let message = format!("{other:?} is not None or ClientIP; clients have no affinity");
            report.invalid("spec.sessionAffinity", message);
            Affinity::None
        }
    }
}

fn timeout(spec: &ServiceSpec, report: &mut Report) -> Duration {
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let asked = config.and_then(|client_ip| client_ip.timeout_seconds).unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    let seconds = if (1..=86_400).contains(&asked) {
        asked
    } else {
        let message = format!("{asked} is not within 1 to 86400; {DEFAULT_TIMEOUT_SECONDS} is used");
        report.invalid(TIMEOUT_FIELD, message);
        DEFAULT_TIMEOUT_SECONDS
    };
    Duration::from_secs(u64::from(seconds.unsigned_abs()))
}
