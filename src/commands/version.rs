//! `sheave version`: version and build of this program.

use serde::Serialize;
use sheave_console::exit::Exit;
use sheave_console::stdout;
use sheave_console::views::View;

use crate::cli::Version;

/// JSON output: keys may be added, but are never renamed.
#[derive(Serialize)]
struct VersionView {
    version: &'static str,
    /// `unknown` if the sources were not a git work tree.
    commit: &'static str,
    /// Target triple.
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
