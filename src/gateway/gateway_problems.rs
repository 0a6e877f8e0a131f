//! Problems of a gateway: of its sources, of objects and of serving them. Each one is logged when it appears and when it is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sheave_console::http::report::Failure;
use sheave_console::views::problem::ProblemView;
use sheave_control::api::problem::{Problem, ProblemChanges};
use sheave_control::pipeline::Pipeline;
use sheave_control::sources::Sources;
use sheave_dataplane::Dataplane;

use super::dataplane_failures::Failures;
use super::overload::Overload;
use super::sources;

/// How many Problems are logged individually at a time. A shortage may affect every frontend at once, and thousands of lines
/// would push others out of the log.
const ONE_BY_ONE: usize = 100;

/// Problems of serving, and the log of all.
#[derive(Debug, Default)]
pub(super) struct GatewayProblems {
    pub(super) failures: Failures,
    overload: Overload,
    log: ProblemLog,
}

impl GatewayProblems {
    /// All that are known.
    pub(super) fn all(&self, pipeline: &Pipeline, is_projected: bool) -> Vec<ProblemView> {
        let place = |problem: &Problem| sources::place(&pipeline.sources, problem);
        let mut all = sources::problems(&pipeline.sources);
        if is_projected {
            all.extend(pipeline.projector.problems().map(|problem| place(problem)));
            all.extend(self.failures.all().iter().map(|failure| place(&failure.problem)));
            all.extend(self.overload.problems().iter().map(place));
        }
        all
    }

    /// Logs changes of failures of the data plane, and returns these failures.
    pub(super) fn log_failures(&mut self, sources: &Sources) -> &[Failure] {
        let failures = self.failures.all();
        self.log.failures(failures.iter().map(|failure| sources::place(sources, &failure.problem)));
        failures
    }

    /// Logs overloaded frontends when they change. Returns whether they may have.
    pub(super) fn refresh_overload(&mut self, dataplane: &Dataplane, sources: &Sources) -> bool {
        let differs = self.overload.refresh(dataplane);
        if differs {
            let problems = self.overload.problems().iter();
            self.log.overload(problems.map(|problem| sources::place(sources, problem)));
        }
        differs
    }

    /// Logs Problems of sources and objects, after each change of them.
    pub(super) fn log_objects(&mut self, pipeline: &Pipeline, changes: &ProblemChanges) {
        let place = |problem: &Arc<Problem>| sources::place(&pipeline.sources, problem);
        self.log.sources(sources::problems(&pipeline.sources).into_iter());
        if pipeline.sources.folders().next().is_some() {
            // When a file changes, the same Problem may move to another line.
            self.log.objects(pipeline.projector.problems().map(place));
        } else {
            let ProblemChanges { came, gone } = changes;
            self.log.changed_objects(&came.iter().map(place).collect(), &gone.iter().map(place).collect());
        }
    }

    /// Number of Problems.
    pub(super) fn count(&self) -> usize {
        self.log.count()
    }

    /// Number of Problems by reason.
    pub(super) fn by_reason(&self) -> &BTreeMap<String, usize> {
        &self.log.by_reason
    }
}

/// Problems that have been logged.
#[derive(Debug, Default)]
struct ProblemLog {
    sources: BTreeSet<ProblemView>,
    objects: BTreeSet<ProblemView>,
    failures: BTreeSet<ProblemView>,
    overload: BTreeSet<ProblemView>,
    /// Number of Problems by reason, for scrapes.
    by_reason: BTreeMap<String, usize>,
}

impl ProblemLog {
    /// Logs changes of Problems of the sources.
    fn sources(&mut self, now: impl Iterator<Item = ProblemView>) {
        log_changes(&mut self.sources, &mut self.by_reason, now);
    }

    /// Logs changes of Problems of objects.
    fn objects(&mut self, now: impl Iterator<Item = ProblemView>) {
        log_changes(&mut self.objects, &mut self.by_reason, now);
    }

    /// Like [`Self::objects`], for known changes.
    fn changed_objects(&mut self, came: &BTreeSet<ProblemView>, gone: &BTreeSet<ProblemView>) {
        log(came.iter(), gone.iter());
        for problem in gone {
            if self.objects.remove(problem) {
                uncount(&mut self.by_reason, problem);
            }
        }
        for problem in came {
            if self.objects.insert(problem.clone()) {
                count(&mut self.by_reason, problem);
            }
        }
    }

    /// Logs changes of failures of the gateway.
    fn failures(&mut self, now: impl Iterator<Item = ProblemView>) {
        log_changes(&mut self.failures, &mut self.by_reason, now);
    }

    /// Logs changes of overloaded frontends.
    fn overload(&mut self, now: impl Iterator<Item = ProblemView>) {
        log_changes(&mut self.overload, &mut self.by_reason, now);
    }

    /// Number of Problems.
    fn count(&self) -> usize {
        self.sources.len() + self.objects.len() + self.failures.len() + self.overload.len()
    }
}

fn log_changes(
    logged: &mut BTreeSet<ProblemView>,
    reasons: &mut BTreeMap<String, usize>,
    now: impl Iterator<Item = ProblemView>,
) {
    let now: BTreeSet<ProblemView> = now.collect();
    log(now.difference(logged), logged.difference(&now));
    logged.difference(&now).for_each(|problem| uncount(reasons, problem));
    now.difference(logged).for_each(|problem| count(reasons, problem));
    *logged = now;
}

fn count(reasons: &mut BTreeMap<String, usize>, problem: &ProblemView) {
    match reasons.get_mut(&problem.reason) {
        Some(count) => *count += 1,
        None => drop(reasons.insert(problem.reason.clone(), 1)),
    }
}

fn uncount(reasons: &mut BTreeMap<String, usize>, problem: &ProblemView) {
    if let Some(count) = reasons.get_mut(&problem.reason) {
        *count -= 1;
        if *count == 0 {
            reasons.remove(&problem.reason);
        }
    }
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
        assert_eq!(&logged.by_reason, &BTreeMap::from([("BindFailed".to_owned(), 3)]));
        logged.objects(std::iter::empty());
        assert_eq!(logged.count(), 2);
        logged.failures(std::iter::empty());
        assert!(logged.by_reason.is_empty());
    }

    #[test]
    fn objects_are_followed_by_what_changed() {
        let mut logged = ProblemLog::default();
        logged.changed_objects(&(1..=1_000).map(problem).collect(), &BTreeSet::new());
        logged.changed_objects(&[problem(2_000)].into(), &[problem(1), problem(2)].into());
        assert_eq!(logged.count(), 999);
        assert_eq!(logged.by_reason["BindFailed"], 999);
        assert!(logged.objects.contains(&problem(2_000)) && !logged.objects.contains(&problem(2)));
    }

    #[test]
    fn what_is_left_is_counted_by_reason() {
        let other = ProblemView { reason: "PortConflict".to_owned(), ..problem(9) };
        let problems = [problem(1), other, problem(2)];
        assert_eq!(by_reason(problems.iter()), BTreeMap::from([("BindFailed", 2), ("PortConflict", 1)]));
    }
}
