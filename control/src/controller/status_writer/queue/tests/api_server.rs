//! Model of an API server with one Service: versions, finalizers, deletion, and the owners of the status fields. It answers like
//! the real API server whose answers were recorded.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::api::names::FINALIZER;
use crate::controller::api_writer::{ApiAnswer, Conflict};
use crate::controller::status_writer::next_step::WriteStep;
use crate::controller::status_writer::queue::WriteJob;
use crate::controller::tests::objects;

const OURS: &str = "sheave";

pub(super) struct ModelServer {
    pub(super) object: Option<Value>,
    /// Everything that a watch has received; `None` is a deletion.
    pub(super) history: Vec<Option<Service>>,
    /// Managers by field: `ingress`, or a condition's type. We apply fields; others write them directly.
    owners: BTreeMap<String, BTreeSet<String>>,
    version: u64,
    uids: u32,
    /// Number of writes that changed something.
    pub(super) changes: usize,
    /// Whether others removed our finalizer and it was not restored. Then our other marks on the object need not be cleaned up.
    pub(super) stripped: bool,
}

impl ModelServer {
    pub(super) fn new() -> Self {
        let mut server = Self {
            object: None,
            history: vec![None],
            owners: BTreeMap::new(),
            version: 100,
            uids: 0,
            changes: 0,
            stripped: false,
        };
        server.create();
        server
    }

    pub(super) fn create(&mut self) {
        if self.object.is_none() {
            self.uids += 1;
            let uid = format!("u{}", self.uids);
            self.owners.clear();
            self.stripped = false;
            self.object =
                Some(serde_json::to_value(objects::service(&json!({"metadata": {"uid": uid}}))).unwrap());
            self.bump();
        }
    }

    fn bump(&mut self) {
        self.version += 2;
        let version = self.version.to_string();
        let object = self.object.as_mut().unwrap();
        let finalizers = object["metadata"]["finalizers"].as_array();
        self.stripped &= !finalizers.is_some_and(|held| held.contains(&json!(FINALIZER)));
        object["metadata"]["resourceVersion"] = version.into();
        self.history.push(Some(serde_json::from_value(object.clone()).unwrap()));
    }

    /// Changes the object. A change without a difference has no effect.
    fn change(&mut self, change: impl FnOnce(&mut Value)) {
        let Some(object) = &mut self.object else { return };
        let before = object.clone();
        change(object);
        if *object == before {
            return;
        }
        let metadata = &object["metadata"];
        let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if !metadata["deletionTimestamp"].is_null() && !held {
            self.object = None;
            self.version += 2;
            self.history.push(None);
        } else {
            self.bump();
        }
    }

    /// A write of users and others.
    pub(super) fn merge(&mut self, patch: &Value) {
        self.change(|object| json_patch::merge(object, patch));
    }

    /// Users can also remove every finalizer.
    pub(super) fn strip(&mut self) {
        self.stripped = true;
        self.merge(&json!({"metadata": {"finalizers": null}}));
    }

