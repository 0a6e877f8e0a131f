//! Which Problems the log has told: each when it appears and when it is gone, not while it lasts. It must not know where
//! they are from.

use std::collections::{BTreeMap, BTreeSet};

use crate::views::problem::ProblemView;

/// So many of one moment are told one by one. A shortage may concern every frontend at once, and lines in their thousands
/// would push others out of the log.
const ONE_BY_ONE: usize = 100;

/// What has been told.
#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    sources: BTreeSet<ProblemView>,
    objects: BTreeSet<ProblemView>,
    failures: BTreeSet<ProblemView>,
    overload: BTreeSet<ProblemView>,
}

impl ProblemLog {
    /// Tells what is new, or over, of what is wrong with the sources themselves.
    pub(super) fn sources(&mut self, now: impl Iterator<Item = ProblemView>) {
        tell(&mut self.sources, now);
    }

    /// The same of what is wrong with objects.
    pub(super) fn objects(&mut self, now: impl Iterator<Item = ProblemView>) {
        tell(&mut self.objects, now);
    }

    /// The same of what came and what is gone since.
    pub(super) fn changed_objects(&mut self, came: &BTreeSet<ProblemView>, gone: &BTreeSet<ProblemView>) {
        log(came.iter(), gone.iter());
        for problem in gone {
            self.objects.remove(problem);
        }
        self.objects.extend(came.iter().cloned());
    }

    /// The same of what the gateway could not do.
    pub(super) fn failures(&mut self, now: impl Iterator<Item = ProblemView>) {
        tell(&mut self.failures, now);
    }

    /// The same of what there was too much of.
    pub(super) fn overload(&mut self, now: impl Iterator<Item = ProblemView>) {
        tell(&mut self.overload, now);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.sources.len() + self.objects.len() + self.failures.len() + self.overload.len()
    }
}

fn tell(told: &mut BTreeSet<ProblemView>, now: impl Iterator<Item = ProblemView>) {
    let now: BTreeSet<ProblemView> = now.collect();
    log(now.difference(told), told.difference(&now));
    *told = now;
}

fn log<'a>(mut new: impl Iterator<Item = &'a ProblemView>, mut gone: impl Iterator<Item = &'a ProblemView>) {
    for problem in new.by_ref().take(ONE_BY_ONE) {
        tracing::warn!(object = problem.object, reason = problem.reason, "{problem}");
    }
    for (reason, count) in by_reason(new) {
        tracing::warn!(
            reason,
            count,
            "more problems like that at the same time; `sheave routes` shows them all"
        );
    }
    for problem in gone.by_ref().take(ONE_BY_ONE) {
        tracing::info!(object = problem.object, reason = problem.reason, "problem is gone: {problem}");
    }
    for (reason, count) in by_reason(gone) {
        tracing::info!(reason, count, "more problems like that are gone");
    }
}

fn by_reason<'a>(problems: impl Iterator<Item = &'a ProblemView>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for problem in problems {
        *counts.entry(problem.reason.as_str()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(number: usize) -> ProblemView {
        ProblemView {
            object: format!("Service shop/s{number:05}"),
            reason: "BindFailed".to_owned(),
            message: "cannot listen".to_owned(),
            port: None,
            field: None,
            file: None,
            document: None,
            line: None,
            folder: None,
        }
    }

    #[test]
    fn objects_and_setbacks_come_and_go_apart() {
        let mut told = ProblemLog::default();
        told.objects([problem(1)].into_iter());
        told.failures([problem(2), problem(3)].into_iter());
        assert_eq!(told.count(), 3);
        told.objects(std::iter::empty());
        assert_eq!(told.count(), 2);
    }

    #[test]
    fn objects_are_followed_by_what_changed() {
        let mut told = ProblemLog::default();
        told.changed_objects(&(1..=1_000).map(problem).collect(), &BTreeSet::new());
        told.changed_objects(&[problem(2_000)].into(), &[problem(1), problem(2)].into());
        assert_eq!(told.count(), 999);
        assert!(told.objects.contains(&problem(2_000)) && !told.objects.contains(&problem(2)));
    }

    #[test]
    fn what_is_left_is_counted_by_reason() {
        let other = ProblemView { reason: "PortConflict".to_owned(), ..problem(9) };
        let problems = [problem(1), other, problem(2)];
        assert_eq!(by_reason(problems.iter()), BTreeMap::from([("BindFailed", 2), ("PortConflict", 1)]));
    }
}
