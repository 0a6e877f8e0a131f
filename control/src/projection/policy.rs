//! Choices that a Service makes by a word: traffic policies and the balancing algorithm.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceSpec;
use sheave_dataplane::model::{Algorithm, Protocol};

use crate::report::Report;

/// Annotation that chooses the algorithm.
const BALANCE: &str = "sheave.dev/balance";

/// Which endpoints a class of clients may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficPolicy {
    /// Those of the whole cluster.
    Cluster,
    /// Those on this gateway's node.
    Local,
}

/// Reads `externalTrafficPolicy`, and checks `internalTrafficPolicy`, which has no say over load balancer addresses:
/// clients inside the cluster get the cluster-wide endpoints there.
pub(super) fn external(spec: &ServiceSpec, report: &mut Report) -> TrafficPolicy {
    let _ = policy(spec.internal_traffic_policy.as_deref(), "spec.internalTrafficPolicy", report);
    policy(spec.external_traffic_policy.as_deref(), "spec.externalTrafficPolicy", report)
}

fn policy(value: Option<&str>, field: &str, report: &mut Report) -> TrafficPolicy {
    match value.unwrap_or_default() {
        "" | "Cluster" => TrafficPolicy::Cluster,
        "Local" => TrafficPolicy::Local,
        other => {
            report.invalid(field, format!("{other:?} is not Cluster or Local; Cluster is used"));
            TrafficPolicy::Cluster
        }
    }
}

/// Reads the algorithm that the annotation asks for; `None` means the protocol's default.
pub(super) fn algorithm(
    annotations: Option<&BTreeMap<String, String>>,
    report: &mut Report,
) -> Option<Algorithm> {
    let asked = annotations?.get(BALANCE)?;
    match asked.trim() {
        "least-connections" => Some(Algorithm::LeastConnections),
        "maglev" => Some(Algorithm::Maglev),
        "round-robin" => Some(Algorithm::RoundRobin),
        "random" => Some(Algorithm::Random),
        _ => {
            let message = format!(
                "{asked:?} is not least-connections, maglev, round-robin or random; the default of the protocol is used"
            );
            report.invalid(format!("metadata.annotations[{BALANCE}]"), message);
            None
        }
    }
}

/// TCP connections are long and uneven, so the less loaded wins; UDP has no end to count, so the client's hash decides.
pub(super) fn default_algorithm(protocol: Protocol) -> Algorithm {
    match protocol {
        Protocol::Tcp => Algorithm::LeastConnections,
        Protocol::Udp => Algorithm::Maglev,
    }
}
