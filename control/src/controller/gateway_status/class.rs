//! Status and finalizer of a GatewayClass.

use jiff::Timestamp;
use serde_json::json;

use super::condition_list::ConditionList;
use super::{apply, merge};
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{GatewayClass, GatewayClassStatus, SupportedFeature};
use crate::controller::status_writer::next_step::WriteStep;
use crate::projection::gateway_api::{SUPPORTED_FEATURES, class_accepted};

/// Finalizer of a class that Gateways use, as the Gateway API names it.
pub const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

/// The desired status of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredClass {
    /// Generation that it was computed from.
    pub(super) generation: Option<i64>,
    /// `Accepted`.
    accepted: DesiredCondition,
    /// Whether a Gateway uses the class.
    in_use: bool,
}

impl DesiredClass {
    /// The desired status of a class of this installation.
    pub fn new(class: &GatewayClass, in_use: bool) -> Self {
        Self { generation: class.metadata.generation, accepted: class_accepted(class), in_use }
    }
}

/// Whether the class has the finalizer of one that Gateways use.
pub fn is_marked_in_use(class: &GatewayClass) -> bool {
    class.metadata.finalizers.iter().flatten().any(|it| it == FINALIZER)
}

/// The next write.
pub(super) fn next_step(class: &GatewayClass, desired: &DesiredClass, now: Timestamp) -> WriteStep {
    let nothing = GatewayClassStatus::default();
    let status = class.status.as_ref().unwrap_or(&nothing);
    let is_deleted = class.metadata.deletion_timestamp.is_some();
    if is_deleted && !desired.in_use {
        return finalizer_step(class, desired.in_use, is_deleted);
    }
    let conditions = ConditionList {
        before: &status.conditions,
        desired: std::slice::from_ref(&desired.accepted),
        generation: desired.generation,
    };
    let has = |name: &&str| status.supported_features.iter().any(|it| it.name == **name);
    if !conditions.stands() || !SUPPORTED_FEATURES.iter().all(has) {
        let status = json!({"conditions": conditions.written(now), "supportedFeatures": features()});
        return WriteStep::ApplyStatus(apply::<GatewayClass>(&class.metadata, &status));
    }
    if status.supported_features.len() > SUPPORTED_FEATURES.len() {
        let status = json!({"supportedFeatures": features()});
        return WriteStep::RemoveRest(merge(&class.metadata, &status));
    }
    finalizer_step(class, desired.in_use, is_deleted)
}

fn features() -> Vec<SupportedFeature> {
    SUPPORTED_FEATURES.iter().map(|name| SupportedFeature { name: (*name).to_owned() }).collect()
}

/// The write that sets or removes the finalizer. A class that is being deleted can get no new one.
fn finalizer_step(class: &GatewayClass, in_use: bool, is_deleted: bool) -> WriteStep {
    let finalizers = class.metadata.finalizers.as_deref().unwrap_or_default();
    let body = |finalizers: &[&str]| {
        json!({"metadata": {
            "uid": class.metadata.uid,
            "resourceVersion": class.metadata.resource_version,
            "finalizers": finalizers,
        }})
    };
    let mut held: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    match (held.contains(&FINALIZER), in_use) {
        (false, true) if !is_deleted => {
            held.push(FINALIZER);
            WriteStep::AddFinalizer(body(&held))
        }
        (true, false) => {
            held.retain(|it| *it != FINALIZER);
            WriteStep::RemoveFinalizer(body(&held))
        }
        _ => WriteStep::Nothing,
    }
}
