//! What counts as published of writes with every kind of answer.

use serde_json::json;

use super::*;
use crate::api::store::{Change, Delta, Store};
use crate::controller::desired_status::Desired;
use crate::controller::ownership::Ownership;
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::now;
use crate::controller::status_writer::queue::WriteQueue;
use crate::controller::status_writer::target::WriteSubject;
use crate::controller::tests::objects::{desired_status, service};

const ADDRESS: &str = "203.0.113.7";

/// A Service that waits for its status, in the cache of a term with a writer.
struct Bench {
    sent: SentStatuses,
    store: Store,
    queue: WriteQueue,
}

impl Bench {
    fn new() -> Self {
        let queue = WriteQueue::new(Ownership::default());
        let mut bench = Self { sent: SentStatuses::default(), store: Store::default(), queue };
        bench.cache("7", "u", &json!({}));
        bench
    }

    fn key() -> ServiceKey {
        ServiceKey::new("shop", "web")
    }

    /// Has the cache show a version of the Service.
    fn cache(&mut self, version: &str, uid: &str, status: &Value) {
        let finalizers = [crate::api::names::FINALIZER];
        let metadata = json!({"uid": uid, "resourceVersion": version, "finalizers": finalizers});
        let object = service(&json!({"metadata": metadata, "status": status}));
        let object = Arc::new(object);
        self.store.apply(Change::Services(Delta::Put(Arc::clone(&object))));
        let subject = WriteSubject::Service(
            ServiceObject::from(&object),
            Arc::new(Desired::Published(desired_status())),
        );
        self.queue.set_desired(WriteTarget::Service(Self::key()), subject, now());
    }

    fn send(&mut self) -> Option<(WriteJob, Option<WriteId>)> {
        let queue = &mut self.queue;
        match self.sent.send(Instant::now(), || queue.next(now()))? {
            NextSend::Write(job, id) => Some((job, id)),
            NextSend::Wait(job, until) => panic!("{job:?} waits until {until:?}"),
        }
    }

    /// Addresses that count as published beyond the cache, when its server was last heard this long from now.
    fn unseen(&self, heard_in: Duration) -> Vec<String> {
        let heard = Instant::now() + heard_in;
        let unseen = self.sent.unseen(self.store.objects(), |_| Some(heard), |_| true);
        unseen.values().flat_map(|it| &it.addresses).map(ToString::to_string).collect()
    }
}

fn done(version: &str) -> ApiAnswer {
    ApiAnswer::Done(json!({"metadata": {"resourceVersion": version}}).to_string().into_bytes())
}

#[test]
fn what_was_sent_counts_until_the_cache_shows_it_or_it_is_refused() {
    let target = WriteTarget::Service(Bench::key());
    let unreachable = || ApiAnswer::Unreachable { reason: String::new() };
    let refused = ApiAnswer::Refused(String::new());
    // The answer, and whether the address counts after it, after another minute, and once the cache shows version 9.
    for (answer, expected) in [
        (None, [true, false, true]),
        (Some(unreachable()), [true, false, true]),
        (Some(ApiAnswer::Failed(String::new())), [true, false, true]),
        (Some(refused), [false, false, false]),
        (Some(ApiAnswer::Stale), [false, false, false]),
        (Some(done("9")), [true, true, false]),
        (Some(done("10")), [true, true, true]),
    ] {
        let mut bench = Bench::new();
        assert!(bench.unseen(Duration::ZERO).is_empty());
        let (_, id) = bench.send().unwrap();
        assert_eq!(bench.unseen(Duration::ZERO), [ADDRESS]);
        let due = bench.sent.due(Instant::now());
        assert!(due.is_some_and(|due| due > Instant::now() + LANDS_WITHIN / 2));
        if let Some(answer) = &answer {
            bench.sent.answered(id, &target, answer);
        }
        let counts = |unseen: Vec<String>| !unseen.is_empty();
        let now = counts(bench.unseen(Duration::ZERO));
        bench.cache("9", "u", &json!({}));
        let shown = counts(bench.unseen(Duration::ZERO));
        let mut later = Bench::new();
        let (_, id) = later.send().unwrap();
        if let Some(answer) = &answer {
            later.sent.answered(id, &target, answer);
        }
        let later = counts(later.unseen(LANDS_WITHIN + Duration::from_secs(1)));
        assert_eq!([now, later, shown], expected, "{answer:?}");
    }
}

