//! Tests of `diff` between manifests and a running gateway, and between manifests: its output and exit codes.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::support::gateway::Gateway;
use crate::support::manifest::{self, App};
use crate::support::process::Finished;
use crate::support::world::{Family, World};

for_both_families!(what_would_change_is_told_by_the_exit_code,);

/// A folder of manifests for a gateway.
fn folder(apps: &[App]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text);
    write("nodes.yaml", manifest::nodes()).expect("a file is written");
    write("apps.yaml", manifest::file(apps)).expect("a file is written");
    folder
}

fn what_would_change_is_told_by_the_exit_code(family: Family) {
    let world = World::new(2);
    let web = |ready| App::new("web", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(ready));
    let gateway = Gateway::start(&world, &[web(0)]);
    let (same, other) = (folder(&[web(0)]), folder(&[web(1)]));
    let run = |new: &Path, arguments: &[&str]| -> Finished {
        let new = new.display().to_string();
        let first = ["diff", "--manifests", new.as_str()];
        world.gateway.finish(sheave_test_support::program::path(), &[&first, arguments].concat())
    };
    let nothing = run(same.path(), &[]);
    assert_eq!(nothing.code(), Some(0), "{}{}", nothing.stdout, nothing.stderr);
    let moved = run(other.path(), &[]);
    assert_eq!(moved.code(), Some(1), "{}{}", moved.stdout, moved.stderr);
    assert!(moved.stdout.contains("0 added, 0 removed, 1 changed, 0 unchanged"), "{}", moved.stdout);
    assert_eq!(gateway.routes()["frontends"].as_array().map(Vec::len), Some(1), "it only reads");
    let gone = run(same.path(), &["--admin", "http://127.0.0.1:1"]);
    assert_eq!(gone.code(), Some(69), "{}{}", gone.stdout, gone.stderr);

    // Without a gateway.
    drop(gateway);
    let old = same.path().display().to_string();
    for flag in ["--manifests", "--old"] {
        assert_eq!(run(same.path(), &[flag, &old]).code(), Some(0), "{flag}");
        let moved = run(other.path(), &[flag, &old]);
        assert_eq!(moved.code(), Some(1), "{flag}: {}", moved.stderr);
    }
    assert_eq!(run(same.path(), &[]).code(), Some(69), "nothing listens there");
    let both = run(same.path(), &["--manifests", &old, "--admin", "http://127.0.0.1:1"]);
    assert_eq!(both.code(), Some(64), "{}", both.stderr);
}
