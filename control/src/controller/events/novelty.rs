//! What has been told already. Pure; it must not know how it is told.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash, RandomState};

use super::object::{Occurrence, Uid};
use crate::problem::Problem;

/// So many single occurrences are remembered, some bytes each; forgetting one means that it may be told twice.
const KEPT: usize = 1 << 18;

/// Digests of what was told: 64 bits say with enough certainty whether a text is new, at any number of Problems.
#[derive(Debug, Default)]
pub(super) struct Novelty {
    hasher: RandomState,
    problems: HashSet<u64>,
    /// The note that was told last, by object, type, reason and action.
    occurrences: HashMap<u64, u64>,
}

impl Novelty {
    /// Forgets the Problems that are not among `now` any more: if they come back, they are news. Tells the others to
    /// `tell`, each until it answers that it was told. The uid counts: a new object of the name has not been told.
    pub(super) fn problems<'a>(
        &mut self,
        now: impl Iterator<Item = (&'a Problem, Uid)>,
        mut tell: impl FnMut(&Problem, Uid) -> bool,
    ) {
        let before = std::mem::take(&mut self.problems);
        for (problem, uid) in now {
            let Problem { object, reason, field, message, port: _ } = problem;
            let digest = self.digest(&(object, &uid.uid, reason, field, message));
            if before.contains(&digest) || self.problems.contains(&digest) || tell(problem, uid) {
                self.problems.insert(digest);
            }
        }
    }

    /// Whether the occurrence is another one than the last of its kind.
    #[must_use]
    pub(super) fn is_new(&self, occurrence: &Occurrence) -> bool {
        let (kind, note) = self.digests(occurrence);
        self.occurrences.get(&kind) != Some(&note)
    }

    /// The occurrence was told.
    pub(super) fn told(&mut self, occurrence: &Occurrence) {
        if self.occurrences.len() >= KEPT {
            self.occurrences.clear();
        }
        let (kind, note) = self.digests(occurrence);
        self.occurrences.insert(kind, note);
    }

    /// Forgets all: another process may have told something else meanwhile.
    pub(super) fn clear(&mut self) {
        self.problems.clear();
        self.occurrences.clear();
    }

    fn digests(&self, occurrence: &Occurrence) -> (u64, u64) {
        let Occurrence { object, uid, r#type, reason, action, note } = occurrence;
        (self.digest(&(object, &uid.uid, r#type, reason, action)), self.digest(note))
    }

    fn digest(&self, what: &impl Hash) -> u64 {
        self.hasher.hash_one(what)
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::EventType;
    use super::*;
    use crate::problem::ObjectRef;

    fn problem(name: &str, message: &str) -> Problem {
        Problem {
            object: ObjectRef { kind: "Service", namespace: "shop".into(), name: name.into() },
            reason: "NoAddress",
            field: String::new(),
            message: message.to_owned(),
            port: None,
        }
    }

    fn uid(text: &str) -> Uid {
        Uid { uid: text.into(), resource_version: None }
    }

    /// What is told of `now`, where the server takes all that begin otherwise than with `refused`.
    fn told(novelty: &mut Novelty, now: &[Problem], of: &str) -> Vec<String> {
        let mut told = Vec::new();
        novelty.problems(now.iter().map(|it| (it, uid(of))), |problem, _| {
            told.push(problem.message.clone());
            !problem.message.starts_with("refused")
        });
        told
    }

    #[test]
    fn problems_are_told_when_they_come_and_when_they_come_back() {
        let mut novelty = Novelty::default();
        let (a, b) = (problem("a", "one"), problem("b", "two"));
        assert_eq!(told(&mut novelty, &[a.clone(), b.clone()], "u"), ["one", "two"]);
        assert_eq!(told(&mut novelty, &[b.clone(), a.clone()], "u"), [""; 0]);
        assert_eq!(told(&mut novelty, std::slice::from_ref(&b), "u"), [""; 0]);
        assert_eq!(told(&mut novelty, &[a, b], "u"), ["one"]);
    }

    #[test]
    fn another_text_or_another_object_of_the_name_is_news() {
        let mut novelty = Novelty::default();
        assert_eq!(told(&mut novelty, &[problem("a", "one")], "u"), ["one"]);
        assert_eq!(told(&mut novelty, &[problem("a", "more")], "u"), ["more"]);
        assert_eq!(told(&mut novelty, &[problem("a", "more")], "v"), ["more"]);
    }

    #[test]
    fn the_same_thing_about_two_ports_is_told_once() {
        let mut novelty = Novelty::default();
        assert_eq!(told(&mut novelty, &[problem("a", "one"), problem("a", "one")], "u"), ["one"]);
    }

    #[test]
    fn what_could_not_be_told_is_tried_again() {
        let mut novelty = Novelty::default();
        assert_eq!(told(&mut novelty, &[problem("a", "refused")], "u"), ["refused"]);
        assert_eq!(told(&mut novelty, &[problem("a", "refused")], "u"), ["refused"]);
    }

    #[test]
    fn an_occurrence_is_told_unless_it_was_the_last_of_its_kind() {
        let mut novelty = Novelty::default();
        let occurrence = |note: &str| Occurrence {
            object: problem("a", "").object,
            uid: uid("u"),
            r#type: EventType::Normal,
            reason: "AddressesAssigned",
            action: "Allocate",
            note: note.to_owned(),
        };
        for (note, new) in [("1", true), ("1", false), ("2", true), ("1", true)] {
            assert_eq!(novelty.is_new(&occurrence(note)), new, "{note}");
            novelty.told(&occurrence(note));
        }
        novelty.clear();
        assert!(novelty.is_new(&occurrence("1")));
    }
}
