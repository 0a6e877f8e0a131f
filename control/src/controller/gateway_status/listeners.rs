//! `status.listeners` of a Gateway or ListenerSet.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::condition_list::{ConditionList, more_urgent};
use crate::api::gateway_api::{GROUP, ListenerStatus, RouteGroupKind};
use crate::controller::status_writer::next_step::Urgency;
use crate::projection::gateway_api::conditions::ListenerConditions;

/// The entries of a status, and the desired ones.
#[derive(Clone, Copy)]
pub(super) struct ListenerList<'a> {
    pub(super) before: &'a [ListenerStatus],
    pub(super) desired: &'a [ListenerConditions],
    pub(super) generation: Option<i64>,
}

impl<'a> ListenerList<'a> {
    /// The entries to write.
    pub(super) fn written(self, now: Timestamp) -> Vec<Value> {
        let entry = |desired: &ListenerConditions| {
            json!({
                "name": desired.name,
                "supportedKinds": kinds(desired),
                "attachedRoutes": count(desired),
                "conditions": self.conditions(desired).written(now),
            })
        };
        self.desired.iter().map(entry).collect()
    }

    /// Whether the entries of all desired listeners are as desired, apart from the times.
    pub(super) fn stands(self) -> bool {
        self.desired.iter().all(|desired| {
            self.entry(desired).is_some_and(|entry| has_fields(entry, desired))
                && self.conditions(desired).stands()
        })
    }

    /// Whether there is an entry of a listener that the spec does not have.
    pub(super) fn has_outlived(self) -> bool {
        self.before.iter().any(|entry| !self.is_desired(entry))
    }

    /// The entries without those of listeners that the spec does not have.
    pub(super) fn without_outlived(self) -> Vec<&'a ListenerStatus> {
        self.before.iter().filter(|entry| self.is_desired(entry)).collect()
    }

    /// When the entries have to be written.
    pub(super) fn urgency(self) -> Urgency {
        let urgency = |desired: &ListenerConditions| {
            let conditions = self.conditions(desired);
            match self.entry(desired) {
                None => Urgency::Now,
                Some(entry) if !has_fields(entry, desired) => {
                    more_urgent(Urgency::Status, conditions.urgency())
                }
                Some(_) if conditions.stands() => Urgency::Settled,
                Some(_) => conditions.urgency(),
            }
        };
        self.desired.iter().map(urgency).fold(Urgency::Settled, more_urgent)
    }

    fn is_desired(self, entry: &ListenerStatus) -> bool {
        self.desired.iter().any(|it| it.name == entry.name)
    }

    fn entry(self, desired: &ListenerConditions) -> Option<&'a ListenerStatus> {
        self.before.iter().find(|entry| entry.name == desired.name)
    }

    fn conditions(self, desired: &'a ListenerConditions) -> ConditionList<'a> {
        let before = self.entry(desired).map(|entry| entry.conditions.as_slice()).unwrap_or_default();
        ConditionList { before, desired: &desired.conditions, generation: self.generation }
    }
}

fn has_fields(entry: &ListenerStatus, desired: &ListenerConditions) -> bool {
    entry.supported_kinds == kinds(desired) && entry.attached_routes == count(desired)
}

fn kinds(desired: &ListenerConditions) -> Vec<RouteGroupKind> {
    let kind = |name: &str| RouteGroupKind { group: Some(GROUP.to_owned()), kind: name.to_owned() };
    desired.supported_kinds.iter().map(|it| kind(it.name())).collect()
}

fn count(desired: &ListenerConditions) -> i32 {
    i32::try_from(desired.attached_routes).unwrap_or(i32::MAX)
}
