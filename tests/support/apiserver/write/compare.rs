//! Comparison of objects by fields, after structured-merge-diff `typed/compare.go`.

use std::collections::HashMap;

use serde_json::Value;

use super::fields::{FieldSet, field_step, key_step, value_step};
use super::schema::{ListKind, Schema};

/// Changes from one object to the next.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Fields that are new or have a different value.
    pub changed: FieldSet,
    pub removed: FieldSet,
}

/// Compares two objects of the same kind.
pub(super) fn compare(schema: &Schema, before: &Value, after: &Value) -> Comparison {
    let mut walk = Walk { path: Vec::new(), found: Comparison::default() };
    walk.visit(schema, Some(before), Some(after));
    walk.found
}

/// Elements of a merged list by their step. A duplicated step has several.
pub(super) fn by_step<'a>(kind: &ListKind, items: &'a [Value]) -> Vec<(String, Vec<&'a Value>)> {
    let mut found: Vec<(String, Vec<&Value>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for item in items {
        let step = step_of(kind, item);
        let place = *places.entry(step.clone()).or_insert_with(|| {
            found.push((step, Vec::new()));
            found.len() - 1
        });
        found[place].1.push(item);
    }
    found
}

/// Step to an element of a merged list.
pub(super) fn step_of(kind: &ListKind, item: &Value) -> String {
    match kind {
        ListKind::Keyed { keys, .. } => key_step(keys, item),
        ListKind::Atomic | ListKind::Set => value_step(item),
    }
}

struct Walk {
    path: Vec<String>,
    found: Comparison,
}

impl Walk {
    /// Compares both sides, whose parents are at `path`.
    fn visit(&mut self, schema: &Schema, before: Option<&Value>, after: Option<&Value>) {
        if before.is_none() && after.is_none() {
            return;
        }
        let leaf = match schema {
            Schema::List(items, kind) => self.list(items, kind, before, after),
            Schema::Struct(known) if known.atomic => true,
            Schema::Map { atomic: true, .. } => true,
            Schema::Struct(_) | Schema::Map { .. } => self.object(schema, before, after),
            Schema::Opaque if [before, after].into_iter().flatten().any(Value::is_object) => {
                self.object(schema, before, after)
            }
            _ => true,
        };
        match (before, after) {
            (None, Some(_)) => self.found.changed.insert(&self.path),
            (Some(_), None) => self.found.removed.insert(&self.path),
            (Some(before), Some(after)) if leaf && before != after => self.found.changed.insert(&self.path),
            _ => {}
        }
    }

    fn below(&mut self, step: String, schema: &Schema, before: Option<&Value>, after: Option<&Value>) {
        self.path.push(step);
        self.visit(schema, before, after);
        self.path.pop();
    }

    fn object(&mut self, schema: &Schema, before: Option<&Value>, after: Option<&Value>) -> bool {
        let none = serde_json::Map::new();
        let [before, after] = [before, after].map(|side| side.and_then(Value::as_object).unwrap_or(&none));
        if before.is_empty() && after.is_empty() {
            return true;
        }
        let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            if let Some(member) = schema.member(name) {
                self.below(field_step(name), member, before.get(name), after.get(name));
            }
        }
        false
    }

    fn list(
        &mut self,
        items: &Schema,
        kind: &ListKind,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> bool {
        let [before, after] =
            [before, after].map(|side| side.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default());
        if matches!(kind, ListKind::Atomic) || before.is_empty() && after.is_empty() {
            return true;
        }
        let (before, after) = (by_step(kind, before), by_step(kind, after));
        let of = |side: &[(String, Vec<&Value>)], step: &str| -> Vec<Value> {
            side.iter()
                .find(|(other, _)| other == step)
                .map(|(_, found)| found.iter().map(|value| (*value).clone()).collect())
                .unwrap_or_default()
        };
        let mut steps: Vec<&String> = before.iter().chain(&after).map(|(step, _)| step).collect();
        steps.sort_unstable();
        steps.dedup();
        for step in steps {
            self.elements(step, items, &of(&before, step), &of(&after, step));
        }
        false
    }

    /// Compares elements with the same step. Duplicates are compared as a whole, since parts of them cannot
    /// be owned.
    fn elements(&mut self, step: &str, items: &Schema, before: &[Value], after: &[Value]) {
        let place = [self.path.as_slice(), &[step.to_owned()]].concat();
        match (before, after) {
            ([] | [_], [] | [_]) => self.below(step.to_owned(), items, before.first(), after.first()),
            ([_, _, ..], [_, _, ..]) => {
                if before != after {
                    self.found.changed.insert(&place);
                }
            }
            ([_, _, ..], _) => {
                if let Some(left) = after.first() {
                    self.below(step.to_owned(), items, None, Some(left));
                }
                self.found.removed.insert(&place);
            }
            (_, _) => {
                if let Some(old) = before.first() {
                    self.below(step.to_owned(), items, Some(old), None);
                }
                self.found.changed.insert(&place);
            }
        }
    }
}
