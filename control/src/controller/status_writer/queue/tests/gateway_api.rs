//! Statuses of the Gateway API in the queue: conflicts of versions, rivals, and writes that are refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{GatewayClass, ParentReference, RouteKey, RouteKind, TcpRoute};
use crate::api::routes::AnyRoute;
use crate::controller::gateway_status::class::DesiredClass;
use crate::controller::gateway_status::route_parents::DesiredParents;
use crate::controller::gateway_status::tests::model::ObjectServer;
use crate::controller::gateway_status::{GatewayApiKey, GatewayApiSubject};
use crate::controller::tests::objects::at;
use crate::projection::gateway_api::outcome::RouteParent;

/// A queue, a server with one route, and a cache without delay.
struct RouteHarness {
    server: ObjectServer,
    queue: WriteQueue,
    start: Instant,
    elapsed: Duration,
    /// Whether the route's backend exists.
    resolved: bool,
    notices: Vec<WriteNotice>,
    writes: usize,
}

impl RouteHarness {
    fn new(parents: &Value) -> Self {
        let route = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u1", "generation": 3},
            "spec": {}, "status": {"parents": parents},
        });
        let mut harness = Self {
            server: ObjectServer::new(route),
            queue: WriteQueue::new(Ownership::default()),
            start: Instant::now(),
            elapsed: Duration::ZERO,
            resolved: true,
            notices: Vec::new(),
            writes: 0,
        };
        harness.deliver();
        harness
    }

    fn target() -> WriteTarget {
        let (namespace, name) = ("shop".into(), "web".into());
        WriteTarget::GatewayApi(GatewayApiKey::Route(RouteKey { namespace, name, kind: RouteKind::Tcp }))
    }

    fn now(&self) -> Now {
        let seconds = i64::try_from(self.elapsed.as_secs()).unwrap();
        Now { instant: self.start + self.elapsed, time: at(seconds) }
    }

    /// The watch delivers the object, and the control loop decides.
    fn deliver(&mut self) {
        let route: TcpRoute = serde_json::from_value(self.server.object()).unwrap();
        let route = AnyRoute::Tcp(Arc::new(route));
        let condition = |kind, holds: bool| {
            let reason = if holds { kind } else { "BackendNotFound" };
            DesiredCondition { kind, holds, reason, message: String::new() }
        };
        let parent = RouteParent {
            reference: ParentReference { name: "gw".to_owned(), ..ParentReference::default() },
            accepted: condition("Accepted", true),
            resolved_refs: condition("ResolvedRefs", self.resolved),
            serving: None,
        };
        let desired = DesiredParents::new(&route, &"sheave.dev/gateway".into(), [&parent]);
        let subject = WriteSubject::GatewayApi(GatewayApiSubject::Route(route, Arc::new(desired)));
        self.queue.set_desired(Self::target(), subject, self.now());
    }

    /// Sends one write if one is due, which the server answers.
    fn write(&mut self) -> bool {
        let Some(job) = self.queue.next(self.now()) else { return false };
        self.writes += 1;
        let answer = self.server.answer(&job.step);
        self.queue.finished(&job, answer, self.now());
        self.notices.append(&mut self.queue.take_notices());
        true
    }

    /// Lets time pass until nothing is left to do, at most this long.
    fn run(&mut self, most: Duration) {
        let end = self.elapsed + most;
        loop {
            while self.write() {
                self.deliver();
            }
            let at = self.queue.wakes_at().map(|at| at - self.start).filter(|at| *at < end);
            let Some(at) = at else { break };
            self.elapsed = self.elapsed.max(at);
        }
        self.elapsed = end;
    }

    fn reason(&self) -> Value {
        let parents = self.server.field("parents");
        let ours =
            parents.as_array().into_iter().flatten().find(|it| it["controllerName"] == "sheave.dev/gateway");
        ours.map(|it| it["conditions"][1]["reason"].clone()).unwrap_or_default()
    }
}

fn theirs(revision: u32) -> Value {
    json!({"parentRef": {"name": "x"}, "controllerName": "theirs.example/gateway", "conditions": [], "revision": revision})
}

#[test]
fn a_route_is_written_once_and_then_there_is_rest() {
    let mut harness = RouteHarness::new(&json!([theirs(1)]));
    harness.run(Duration::from_secs(60));
    assert_eq!((harness.writes, harness.reason()), (1, json!("ResolvedRefs")));
    harness.queue = WriteQueue::new(Ownership::default());
    harness.deliver();
    harness.run(Duration::from_secs(60));
    assert_eq!(harness.writes, 1, "a restart writes nothing");
}

