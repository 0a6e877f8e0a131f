//! What of ours a Service carries: finalizers, ingress, conditions. It must not know what is to be done about it.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{PublishOptions, Statement};
use crate::controller::conditions;
use crate::controller::names::{ALLOCATED, FINALIZER, PROGRAMMED, SHARED_FINALIZER};
use crate::projection::port_error;

pub(super) fn is_load_balancer(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

fn finalizers(service: &Service) -> &[String] {
    service.metadata.finalizers.as_deref().unwrap_or_default()
}

fn has(service: &Service, finalizer: &str) -> bool {
    finalizers(service).iter().any(|held| held == finalizer)
}

/// The finalizers that the Service is to have while it is ours; nothing if it has them.
pub(super) fn finalizers_with_ours(service: &Service, options: PublishOptions) -> Option<Vec<String>> {
    let missing = ours(options).filter(|finalizer| !has(service, finalizer));
    let missing: Vec<String> = missing.map(str::to_owned).collect();
    (!missing.is_empty()).then(|| [finalizers(service), &missing].concat())
}

/// The finalizers that are left when ours go, all copies of them (API servers keep duplicates); nothing if it has none of
/// ours. The shared one alone proves nothing: it is somebody else's.
pub(super) fn finalizers_without_ours(service: &Service, options: PublishOptions) -> Option<Vec<String>> {
    let others = finalizers(service).iter().filter(|held| !ours(options).any(|finalizer| finalizer == *held));
    has(service, FINALIZER).then(|| others.cloned().collect())
}

fn ours(options: PublishOptions) -> impl Iterator<Item = &'static str> {
    [FINALIZER].into_iter().chain(options.shared_finalizer.then_some(SHARED_FINALIZER))
}

/// Whether its status may hold something of ours. An ingress is known as ours by the finalizer; conditions by their names,
/// since they stay when users take the finalizer away. Whose it really is, the API server knows (`managedFields`).
pub(super) fn status_may_be_ours(service: &Service) -> bool {
    let held = has(service, FINALIZER);
    (held && !ingress(service).is_empty()) || conditions_without_ours(service).is_some()
}

/// The conditions that are left when ours go; nothing if it has none of ours, or goes as a whole.
pub(super) fn conditions_without_ours(service: &Service) -> Option<Vec<&Condition>> {
    let leaving = service.metadata.deletion_timestamp.is_some() && !has(service, FINALIZER);
    let is_ours = |condition: &Condition| [PROGRAMMED, ALLOCATED].contains(&condition.type_.as_str());
    let conditions = conditions(service);
    let spoken = conditions.iter().any(is_ours) && !leaving;
    spoken.then(|| conditions.iter().filter(|condition| !is_ours(condition)).collect())
}

/// Whether its status says what it should. Only the times of conditions may differ.
pub(super) fn says(service: &Service, statement: &Statement) -> bool {
    let generation = service.metadata.generation;
    ingress(service) == desired_ingress(statement)
        && conditions::of(statement).iter().all(|said| said.stands_in(conditions(service), generation))
}

fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|status| status.ingress.as_deref()).unwrap_or_default()
}

pub(super) fn conditions(service: &Service) -> &[Condition] {
    service.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

pub(super) fn desired_ingress(statement: &Statement) -> Vec<LoadBalancerIngress> {
    let entries = statement.ingress.iter().map(|entry| {
        let ports = entry.ports.iter().map(|status| PortStatus {
            port: status.port.into(),
            protocol: status.protocol.into(),
            error: conditions::port_trouble(status, entry.ip, &statement.failed_ports).map(port_error),
        });
        let ports: Vec<_> = ports.collect();
        LoadBalancerIngress {
            ip: Some(entry.ip.to_string()),
            ip_mode: Some("Proxy".into()),
            hostname: entry.hostname.clone(),
            // An empty list is not stored, and would differ for ever.
            ports: (!ports.is_empty()).then_some(ports),
        }
    });
    entries.collect()
}
