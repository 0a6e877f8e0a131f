//! What is there against what is to be there, and the next write that makes them agree. Pure. It must not know how writes are
//! sent, nor when.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use kube::core::DynamicObject;

use crate::api::store::ServiceKey;
use crate::controller::karmada_export::object::{ExportObject, is_ours};
use crate::controller::karmada_export::{DesiredExport, Export};

/// The next write for one MultiClusterService.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    /// It is not there. Creation, unlike apply, never takes over what somebody else has made meanwhile.
    Create(ExportObject, Export),
    /// It is ours, with this uid, and says something else.
    Apply(ExportObject, Export, String),
    /// It is ours, with this uid, and is to go.
    Delete(ExportObject, String),
    /// It cannot be had: what is there is not ours.
    Taken(ExportObject),
    /// What is there is going; it has to be looked at again.
    Wait,
    /// Nothing is to be done.
    Nothing,
}

/// An object of a name that ours has.
#[derive(Clone, Debug)]
enum Found {
    Ours(Box<DynamicObject>),
    /// Ours, and being deleted.
    Going,
    Theirs,
}

/// Wishes, and what is there.
#[derive(Debug, Default)]
pub(super) struct ExportDiff {
    wishes: BTreeMap<ServiceKey, DesiredExport>,
    found: BTreeMap<(ServiceKey, ExportObject), Found>,
    /// What may not agree.
    open: BTreeSet<ServiceKey>,
    /// The last that was passed over.
    passed: Option<ServiceKey>,
}

impl ExportDiff {
    /// Takes a wish.
    pub(super) fn set_desired(&mut self, key: ServiceKey, wish: DesiredExport) {
        if self.wishes.get(&key) != Some(&wish) {
            self.open.insert(key.clone());
            self.wishes.insert(key, wish);
        }
    }

    /// The MultiClusterService has gone, and with it what was wished, once that is done.
    pub(super) fn forget(&mut self, key: ServiceKey) {
        if self.wishes.contains_key(&key) {
            self.set_desired(key, DesiredExport::Nothing);
        }
    }

    /// Whether nothing is wished.
    pub(super) fn is_empty(&self) -> bool {
        self.wishes.is_empty()
    }

    /// Takes all that is there of both kinds; everything is compared again.
    pub(super) fn replace(&mut self, all: Vec<(ExportObject, DynamicObject)>, manager: &str) {
        self.found.clear();
        for (part, object) in all {
            self.put(part, object, manager);
        }
        self.open.extend(self.wishes.keys().cloned());
    }

    /// Takes an object as it is now.
    pub(super) fn put(&mut self, part: ExportObject, object: DynamicObject, manager: &str) {
        let Some(key) = part.key(&object) else { return };
        let found = if !is_ours(&object, manager) {
            Found::Theirs
        } else if object.metadata.deletion_timestamp.is_some() {
            Found::Going
        } else {
            Found::Ours(Box::new(object))
        };
        self.found.insert((key, part), found);
    }

    /// It was deleted, or is about to be.
    pub(super) fn remove(&mut self, key: &ServiceKey, part: ExportObject) {
        self.found.remove(&(key.clone(), part));
    }

    /// One that may not agree: the same until it is closed or passed over.
    pub(super) fn next(&self) -> Option<&ServiceKey> {
        let later = self.passed.as_ref().and_then(|it| self.open.range((Excluded(it), Unbounded)).next());
        later.or_else(|| self.open.first())
    }

    /// Has it wait for the others, which must not wait for one that always fails.
    pub(super) fn pass(&mut self, key: &ServiceKey) {
        self.passed = Some(key.clone());
    }

    /// Nothing more can be done for it until something changes.
    pub(super) fn close(&mut self, key: &ServiceKey) {
        self.open.remove(key);
        if self.wishes.get(key) == Some(&DesiredExport::Nothing) {
            self.wishes.remove(key);
        }
    }

