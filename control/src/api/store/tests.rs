//! Changes and the Services that they make dirty.

mod fleet;

use k8s_openapi::api::core::v1::{
    Namespace, Node, NodeAddress, NodeCondition, NodeStatus, Service, ServiceSpec,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;

use super::*;
use crate::api::address_pool::AddressPool;
use crate::api::kinds;

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), namespace: Some("shop".into()), ..ObjectMeta::default() }
}

fn service(name: &str, class: &str) -> Service {
    let spec = ServiceSpec { load_balancer_class: Some(class.into()), ..ServiceSpec::default() };
    Service { metadata: meta(name), spec: Some(spec), status: None }
}

fn slice(name: &str, owner: Option<&str>) -> EndpointSlice {
    let labels = owner.map(|owner| BTreeMap::from([(SERVICE_NAME_LABEL.to_owned(), owner.to_owned())]));
    let metadata = ObjectMeta { labels, ..meta(name) };
    EndpointSlice { metadata, address_type: "IPv4".into(), ..EndpointSlice::default() }
}

fn node(name: &str, address: &str, condition: &str) -> Node {
    let status = NodeStatus {
        addresses: Some(vec![NodeAddress { address: address.into(), type_: "InternalIP".into() }]),
        conditions: Some(vec![NodeCondition { reason: Some(condition.into()), ..NodeCondition::default() }]),
        ..NodeStatus::default()
    };
    Node { metadata: meta(name), spec: None, status: Some(status) }
}

/// A change of something that any Service may depend on, and of no Service.
const SHARED: Dirty = Dirty::Shared(std::collections::BTreeSet::new());

fn services(names: &[&str]) -> Dirty {
    Dirty::Services(names.iter().map(|name| ServiceKey::new("shop", name)).collect())
}

#[test]
fn a_changed_service_dirties_itself_alone_and_an_equal_one_nothing() {
    let mut store = Store::default();
    store.put::<kinds::Services>(service("web", "a"));
    store.put::<kinds::Services>(service("dns", "a"));
    assert_eq!(store.take_dirty(), services(&["web", "dns"]));
    store.put::<kinds::Services>(service("web", "a"));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.put::<kinds::Services>(service("web", "b"));
    assert_eq!(store.take_dirty(), services(&["web"]));
    store.remove::<kinds::Services>("shop", "web");
    store.remove::<kinds::Services>("shop", "never");
    assert_eq!(store.take_dirty(), services(&["web"]));
}

#[test]
fn a_new_resource_version_is_kept_but_dirties_nothing() {
    let mut store = Store::default();
    store.put::<kinds::Services>(service("web", "a"));
    assert!(!store.take_dirty().is_nothing());
    let mut newer = service("web", "a");
    newer.metadata.resource_version = Some("7".into());
    store.put::<kinds::Services>(newer);
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    let kept = &store.objects().services[&ServiceKey::new("shop", "web")];
    assert_eq!(kept.metadata.resource_version.as_deref(), Some("7"));
}

#[test]
fn a_slice_that_changes_its_label_dirties_both_services() {
    let mut store = Store::default();
    store.put::<kinds::Slices>(slice("s1", Some("web")));
    assert_eq!(store.take_dirty(), services(&["web"]));
    store.put::<kinds::Slices>(slice("s1", Some("dns")));
    assert_eq!(store.take_dirty(), services(&["dns", "web"]));
    assert_eq!(store.objects().slices.len(), 1);
    store.put::<kinds::Slices>(slice("s1", None));
    assert_eq!(store.take_dirty(), services(&["dns"]));
    assert!(store.objects().slices.is_empty());
    store.put::<kinds::Slices>(slice("s2", None));
    store.remove::<kinds::Slices>("shop", "s1");
    assert_eq!(store.take_dirty(), Dirty::Nothing);
}

#[test]
fn heartbeats_of_a_node_dirty_nothing_and_its_address_what_is_shared() {
    let mut store = Store::default();
    store.put::<kinds::Nodes>(node("n1", "10.0.0.1", "Ready"));
    assert_eq!(store.take_dirty(), SHARED);
    store.put::<kinds::Nodes>(node("n1", "10.0.0.1", "StillReady"));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.put::<kinds::Nodes>(node("n1", "10.0.0.2", "StillReady"));
    assert_eq!(store.take_dirty(), SHARED);
    store.remove::<kinds::Nodes>("", "n1");
    assert_eq!(store.take_dirty(), SHARED);
}

#[test]
fn a_pool_dirties_what_is_shared_unless_it_is_equal() {
    let mut store = Store::default();
    let pool = AddressPool { metadata: meta("p"), ..AddressPool::default() };
    store.put::<kinds::Pools>(pool.clone());
    store.put::<kinds::Services>(service("web", "a"));
    assert_eq!(store.take_dirty(), Dirty::Shared([ServiceKey::new("shop", "web")].into()));
    store.put::<kinds::Pools>(pool);
    assert!(store.take_dirty().is_nothing());
    store.remove::<kinds::Pools>("", "p");
    assert_eq!(store.take_dirty(), SHARED);
}

