//! Gateways that come, go, return and flap.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::api::store::Store;

/// A membership with the store that receives its slices, and a clock.
struct SliceHarness {
    membership: GatewayMembership,
    store: Store,
    start: Instant,
    elapsed: Duration,
}

impl SliceHarness {
    fn new() -> Self {
        let membership = GatewayMembership::new(ServiceKey::new("sheave-system", "sheave-gateways"));
        Self { membership, store: Store::default(), start: Instant::now(), elapsed: Duration::ZERO }
    }

    fn now(&self) -> Instant {
        self.start + self.elapsed
    }

    fn slice(name: &str, gateways: &[(&str, Value)]) -> Arc<EndpointSlice> {
        let endpoint = |(node, conditions): &(&str, Value)| json!({"addresses": ["192.0.2.1"], "nodeName": node, "conditions": conditions});
        let endpoints: Vec<Value> = gateways.iter().map(endpoint).collect();
        let slice = json!({"metadata": {"namespace": "sheave-system", "name": name,
            "labels": {"kubernetes.io/service-name": "sheave-gateways"}}, "addressType": "IPv4", "endpoints": endpoints});
        Arc::new(serde_json::from_value(slice).unwrap())
    }

    fn take(&mut self, change: Change) {
        if let Some(change) = self.membership.admit(change) {
            self.store.apply(change);
        }
        self.update();
    }

    fn update(&mut self) {
        for change in self.membership.update(self.now()) {
            self.store.apply(change);
        }
    }

    /// Replaces the gateways in the API server.
    fn are(&mut self, gateways: &[(&str, Value)]) {
        self.take(Change::Slices(Delta::Put(Self::slice("gateways-1", gateways))));
    }

    /// The gateways that count after this many more seconds.
    fn after(&mut self, seconds: u64) -> String {
        self.elapsed += Duration::from_secs(seconds);
        self.update();
        let slices = self.store.objects().slices.values().flat_map(BTreeMap::values);
        let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten());
        let ready: BTreeSet<&str> = endpoints.filter(|it| is_ready(it)).map(node).collect();
        ready.into_iter().collect::<Vec<_>>().join(" ")
    }
}

fn ready() -> Value {
    json!({"ready": true})
}

fn unready() -> Value {
    json!({"ready": false})
}

fn terminating() -> Value {
    json!({"ready": false, "serving": true, "terminating": true})
}

#[test]
fn what_is_ready_at_first_counts_at_once() {
    let mut world = SliceHarness::new();
    world.take(Change::Slices(Delta::All(vec![SliceHarness::slice(
        "gateways-1",
        &[("a", ready()), ("b", unready())],
    )])));
    assert_eq!(world.after(0), "a");
    assert_eq!(world.membership.due(), None);
}

#[test]
fn a_gateway_that_comes_counts_when_it_has_lasted() {
    let mut world = SliceHarness::new();
    world.are(&[("a", ready())]);
    world.are(&[("a", ready()), ("b", ready())]);
    assert_eq!(world.membership.due(), Some(world.now() + HOLD));
    assert_eq!(world.after(4), "a");
    assert_eq!(world.after(1), "a b");
}

#[test]
fn one_that_is_back_within_the_hold_was_never_away() {
    let mut world = SliceHarness::new();
    world.are(&[("a", ready()), ("b", ready())]);
    let _dirty = world.store.take_dirty();
    for _ in 0..100 {
        world.are(&[("a", ready()), ("b", unready())]);
        assert_eq!(world.after(4), "a b");
        world.are(&[("a", ready()), ("b", ready())]);
        assert_eq!(world.after(4), "a b");
    }
    assert!(world.store.is_clean(), "nothing is projected for it either");
    world.are(&[("a", ready()), ("b", unready())]);
    assert_eq!(world.after(5), "a", "clients are not sent there for longer");
}

#[test]
fn one_that_terminates_is_out_soon_and_one_that_has_gone_at_once() {
    let mut world = SliceHarness::new();
    world.are(&[("a", ready()), ("b", ready()), ("c", ready())]);
    world.are(&[("a", ready()), ("b", terminating()), ("c", ready())]);
    assert_eq!(world.after(1), "a b c", "it serves on, and may be replaced");
    assert_eq!(world.membership.due(), Some(world.now() + APPEARING - Duration::from_secs(1)));
    assert_eq!(world.after(1), "a c");
    world.are(&[("a", ready()), ("b", terminating())]);
    assert_eq!(world.after(0), "a");
    world.take(Change::Slices(Delta::Gone { namespace: "sheave-system".into(), name: "gateways-1".into() }));
    assert_eq!(world.after(0), "");
}

