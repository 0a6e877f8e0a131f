//! Tests of the configuration files that become ConfigMaps: they agree with other manifests, and the program accepts
//! them.

use std::net::SocketAddr;
use std::process::Command;

use jiff::SignedDuration;
use serde_json::Value;

use crate::files;

/// Configuration files by role.
pub(crate) const GATEWAY: &str = "base/config/gateway.yaml";
pub(crate) const CONTROLLER: &str = "base/config/controller.yaml";
pub(crate) const OVERLAY_GATEWAY: &str = "examples/overlay/gateway.yaml";
pub(crate) const L2_GATEWAY: &str = "examples/l2/gateway.yaml";
pub(crate) const BGP_GATEWAY: &str = "examples/bgp-frr/gateway.yaml";

/// Parsed configuration file.
pub(crate) struct Config {
    file: &'static str,
    value: Value,
}

impl Config {
    pub(crate) fn read(file: &'static str) -> Self {
        let mut documents = files::documents(file);
        assert_eq!(documents.len(), 1, "{file}");
        Self { file, value: documents.remove(0).value }
    }

    /// Text at `section.key`.
    pub(crate) fn text(&self, section: &str, key: &str) -> &str {
        self.value[section][key]
            .as_str()
            .unwrap_or_else(|| panic!("{}: {section}.{key} is not given", self.file))
    }

    /// A whole section.
    pub(crate) fn value(&self, section: &str) -> &Value {
        &self.value[section]
    }

    /// Address at `section.listen`.
    pub(crate) fn listen(&self, section: &str) -> SocketAddr {
        self.text(section, "listen").parse().expect("an address and port")
    }

    /// Maximum time to end: `timeouts.lameDuck`, `timeouts.drain`, and a reserve.
    pub(crate) fn longest_end(&self) -> SignedDuration {
        let time = |key| self.text("timeouts", key).parse::<SignedDuration>().expect("a duration");
        time("lameDuck") + time("drain") + SignedDuration::from_secs(10)
    }

    /// Value of `stateDir`.
    pub(crate) fn state_dir(&self) -> &str {
        self.value["stateDir"].as_str().expect("stateDir is given")
    }
}

/// Result of `sheave validate` for a file: its exit code and both outputs.
fn validate(file: &std::path::Path) -> (Option<i32>, String) {
    let output = Command::new(sheave_test_support::program::path())
        .args(["validate", "--node", "gw-1", "--config"])
        .arg(file)
        .output()
        .expect("the program starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), said.concat())
}

#[test]
fn the_program_takes_every_configuration() {
    for file in [GATEWAY, CONTROLLER, OVERLAY_GATEWAY, L2_GATEWAY, BGP_GATEWAY] {
        let (code, said) = validate(&files::place(file));
        assert_eq!(code, Some(0), "{file}: {said}");
    }
}

#[test]
fn the_program_takes_what_the_configuration_advises_for_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    for config in [GATEWAY, CONTROLLER] {
        let text = files::text(config);
        let advised = text.replace("# metrics: ", "metrics: ");
        assert_ne!(advised, text, "{config}");
        std::fs::write(&file, advised).unwrap();
        let (code, said) = validate(&file);
        assert_eq!(code, Some(0), "{config}: {said}");
    }
}

#[test]
fn a_key_that_the_program_does_not_have_would_be_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, files::text(GATEWAY) + "reprot: {listen: \"\"}\n").unwrap();
    let (code, said) = validate(&file);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("reprot"), "{said}");
}

#[test]
fn the_example_pools_are_free_of_problems() {
    let output = Command::new(sheave_test_support::program::path())
        .args(["validate", "--node", "gw-1", "--manifests"])
        .arg(files::place("examples/address-pool.yaml"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
