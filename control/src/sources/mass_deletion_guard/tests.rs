//! Which deletions are held back, and that every hold ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::api::karmada::{COLLECTED_LABEL, Manifest, MultiClusterService, Work};
use crate::api::store::{KarmadaObjects, SERVICE_NAME_LABEL, Store};

mod model;

const HOLD: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A guard with a store and a manual clock.
struct Bench {
    guard: MassDeletionGuard,
    store: Store,
    now: Instant,
}

impl Bench {
    /// A bench with `count` Services, as after the first list.
    fn with(count: usize) -> Self {
        let mut bench =
            Self { guard: MassDeletionGuard::new(HOLD), store: Store::default(), now: Instant::now() };
        assert!(!bench.apply(services(0..count)), "the first list is believed");
        bench
    }

    /// Applies a change like the gateway. Returns whether it was completed.
    fn apply(&mut self, change: Change) -> bool {
        let reported = change.clone();
        let admitted = self.guard.admit(change, self.store.objects(), self.now);
        let completed = admitted != reported;
        self.store.apply(admitted);
        completed
    }

    /// Advances the time and accepts what is due.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        for change in self.guard.release(self.now) {
            self.store.apply(change);
        }
    }

    fn there(&self) -> usize {
        self.store.objects().services.len()
    }

    fn held(&self) -> Vec<(&'static str, usize, usize, usize)> {
        self.guard.holding().iter().map(|it| (it.kind, it.there, it.listed, it.kept)).collect()
    }
}

fn meta(name: usize) -> ObjectMeta {
    let (namespace, name) = (Some("shop".to_owned()), Some(format!("s{name}")));
    ObjectMeta { name, namespace, ..ObjectMeta::default() }
}

fn service(name: usize, class: &str) -> Arc<Service> {
    let spec = ServiceSpec { load_balancer_class: Some(class.to_owned()), ..ServiceSpec::default() };
    Arc::new(Service { metadata: meta(name), spec: Some(spec), status: None })
}

fn services(names: impl IntoIterator<Item = usize>) -> Change {
    Change::Services(Delta::All(names.into_iter().map(|name| service(name, "listed")).collect()))
}

fn put(name: usize) -> Change {
    Change::Services(Delta::Put(service(name, "put")))
}

fn gone(name: usize) -> Change {
    Change::Services(Delta::Gone { namespace: "shop".into(), name: format!("s{name}").into() })
}

#[test]
fn an_empty_list_where_there_was_plenty_waits_and_is_believed_in_the_end() {
    let mut bench = Bench::with(100);
    assert!(bench.apply(services([])));
    assert_eq!((bench.there(), bench.held()), (100, vec![("Service", 100, 0, 100)]));
    assert_eq!(bench.guard.due(), Some(bench.now + HOLD));
    bench.pass(HOLD - SECOND);
    assert_eq!(bench.there(), 100, "not before its time");
    bench.pass(SECOND);
    assert_eq!((bench.there(), bench.held(), bench.guard.due()), (0, vec![], None));
}

#[test]
fn the_rule_is_nine_tenths_of_at_least_ten() {
    for (there, listed, doubted) in
        [(9, 0, false), (10, 0, true), (10, 1, true), (10, 2, false), (100, 10, true), (100, 11, false)]
    {
        let mut bench = Bench::with(there);
        assert_eq!(bench.apply(services(0..listed)), doubted, "{listed} of {there}");
        assert_eq!(bench.there(), if doubted { there } else { listed }, "{listed} of {there}");
    }
}

/// Many objects depend on each.
#[test]
fn of_some_kinds_a_single_object_is_plenty() {
    let mut bench = Bench::with(9);
    let metadata = ObjectMeta { namespace: None, ..meta(0) };
    let namespace = Arc::new(Namespace { metadata, ..Namespace::default() });
    assert!(!bench.apply(Change::Namespaces(Delta::All(vec![namespace]))));
    assert!(bench.apply(Change::Namespaces(Delta::All(Vec::new()))));
    assert_eq!(bench.held(), [("Namespace", 1, 0, 1)]);
    bench.pass(HOLD);
    assert!(bench.store.objects().namespaces.is_empty());
    assert!(!bench.apply(services([])), "nine are not plenty");
}

#[test]
fn what_a_doubted_list_has_is_believed_at_once() {
    let mut bench = Bench::with(20);
    assert!(!bench.store.take_dirty().is_nothing());
    let list = vec![service(0, "changed"), service(70, "new")];
    assert!(bench.apply(Change::Services(Delta::All(list))));
    assert_eq!(bench.held(), [("Service", 20, 2, 19)]);
    assert_eq!(bench.there(), 21);
    let dirty = ["s0", "s70"].map(|name| crate::api::store::ServiceKey::new("shop", name));
    assert_eq!(bench.store.take_dirty(), crate::api::store::Dirty::Services(dirty.into()));
}

#[test]
fn a_list_that_has_them_again_ends_the_doubt() {
    let mut bench = Bench::with(50);
    assert!(bench.apply(services([])));
    bench.pass(30 * SECOND);
    assert!(!bench.apply(services(0..40)));
    assert_eq!((bench.there(), bench.held(), bench.guard.due()), (40, vec![], None));
    assert!(bench.apply(services([])), "another doubt has its own time");
    assert_eq!(bench.guard.due(), Some(bench.now + HOLD));
}

