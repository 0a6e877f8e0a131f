//! `cargo bench --bench scale`: runs the gateway and the controller as processes against the test API server, with as
//! many objects as large clusters have. Measures memory, processor time and the times in the log.
//!
//! Sheave is only used from outside: configuration and objects in, admin pages and writes out.

mod cases;
mod fleet;
mod objects;
mod options;
mod process;
mod report;

use sheave_test_support as support;

use std::process::ExitCode;

use clap::Parser;
use nix::sys::resource::{Resource, getrlimit};

use options::Options;

/// Exit code of sysexits(3) for wrong usage.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let options = Options::parse();
    let chosen = match options.cases() {
        Ok(chosen) => chosen,
        Err(problem) => {
            eprintln!("scale: {problem}");
            return ExitCode::from(USAGE);
        }
    };
    let sizes = options.sizes();
    println!("one worker per gateway; at most {} open files per process\n", open_files());
    report::print_head();
    let mut missed = false;
    for case in chosen {
        for row in case.run(&sizes) {
            report::print_row(&row);
            missed |= row.missed();
        }
    }
    if missed && options.strict { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Hard limit of open files. Every process that is started here raises its own limit to it.
fn open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard)
}
