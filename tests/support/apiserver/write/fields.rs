//! Field sets in the format of `managedFields` (FieldsV1), after sigs.k8s.io/structured-merge-diff `fieldpath`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::schema::ListKey;

/// Set of paths, as a tree. Steps keep their stored form: `f:name`, `k:{"type":"Ready"}`, `v:"text"`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FieldSet {
    /// Whether the path that ends here is in the set.
    pub member: bool,
    pub children: BTreeMap<String, FieldSet>,
}

/// Step to a field.
pub(super) fn field_step(name: &str) -> String {
    format!("f:{name}")
}

/// Step to an element of a set.
pub(super) fn value_step(value: &Value) -> String {
    format!("v:{value}")
}

/// Step to an element of a keyed list. Missing keys count as their default.
pub(super) fn key_step(keys: &[ListKey], element: &Value) -> String {
    let found: BTreeMap<&str, &Value> = keys
        .iter()
        .filter_map(|key| {
            let value = element.get(&key.name).or(key.default.as_ref())?;
            Some((key.name.as_str(), value))
        })
        .collect();
    format!("k:{}", json!(found))
}

impl FieldSet {
    pub(super) fn insert(&mut self, path: &[String]) {
        let mut node = self;
        for step in path {
            node = node.children.entry(step.clone()).or_default();
        }
        node.member = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    pub(super) fn union(&mut self, other: &Self) {
        self.member |= other.member;
        for (step, child) in &other.children {
            self.children.entry(step.clone()).or_default().union(child);
        }
    }

    /// Removes the paths of another set, but not the paths below them.
    pub(super) fn difference(&mut self, other: &Self) {
        self.member &= !other.member;
        for (step, child) in &other.children {
            if let Some(mine) = self.children.get_mut(step) {
                mine.difference(child);
            }
        }
        self.children.retain(|_, child| !child.is_empty());
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .filter_map(|(step, child)| Some((step.clone(), child.intersection(other.children.get(step)?))))
            .filter(|(_, child)| !child.is_empty())
            .collect();
        Self { member: self.member && other.member, children }
    }

    /// Removes a path and everything below it.
    pub(super) fn prune(&mut self, path: &[&str]) {
        match path {
            [] => *self = Self::default(),
            [last] => drop(self.children.remove(*last)),
            [first, rest @ ..] => {
                if let Some(child) = self.children.get_mut(*first) {
                    child.prune(rest);
                    self.children.retain(|_, child| !child.is_empty());
                }
            }
        }
    }

    /// All paths in the set, in stored order.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        self.collect(&mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        if self.member {
            found.push(path.clone());
        }
        for (step, child) in &self.children {
            path.push(step.clone());
            child.collect(path, found);
            path.pop();
        }
    }

    /// Parses the stored form, and ignores values that are not objects.
    pub(super) fn from_json(stored: &Value) -> Self {
        let mut set = Self::default();
        for (step, below) in stored.as_object().into_iter().flatten() {
            if step == "." {
                set.member = true;
            } else {
                let mut child = Self::from_json(below);
                child.member |= child.children.is_empty();
                set.children.insert(step.clone(), child);
            }
        }
        set
    }

    /// Converts to the stored form.
    pub(super) fn to_json(&self) -> Value {
        let mut stored = Map::new();
        if self.member && !self.children.is_empty() {
            stored.insert(".".to_owned(), json!({}));
        }
        for (step, child) in &self.children {
            stored.insert(step.clone(), child.to_json());
        }
        Value::Object(stored)
    }
}

/// Path in the format of conflicts: `.status.conditions[type="Ready"].status`.
pub(super) fn told(path: &[String]) -> String {
    path.iter().map(|step| told_step(step)).collect()
}

fn told_step(step: &str) -> String {
    if let Some(name) = step.strip_prefix("f:") {
        return format!(".{name}");
    }
    if let Some(value) = step.strip_prefix("v:") {
        return format!("[={value}]");
    }
    let keys: BTreeMap<String, Value> =
        step.strip_prefix("k:").and_then(|keys| serde_json::from_str(keys).ok()).unwrap_or_default();
    let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("[{}]", keys.join(","))
}
