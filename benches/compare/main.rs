//! `cargo bench --bench compare`: compares Sheave with HAProxy, nginx, Envoy, the routed path and kube-proxy's rules, with the same
//! load in the same three network namespaces. Runs are interleaved and answers are verified. Each rate comes with the processor time
//! per unit, which is reliable even on small machines where rates are not.
//!
//! Sheave is only used as a program, like the other subjects.

mod admin;
mod cores;
mod entrant;
mod failure;
mod load;
mod marks;
mod measure;
mod options;
mod pattern;
mod ports;
mod privilege;
mod report;
mod results;
mod rounds;
mod rows;
mod run;
mod sample;
mod serve;
mod subjects;
mod topology;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use cores::Pinning;
use entrant::Subject;
use failure::{During, Failure};
use marks::Outcome;
use options::Options;
use privilege::Right;
use report::Circumstances;
use results::{Results, RowResult};
use rounds::Bench;
use rows::{Load, MANY_FLOWS, Row};
use run::Setting;
use subjects::{Installed, Presence};
use topology::{LocalPorts, Topology};
use verdict::Baseline;

/// Limit of file descriptors for each proxy, unless a row needs more. HAProxy sizes its tables by this limit, and 30,000 frontends
/// must be served within it.
const FILES: u64 = 20_000;

/// File descriptors that are not those of connections or flows.
const SPARE_FILES: u64 = 1_200;

/// File descriptors for each connection of the crowd. A process needs two; Sheave reserves a share of its own for other Services.
const CROWD_FILES: u64 = 3;

/// File descriptors for each UDP flow of the Service that is deleted: Sheave leaves a half to TCP.
const FLOW_FILES: u64 = 2;

/// Load average before the start above which other programs are assumed to be busy.
const BUSY: f64 = 0.5;

/// Limit of threads that make or answer a load. Each can keep more than one worker busy.
const LOAD_THREADS: usize = 4;

/// Exit codes of sysexits(3): wrong usage, and unavailable service.
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
    // Must come first: only a process with a single thread can enter a user namespace.
    let right = privilege::obtain()?;
    let baseline = options.against.as_deref().map(read_baseline).transpose()?;
    let mut results = Results { workers: options.workers(), cores: cores()?, ..Results::default() };
    let obstacles = &mut results.obstacles;
    if right == Right::UserNamespace {
        println!("without root: in a user namespace");
    }
    if results.cores == 1 {
        println!("one core: clients, proxies and servers take turns on it; trust CPU per unit, not rates");
    }
    let installed = find(&options.subjects, options.envoy.as_deref(), obstacles);
    let rows = runnable(rows, &installed, &results.workers, obstacles);
    let pinning = pinning(options, results.cores, &results.workers, obstacles);
    let setting = setting(options, &rows, results.cores, pinning, obstacles)?;
    results.obstacles.iter().for_each(|obstacle| println!("CANNOT: {obstacle}"));
    if rows.is_empty() {
        return Err(Failure::Unsupported("nothing is left to run".to_owned()));
    }
    let busy = busy();
    if let Some(load) = busy {
        println!("the machine is busy (load average {load}): trust ratios, not rates");
    }
    // Hosts and loads are threads that this one starts, and proxies have cores of their own.
    setting.pinning.ends.as_deref().map(cores::stay_on).transpose()?;
    let topology = Topology::build(&subjects::addresses(), LocalPorts::Plentiful);
    serve::start(&topology.server, setting.load_threads)?;
    let (rounds, workers, cores) = (options.rounds(), results.workers.clone(), results.cores);
    let bench = Bench {
        topology: &topology,
        installed: &installed,
        setting: &setting,
        rounds,
        workers: &workers,
        cores,
    };
    for row in rows {
        let result = bench.run(row);
        report::print_row(&result);
        results.rows.push(result);
    }
    let circumstances =
        Circumstances { busy, cores: results.cores, ..circumstances(options, &installed, &setting) };
    conclude(options, &results, baseline.as_ref(), &circumstances)
}

