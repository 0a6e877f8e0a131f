//! Diff of existing and desired exports, and the next write. No I/O.

use std::collections::BTreeMap;

use kube::core::DynamicObject;

use super::desired::DesiredExport;
use super::object::{Export, ExportObject, is_ours};
use crate::api::store::ServiceKey;

/// The next write for one MultiClusterService.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ExportStep {
    /// Create the missing object. Unlike an apply, creation never takes over an object that others created in the meantime.
    Create(ExportObject, Export),
    /// Ours, with this uid, and different from the desired one.
    Apply(ExportObject, Export, String),
    /// Ours, with this uid, and not desired.
    Delete(ExportObject, String),
    /// The existing object with this name is not ours.
    Taken(ExportObject),
    /// The existing object is being deleted; list again later.
    Wait,
    /// The objects are as desired.
    Nothing,
}

/// An existing object with one of our names.
#[derive(Clone, Debug)]
enum FoundExport {
    Ours(Box<DynamicObject>),
    /// Ours and being deleted.
    Going,
    Theirs,
}

/// Desired and existing objects.
#[derive(Debug, Default)]
pub(in crate::controller) struct ExportDiff {
    desired: BTreeMap<ServiceKey, DesiredExport>,
    found: BTreeMap<(ServiceKey, ExportObject), FoundExport>,
    /// The term of Karmada's leader that exports must name; `None` while it is unknown.
    collector: Option<String>,
}

impl ExportDiff {
    /// Sets the desired export; returns whether it changed.
    pub(in crate::controller) fn set_desired(&mut self, key: &ServiceKey, desired: DesiredExport) -> bool {
        let differs = self.desired.get(key) != Some(&desired);
        if differs {
            self.desired.insert(key.clone(), desired);
        }
        differs
    }

    /// Marks the export of a deleted MultiClusterService as not desired; returns whether that is a change.
    pub(in crate::controller) fn forget(&mut self, key: &ServiceKey) -> bool {
        self.desired.contains_key(key) && self.set_desired(key, DesiredExport::Nothing)
    }

    /// Sets the term of Karmada's leader that exports must name; returns whether it changed.
    pub(in crate::controller) fn set_collector(&mut self, term: Option<&str>) -> bool {
        let differs = term.is_some() && self.collector.as_deref() != term;
        if differs {
            self.collector = term.map(ToOwned::to_owned);
        }
        differs
    }

    /// MultiClusterServices whose endpoints Karmada collects because of our export.
    pub(in crate::controller) fn exported(&self) -> impl Iterator<Item = &ServiceKey> {
        let ours = |key: &ServiceKey| {
            let export = self.found.get(&(key.clone(), ExportObject::Export));
            matches!(export, Some(FoundExport::Ours(_)))
        };
        self.desired.keys().filter(move |key| ours(key))
    }

    /// MultiClusterServices with a desired state.
    pub(in crate::controller) fn keys(&self) -> impl Iterator<Item = &ServiceKey> {
        self.desired.keys()
    }

    /// Replaces the existing objects of both kinds.
    pub(in crate::controller) fn replace(&mut self, all: Vec<(ExportObject, DynamicObject)>, manager: &str) {
        self.found.clear();
        for (part, object) in all {
            self.put(part, object, manager);
        }
    }

    /// Records the current state of an object.
    pub(in crate::controller) fn put(&mut self, part: ExportObject, object: DynamicObject, manager: &str) {
        let Some(key) = part.key(&object) else { return };
        let found = if !is_ours(&object, manager) {
            FoundExport::Theirs
        } else if object.metadata.deletion_timestamp.is_some() {
            FoundExport::Going
        } else {
            FoundExport::Ours(Box::new(object))
        };
        self.found.insert((key, part), found);
    }

    /// Records that an object is deleted or about to be.
    pub(in crate::controller) fn remove(&mut self, key: &ServiceKey, part: ExportObject) {
        self.found.remove(&(key.clone(), part));
    }

    /// Drops the desired state if it is [`DesiredExport::Nothing`], once no write is left.
    pub(in crate::controller) fn close(&mut self, key: &ServiceKey) {
        if self.desired.get(key) == Some(&DesiredExport::Nothing) {
            self.desired.remove(key);
        }
    }

