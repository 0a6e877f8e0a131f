//! Correlation of Events: which Problems and occurrences already have one. No I/O.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;

use crate::api::problem::{Problem, ProblemChanges};
use crate::controller::events::event::{Occurrence, Uid};

/// How many occurrences are remembered, at a few bytes each. A forgotten one may get a second Event.
const KEPT: usize = 1 << 18;

/// Digests of Problems and occurrences that have an Event. 64 bits suffice to recognize a text, for any realistic number of
/// Problems.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    hasher: RandomState,
    /// Texts by the digest of object and text.
    problems: HashMap<u64, TextState>,
    /// Problems without an Event yet.
    pending: BTreeSet<Arc<Problem>>,
    /// Digest of the last note, by that of object, type, reason and action.
    occurrences: HashMap<u64, u64>,
}

/// A text about an object.
#[derive(Debug, Default)]
struct TextState {
    /// Number of Problems with this text, which can differ only in their ports.
    problems: usize,
    /// Uid of the object that its last Event was about.
    uid: Option<Arc<str>>,
}

impl Correlator {
    /// Applies changes of the Problems. One that comes back counts as new.
    pub(super) fn follow(&mut self, changes: &ProblemChanges) {
        for problem in &changes.came {
            let digest = self.digest_of(problem);
            self.problems.entry(digest).or_default().problems += 1;
            self.pending.insert(problem.clone());
        }
        for problem in &changes.gone {
            let digest = self.digest_of(problem);
            self.pending.remove(problem);
            if let Some(state) = self.problems.get_mut(&digest) {
                state.problems = state.problems.saturating_sub(1);
                if state.problems == 0 {
                    self.problems.remove(&digest);
                }
            }
        }
    }

    /// Problems that wait for an Event.
    pub(super) fn pending(&self) -> Vec<Arc<Problem>> {
        self.pending.iter().cloned().collect()
    }

    /// Calls `record` for a Problem unless its object already has an Event for it. `record` returns whether it recorded the
    /// Problem.
    pub(super) fn offer(
        &mut self,
        problem: &Arc<Problem>,
        uid: Uid,
        record: impl FnOnce(&Problem, Uid) -> bool,
    ) {
        let digest = self.digest_of(problem);
        let Some(state) = self.problems.get_mut(&digest) else { return };
        let known = state.uid.as_ref() == Some(&uid.uid);
        let of = uid.uid.clone();
        if known || record(problem, uid) {
            state.uid = Some(of);
            self.pending.remove(problem);
        } else {
            self.pending.insert(problem.clone());
        }
    }

    /// Whether the occurrence differs from the last one with the same object, type, reason and action.
    #[must_use]
    pub(super) fn is_new(&self, occurrence: &Occurrence) -> bool {
        let (kind, note) = self.digests(occurrence);
        self.occurrences.get(&kind) != Some(&note)
    }

    /// Remembers that the occurrence has an Event.
    pub(super) fn recorded(&mut self, occurrence: &Occurrence) {
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
    use crate::api::store::ServiceKey;
    use crate::controller::events::event::EventType;
    use crate::controller::tests::objects;

    fn problem(name: &str, message: &str) -> Problem {
        let object = ServiceKey::new("shop", name).object();
        Problem { object, ..objects::problem("NoAddress", message, None) }
    }

    fn uid(text: &str) -> Uid {
        Uid { uid: text.into(), resource_version: None }
    }

    /// A correlator that is driven with complete lists of Problems.
    #[derive(Default)]
    struct TestCorrelator {
        correlator: Correlator,
        before: Vec<Arc<Problem>>,
    }

    impl TestCorrelator {
        /// Events after the Problems become `now` and all are offered to a server that rejects those that begin with `refused`.
        fn recorded(&mut self, now: &[Problem], of: &str) -> Vec<String> {
            let now: Vec<Arc<Problem>> = now.iter().cloned().map(Arc::new).collect();
            let only = |one: &[Arc<Problem>], other: &[Arc<Problem>]| {
                one.iter().filter(|it| !other.contains(it)).cloned().collect()
            };
            let changes = ProblemChanges { came: only(&now, &self.before), gone: only(&self.before, &now) };
            self.correlator.follow(&changes);
            let mut recorded = Vec::new();
            for problem in &now {
                self.correlator.offer(problem, uid(of), |problem, _| {
                    recorded.push(problem.message.clone());
                    !problem.message.starts_with("refused")
                });
            }
            self.before = now;
            recorded
        }
    }

    #[test]
    fn problems_are_told_when_they_come_and_when_they_come_back() {
        let mut follower = TestCorrelator::default();
        let (a, b) = (problem("a", "one"), problem("b", "two"));
        assert_eq!(follower.recorded(&[a.clone(), b.clone()], "u"), ["one", "two"]);
        assert_eq!(follower.recorded(&[b.clone(), a.clone()], "u"), [""; 0]);
        assert_eq!(follower.recorded(std::slice::from_ref(&b), "u"), [""; 0]);
        assert_eq!(follower.recorded(&[a, b], "u"), ["one"]);
    }

    #[test]
    fn another_text_or_another_object_of_the_name_is_news() {
        let mut follower = TestCorrelator::default();
        assert_eq!(follower.recorded(&[problem("a", "one")], "u"), ["one"]);
        assert_eq!(follower.recorded(&[problem("a", "more")], "u"), ["more"]);
        assert_eq!(follower.recorded(&[problem("a", "more")], "v"), ["more"]);
    }

    #[test]
    fn the_same_thing_about_two_ports_is_told_once() {
        let mut follower = TestCorrelator::default();
        let of_port = |port: u16| {
            let port = Some(crate::api::problem::ProblemPort { port, protocol: "TCP" });
            Problem { port, ..problem("a", "one") }
        };
        assert_eq!(follower.recorded(&[of_port(80), of_port(81)], "u"), ["one"]);
        assert_eq!(follower.recorded(&[of_port(82)], "u"), [""; 0], "it is the same thing still");
        assert!(follower.correlator.pending().is_empty());
        assert_eq!(follower.recorded(&[], "u"), [""; 0]);
        assert!(follower.correlator.problems.is_empty(), "nothing is remembered of what is gone");
    }

    #[test]
    fn what_could_not_be_told_is_tried_again() {
        let mut follower = TestCorrelator::default();
        assert_eq!(follower.recorded(&[problem("a", "refused")], "u"), ["refused"]);
        assert_eq!(follower.correlator.pending().len(), 1);
        assert_eq!(follower.recorded(&[problem("a", "refused")], "u"), ["refused"]);
        assert_eq!(follower.recorded(&[], "u"), [""; 0]);
        assert!(follower.correlator.pending().is_empty());
    }

    #[test]
    fn an_occurrence_is_told_unless_it_was_the_last_of_its_kind() {
        let mut correlator = Correlator::default();
        let occurrence = |note: &str| Occurrence {
            object: problem("a", "").object,
            uid: uid("u"),
            r#type: EventType::Normal,
            reason: "AddressesAssigned",
            action: "Allocate",
            note: note.to_owned(),
        };
        for (note, new) in [("1", true), ("1", false), ("2", true), ("1", true)] {
            assert_eq!(correlator.is_new(&occurrence(note)), new, "{note}");
            correlator.recorded(&occurrence(note));
        }
    }
}
