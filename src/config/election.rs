//! Section `leaderElection`: the Lease, and how soon another controller takes over.

use std::time::Duration;

use serde_json::Value;
use sheave_control::api::store::ServiceKey;
use sheave_control::controller::election::LeaseTiming;

use super::section::Section;
use super::values::ValueError;
use super::{NAMESPACE, values};

/// Reads the section: the Lease and its timing.
pub(super) fn read(section: &mut Section<'_>) -> (ServiceKey, LeaseTiming) {
    let lease = section.get("lease", ServiceKey::new(NAMESPACE, "sheave-controller"), values::namespaced);
    let usual = LeaseTiming::default();
    let timing = LeaseTiming {
        lease: section.get("leaseDuration", usual.lease, whole_seconds),
        deadline: section.get("renewDeadline", usual.deadline, values::timeout),
        retry: section.get("retryPeriod", usual.retry, values::timeout),
    };
    // A leader must notice the loss of its Lease before another controller takes it. Two renewals must fit into that time, each
    // delayed by up to half of its interval.
    if timing.deadline >= timing.lease {
        section.report(
            "renewDeadline",
            "is not shorter than leaseDuration, so two controllers could lead at once",
        );
    }
    if timing.retry * 2 > timing.deadline {
        section.report(
            "retryPeriod",
            "is more than half of renewDeadline, so one failed renewal would end a leader",
        );
    }
    (lease, timing)
}

/// Whole seconds, as the API requires (coordination/v1 LeaseSpec.leaseDurationSeconds).
fn whole_seconds(value: &Value) -> Result<Duration, ValueError> {
    let length = values::timeout(value)?;
    if length.subsec_nanos() > 0 {
        return Err(ValueError::expected("a whole number of seconds", value).hint("write it as 15s"));
    }
    Ok(length)
}
