//! What of ours a Service carries: finalizers, ingress, conditions. It must not know what is to be done about it.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Exposed, PublishOptions, Statement};
use crate::controller::conditions;
use crate::controller::names::{CONDITIONS, READY};
use crate::host_name;
use crate::projection::{Ingress, port_error};

fn finalizers(object: &Exposed) -> &[String] {
    object.metadata().finalizers.as_deref().unwrap_or_default()
}

fn has(object: &Exposed, finalizer: &str) -> bool {
    finalizers(object).iter().any(|held| held == finalizer)
}

/// The finalizers that the Service is to have before it is said to have these addresses; nothing if it has them. A
/// MultiClusterService without an address needs none: there is nothing to free when it goes.
pub(super) fn finalizers_due(
    object: &Exposed,
    statement: &Statement,
    options: &PublishOptions,
) -> Option<Vec<String>> {
    if matches!(object, Exposed::MultiClusterService(_)) && statement.ingress.is_empty() {
        return None;
    }
    let missing = options.finalizers_of(object).filter(|finalizer| !has(object, finalizer));
    let missing: Vec<String> = missing.map(str::to_owned).collect();
    (!missing.is_empty()).then(|| [finalizers(object), &missing].concat())
}

/// The finalizers that are left when ours go, all copies of them (API servers keep duplicates); nothing if it has none of
/// ours. The shared one alone proves nothing: it is somebody else's.
pub(super) fn finalizers_without_ours(object: &Exposed, options: &PublishOptions) -> Option<Vec<String>> {
    let is_ours = |held: &String| options.finalizers_of(object).any(|finalizer| finalizer == *held);
    let others = finalizers(object).iter().filter(|held| !is_ours(held));
    has(object, options.finalizer()).then(|| others.cloned().collect())
}

/// Whether there is anything that may be ours. Whose it really is, the API server knows (`managedFields`).
pub(super) fn status_says_something(object: &Exposed) -> bool {
    !object.ingress().is_empty() || object.conditions().iter().any(has_our_name)
}

/// The conditions that are left when those of our names go, whoever wrote them last; nothing if there are none. Where
/// another installation's finalizer is, they are what that one says.
pub(super) fn conditions_without_ours<'o>(
    object: &'o Exposed,
    options: &PublishOptions,
) -> Option<Vec<&'o Condition>> {
    let conditions = object.conditions();
    let theirs = finalizers(object).iter().any(|held| options.is_neighbours(held));
    let spoken = conditions.iter().any(has_our_name) && !theirs;
    spoken.then(|| conditions.iter().filter(|condition| !has_our_name(condition)).collect())
}

/// What the status is to keep of the lists that hold what must not stay; nothing of a list that may stay as it is.
pub(super) struct Rest<'o> {
    pub(super) conditions: Option<Vec<&'o Condition>>,
    pub(super) ingress: Option<Vec<&'o LoadBalancerIngress>>,
}

/// What has to go although it is not ours, before the finalizer can; nothing if there is none.
pub(super) fn rest<'o>(object: &'o Exposed, options: &PublishOptions) -> Option<Rest<'o>> {
    let locks: Vec<usize> = object.locks().map(|(place, _)| place).collect();
    let kept = object.ingress().iter().enumerate().filter(|(place, _)| !locks.contains(place));
    let rest = Rest {
        conditions: conditions_without_ours(object, options),
        ingress: (!locks.is_empty()).then(|| kept.map(|(_, entry)| entry).collect()),
    };
    (rest.conditions.is_some() || rest.ingress.is_some()).then_some(rest)
}

fn has_our_name(condition: &Condition) -> bool {
    CONDITIONS.contains(&condition.type_.as_str())
}

/// Whether its status says what it should. Only the times of conditions may differ.
pub(super) fn says(object: &Exposed, statement: &Statement) -> bool {
    let generation = object.metadata().generation;
    object.ingress() == desired_ingress(object, statement)
        && conditions::of(statement).iter().all(|said| said.stands_in(object.conditions(), generation))
}

/// Whether its status says what it should, if in other words, or but for endpoints, which come and go.
pub(super) fn differs_in_words(object: &Exposed, statement: &Statement) -> bool {
    let generation = object.metadata().generation;
    let there = object.conditions();
    let is_new = |kind: &str| !there.iter().any(|condition| condition.type_ == kind);
    object.ingress() == desired_ingress(object, statement)
        && conditions::of(statement)
            .iter()
            .all(|said| said.is_meant_by(there, generation) || (said.kind == READY && !is_new(said.kind)))
}

pub(super) fn desired_ingress(object: &Exposed, statement: &Statement) -> Vec<LoadBalancerIngress> {
    let entries = statement.ingress.iter().map(|entry| {
        let ports = ports(object, entry, statement);
        LoadBalancerIngress {
            ip: Some(entry.ip.to_string()),
            ip_mode: Some("Proxy".into()),
            // What others wrote there is kept, unless Karmada would refuse the object for it.
            hostname: entry.hostname.clone().filter(|name| host_name::is_valid(name)),
            // An empty list is not stored, and would differ for ever.
            ports: (!ports.is_empty()).then_some(ports),
        }
    });
    entries.collect()
}

/// A MultiClusterService's ports have to have an error (its definition says so): those that are served are left out.
fn ports(object: &Exposed, entry: &Ingress, statement: &Statement) -> Vec<PortStatus> {
    let with_all = matches!(object, Exposed::Service(_));
    let ports = entry.ports.iter().map(|status| PortStatus {
        port: status.port.into(),
        protocol: status.protocol.into(),
        error: conditions::port_trouble(status, entry.ip, &statement.failed_ports).map(port_error),
    });
    ports.filter(|status| with_all || status.error.is_some()).collect()
}