/// `kubectl delete pod`: the replacement takes over from the terminating Pod.
#[test]
fn a_node_whose_pod_is_replaced_counts_all_along() {
    let mut world = SliceHarness::new();
    world.are(&[("1", ready()), ("2", ready())]);
    world.are(&[("1", ready()), ("2", terminating())]);
    assert_eq!(world.after(1), "1 2");
    world.are(&[("1", ready()), ("2", terminating()), ("2", unready())]);
    assert_eq!(world.after(8), "1 2", "it takes over, and is probed");
    world.are(&[("1", ready()), ("2", terminating()), ("2", ready())]);
    assert_eq!(world.after(60), "1 2");
    world.are(&[("1", ready()), ("2", ready())]);
    assert_eq!(world.after(0), "1 2");
    assert_eq!(world.membership.due(), None);
    world.are(&[("1", ready()), ("2", terminating()), ("2", unready())]);
    assert_eq!(world.after(STARTING.as_secs() - 1), "1 2");
    assert_eq!(world.after(1), "1", "the replacement does not come up");
}

#[test]
fn rollouts_one_after_the_other_are_no_flapping() {
    let mut world = SliceHarness::new();
    world.are(&[("a", ready()), ("b", ready())]);
    for _ in 0..8 {
        world.are(&[("a", ready()), ("b", terminating())]);
        assert_eq!(world.after(2), "a");
        world.are(&[("a", ready()), ("b", ready())]);
        assert_eq!(world.after(5), "a b");
    }
}

#[test]
fn where_no_other_is_left_whatever_is_ready_counts() {
    let mut world = SliceHarness::new();
    world.are(&[("a", ready())]);
    world.are(&[("a", terminating()), ("b", ready())]);
    assert_eq!(world.after(0), "a b", "the one serves on for a while");
    assert_eq!(world.after(2), "b");
    world.are(&[("a", ready()), ("b", unready())]);
    assert_eq!(world.after(4), "b", "both may be back");
    assert_eq!(world.after(1), "a");
}

#[test]
fn one_that_flaps_has_to_last_longer_each_time() {
    let mut world = SliceHarness::new();
    world.are(&[("a", ready()), ("b", ready())]);
    let (mut changes, mut before) = (0, world.after(0));
    for second in 0..3600 {
        if second % 20 == 0 {
            world.are(&[("a", ready()), ("b", if second % 40 == 0 { unready() } else { ready() })]);
        }
        let now = world.after(1);
        changes += usize::from(now != before);
        before = now;
    }
    assert!((2..=8).contains(&changes), "{changes} changes in an hour");
    world.are(&[("a", ready()), ("b", ready())]);
    assert_eq!(world.after(300), "a b", "it is back in the end");
    world.after(600);
    world.are(&[("a", ready()), ("b", unready())]);
    assert_eq!(world.after(5), "a");
    world.are(&[("a", ready()), ("b", ready())]);
    assert_eq!(world.after(5), "a b", "the past is forgotten");
}

#[test]
fn a_pod_beside_its_successor_and_slices_of_others() {
    let mut world = SliceHarness::new();
    world.are(&[("a", ready()), ("a", terminating())]);
    let count = |world: &SliceHarness| {
        let slices = world.store.objects().slices.values().flat_map(BTreeMap::values);
        slices.flat_map(|slice| slice.endpoints.iter().flatten()).filter(|it| is_ready(it)).count()
    };
    assert_eq!(count(&world), 1, "the one that terminates is not ready");
    let mut other = EndpointSlice::clone(&SliceHarness::slice("web-1", &[("z", unready())]));
    other.metadata.labels = Some([("kubernetes.io/service-name".to_owned(), "web".to_owned())].into());
    world.take(Change::Slices(Delta::Put(Arc::new(other))));
    assert_eq!(world.after(0), "a");
    let mut moved = EndpointSlice::clone(&SliceHarness::slice("gateways-1", &[("z", unready())]));
    moved.metadata.labels = Some([("kubernetes.io/service-name".to_owned(), "web".to_owned())].into());
    world.take(Change::Slices(Delta::Put(Arc::new(moved))));
    assert_eq!(world.after(0), "", "another Service has the slice now");
}
