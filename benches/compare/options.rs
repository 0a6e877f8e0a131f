//! The command line of the bench: everything after `--`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::rows::{ROWS, Row};
use crate::subjects::Subject;

/// Compares Sheave with the routed path, HAProxy and nginx, each in the same three network namespaces.
#[derive(Debug, Parser)]
#[command(name = "compare")]
pub(crate) struct Options {
    /// Fewer and shorter runs, under two minutes in all
    #[arg(long)]
    quick: bool,
    /// Only these rows, for example `bulk-1,connect`
    #[arg(long, value_delimiter = ',', value_name = "ROW")]
    only: Vec<String>,
    /// Only these subjects
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Subject::ALL)]
    pub(crate) subjects: Vec<Subject>,
    /// Runs of each subject on each row [default: 5, or 3 with --quick]
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of each run in seconds [default: 2, or 0.7 with --quick]
    #[arg(long)]
    seconds: Option<f64>,
    /// Connections of the idle row; each takes two file descriptors here and two in the proxy
    #[arg(long, default_value_t = 5000)]
    pub(crate) idle_connections: usize,
    /// Proxies on the first core, clients and servers on the others (default: as the scheduler likes)
    #[arg(long)]
    pub(crate) pin: bool,
    /// Where the figures go [default: target/compare.json]
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Fail when a subject is absent
    #[arg(long)]
    pub(crate) strict: bool,
    /// Cargo passes it to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// The rows asked for, or the names that are none.
    pub(crate) fn rows(&self) -> Result<Vec<&'static Row>, String> {
        let known = |name: &String| ROWS.iter().any(|row| row.name == name);
        if let Some(unknown) = self.only.iter().find(|name| !known(name)) {
            let names = ROWS.map(|row| row.name).join(", ");
            return Err(format!("no row is called `{unknown}`; there are {names}"));
        }
        let wanted = |row: &&Row| self.only.is_empty() || self.only.iter().any(|name| name == row.name);
        Ok(ROWS.iter().filter(wanted).collect())
    }

    /// Runs of each subject on each row.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 5 }).max(1)
    }

    /// Length of a run.
    pub(crate) fn duration(&self) -> Duration {
        let seconds = self.seconds.unwrap_or(if self.quick { 0.7 } else { 2.0 });
        Duration::from_secs_f64(seconds.clamp(0.1, 60.0))
    }
}
