//! `sheave validate`: mistakes in the configuration and the manifests, load balancers that are not served, and settings of this
//! machine that are too small.

use sheave_dataplane::small_settings;

use crate::arguments::Validate;
use crate::exit::Exit;
use crate::manifests::{ManifestProjection, Manifests};
use crate::options::Options;
use crate::stdout::{print, render};
use crate::views::escape::line;
use crate::views::validation::{ConfigMistake, ValidationView};

/// Prints every mistake in the configuration and the manifests on stdout. Load balancers that are not served are only noted, and do
/// not change the exit code: another implementation may serve them. Asked to look at this machine, it does.
pub fn run(command: &Validate, config: &Options, mistakes: Vec<ConfigMistake>) -> Exit {
    let manifests = command.manifests.folders().map(Manifests::load);
    let read = manifests.map(|manifests| {
        let count = manifests.count();
        (count, ManifestProjection::new(manifests, config).routes(config))
    });
    let node = command.here.then(small_settings);
    let view = ValidationView::new(mistakes, read, node);
    let printed = print(&render(&view, || view.to_text(), command.output));
    match printed {
        Exit::Ok if !view.problems.is_empty() => Exit::Data,
        Exit::Ok if !view.config.is_empty() => Exit::Config,
        Exit::Ok if view.node.is_some_and(|node| !node.is_empty()) => Exit::Degraded,
        done => done,
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
