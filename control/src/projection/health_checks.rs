//! Health check node ports (`healthCheckNodePort`), which report the Services with ready endpoints on this node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ServiceSpec;
use sheave_model::{Endpoint, EndpointState, FrontendKind};

use super::class::FrontendKinds;
use super::eligibility::TrafficPolicy;
use super::families::Families;
use super::ports;
use crate::api::problem::report::Report;
use crate::api::store::ServiceKey;
use crate::net::Family;

/// Health check node port of a Service (pkg/proxy/healthcheck/service_health.go). Each family is counted and answered separately,
/// as kube-proxy's two proxiers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The Service.
    pub service: ServiceKey,
    /// `spec.healthCheckNodePort`.
    pub port: u16,
    /// Distinct addresses of ready endpoints on this node; `None` if the Service has no IPv4 side.
    pub local_v4: Option<usize>,
    /// Distinct addresses of ready endpoints on this node; `None` if the Service has no IPv6 side.
    pub local_v6: Option<usize>,
}

/// `healthCheckNodePort` if it applies: to a load balancer with `externalTrafficPolicy: Local`.
pub(super) fn port(
    spec: &ServiceSpec,
    kinds: &FrontendKinds,
    external: TrafficPolicy,
    report: &mut Report,
) -> Option<u16> {
    let asked = spec.health_check_node_port.filter(|port| *port != 0)?;
    if !kinds.contains(&FrontendKind::LoadBalancer) || external != TrafficPolicy::Local {
        return None;
    }
    let number = ports::number(asked);
    if number.is_none() {
        let message =
            format!("{asked} is not a port (1 to 65535); nothing answers health checks for the Service");
        report.invalid("spec.healthCheckNodePort", message);
    }
    number
}

/// Health check node ports of all Services. The list is shared until one of them changes.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthChecks {
    by_service: BTreeMap<ServiceKey, HealthCheck>,
    list: Option<Arc<[HealthCheck]>>,
}

impl HealthChecks {
    /// Sets the port of a Service, which has at most one.
    pub(super) fn set(&mut self, key: &ServiceKey, check: Option<HealthCheck>) {
        if self.by_service.get(key) == check.as_ref() {
            return;
        }
        self.list = None;
        match check {
            Some(check) => self.by_service.insert(key.clone(), check),
            None => self.by_service.remove(key),
        };
    }

    /// All ports, sorted by key.
    pub(super) fn list(&mut self) -> Arc<[HealthCheck]> {
        let list = self.list.get_or_insert_with(|| self.by_service.values().cloned().collect());
        Arc::clone(list)
    }
}

/// Addresses of ready endpoints on this node. An address that serves several ports counts once.
#[derive(Debug, Default)]
pub(super) struct LocalReady(BTreeSet<IpAddr>);

impl LocalReady {
    pub(super) fn count<'a>(&mut self, endpoints: impl Iterator<Item = &'a Endpoint>) {
        let counted = endpoints.filter(|endpoint| endpoint.local && endpoint.state == EndpointState::Ready);
        self.0.extend(counted.map(|endpoint| endpoint.addr.ip));
    }

    pub(super) fn answer(&self, service: &ServiceKey, families: &Families, port: u16) -> HealthCheck {
        let of = |family| {
            let wanted = families.wanted.contains(&family);
            wanted.then(|| self.0.iter().filter(|ip| Family::of(**ip) == family).count())
        };
        HealthCheck { service: service.clone(), port, local_v4: of(Family::V4), local_v6: of(Family::V6) }
    }
}
