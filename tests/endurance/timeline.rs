//! Timeline of a run: its events and failures, and how they relate.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The port was closed (TCP), or ICMP reported it (UDP).
    Refused,
    /// The connection was reset.
    Reset,
    /// The connection ended early.
    Cut,
    /// No answer.
    Silent,
    /// A different endpoint answered than before.
    Moved,
    /// The endpoint answered again, but saw another source port.
    Renumbered,
    /// Anything else.
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Cut => "cut short",
            Self::Silent => "unanswered",
            Self::Moved => "moved",
            Self::Renumbered => "with another source port",
            Self::Other => "otherwise wrong",
        })
    }
}

impl Kind {
    /// All kinds, in the order of a report.
    const ALL: [Self; 7] =
        [Self::Refused, Self::Reset, Self::Cut, Self::Silent, Self::Moved, Self::Renumbered, Self::Other];

    /// Kind of a socket error.
    pub(crate) fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Self::Refused,
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => Self::Reset,
            std::io::ErrorKind::UnexpectedEof => Self::Cut,
            std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => Self::Silent,
            _ => Self::Other,
        }
    }
}

/// Failed request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Start of the request.
    pub(crate) since: Instant,
    /// Time of the failure.
    pub(crate) at: Instant,
    /// Kind of the failure.
    pub(crate) kind: Kind,
    /// Details.
    pub(crate) what: String,
}

/// Requests of one kind of load.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Name of the load.
    pub(crate) name: &'static str,
    /// Number of successful requests.
    pub(crate) done: u64,
    /// Failed requests.
    pub(crate) failures: Vec<Failure>,
    /// Latency of each successful request, in microseconds.
    pub(crate) took: Vec<u32>,
}

impl Tally {
    /// Empty tally.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// Counts a success, `took` after it was due.
    pub(crate) fn success(&mut self, took: Duration) {
        self.done += 1;
        self.took.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// Counts a failure of a request that started at `since`.
    pub(crate) fn failure(&mut self, since: Instant, kind: Kind, what: String) {
        self.failures.push(Failure { since, at: Instant::now(), kind, what });
    }

    /// Number of failures of a kind.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.failures.iter().filter(|failure| failure.kind == kind).count()
    }

    /// Number of failures by kind.
    pub(crate) fn counts(&self) -> BTreeMap<Kind, usize> {
        Kind::ALL.into_iter().map(|kind| (kind, self.count(kind))).collect()
    }
}

impl fmt::Display for Tally {
    /// Formats `184,000 new connections (p50 0.4 ms, p99.9 12.1 ms, max 31.0 ms)`, and failures, if any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = |share: f64| {
            let index = (took.len().saturating_sub(1)) as f64 * share;
            f64::from(took.get(index as usize).copied().unwrap_or_default()) / 1000.0
        };
        let (middle, tail, most) = (at(0.5), at(0.999), at(1.0));
        write!(f, "{} {} (p50 {middle:.1} ms, p99.9 {tail:.1} ms, max {most:.1} ms", self.done, self.name)?;
        for (kind, count) in self.counts().into_iter().filter(|(_, count)| *count > 0) {
            write!(f, "; {count} {kind}")?;
        }
        f.write_str(")")
    }
}

/// Events of a run, in order.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    events: Vec<(String, Instant, Instant)>,
}

impl Timeline {
    /// Runs a named action, and records its times.
    pub(crate) fn during<T>(&mut self, name: String, action: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = action();
        self.events.push((name, began, Instant::now()));
        done
    }

    /// Describes a time, such as `41 ms after upgrade 3 began` or `1204 ms after upgrade 3 was over`.
    pub(crate) fn describe(&self, at: Instant) -> String {
        match self.events.iter().rev().find(|(_, began, _)| *began <= at) {
            Some((name, began, ended)) if at <= *ended => {
                format!("{} ms after {name} began", at.duration_since(*began).as_millis())
            }
            Some((name, _, ended)) => {
                format!("{} ms after {name} was over", at.duration_since(*ended).as_millis())
            }
            None => "before anything happened".to_owned(),
        }
    }

    /// Panics if any request failed, with a summary of each kind.
    pub(crate) fn expect_no_failure(&self, tallies: &[Tally]) {
        self.expect(tallies, |_, _| false);
    }

    /// Panics if any request failed that may not fail.
    pub(crate) fn expect(&self, tallies: &[Tally], may_fail: impl Fn(&Tally, &Failure) -> bool) {
        const SHOWN: usize = 12;
        let of_tally = |tally| {
            let tally: &Tally = tally;
            tally.failures.iter().map(move |failure| (tally, failure))
        };
        let failures: Vec<(&Tally, &Failure)> =
            tallies.iter().flat_map(of_tally).filter(|(tally, failure)| !may_fail(tally, failure)).collect();
        let line = |(tally, failure): &(&Tally, &Failure)| {
            let Failure { at, kind, what, .. } = failure;
            format!("{}: {kind}, {}: {what}", tally.name, self.describe(*at))
        };
        let lines: Vec<String> = failures.iter().take(SHOWN).map(line).collect();
        let totals: Vec<String> = tallies.iter().map(Tally::to_string).collect();
        assert!(
            failures.is_empty(),
            "{} failed:\n{}\nof {}",
            failures.len(),
            lines.join("\n"),
            totals.join("\nand ")
        );
    }
}
