//! Circumstances of a measurement: machine, kernel, commit and versions, without which figures mean nothing.

use std::fs;
use std::process::Command;
use std::thread;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Circumstances that the figures depend on.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Circumstances {
    /// Cores that the bench may use.
    pub(crate) cores: usize,
    /// Model name of the processor.
    pub(crate) cpu: String,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// Commit of the built tree, marked if it had changes.
    pub(crate) commit: String,
    /// Time of the run, in UTC.
    pub(crate) time: Timestamp,
    /// Load average before the first run, if other programs were busy.
    pub(crate) busy: Option<f64>,
    /// Version of each subject.
    pub(crate) versions: Vec<(&'static str, String)>,
    /// Options of this run.
    pub(crate) options: Value,
}

impl Circumstances {
    /// Reads the circumstances of this machine and tree.
    pub(crate) fn of_this_machine(versions: Vec<(&'static str, String)>, options: Value) -> Self {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(':'));
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            cpu: model.map_or("unknown processor", |(_, name)| name.trim()).to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: commit(),
            time: Timestamp::now(),
            busy: None,
            versions,
            options,
        }
    }

    /// Sentence with day, commit and machine.
    pub(crate) fn sentence(&self) -> String {
        let Self { cores, cpu, kernel, commit, .. } = self;
        let day = self.time.strftime("%Y-%m-%d");
        let (hash, rest) = commit.split_at(commit.len().min(12));
        let changed = if rest.ends_with("-dirty") { " with changes" } else { "" };
        let cores = if *cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
        let busy = self.busy.map_or(String::new(), |load| format!(", busy (load average {load})"));
        format!("{day}, commit {hash}{changed}; {cores}, {cpu}, Linux {kernel}{busy}")
    }

    /// Compared subjects with their versions.
    pub(crate) fn peers(&self) -> String {
        let peers: Vec<_> = self
            .versions
            .iter()
            .filter(|(name, _)| matches!(*name, "haproxy" | "nginx" | "envoy"))
            .map(|(name, said)| format!("{name} {}", number(said)))
            .collect();
        peers.join(", ")
    }
}

/// Version number in a program's output: the first word that starts with a digit and contains a point.
fn number(said: &str) -> &str {
    let mut parts = said.split(|c: char| c.is_whitespace() || c == '/');
    let version = parts.find(|part| part.starts_with(|c: char| c.is_ascii_digit()) && part.contains('.'));
    version.map_or("unknown", |version| version.split(['-', '+']).next().unwrap_or(version))
}

fn commit() -> String {
    let words = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"];
    let output = Command::new("git").args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let said = output.ok().filter(|output| output.status.success());
    said.map_or("unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
