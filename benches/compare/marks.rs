//! Mark: a figure of Sheave in a row, with its limits. The list of marks is in `rows`.

use serde::Serialize;

use crate::entrant::{Entrant, Scene, Subject};
use crate::sample::{Metric, Series, Summary};

/// Direction that is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Higher,
    Lower,
}

/// Divisor of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rival {
    /// Figure of another subject with as many workers.
    Subject(Subject),
    /// Own figure in the row's first scene.
    FirstScene,
    /// Own figure with one worker.
    OneWorker,
    /// No divisor.
    Nobody,
}

/// Figure with its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Whose figure it is: one of this project's.
    subject: Subject,
    what: &'static str,
    metric: Metric,
    /// Whether to use units per cost instead of cost per unit.
    inverse: bool,
    rival: Rival,
    workers: usize,
    /// Minimum number of cores; with fewer, clients and servers take the workers' cores.
    least_cores: usize,
    better: Better,
    must: f64,
    moonshot: Option<f64>,
}

/// Outcome of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    /// The whole interval is at the moonshot or better.
    Moonshot,
    /// The whole interval is at the mark or better.
    Met,
    /// The mark is inside the interval, or there are too few rounds for one.
    WithinNoise,
    /// The whole interval is worse than the mark.
    Missed,
    /// No figure.
    NotMeasured,
}

impl Mark {
    /// Mark for a figure that must not be lower than `must`.
    pub(crate) const fn at_least(
        what: &'static str,
        metric: Metric,
        rival: Rival,
        must: f64,
        moonshot: Option<f64>,
    ) -> Self {
        let (better, inverse, workers, least_cores) = (Better::Higher, false, 1, 1);
        let subject = Subject::Sheave;
        Self { subject, what, metric, inverse, rival, workers, least_cores, better, must, moonshot }
    }

    /// Mark for a figure that must not be higher than `must`.
    pub(crate) const fn at_most(
        what: &'static str,
        metric: Metric,
        rival: Rival,
        must: f64,
        moonshot: Option<f64>,
    ) -> Self {
        Self { better: Better::Lower, ..Self::at_least(what, metric, rival, must, moonshot) }
    }

    /// Copy of the mark for another subject.
    pub(crate) const fn of(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }

    /// Mark for units per second of the proxy's processor time.
    pub(crate) const fn per_cpu_second(rival: Rival, must: f64, moonshot: f64) -> Self {
        let mark = Self::at_least("per CPU second", Metric::ProcessCost, rival, must, Some(moonshot));
        Self { inverse: true, ..mark }
    }

    /// Mark for the 99th percentile with two workers, relative to another subject with two.
    pub(crate) const fn tail_of_two_workers(rival: Rival, must: f64, moonshot: f64) -> Self {
        Self { workers: 2, ..Self::at_most("p99, 2 workers", Metric::P99, rival, must, Some(moonshot)) }
    }

    /// Mark for the gain of a second worker, on machines whose load leaves it a core.
    pub(crate) const fn second_worker() -> Self {
        let mark = Self::at_least("rate, 2 workers", Metric::Rate, Rival::OneWorker, 1.7, Some(1.9));
        Self { workers: 2, least_cores: 4, ..mark }
    }

    /// Whether a machine with this many cores can show it.
    pub(crate) fn can_be_judged_on(&self, cores: usize) -> bool {
        cores >= self.least_cores
    }

    /// Entrant whose figure is judged, and the one it is divided by, in a row of these scenes.
    pub(crate) fn pair(&self, scenes: &[Scene]) -> (Entrant, Option<Entrant>) {
        let scene = |at: Option<&Scene>| at.copied().unwrap_or(Scene::Usual);
        let first = Entrant { subject: self.subject, workers: self.workers, scene: scene(scenes.first()) };
        let last = Entrant { scene: scene(scenes.last()), ..first };
        match self.rival {
            Rival::Subject(subject) => (first, Some(Entrant { subject, ..first })),
            Rival::FirstScene => (last, Some(first)),
            Rival::OneWorker => (first, Some(Entrant { workers: 1, ..first })),
            Rival::Nobody => (last, None),
        }
    }

