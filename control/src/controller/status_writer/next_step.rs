//! The one write that brings a Service or MultiClusterService nearer to its desired state. Pure, and decided by the object alone, so
//! it does not matter after which write a controller was stopped.
//!
//! What holds for Services here holds for MultiClusterServices, too, unless noted.
//!
//! Two installations with different classes do not touch each other's Services: each has a finalizer of its own, and from a
//! Service without it nothing is ever taken. One whose finalizer users took away is put right while it is ours; moved
//! elsewhere meanwhile, it keeps our status, until `uninstall` finds that by its field manager. A MultiClusterService
//! gets the finalizer only with its first address.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::patch;
use crate::api::address_pool::{API_VERSION, AddressPool, AddressPoolStatus, KIND};
use crate::api::names::ANNOUNCED;
use crate::controller::conditions;
use crate::controller::desired_status::{Desired, DesiredStatus};
use crate::controller::ownership::Ownership;
use crate::controller::service_exports::ExportStep;
use crate::controller::service_object::ServiceObject;

/// A Service as it is known to be.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The object. One without uid or resourceVersion was never at an API server, and nothing is written to it.
    pub object: &'a ServiceObject,
    /// A [`WriteStep::ClearStatus`] has been carried out since it was last ours: what its status still has belongs to others.
    pub status_cleared: bool,
    /// For conditions that change.
    pub now: Timestamp,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum WriteStep {
    /// The object is as desired, or only a newer object can show what to do.
    Nothing,
    /// Merge patch of the object; valid for this uid and resourceVersion only.
    AddFinalizer(Value),
    /// Server-side apply of `/status`; valid for this uid only.
    ApplyStatus(Value),
    /// Server-side apply of `/status` that gives up all that we applied; valid for this uid only.
    ClearStatus(Value),
    /// Merge patch of `/status`, for what others may have written over: conditions with our names that no longer apply, and
    /// addresses for which Karmada would not let the object go; valid for this uid and resourceVersion only.
    RemoveRest(Value),
    /// Merge patch of the object; valid for this uid and resourceVersion only.
    RemoveFinalizer(Value),
    /// A write of the objects that make Karmada collect endpoints; [`ExportStep`] decides on these.
    Export(ExportStep),
}

/// The one write that brings the Service nearest to what is desired.
pub fn next_step(seen: &Seen<'_>, desired: &Desired, options: &Ownership) -> WriteStep {
    let metadata = &seen.object.metadata();
    if metadata.uid.is_none() || metadata.resource_version.is_none() {
        return WriteStep::Nothing;
    }
    match desired {
        Desired::Published(desired_status) if metadata.deletion_timestamp.is_none() => {
            publish(seen, desired_status, options)
        }
        _ => release(seen, options),
    }
}

/// The finalizer comes first: a status without it would stay behind if the Service changed hands while we are away.
fn publish(seen: &Seen<'_>, desired_status: &DesiredStatus, options: &Ownership) -> WriteStep {
    let object = seen.object;
    if !object.is_load_balancer() {
        // Decided for an older object. The API server would refuse the ingress (validation, `validateLoadBalancerStatus`).
        return WriteStep::Nothing;
    }
    if let Some(finalizers) = finalizers_due(object, desired_status, options) {
        if object.locks().next().is_none() {
            return WriteStep::AddFinalizer(patch::finalizers(object, &finalizers));
        }
        // Karmada refuses the finalizer while this is there, and no address of ours may come before the finalizer.
        let without_addresses = DesiredStatus { ingress: Vec::new(), ..desired_status.clone() };
        return WriteStep::ApplyStatus(patch::status(object, &without_addresses, seen.now));
    }
    if !is_published(object, desired_status) {
        return WriteStep::ApplyStatus(patch::status(object, desired_status, seen.now));
    }
    let outlived = desired_status.announcement.is_outlived_in(object.conditions());
    match options.outlived_announcement(object).filter(|_| outlived) {
        Some(rest) => WriteStep::RemoveRest(patch::rest(object, &rest)),
        None => WriteStep::Nothing,
    }
}

/// The finalizer goes last, for the same reason. A Service without it is not ours to release.
fn release(seen: &Seen<'_>, options: &Ownership) -> WriteStep {
    let object = seen.object;
    let Some(finalizers) = options.without_our_finalizers(object) else {
        return release_unallocated(seen, options);
    };
    if !seen.status_cleared && has_our_status(object) {
        return WriteStep::ClearStatus(patch::cleared(object));
    }
    if let Some(rest) = options.rest(object) {
        return WriteStep::RemoveRest(patch::rest(object, &rest));
    }
    WriteStep::RemoveFinalizer(patch::finalizers(object, &finalizers))
}

