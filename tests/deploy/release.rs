//! What goes into a release besides the program. `deploy/release` itself takes two builds with all optimisations, and is run by hand.

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
    let output = Command::new(env!("CARGO_BIN_EXE_sheave")).args(arguments).arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// `deploy/release` puts the program elsewhere and leaves the rest of the unit as it is.
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

#[test]
fn the_package_and_the_image_are_of_the_same_licence() {
    assert!(files::text("release").contains(concat!("expression: \"", env!("CARGO_PKG_LICENSE"), "\"")));
}
