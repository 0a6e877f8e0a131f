//! Set of Problems by owner, with the changes since the last query. An update costs as much as that owner's Problems, however
//! many others there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ObjectRef, Problem};

/// All Problems, sorted and without duplicates, whichever owner has them.
#[derive(Clone, Debug)]
pub(crate) struct ProblemSet<K> {
    /// Problems of each owner, sorted.
    owners: BTreeMap<K, Box<[Arc<Problem>]>>,
    /// Number of owners of each Problem.
    all: BTreeMap<Arc<Problem>, usize>,
    /// Number of Problems by reason.
    by_reason: BTreeMap<&'static str, usize>,
    /// Problems that came or went since [`Self::take_changes`], and whether they existed at that time.
    touched: BTreeMap<Arc<Problem>, bool>,
}

/// Problems that came and that went, both sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProblemChanges {
    /// Problems that are new.
    pub came: Vec<Arc<Problem>>,
    /// Problems that are gone.
    pub gone: Vec<Arc<Problem>>,
}

impl ProblemChanges {
    /// Whether nothing came or went.
    pub fn is_empty(&self) -> bool {
        self.came.is_empty() && self.gone.is_empty()
    }

    /// The changes that are about objects for which `meant` is true.
    pub(crate) fn about(&self, meant: impl Fn(&ObjectRef) -> bool) -> Self {
        let of = |problems: &[Arc<Problem>]| {
            problems.iter().filter(|problem| meant(&problem.object)).cloned().collect()
        };
        Self { came: of(&self.came), gone: of(&self.gone) }
    }
}

impl<K> Default for ProblemSet<K> {
    fn default() -> Self {
        Self {
            owners: BTreeMap::new(),
            all: BTreeMap::new(),
            by_reason: BTreeMap::new(),
            touched: BTreeMap::new(),
        }
    }
}

