//! Conformance suite: the promises of Kubernetes for Services and EndpointSlices, of the Gateway API for Gateways and routes, and of Karmada
//! for MultiClusterServices, as data. Every YAML
//! file in this folder has the cases of one topic: objects, and the frontends, Problems and explanations that the real binary must produce.
//! [`format`] describes the files.
//!
//! Each case is a separate test, `file::case`, so that arguments of `cargo test` can select it: `cargo test --test conformance -- topology::`.
//! The cases are independent of the data path.

mod compare;
mod format;
mod gateway_status;
mod objects;
mod ranges;
mod reference;
mod sheave;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use self::format::{Case, Topic};

/// Options whose value is a separate argument.
const TAKES_VALUE: [&str; 5] = ["--skip", "--test-threads", "--format", "--color", "--logfile"];
/// Minimum number of cases; fewer means that files got lost.
const FEWEST: usize = 750;

fn main() -> ExitCode {
    let (arguments, filters) = arguments();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let exactly = filters.first().filter(|_| arguments.exact && filters.len() == 1);
    match trials(&folder, exactly.and_then(|name| name.split_once("::")).map(|(topic, _)| topic)) {
        Ok(mut trials) => {
            let matches = |name: &str, filter: &str| match arguments.exact {
                true => name == filter,
                false => name.contains(filter),
            };
            let wanted = |trial: &Trial| filters.iter().any(|filter| matches(trial.name(), filter));
            trials.retain(|trial| filters.is_empty() || wanted(trial));
            libtest_mimic::run(&arguments, trials).exit_code()
        }
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// Parses the command line. Several filters may be given, as for other tests, which the crate would refuse.
fn arguments() -> (Arguments, Vec<String>) {
    let (options, filters) = std::env::args().partition(|argument| argument.starts_with('-'));
    let mut filters: Vec<String> = filters;
    let program = filters.remove(0);
    let options: Vec<String> = options;
    // An option with a separate value, such as `--skip NAME`, is left to the crate.
    if options.iter().any(|option| !option.contains('=') && TAKES_VALUE.contains(&option.as_str())) {
        return (Arguments::from_args(), Vec::new());
    }
    (Arguments::from_iter(std::iter::once(program).chain(options)), filters)
}

/// Tests of all files, or only of topic `one`: if each case is a process, reading all files takes longer than the case. A file that cannot be
/// read is a failing test.
fn trials(folder: &Path, one: Option<&str>) -> std::io::Result<Vec<Trial>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort_unstable();
    let one: Vec<PathBuf> = files
        .iter()
        .filter(|path| path.file_stem().is_some_and(|stem| Some(stem) == one.map(OsStr::new)))
        .cloned()
        .collect();
    if !one.is_empty() {
        files = one;
    }
    let mut trials = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match format::read(&path) {
            Ok(topic) => trials.extend(of_topic(&name, topic)),
            Err(error) => {
                trials.push(Trial::test(format!("{name}::can-be-read"), move || Err(Failed::from(error))));
            }
        }
    }
    let names: BTreeSet<String> = trials.iter().map(|trial| trial.name().to_owned()).collect();
    let check = move || reference::check(&names).map_err(Failed::from);
    trials.push(Trial::test("suite::the-reference-names-what-is-there", check));
    let count = trials.len();
    trials.push(Trial::test("suite::no-case-got-lost", move || match count {
        FEWEST.. => Ok(()),
        _ => Err(Failed::from(format!("{count} cases, where at least {FEWEST} belong"))),
    }));
    Ok(trials)
}

fn of_topic(name: &str, topic: Topic) -> Vec<Trial> {
    let Topic { common, cases } = topic;
    let common = Arc::new(common);
    let trial = |case: Case| {
        let common = common.clone();
        Trial::test(format!("{name}::{}", case.name), move || {
            case.check(&common)
                .map_err(|found| Failed::from(format!("the rule: {}\n{}", case.rule, found.join("\n"))))
        })
    };
    cases.into_iter().map(trial).collect()
}

impl Case {
    /// Runs the program on the case's objects in the given and in the opposite order, which must not matter. The error lists all differences.
    fn check(&self, common: &format::Common) -> Result<(), Vec<String>> {
        let mut objects = objects::of_case(common, self).map_err(|error| vec![error])?;
        let mut karmada = objects::of_karmada(common, self).map_err(|error| vec![error])?;
        let mut config = common.config.clone();
        objects::merge(&mut config, &self.config);
        let node = self.node.as_deref().unwrap_or(&common.node);
        for order in ["as given", "reversed"] {
            let found = sheave::Input::write(&config, &objects, &karmada, node)
                .map_or_else(|error| vec![error.to_string()], |input| compare::check(self, &objects, &input));
            if !found.is_empty() {
                let heading = format!("objects in order {order}:");
                return Err(std::iter::once(heading).chain(found).collect());
            }
            objects.reverse();
            karmada.reverse();
        }
        Ok(())
    }
}
