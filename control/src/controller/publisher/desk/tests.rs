//! The desk against a model of the server.

mod interleavings;
mod multi_cluster;
mod refusals;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::model::Server;
use super::world::{Fate, World};
use super::*;
use crate::controller::publication::fixture::ingress;
use crate::controller::publication::{Desired, Exposed, Statement};
use crate::store::ServiceKey;

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
    let mut world = World::new();
    world.settle();
    assert_eq!(world.jobs, 2);
    world.check();
}

#[test]
fn the_second_write_does_not_wait_for_the_cache() {
    let mut world = World::new();
    assert!(world.write(Fate::Answered));
    assert!(world.write(Fate::Answered));
    assert!(!world.write(Fate::Answered));
    // The cache is at the very beginning, and is told so again: it is not believed.
    world.decide();
    assert!(!world.write(Fate::Answered));
    world.settle();
    assert_eq!(world.jobs, 2);
}

#[test]
fn a_cache_that_stays_behind_is_believed_in_the_end() {
    let mut world = World::new();
    while world.write(Fate::Answered) {}
    world.elapsed += Duration::from_secs(31);
    world.decide();
    assert!(world.write(Fate::Answered), "the cache is believed");
    world.settle();
    world.check();
}

#[test]
fn one_write_at_a_time_per_object() {
    let mut world = World::new();
    let first = world.send().unwrap();
    world.server.merge(&json!({"metadata": {"labels": {"a": "b"}}}));
    world.relist();
    assert!(world.send().is_none());
    world.arrive(&first, Fate::Answered);
    world.settle();
    world.check();
}

