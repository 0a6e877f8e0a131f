//! Tests of FRR in the chart: when it is included, and when its Pods are replaced.

use std::fs;
use std::path::Path;

use super::{CHART, Objects, helm, helm_of, objects, rendered, text};
use crate::files;

const WITH_FRR: [&str; 2] = ["announce=bgp", "frr.config=router bgp 64513"];

fn checksum(objects: &Objects) -> String {
    let template = &objects["DaemonSet sheave-frr"]["spec"]["template"];
    text(&template["metadata"]["annotations"]["checksum/config"]).to_owned()
}

/// Copies the chart with one changed file.
fn copy_with(to: &Path, file: &str, change: impl Fn(&str) -> String) {
    for name in files::all(CHART) {
        let place = to.join(&name);
        let text = files::text(format!("{CHART}/{name}"));
        fs::create_dir_all(place.parent().expect("a folder")).expect("it is made");
        fs::write(place, if name.ends_with(file) { change(&text) } else { text }).expect("it is written");
    }
}

#[test]
#[ignore = "needs helm"]
fn it_is_left_out_only_if_that_is_said() {
    let mut with = rendered("sheave-system", &WITH_FRR);
    let without = rendered("sheave-system", &["announce=bgp", "frr.enabled=false"]);
    with.retain(|name, _| !name.ends_with(" sheave-frr") && !name.ends_with(" sheave-frr-config"));
    assert_eq!(with, without);
    // An upgrade that reuses the values of a chart before `frr.enabled`.
    let reused = rendered("sheave-system", &[WITH_FRR[0], WITH_FRR[1], "frr.enabled=null"]);
    assert_eq!(reused, rendered("sheave-system", &WITH_FRR));
    // An upgrade without `--set-file`.
    let output = helm("sheave-system", &["announce=bgp"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("needs frr.config"), "{said}");
}

#[test]
#[ignore = "needs helm"]
fn its_pods_are_replaced_when_either_of_its_files_changes() {
    let before = checksum(&rendered("sheave-system", &WITH_FRR));
    assert_ne!(before, checksum(&rendered("sheave-system", &[WITH_FRR[0], "frr.config=router bgp 64514"])));
    let chart = tempfile::tempdir().expect("a folder");
    copy_with(chart.path(), "_helpers.tpl", |text| text.replace("bfdd=yes", "bfdd=no"));
    let changed = objects(&helm_of(chart.path(), "sheave-system", &WITH_FRR), &WITH_FRR);
    assert!(text(&changed["ConfigMap sheave-frr-config"]["data"]["daemons"]).contains("bfdd=no"));
    assert_ne!(before, checksum(&changed));
}