    /// What is to be done for one.
    pub(super) fn step(&self, key: &ServiceKey) -> Step {
        let found = |part| self.found.get(&(key.clone(), part));
        match self.wishes.get(key) {
            None | Some(DesiredExport::AsIs) => Step::Nothing,
            Some(DesiredExport::Nothing) => self.removal(key, &ExportObject::ALL),
            // Whoever exports the Service brings the export to the clusters as well.
            Some(DesiredExport::Kept(_)) if matches!(found(ExportObject::Export), Some(Found::Theirs)) => {
                self.removal(key, &[ExportObject::Policy])
            }
            Some(DesiredExport::Kept(export)) => {
                let policy = match found(ExportObject::Policy) {
                    Some(Found::Ours(policy)) => Some(&**policy),
                    _ => None,
                };
                let export = &export.settled(policy);
                let steps = ExportObject::ALL.into_iter().map(|part| match found(part) {
                    None => Step::Create(part, export.clone()),
                    Some(Found::Theirs) => Step::Taken(part),
                    Some(Found::Going) => Step::Wait,
                    Some(Found::Ours(object)) if part.says(object, key, export) => Step::Nothing,
                    Some(Found::Ours(object)) => Step::Apply(part, export.clone(), uid(object)),
                });
                first(steps)
            }
        }
    }

    fn removal(&self, key: &ServiceKey, parts: &[ExportObject]) -> Step {
        first(parts.iter().map(|part| match self.found.get(&(key.clone(), *part)) {
            Some(Found::Ours(object)) => Step::Delete(*part, uid(object)),
            _ => Step::Nothing,
        }))
    }
}

fn first(mut steps: impl Iterator<Item = Step>) -> Step {
    steps.find(|step| *step != Step::Nothing).unwrap_or(Step::Nothing)
}

