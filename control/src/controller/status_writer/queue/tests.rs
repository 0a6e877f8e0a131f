//! The queue against a model of the API server.

mod api_server;
mod exports;
mod gateway_api;
mod harness;
mod interleavings;
mod multi_cluster;
mod refusals;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use sheave_model::{FrontendAddr, Protocol};

use self::api_server::ModelServer;
use self::harness::{Harness, WriteFate};
use super::*;
use crate::api::names::READY;
use crate::api::store::ServiceKey;
use crate::controller::desired_status::{Announcement, Desired, DesiredStatus};
use crate::controller::service_object::ServiceObject;
use crate::controller::tests::objects::ingress;
use crate::projection::service_health::Fault;

const FOREIGN: &str = "example.com/Ready";

fn foreign_condition(status: &str) -> Value {
    json!({"type": FOREIGN, "status": status, "reason": "Ready", "message": "",
           "lastTransitionTime": "2027-01-15T08:00:00Z"})
}

fn foreign_ingress(last: u8) -> Value {
    json!([{"ip": format!("198.51.100.{last}"), "ipMode": "VIP"}])
}

#[test]
fn publishing_takes_two_writes() {
    let mut harness = Harness::new();
    harness.settle();
    assert_eq!(harness.jobs, 2);
    harness.check();
}

#[test]
fn the_second_write_does_not_wait_for_the_cache() {
    let mut harness = Harness::new();
    assert!(harness.write(WriteFate::Answered));
    assert!(harness.write(WriteFate::Answered));
    assert!(!harness.write(WriteFate::Answered));
    // The cache still has the first version and is processed again; the queue must not trust it.
    harness.decide();
    assert!(!harness.write(WriteFate::Answered));
    harness.settle();
    assert_eq!(harness.jobs, 2);
}

#[test]
fn a_cache_that_stays_behind_is_believed_in_the_end() {
    let mut harness = Harness::new();
    while harness.write(WriteFate::Answered) {}
    harness.elapsed += Duration::from_secs(31);
    harness.decide();
    assert!(harness.write(WriteFate::Answered), "the cache is believed");
    harness.settle();
    harness.check();
}

#[test]
fn one_write_at_a_time_per_object() {
    let mut harness = Harness::new();
    let first = harness.send().unwrap();
    harness.server.merge(&json!({"metadata": {"labels": {"a": "b"}}}));
    harness.relist();
    assert!(harness.send().is_none());
    harness.arrive(&first, WriteFate::Answered);
    harness.settle();
    harness.check();
}

