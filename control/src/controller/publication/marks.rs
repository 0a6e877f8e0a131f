//! What of ours a Service carries: finalizers, ingress, conditions. It must not know what is to be done about it.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{PublishOptions, Statement};
use crate::controller::conditions;
use crate::controller::names::{ALLOCATED, PROGRAMMED};
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
pub(super) fn finalizers_with_ours(service: &Service, options: &PublishOptions) -> Option<Vec<String>> {
    let missing = options.finalizers().filter(|finalizer| !has(service, finalizer));
    let missing: Vec<String> = missing.map(str::to_owned).collect();
    (!missing.is_empty()).then(|| [finalizers(service), &missing].concat())
}

/// The finalizers that are left when ours go, all copies of them (API servers keep duplicates); nothing if it has none of
/// ours. The shared one alone proves nothing: it is somebody else's.
pub(super) fn finalizers_without_ours(service: &Service, options: &PublishOptions) -> Option<Vec<String>> {
    let is_ours = |held: &String| options.finalizers().any(|finalizer| finalizer == *held);
    let others = finalizers(service).iter().filter(|held| !is_ours(held));
    has(service, options.finalizer()).then(|| others.cloned().collect())
}

/// Whether there is anything that may be ours. Whose it really is, the API server knows (`managedFields`).
pub(super) fn status_says_something(service: &Service) -> bool {
    !ingress(service).is_empty() || conditions(service).iter().any(has_our_name)
}

/// The conditions that are left when those of our names go, whoever wrote them last; nothing if there are none. Where
/// another installation's finalizer is, they are what that one says.
pub(super) fn conditions_without_ours<'s>(
    service: &'s Service,
    options: &PublishOptions,
) -> Option<Vec<&'s Condition>> {
    let conditions = conditions(service);
    let theirs = finalizers(service).iter().any(|held| options.is_neighbours(held));
    let spoken = conditions.iter().any(has_our_name) && !theirs;
    spoken.then(|| conditions.iter().filter(|condition| !has_our_name(condition)).collect())
}

fn has_our_name(condition: &Condition) -> bool {
    [PROGRAMMED, ALLOCATED].contains(&condition.type_.as_str())
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
