//! Objects in the cache of a kind, and the changes that it reports.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::*;
use crate::api::kinds::{CollectedWorks, Services, Slices};
use crate::api::store::Change;

fn kept<K: Kind>() -> Cache<K> {
    Cache::new(Arc::new(SyncState::of(1)), false)
}

fn item(value: Value) -> Item {
    Item::new(value).unwrap()
}

fn service(version: &str, port: &Value) -> Item {
    item(json!({"metadata": {"name": "web", "namespace": "shop", "resourceVersion": version},
        "spec": {"ports": [{"port": port}]}}))
}

fn slice(version: &str, triggered: Option<&str>) -> Item {
    let annotations = json!({"endpoints.kubernetes.io/last-change-trigger-time": triggered});
    item(json!({"metadata": {"name": "web-1", "namespace": "shop", "resourceVersion": version,
        "annotations": annotations}, "addressType": "IPv4", "endpoints": []}))
}

fn list<K: Kind>(kept: &Cache<K>, items: impl IntoIterator<Item = Item>) {
    let mut stage = Staging::default();
    for item in items {
        kept.stage_one(&mut stage, item);
    }
    kept.replace(stage);
}

fn take<K: Kind>(kept: &Cache<K>) -> Option<Batch> {
    let mut batch = Batch { changes: Vec::new(), received: Instant::now(), triggered: Vec::new() };
    kept.take(&mut batch).then_some(batch)
}

/// Versions of the Services in a batch; `None` for a deleted one.
fn versions(batch: Option<Batch>) -> Vec<Option<String>> {
    let version = |service: &Arc<Service>| service.metadata.resource_version.clone();
    let of = |change: &Change| match change {
        Change::Services(Delta::Put(service)) => vec![version(service)],
        Change::Services(Delta::Gone { .. }) => vec![None],
        Change::Services(Delta::All(services)) => services.iter().map(version).collect(),
        other => panic!("{other:?}"),
    };
    batch.unwrap().changes.iter().flat_map(of).collect()
}

fn some(version: &str) -> Vec<Option<String>> {
    vec![Some(version.to_owned())]
}

#[test]
fn many_changes_to_one_object_are_told_as_its_latest_state() {
    let kept = kept::<Services>();
    list(&kept, []);
    assert!(versions(take(&kept)).is_empty());
    kept.put(service("1", &json!(80)));
    kept.put(service("2", &json!(81)));
    assert_eq!(versions(take(&kept)), some("2"));
    kept.remove(&service("3", &json!(81)).key);
    assert_eq!(versions(take(&kept)), [None]);
    kept.put(service("4", &json!(80)));
    kept.remove(&service("5", &json!(80)).key);
    kept.put(service("6", &json!(80)));
    assert_eq!(versions(take(&kept)), some("6"));
    assert!(take(&kept).is_none());
}

#[test]
fn a_version_that_comes_again_is_no_news() {
    let kept = kept::<Services>();
    list(&kept, [service("1", &json!(80))]);
    assert_eq!(versions(take(&kept)), some("1"));
    kept.put(service("1", &json!(80)));
    kept.remove(&("shop".into(), "other".into()));
    assert!(take(&kept).is_none());
}

#[test]
fn what_a_list_leaves_out_is_gone_and_what_it_repeats_keeps_its_identity() {
    let kept = kept::<Services>();
    list(&kept, [service("1", &json!(80))]);
    let before = kept.object(&service("1", &json!(80)).key).unwrap();
    list(&kept, [service("1", &json!(80))]);
    assert!(Arc::ptr_eq(&before, &kept.object(&service("1", &json!(80)).key).unwrap()));
    list(&kept, []);
    assert!(versions(take(&kept)).is_empty());
    assert_eq!(kept.status().objects, 0);
}

#[test]
fn an_object_that_can_no_longer_be_read_keeps_its_last_readable_version() {
    let kept = kept::<Services>();
    list(&kept, [service("1", &json!(80))]);
    assert_eq!(versions(take(&kept)), some("1"));
    kept.put(service("2", &json!("http")));
    assert!(versions(take(&kept)).is_empty(), "a batch without changes says that there is a Problem");
    assert!(kept.problems()[0].message.ends_with("the last version that could be read stays in use"));
    list(&kept, [service("2", &json!("http"))]);
    assert_eq!(versions(take(&kept)), some("1"));
    assert_eq!(kept.problems().len(), 1);
    kept.put(service("3", &json!(81)));
    assert_eq!(versions(take(&kept)), some("3"));
    assert!(kept.problems().is_empty());
}

#[test]
fn a_work_that_says_nowhere_what_it_is_about_is_told_until_it_does() {
    let work = |version: &str, address_type: Value| {
        item(json!({
            "metadata": {"name": "web-x", "namespace": "karmada-es-m1", "resourceVersion": version},
            "spec": {"workload": {"manifests": [{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": address_type, "endpoints": []}]}},
        }))
    };
    let kept = kept::<CollectedWorks>();
    for _ in 0..2 {
        list(&kept, [work("1", json!(7))]);
        let told: Vec<String> = kept.problems().iter().map(Problem::to_string).collect();
        let expected = "Work karmada-es-m1/web-x: InvalidManifest: spec.workload.manifests[0]: EndpointSlice cannot be read";
        assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
    }
    kept.put(work("2", json!("IPv4")));
    assert!(kept.problems().is_empty());
    kept.put(work("3", json!(7)));
    assert_eq!(kept.problems().len(), 1);
    kept.remove(&work("4", json!(7)).key);
    assert!(kept.problems().is_empty());
}

#[test]
fn an_object_that_could_never_be_read_is_told_until_it_goes() {
    let kept = kept::<Services>();
    list(&kept, [service("2", &json!("http"))]);
    assert!(versions(take(&kept)).is_empty());
    assert_eq!(kept.problems()[0].field, "spec.ports[0].port");
    kept.remove(&service("3", &json!("http")).key);
    assert!(versions(take(&kept)).is_empty());
    assert!(kept.problems().is_empty());
}

#[test]
fn times_of_triggers_are_those_of_changes_that_a_watch_brought() {
    let kept = kept::<Slices>();
    let (first, second) = ("2026-11-21T01:00:00Z", "2026-11-21T02:00:00Z");
    list(&kept, [slice("1", Some(first))]);
    assert!(take(&kept).unwrap().triggered.is_empty(), "what is listed may be old");
    kept.put(slice("2", Some(first)));
    assert!(take(&kept).unwrap().triggered.is_empty(), "something else changed");
    kept.put(slice("3", Some(second)));
    kept.put(slice("4", None));
    assert_eq!(take(&kept).unwrap().triggered, [second.parse::<Timestamp>().unwrap()]);
    kept.put(slice("5", Some("yesterday")));
    assert!(take(&kept).unwrap().triggered.is_empty());
}