#[test]
fn a_finalizer_that_came_too_late_waits_for_the_newer_object() {
    let mut harness = Harness::new();
    harness.server.merge(&json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(harness.write(WriteFate::Answered));
    assert!(harness.send().is_none(), "it asks again before it can know better");
    harness.deliver();
    assert!(harness.write(WriteFate::Answered), "the newer object is there");
    assert_eq!(harness.elapsed, Duration::ZERO);
    harness.settle();
    harness.check();
}

#[test]
fn deletion_clears_and_lets_go() {
    let mut harness = Harness::settled();
    harness.server.delete();
    harness.settle();
    assert_eq!(harness.server.object, None);
    assert_eq!(harness.jobs, 2);
    harness.check();
}

#[test]
fn after_the_last_finalizer_the_old_object_in_the_cache_is_not_believed() {
    let mut harness = Harness::settled();
    harness.server.delete();
    harness.deliver();
    while harness.write(WriteFate::Answered) {}
    assert_eq!(harness.server.object, None);
    harness.decide();
    assert!(harness.send().is_none());
}

#[test]
fn a_change_of_type_is_cleaned_and_undone() {
    let mut harness = Harness::settled();
    harness.server.set_type("ClusterIP");
    harness.settle();
    harness.check();
    harness.server.set_type("LoadBalancer");
    harness.settle();
    harness.check();
}

#[test]
fn a_write_for_one_object_never_reaches_its_successor() {
    let mut harness = Harness::settled();
    harness.wanted.gateways = 0;
    harness.decide();
    let late = harness.send().unwrap();
    harness.server.delete();
    harness.server.merge(&json!({"metadata": {"finalizers": null}}));
    harness.server.create();
    let version = harness.server.history.len();
    harness.arrive(&late, WriteFate::Answered);
    assert_eq!(harness.server.history.len(), version, "the successor was changed");
    harness.settle();
    harness.check();
}

#[test]
fn conditions_of_others_are_kept() {
    let mut harness = Harness::new();
    harness.server.rival("other", FOREIGN, &foreign_condition("True"));
    harness.settle();
    harness.check();
    assert_eq!(harness.server.field(FOREIGN), foreign_condition("True"));
    harness.server.set_type("ClusterIP");
    harness.settle();
    harness.check();
    assert_eq!(harness.server.field(FOREIGN), foreign_condition("True"));
}

#[test]
fn an_ingress_of_others_stays_when_we_let_go() {
    let mut harness = Harness::settled();
    // While no controller runs, the Service moves to another installation, which publishes at once.
    harness.server.set_type("ClusterIP");
    harness.server.set_type("LoadBalancer");
    harness.server.rival("other", "ingress", &foreign_ingress(1));
    let service: Service = serde_json::from_value(harness.server.object.clone().unwrap()).unwrap();
    let subject = WriteSubject::Service(ServiceObject::from(&Arc::new(service)), Arc::new(Desired::Released));
    harness.queue.set_desired(Harness::target(), subject, harness.now());
    while harness.write(WriteFate::Answered) {}
    assert_eq!(harness.server.field("ingress"), foreign_ingress(1));
    assert_eq!(harness.server.object.as_ref().unwrap()["metadata"].get("finalizers"), None);
}

#[test]
fn a_rival_is_named_and_then_overruled() {
    let mut harness = Harness::settled();
    harness.server.rival("cloud", "ingress", &foreign_ingress(1));
    harness.settle();
    harness.check();
    let expected = WriteNotice::Contested {
        object: Harness::target().object(),
        fields: vec!["ingress".into()],
        rivals: vec!["cloud".into()],
    };
    assert_eq!(harness.notices, [expected]);
    assert_eq!(harness.elapsed, Duration::ZERO, "a single mistake is put right at once");
}

/// A rival undoes each of our writes immediately, for an hour.
fn fight(strike: impl Fn(&mut ModelServer)) -> Harness {
    let mut harness = Harness::settled();
    strike(&mut harness.server);
    while harness.elapsed < Duration::from_secs(3600) {
        let changes = harness.server.changes;
        harness.settle_until(|harness| harness.server.changes > changes);
        strike(&mut harness.server);
    }
    harness
}

#[test]
fn a_rival_that_never_gives_up_costs_little() {
    let harness = fight(|server| server.rival("cloud", "ingress", &foreign_ingress(1)));
    assert!(harness.jobs < 60, "{} writes in an hour", harness.jobs);
    assert!(harness.jobs > 10, "{} writes in an hour: it gave up", harness.jobs);
}

#[test]
fn a_rival_that_only_removes_costs_little() {
    let harness = fight(|server| server.rival("cloud", "ingress", &Value::Null));
    assert!(harness.jobs < 40, "{} writes in an hour", harness.jobs);
    let nameless =
        |trouble: &WriteNotice| matches!(trouble, WriteNotice::Contested { rivals, .. } if rivals.is_empty());
    assert!(harness.notices.iter().any(nameless));
}

#[test]
fn somebody_who_takes_the_finalizer_again_and_again_costs_little() {
    let harness = fight(|server| server.merge(&json!({"metadata": {"finalizers": null}})));
    assert!(harness.jobs < 40, "{} writes in an hour", harness.jobs);
}

#[test]
fn a_fight_that_is_over_is_forgotten() {
    let mut harness = fight(|server| server.rival("cloud", "ingress", &foreign_ingress(1)));
    harness.settle();
    harness.elapsed += Duration::from_secs(601);
    let before = harness.elapsed;
    harness.server.rival("cloud", "ingress", &foreign_ingress(1));
    harness.settle();
    harness.check();
    assert_eq!(harness.elapsed, before, "the first write after peace waits");
}

#[test]
fn letting_go_does_not_wait_for_the_end_of_a_fight() {
    let mut harness = fight(|server| server.rival("cloud", "ingress", &foreign_ingress(1)));
    let before = harness.elapsed;
    harness.server.delete();
    harness.settle_until(|harness| harness.server.object.is_none());
    assert_eq!((harness.server.object.clone(), harness.elapsed), (None, before));
}

#[test]
fn a_server_that_does_not_keep_what_is_written_is_not_hammered() {
    let mut harness = Harness::settled();
    harness.wanted.ingress = vec![ingress("203.0.113.9", None)];
    harness.decide();
    // Like an admission webhook that changes each write on the way.
    while harness.elapsed < Duration::from_secs(3600) {
        if let Some(job) = harness.send() {
            let ApiAnswer::Done(_) = harness.server.answer(&job) else { panic!("refused") };
            harness.server.merge(&json!({"status": {"loadBalancer": {"ingress": foreign_ingress(1)}}}));
            let changed = harness.server.object.clone().unwrap().to_string().into_bytes();
            harness.queue.finished(&job, ApiAnswer::Done(changed), harness.now());
        } else {
            harness.relist();
            harness.sleep();
        }
    }
    assert!(harness.jobs < 30, "{} writes in an hour", harness.jobs);
}

#[test]
fn a_server_that_is_away_is_asked_rarely_and_answered_soon() {
    let mut harness = Harness::new();
    let outage = Duration::from_secs(600);
    while harness.elapsed < outage {
        if !harness.write(WriteFate::Lost) {
            harness.sleep();
        }
    }
    assert!(harness.jobs < 40, "{} writes to a server that is away", harness.jobs);
    let back = harness.elapsed;
    harness.settle();
    harness.check();
    assert!(
        harness.elapsed - back < Duration::from_secs(45),
        "{:?} after it is back",
        harness.elapsed - back
    );
}

#[test]
fn the_server_says_how_long_to_wait() {
    let mut harness = Harness::new();
    assert!(harness.write(WriteFate::Rejected));
    harness.sleep();
    while harness.queue.next(harness.now()).is_none() {
        harness.sleep();
    }
    assert!(harness.elapsed >= Duration::from_secs(3), "{:?}", harness.elapsed);
}

#[test]
fn an_answer_that_the_object_is_gone_does_not_end_the_wish() {
    let mut harness = Harness::new();
    let job = harness.send().unwrap();
    harness.queue.finished(&job, ApiAnswer::Gone, harness.now());
    assert!(harness.send().is_none(), "asked again at once");
    harness.settle();
    harness.check();
    harness.wanted.gateways = 0;
    harness.decide();
    let job = harness.send().unwrap();
    harness.queue.finished(&job, ApiAnswer::Gone, harness.now());
    harness.server.merge(&json!({"metadata": {"labels": {"a": "b"}}}));
    harness.relist();
    assert!(harness.write(WriteFate::Answered), "the watch says that it is there");
    harness.server.delete();
    harness.settle();
    assert_eq!(harness.server.object, None);
    harness.check();
}

#[test]
fn many_services_flow_thirty_two_at_a_time() {
    let harness = Harness::new();
    let mut queue = WriteQueue::new(Ownership::default());
    let desired_status =
        DesiredStatus { ingress: vec![ingress("203.0.113.7", None)], ..DesiredStatus::default() };
    let desired = Arc::new(Desired::Published(desired_status));
    let service = Arc::new(harness.server.history[1].clone().unwrap());
    let services = 64 * MOST;
    for index in 0..services {
        let target = WriteTarget::Service(ServiceKey::new("shop", &index.to_string()));
        queue.set_desired(
            target,
            WriteSubject::Service(ServiceObject::from(&service), Arc::clone(&desired)),
            harness.now(),
        );
    }
    let mut written = HashSet::new();
    loop {
        let jobs: Vec<WriteJob> = std::iter::from_fn(|| queue.next(harness.now())).collect();
        if jobs.is_empty() {
            break;
        }
        assert_eq!(jobs.len(), MOST);
        for job in jobs {
            written.insert(job.target.clone());
            queue.finished(&job, ApiAnswer::Gone, harness.now());
        }
    }
    assert_eq!(written.len(), services);
}

#[test]
fn a_pool_is_written_at_most_once_in_five_seconds() {
    let harness = Harness::new();
    let mut queue = WriteQueue::new(Ownership::default());
    let pool = json!({"metadata": {"name": "lan", "uid": "p1", "resourceVersion": "5"}, "spec": {}});
    let pool: Arc<crate::api::address_pool::AddressPool> = Arc::new(serde_json::from_value(pool).unwrap());
    let mut now = harness.now();
    let want = |queue: &mut WriteQueue, used: i64, now: Now| {
        let status = crate::api::address_pool::AddressPoolStatus { used, ..Default::default() };
        queue.set_desired(
            WriteTarget::Pool("lan".into()),
            WriteSubject::Pool(Arc::clone(&pool), Arc::new(status)),
            now,
        );
    };
    want(&mut queue, 1, now);
    let job = queue.next(now).unwrap();
    let mut written = (*pool).clone();
    written.metadata.resource_version = Some("6".into());
    written.status = Some(crate::api::address_pool::AddressPoolStatus { used: 1, ..Default::default() });
    queue.finished(&job, ApiAnswer::Done(serde_json::to_vec(&written).unwrap()), now);
    want(&mut queue, 2, now);
    assert!(queue.next(now).is_none());
    assert_eq!(queue.wakes_at(), Some(now.instant + Duration::from_secs(5)));
    now.instant += Duration::from_secs(5);
    assert!(queue.next(now).is_some());
}

#[test]
fn without_the_lease_everything_is_dropped() {
    let mut harness = Harness::new();
    harness.queue.drop_everything();
    assert!(harness.send().is_none());
    assert_eq!(harness.queue.wakes_at(), None);
    harness.decide();
    let sent = harness.send().unwrap();
    harness.queue.drop_everything();
    harness.decide();
    assert!(harness.send().is_none(), "the write that is under way is not over");
    harness.arrive(&sent, WriteFate::Answered);
    harness.settle();
    harness.check();
}

#[test]
fn other_words_alone_wait_for_ten_seconds() {
    let mut harness = Harness::settled();
    let missing = |count: u32| {
        let message = format!("gateways a and {count} more: cannot listen");
        crate::controller::tests::objects::problem(crate::api::problem::reason::NO_ADDRESS, &message, None)
    };
    harness.wanted.problems = vec![missing(1)];
    harness.decide();
    harness.settle();
    assert_eq!((harness.jobs, harness.elapsed), (1, Duration::ZERO), "another status is written at once");
    for count in 2..500 {
        harness.wanted.problems = vec![missing(count)];
        harness.decide();
        while harness.write(WriteFate::Answered) || harness.deliver() {}
        harness.elapsed += Duration::from_millis(100);
    }
    assert!((5..=7).contains(&harness.jobs), "{} writes in 50 s", harness.jobs);
    harness.settle();
    harness.check();
}

fn announced_by(harness: &mut Harness, node: &str) {
    harness.wanted.announcement = Announcement::ByOne([([203, 0, 113, 7].into(), node.to_owned())].into());
    harness.decide();
}

#[test]
fn another_gateway_is_named_once_it_has_announced_the_address_for_ten_seconds() {
    let mut harness = Harness::settled();
    announced_by(&mut harness, "gw-1");
    harness.settle();
    assert_eq!((harness.jobs, harness.elapsed), (1, Duration::ZERO), "the first one is named at once");
    harness.elapsed += Duration::from_secs(100);
    for node in ["gw-2", "gw-3", "gw-2", "gw-1"] {
        announced_by(&mut harness, node);
        assert!(harness.send().is_none());
        harness.elapsed += Duration::from_secs(9);
        assert!(harness.send().is_none());
    }
    harness.settle();
    assert_eq!(harness.jobs, 1, "it moved there and back");

    let moved = harness.elapsed;
    announced_by(&mut harness, "gw-2");
    harness.settle();
    assert_eq!((harness.jobs, harness.elapsed - moved), (2, Duration::from_secs(10)));
    let condition = harness.server.field("sheave.dev/Announced").to_string();
    assert!(condition.contains("203.0.113.7 on gw-2"), "{condition}");
    harness.check();
}

#[test]
fn when_nothing_is_announced_any_more_one_write_takes_the_condition_away_every_time() {
    let mut harness = Harness::settled();
    for round in 1..4 {
        announced_by(&mut harness, "gw-1");
        harness.settle();
        assert!(harness.server.owns("sheave", "sheave.dev/Announced"));
        harness.wanted.announcement = Announcement::NotNeeded;
        harness.decide();
        harness.settle();
        assert!(harness.server.field("sheave.dev/Announced").is_null());
        assert_eq!((harness.jobs, harness.elapsed), (2 * round, Duration::ZERO), "nobody contests it");
    }
    harness.check();
}

fn set_ready(harness: &mut Harness, ready: bool) {
    let addr = FrontendAddr { ip: [203, 0, 113, 7].into(), port: 80, protocol: Protocol::Tcp };
    harness.wanted.faults = if ready { Vec::new() } else { vec![(addr, Fault::NoEndpoint(0))] };
    harness.decide();
}

#[test]
fn a_service_is_ready_as_soon_as_its_first_endpoint_is() {
    let mut harness = Harness::new();
    set_ready(&mut harness, false);
    while harness.write(WriteFate::Answered) || harness.deliver() {}
    harness.elapsed += Duration::from_millis(100);
    set_ready(&mut harness, true);
    while harness.write(WriteFate::Answered) || harness.deliver() {}
    assert_eq!(harness.server.field(READY)["status"], "True");
    harness.check();
}

/// An endpoint comes and goes ten times a second, for ten minutes.
#[test]
fn an_endpoint_that_flaps_is_written_a_few_times_at_once_and_then_rarely() {
    let mut harness = Harness::settled();
    for round in 0..6000 {
        set_ready(&mut harness, round % 2 == 1);
        while harness.write(WriteFate::Answered) || harness.deliver() {}
        harness.elapsed += Duration::from_millis(100);
        if round == 5 {
            assert_eq!(harness.jobs, 6, "three restarts of all endpoints are told as they happen");
        }
    }
    assert!((20..=40).contains(&harness.jobs), "{} writes in 600 s", harness.jobs);
    let end = harness.elapsed;
    harness.settle();
    assert!(harness.elapsed - end <= Duration::from_secs(20), "{:?}", harness.elapsed - end);
    assert_eq!(harness.server.field(READY)["status"], "True");
    harness.check();
}

#[test]
fn a_write_that_fails_costs_nothing_of_what_may_be_written_at_once() {
    let mut harness = Harness::settled();
    for _ in 0..20 {
        set_ready(&mut harness, false);
        harness.write(WriteFate::Lost);
        harness.sleep();
    }
    harness.settle();
    let back = harness.elapsed;
    for ready in [true, false, true] {
        set_ready(&mut harness, ready);
        harness.settle();
    }
    assert_eq!(harness.elapsed, back);
    harness.check();
}
