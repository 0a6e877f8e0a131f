//! `sheave validate`: mistakes in the configuration and the manifests, and load balancers that are not served.

use super::manifests::{ManifestProjection, Manifests};
use super::stdout::print;
use crate::cli::Validate;
use crate::config::{Config, ConfigMistake};
use crate::exit::Exit;
use crate::views::problem::{LISTED, ProblemView};
use crate::views::routes::RoutesView;
use crate::views::visible::line;

/// Tells every mistake in the configuration and the manifests: one line each, on stdout. Load balancers that are not served
/// are notes, which change nothing of how it exits: others may serve them.
pub(crate) fn run(command: &Validate, config: Result<Config, Vec<ConfigMistake>>) -> Exit {
    let (config, mistakes) = match config {
        Ok(config) => (config, Vec::new()),
        // The manifests are judged by the defaults then.
        Err(mistakes) => (Config::fallback(), mistakes),
    };
    let folders = command.manifests.folders();
    let manifests = folders.map(Manifests::load);
    let read = manifests.as_ref().map(Manifests::count);
    let view = manifests.map(|manifests| ManifestProjection::new(manifests, &config).routes(&config));
    let problems = view.as_ref().map(|view| view.problems.as_slice()).unwrap_or_default();
    let report = validation(&mistakes, problems, &view.as_ref().map(notes).unwrap_or_default(), read);
    match (print(&report), problems.is_empty(), mistakes.is_empty()) {
        (Exit::Ok, true, true) => Exit::Ok,
        (Exit::Ok, true, false) => Exit::Config,
        (Exit::Ok, false, _) => Exit::Data,
        (failed, ..) => failed,
    }
}

/// What `sheave validate` prints; `read` is how many objects there are, if there are manifests.
fn validation(
    mistakes: &[ConfigMistake],
    problems: &[ProblemView],
    notes: &[String],
    read: Option<usize>,
) -> String {
    let mut report: String = mistakes.iter().map(|mistake| line(&format!("config: {mistake}"))).collect();
    report.extend(problems.iter().map(|problem| line(&problem.to_string())));
    report.extend(notes.iter().map(|note| line(&format!("note: {note}"))));
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let wrong = mistakes.len() + problems.len();
    report
        + &match (wrong, notes.len()) {
            (0, 0) => match read {
                Some(read) => format!("no problems in {}\n", counted(read, "object")),
                None => {
                    "no problems in the configuration; no manifests were given (--manifests DIR)\n".to_owned()
                }
            },
            (_, 0) => format!("{}\n", counted(wrong, "problem")),
            (_, notes) => format!("{}, {}\n", counted(wrong, "problem"), counted(notes, "note")),
        }
}

/// The load balancers that are not served, the first of them by name, and what else may surprise.
fn notes(view: &RoutesView) -> Vec<String> {
    let mut notes: Vec<String> = view.not_served.iter().take(LISTED).map(ToString::to_string).collect();
    if let more @ 1.. = view.not_served.len().saturating_sub(LISTED) {
        notes.push(format!(
            "{more} more objects of type LoadBalancer are not served; `sheave routes -o json` lists all"
        ));
    }
    notes.extend(view.notes.iter().cloned());
    notes
}

/// Tells the mistakes of a configuration that a command cannot work with.
pub(crate) fn print_mistakes(mistakes: &[ConfigMistake]) -> Exit {
    for mistake in mistakes {
        eprint!("{}", line(&format!("config: {mistake}")));
    }
    Exit::Config
}

#[cfg(test)]
mod tests;