impl<K: Ord> ProblemSet<K> {
    /// Replaces the Problems of an owner.
    pub(crate) fn set<'a>(&mut self, owner: K, problems: impl IntoIterator<Item = &'a Problem>) {
        let mut problems: Vec<&Problem> = problems.into_iter().collect();
        problems.sort_unstable();
        problems.dedup();
        if self.of(&owner).map(|problem| &**problem).eq(problems.iter().copied()) {
            return;
        }
        let new: Box<[Arc<Problem>]> = problems.into_iter().map(|problem| self.shared(problem)).collect();
        // Add before removing, so that a Problem that stays is not marked as touched.
        new.iter().for_each(|problem| self.add(problem));
        let old = if new.is_empty() { self.owners.remove(&owner) } else { self.owners.insert(owner, new) };
        old.unwrap_or_default().iter().for_each(|problem| self.remove(problem));
    }

    /// Applies the changes of another set.
    pub(crate) fn apply(&mut self, changes: &ProblemChanges) {
        changes.came.iter().for_each(|problem| self.add(problem));
        changes.gone.iter().for_each(|problem| self.remove(problem));
    }

    /// The Problems of an owner, sorted.
    pub(crate) fn of(&self, owner: &K) -> impl Iterator<Item = &Arc<Problem>> {
        self.owners.get(owner).into_iter().flatten()
    }

    /// All Problems, sorted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Problem>> {
        self.all.keys()
    }

    /// Number of Problems.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Number of Problems by reason, without reasons that no Problem has.
    pub(crate) fn by_reason(&self) -> &BTreeMap<&'static str, usize> {
        &self.by_reason
    }

    /// The Problems that are about this object.
    pub(crate) fn about(&self, object: &ObjectRef) -> impl Iterator<Item = &Arc<Problem>> {
        let first = Problem {
            object: object.clone(),
            reason: "",
            field: String::new(),
            message: String::new(),
            port: None,
        };
        let from_there = self.all.range(Arc::new(first)..).map(|(problem, _)| problem);
        from_there.take_while(move |problem| problem.object == *object)
    }

    /// The changes since the last call.
    pub(crate) fn take_changes(&mut self) -> ProblemChanges {
        let mut changes = ProblemChanges::default();
        for (problem, was_there) in std::mem::take(&mut self.touched) {
            match (was_there, self.all.contains_key(&problem)) {
                (false, true) => changes.came.push(problem),
                (true, false) => changes.gone.push(problem),
                _ => {}
            }
        }
        changes
    }

    fn shared(&self, problem: &Problem) -> Arc<Problem> {
        self.all.get_key_value(problem).map_or_else(|| Arc::new(problem.clone()), |(known, _)| known.clone())
    }

    fn add(&mut self, problem: &Arc<Problem>) {
        let owners = self.all.entry(problem.clone()).or_default();
        *owners += 1;
        if *owners == 1 {
            *self.by_reason.entry(problem.reason).or_default() += 1;
            self.touched.entry(problem.clone()).or_insert(false);
        }
    }

    fn remove(&mut self, problem: &Arc<Problem>) {
        let Some(owners) = self.all.get_mut(problem) else { return };
        *owners -= 1;
        if *owners == 0 {
            self.all.remove(problem);
            if let Some(count) = self.by_reason.get_mut(problem.reason) {
                *count -= 1;
                if *count == 0 {
                    self.by_reason.remove(problem.reason);
                }
            }
            self.touched.entry(problem.clone()).or_insert(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str, message: &str) -> Problem {
        Problem {
            object: ObjectRef { kind: "Service", namespace: "shop".into(), name: name.into() },
            reason: "NoAddress",
            field: String::new(),
            message: message.to_owned(),
            port: None,
        }
    }

    fn messages(problems: &[Arc<Problem>]) -> Vec<&str> {
        problems.iter().map(|problem| problem.message.as_str()).collect()
    }

    #[test]
    fn what_one_owner_says_changes_what_that_one_had() {
        let mut set = ProblemSet::default();
        for owner in 0..1_000 {
            set.set(owner, &[problem(&format!("s{owner:04}"), "waits")]);
        }
        assert_eq!((set.take_changes().came.len(), set.len()), (1_000, 1_000));
        let before: Vec<Arc<Problem>> = set.iter().cloned().collect();
        set.set(7, &[problem("s0007", "waits")]);
        assert!(set.take_changes().is_empty(), "it says the same");
        set.set(7, &[problem("s0007", "waits"), problem("s0007", "still")]);
        set.set(8, []);
        let changes = set.take_changes();
        assert_eq!((messages(&changes.came), messages(&changes.gone)), (vec!["still"], vec!["waits"]));
        let kept = set.iter().filter(|now| before.iter().any(|before| Arc::ptr_eq(before, now)));
        assert_eq!(kept.count(), 999, "what was not said anew is not even copied");
    }

    #[test]
    fn what_several_have_goes_with_the_last() {
        let mut set = ProblemSet::default();
        let cluster = problem("m1", "not ready");
        set.set("a", [&cluster]);
        set.set("b", [&cluster, &cluster]);
        assert_eq!(set.by_reason(), &BTreeMap::from([("NoAddress", 1)]));
        assert_eq!((messages(&set.take_changes().came), set.len()), (vec!["not ready"], 1));
        set.set("a", []);
        assert!(set.take_changes().is_empty());
        set.set("b", []);
        assert_eq!((messages(&set.take_changes().gone), set.len()), (vec!["not ready"], 0));
        assert!(set.by_reason().is_empty());
    }

    #[test]
    fn what_came_and_went_in_between_is_no_change() {
        let mut set = ProblemSet::default();
        set.set(1, &[problem("web", "one")]);
        set.set(1, []);
        assert!(set.take_changes().is_empty());
        set.set(1, &[problem("web", "one")]);
        let mut follower: ProblemSet<u8> = ProblemSet::default();
        follower.apply(&set.take_changes());
        set.set(1, []);
        set.set(2, &[problem("web", "one")]);
        assert!(set.take_changes().is_empty(), "another has it now");
        set.set(2, &[problem("web", "two")]);
        follower.apply(&set.take_changes());
        assert!(follower.iter().eq(set.iter()));
    }

    #[test]
    fn problems_are_found_by_their_object() {
        let mut set = ProblemSet::default();
        set.set(1, &[problem("a", "one"), problem("b", "two"), problem("b", "three"), problem("c", "four")]);
        let about: Vec<Arc<Problem>> = set.about(&problem("b", "").object).cloned().collect();
        assert_eq!(messages(&about), ["three", "two"]);
        assert_eq!(set.about(&problem("bb", "").object).count(), 0);
    }
}
