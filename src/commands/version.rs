//! `sheave version`: what this program was built from.

use serde::Serialize;

use super::stdout;
use crate::cli::Version;
use crate::exit::Exit;
use crate::views::View;

/// The JSON is a contract: keys are added, never renamed.
#[derive(Serialize)]
struct VersionView {
    version: &'static str,
    /// `unknown` where the sources had no git.
    commit: &'static str,
    /// As Rust names it.
    target: &'static str,
    /// Cargo features.
    features: Vec<&'static str>,
}

impl View for VersionView {}

/// Prints the version.
pub(crate) fn run(command: &Version) -> Exit {
    let view = VersionView {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("SHEAVE_COMMIT"),
        target: env!("SHEAVE_TARGET"),
        features: env!("SHEAVE_FEATURES").split(',').filter(|feature| !feature.is_empty()).collect(),
    };
    let text = || format!("sheave {} (commit {}, {})\n", view.version, view.commit, view.target);
    stdout::print(&stdout::render(&view, text, command.output))
}