fn uid(object: &DynamicObject) -> String {
    object.metadata.uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    const MANAGER: &str = "sheave";

    fn key() -> ServiceKey {
        ServiceKey::multi_cluster("shop", "web")
    }

    fn export(clusters: &[&str]) -> Export {
        let clusters: BTreeSet<_> = clusters.iter().map(|name| (*name).into()).collect();
        Export { owner_uid: "u1".into(), clusters, ..Export::default() }
    }

    fn stored(part: ExportObject, export: &Export, metadata: &[(&str, Value)]) -> DynamicObject {
        let mut body = part.body(&key(), export, MANAGER);
        body["metadata"]["uid"] = json!(format!("of-{part:?}"));
        for (field, value) in metadata {
            body["metadata"][*field] = value.clone();
        }
        serde_json::from_value(body).unwrap()
    }

    fn ledger(wish: DesiredExport, all: Vec<(ExportObject, DynamicObject)>) -> ExportDiff {
        let mut ledger = ExportDiff::default();
        ledger.set_desired(key(), wish);
        ledger.replace(all, MANAGER);
        ledger
    }

    fn both(export: &Export) -> Vec<(ExportObject, DynamicObject)> {
        ExportObject::ALL.map(|part| (part, stored(part, export, &[]))).to_vec()
    }

    #[test]
    fn both_are_made_one_after_the_other_and_then_there_is_rest() {
        let wanted = export(&["a"]);
        let mut ledger = ledger(DesiredExport::Kept(wanted.clone()), Vec::new());
        for part in ExportObject::ALL {
            assert_eq!(ledger.step(&key()), Step::Create(part, wanted.clone()));
            ledger.put(part, stored(part, &wanted, &[]), MANAGER);
        }
        assert_eq!(ledger.step(&key()), Step::Nothing);
        ledger.close(&key());
        ledger.set_desired(key(), DesiredExport::Kept(wanted));
        assert_eq!(ledger.next(), None, "the same wish again opens nothing");
        ledger.set_desired(key(), DesiredExport::Kept(export(&["b"])));
        let uid = "of-Policy".to_owned();
        assert_eq!(ledger.step(&key()), Step::Apply(ExportObject::Policy, export(&["b"]), uid));
    }

    #[test]
    fn a_list_of_apis_that_is_not_whole_takes_nothing_away() {
        let b: BTreeSet<String> = ["b".to_owned()].into();
        let unsure = Export { unsure: b.clone(), ..export(&["a"]) };
        let ledger_of = |there: &Export| ledger(DesiredExport::Kept(unsure.clone()), both(there));
        assert_eq!(ledger_of(&export(&["a", "b"])).step(&key()), Step::Nothing);
        assert_eq!(ledger_of(&export(&["a"])).step(&key()), Step::Nothing);
        let gone = Export { waiting: b, ..export(&["a"]) };
        let ledger = ledger(DesiredExport::Kept(gone.clone()), both(&export(&["a", "b"])));
        assert_eq!(ledger.step(&key()), Step::Apply(ExportObject::Policy, gone, "of-Policy".to_owned()));
    }

    #[test]
    fn all_of_ours_goes_when_nothing_is_wanted_and_nothing_of_others() {
        let mut ledger = ledger(DesiredExport::Nothing, both(&export(&[])));
        for part in ExportObject::ALL {
            assert_eq!(ledger.step(&key()), Step::Delete(part, format!("of-{part:?}")));
            ledger.remove(&key(), part);
        }
        assert_eq!(ledger.step(&key()), Step::Nothing);
        let theirs =
            ExportObject::ALL.map(|part| (part, stored(part, &export(&[]), &[("labels", json!({}))])));
        ledger.replace(theirs.to_vec(), MANAGER);
        assert_eq!(ledger.step(&key()), Step::Nothing);
    }

    #[test]
    fn an_export_of_the_user_is_left_alone_and_gets_no_policy_of_ours() {
        let wanted = export(&["a"]);
        let theirs = stored(ExportObject::Export, &wanted, &[("labels", json!({}))]);
        let policy = stored(ExportObject::Policy, &wanted, &[]);
        let mut ledger = ledger(
            DesiredExport::Kept(wanted),
            vec![(ExportObject::Export, theirs), (ExportObject::Policy, policy)],
        );
        assert_eq!(ledger.step(&key()), Step::Delete(ExportObject::Policy, "of-Policy".to_owned()));
        ledger.remove(&key(), ExportObject::Policy);
        assert_eq!(ledger.step(&key()), Step::Nothing);
    }

    #[test]
    fn a_policy_of_others_is_never_touched() {
        let wanted = export(&["a"]);
        let other = stored(
            ExportObject::Policy,
            &export(&[]),
            &[("labels", json!({"sheave.dev/managed-by": "other"}))],
        );
        let ledger = ledger(
            DesiredExport::Kept(wanted.clone()),
            vec![
                (ExportObject::Export, stored(ExportObject::Export, &wanted, &[])),
                (ExportObject::Policy, other),
            ],
        );
        assert_eq!(ledger.step(&key()), Step::Taken(ExportObject::Policy));
    }

    #[test]
    fn one_that_is_going_is_waited_for_before_it_is_made_again() {
        let wanted = export(&[]);
        let going =
            stored(ExportObject::Export, &wanted, &[("deletionTimestamp", json!("2026-01-01T00:00:00Z"))]);
        let mut ledger = ledger(DesiredExport::Kept(wanted), vec![(ExportObject::Export, going)]);
        assert_eq!(ledger.step(&key()), Step::Wait);
        ledger.forget(key());
        assert_eq!(ledger.step(&key()), Step::Nothing, "it goes by itself");
    }

    #[test]
    fn one_that_always_fails_holds_nobody_up() {
        let mut ledger = ExportDiff::default();
        let keys = ["a", "b"].map(|name| ServiceKey::multi_cluster("shop", name));
        for key in &keys {
            ledger.set_desired(key.clone(), DesiredExport::Kept(export(&[])));
        }
        assert_eq!(ledger.next(), Some(&keys[0]));
        ledger.pass(&keys[0]);
        assert_eq!(ledger.next(), Some(&keys[1]));
        ledger.close(&keys[1]);
        assert_eq!(ledger.next(), Some(&keys[0]));
    }

    #[test]
    fn nothing_is_made_or_deleted_while_the_service_is_away() {
        assert_eq!(ledger(DesiredExport::AsIs, Vec::new()).step(&key()), Step::Nothing);
        assert_eq!(ledger(DesiredExport::AsIs, both(&export(&[]))).step(&key()), Step::Nothing);
        let mut never = ExportDiff::default();
        never.forget(key());
        assert!(never.is_empty());
    }
}
