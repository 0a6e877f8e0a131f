//! Session affinity, traffic policies and traffic distribution.

use serde_json::{Value, json};

use super::super::super::causes::unsupported;
use super::super::{is_external, needs_health_check_port, port_number, text};
use crate::apiserver::status::Cause;

const POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
/// Maximum timeout of affinity in seconds: one day.
const LONGEST_AFFINITY: i64 = 86400;

pub(super) fn check_affinity(service: &Value) -> Vec<Cause> {
    let config = &service["spec"]["sessionAffinityConfig"];
    let field = "spec.sessionAffinityConfig";
    match text(service, "sessionAffinity") {
        "ClientIP" => {
            let seconds = &config["clientIP"]["timeoutSeconds"];
            if (1..=LONGEST_AFFINITY).contains(&seconds.as_i64().unwrap_or_default()) {
                return Vec::new();
            }
            let field = format!("{field}.clientIP.timeoutSeconds");
            let why = format!("must be greater than 0 and less than {LONGEST_AFFINITY}");
            vec![Cause::invalid(&field, seconds, &why)]
        }
        "None" if config.is_object() => {
            vec![Cause::forbidden(field, "must not be set when session affinity is None")]
        }
        "None" => Vec::new(),
        other => vec![unsupported("spec.sessionAffinity", other, &["ClientIP", "None"])],
    }
}

pub(super) fn check_traffic(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let field = "spec.externalTrafficPolicy";
    let policy = text(service, "externalTrafficPolicy");
    if !is_external(service) {
        if !policy.is_empty() {
            let why = "may only be set for externally-accessible services";
            causes.push(Cause::invalid(field, &json!(policy), why));
        }
    } else if !POLICIES.contains(&policy) {
        causes.push(unsupported(field, policy, &POLICIES));
    }
    let port = port_number(&service["spec"]["healthCheckNodePort"]);
    let field = "spec.healthCheckNodePort";
    if port != 0 && !needs_health_check_port(service) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid(field, &json!(port), why));
    } else if port == 0 && needs_health_check_port(service) {
        causes.push(Cause::required(field, ""));
    }
    for (key, supported) in
        [("internalTrafficPolicy", &POLICIES[..]), ("trafficDistribution", &DISTRIBUTIONS[..])]
    {
        if let Some(given) = service["spec"][key].as_str().filter(|given| !supported.contains(given)) {
            causes.push(unsupported(&format!("spec.{key}"), given, supported));
        }
    }
    causes
}