#[test]
fn a_write_for_an_object_that_is_gone_or_shows_the_same_counts_for_nothing() {
    let mut bench = Bench::new();
    bench.send().unwrap();
    let ingress = json!([{"ip": ADDRESS, "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]}]);
    bench.cache("8", "u", &json!({"loadBalancer": {"ingress": ingress}}));
    assert!(bench.unseen(Duration::ZERO).is_empty());
    bench.cache("9", "u", &json!({}));
    assert_eq!(bench.unseen(Duration::ZERO), [ADDRESS], "the write may come now");
    bench.cache("10", "other", &json!({}));
    assert!(bench.unseen(Duration::ZERO).is_empty());
    assert_eq!(bench.sent.due(Instant::now()), None);
}

#[test]
fn a_write_counts_until_its_object_is_known_to_be_gone() {
    let mut bench = Bench::new();
    bench.send().unwrap();
    let (known, listed) = (Instant::now(), std::mem::take(&mut bench.store));
    let unseen = |store: &Store, knows_all| {
        bench.sent.unseen(store.objects(), |_| Some(known), |_| knows_all).keys().cloned().collect::<Vec<_>>()
    };
    let nothing = Store::default();
    assert!(unseen(&nothing, false).is_empty());
    assert_eq!(unseen(&listed, true), [Bench::key()], "its kind was not listed yet");
    assert!(unseen(&nothing, true).is_empty());
    assert!(unseen(&listed, true).is_empty(), "it was deleted");
}

#[test]
fn what_a_restored_server_has_lost_counts_no_longer() {
    let target = WriteTarget::Service(Bench::key());
    let mut bench = Bench::new();
    let (_, id) = bench.send().unwrap();
    bench.sent.answered(id, &target, &done("5000"));
    assert_eq!(bench.unseen(Duration::ZERO), [ADDRESS]);
    bench.cache("6", "u", &json!({}));
    assert!(bench.unseen(Duration::ZERO).is_empty(), "the object is older than when the write was sent");

    // The object itself has the version that it had then.
    let mut bench = Bench::new();
    let (job, id) = bench.send().unwrap();
    bench.sent.answered(id, &target, &done("5000"));
    bench.queue.finished(&job, ApiAnswer::Unreachable { reason: String::new() }, now());
    let again = bench.sent.0.lock().note(&job, Instant::now());
    bench.sent.answered(again, &target, &done("9"));
    bench.cache("9", "u", &json!({}));
    assert!(bench.unseen(Duration::ZERO).is_empty(), "a later write has a version before it");
}

/// The cache is behind the answer to another write, on which this one was based.
#[test]
fn a_cache_that_lags_does_not_end_a_write() {
    let mut bench = Bench { sent: SentStatuses::default(), ..Bench::new() };
    bench.queue = WriteQueue::new(Ownership::default());
    let metadata = json!({"uid": "u", "resourceVersion": "7"});
    let object = Arc::new(service(&json!({"metadata": metadata})));
    bench.store.apply(Change::Services(Delta::Put(Arc::clone(&object))));
    let desired = Arc::new(Desired::Published(desired_status()));
    let subject = WriteSubject::Service(ServiceObject::from(&object), desired);
    bench.queue.set_desired(WriteTarget::Service(Bench::key()), subject, now());
    let (job, _) = bench.send().unwrap();
    assert!(matches!(job.step, WriteStep::AddFinalizer(_)));
    let finalizers = [crate::api::names::FINALIZER];
    let held = service(&json!({"metadata": {"uid": "u", "resourceVersion": "8", "finalizers": finalizers}}));
    bench.queue.finished(&job, ApiAnswer::Done(serde_json::to_vec(&held).unwrap()), now());
    let (job, id) = bench.send().unwrap();
    assert_eq!((&*job.version, &*job.cached), ("8", "7"));
    bench.sent.answered(id, &job.target, &done("9"));
    assert_eq!(bench.unseen(Duration::ZERO), [ADDRESS]);
}

#[tokio::test]
async fn nothing_is_sent_while_something_is_decided() {
    let mut bench = Bench::new();
    let mut decisions = bench.sent.decisions();
    let deciding = bench.sent.decide();
    assert!(bench.send().is_none());
    drop(deciding);
    decisions.changed().await.unwrap();
    assert!(bench.send().is_some());
}

#[tokio::test]
async fn a_rejection_is_told() {
    let mut bench = Bench::new();
    let (job, id) = bench.send().unwrap();
    bench.sent.answered(id, &job.target, &ApiAnswer::Refused(String::new()));
    bench.sent.rejected().await;
}
