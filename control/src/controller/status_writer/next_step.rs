//! Decision about the next write that brings a Service or MultiClusterService closer to its desired state. It has no I/O and
//! depends only on the object, so a controller may stop after any write.
//!
//! Statements about Services apply to MultiClusterServices, too, unless noted.
//!
//! Two installations with different classes do not touch each other's Services: each has its own finalizer, and nothing is
//! removed from a Service without it. If users remove the finalizer, it is restored while the Service is ours. If the Service
//! changes to another class meanwhile, our status stays on it until `uninstall` finds it by field manager. A MultiClusterService
//! gets the finalizer only with its first address.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::patch;
use crate::api::address_pool::{API_VERSION, AddressPool, AddressPoolStatus, KIND};
use crate::api::condition::DesiredCondition;
use crate::api::names::{ANNOUNCED, PORTS_PUBLISHED};
use crate::controller::conditions;
use crate::controller::desired_status::{Desired, DesiredStatus};
use crate::controller::ownership::Ownership;
use crate::controller::service_exports::ExportStep;
use crate::controller::service_object::ServiceObject;

/// Known state of a Service.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The object. One without uid or resourceVersion does not come from an API server, and nothing is written to it.
    pub object: &'a ServiceObject,
    /// Whether a [`WriteStep::ClearStatus`] has succeeded since it was last ours: the remaining status then belongs to others.
    pub status_cleared: bool,
    /// Transition time of conditions that change.
    pub now: Timestamp,
}

/// A single write.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum WriteStep {
    /// The object is as desired, or a newer version is needed to decide.
    Nothing,
    /// Merge patch of the object, for this uid and resourceVersion only.
    AddFinalizer(Value),
    /// Server-side apply of `/status`, for this uid only.
    ApplyStatus(Value),
    /// Server-side apply of `/status` that removes everything that we applied, for this uid only.
    ClearStatus(Value),
    /// Merge patch of `/status` that removes what others may have overwritten: conditions with our names that no longer apply,
    /// and addresses that would make Karmada reject the removal of the finalizer. For this uid and resourceVersion only.
    RemoveRest(Value),
    /// Merge patch of the object, for this uid and resourceVersion only.
    RemoveFinalizer(Value),
    /// Merge patch of `status.parents` of a route, for this uid and resourceVersion only. The list has the entries of other
    /// controllers, too.
    PatchParents {
        /// The patch.
        body: Value,
        /// Our entries in it.
        ours: Vec<Value>,
    },
    /// Write of the objects that make Karmada collect endpoints, as decided by [`ExportStep`].
    Export(ExportStep),
}

impl WriteStep {
    /// Whether it writes finalizers, and not the status.
    pub(super) fn is_about_finalizers(&self) -> bool {
        matches!(self, Self::AddFinalizer(_) | Self::RemoveFinalizer(_))
    }
}

/// The next write that brings the Service closer to the desired state.
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

/// Decides on a published Service. The finalizer comes first: without it, the status would stay behind if the Service changed its
/// class while no controller runs.
fn publish(seen: &Seen<'_>, desired_status: &DesiredStatus, options: &Ownership) -> WriteStep {
    let object = seen.object;
    if !object.is_load_balancer() {
        // The decision was made for an older version. The API server would reject the ingress (validation,
        // `validateLoadBalancerStatus`).
        return WriteStep::Nothing;
    }
    if let Some(finalizers) = finalizers_due(object, desired_status, options) {
        if object.locks().next().is_none() {
            return WriteStep::AddFinalizer(patch::finalizers(object, &finalizers));
        }
        // Karmada rejects the finalizer while these entries exist, and our addresses may not precede the finalizer.
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

/// Decides on a released Service. The finalizer goes last, for the same reason. A Service without it is not ours to release.
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

/// Decides on a Service without our finalizer. A MultiClusterService that never had an address may still have conditions of ours.
/// Only the API server knows who owns them; if they are not ours, this write changes nothing.
fn release_unallocated(seen: &Seen<'_>, options: &Ownership) -> WriteStep {
    let object = seen.object;
    let without_finalizer = matches!(object, ServiceObject::MultiClusterService(_));
    if without_finalizer && !seen.status_cleared && options.other_conditions(object).is_some() {
        return WriteStep::ClearStatus(patch::cleared(object));
    }
    WriteStep::Nothing
}

/// When a write is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::controller) enum Urgency {
    /// Immediately.
    Now,
    /// The status or reason of conditions changes, and no address: immediately, unless it has changed often recently, as with an
    /// endpoint that comes and goes.
    Status,
    /// Only texts of messages change, such as numbers: delayed, as it may be one of many changes.
    Minor,
    /// Only the announcing gateways change: delayed until they are stable.
    Settled,
}

/// When a `step` that [`next_step`] returned is due.
pub(super) fn urgency(step: &WriteStep, object: &ServiceObject, desired: &Desired) -> Urgency {
    match (step, desired) {
        (WriteStep::ApplyStatus(_), Desired::Published(desired_status)) => {
            status_urgency(object, desired_status)
        }
        _ => Urgency::Now,
    }
}

/// The finalizers to write before the status may have these addresses; `None` if they are present. A MultiClusterService without
/// an address needs none, because there is nothing to release.
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

/// Whether the status has anything that may be ours. Only the API server knows the owner (`managedFields`).
fn has_our_status(object: &ServiceObject) -> bool {
    !object.ingress().is_empty() || object.conditions().iter().any(Ownership::names_condition)
}

/// Whether the status is as desired, apart from the times of conditions.
fn is_published(object: &ServiceObject, desired_status: &DesiredStatus) -> bool {
    let generation = object.metadata().generation;
    object.ingress() == desired_status.ingress_of(object)
        && conditions::conditions_for(desired_status)
            .iter()
            .all(|condition| condition.stands_in(object.conditions(), generation))
}

/// When a status is due that differs from the object's.
fn status_urgency(object: &ServiceObject, desired_status: &DesiredStatus) -> Urgency {
    let there = object.conditions();
    if object.ingress() != desired_status.ingress_of(object)
        || desired_status.announcement.is_outlived_in(there)
    {
        return Urgency::Now;
    }
    let generation = object.metadata().generation;
    let desired = conditions::conditions_for(desired_status);
    let mut differing = desired.iter().filter(|condition| !condition.stands_in(there, generation));
    // Others wait for ports that it has given up, and only the message of their condition has them.
    let is_status = |condition: &DesiredCondition| {
        condition.kind == PORTS_PUBLISHED || !condition.is_meant_by(there, generation)
    };
    if differing.clone().any(is_status) {
        return Urgency::Status;
    }
    if differing.all(|condition| condition.kind == ANNOUNCED) { Urgency::Settled } else { Urgency::Minor }
}

/// The write that sets this status on the pool.
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

/// Ignores conditions of others, and times.
fn is_pool_published(pool: &AddressPool, desired: &AddressPoolStatus) -> bool {
    let Some(status) = &pool.status else { return false };
    let stands = |wanted: &Condition| {
        let stands = |there: &Condition| {
            *there == Condition { last_transition_time: there.last_transition_time.clone(), ..wanted.clone() }
        };
        status.conditions.iter().any(stands)
    };
    (status.used, status.free) == (desired.used, desired.free) && desired.conditions.iter().all(stands)
}

#[cfg(test)]
mod tests;
