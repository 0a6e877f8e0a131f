//! `ValidateLease`.

use serde_json::Value;

use crate::apiserver::status::Cause;

/// Validates the spec.
pub(super) fn check(lease: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &lease["spec"];
    if spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
        let field = "spec.leaseDurationSeconds";
        causes.push(Cause::invalid(field, &spec["leaseDurationSeconds"], "must be greater than 0"));
    }
    if spec["leaseTransitions"].as_i64().is_some_and(|times| times < 0) {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.leaseTransitions", &spec["leaseTransitions"], why));
    }
    causes
}
