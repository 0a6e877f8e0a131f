//! Tests of the systemd unit: the privileges that it grants and removes.

use std::collections::BTreeMap;
use std::process::Command;

use crate::files;

/// Settings of `[Service]`, none of which is duplicated.
pub(crate) fn service() -> BTreeMap<String, String> {
    let text = files::text("sheave.service");
    let (_, section) = text.split_once("[Service]\n").expect("a section");
    let section = section.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut settings = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line:?} is no setting"));
        assert_eq!(settings.insert(name.to_owned(), value.to_owned()), None, "{name} is given twice");
    }
    settings
}

#[test]
fn the_unit_takes_away_what_a_gateway_does_not_need() {
    let service = service();
    let yes = [
        "DynamicUser",
        "NoNewPrivileges",
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "PrivateDevices",
        "PrivateTmp",
        "ProtectClock",
        "ProtectControlGroups",
        "ProtectHome",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
    ];
    assert_eq!((service["ProtectProc"].as_str(), service["UMask"].as_str()), ("invisible", "0077"));
    for name in yes {
        assert_eq!(service.get(name).map(String::as_str), Some("yes"), "{name}");
    }
    assert_eq!(service["CapabilityBoundingSet"], service["AmbientCapabilities"]);
    assert_eq!(service["ProtectSystem"], "strict");
}

/// Checked by systemd itself. The exposure is measured in tenths, out of 100; most of it is the network and its
/// capabilities.
#[test]
fn systemd_takes_the_unit_and_finds_it_closed() {
    const MOST_EXPOSED: &str = "--threshold=20";
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("sheave.service");
    let text =
        files::text("sheave.service").replace("/usr/local/bin/sheave", sheave_test_support::program::path());
    std::fs::write(&unit, text).unwrap();
    for check in [&["verify"][..], &["security", "--offline=true", MOST_EXPOSED]] {
        let said = Command::new("systemd-analyze").args(["--no-pager"]).args(check).arg(&unit).output();
        let said = said.expect("systemd-analyze is installed");
        let text =
            String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{text}");
        assert!(check != ["verify"] || text.is_empty(), "{text}");
    }
}

/// Additions that the document tells users to make with `systemctl edit`, each alone.
#[test]
fn systemd_takes_the_unit_with_each_addition_of_the_document() {
    let document = files::text("announce.md");
    let additions: Vec<&str> = document.split("```ini\n# systemctl edit sheave\n").skip(1).collect();
    assert!(additions.len() >= 2, "for either way to announce");
    for addition in additions {
        let addition = addition.split("```").next().unwrap_or_default();
        let folder = tempfile::tempdir().unwrap();
        let unit = folder.path().join("sheave.service");
        let text = files::text("sheave.service")
            .replace("/usr/local/bin/sheave", sheave_test_support::program::path());
        std::fs::write(&unit, text).unwrap();
        std::fs::create_dir(folder.path().join("sheave.service.d")).unwrap();
        std::fs::write(folder.path().join("sheave.service.d/override.conf"), addition).unwrap();
        let said = Command::new("systemd-analyze").args(["--no-pager", "verify"]).arg(&unit).output();
        let said = said.expect("systemd-analyze is installed");
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && text.is_empty(), "{addition}{text}");
    }
}

#[test]
fn the_unit_leaves_the_calls_that_a_gateway_makes() {
    let service = service();
    // The group contains splice(2) and the like, but not bpf(2). A missing call must not end the process.
    assert_eq!(service["SystemCallFilter"], "@system-service bpf");
    assert_eq!(service["SystemCallErrorNumber"], "EPERM");
    // The program notifies systemd when it is ready, and which process takes over.
    assert_eq!(service["Type"], "notify");
}