#[test]
fn a_finalizer_that_came_too_late_waits_for_the_newer_object() {
    let mut world = World::new();
    world.server.merge(&json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(world.write(Fate::Answered));
    assert!(world.send().is_none(), "it asks again before it can know better");
    world.deliver();
    assert!(world.write(Fate::Answered), "the newer object is there");
    assert_eq!(world.elapsed, Duration::ZERO);
    world.settle();
    world.check();
}

#[test]
fn deletion_clears_and_lets_go() {
    let mut world = World::settled();
    world.server.delete();
    world.settle();
    assert_eq!(world.server.object, None);
    assert_eq!(world.jobs, 2);
    world.check();
}

#[test]
fn after_the_last_finalizer_the_old_object_in_the_cache_is_not_believed() {
    let mut world = World::settled();
    world.server.delete();
    world.deliver();
    while world.write(Fate::Answered) {}
    assert_eq!(world.server.object, None);
    world.decide();
    assert!(world.send().is_none());
}

#[test]
fn a_change_of_type_is_cleaned_and_undone() {
    let mut world = World::settled();
    world.server.set_type("ClusterIP");
    world.settle();
    world.check();
    world.server.set_type("LoadBalancer");
    world.settle();
    world.check();
}

#[test]
fn a_write_for_one_object_never_reaches_its_successor() {
    let mut world = World::settled();
    world.wanted.gateways = 0;
    world.decide();
    let late = world.send().unwrap();
    world.server.delete();
    world.server.merge(&json!({"metadata": {"finalizers": null}}));
    world.server.create();
    let version = world.server.history.len();
    world.arrive(&late, Fate::Answered);
    assert_eq!(world.server.history.len(), version, "the successor was changed");
    world.settle();
    world.check();
}

#[test]
fn conditions_of_others_are_kept() {
    let mut world = World::new();
    world.server.rival("other", FOREIGN, &foreign_condition("True"));
    world.settle();
    world.check();
    assert_eq!(world.server.field(FOREIGN), foreign_condition("True"));
    world.server.set_type("ClusterIP");
    world.settle();
    world.check();
    assert_eq!(world.server.field(FOREIGN), foreign_condition("True"));
}

#[test]
fn an_ingress_of_others_stays_when_we_let_go() {
    let mut world = World::settled();
    // While we are away the Service becomes somebody else's, who publishes at once.
    world.server.set_type("ClusterIP");
    world.server.set_type("LoadBalancer");
    world.server.rival("other", "ingress", &foreign_ingress(1));
    let service: Service = serde_json::from_value(world.server.object.clone().unwrap()).unwrap();
    let subject = Subject::Service(Exposed::from(&Arc::new(service)), Arc::new(Desired::Released));
    world.desk.desire(World::target(), subject, world.now());
    while world.write(Fate::Answered) {}
    assert_eq!(world.server.field("ingress"), foreign_ingress(1));
    assert_eq!(world.server.object.as_ref().unwrap()["metadata"].get("finalizers"), None);
}

#[test]
fn a_rival_is_named_and_then_overruled() {
    let mut world = World::settled();
    world.server.rival("cloud", "ingress", &foreign_ingress(1));
    world.settle();
    world.check();
    let expected = WriteTrouble::Contested {
        object: World::target().object(),
        fields: vec!["ingress".into()],
        rivals: vec!["cloud".into()],
    };
    assert_eq!(world.troubles, [expected]);
    assert_eq!(world.elapsed, Duration::ZERO, "a single mistake is put right at once");
}

/// A rival that answers each of our writes at once, for an hour.
fn fight(strike: impl Fn(&mut Server)) -> World {
    let mut world = World::settled();
    strike(&mut world.server);
    while world.elapsed < Duration::from_secs(3600) {
        let changes = world.server.changes;
        world.settle_until(|world| world.server.changes > changes);
        strike(&mut world.server);
    }
    world
}

#[test]
fn a_rival_that_never_gives_up_costs_little() {
    let world = fight(|server| server.rival("cloud", "ingress", &foreign_ingress(1)));
    assert!(world.jobs < 60, "{} writes in an hour", world.jobs);
    assert!(world.jobs > 10, "{} writes in an hour: it gave up", world.jobs);
}

#[test]
fn a_rival_that_only_removes_costs_little() {
    let world = fight(|server| server.rival("cloud", "ingress", &Value::Null));
    assert!(world.jobs < 40, "{} writes in an hour", world.jobs);
    let nameless = |trouble: &WriteTrouble| matches!(trouble, WriteTrouble::Contested { rivals, .. } if rivals.is_empty());
    assert!(world.troubles.iter().any(nameless));
}

#[test]
fn somebody_who_takes_the_finalizer_again_and_again_costs_little() {
    let world = fight(|server| server.merge(&json!({"metadata": {"finalizers": null}})));
    assert!(world.jobs < 40, "{} writes in an hour", world.jobs);
}

#[test]
fn a_fight_that_is_over_is_forgotten() {
    let mut world = fight(|server| server.rival("cloud", "ingress", &foreign_ingress(1)));
    world.settle();
    world.elapsed += Duration::from_secs(601);
    let before = world.elapsed;
    world.server.rival("cloud", "ingress", &foreign_ingress(1));
    world.settle();
    world.check();
    assert_eq!(world.elapsed, before, "the first write after peace waits");
}

#[test]
fn letting_go_does_not_wait_for_the_end_of_a_fight() {
    let mut world = fight(|server| server.rival("cloud", "ingress", &foreign_ingress(1)));
    let before = world.elapsed;
    world.server.delete();
    world.settle_until(|world| world.server.object.is_none());
    assert_eq!((world.server.object.clone(), world.elapsed), (None, before));
}

#[test]
fn a_server_that_does_not_keep_what_is_written_is_not_hammered() {
    let mut world = World::settled();
    world.wanted.ingress = vec![ingress("203.0.113.9", None)];
    world.decide();
    // As an admission webhook would: each write is changed at once.
    while world.elapsed < Duration::from_secs(3600) {
        if let Some(job) = world.send() {
            let Answer::Written(_) = world.server.answer(&job) else { panic!("refused") };
            world.server.merge(&json!({"status": {"loadBalancer": {"ingress": foreign_ingress(1)}}}));
            let changed = world.server.object.clone().unwrap().to_string().into_bytes();
            world.desk.finished(&job, Answer::Written(changed), world.now());
        } else {
            world.relist();
            world.sleep();
        }
    }
    assert!(world.jobs < 30, "{} writes in an hour", world.jobs);
}

#[test]
fn a_server_that_is_away_is_asked_rarely_and_answered_soon() {
    let mut world = World::new();
    let outage = Duration::from_secs(600);
    while world.elapsed < outage {
        if !world.write(Fate::Lost) {
            world.sleep();
        }
    }
    assert!(world.jobs < 40, "{} writes to a server that is away", world.jobs);
    let back = world.elapsed;
    world.settle();
    world.check();
    assert!(world.elapsed - back < Duration::from_secs(45), "{:?} after it is back", world.elapsed - back);
}

#[test]
fn the_server_says_how_long_to_wait() {
    let mut world = World::new();
    assert!(world.write(Fate::Rejected));
    world.sleep();
    while world.desk.next(world.now()).is_none() {
        world.sleep();
    }
    assert!(world.elapsed >= Duration::from_secs(3), "{:?}", world.elapsed);
}

#[test]
fn an_answer_that_the_object_is_gone_does_not_end_the_wish() {
    let mut world = World::new();
    let job = world.send().unwrap();
    world.desk.finished(&job, Answer::Gone, world.now());
    assert!(world.send().is_none(), "asked again at once");
    world.settle();
    world.check();
    world.wanted.gateways = 0;
    world.decide();
    let job = world.send().unwrap();
    world.desk.finished(&job, Answer::Gone, world.now());
    world.server.merge(&json!({"metadata": {"labels": {"a": "b"}}}));
    world.relist();
    assert!(world.write(Fate::Answered), "the watch says that it is there");
    world.server.delete();
    world.settle();
    assert_eq!(world.server.object, None);
    world.check();
}

#[test]
fn many_services_flow_thirty_two_at_a_time() {
    let world = World::new();
    let mut desk = Desk::new(PublishOptions::default());
    let statement = Statement { ingress: vec![ingress("203.0.113.7", None)], ..Statement::default() };
    let desired = Arc::new(Desired::Published(statement));
    let service = Arc::new(world.server.history[1].clone().unwrap());
    let services = 64 * MOST;
    for index in 0..services {
        let target = Target::Service(ServiceKey::new("shop", &index.to_string()));
        desk.desire(target, Subject::Service(Exposed::from(&service), Arc::clone(&desired)), world.now());
    }
    let mut written = HashSet::new();
    loop {
        let jobs: Vec<Job> = std::iter::from_fn(|| desk.next(world.now())).collect();
        if jobs.is_empty() {
            break;
        }
        assert_eq!(jobs.len(), MOST);
        for job in jobs {
            written.insert(job.target.clone());
            desk.finished(&job, Answer::Gone, world.now());
        }
    }
    assert_eq!(written.len(), services);
}

#[test]
fn a_pool_is_written_at_most_once_in_five_seconds() {
    let world = World::new();
    let mut desk = Desk::new(PublishOptions::default());
    let pool = json!({"metadata": {"name": "lan", "uid": "p1", "resourceVersion": "5"}, "spec": {}});
    let pool: Arc<crate::address_pool::AddressPool> = Arc::new(serde_json::from_value(pool).unwrap());
    let mut now = world.now();
    let want = |desk: &mut Desk, used: i64, now: Moment| {
        let status = crate::address_pool::AddressPoolStatus { used, ..Default::default() };
        desk.desire(Target::Pool("lan".into()), Subject::Pool(Arc::clone(&pool), Arc::new(status)), now);
    };
    want(&mut desk, 1, now);
    let job = desk.next(now).unwrap();
    let mut written = (*pool).clone();
    written.metadata.resource_version = Some("6".into());
    written.status = Some(crate::address_pool::AddressPoolStatus { used: 1, ..Default::default() });
    desk.finished(&job, Answer::Written(serde_json::to_vec(&written).unwrap()), now);
    want(&mut desk, 2, now);
    assert!(desk.next(now).is_none());
    assert_eq!(desk.wakes_at(), Some(now.instant + Duration::from_secs(5)));
    now.instant += Duration::from_secs(5);
    assert!(desk.next(now).is_some());
}

#[test]
fn without_the_lease_everything_is_dropped() {
    let mut world = World::new();
    world.desk.drop_everything();
    assert!(world.send().is_none());
    assert_eq!(world.desk.wakes_at(), None);
    world.decide();
    let sent = world.send().unwrap();
    world.desk.drop_everything();
    world.decide();
    assert!(world.send().is_none(), "the write that is under way is not over");
    world.arrive(&sent, Fate::Answered);
    world.settle();
    world.check();
}

#[test]
fn other_words_alone_wait_for_ten_seconds() {
    let mut world = World::settled();
    let missing = |count: u32| {
        let message = format!("gateways a and {count} more: cannot listen");
        crate::controller::publication::fixture::problem(crate::problem::reason::NO_ADDRESS, &message, None)
    };
    world.wanted.problems = vec![missing(1)];
    world.decide();
    world.settle();
    assert_eq!((world.jobs, world.elapsed), (1, Duration::ZERO), "another status is written at once");
    for count in 2..500 {
        world.wanted.problems = vec![missing(count)];
        world.decide();
        while world.write(Fate::Answered) || world.deliver() {}
        world.elapsed += Duration::from_millis(100);
    }
    assert!((5..=7).contains(&world.jobs), "{} writes in 50 s", world.jobs);
    world.settle();
    world.check();
}
