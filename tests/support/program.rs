//! Program under test, in a release build as users have it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Folder of the whole project.
pub const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Variable with another program to test, for example of another architecture or version.
const PROGRAM: &str = "SHEAVE_TEST_PROGRAM";

/// Path of the program: that of `SHEAVE_TEST_PROGRAM`, or else the release build of these sources, which is built if
/// needed.
///
/// # Panics
/// If it cannot be built.
pub fn path() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| std::env::var(PROGRAM).unwrap_or_else(|_| build()));
    &PATH
}

/// Builds the program. Cargo checks each time, since a test of an outdated program proves nothing.
fn build() -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.current_dir(PROJECT).args(["build", "--release", "--locked", "--offline", "--quiet"]);
    command.args(["--package", "sheave", "--bin", "sheave"]);
    let status = command.status().expect("Cargo can be run");
    assert!(status.success(), "the program cannot be built; see: cargo build --release");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or(Path::new(PROJECT).join("target"), PathBuf::from);
    let program = target.join("release/sheave").canonicalize().expect("Cargo has built it");
    program.display().to_string()
}