    /// The figure; `None` if a series has no runs.
    pub(crate) fn value(&self, ours: &Series, theirs: Option<&Series>) -> Option<Summary> {
        match (self.rival, theirs) {
            (Rival::Nobody, _) => ours.summary(self.metric),
            (_, Some(theirs)) if self.inverse => theirs.ratio(ours, self.metric),
            (_, Some(theirs)) => ours.ratio(theirs, self.metric),
            (_, None) => None,
        }
    }

    /// Outcome for a figure, by the position of its interval.
    pub(crate) fn outcome(&self, value: &Summary) -> Outcome {
        let (best, worst) = match self.better {
            Better::Higher => (value.high, value.low),
            Better::Lower => (value.low, value.high),
        };
        // A figure without a divisor is a count or a size, which does not vary with other load on the
        // machine.
        let sure = value.is_sure() || self.rival == Rival::Nobody;
        match self.moonshot {
            _ if !sure => Outcome::WithinNoise,
            Some(moonshot) if self.holds(worst, moonshot) => Outcome::Moonshot,
            _ if self.holds(worst, self.must) => Outcome::Met,
            _ if self.holds(best, self.must) => Outcome::WithinNoise,
            _ => Outcome::Missed,
        }
    }

    fn holds(&self, value: f64, limit: f64) -> bool {
        match self.better {
            Better::Higher => value >= limit,
            Better::Lower => value <= limit,
        }
    }

    /// Whether `now` is worse than `before` by more than both intervals.
    pub(crate) fn is_worse(&self, before: &Summary, now: &Summary) -> bool {
        match self.better {
            Better::Higher => now.high < before.low,
            Better::Lower => now.low > before.high,
        }
    }

    /// Names of the figure and of the mark.
    pub(crate) fn words(&self, row: &str, rival: Option<Entrant>) -> (String, String) {
        let sign = if self.better == Better::Higher { ">=" } else { "<=" };
        let whose = rival.map_or(String::new(), |rival| format!(" {}", rival.label()));
        let limit = self.limit(self.must);
        let subject =
            if self.subject == Subject::Sheave { String::new() } else { format!("{} ", self.subject.name()) };
        (
            format!("{row} {subject}{}{}{whose}", self.what, if rival.is_some() { " to" } else { "" }),
            format!("{row} {subject}{} {sign} {limit}{whose}", self.what),
        )
    }

    /// Value with its interval, and the outcome.
    pub(crate) fn verdict(&self, value: &Summary, outcome: Outcome) -> String {
        let Summary { median, low, high, rounds } = value;
        let suffix = self.suffix();
        let figure = format!("{median:.2}{suffix} ({low:.2}..{high:.2})");
        match outcome {
            Outcome::Missed if self.must > 0.0 => {
                let percent = (median - self.must).abs() / self.must * 100.0;
                // A miss is shown as a miss, however small.
                let digits = usize::from(percent < 1.0);
                format!("{figure} not met, by {percent:.digits$} %")
            }
            Outcome::Missed => format!("{figure} not met"),
            Outcome::WithinNoise if !value.is_sure() => {
                format!("{figure} no verdict from {rounds} rounds")
            }
            Outcome::WithinNoise => format!("{figure} within noise, {rounds} rounds"),
            Outcome::Moonshot => format!("{figure} moonshot met"),
            Outcome::Met | Outcome::NotMeasured => match self.moonshot {
                Some(moonshot) => format!("{figure} met (moonshot {})", self.limit(moonshot)),
                None => format!("{figure} met"),
            },
        }
    }

    fn suffix(&self) -> &'static str {
        if self.rival == Rival::Nobody { "" } else { "x" }
    }

    /// Formats a limit with two decimals, and zero without any.
    fn limit(&self, limit: f64) -> String {
        if limit == 0.0 { "0".to_owned() } else { format!("{limit:.2}{}", self.suffix()) }
    }
}