    pub(super) fn delete(&mut self) {
        self.merge(&json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}}));
    }

    /// The API server itself removes the ingress when the type changes.
    pub(super) fn set_type(&mut self, kind: &str) {
        if self.kind() == Some("LoadBalancer") && kind != "LoadBalancer" {
            self.owners.remove("ingress");
            self.merge(&json!({"spec": {"type": kind}, "status": {"loadBalancer": null}}));
        } else {
            self.merge(&json!({"spec": {"type": kind}}));
        }
    }

    pub(super) fn kind(&self) -> Option<&str> {
        self.object.as_ref()?["spec"]["type"].as_str()
    }

    pub(super) fn uid(&self) -> Option<String> {
        Some(self.object.as_ref()?["metadata"]["uid"].to_string())
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.object.as_ref().is_none_or(|object| !object["metadata"]["deletionTimestamp"].is_null())
    }

    /// A direct write of a status field takes it from all other managers. Null removes it.
    pub(super) fn rival(&mut self, manager: &str, field: &str, value: &Value) {
        if field == "ingress" && self.kind() != Some("LoadBalancer") || self.object.is_none() {
            return;
        }
        if self.field(field) != *value {
            self.owners.insert(field.into(), BTreeSet::from([manager.to_owned()]));
        }
        if value.is_null() {
            self.owners.remove(field);
        }
        self.set_field(field, value);
    }

    pub(super) fn field(&self, field: &str) -> Value {
        let Some(object) = &self.object else { return Value::Null };
        let found = match field {
            "ingress" => Some(&object["status"]["loadBalancer"]["ingress"]),
            kind => {
                let conditions = object["status"]["conditions"].as_array();
                conditions.and_then(|conditions| conditions.iter().find(|said| said["type"] == *kind))
            }
        };
        found.cloned().unwrap_or_default()
    }

    pub(super) fn owns(&self, manager: &str, field: &str) -> bool {
        self.owners.get(field).is_some_and(|owners| owners.contains(manager))
    }

    fn set_field(&mut self, field: &str, value: &Value) {
        self.change(|object| match field {
            "ingress" => {
                // An empty list is not stored.
                let stored = if *value == json!([]) { Value::Null } else { value.clone() };
                json_patch::merge(object, &json!({"status": {"loadBalancer": {"ingress": stored}}}));
            }
            kind => {
                let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
                match conditions.iter_mut().find(|said| said["type"] == *kind) {
                    Some(said) if !value.is_null() => *said = value.clone(),
                    Some(_) => conditions.retain(|said| said["type"] != *kind),
                    None if !value.is_null() => conditions.push(value.clone()),
                    None => {}
                }
                let stored = if conditions.is_empty() { Value::Null } else { conditions.into() };
                json_patch::merge(object, &json!({"status": {"conditions": stored}}));
            }
        });
    }

    /// Executes one of our writes.
    pub(super) fn answer(&mut self, job: &WriteJob) -> ApiAnswer {
        let before = self.version;
        let answer = match &job.step {
            WriteStep::AddFinalizer(body) | WriteStep::RemoveFinalizer(body) => self.patch(body),
            WriteStep::ApplyStatus(body) | WriteStep::ClearStatus(body) => self.apply(body, job.force),
            WriteStep::RemoveRest(body) => self.set_conditions(body),
            WriteStep::Nothing | WriteStep::Export(_) | WriteStep::PatchParents { .. } => {
                panic!("no status was sent")
            }
        };
        self.changes += usize::from(self.version != before);
        answer
    }

    fn set_conditions(&mut self, body: &Value) -> ApiAnswer {
        let Some(object) = &self.object else { return ApiAnswer::Gone };
        let (seen, sent) = (&object["metadata"], &body["metadata"]);
        if seen["uid"] != sent["uid"] || seen["resourceVersion"] != sent["resourceVersion"] {
            return ApiAnswer::Stale;
        }
        let kept = fields(&body["status"]);
        for field in fields(&object["status"].clone()).keys() {
            if field != "ingress" && !kept.contains_key(field) {
                self.owners.remove(field);
                self.set_field(field, &Value::Null);
            }
        }
        ApiAnswer::Done(self.object.clone().unwrap().to_string().into_bytes())
    }

    fn patch(&mut self, body: &Value) -> ApiAnswer {
        let Some(object) = &self.object else { return ApiAnswer::Gone };
        let (seen, sent) = (&object["metadata"], &body["metadata"]);
        if seen["uid"] != sent["uid"] || seen["resourceVersion"] != sent["resourceVersion"] {
            return ApiAnswer::Stale;
        }
        let finalizers = sent["finalizers"].as_array().unwrap();
        let known = seen["finalizers"].as_array().cloned().unwrap_or_default();
        if !seen["deletionTimestamp"].is_null() && finalizers.iter().any(|new| !known.contains(new)) {
            return ApiAnswer::Refused(
                "no new finalizers can be added if the object is being deleted".into(),
            );
        }
        let stored = if finalizers.is_empty() { Value::Null } else { finalizers.clone().into() };
        let mut last = object.clone();
        json_patch::merge(&mut last, &json!({"metadata": {"finalizers": stored}}));
        self.merge(&json!({"metadata": {"finalizers": stored}}));
        // If the last finalizer of a deleted object is removed, the answer still has the previous version.
        ApiAnswer::Done(self.object.clone().unwrap_or(last).to_string().into_bytes())
    }

    fn apply(&mut self, body: &Value, force: bool) -> ApiAnswer {
        let Some(object) = &self.object else {
            return ApiAnswer::Refused("spec.ports: Required value".into());
        };
        let (seen, sent) = (&object["metadata"], &body["metadata"]);
        let names_a_version = !sent["resourceVersion"].is_null();
        if seen["uid"] != sent["uid"] || names_a_version && seen["resourceVersion"] != sent["resourceVersion"]
        {
            return ApiAnswer::Stale;
        }
        let wanted = fields(&body["status"]);
        let ingress = wanted.get("ingress").and_then(Value::as_array);
        if self.kind() != Some("LoadBalancer") && ingress.is_some_and(|ingress| !ingress.is_empty()) {
            return ApiAnswer::Refused("may only be used when `spec.type` is 'LoadBalancer'".into());
        }
        if let (Some(held), false) = (self.conflicts(&wanted), force) {
            return ApiAnswer::Conflict(held);
        }
        let ours: Vec<String> = self
            .owners
            .iter()
            .filter(|(_, owners)| owners.contains(OURS))
            .map(|(field, _)| field.clone())
            .collect();
        for field in ours.iter().filter(|field| !wanted.contains_key(*field)) {
            let owners = self.owners.get_mut(field).unwrap();
            owners.remove(OURS);
            if owners.is_empty() {
                self.owners.remove(field);
                self.set_field(field, &Value::Null);
            }
        }
        for (field, value) in &wanted {
            let owners = self.owners.entry(field.clone()).or_default();
            owners.insert(OURS.into());
            if !same(&self.field(field), value) {
                self.owners.insert(field.clone(), BTreeSet::from([OURS.to_owned()]));
                self.set_field(field, value);
            }
        }
        ApiAnswer::Done(self.object.clone().unwrap().to_string().into_bytes())
    }

    fn conflicts(&self, wanted: &BTreeMap<String, Value>) -> Option<Conflict> {
        let mut held = Conflict::default();
        for (field, value) in wanted {
            let owners = self.owners.get(field).into_iter().flatten().filter(|owner| *owner != OURS);
            let rivals: Vec<_> = owners.cloned().collect();
            if !rivals.is_empty() && !same(&self.field(field), value) {
                held.rivals.extend(rivals);
                held.fields.push(field.clone());
            }
        }
        (!held.rivals.is_empty()).then_some(held)
    }
}

fn same(stored: &Value, sent: &Value) -> bool {
    stored == sent || stored.is_null() && *sent == json!([])
}

fn fields(status: &Value) -> BTreeMap<String, Value> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.map(|said| (said["type"].as_str().unwrap().to_owned(), said.clone()));
    let ingress =
        status["loadBalancer"].get("ingress").map(|ingress| ("ingress".to_owned(), ingress.clone()));
    conditions.chain(ingress).collect()
}
