//! `cargo bench --bench compare`: Sheave beside the routed path, HAProxy and nginx, on the same load in the same three
//! network namespaces. Runs are interleaved, answers are verified, and processor time per unit stands beside each rate,
//! because it holds where rates on a small machine do not.
//!
//! It must not know Sheave from the inside: the subjects are programs.

mod failure;
mod load;
mod marks;
mod measure;
mod options;
mod pattern;
mod ports;
mod report;
mod rows;
mod run;
mod sample;
mod serve;
mod subjects;
mod topology;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use failure::{During, Failure};
use options::Options;
use report::{Results, RowResult};
use rows::Row;
use run::Setting;
use sample::Series;
use subjects::{Installed, Presence, Subject};
use topology::{Pinning, Topology};

/// File descriptors that the bench and each proxy may have; more would let HAProxy size its tables by a limit that no
/// run meets.
const FILES: u64 = 20_000;

/// File descriptors that are not those of idle connections.
const SPARE_FILES: u64 = 1_000;

/// A load average above this, before anything was started, says that somebody else computes.
const BUSY: f64 = 0.5;

/// sysexits(3): wrong usage, and a service that is unavailable.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    let options = Options::parse();
    let rows = match options.rows() {
        Ok(rows) => rows,
        Err(problem) => {
            eprintln!("compare: {problem}");
            return ExitCode::from(USAGE);
        }
    };
    match compare(&options, &rows) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("compare: {failure}");
            ExitCode::from(UNAVAILABLE)
        }
    }
}

fn compare(options: &Options, rows: &[&'static Row]) -> Result<ExitCode, Failure> {
    let (installed, absent) = find(&options.subjects);
    let mut results = Results { rows: Vec::new(), absent };
    report::print_absent(&results);
    warn_when_busy();
    if options.strict && !results.absent.is_empty() {
        return Err(Failure::Unsupported("a subject is absent, and --strict was given".to_owned()));
    }
    let setting = setting(options)?;
    let pinning = pinning(options)?;
    let addresses: Vec<_> = Subject::ALL.map(Subject::address)[1..].to_vec();
    let topology = Topology::build(&pinning, &addresses)?;
    serve::start(&topology.server)?;
    for row in rows {
        let result = run_row(row, &topology, &installed, options.rounds(), &setting);
        report::print_row(&result);
        results.rows.push(result);
    }
    let verdicts = marks::judge(&results);
    report::print_verdicts(&verdicts);
    let file = json_file(options);
    report::write_json(&file, &results, &verdicts, &installed, &described(options, &setting, &pinning))?;
    println!("\nall figures: {}", file.display());
    let failed = results.rows.iter().any(RowResult::failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Others that compute at the same time slow all subjects down alike, which ratios survive better than rates.
fn warn_when_busy() {
    let average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last_minute = average.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    if let Some(last_minute) = last_minute.filter(|load| *load > BUSY) {
        println!("the machine is busy (load average {last_minute}): trust ratios, not rates");
    }
}

fn find(subjects: &[Subject]) -> (Vec<Installed>, Vec<(Subject, &'static str)>) {
    let (mut installed, mut absent) = (Vec::new(), Vec::new());
    for subject in Subject::ALL.into_iter().filter(|subject| subjects.contains(subject)) {
        match subject.find() {
            Presence::Here(here) => {
                println!("{}: {}", subject.name(), here.version);
                installed.push(here);
            }
            Presence::Absent(why) => absent.push((subject, why)),
        }
    }
    (installed, absent)
}

/// A B C A B C: what changes on the machine in the course of the bench meets all subjects alike.
fn run_row(
    row: &'static Row,
    topology: &Topology,
    installed: &[Installed],
    rounds: usize,
    setting: &Setting,
) -> RowResult {
    let suited: Vec<_> = installed.iter().filter(|installed| row.load.suits(installed.subject)).collect();
    let mut result = RowResult {
        name: row.name,
        load: row.load,
        reference: row.load.reference(),
        series: suited.iter().map(|installed| (installed.subject, Series::default())).collect(),
    };
    for round in 1..=rounds {
        for installed in &suited {
            let Some(series) = result.series.get_mut(&installed.subject) else { continue };
            match run::once(topology, installed, row.load, setting) {
                Ok(sample) => series.samples.push(Some(sample)),
                Err(failure) => {
                    series.samples.push(None);
                    series.failures.push(format!("round {round}: {failure}"));
                }
            }
        }
    }
    result
}

fn setting(options: &Options) -> Result<Setting, Failure> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).during("read RLIMIT_NOFILE")?;
    let files = hard.min(FILES);
    setrlimit(Resource::RLIMIT_NOFILE, files, hard).during("set RLIMIT_NOFILE")?;
    let most = usize::try_from(files.saturating_sub(SPARE_FILES) / 2).unwrap_or(usize::MAX);
    let idle_connections = options.idle_connections.min(most);
    if idle_connections < options.idle_connections {
        println!("idle connections: {idle_connections}, as {files} file descriptors allow no more");
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare");
    fs::create_dir_all(&dir).during(format!("make {}", dir.display()))?;
    let duration = options.duration();
    Ok(Setting { duration, warm_up: duration / 5, idle_connections, dir })
}

fn pinning(options: &Options) -> Result<Pinning, Failure> {
    let cores = thread::available_parallelism().during("count cores")?.get();
    match (options.pin, cores) {
        (false, _) => Ok(Pinning::default()),
        (true, 1) => Err(Failure::Unsupported("--pin needs two cores, this machine has one".to_owned())),
        (true, _) => Ok(Pinning { gateway: Some(vec![0]), ends: Some((1..cores).collect()) }),
    }
}

fn json_file(options: &Options) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let default = || target.unwrap_or(Path::new(".")).join("compare.json");
    options.json.clone().unwrap_or_else(default)
}

fn described(options: &Options, setting: &Setting, pinning: &Pinning) -> Value {
    json!({
        "rounds": options.rounds(),
        "seconds": setting.duration.as_secs_f64(),
        "idleConnections": setting.idle_connections,
        "proxyCores": pinning.gateway,
        "otherCores": pinning.ends,
        "workers": 1,
    })
}
