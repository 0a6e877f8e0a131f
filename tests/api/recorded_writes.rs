//! Replays of recorded writes: creation, patches, applies and deletion of Services and custom resources.
//!
//! Every file of `recorded/{02-service-create,03-status,04-finalizer-delete-type}` and the writes of `06-karmada` are
//! sent in the recorded order to a test API server in the same state. Status codes, whole bodies (with `managedFields`
//! in any order) and warnings must be the same; generated values are compared by relation (see [`crate::comparison`]).
//! [`crate::recorded`] describes the recorded server.

mod replay;
mod scenes;
mod single_stack;

use replay::{Replay, Step};
use scenes::Scene;

use crate::support::karmada;

/// Steps with known differences: file, step, and reason. No others may differ, and these must.
const EXCEPTIONS: &[(&str, usize, &str)] = &[
    ("name-rules", 3, "the name is generated"),
    ("port-rejects", 0, "the text names a node port that is given by chance"),
    ("create-errors", 12, "serde_json takes the last of duplicate keys, as Go does, but does not tell"),
    ("mcs-status-ssa", 15, "the recorded bookmark came after the time that this replay waits"),
    ("work-endpointslice", 10, "the recorded bookmarks came after the time that this replay waits"),
];

/// Replays the scenes one after the other on one server.
fn replay(mut replay: Replay, scenes: &[Scene]) {
    let mut steps = Vec::new();
    for scene in scenes {
        steps.extend(replay.play(scene));
    }
    let excepted = |step: &Step| {
        EXCEPTIONS.iter().any(|(file, number, _)| step.file.ends_with(file) && step.number == *number)
    };
    let wrong: Vec<&Step> =
        steps.iter().filter(|step| excepted(step) == step.differences.is_empty()).collect();
    let matched = steps.iter().filter(|step| step.differences.is_empty()).count();
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{matched} of {} steps match; unexpected:\n{}", steps.len(), told.join("\n"));
}

#[test]
fn services_are_created_as_recorded() {
    replay(Replay::new(), scenes::SERVICES);
}

#[test]
fn statuses_are_written_as_recorded() {
    replay(Replay::new(), scenes::STATUSES);
}

#[test]
fn finalizers_deletions_and_type_changes_go_as_recorded() {
    replay(Replay::new(), scenes::DELETIONS);
}

#[test]
fn custom_resources_are_written_as_recorded() {
    let replayed = Replay::new();
    replayed.define(karmada::MULTI_CLUSTER_SERVICE);
    replay(replayed, scenes::CUSTOM);
}

#[test]
fn works_keep_what_they_carry_as_recorded() {
    let replayed = Replay::new();
    replayed.namespace("karmada-es-member1");
    replayed.define(karmada::WORK);
    replay(replayed, scenes::WORKS);
}
