//! Tests of Events over HTTP: the server accepts them, each is written once, and failures do not delay
//! others.

use std::sync::Arc;

use serde_json::json;
use sheave_control::api::problem::{ObjectRef, Problem, ProblemChanges};
use sheave_control::controller::election::Election;
use sheave_control::controller::events::{EventRecorder, EventType, Occurrence, Uid};

use super::connect::{candidate, connect, observe, soon};
use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};

/// Leader that writes Events as the user `events`.
struct Leader {
    server: Arc<ApiServer>,
    writer: EventRecorder,
    known: Vec<Arc<Problem>>,
    _election: Election,
}

impl Leader {
    async fn new() -> Self {
        let server = Arc::new(ApiServer::start());
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        server.load([shop]);
        let mut election = candidate(&server, "leader").await;
        soon("leadership", election.won()).await.unwrap();
        let connection = connect(&server, "events").await;
        let writer = EventRecorder::start(&connection, "ctl-0_1".to_owned(), election.leadership());
        Self { server, writer, known: Vec::new(), _election: election }
    }

    /// Sets the current Problems. The same ones are processed again.
    fn problems(&mut self, now: &[Problem]) {
        let now: Vec<Arc<Problem>> = now.iter().cloned().map(Arc::new).collect();
        if now != self.known {
            let gone = std::mem::replace(&mut self.known, now.clone());
            self.writer.problems(&ProblemChanges { came: now, gone }, |_| Some(uid()));
        }
        self.writer.offer(&self.known, |_| Some(uid()));
    }

    /// The stored Events once there are `count`: object, type and note.
    async fn stored(&self, count: usize) -> Vec<String> {
        let server = Arc::clone(&self.server);
        let mut stored = observe("Events", move || {
            let stored = server.objects("events");
            if stored.len() >= count { Ok(stored) } else { Err(format!("{stored:?}")) }
        })
        .await;
        stored.sort_by_key(|it| it["eventTime"].to_string());
        // In their stored form, that of core/v1.
        let text = |it: &serde_json::Value| {
            format!(
                "{} {} {} {}",
                it["metadata"]["namespace"], it["involvedObject"]["name"], it["type"], it["message"]
            )
            .replace('"', "")
        };
        stored.iter().map(text).collect()
    }

    /// The answers to all that was posted. The server notes an answer after it has stored the object.
    async fn expect_answers(&self, expected: &[Option<u16>]) {
        let (server, expected) = (Arc::clone(&self.server), expected.to_vec());
        let answers = move || {
            let posts = server.requests().into_iter().filter(|it| it.resource == "events");
            let answers: Vec<_> = posts.map(|it| it.status).collect();
            if answers == expected { Ok(()) } else { Err(format!("{answers:?} in place of {expected:?}")) }
        };
        observe("the answers", answers).await;
    }
}

fn uid() -> Uid {
    Uid { uid: "u-1".into(), resource_version: Some("7".into()) }
}

fn problem(kind: &'static str, namespace: &str, name: &str, message: &str) -> Problem {
    Problem {
        object: ObjectRef { kind, namespace: namespace.into(), name: name.into() },
        reason: "NoAddress",
        field: String::new(),
        message: message.to_owned(),
        port: None,
    }
}

fn assigned(note: &str) -> Occurrence {
    Occurrence {
        object: problem("Service", "shop", "web", "").object,
        uid: uid(),
        r#type: EventType::Normal,
        reason: "AddressesAssigned",
        action: "Allocate",
        note: note.to_owned(),
    }
}

#[tokio::test]
async fn news_are_written_once() {
    let mut leader = Leader::new().await;
    let now = [
        problem("Service", "shop", "web", "no address"),
        problem("AddressPool", "", "pool-a", &"long ".repeat(500)),
    ];
    leader.problems(&now);
    leader.stored(2).await;
    for _ in 0..10 {
        leader.problems(&now);
    }
    // Events are written in order, so once this one exists, none of the above will follow.
    leader.writer.record(&assigned("203.0.113.10"));
    let stored = leader.stored(3).await;
    assert_eq!(stored[0], "shop web Warning no address");
    assert!(stored[1].starts_with("default pool-a Warning long "), "{stored:?}");
    assert_eq!(stored[2], "shop web Normal 203.0.113.10");
    leader.expect_answers(&[Some(201); 3]).await;
    assert!(leader.server.requests().iter().filter(|it| it.user == "events").all(|it| it.verb == "create"));
}

#[tokio::test]
async fn an_event_is_tried_again_and_a_lost_answer_makes_no_second_one() {
    let mut leader = Leader::new().await;
    let faults = leader.server.faults();
    faults.plan(Matching::new("create", "events"), 1, Fault::internal_error());
    faults.plan(Matching::new("create", "events"), 1, Fault::LoseAnswer);
    leader.problems(&[problem("Service", "shop", "web", "one")]);
    leader.writer.record(&assigned("two"));
    assert_eq!(leader.stored(2).await, ["shop web Warning one", "shop web Normal two"]);
    leader.expect_answers(&[Some(500), None, Some(409), Some(201)]).await;
    assert_eq!(leader.writer.dropped(), 0);
}

#[tokio::test]
async fn what_the_server_refuses_is_left_out_and_the_rest_goes_on() {
    let mut leader = Leader::new().await;
    // Nothing can be created in a missing namespace.
    leader.problems(&[problem("Service", "shop", "web", "one"), problem("Service", "none", "web", "two")]);
    leader.writer.record(&assigned("three"));
    assert_eq!(leader.stored(2).await, ["shop web Warning one", "shop web Normal three"]);
    leader.expect_answers(&[Some(201), Some(404), Some(201)]).await;
    assert_eq!(leader.writer.dropped(), 1);
}

#[tokio::test]
async fn a_namespace_that_is_being_terminated_is_asked_once() {
    let mut leader = Leader::new().await;
    let old = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "old", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"}});
    leader.server.load([old]);
    let names = ["a", "b", "c", "d"];
    leader.problems(&names.map(|name| problem("Service", "old", name, "no address")));
    leader.writer.record(&assigned("203.0.113.10"));
    assert_eq!(leader.stored(1).await, ["shop web Normal 203.0.113.10"]);
    leader.expect_answers(&[Some(403), Some(201)]).await;
    assert_eq!(leader.writer.dropped(), 4);
    assert_eq!(leader.writer.refused(), None);
}
