//! What has been told already. Pure; it must not know how it is told.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;

use crate::api::problem::{Problem, ProblemChanges};
use crate::controller::events::event::{Occurrence, Uid};

/// So many single occurrences are remembered, some bytes each; forgetting one means that it may be told twice.
const KEPT: usize = 1 << 18;

/// Digests of what was told: 64 bits say with enough certainty whether a text is new, at any number of Problems.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    hasher: RandomState,
    /// By object and text.
    problems: HashMap<u64, TextState>,
    /// Those that are to be told yet.
    untold: BTreeSet<Arc<Problem>>,
    /// The note that was told last, by object, type, reason and action.
    occurrences: HashMap<u64, u64>,
}

/// A text about an object.
#[derive(Debug, Default)]
struct TextState {
    /// How many Problems say it: ports make no difference.
    problems: usize,
    /// Of which object of the name it was told.
    uid: Option<Arc<str>>,
}

impl Correlator {
    /// Follows which Problems there are. One that comes back is news.
    pub(super) fn follow(&mut self, changes: &ProblemChanges) {
        for problem in &changes.came {
            let digest = self.digest_of(problem);
            self.problems.entry(digest).or_default().problems += 1;
            self.untold.insert(problem.clone());
        }
        for problem in &changes.gone {
            let digest = self.digest_of(problem);
            self.untold.remove(problem);
            if let Some(told) = self.problems.get_mut(&digest) {
                told.problems = told.problems.saturating_sub(1);
                if told.problems == 0 {
                    self.problems.remove(&digest);
                }
            }
        }
    }

    /// The Problems that wait to be told.
    pub(super) fn untold(&self) -> Vec<Arc<Problem>> {
        self.untold.iter().cloned().collect()
    }

    /// Has a Problem told by `tell`, which answers whether that was done: unless it was told of this object before.
    pub(super) fn offer(
        &mut self,
        problem: &Arc<Problem>,
        uid: Uid,
        tell: impl FnOnce(&Problem, Uid) -> bool,
    ) {
        let digest = self.digest_of(problem);
        let Some(told) = self.problems.get_mut(&digest) else { return };
        let known = told.uid.as_ref() == Some(&uid.uid);
        let of = uid.uid.clone();
        if known || tell(problem, uid) {
            told.uid = Some(of);
            self.untold.remove(problem);
        } else {
            self.untold.insert(problem.clone());
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

    fn digests(&self, occurrence: &Occurrence) -> (u64, u64) {
        let Occurrence { object, uid, r#type, reason, action, note } = occurrence;
        (self.digest(&(object, &uid.uid, r#type, reason, action)), self.digest(note))
    }

    fn digest_of(&self, problem: &Problem) -> u64 {
        let Problem { object, reason, field, message, port: _ } = problem;
        self.digest(&(object, reason, field, message))
    }

    fn digest(&self, what: &impl Hash) -> u64 {
        self.hasher.hash_one(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::problem::ObjectRef;
    use crate::controller::events::event::EventType;

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

    /// Who follows a list of Problems.
    #[derive(Default)]
    struct TestCorrelator {
        novelty: Correlator,
        before: Vec<Arc<Problem>>,
    }

    impl TestCorrelator {
        /// What is told when there are these, and all of them are offered, where the server takes all that begin otherwise
        /// than with `refused`.
        fn told(&mut self, now: &[Problem], of: &str) -> Vec<String> {
            let now: Vec<Arc<Problem>> = now.iter().cloned().map(Arc::new).collect();
            let only = |one: &[Arc<Problem>], other: &[Arc<Problem>]| {
                one.iter().filter(|it| !other.contains(it)).cloned().collect()
            };
            let changes = ProblemChanges { came: only(&now, &self.before), gone: only(&self.before, &now) };
            self.novelty.follow(&changes);
            let mut told = Vec::new();
            for problem in &now {
                self.novelty.offer(problem, uid(of), |problem, _| {
                    told.push(problem.message.clone());
                    !problem.message.starts_with("refused")
                });
            }
            self.before = now;
            told
        }
    }

    #[test]
    fn problems_are_told_when_they_come_and_when_they_come_back() {
        let mut follower = TestCorrelator::default();
        let (a, b) = (problem("a", "one"), problem("b", "two"));
        assert_eq!(follower.told(&[a.clone(), b.clone()], "u"), ["one", "two"]);
        assert_eq!(follower.told(&[b.clone(), a.clone()], "u"), [""; 0]);
        assert_eq!(follower.told(std::slice::from_ref(&b), "u"), [""; 0]);
        assert_eq!(follower.told(&[a, b], "u"), ["one"]);
    }

    #[test]
    fn another_text_or_another_object_of_the_name_is_news() {
        let mut follower = TestCorrelator::default();
        assert_eq!(follower.told(&[problem("a", "one")], "u"), ["one"]);
        assert_eq!(follower.told(&[problem("a", "more")], "u"), ["more"]);
        assert_eq!(follower.told(&[problem("a", "more")], "v"), ["more"]);
    }

    #[test]
    fn the_same_thing_about_two_ports_is_told_once() {
        let mut follower = TestCorrelator::default();
        let of_port = |port: u16| {
            let port = Some(crate::api::problem::ProblemPort { port, protocol: "TCP" });
            Problem { port, ..problem("a", "one") }
        };
        assert_eq!(follower.told(&[of_port(80), of_port(81)], "u"), ["one"]);
        assert_eq!(follower.told(&[of_port(82)], "u"), [""; 0], "it is the same thing still");
        assert!(follower.novelty.untold().is_empty());
        assert_eq!(follower.told(&[], "u"), [""; 0]);
        assert!(follower.novelty.problems.is_empty(), "nothing is remembered of what is gone");
    }

    #[test]
    fn what_could_not_be_told_is_tried_again() {
        let mut follower = TestCorrelator::default();
        assert_eq!(follower.told(&[problem("a", "refused")], "u"), ["refused"]);
        assert_eq!(follower.novelty.untold().len(), 1);
        assert_eq!(follower.told(&[problem("a", "refused")], "u"), ["refused"]);
        assert_eq!(follower.told(&[], "u"), [""; 0]);
        assert!(follower.novelty.untold().is_empty());
    }

    #[test]
    fn an_occurrence_is_told_unless_it_was_the_last_of_its_kind() {
        let mut novelty = Correlator::default();
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
    }
}
