//! Status of a ListenerSet.

use jiff::Timestamp;
use serde_json::json;

use super::condition_list::{ConditionList, more_urgent};
use super::listeners::ListenerList;
use super::{apply, merge};
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{ListenerSet, ListenerSetStatus};
use crate::controller::status_writer::next_step::{Urgency, WriteStep};
use crate::projection::gateway_api::conditions::ListenerConditions;

/// The desired status of a ListenerSet.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredListenerSet {
    /// Generation that it was computed from.
    pub(super) generation: Option<i64>,
    conditions: Vec<DesiredCondition>,
    listeners: Vec<ListenerConditions>,
}

impl DesiredListenerSet {
    /// The desired status of a ListenerSet that names a Gateway of this installation.
    pub fn new(
        set: &ListenerSet,
        conditions: Vec<DesiredCondition>,
        listeners: Vec<ListenerConditions>,
    ) -> Self {
        Self { generation: set.metadata.generation, conditions, listeners }
    }

    fn conditions<'a>(&'a self, status: &'a ListenerSetStatus) -> ConditionList<'a> {
        ConditionList { before: &status.conditions, desired: &self.conditions, generation: self.generation }
    }

    fn listeners<'a>(&'a self, status: &'a ListenerSetStatus) -> ListenerList<'a> {
        ListenerList { before: &status.listeners, desired: &self.listeners, generation: self.generation }
    }
}

/// The next write. Only the API server knows which manager wrote a status without marks of ours, so a release may change nothing.
pub(super) fn next_step(
    set: &ListenerSet,
    desired: Option<&DesiredListenerSet>,
    cleared: bool,
    now: Timestamp,
) -> WriteStep {
    let metadata = &set.metadata;
    let nothing = ListenerSetStatus::default();
    let before = set.status.as_ref().unwrap_or(&nothing);
    let Some(desired) = desired.filter(|_| metadata.deletion_timestamp.is_none()) else {
        if cleared || *before == nothing {
            return WriteStep::Nothing;
        }
        return WriteStep::ClearStatus(apply::<ListenerSet>(metadata, &json!({})));
    };
    let (conditions, listeners) = (desired.conditions(before), desired.listeners(before));
    if !conditions.stands() || !listeners.stands() {
        let status = json!({"conditions": conditions.written(now), "listeners": listeners.written(now)});
        return WriteStep::ApplyStatus(apply::<ListenerSet>(metadata, &status));
    }
    if listeners.has_outlived() {
        let status = json!({"listeners": listeners.without_outlived()});
        return WriteStep::RemoveRest(merge(metadata, &status));
    }
    WriteStep::Nothing
}

/// When a status is due that differs from the object's.
pub(super) fn urgency(set: &ListenerSet, desired: &DesiredListenerSet) -> Urgency {
    let nothing = ListenerSetStatus::default();
    let before = set.status.as_ref().unwrap_or(&nothing);
    let conditions = desired.conditions(before);
    let conditions = if conditions.stands() { Urgency::Settled } else { conditions.urgency() };
    more_urgent(conditions, desired.listeners(before).urgency())
}
