//! Model of an API server with one custom resource: versions, the owners of status fields, and the limits of lists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::controller::api_writer::ApiAnswer;
use crate::controller::status_writer::next_step::WriteStep;

/// Lists with a limit, by the last part of their path.
const LIMITS: [(&str, usize); 3] = [("conditions", 8), ("parents", 32), ("addresses", 16)];

/// One object, whose status fields are kept flat: `conditions/TYPE`, `listeners/NAME/conditions/TYPE`, `addresses`.
#[derive(Clone, Debug)]
pub(in crate::controller) struct ObjectServer {
    object: Value,
    status: BTreeMap<String, Value>,
    ours: BTreeSet<String>,
    others: BTreeSet<String>,
    version: u64,
    /// Number of writes of ours that changed something.
    pub(in crate::controller) changes: usize,
}

impl ObjectServer {
    /// A server with this object.
    pub(in crate::controller) fn new(mut object: Value) -> Self {
        let status = flat(&object["status"]);
        object.as_object_mut().unwrap().remove("status");
        let others = status.keys().cloned().collect();
        Self { object, status, ours: BTreeSet::new(), others, version: 100, changes: 0 }
    }

    /// The object as a watch delivers it.
    pub(in crate::controller) fn object(&self) -> Value {
        let mut object = self.object.clone();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if !self.status.is_empty() {
            object["status"] = nested(&self.status);
        }
        object
    }

    /// A change of the object by users. One of the spec has a new generation.
    pub(in crate::controller) fn change(&mut self, patch: &Value) {
        json_patch::merge(&mut self.object, patch);
        if patch.get("spec").is_some() {
            let generation = self.object["metadata"]["generation"].as_i64().unwrap_or_default();
            self.object["metadata"]["generation"] = (generation + 1).into();
        }
        self.version += 1;
    }

    /// A status field that another manager writes. Null removes it.
    pub(in crate::controller) fn rival(&mut self, path: &str, value: &Value) {
        self.ours.remove(path);
        if value.is_null() {
            self.others.remove(path);
            self.status.remove(path);
        } else {
            self.others.insert(path.to_owned());
            self.status.insert(path.to_owned(), value.clone());
        }
        self.version += 1;
    }

    /// A status field.
    pub(in crate::controller) fn field(&self, path: &str) -> Value {
        self.status.get(path).cloned().unwrap_or_default()
    }

    /// Paths of the status fields.
    pub(in crate::controller) fn paths(&self) -> Vec<&str> {
        self.status.keys().map(String::as_str).collect()
    }

    /// Executes a write.
    pub(in crate::controller) fn answer(&mut self, step: &WriteStep) -> ApiAnswer {
        let before = (self.object.clone(), self.status.clone());
        let answer = match step {
            WriteStep::ApplyStatus(body) | WriteStep::ClearStatus(body) => self.apply(body),
            WriteStep::RemoveRest(body) | WriteStep::PatchParents { body, .. } => self.merge(body),
            WriteStep::AddFinalizer(body) | WriteStep::RemoveFinalizer(body) => self.finalizers(body),
            WriteStep::Nothing | WriteStep::Export(_) => panic!("nothing was sent"),
        };
        let ApiAnswer::Done(_) = answer else {
            (self.object, self.status) = before;
            return answer;
        };
        if before != (self.object.clone(), self.status.clone()) {
            self.version += 1;
            self.changes += 1;
        }
        ApiAnswer::Done(self.object().to_string().into_bytes())
    }

    fn is_stale(&self, body: &Value) -> bool {
        let sent = &body["metadata"];
        sent["uid"] != self.object["metadata"]["uid"]
            || sent["resourceVersion"].as_str() != Some(self.version.to_string().as_str())
    }

    fn apply(&mut self, body: &Value) -> ApiAnswer {
        if self.is_stale(body) {
            return ApiAnswer::Stale;
        }
        let wanted = flat(&body["status"]);
        for path in std::mem::take(&mut self.ours) {
            if !wanted.contains_key(&path) && !self.others.contains(&path) {
                self.status.remove(&path);
            }
        }
        for (path, value) in wanted {
            if self.status.get(&path) != Some(&value) {
                self.others.remove(&path);
            }
            self.ours.insert(path.clone());
            self.status.insert(path, value);
        }
        self.checked()
    }

    fn merge(&mut self, body: &Value) -> ApiAnswer {
        if self.is_stale(body) {
            return ApiAnswer::Stale;
        }
        let mut status = nested(&self.status);
        json_patch::merge(&mut status, &body["status"]);
        self.status = flat(&status);
        for owned in [&mut self.ours, &mut self.others] {
            owned.retain(|path| self.status.contains_key(path));
        }
        self.checked()
    }

    fn finalizers(&mut self, body: &Value) -> ApiAnswer {
        if self.is_stale(body) {
            return ApiAnswer::Stale;
        }
        self.object["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
        ApiAnswer::Done(Vec::new())
    }

    fn checked(&self) -> ApiAnswer {
        let lists = lists(&nested(&self.status));
        let too_long =
            |(name, length): &(String, usize)| LIMITS.iter().any(|(it, most)| it == name && length > most);
        match lists.iter().find(|list| too_long(list)) {
            Some((name, length)) => ApiAnswer::Refused(format!("status.{name}: Too many: {length}")),
            None => ApiAnswer::Done(Vec::new()),
        }
    }
}

/// Names and lengths of all lists.
fn lists(value: &Value) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let Some(items) = value.as_array() else { continue };
        found.push((name.clone(), items.len()));
        found.extend(items.iter().flat_map(lists));
    }
    found
}

fn flat(status: &Value) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (name, value) in status.as_object().into_iter().flatten() {
        match name.as_str() {
            "conditions" => {
                let conditions =
                    by_key(value, "type").map(|(key, it)| (format!("conditions/{key}"), it.clone()));
                all.extend(conditions);
            }
            "listeners" => {
                for (key, listener) in by_key(value, "name") {
                    let fields =
                        flat(listener).into_iter().map(|(path, it)| (format!("listeners/{key}/{path}"), it));
                    all.extend(fields);
                }
            }
            _ => {
                all.insert(name.clone(), value.clone());
            }
        }
    }
    all
}

fn by_key<'a>(list: &'a Value, key: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    list.as_array().into_iter().flatten().map(move |it| (it[key].as_str().unwrap(), it))
}

fn nested(flat: &BTreeMap<String, Value>) -> Value {
    let mut status = json!({});
    let mut listeners: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    for (path, value) in flat {
        if let Some((name, rest)) = path.strip_prefix("listeners/").and_then(|rest| rest.split_once('/')) {
            listeners.entry(name).or_default().insert(rest.to_owned(), value.clone());
        } else if path.starts_with("conditions/") {
            let conditions = status.as_object_mut().unwrap().entry("conditions").or_insert(json!([]));
            conditions.as_array_mut().unwrap().push(value.clone());
        } else {
            status[path] = value.clone();
        }
    }
    if !listeners.is_empty() {
        status["listeners"] = listeners.values().map(nested).collect();
    }
    status
}