#[test]
fn replacing_by_equal_objects_dirties_nothing_and_keeps_their_identity() {
    let mut store = Store::default();
    store.put::<kinds::Services>(service("web", "a"));
    store.put::<kinds::Slices>(slice("s1", Some("web")));
    store.put::<kinds::Nodes>(node("n1", "10.0.0.1", "Ready"));
    assert!(!store.take_dirty().is_nothing());
    let before = store.objects().clone();
    let mut copy = before.clone();
    for service in copy.services.values_mut() {
        *service = Arc::new(Service::clone(service));
    }
    store.replace(&copy);
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    let key = ServiceKey::new("shop", "web");
    assert!(Arc::ptr_eq(&before.services[&key], &store.objects().services[&key]));
    store.replace(&Objects { nodes: before.nodes, ..Objects::default() });
    assert_eq!(store.take_dirty(), services(&["web"]));
    assert_eq!(store.objects().services.len() + store.objects().slices.len(), 0);
}

/// Only a few objects, so that events collide.
fn event() -> impl Strategy<Value = (bool, u8, Option<u8>)> {
    (any::<bool>(), 0u8..4, prop::option::of(0u8..3))
}

#[test]
fn a_namespace_dirties_its_own_services_once_any_is_known() {
    let namespace = |name: &str, team: &str| Namespace {
        metadata: ObjectMeta {
            name: Some(name.into()),
            labels: Some(BTreeMap::from([("team".to_owned(), team.to_owned())])),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let mut store = Store::default();
    store.put::<kinds::Services>(service("web", "a"));
    assert_eq!(store.take_dirty(), services(&["web"]));
    store.put::<kinds::Namespaces>(namespace("other", "a"));
    assert_eq!(store.take_dirty(), SHARED, "now Namespaces are known");
    store.put::<kinds::Namespaces>(namespace("shop", "a"));
    assert_eq!(store.take_dirty(), services(&["web"]));
    store.put::<kinds::Namespaces>(namespace("other", "b"));
    store.put::<kinds::Namespaces>(namespace("shop", "a"));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.remove::<kinds::Namespaces>("", "shop");
    assert_eq!(store.take_dirty(), services(&["web"]));
    store.remove::<kinds::Namespaces>("", "other");
    assert_eq!(store.take_dirty(), SHARED);
    store.put::<kinds::Namespaces>(namespace("other", "a"));
    assert_eq!(store.take_dirty(), SHARED);
    // Some Namespace is known before and afterwards, but not the same one.
    store.remove::<kinds::Namespaces>("", "other");
    store.put::<kinds::Namespaces>(namespace("shop", "a"));
    assert_eq!(store.take_dirty(), Dirty::Shared(BTreeSet::from([ServiceKey::new("shop", "web")])));
}

#[test]
fn what_is_not_read_of_a_namespace_dirties_nothing() {
    let labels = BTreeMap::from([("tenant".into(), "a".into())]);
    let metadata = ObjectMeta { name: Some("shop".into()), labels: Some(labels), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let mut store = Store::default();
    store.put::<kinds::Services>(service("web", "a"));
    store.put::<kinds::Namespaces>(namespace.clone());
    assert!(!store.take_dirty().is_nothing());
    let mut other = namespace.clone();
    other.metadata.annotations = Some(BTreeMap::from([("note".into(), "x".into())]));
    other.metadata.uid = Some("u2".into());
    other.metadata.finalizers = Some(vec!["kubernetes".into()]);
    store.put::<kinds::Namespaces>(other.clone());
    store.apply(Change::Namespaces(Delta::All(vec![Arc::new(namespace)])));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    other.metadata.labels = None;
    store.put::<kinds::Namespaces>(other);
    assert_eq!(store.take_dirty(), services(&["web"]));
}

#[test]
fn a_list_dirties_only_what_changed_and_its_names_are_kept_once() {
    let listed = |changed: Option<usize>| {
        let one = |number: usize| {
            let mut slice = slice(&format!("s{number}"), Some(&format!("web{}", number / 2)));
            slice.metadata.uid = (changed == Some(number)).then(|| "new".to_owned());
            Arc::new(slice)
        };
        Change::Slices(Delta::All((0..100).map(one).collect()))
    };
    let mut store = Store::default();
    store.apply(listed(None));
    assert!(!store.take_dirty().is_nothing());
    for (owner, slices) in &store.objects().slices {
        for name in slices.keys() {
            let index = &store.owners[kinds::Slices::ROW.line];
            let ((namespace, indexed), of) =
                index.get_key_value(&(owner.namespace.clone(), name.clone())).unwrap();
            assert!(Arc::ptr_eq(indexed, name) && Arc::ptr_eq(&of.name, &owner.name));
            assert!(Arc::ptr_eq(namespace, &owner.namespace) && Arc::ptr_eq(&of.namespace, &owner.namespace));
        }
    }
    store.apply(listed(Some(41)));
    assert_eq!(store.take_dirty(), services(&["web20"]));
    store.apply(listed(Some(41)));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
}

proptest! {
    #[test]
    fn events_one_by_one_end_where_one_replacement_ends(events in prop::collection::vec(event(), 0..40)) {
        let mut by_event = Store::default();
        for (upsert, number, owner) in events {
            let name = format!("s{number}");
            let owner = owner.map(|owner| format!("web{owner}"));
            if upsert {
                by_event.put::<kinds::Slices>(slice(&name, owner.as_deref()));
            } else {
                by_event.remove::<kinds::Slices>("shop", &name);
            }
        }
        let mut at_once = Store::default();
        at_once.replace(by_event.objects());
        prop_assert_eq!(at_once.objects(), by_event.objects());
        for number in 0..4 {
            by_event.remove::<kinds::Slices>("shop", &format!("s{number}"));
            at_once.remove::<kinds::Slices>("shop", &format!("s{number}"));
        }
        prop_assert!(by_event.objects().slices.is_empty());
        prop_assert!(at_once.objects().slices.is_empty());
    }
}