    /// The next write for one MultiClusterService.
    pub(in crate::controller) fn next_step(&self, key: &ServiceKey) -> ExportStep {
        let found = |part| self.found.get(&(key.clone(), part));
        match self.desired.get(key) {
            None | Some(DesiredExport::AsIs) => ExportStep::Nothing,
            Some(DesiredExport::Nothing) => self.removal(key, &ExportObject::ALL),
            // Whoever owns the export is responsible for bringing it to the clusters.
            Some(DesiredExport::Kept(_))
                if matches!(found(ExportObject::Export), Some(FoundExport::Theirs)) =>
            {
                self.removal(key, &[ExportObject::Policy])
            }
            Some(DesiredExport::Kept(export)) => {
                let policy = match found(ExportObject::Policy) {
                    Some(FoundExport::Ours(policy)) => Some(&**policy),
                    _ => None,
                };
                let export = &Export { collector: self.collector.clone(), ..export.settled(policy) };
                let steps = ExportObject::ALL.into_iter().map(|part| match found(part) {
                    None => ExportStep::Create(part, export.clone()),
                    Some(FoundExport::Theirs) => ExportStep::Taken(part),
                    Some(FoundExport::Going) => ExportStep::Wait,
                    Some(FoundExport::Ours(object)) if part.matches(object, key, export) => {
                        ExportStep::Nothing
                    }
                    Some(FoundExport::Ours(object)) => ExportStep::Apply(part, export.clone(), uid(object)),
                });
                first(steps)
            }
        }
    }

    fn removal(&self, key: &ServiceKey, parts: &[ExportObject]) -> ExportStep {
        first(parts.iter().map(|part| match self.found.get(&(key.clone(), *part)) {
            Some(FoundExport::Ours(object)) => ExportStep::Delete(*part, uid(object)),
            _ => ExportStep::Nothing,
        }))
    }
}

impl ExportStep {
    /// Whether it changes a ServiceExport in a way that a new leader of Karmada's controller notices.
    pub(in crate::controller) fn is_touch(&self) -> bool {
        matches!(self, Self::Apply(ExportObject::Export, ..))
    }

    /// The object that it writes, and the RBAC verb; `None` for steps that write nothing.
    pub(in crate::controller) fn write(&self) -> Option<(ExportObject, &'static str)> {
        match self {
            Self::Create(part, _) => Some((*part, "create")),
            Self::Apply(part, ..) => Some((*part, "patch")),
            Self::Delete(part, _) => Some((*part, "delete")),
            Self::Taken(_) | Self::Wait | Self::Nothing => None,
        }
    }
}