#[test]
fn a_list_that_lacks_them_still_neither_ends_nor_extends_the_doubt() {
    let mut bench = Bench::with(50);
    assert!(bench.apply(services([])));
    let due = bench.guard.due();
    bench.pass(30 * SECOND);
    // Many new objects do not help: none of the missing ones is among them.
    assert!(bench.apply(services(60..100)));
    assert_eq!((bench.there(), bench.held()), (90, vec![("Service", 50, 40, 50)]));
    assert!(bench.apply(services(60..100)), "nor does the same list again");
    assert_eq!(bench.guard.due(), due);
    bench.pass(30 * SECOND);
    assert_eq!((bench.there(), bench.held()), (40, vec![]));
}

#[test]
fn events_settle_one_object_each_and_the_last_one_ends_the_doubt() {
    let mut bench = Bench::with(12);
    assert!(bench.apply(services([])));
    for name in 0..6 {
        assert!(!bench.apply(put(name)));
        assert!(!bench.apply(gone(6 + name)));
        assert_eq!(bench.there(), 11 - name);
    }
    assert_eq!((bench.there(), bench.held(), bench.guard.due()), (6, vec![], None));
}

#[test]
fn what_came_back_as_an_event_outlives_the_doubt() {
    let mut bench = Bench::with(12);
    assert!(bench.apply(services([])));
    assert!(!bench.apply(put(3)));
    assert!(!bench.apply(put(33)));
    bench.pass(HOLD);
    let left: Vec<_> = bench.store.objects().services.keys().map(|key| key.name.to_string()).collect();
    assert_eq!(left, ["s3", "s33"]);
}

#[test]
fn deletions_by_name_are_believed_however_many() {
    let mut bench = Bench::with(100);
    for name in 0..100 {
        assert!(!bench.apply(gone(name)));
    }
    assert_eq!((bench.there(), bench.held()), (0, vec![]));
}

#[test]
fn kinds_are_doubted_one_by_one() {
    let mut bench = Bench::with(10);
    let slice = |name: usize| {
        let labels = Some([(SERVICE_NAME_LABEL.to_owned(), format!("s{}", name % 5))].into());
        Arc::new(EndpointSlice { metadata: ObjectMeta { labels, ..meta(name) }, ..EndpointSlice::default() })
    };
    let node = |name| {
        let metadata = ObjectMeta { namespace: None, ..meta(name) };
        Arc::new(Node { metadata, ..Node::default() })
    };
    assert!(!bench.apply(Change::Slices(Delta::All((0..20).map(slice).collect()))));
    assert!(!bench.apply(Change::Nodes(Delta::All((0..30).map(node).collect()))));
    assert!(bench.apply(Change::Slices(Delta::All(vec![slice(3)]))));
    bench.pass(SECOND);
    assert!(bench.apply(Change::Nodes(Delta::All(Vec::new()))));
    assert_eq!(bench.held(), [("EndpointSlice", 20, 1, 19), ("Node", 30, 0, 30)]);
    bench.pass(HOLD - SECOND);
    assert_eq!(bench.held(), [("Node", 30, 0, 30)], "the time of each counts from its own list");
    assert_eq!(bench.store.objects().slices.values().map(BTreeMap::len).sum::<usize>(), 1);
    assert_eq!(bench.store.objects().nodes.len(), 30);
    let name = "s7".into();
    assert!(!bench.apply(Change::Nodes(Delta::Gone { namespace: "".into(), name })));
    assert_eq!(bench.held(), [("Node", 30, 0, 29)]);
}

#[test]
fn a_control_plane_that_lists_nothing_keeps_its_services_and_the_two_lists_of_works_are_apart() {
    let mut bench = Bench::with(0);
    let mcs = |count: usize| {
        let object = |name| MultiClusterService { metadata: meta(name), ..MultiClusterService::default() };
        Change::MultiClusterServices(Delta::All((0..count).map(|name| Arc::new(object(name))).collect()))
    };
    let work = |name: usize, collected: bool| {
        let mut metadata = meta(name);
        metadata.labels = collected.then(|| BTreeMap::from([(COLLECTED_LABEL.to_owned(), String::new())]));
        Arc::new(Work::new(metadata, vec![Manifest::Service(service(name, "a"))]))
    };
    assert!(!bench.apply(mcs(20)));
    assert!(!bench.apply(Change::CollectedWorks(Delta::All((0..20).map(|it| work(it, true)).collect()))));
    assert!(!bench.apply(Change::ServiceWorks(Delta::All(vec![work(100, false)]))));
    assert!(bench.apply(mcs(0)));
    assert!(bench.apply(Change::CollectedWorks(Delta::All(Vec::new()))));
    assert!(!bench.apply(Change::ServiceWorks(Delta::All(Vec::new()))), "there was one");
    assert_eq!(bench.held(), [("MultiClusterService", 20, 0, 20), ("collected Work", 20, 0, 20)]);
    bench.pass(HOLD);
    assert_eq!(bench.store.objects().fleet, KarmadaObjects::default());
}
