//! Logs each Problem once when it appears and once when it is gone.

use std::collections::{BTreeMap, BTreeSet};

use crate::views::problem::ProblemView;

/// How many Problems of one moment are logged individually. A shortage may affect every frontend at once, and thousands of lines
/// would push others out of the log.
const ONE_BY_ONE: usize = 100;

/// The Problems that have been logged.
#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    sources: BTreeSet<ProblemView>,
    objects: BTreeSet<ProblemView>,
    failures: BTreeSet<ProblemView>,
    overload: BTreeSet<ProblemView>,
}

impl ProblemLog {
    /// Logs changes of the sources' own Problems.
    pub(super) fn sources(&mut self, now: impl Iterator<Item = ProblemView>) {
        log_changes(&mut self.sources, now);
    }

    /// Logs changes of Problems of objects.
    pub(super) fn objects(&mut self, now: impl Iterator<Item = ProblemView>) {
        log_changes(&mut self.objects, now);
    }

    /// As [`Self::objects`], where the changes are known.
    pub(super) fn changed_objects(&mut self, came: &BTreeSet<ProblemView>, gone: &BTreeSet<ProblemView>) {
        log(came.iter(), gone.iter());
        for problem in gone {
            self.objects.remove(problem);
        }
        self.objects.extend(came.iter().cloned());
    }

    /// Logs changes of the gateway's failures.
    pub(super) fn failures(&mut self, now: impl Iterator<Item = ProblemView>) {
        log_changes(&mut self.failures, now);
    }

    /// Logs changes of overloaded frontends.
    pub(super) fn overload(&mut self, now: impl Iterator<Item = ProblemView>) {
        log_changes(&mut self.overload, now);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.sources.len() + self.objects.len() + self.failures.len() + self.overload.len()
    }
}

fn log_changes(logged: &mut BTreeSet<ProblemView>, now: impl Iterator<Item = ProblemView>) {
    let now: BTreeSet<ProblemView> = now.collect();
    log(now.difference(logged), logged.difference(&now));
    *logged = now;
}

fn log<'a>(mut new: impl Iterator<Item = &'a ProblemView>, mut gone: impl Iterator<Item = &'a ProblemView>) {
    for problem in new.by_ref().take(ONE_BY_ONE) {
        tracing::warn!(object = problem.object, reason = problem.reason, "{problem}");
    }
    for (reason, count) in by_reason(new) {
        tracing::warn!(
            reason,
            count,
            "more problems of this kind at the same time; `sheave routes` lists them all"
        );
    }
    for problem in gone.by_ref().take(ONE_BY_ONE) {
        tracing::info!(object = problem.object, reason = problem.reason, "problem resolved: {problem}");
    }
    for (reason, count) in by_reason(gone) {
        tracing::info!(reason, count, "more problems of this kind are resolved");
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
            ..ProblemView::default()
        }
    }

    #[test]
    fn objects_and_setbacks_come_and_go_apart() {
        let mut logged = ProblemLog::default();
        logged.objects([problem(1)].into_iter());
        logged.failures([problem(2), problem(3)].into_iter());
        assert_eq!(logged.count(), 3);
        logged.objects(std::iter::empty());
        assert_eq!(logged.count(), 2);
    }

    #[test]
    fn objects_are_followed_by_what_changed() {
        let mut logged = ProblemLog::default();
        logged.changed_objects(&(1..=1_000).map(problem).collect(), &BTreeSet::new());
        logged.changed_objects(&[problem(2_000)].into(), &[problem(1), problem(2)].into());
        assert_eq!(logged.count(), 999);
        assert!(logged.objects.contains(&problem(2_000)) && !logged.objects.contains(&problem(2)));
    }

    #[test]
    fn what_is_left_is_counted_by_reason() {
        let other = ProblemView { reason: "PortConflict".to_owned(), ..problem(9) };
        let problems = [problem(1), other, problem(2)];
        assert_eq!(by_reason(problems.iter()), BTreeMap::from([("BindFailed", 2), ("PortConflict", 1)]));
    }
}