fn first(mut steps: impl Iterator<Item = ExportStep>) -> ExportStep {
    steps.find(|step| *step != ExportStep::Nothing).unwrap_or(ExportStep::Nothing)
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

    fn diff_with(desired: DesiredExport, all: Vec<(ExportObject, DynamicObject)>) -> ExportDiff {
        let mut diff = ExportDiff::default();
        diff.set_desired(&key(), desired);
        diff.replace(all, MANAGER);
        diff
    }

    fn both(export: &Export) -> Vec<(ExportObject, DynamicObject)> {
        ExportObject::ALL.map(|part| (part, stored(part, export, &[]))).to_vec()
    }

    #[test]
    fn both_are_made_one_after_the_other_and_then_there_is_rest() {
        let wanted = export(&["a"]);
        let mut diff = diff_with(DesiredExport::Kept(wanted.clone()), Vec::new());
        for part in ExportObject::ALL {
            assert_eq!(diff.next_step(&key()), ExportStep::Create(part, wanted.clone()));
            diff.put(part, stored(part, &wanted, &[]), MANAGER);
        }
        assert_eq!(diff.next_step(&key()), ExportStep::Nothing);
        diff.close(&key());
        assert!(!diff.set_desired(&key(), DesiredExport::Kept(wanted)), "it is desired already");
        assert!(diff.set_desired(&key(), DesiredExport::Kept(export(&["b"]))));
        let uid = "of-Policy".to_owned();
        assert_eq!(diff.next_step(&key()), ExportStep::Apply(ExportObject::Policy, export(&["b"]), uid));
    }

    #[test]
    fn a_list_of_apis_that_is_not_whole_takes_nothing_away() {
        let b: BTreeSet<String> = ["b".to_owned()].into();
        let unsure = Export { unsure: b.clone(), ..export(&["a"]) };
        let diff_of = |there: &Export| diff_with(DesiredExport::Kept(unsure.clone()), both(there));
        assert_eq!(diff_of(&export(&["a", "b"])).next_step(&key()), ExportStep::Nothing);
        assert_eq!(diff_of(&export(&["a"])).next_step(&key()), ExportStep::Nothing);
        let gone = Export { waiting: b, ..export(&["a"]) };
        let diff = diff_with(DesiredExport::Kept(gone.clone()), both(&export(&["a", "b"])));
        assert_eq!(
            diff.next_step(&key()),
            ExportStep::Apply(ExportObject::Policy, gone, "of-Policy".to_owned())
        );
    }

    #[test]
    fn all_of_ours_goes_when_nothing_is_wanted_and_nothing_of_others() {
        let mut diff = diff_with(DesiredExport::Nothing, both(&export(&[])));
        for part in ExportObject::ALL {
            assert_eq!(diff.next_step(&key()), ExportStep::Delete(part, format!("of-{part:?}")));
            diff.remove(&key(), part);
        }
        assert_eq!(diff.next_step(&key()), ExportStep::Nothing);
        let theirs =
            ExportObject::ALL.map(|part| (part, stored(part, &export(&[]), &[("labels", json!({}))])));
        diff.replace(theirs.to_vec(), MANAGER);
        assert_eq!(diff.next_step(&key()), ExportStep::Nothing);
    }

    #[test]
    fn an_export_of_the_user_is_left_alone_and_gets_no_policy_of_ours() {
        let wanted = export(&["a"]);
        let theirs = stored(ExportObject::Export, &wanted, &[("labels", json!({}))]);
        let policy = stored(ExportObject::Policy, &wanted, &[]);
        let mut diff = diff_with(
            DesiredExport::Kept(wanted),
            vec![(ExportObject::Export, theirs), (ExportObject::Policy, policy)],
        );
        assert_eq!(diff.next_step(&key()), ExportStep::Delete(ExportObject::Policy, "of-Policy".to_owned()));
        diff.remove(&key(), ExportObject::Policy);
        assert_eq!(diff.next_step(&key()), ExportStep::Nothing);
    }

    #[test]
    fn a_policy_of_others_is_never_touched() {
        let wanted = export(&["a"]);
        let other = stored(
            ExportObject::Policy,
            &export(&[]),
            &[("labels", json!({"sheave.dev/managed-by": "other"}))],
        );
        let diff = diff_with(
            DesiredExport::Kept(wanted.clone()),
            vec![
                (ExportObject::Export, stored(ExportObject::Export, &wanted, &[])),
                (ExportObject::Policy, other),
            ],
        );
        assert_eq!(diff.next_step(&key()), ExportStep::Taken(ExportObject::Policy));
    }

    #[test]
    fn one_that_is_going_is_waited_for_before_it_is_made_again() {
        let wanted = export(&[]);
        let going =
            stored(ExportObject::Export, &wanted, &[("deletionTimestamp", json!("2026-01-01T00:00:00Z"))]);
        let mut diff = diff_with(DesiredExport::Kept(wanted), vec![(ExportObject::Export, going)]);
        assert_eq!(diff.next_step(&key()), ExportStep::Wait);
        diff.forget(&key());
        assert_eq!(diff.next_step(&key()), ExportStep::Nothing, "it goes by itself");
    }

    #[test]
    fn nothing_is_made_or_deleted_while_the_service_is_away() {
        assert_eq!(diff_with(DesiredExport::AsIs, Vec::new()).next_step(&key()), ExportStep::Nothing);
        assert_eq!(diff_with(DesiredExport::AsIs, both(&export(&[]))).next_step(&key()), ExportStep::Nothing);
        let mut never = ExportDiff::default();
        assert!(!never.forget(&key()));
    }
}
