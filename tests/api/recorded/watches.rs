//! Replays of watches: where they begin, what they send, how they end.
//!
//! Changes during a watch were made by requests that were not recorded. They are loaded without HTTP here, from the
//! lines of the watch.

use serde_json::{Value, json};

use super::Replay;
use crate::transcript::Transcript;

/// Replays a file with one watch; `meanwhile` runs while it is open.
fn replay_during(replay: &mut Replay, name: &str, meanwhile: impl FnOnce(&Replay, &Transcript)) {
    let transcript = Transcript::read(name);
    let step = &transcript.steps[0];
    let answer = replay.ask(step);
    meanwhile(replay, &transcript);
    replay.check(name, 0, step, answer);
}

fn custom_kind(group: &str, plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                 "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {}}]},
    })
}

#[test]
fn silence_ends_cleanly() {
    Replay::at(266).all("01-list-watch/watch-no-bookmarks");
}

#[test]
fn idle_kinds_get_no_bookmark() {
    Replay::at(312).all("01-list-watch/watch-node-bookmark");
}

#[test]
fn future_revisions_are_silent() {
    Replay::at(276).all("01-list-watch/watch-rv-future");
}

#[test]
fn no_revision_and_zero_tell_what_is_there() {
    Replay::at(251).all("01-list-watch/watch-rv-unset-and-0");
}

#[test]
fn content_types_do_not_follow_the_stream_parameter() {
    Replay::at(276).steps("01-list-watch/content-types", |step| step < 2);
}

#[test]
fn bookmarks_come_before_the_end() {
    const OTHER: &str = "01-list-watch/watch-rv-1-not-compacted";
    let mut replay = Replay::at(251);
    replay_during(&mut replay, "01-list-watch/watch-from-rv", |replay, transcript| {
        replay.server.load((0..3).map(|line| transcript.seen(0, line)));
        assert!(replay.server.unload("services", Some("rec"), "tmp"));
        replay.server.load([Transcript::read(OTHER).seen(0, 0)]);
    });
    replay.all(OTHER);
}

#[test]
fn bookmarks_of_slices_are_zero_values() {
    let mut replay = Replay::at(263);
    replay_during(&mut replay, "01-list-watch/watch-endpointslice-bookmark", |replay, transcript| {
        replay.server.load([transcript.seen(0, 0)]);
    });
}

#[test]
fn streaming_lists_mark_their_end() {
    let mut replay = Replay::at(266);
    replay_during(&mut replay, "01-list-watch/watch-list-initial-events", |replay, transcript| {
        replay.server.load([transcript.seen(0, 6)]);
    });
}

#[test]
fn streaming_lists_may_be_empty() {
    Replay::at(269).all("01-list-watch/watch-list-empty");
}

#[test]
fn streaming_lists_refuse_wrong_parameters() {
    const NAME: &str = "01-list-watch/watch-list-rejects";
    let mut replay = Replay::at(251);
    replay.server.load([Transcript::read(NAME).seen(1, 0)]);
    replay.server.skip_to(598);
    // The recorded watch waited longer than replayed ones may, but the answer is the same.
    replay.all(NAME);
}

#[test]
fn leaving_a_label_selector_is_a_deletion() {
    let mut replay = Replay::at(251);
    let name = "01-list-watch/watch-label-selector-transition";
    let mut before = Transcript::read(name).seen(0, 0);
    before["metadata"]["resourceVersion"] = json!("271");
    replay.server.load([before]);
    replay_during(&mut replay, name, |replay, transcript| {
        let with_tier = |line: usize, tier: &str, revision: &str| {
            let mut object = transcript.seen(0, line);
            object["metadata"]["labels"]["tier"] = json!(tier);
            object["metadata"]["resourceVersion"] = json!(revision);
            object
        };
        replay.server.load([
            with_tier(0, "c", "272"),
            with_tier(0, "d", "273"),
            transcript.seen(0, 1),
            with_tier(2, "b2", "275"),
            transcript.seen(0, 3),
        ]);
    });
}

#[test]
fn leaving_a_field_selector_is_a_deletion() {
    let mut replay = Replay::at(251);
    let name = "01-list-watch/watch-field-selector-type-change";
    let mut before = Transcript::read(name).seen(0, 0);
    before["metadata"]["resourceVersion"] = json!("276");
    replay.server.load([before]);
    replay_during(&mut replay, name, |replay, transcript| {
        let mut internal = transcript.seen(0, 0);
        internal["spec"]["type"] = json!("ClusterIP");
        replay.server.load([internal, transcript.seen(0, 1)]);
    });
}

#[test]
fn collections_are_deleted_one_by_one() {
    const NAME: &str = "01-list-watch/watch-delete-collection";
    let mut replay = Replay::at(251);
    replay.server.load(Transcript::read(NAME).listed(0));
    replay.server.skip_to(285);
    replay.all(NAME);
}

#[test]
fn revisions_that_are_too_old_are_told_inside_the_stream() {
    const NAME: &str = "01-list-watch/watch-rv-too-old";
    let mut replay = Replay::at(251);
    replay.server.load([custom_kind("work.karmada.io", "works", "Work")]);
    replay.server.skip_to(1257);
    replay.server.compact();
    replay.steps(NAME, |step| step < 2);
    replay.server.skip_to(1262);
    replay.server.compact();
    replay.steps(NAME, |step| step == 2);
}

#[test]
fn old_revisions_do_for_streaming_lists_but_not_for_exact_ones() {
    const NAME: &str = "01-list-watch/watch-list-rv-too-old";
    let mut replay = Replay::at(251);
    replay.server.load([Transcript::read(NAME).seen(0, 0)]);
    replay.server.skip_to(1257);
    replay.server.compact();
    replay.all(NAME);
}

#[test]
fn history_lasts_until_it_is_compacted() {
    const NAME: &str = "01-list-watch/compacted-but-cached";
    let mut replay = Replay::at(1230);
    let transcript = Transcript::read(NAME);
    replay.server.load((0..3).map(|line| transcript.seen(0, line)));
    replay.all(NAME);
}
