//! Tests of the files of a release besides the program. `deploy/release` itself needs two fully optimized builds, and is run by hand.

use std::process::Command;

use crate::{files, systemd};

#[test]
fn every_script_can_be_read_by_its_shell() {
    for (shell, script) in
        [("bash", "release"), ("sh", "debian/postinst"), ("sh", "debian/prerm"), ("sh", "debian/postrm")]
    {
        let output = Command::new(shell).arg("-n").arg(files::place(script)).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        assert!(files::text(script).starts_with("#!"), "{script}");
    }
}

#[test]
fn the_program_takes_the_configuration_of_the_package() {
    let file = files::place("debian/config.yaml");
    let arguments = ["validate", "--node", "gw-1", "--config"];
    let output =
        Command::new(sheave_test_support::program::path()).args(arguments).arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// `deploy/release` moves the program, and leaves the rest of the unit unchanged.
#[test]
fn the_package_has_what_the_unit_names() {
    let command = &systemd::service()["ExecStart"];
    let script = files::text("release");
    let words: Vec<&str> = command.split(' ').filter(|word| word.starts_with('/')).collect();
    assert_eq!(words, ["/usr/local/bin/sheave", "/etc/sheave/config.yaml", "/etc/sheave/manifests"]);
    assert!(script.contains("s|/usr/local/bin/|/usr/bin/|"));
    for path in ["/usr/bin/sheave", "/etc/sheave/config.yaml", "/etc/sheave/manifests"] {
        assert!(script.contains(&format!("\"$root{path}\"")), "{path}");
    }
}

/// File systems report different sizes of folders, and the package has to be the same on each.
#[test]
fn the_package_is_as_large_as_its_files() {
    let script = files::text("release");
    let (_, function) = script.split_once("\ninstalled_size() {").expect("the function");
    let (function, _) = function.split_once("\n}\n").expect("its end");
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("usr/share/doc");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(below.join("large"), [0; 2049]).unwrap();
    std::fs::write(below.join("small"), [0; 1]).unwrap();
    let command = format!("installed_size() {{{function}\n}}\ninstalled_size \"$1\"");
    let output = Command::new("bash").args(["-c", &command, "bash"]).arg(folder.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "4\n", "{output:?}");
}

/// `deploy/release` refuses a larger one.
#[test]
fn the_program_is_no_larger_than_a_release_allows() {
    let script = files::text("release");
    let largest = script.lines().find_map(|line| line.strip_prefix("readonly LARGEST=")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("sheave");
    let program = sheave_test_support::program::path();
    let output = Command::new("strip").args(["--strip-all", program, "-o"]).arg(&stripped).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let size = stripped.metadata().unwrap().len();
    assert!(size <= largest.parse().unwrap(), "{size} bytes, of {largest}");
}

/// Files that documents tell users to install are created by the release.
#[test]
fn documents_name_files_of_the_release() {
    let (script, document) =
        (files::text("release"), files::text("README.md") + &files::text("releasing.md"));
    let version = env!("CARGO_PKG_VERSION");
    let arch = "amd64";
    for (made, named) in [
        ("sheave-$version-linux-$arch", format!("sheave-{version}-linux-{arch}.tar.gz")),
        ("sheave_${version}_$arch.deb", format!("sheave_{version}_{arch}.deb")),
        ("sheave-chart-$version.tgz", format!("sheave-chart-{version}.tgz")),
        ("SHA256SUMS", "SHA256SUMS".to_owned()),
    ] {
        assert!(script.contains(made), "deploy/release makes no {made}");
        assert!(document.contains(&named), "deploy/README.md and deploy/releasing.md do not name {named}");
    }
    // `helm push` uses the name inside the chart, so it needs its own folder next to the image.
    assert!(document.contains("\"oci://$REGISTRY/charts/sheave\" --version "));
}

#[test]
fn the_package_and_the_image_are_of_the_same_licence() {
    assert!(files::text("release").contains(concat!("expression: \"", env!("CARGO_PKG_LICENSE"), "\"")));
}