#[test]
fn a_conflict_of_versions_waits_for_the_watch_and_keeps_what_others_wrote() {
    let mut harness = RouteHarness::new(&json!([theirs(1)]));
    harness.server.rival("parents", &json!([theirs(2)]));
    assert!(harness.write(), "the cache does not have the new version");
    assert_eq!(harness.reason(), Value::Null, "the server has refused it");
    assert!(!harness.write(), "it waits");
    harness.deliver();
    harness.run(Duration::from_secs(1));
    assert_eq!((harness.writes, harness.reason()), (2, json!("ResolvedRefs")));
    assert_eq!(harness.server.field("parents")[0], theirs(2));
    assert_eq!(harness.notices, []);
}

#[test]
fn a_rival_that_rewrites_the_list_in_a_loop_is_answered_ever_more_rarely() {
    let mut harness = RouteHarness::new(&json!([]));
    for revision in 0..1200 {
        harness.run(Duration::from_secs(1));
        harness.server.rival("parents", &json!([theirs(revision)]));
        harness.deliver();
    }
    assert!((4..40).contains(&harness.writes), "{} writes in 20 minutes", harness.writes);
    let contested = |it: &WriteNotice| matches!(it, WriteNotice::Contested { fields, .. } if fields == &["status.parents"]);
    assert!(harness.notices.iter().any(contested), "{:?}", harness.notices);
}

#[test]
fn a_missing_right_is_reported_once_with_the_resource() {
    let mut harness = RouteHarness::new(&json!([]));
    for _ in 0..2 {
        while harness
            .queue
            .next(harness.now())
            .map(|job| {
                let no = ApiAnswer::Forbidden("no".into());
                harness.queue.finished(&job, no, harness.now());
            })
            .is_none()
        {
            harness.elapsed += Duration::from_secs(1);
        }
    }
    let resource = "tcproutes/status";
    let expected = WriteNotice::Forbidden { verb: "patch", resource, message: "no".into() };
    assert_eq!(harness.queue.take_notices(), [expected]);
}

#[test]
fn a_full_list_is_a_refused_write_until_there_is_room() {
    let full: Vec<Value> = (0..32).map(theirs).collect();
    let mut harness = RouteHarness::new(&json!(full));
    harness.run(Duration::from_secs(600));
    assert_eq!(harness.server.field("parents"), json!(full));
    let refused =
        harness.notices.iter().filter(|it| matches!(it, WriteNotice::Refused { what: "status.parents", .. }));
    assert_eq!(refused.count(), 1, "{:?}", harness.notices);
    assert!(harness.writes < 20, "{} writes in 10 minutes", harness.writes);
    harness.server.rival("parents", &json!(full[1..]));
    harness.deliver();
    harness.run(Duration::from_secs(600));
    assert_eq!(harness.reason(), "ResolvedRefs");
    let recovered = WriteNotice::Recovered { object: RouteHarness::target().object() };
    assert_eq!(harness.notices.last(), Some(&recovered));
}

#[test]
fn a_backend_that_comes_and_goes_is_written_a_few_times_at_once_and_then_rarely() {
    let mut harness = RouteHarness::new(&json!([]));
    for _ in 0..120 {
        harness.run(Duration::from_secs(1));
        harness.resolved = !harness.resolved;
        harness.deliver();
    }
    assert!((6..16).contains(&harness.writes), "{} writes in two minutes", harness.writes);
    harness.run(Duration::from_secs(60));
    assert_eq!(harness.reason(), "ResolvedRefs");
}

#[test]
fn a_class_that_is_used_and_unused_again_and_again_is_contested_by_nobody() {
    let class = json!({
        "metadata": {"name": "sheave", "uid": "u1", "generation": 1},
        "spec": {"controllerName": "sheave.dev/gateway"},
    });
    let (mut server, mut queue) = (ObjectServer::new(class), WriteQueue::new(Ownership::default()));
    let (start, mut notices) = (Instant::now(), Vec::new());
    let target = WriteTarget::GatewayApi(GatewayApiKey::Class("sheave".into()));
    for round in 0..8 {
        let now = Now { instant: start + Duration::from_secs(round), time: at(round.try_into().unwrap()) };
        let (in_use, mut writes) = (round % 2 == 0, 0);
        loop {
            let class: GatewayClass = serde_json::from_value(server.object()).unwrap();
            let desired = Arc::new(DesiredClass::new(&class, in_use));
            let subject = WriteSubject::GatewayApi(GatewayApiSubject::Class(Arc::new(class), desired));
            queue.set_desired(target.clone(), subject, now);
            let Some(job) = queue.next(now) else { break };
            writes += 1;
            let answer = server.answer(&job.step);
            queue.finished(&job, answer, now);
            notices.append(&mut queue.take_notices());
        }
        assert_eq!(writes, if round == 0 { 2 } else { 1 }, "round {round} writes at once");
    }
    assert!(notices.is_empty(), "{notices:?}");
}