/// A MultiClusterService that never had an address may have conditions of ours all the same. Whether they are, only the
/// API server knows; if not, this changes nothing.
fn release_unallocated(seen: &Seen<'_>, options: &Ownership) -> WriteStep {
    let object = seen.object;
    let without_finalizer = matches!(object, ServiceObject::MultiClusterService(_));
    if without_finalizer && !seen.status_cleared && options.other_conditions(object).is_some() {
        return WriteStep::ClearStatus(patch::cleared(object));
    }
    WriteStep::Nothing
}

/// How soon a write is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Urgency {
    /// At once.
    Now,
    /// It changes the status or reason of conditions, and no address: at once, unless that has changed often of late, as where an
    /// endpoint comes and goes.
    Status,
    /// It changes only words of messages, such as numbers: it can wait, where it would be one of many.
    Minor,
    /// It changes only which gateways announce the addresses: it waits until that has settled.
    Settled,
}

/// How soon a `step` that [`next_step`] returned is due.
pub(super) fn urgency(step: &WriteStep, object: &ServiceObject, desired: &Desired) -> Urgency {
    match (step, desired) {
        (WriteStep::ApplyStatus(_), Desired::Published(desired_status)) => {
            status_urgency(object, desired_status)
        }
        _ => Urgency::Now,
    }
}

/// The finalizers that the Service needs before its status may have these addresses; none if it has them. A
/// MultiClusterService without an address needs none: there is nothing to free when it goes.
fn finalizers_due(
    object: &ServiceObject,
    desired_status: &DesiredStatus,
    options: &Ownership,
) -> Option<Vec<String>> {
    if matches!(object, ServiceObject::MultiClusterService(_)) && desired_status.ingress.is_empty() {
        return None;
    }
    options.with_our_finalizers(object)
}

/// Whether the status has anything that may be ours. The API server knows whose it is (`managedFields`).
fn has_our_status(object: &ServiceObject) -> bool {
    !object.ingress().is_empty() || object.conditions().iter().any(Ownership::names_condition)
}

/// Whether its status is as desired. Only the times of conditions may differ.
fn is_published(object: &ServiceObject, desired_status: &DesiredStatus) -> bool {
    let generation = object.metadata().generation;
    object.ingress() == desired_status.ingress_of(object)
        && conditions::of(desired_status)
            .iter()
            .all(|condition| condition.stands_in(object.conditions(), generation))
}

/// How soon a status is due that differs from the one that the object has.
fn status_urgency(object: &ServiceObject, desired_status: &DesiredStatus) -> Urgency {
    let there = object.conditions();
    if object.ingress() != desired_status.ingress_of(object)
        || desired_status.announcement.is_outlived_in(there)
    {
        return Urgency::Now;
    }
    let generation = object.metadata().generation;
    let desired = conditions::of(desired_status);
    if !desired.iter().all(|condition| condition.is_meant_by(there, generation)) {
        return Urgency::Status;
    }
    let mut differing = desired.iter().filter(|condition| !condition.stands_in(there, generation));
    if differing.all(|condition| condition.kind == ANNOUNCED) { Urgency::Settled } else { Urgency::Minor }
}

/// The write that brings the pool to this status.
pub(in crate::controller) fn next_pool_step(pool: &AddressPool, desired: &AddressPoolStatus) -> WriteStep {
    let metadata = &pool.metadata;
    if metadata.uid.is_none() || metadata.deletion_timestamp.is_some() || is_pool_published(pool, desired) {
        return WriteStep::Nothing;
    }
    WriteStep::ApplyStatus(json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": metadata.name, "uid": metadata.uid},
        "status": desired,
    }))
}

/// Conditions of others and times do not count.
fn is_pool_published(pool: &AddressPool, desired: &AddressPoolStatus) -> bool {
    let Some(status) = &pool.status else { return false };
    let stands = |wanted: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        status.conditions.iter().any(|condition| {
            condition.type_ == wanted.type_
                && condition.status == wanted.status
                && condition.reason == wanted.reason
                && condition.message == wanted.message
                && condition.observed_generation == wanted.observed_generation
        })
    };
    (status.used, status.free) == (desired.used, desired.free) && desired.conditions.iter().all(stands)
}

#[cfg(test)]
mod tests;
