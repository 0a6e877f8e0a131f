//! `status.parents` of a route: one list with the entries of every controller that implements one of the route's parents.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::condition_list::{ConditionList, more_urgent};
use super::merge;
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{GROUP, ParentReference};
use crate::api::routes::AnyRoute;
use crate::controller::status_writer::next_step::{Urgency, WriteStep};
use crate::projection::gateway_api::outcome::RouteParent;

/// The desired entries of this installation in a route's `status.parents`.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredParents {
    /// Generation that they were computed from.
    pub(super) generation: Option<i64>,
    /// `controllerName` of our entries.
    controller: Arc<str>,
    /// In the order of the spec; empty if the route names no Gateway of ours.
    parents: Vec<(ParentReference, Vec<DesiredCondition>)>,
}

impl DesiredParents {
    /// The desired entries of a route. A parentRef that the spec repeats has one entry.
    pub fn new<'p>(
        route: &AnyRoute,
        controller: &Arc<str>,
        parents: impl IntoIterator<Item = &'p RouteParent>,
    ) -> Self {
        let mut desired: Vec<(ParentReference, Vec<DesiredCondition>)> = Vec::new();
        for parent in parents {
            if !desired.iter().any(|(known, _)| is_same(known, &parent.reference)) {
                desired.push((parent.reference.clone(), parent.conditions().cloned().collect()));
            }
        }
        let generation = route.metadata().generation;
        Self { generation, controller: Arc::clone(controller), parents: desired }
    }

    /// Whether the route has an entry of ours for a parent in its spec for which there is no desired one.
    pub fn drops_any(&self, route: &AnyRoute, may_keep: impl Fn(&ParentReference) -> bool) -> bool {
        let dropped = entries(route).iter().filter(|entry| self.is_ours(entry)).filter_map(parent_ref);
        let mut dropped = dropped.filter(|it| !self.parents.iter().any(|(known, _)| is_same(known, it)));
        dropped.any(|it| route.spec().parent_refs.iter().any(|named| is_same(named, &it)) && may_keep(&it))
    }

    /// The list with our desired entries. Entries of others stay unchanged and in their order, ours are updated where they are, new
    /// ones follow at the end, and ours without a parentRef in the spec go, as do repeated ones.
    fn merged(&self, before: &[Value], now: Timestamp) -> Vec<Value> {
        let mut merged: Vec<Value> = Vec::with_capacity(before.len());
        let mut open: Vec<_> = self.parents.iter().collect();
        for entry in before {
            if !self.is_ours(entry) {
                merged.push(entry.clone());
                continue;
            }
            let Some(reference) = parent_ref(entry) else { continue };
            if let Some(at) = open.iter().position(|(known, _)| is_same(known, &reference)) {
                let (known, desired) = open.remove(at);
                merged.push(self.updated(entry, known, desired, now));
            }
        }
        merged.extend(open.into_iter().map(|(known, desired)| self.entry(known, desired, &[], now)));
        merged
    }

    /// Our entry with the desired conditions; the same one if it has them.
    fn updated(
        &self,
        entry: &Value,
        reference: &ParentReference,
        desired: &[DesiredCondition],
        now: Timestamp,
    ) -> Value {
        let before = conditions(entry);
        if self.stands(&before, desired) {
            entry.clone()
        } else {
            self.entry(reference, desired, &before, now)
        }
    }

    fn entry(
        &self,
        reference: &ParentReference,
        desired: &[DesiredCondition],
        before: &[Condition],
        now: Timestamp,
    ) -> Value {
        json!({
            "parentRef": reference,
            "controllerName": &*self.controller,
            "conditions": self.list(before, desired).written(now),
        })
    }

    fn stands(&self, before: &[Condition], desired: &[DesiredCondition]) -> bool {
        let known = |it: &Condition| desired.iter().any(|desired| desired.kind == it.type_);
        before.iter().all(known) && self.list(before, desired).stands()
    }

    fn list<'a>(&self, before: &'a [Condition], desired: &'a [DesiredCondition]) -> ConditionList<'a> {
        ConditionList { before, desired, generation: self.generation }
    }

    fn is_ours(&self, entry: &Value) -> bool {
        entry["controllerName"] == *self.controller
    }
}

/// The next write: a merge patch of the whole list, for the version that it was computed from.
pub(super) fn next_step(route: &AnyRoute, desired: &DesiredParents, now: Timestamp) -> WriteStep {
    let metadata = route.metadata();
    let before = entries(route);
    let merged = desired.merged(before, now);
    if metadata.deletion_timestamp.is_some() || merged == before {
        return WriteStep::Nothing;
    }
    let ours = merged.iter().filter(|entry| desired.is_ours(entry)).cloned().collect();
    WriteStep::PatchParents { body: merge(metadata, &json!({"parents": merged})), ours }
}

/// When a list is due that differs from the object's.
pub(super) fn urgency(route: &AnyRoute, desired: &DesiredParents) -> Urgency {
    let ours: Vec<&Value> = entries(route).iter().filter(|entry| desired.is_ours(entry)).collect();
    if ours.len() != desired.parents.len() {
        return Urgency::Now;
    }
    let urgency = |(reference, wanted): &(ParentReference, Vec<DesiredCondition>)| {
        let entry = ours.iter().find(|it| parent_ref(it).is_some_and(|known| is_same(&known, reference)));
        let Some(entry) = entry else { return Urgency::Now };
        let before = conditions(entry);
        if before.len() != wanted.len() {
            return Urgency::Status;
        }
        if desired.stands(&before, wanted) {
            Urgency::Settled
        } else {
            desired.list(&before, wanted).urgency()
        }
    };
    // Nothing in these lists has to settle.
    more_urgent(Urgency::Minor, desired.parents.iter().map(urgency).fold(Urgency::Settled, more_urgent))
}

fn entries(route: &AnyRoute) -> &[Value] {
    route.status().map(|status| status.parents.as_slice()).unwrap_or_default()
}

fn parent_ref(entry: &Value) -> Option<ParentReference> {
    serde_json::from_value(entry["parentRef"].clone()).ok()
}

/// The conditions of an entry; none if they cannot be read.
fn conditions(entry: &Value) -> Vec<Condition> {
    serde_json::from_value(entry["conditions"].clone()).unwrap_or_default()
}

/// Whether two parentRefs of one route are the same. API servers add the default group and kind.
fn is_same(one: &ParentReference, other: &ParentReference) -> bool {
    let with_defaults = |reference: &ParentReference| {
        let (group, kind) = (reference.group.clone(), reference.kind.clone());
        ParentReference {
            group: Some(group.unwrap_or_else(|| GROUP.to_owned())),
            kind: Some(kind.unwrap_or_else(|| "Gateway".to_owned())),
            ..reference.clone()
        }
    };
    with_defaults(one) == with_defaults(other)
}