/// Prints the verdicts and writes the files. Returns the exit code for the overall result.
fn conclude(
    options: &Options,
    results: &Results,
    baseline: Option<&Baseline>,
    circumstances: &Circumstances,
) -> Result<ExitCode, Failure> {
    let verdicts = verdict::judge(results);
    report::print_verdicts(&verdicts);
    let json = json_file(options);
    report::write(&json, &report::json(results, &verdicts, circumstances))?;
    println!("\nall figures: {}", json.display());
    if let Some(file) = &options.markdown {
        report::write(file, &report::markdown(results, &verdicts, circumstances))?;
    }
    let failed = results.rows.iter().any(RowResult::failed);
    let missed = verdicts.iter().any(|verdict| verdict.outcome == Outcome::Missed);
    let strictly = options.strict && (missed || !results.obstacles.is_empty());
    let comparison = baseline.map(|baseline| baseline.compare(&verdicts)).unwrap_or_default();
    if baseline.is_some() {
        report::print_comparison(&comparison);
    }
    Ok(if failed || strictly || !comparison.regressions.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn read_baseline(file: &Path) -> Result<Baseline, Failure> {
    let text = fs::read(file).during(format!("read {}", file.display()))?;
    serde_json::from_slice(&text)
        .map_err(|error| Failure::Unsupported(format!("{} is no baseline: {error}", file.display())))
}

fn cores() -> Result<usize, Failure> {
    Ok(thread::available_parallelism().during("count cores")?.get())
}

/// Load average, if it shows that other programs are busy. They slow down all subjects alike, which affects ratios less than rates.
fn busy() -> Option<f64> {
    let average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last_minute = average.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    last_minute.filter(|load| *load > BUSY)
}

fn find(subjects: &[Subject], envoy: Option<&Path>, obstacles: &mut Vec<String>) -> Vec<Installed> {
    let mut installed = Vec::new();
    for subject in Subject::ALL.into_iter().filter(|subject| subjects.contains(subject)) {
        match subjects::find(subject, envoy) {
            Presence::Here(here) => {
                println!("{}: {}", subject.name(), here.version);
                installed.push(here);
            }
            Presence::Absent(why) => obstacles.push(format!("{}: {why}", subject.name())),
        }
    }
    installed
}

/// Rows that this kernel and these subjects support.
fn runnable(
    rows: &[&'static Row],
    installed: &[Installed],
    workers: &[usize],
    obstacles: &mut Vec<String>,
) -> Vec<&'static Row> {
    let subjects: Vec<_> = installed.iter().map(|installed| installed.subject).collect();
    let mut left = Vec::new();
    for row in rows.iter().copied() {
        if matches!(row.load, Load::Bundle { .. }) && !load::bundle::supported() {
            obstacles.push(format!("{}: the kernel has no UDP_SEGMENT (Linux 4.18)", row.name));
        } else if row.entrants(&subjects, workers).is_empty() {
            obstacles.push(format!("{}: nobody is there who takes part", row.name));
        } else {
            left.push(row);
        }
    }
    left
}

fn setting(
    options: &Options,
    rows: &[&Row],
    cores: usize,
    pinning: Pinning,
    obstacles: &mut Vec<String>,
) -> Result<Setting, Failure> {
    let crowded = rows.iter().any(|row| matches!(row.load, Load::Crowd { .. }));
    let crowd = if crowded { options.crowd_connections() } else { 0 };
    let removed = rows.iter().any(|row| row.load == Load::RemoveFlows);
    let flows = if removed { usize::from(MANY_FLOWS) } else { 0 };
    let most = (CROWD_FILES * crowd as u64).max(FLOW_FILES * flows as u64);
    let files = allow_files(FILES.max(most + SPARE_FILES))?;
    let mut within = |what: &str, wanted: usize, files: u64, each: u64| {
        let most = usize::try_from(files.saturating_sub(SPARE_FILES) / each).unwrap_or(usize::MAX);
        if most < wanted {
            obstacles.push(format!("{wanted} {what}: {files} file descriptors allow {most}"));
        }
        wanted.min(most)
    };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare");
    fs::create_dir_all(&dir).during(format!("make {}", dir.display()))?;
    let duration = options.duration();
    Ok(Setting {
        duration,
        warm_up: duration / 5,
        idle_connections: within("connections", options.idle_connections, files.min(FILES), 2),
        crowd_connections: within("connections", crowd, files, CROWD_FILES),
        flows: within("flows", flows, files, FLOW_FILES) as u16,
        files: files.min(FILES),
        most_files: files,
        load_threads: (cores / 2).clamp(1, LOAD_THREADS),
        pinning,
        dir,
    })
}

/// Raises the limit of open files to `wanted`, or as far as allowed, and returns the new limit.
fn allow_files(wanted: u64) -> Result<u64, Failure> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).during("read RLIMIT_NOFILE")?;
    // Only CAP_SYS_RESOURCE in the initial user namespace can raise the hard limit.
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).is_ok() {
        return Ok(wanted);
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(wanted), hard).during("set RLIMIT_NOFILE")?;
    Ok(hard.min(wanted))
}

fn pinning(options: &Options, cores: usize, workers: &[usize], obstacles: &mut Vec<String>) -> Pinning {
    let proxies = workers.last().copied().unwrap_or(1);
    if options.pin && cores <= proxies {
        obstacles.push(format!("--pin: needs more cores than workers, and there are {cores} for {proxies}"));
    }
    if !options.pin || cores <= proxies {
        return Pinning::default();
    }
    Pinning { gateway: Some((0..proxies).collect()), ends: Some((proxies..cores).collect()) }
}

fn json_file(options: &Options) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let default = || target.unwrap_or(Path::new(".")).join("compare.json");
    options.json.clone().unwrap_or_else(default)
}

fn circumstances(options: &Options, installed: &[Installed], setting: &Setting) -> Circumstances {
    let version = |installed: &Installed| (installed.subject.name(), installed.version.clone());
    let described = json!({
        "rounds": options.rounds().least,
        "seconds": setting.duration.as_secs_f64(),
        "idleConnections": setting.idle_connections,
        "crowdConnections": setting.crowd_connections,
        "loadThreads": setting.load_threads,
        "proxyCores": setting.pinning.gateway,
        "otherCores": setting.pinning.ends,
        "workers": options.workers(),
    });
    Circumstances::of_this_machine(installed.iter().map(version).collect(), described)
}
