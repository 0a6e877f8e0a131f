//! What is to be true of one Service or MultiClusterService in its API, and the one write that brings it nearer. Pure, and
//! judged by the object alone, so it does not matter after which write a controller was stopped. It must not know how writes
//! are sent.
//!
//! What is said here of Services holds for MultiClusterServices, too, unless it says so.
//!
//! Two installations with different classes do not touch each other's Services: each has a finalizer of its own, and from a
//! Service without it nothing is ever taken. One whose finalizer users took away is put right while it is ours; moved
//! elsewhere meanwhile, it keeps what we said of it, until `uninstall` finds that by its field manager. A MultiClusterService
//! gets the finalizer only with its first address.

mod body;
mod exposed;
mod marks;
mod options;

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::Value;
use sheave_model::FrontendAddr;

pub use self::exposed::Exposed;
pub use self::options::PublishOptions;
use crate::problem::Problem;
use crate::projection::{FleetStatus, Ingress, NodeFamilies};

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
    /// How many gateways are taken to serve it.
    pub gateways: usize,
    /// There are none because those that are ready do not answer the controller.
    pub silent: bool,
    /// Where no endpoint could serve.
    pub without_endpoints: Vec<FrontendAddr>,
    /// Ports on which gateways could not listen.
    pub failed_ports: Vec<PortFailure>,
    /// The clusters behind it, of a MultiClusterService.
    pub fleet: Option<FleetStatus>,
    /// The families of which it has the addresses of gateway nodes; `None` = not to be said.
    pub node_families: Option<NodeFamilies>,
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
    pub object: &'a Exposed,
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
    /// Merge patch of `/status`, for what others have written over: conditions with our names, and addresses for which
    /// Karmada would not let the object go; valid for this uid and resourceVersion only.
    RemoveRest(Value),
    /// Merge patch of the object; valid for this uid and resourceVersion only.
    RemoveFinalizer(Value),
}

/// The one write that brings the Service nearest to what is desired.
pub fn next_step(seen: &Seen<'_>, desired: &Desired, options: &PublishOptions) -> Step {
    let metadata = &seen.object.metadata();
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
    let object = seen.object;
    if !object.is_load_balancer() {
        // Decided for an older object. The API server would refuse the ingress (validation, `validateLoadBalancerStatus`).
        return Step::Nothing;
    }
    if let Some(finalizers) = marks::finalizers_due(object, statement, options) {
        if object.locks().next().is_none() {
            return Step::AddFinalizer(body::finalizers(object, &finalizers));
        }
        // Karmada refuses the finalizer while this is there, and no address of ours may come before the finalizer.
        let without_addresses = Statement { ingress: Vec::new(), ..statement.clone() };
        return Step::ApplyStatus(body::status(object, &without_addresses, seen.now));
    }
    if marks::says(object, statement) {
        return Step::Nothing;
    }
    Step::ApplyStatus(body::status(object, statement, seen.now))
}

/// The finalizer goes last, for the same reason. A Service without it is not ours to release.
fn release(seen: &Seen<'_>, options: &PublishOptions) -> Step {
    let object = seen.object;
    let Some(finalizers) = marks::finalizers_without_ours(object, options) else {
        return release_unallocated(seen, options);
    };
    if !seen.status_cleared && marks::status_says_something(object) {
        return Step::ClearStatus(body::cleared(object));
    }
    if let Some(rest) = marks::rest(object, options) {
        return Step::RemoveRest(body::rest(object, &rest));
    }
    Step::RemoveFinalizer(body::finalizers(object, &finalizers))
}

/// A MultiClusterService that never had an address may have conditions of ours all the same. Whether they are, only the
/// API server knows; if not, this changes nothing.
fn release_unallocated(seen: &Seen<'_>, options: &PublishOptions) -> Step {
    let object = seen.object;
    let without_finalizer = matches!(object, Exposed::MultiClusterService(_));
    if without_finalizer && !seen.status_cleared && marks::conditions_without_ours(object, options).is_some()
    {
        return Step::ClearStatus(body::cleared(object));
    }
    Step::Nothing
}

/// Whether a `step` that [`next_step`] gave says nothing that the object does not say already but numbers in messages: it
/// can wait, where it would be one of many.
pub(super) fn is_minor(step: &Step, object: &Exposed, desired: &Desired) -> bool {
    match (step, desired) {
        (Step::ApplyStatus(_), Desired::Published(statement)) => marks::differs_in_words(object, statement),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
