//! Choices that a Service makes by a word: traffic policies and the balancing algorithm.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use sheave_model::{Algorithm, Protocol};

use super::annotations::{self, BALANCE};
use crate::api::problem::report::Report;

/// Which endpoints a class of clients may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficPolicy {
    /// Those of the whole cluster.
    Cluster,
    /// Those on this gateway's node.
    Local,
}

/// The policies of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrafficPolicies {
    /// For clients outside the cluster, on every kind of frontend but the cluster address.
    pub(super) external: TrafficPolicy,
    /// For whoever uses the cluster address.
    pub(super) internal: TrafficPolicy,
}

/// Reads the policies, and checks `trafficDistribution`, which is not ours to obey: the EndpointSlice controller makes
/// hints of it (staging/src/k8s.io/endpointslice/trafficdist), and proxies go by those.
pub(super) fn traffic(spec: &ServiceSpec, report: &mut Report) -> TrafficPolicies {
    if let Some(other) = spec.traffic_distribution.as_deref()
        && !matches!(other, "" | "PreferClose" | "PreferSameZone" | "PreferSameNode")
    {
        let message =
            format!("{other:?} is not PreferSameZone, PreferSameNode or PreferClose; it is ignored");
        report.invalid("spec.trafficDistribution", message);
    }
    TrafficPolicies {
        external: policy(spec.external_traffic_policy.as_deref(), "spec.externalTrafficPolicy", report),
        internal: policy(spec.internal_traffic_policy.as_deref(), "spec.internalTrafficPolicy", report),
    }
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
pub(super) fn algorithm(service: &Service, report: &mut Report) -> Option<Algorithm> {
    annotations::read(service, BALANCE, report, |asked| match asked.trim() {
        "least-connections" => Ok(Algorithm::LeastConnections),
        "maglev" => Ok(Algorithm::Maglev),
        "round-robin" => Ok(Algorithm::RoundRobin),
        "random" => Ok(Algorithm::Random),
        _ => Err(format!(
            "{asked:?} is not least-connections, maglev, round-robin or random; the default of the protocol is used"
        )),
    })
}

/// TCP connections are long and uneven, so the less loaded wins; UDP has no end to count, so the client's hash decides.
pub(super) fn default_algorithm(protocol: Protocol) -> Algorithm {
    match protocol {
        Protocol::Tcp => Algorithm::LeastConnections,
        Protocol::Udp => Algorithm::Maglev,
    }
}
