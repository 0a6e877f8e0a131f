//! `sheave validate`: mistakes in the configuration and the manifests, and load balancers that are not served.

use super::manifests::{ManifestProjection, Manifests};
use super::stdout::{print, render};
use crate::cli::Validate;
use crate::config::{Config, ConfigMistake};
use crate::exit::Exit;
use crate::views::validation::ValidationView;
use crate::views::visible::line;

/// Reports every mistake in the configuration and the manifests on stdout. Load balancers that are not served are notes, which change
/// nothing of how it exits: others may serve them.
pub(crate) fn run(command: &Validate, config: Result<Config, Vec<ConfigMistake>>) -> Exit {
    let (config, mistakes) = match config {
        Ok(config) => (config, Vec::new()),
        // The manifests are judged by the defaults then.
        Err(mistakes) => (Config::fallback(), mistakes),
    };
    let manifests = command.manifests.folders().map(Manifests::load);
    let read = manifests.map(|manifests| {
        let count = manifests.count();
        (count, ManifestProjection::new(manifests, &config).routes(&config))
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

/// Prints the mistakes of a configuration that a command cannot work with.
pub(crate) fn print_mistakes(mistakes: &[ConfigMistake]) -> Exit {
    for mistake in mistakes {
        eprint!("{}", line(&format!("config: {mistake}")));
    }
    Exit::Config
}

#[cfg(test)]
mod tests;
