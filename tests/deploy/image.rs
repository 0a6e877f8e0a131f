//! Tests of the image: how it is built, and that the manifests use this version.

use crate::workloads::{container, pods};
use crate::{files, kustomization};

/// Arguments of the instruction's last occurrence.
fn last<'a>(dockerfile: &'a str, instruction: &str) -> &'a str {
    let mut lines = dockerfile.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' '));
    lines.next_back().unwrap_or_else(|| panic!("the Dockerfile has no {instruction}"))
}

#[test]
fn the_image_is_of_this_version_everywhere() {
    for folder in ["base", "examples/overlay", "examples/l2", "examples/bgp-frr"] {
        let images = kustomization::of(folder).images;
        let [image] = &images[..] else { panic!("one image is expected: {images:?}") };
        assert_eq!(
            (image.name.as_str(), image.new_tag.as_str()),
            ("sheave", env!("CARGO_PKG_VERSION")),
            "{folder}"
        );
    }
    // Only the name, since the tag is set in one place.
    for (role, pod) in pods() {
        assert_eq!(container(&pod).image.as_deref(), Some("sheave"), "{role}");
    }
}

#[test]
fn the_image_runs_sheave_as_nobody_in_particular() {
    let dockerfile = files::text("Dockerfile");
    let [_, (_, controller)] = pods();
    let security = controller.security_context.unwrap();
    let user = format!("{}:{}", security.run_as_user.unwrap(), security.run_as_group.unwrap());
    // By number, since the kubelet cannot check whether a name belongs to root (runAsNonRoot).
    assert_eq!(last(&dockerfile, "USER"), user);
    assert_eq!(last(&dockerfile, "ENTRYPOINT"), r#"["/sheave"]"#);
}

#[test]
fn the_image_is_built_by_the_compiler_that_the_project_asks_for() {
    let dockerfile = files::text("Dockerfile");
    let builder = dockerfile.lines().find_map(|line| line.strip_prefix("FROM rust:")).unwrap();
    let version = concat!(env!("CARGO_PKG_RUST_VERSION"), "-");
    assert!(builder.starts_with(version), "rust:{builder} is not rust:{version}");
}

#[test]
fn every_base_image_has_a_tag() {
    let dockerfile = files::text("Dockerfile");
    let images: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM "))
        .map(|image| image.split(' ').next().unwrap())
        .collect();
    assert_eq!(images.len(), 2, "{images:?}");
    for image in images {
        let tag = image.rsplit_once(':').map(|(_, tag)| tag);
        assert!(tag.is_some_and(|tag| tag != "latest"), "{image}");
    }
}

#[test]
fn the_image_is_built_without_tests_and_benches() {
    let ignored = files::text("Dockerfile.dockerignore");
    let kept: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert_eq!(kept, ["Cargo.toml", "Cargo.lock", "src", "control", "dataplane", "tests/support/Cargo.toml"]);
    // Before Cargo builds anything, it looks for the default file of targets without a path.
    let manifest = include_str!("../../Cargo.toml");
    let targets = manifest.split("\n\n").filter(|it| it.contains("[[test]]") || it.contains("[[bench]]"));
    let (with, without): (Vec<&str>, Vec<&str>) = targets.partition(|target| target.contains("\npath = "));
    assert!(with.len() >= 5 && without.is_empty(), "{without:?}");
}

#[test]
fn the_image_says_what_it_is() {
    let dockerfile = files::text("Dockerfile");
    for (label, value) in [
        ("version", env!("CARGO_PKG_VERSION")),
        ("description", env!("CARGO_PKG_DESCRIPTION")),
        ("licenses", env!("CARGO_PKG_LICENSE")),
    ] {
        let line = format!("org.opencontainers.image.{label}=\"{value}\"");
        assert!(dockerfile.contains(&line), "{line}");
    }
    let (_, last_stage) = dockerfile.rsplit_once("\nFROM ").unwrap();
    for (label, argument) in [("revision", "COMMIT"), ("created", "CREATED")] {
        assert!(last_stage.contains(&format!("org.opencontainers.image.{label}=${argument}")), "{label}");
        assert!(last_stage.contains(&format!("\nARG {argument}=\"\"\n")), "{argument} is of another stage");
        assert!(
            dockerfile.contains(&format!("--build-arg {argument}=")),
            "nothing says how {argument} is given"
        );
    }
}
