//! Values in server-side apply: the fields of a configuration, and a live object merged with it or without some
//! fields. After structured-merge-diff `typed/{tofieldset,merge,remove,validate}.go`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::compare::step_of;
use super::fields::{FieldSet, field_step, told};
use super::schema::{ListKind, Schema};

/// Fields that a configuration sets.
pub(super) fn field_set(schema: &Schema, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(schema, value, &mut Vec::new(), &mut set);
    set
}

fn collect(schema: &Schema, value: &Value, path: &mut Vec<String>, set: &mut FieldSet) {
    match (schema, value) {
        (Schema::List(_, ListKind::Atomic) | Schema::Map { atomic: true, .. }, _) => set.insert(path),
        (Schema::Struct(known), _) if known.atomic => set.insert(path),
        (Schema::List(items, kind), Value::Array(given)) => {
            for item in given {
                path.push(step_of(kind, item));
                set.insert(path);
                if item.is_object() {
                    collect(items, item, path, set);
                }
                path.pop();
            }
        }
        (Schema::List(..), _) => {}
        (_, Value::Object(given)) => {
            for (name, value) in given {
                let Some(member) = schema.member(name) else { continue };
                path.push(field_step(name));
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || !schema.names(name) {
                    set.insert(path);
                }
                collect(member, value, path, set);
                path.pop();
            }
        }
        _ => set.insert(path),
    }
}

/// Validates an applied configuration: unknown fields, wrong types, and duplicate elements.
pub(super) fn check(schema: &Schema, value: &Value) -> Result<(), String> {
    check_at(schema, value, &mut Vec::new())
}

fn check_at(schema: &Schema, value: &Value, path: &mut Vec<String>) -> Result<(), String> {
    let wrong = |expected: &str| Err(format!("{}: expected {expected}, got {}", told(path), shown(value)));
    match (schema, value) {
        (_, Value::Null) | (Schema::Opaque, _) => Ok(()),
        (Schema::Text | Schema::Time | Schema::MicroTime, found) if !found.is_string() => wrong("string"),
        (Schema::Flag, found) if !found.is_boolean() => wrong("boolean"),
        (Schema::Int32 | Schema::Int64, found) if !found.is_number() => wrong("numeric (int or float)"),
        (Schema::List(items, kind), Value::Array(given)) => {
            let mut seen = BTreeSet::new();
            for item in given {
                let step = step_of(kind, item);
                if !matches!(kind, ListKind::Atomic) && !seen.insert(step.clone()) {
                    let key = told(&[step]);
                    return Err(format!("{}: duplicate entries for key {key}", told(path)));
                }
                path.push(step);
                check_at(items, item, path)?;
                path.pop();
            }
            Ok(())
        }
        (Schema::List(..), _) => wrong("list"),
        (Schema::Struct(_) | Schema::Map { .. }, Value::Object(given)) => {
            for (name, value) in given {
                path.push(field_step(name));
                let member = schema
                    .member(name)
                    .ok_or_else(|| format!("{}: field not declared in schema", told(path)))?;
                check_at(member, value, path)?;
                path.pop();
            }
            Ok(())
        }
        (Schema::Struct(_) | Schema::Map { .. }, _) => wrong("map"),
        _ => Ok(()),
    }
}

fn shown(value: &Value) -> String {
    format!("&{{{value}}}")
}

/// Merges a configuration into the live value.
pub(super) fn merge(schema: &Schema, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let (live, applied) = match (live, applied) {
        (live, None) => return live.cloned(),
        (None, Some(applied)) => return Some(applied.clone()),
        (Some(live), Some(applied)) => (live, applied),
    };
    Some(match (schema, live, applied) {
        (Schema::List(_, ListKind::Atomic) | Schema::Map { atomic: true, .. }, ..) => applied.clone(),
        (Schema::Struct(known), ..) if known.atomic => applied.clone(),
        (Schema::List(items, kind), Value::Array(live), Value::Array(applied)) => {
            Value::Array(merge_lists(items, kind, live, applied))
        }
        (
            Schema::Struct(_) | Schema::Map { .. } | Schema::Opaque,
            Value::Object(live),
            Value::Object(applied),
        ) => {
            let mut merged = live.clone();
            for (name, value) in applied {
                let member = schema.member(name).unwrap_or(&Schema::Opaque);
                if let Some(value) = merge(member, live.get(name), Some(value)) {
                    merged.insert(name.clone(), value);
                }
            }
            Value::Object(merged)
        }
        _ => applied.clone(),
    })
}

