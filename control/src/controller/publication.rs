//! What is to be true of one Service in the API, and the one write that brings it nearer. Pure, and judged by the object
//! alone, so it does not matter after which write a controller was stopped. It must not know how writes are sent.
//!
//! Two installations with different classes do not touch each other's Services: each has a finalizer of its own, and from a
//! Service without it nothing is ever taken. One whose finalizer users took away is put right while it is ours; moved
//! elsewhere meanwhile, it keeps what we said of it, until `uninstall` finds that by its field manager.

mod body;
mod marks;
mod options;

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;

pub use self::options::PublishOptions;
use crate::problem::Problem;
use crate::projection::Ingress;

/// What is to be true of one Service in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// It is ours: finalizer, ingress and conditions. While it is being deleted this means the same as `Released`.
    Published(Statement),
    /// It is not, or not any longer: nothing of ours is left on it.
    Released,
}

/// What its status is to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// One entry per address, each with every port of the Service.
    pub ingress: Vec<Ingress>,
    /// What is wrong with this Service.
    pub problems: Vec<Problem>,
    /// How many gateways are ready.
    pub gateways: usize,
    /// Ports on which gateways could not listen.
    pub failed_ports: Vec<PortFailure>,
}

/// A port that a gateway could not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortFailure {
    /// One of the Service's addresses.
    pub ip: IpAddr,
    /// As in the Service.
    pub port: u16,
    /// As in the Service.
    pub protocol: &'static str,
    /// One of [`crate::problem::reason`].
    pub reason: &'static str,
}

/// A Service as it is known to be.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The object. One without uid or resourceVersion was never at an API server, and nothing is written to it.
    pub service: &'a Service,
    /// A [`Step::ClearStatus`] has been carried out since it was last ours: what its status still says belongs to others.
    pub status_cleared: bool,
    /// For conditions that change.
    pub now: Timestamp,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Step {
    /// The object is as desired, or only a newer object can tell what to do.
    Nothing,
    /// Merge patch of the object; valid for this uid and resourceVersion only.
    AddFinalizer(Value),
    /// Server-side apply of `/status`; valid for this uid only.
    ApplyStatus(Value),
    /// Server-side apply of `/status` that gives up all that we applied; valid for this uid only.
    ClearStatus(Value),
    /// Merge patch of `/status`, for conditions with our names that others have written over; valid for this uid and
    /// resourceVersion only.
    RemoveConditions(Value),
    /// Merge patch of the object; valid for this uid and resourceVersion only.
    RemoveFinalizer(Value),
}

/// The one write that brings the Service nearest to what is desired.
pub fn next_step(seen: &Seen<'_>, desired: &Desired, options: &PublishOptions) -> Step {
    let metadata = &seen.service.metadata;
    if metadata.uid.is_none() || metadata.resource_version.is_none() {
        return Step::Nothing;
    }
    match desired {
        Desired::Published(statement) if metadata.deletion_timestamp.is_none() => {
            publish(seen, statement, options)
        }
        _ => release(seen, options),
    }
}

/// The finalizer comes first: a status without it would stay behind if the Service changed hands while we are away.
fn publish(seen: &Seen<'_>, statement: &Statement, options: &PublishOptions) -> Step {
    let service = seen.service;
    if !marks::is_load_balancer(service) {
        // Decided for an older object. The API server would refuse the ingress (validation, `validateLoadBalancerStatus`).
        return Step::Nothing;
    }
    if let Some(finalizers) = marks::finalizers_with_ours(service, options) {
        return Step::AddFinalizer(body::finalizers(service, &finalizers));
    }
    if marks::says(service, statement) {
        return Step::Nothing;
    }
    Step::ApplyStatus(body::status(service, statement, seen.now))
}

/// The finalizer goes last, for the same reason. A Service without it is not ours to release.
fn release(seen: &Seen<'_>, options: &PublishOptions) -> Step {
    let service = seen.service;
    let Some(finalizers) = marks::finalizers_without_ours(service, options) else { return Step::Nothing };
    if !seen.status_cleared && marks::status_says_something(service) {
        return Step::ClearStatus(body::cleared(service));
    }
    if let Some(conditions) = marks::conditions_without_ours(service, options) {
        return Step::RemoveConditions(body::conditions(service, &conditions));
    }
    Step::RemoveFinalizer(body::finalizers(service, &finalizers))
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
