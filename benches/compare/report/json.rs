//! The figures as JSON, with what is needed to judge them: machine, kernel, commit, versions, options, every single run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::{Results, RowResult};
use crate::failure::{During, Failure};
use crate::marks::Verdict;
use crate::sample::{Metric, Series};
use crate::subjects::Installed;

/// All metrics with a ratio that says something.
const COMPARED: [Metric; 5] =
    [Metric::Rate, Metric::ProcessCost, Metric::MachineCost, Metric::P99, Metric::IdleKib];

const MEASURED: [Metric; 9] = [
    Metric::Rate,
    Metric::ProcessCost,
    Metric::MachineCost,
    Metric::P50,
    Metric::P99,
    Metric::P999,
    Metric::Lost,
    Metric::PeakKib,
    Metric::IdleKib,
];

/// Writes everything to `file`. `options` are those of this bench run.
pub(crate) fn write(
    file: &Path,
    results: &Results,
    verdicts: &[Verdict],
    installed: &[Installed],
    options: &Value,
) -> Result<(), Failure> {
    let versions: BTreeMap<_, _> =
        installed.iter().map(|installed| (installed.subject.name(), installed.version.as_str())).collect();
    let absent: BTreeMap<_, _> = results.absent.iter().map(|(subject, why)| (subject.name(), why)).collect();
    let document = json!({
        "machine": machine(),
        "commit": commit(),
        "unixTime": SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        "options": options,
        "versions": versions,
        "absent": absent,
        "rows": results.rows.iter().map(row).collect::<Vec<_>>(),
        "marks": verdicts,
    });
    fs::write(file, format!("{document:#}\n")).during(format!("write {}", file.display()))
}

fn row(row: &RowResult) -> Value {
    let units = row.load.units();
    let reference = row.series.get(&row.reference);
    let subjects: Map<String, Value> = row
        .series
        .iter()
        .map(|(subject, series)| (subject.name().to_owned(), figures(series, reference)))
        .collect();
    json!({
        "row": row.name,
        "load": row.load.describe(),
        "rateUnit": units.rate,
        "costUnit": units.cost,
        "reference": row.reference.name(),
        "subjects": subjects,
    })
}

fn figures(series: &Series, reference: Option<&Series>) -> Value {
    let summaries: BTreeMap<_, _> = MEASURED
        .into_iter()
        .filter_map(|metric| series.summary(metric).map(|summary| (metric, summary)))
        .collect();
    let ratios: BTreeMap<_, _> = COMPARED
        .into_iter()
        .filter_map(|metric| series.ratio(reference?, metric).map(|ratio| (metric, ratio)))
        .collect();
    json!({
        "summary": summaries,
        "ratio": ratios,
        "samples": series.samples,
        "failures": series.failures,
    })
}

fn machine() -> Value {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    json!({
        "cores": thread::available_parallelism().map_or(0, usize::from),
        "cpu": model.map_or("unknown", |(_, name)| name.trim()),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "loadAverageAtEnd": read("/proc/loadavg").trim(),
    })
}

/// The commit that was built, marked when the tree had changes.
fn commit() -> String {
    let words = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"];
    let output = Command::new("git").args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let said = output.ok().filter(|output| output.status.success());
    said.map_or("unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