/// Merges keyed lists and sets. Shared elements have the order of the applied list; elements of the live list alone
/// keep their place.
fn merge_lists(items: &Schema, kind: &ListKind, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let steps = |list: &[Value]| -> Vec<String> { list.iter().map(|item| step_of(kind, item)).collect() };
    let (live_steps, applied_steps) = (steps(live), steps(applied));
    let at = |steps: &[String], step: &String| steps.iter().position(|other| other == step);
    let mut shared = applied_steps.iter().filter(|step| live_steps.contains(step));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&String> = BTreeSet::new();
    let mut merged = Vec::new();
    let (mut left, mut right) = (0, 0);
    while left < live.len() || right < applied.len() {
        if left < live.len() {
            let step = &live_steps[left];
            if right < applied.len() && *step != applied_steps[right] {
                let wanted_later =
                    applied_steps.contains(step) && next_shared.is_some_and(|next| next != step);
                if wanted_later {
                    left += 1;
                    continue;
                }
            }
            if !applied_steps.contains(step) {
                merged.push(live[left].clone());
                left += 1;
                continue;
            }
            if done.contains(step) || right < applied.len() && *step == applied_steps[right] {
                left += 1;
            }
        }
        if right < applied.len() {
            let step = &applied_steps[right];
            done.insert(step);
            let old = at(&live_steps, step).map(|place| &live[place]);
            merged.extend(merge(items, old, Some(&applied[right])));
            right += 1;
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
        }
    }
    merged
}

/// The value without the fields of a set. Lists and objects that become empty become null.
pub(super) fn without(schema: &Schema, value: &Value, set: &FieldSet) -> Value {
    match (schema, value) {
        (Schema::List(items, kind), Value::Array(given)) if !matches!(kind, ListKind::Atomic) => {
            let left: Vec<Value> = given
                .iter()
                .filter_map(|item| match set.children.get(&step_of(kind, item)) {
                    Some(child) if child.member => None,
                    Some(child) => Some(without(items, item, child)),
                    None => Some(item.clone()),
                })
                .collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (Schema::Struct(_) | Schema::Map { .. } | Schema::Opaque, Value::Object(given)) => {
            let mut left = Map::new();
            for (name, value) in given {
                match set.children.get(&field_step(name)) {
                    Some(child) if child.member => {}
                    Some(child) => {
                        let member = schema.member(name).unwrap_or(&Schema::Opaque);
                        left.insert(name.clone(), without(member, value, child));
                    }
                    None => drop(left.insert(name.clone(), value.clone())),
                }
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        _ => value.clone(),
    }
}

/// Adds every named field on the way to a member to the set, so that "owns `a.b`" includes "owns `a`".
pub(super) fn with_named_parents(schema: &Schema, set: &FieldSet) -> FieldSet {
    let mut widened = FieldSet { member: set.member, children: std::collections::BTreeMap::new() };
    for (step, child) in &set.children {
        let name = step.strip_prefix("f:");
        let below = match (schema, name) {
            (Schema::List(items, _), _) => items,
            (_, Some(name)) => schema.member(name).unwrap_or(&Schema::Opaque),
            (_, None) => &Schema::Opaque,
        };
        let mut child = with_named_parents(below, child);
        child.member |= name.is_some_and(|name| schema.names(name));
        widened.children.insert(step.clone(), child);
    }
    widened
}
