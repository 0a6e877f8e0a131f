//! Replays of discovery and health.

use super::Replay;
use crate::comparison::Comparison;

#[test]
fn health_is_told_in_plain_text() {
    Replay::new().all("00-meta/health");
}

#[test]
fn discovery_names_resources_and_groups() {
    let mut replay = Replay::new();
    replay.comparison = Comparison::leaving_out(&["storageVersionHash"]);
    replay.all("00-meta/discovery-resourcelist");
}

#[test]
fn the_version_is_told() {
    let mut replay = Replay::new();
    replay.comparison = Comparison::leaving_out(&["gitVersion", "gitCommit", "gitTreeState"]);
    replay.all("00-meta/version");
}
