//! Replays of lists: selectors, pages, revisions and forms.

use serde_json::json;

use super::Replay;
use crate::transcript::Transcript;

/// One test per transcript that starts from the recorded lists.
macro_rules! from_the_lists {
    ($($test:ident: $name:literal at $revision:literal;)+) => {$(
        #[test]
        fn $test() {
            Replay::at($revision).all(concat!("01-list-watch/", $name));
        }
    )+};
}

from_the_lists! {
    items_of_built_in_kinds_are_bare: "list-services-all" at 251;
    slices_keep_their_nulls: "list-endpointslices" at 251;
    nodes_are_listed: "list-nodes" at 251;
    slices_are_selected_by_labels_and_names: "list-endpointslices-selector" at 251;
    services_are_selected_by_labels: "list-services-label-selector" at 251;
    services_are_selected_by_fields: "list-services-field-selector" at 251;
    pages_continue_at_one_revision: "list-limit-continue" at 251;
    caches_ignore_limits: "list-limit-rv0" at 251;
    bad_continue_tokens_are_refused: "list-bad-continue" at 251;
    revisions_choose_the_state: "list-rv-semantics" at 251;
    metadata_alone_is_listed: "get-partial-object-metadata" at 251;
}

#[test]
fn empty_and_unknown_namespaces_list_nothing() {
    let mut replay = Replay::new();
    replay.server.skip_to(235);
    replay.all("01-list-watch/list-empty");
}

#[test]
fn expired_pages_offer_to_go_on_inconsistently() {
    const NAME: &str = "01-list-watch/list-continue-expired";
    let mut replay = Replay::new();
    let first = Transcript::read(NAME).listed(1).remove(0);
    // The recorded list continued with 69 Services that were not recorded.
    let others = (0..69).map(|number| {
        let mut other = first.clone();
        other["metadata"]["name"] = json!(format!("z{number:02}"));
        other["metadata"]["uid"] = json!(null);
        other["metadata"]["resourceVersion"] = json!(null);
        other
    });
    replay.server.load(others);
    replay.server.load([first.clone()]);
    replay.server.skip_to(1262);
    replay.server.compact();
    replay.all(NAME);
}

#[test]
fn written_slices_get_defaults() {
    let mut replay = Replay::new();
    replay.server.skip_to(247);
    replay.all("01-list-watch/create-endpointslice");
}
