//! Passes the commit, target and features of the build to the program. Outside a git work tree the commit is "unknown", unless
//! SHEAVE_COMMIT names it.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SHEAVE_COMMIT");
    let named = env::var("SHEAVE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(commit).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=SHEAVE_COMMIT={commit}");
    println!("cargo::rustc-env=SHEAVE_TARGET={}", env::var("TARGET").unwrap_or_default());
    println!("cargo::rustc-env=SHEAVE_FEATURES={}", env::var("CARGO_CFG_FEATURE").unwrap_or_default());
}

/// Commit of this source tree; `None` if the tree is not the root of a git work tree.
fn commit() -> Option<String> {
    let root = env::var("CARGO_MANIFEST_DIR").ok()?;
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?) != Path::new(&root) {
        return None;
    }
    // HEAD changes when another branch is checked out, and the reflog of HEAD with each commit.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
