//! Replays of Events in both groups, and of Leases.

use serde_json::{Value, json};

use super::Replay;
use crate::transcript::Transcript;

const CREATE: &str = "05-events-lease-errors/event-create";
const GENERATED: usize = 5;

#[test]
fn events_are_checked_and_only_their_series_changes() {
    let mut replay = Replay::at(873);
    replay.steps(CREATE, |step| step != GENERATED);
    replay.all("05-events-lease-errors/event-rejects");
    replay.all("05-events-lease-errors/event-core-v1");
}

#[test]
fn generated_names_must_not_end_in_a_dot() {
    let replay = Replay::at(873);
    let step = &Transcript::read(CREATE).steps[GENERATED];
    let answer = replay.ask(step);
    assert_eq!(answer.status, step.response.status);
    // Five characters of the name are random.
    let without_lot = |mut body: Value| {
        let name = body["details"]["name"].as_str().expect("a name").to_owned();
        assert_eq!(name.len(), "web.".len() + 5, "{name}");
        body["message"] = body["message"].as_str().expect("a message").replace(&name, "web.").into();
        body["details"]["name"] = "web.".into();
        body
    };
    let recorded = step.response.body.clone().expect("a body");
    assert_eq!(without_lot(answer.json()), without_lot(recorded));
}

#[test]
fn leases_change_hands_by_revision() {
    // Three requests were recorded with one object, each after the previous one: the renewal must send the current
    // revision, the next request the one that is then stale.
    const RENEWAL: usize = 2;
    const STALE: usize = 3;
    const NAME: &str = "05-events-lease-errors/lease";
    let mut replay = Replay::at(880);
    for (index, mut step) in Transcript::read(NAME).steps.into_iter().enumerate() {
        if let Some(body) = step.request.body.as_mut().filter(|_| [RENEWAL, STALE].contains(&index)) {
            body["metadata"]["resourceVersion"] = json!("881");
        }
        if let (RENEWAL, Some(sent), Some(stored)) = (index, &mut step.request.body, &step.response.body) {
            sent["spec"] = stored["spec"].clone();
        }
        let answer = replay.ask(&step);
        replay.check(NAME, index, &step, answer);
    }
}
