//! Gateways of the Gateway API as a source of frontends: class, listeners and their conflicts, attached routes, backends, and the split
//! of each listener's traffic. The conditions that follow are values here; the controller writes them, and commands show them.

mod attachment;
mod backend_refs;
pub mod conditions;
pub(super) mod frontends;
pub(super) mod listener_inputs;
mod listener_outcome;
mod listener_plan;
mod listeners;
pub mod outcome;
pub(super) mod plan;
mod reports;
mod resolution;
mod route_outcome;
mod server_names;
mod serving;
pub(super) mod split;

use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::GatewayClass;

use self::conditions::ACCEPTED;
pub(crate) use self::listeners::MOST_MERGED_LISTENERS;
pub(super) use self::listeners::sets_of;

/// Features of the Gateway API that are supported, sorted by name.
pub const SUPPORTED_FEATURES: [&str; 8] = [
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayStaticAddresses",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "UDPRoute",
];

/// The condition `Accepted` of a GatewayClass of ours.
pub fn class_accepted(class: &GatewayClass) -> DesiredCondition {
    if class.spec.parameters_ref.is_some() {
        let message = "Parameters are not supported: remove spec.parametersRef.".to_owned();
        return DesiredCondition::no(ACCEPTED, "InvalidParameters", message);
    }
    DesiredCondition::yes(ACCEPTED, ACCEPTED, "Sheave implements Gateways of this class.".to_owned())
}
