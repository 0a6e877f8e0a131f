//! `sheave validate`: mistakes in the configuration and the manifests, and load balancers that are not served.

use crate::arguments::Validate;
use crate::exit::Exit;
use crate::manifests::{ManifestProjection, Manifests};
use crate::options::Options;
use crate::stdout::{print, render};
use crate::views::escape::line;
use crate::views::validation::{ConfigMistake, ValidationView};

/// Prints every mistake in the configuration and the manifests on stdout. Load balancers that are not served are only noted, and do
/// not change the exit code: another implementation may serve them.
pub fn run(command: &Validate, config: &Options, mistakes: Vec<ConfigMistake>) -> Exit {
    let manifests = command.manifests.folders().map(Manifests::load);
    let read = manifests.map(|manifests| {
        let count = manifests.count();
        (count, ManifestProjection::new(manifests, config).routes(config))
    });
    let view = ValidationView::new(mistakes, read);
    let printed = print(&render(&view, || view.to_text(), command.output));
    match (printed, view.problems.is_empty(), view.config.is_empty()) {
        (Exit::Ok, true, true) => Exit::Ok,
        (Exit::Ok, true, false) => Exit::Config,
        (Exit::Ok, false, _) => Exit::Data,
        (failed, ..) => failed,
    }
}

/// Prints the mistakes of an invalid configuration.
pub fn print_mistakes(mistakes: &[ConfigMistake]) -> Exit {
    for mistake in mistakes {
        eprint!("{}", line(&format!("config: {mistake}")));
    }
    Exit::Config
}

#[cfg(test)]
mod tests;
