//! Changes in a Karmada control plane and the MultiClusterServices that they make dirty.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::*;
use crate::api::karmada::{
    ApiEnablement, COLLECTED_LABEL, Cluster, ClusterStatus, Manifest, MultiClusterService, ResourceBinding,
    ResourceBindingSpec, ResourceReference, Work,
};
use crate::api::kinds;

fn multi_cluster(names: &[&str]) -> Dirty {
    Dirty::Services(names.iter().map(|name| ServiceKey::multi_cluster("shop", name)).collect())
}

/// A Work of `owner` with an EndpointSlice; with the label of collected Works if `collected`.
fn work(name: &str, owner: &str, collected: bool) -> Arc<Work> {
    let mut labels = BTreeMap::from([
        ("multiclusterservice.karmada.io/namespace".to_owned(), "shop".to_owned()),
        ("multiclusterservice.karmada.io/name".to_owned(), owner.to_owned()),
    ]);
    if collected {
        labels.insert(COLLECTED_LABEL.to_owned(), "MultiClusterService".to_owned());
    }
    let metadata = ObjectMeta {
        namespace: Some("karmada-es-member1".into()),
        name: Some(name.into()),
        labels: Some(labels),
        ..ObjectMeta::default()
    };
    Arc::new(Work::new(metadata, vec![Manifest::EndpointSlice(Arc::default())]))
}

fn gone<T>(name: &str) -> Delta<T> {
    Delta::Gone { namespace: "karmada-es-member1".into(), name: name.into() }
}

fn cluster(name: &str, ready: &str, message: &str) -> Arc<Cluster> {
    let condition = Condition {
        last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            jiff::Timestamp::UNIX_EPOCH,
        ),
        message: message.into(),
        observed_generation: None,
        reason: "ClusterReady".into(),
        status: ready.into(),
        type_: "Ready".into(),
    };
    let status = ClusterStatus { conditions: vec![condition], ..ClusterStatus::default() };
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    Arc::new(Cluster { metadata, status, ..Cluster::default() })
}

fn mcs(name: &str) -> Change {
    let service = MultiClusterService { metadata: meta(name), ..MultiClusterService::default() };
    Change::MultiClusterServices(Delta::Put(Arc::new(service)))
}

fn binding(name: &str, kind: &str, service: &str) -> Arc<ResourceBinding> {
    let resource = ResourceReference {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: "shop".into(),
        name: service.into(),
    };
    let spec = ResourceBindingSpec { resource, ..ResourceBindingSpec::default() };
    Arc::new(ResourceBinding { metadata: meta(name), spec, ..ResourceBinding::default() })
}

#[test]
fn an_object_dirties_the_multi_cluster_service_of_its_name_and_an_equal_one_nothing() {
    let mut store = Store::default();
    store.apply(mcs("web"));
    assert_eq!(store.take_dirty(), multi_cluster(&["web"]));
    store.apply(mcs("web"));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.apply(Change::Templates(Delta::Put(Arc::new(service("web", "a")))));
    assert_eq!(store.take_dirty(), multi_cluster(&["web"]));
    store.apply(Change::Templates(Delta::All(vec![Arc::new(service("web", "a"))])));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.apply(Change::Templates(Delta::All(Vec::new())));
    store.apply(Change::MultiClusterServices(Delta::Gone { namespace: "shop".into(), name: "web".into() }));
    assert_eq!(store.take_dirty(), multi_cluster(&["web"]));
    assert_eq!(store.objects().fleet, KarmadaObjects::default());
    assert!(store.objects().services.is_empty(), "a template is no Service of this cluster");
}

#[test]
fn a_work_that_moves_dirties_both_and_is_found_by_its_name_alone() {
    let mut store = Store::default();
    store.apply(Change::CollectedWorks(Delta::Put(work("w", "web", true))));
    assert_eq!(store.take_dirty(), multi_cluster(&["web"]));
    store.apply(Change::CollectedWorks(Delta::Put(work("w", "dns", true))));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns", "web"]));
    assert_eq!(store.objects().fleet.works.len(), 1);
    store.apply(Change::CollectedWorks(Delta::Put(work("w", "dns", true))));
    store.apply(Change::CollectedWorks(gone("other")));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.apply(Change::CollectedWorks(gone("w")));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns"]));
    assert!(store.objects().fleet.works.is_empty());
}

#[test]
fn a_list_of_collected_works_says_nothing_of_the_others() {
    let mut store = Store::default();
    store.apply(Change::CollectedWorks(Delta::All(vec![work("w1", "web", true)])));
    store.apply(Change::ServiceWorks(Delta::All(vec![work("w2", "web", false)])));
    assert_eq!(store.objects().fleet.works.values().flatten().count(), 2);
    assert_eq!(store.take_dirty(), multi_cluster(&["web"]));
    let before = store.objects().clone();
    store.apply(Change::CollectedWorks(Delta::All(vec![work("w1", "web", true)])));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    let kept = |objects: &Objects| objects.fleet.works.values().flat_map(BTreeMap::values).cloned().collect();
    let (before, after): (Vec<Arc<Work>>, Vec<Arc<Work>>) = (kept(&before), kept(store.objects()));
    assert!(before.iter().zip(&after).all(|(before, after)| Arc::ptr_eq(before, after)));
    store.apply(Change::CollectedWorks(Delta::All(Vec::new())));
    assert_eq!(store.objects().fleet.works.values().flatten().count(), 1);
    assert_eq!(store.take_dirty(), multi_cluster(&["web"]));
}

#[test]
fn a_work_that_changes_sides_stays_in_whichever_order_that_is_told() {
    let mut store = Store::default();
    store.apply(Change::CollectedWorks(Delta::Put(work("w", "web", true))));
    store.apply(Change::ServiceWorks(Delta::Put(work("w", "web", false))));
    store.apply(Change::CollectedWorks(gone("w")));
    assert_eq!(store.objects().fleet.works.values().flatten().count(), 1);
    store.apply(Change::ServiceWorks(gone("w")));
    assert!(store.objects().fleet.works.is_empty());
}

#[test]
fn what_was_replaced_as_a_whole_can_go_one_by_one() {
    let mut objects = Objects::default();
    objects.put::<kinds::CollectedWorks>(work("w", "web", true));
    objects.put::<kinds::Imported>(slice("s", Some("derived-web")));
    objects.put::<kinds::Bindings>(binding("web-service", "Service", "web"));
    let mut store = Store::default();
    store.replace_part(ControlPlane::Karmada, &objects);
    assert_eq!(store.take_dirty(), multi_cluster(&["web"]));
    store.apply(Change::CollectedWorks(gone("w")));
    store.apply(Change::Imported(Delta::Gone { namespace: "shop".into(), name: "s".into() }));
    store.apply(Change::Bindings(Delta::Gone { namespace: "shop".into(), name: "web-service".into() }));
    assert_eq!(store.objects().fleet, KarmadaObjects::default());
}

#[test]
fn bindings_of_other_kinds_are_not_kept_and_a_binding_may_turn_to_another_service() {
    let mut store = Store::default();
    store.apply(Change::Bindings(Delta::Put(binding("web-deployment", "Deployment", "web"))));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.apply(Change::Bindings(Delta::Put(binding("b", "Service", "web"))));
    store.apply(Change::Bindings(Delta::Put(binding("b", "Service", "dns"))));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns", "web"]));
    store.apply(Change::Bindings(Delta::Put(binding("c", "Service", "dns"))));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns"]));
    store.apply(Change::Bindings(Delta::Gone { namespace: "shop".into(), name: "b".into() }));
    assert_eq!(store.objects().fleet.bindings.len(), 1, "the other one has taken its place");
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.apply(Change::Bindings(Delta::All(vec![binding("web-deployment", "Deployment", "web")])));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns"]));
}

#[test]
fn a_cluster_that_turns_dirties_every_multi_cluster_service_and_its_heartbeats_none() {
    let mut store = Store::default();
    store.apply(mcs("web"));
    store.apply(mcs("dns"));
    store.put::<kinds::Services>(service("web", "a"));
    assert!(!store.take_dirty().is_nothing());
    store.apply(Change::Clusters(Delta::Put(cluster("member1", "True", "a"))));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns", "web"]));
    store.apply(Change::Clusters(Delta::Put(cluster("member1", "True", "b"))));
    store.apply(Change::Clusters(Delta::All(vec![cluster("member1", "True", "c")])));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
    store.apply(Change::Clusters(Delta::Put(cluster("member1", "False", "c"))));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns", "web"]));
    let mut exporting = (*cluster("member1", "False", "c")).clone();
    exporting.status.api_enablements = vec![ApiEnablement::default()];
    store.apply(Change::Clusters(Delta::Put(Arc::new(exporting))));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns", "web"]), "it serves ServiceExports now");
    store.apply(Change::Clusters(Delta::All(Vec::new())));
    assert_eq!(store.take_dirty(), multi_cluster(&["dns", "web"]));
    store.apply(Change::Clusters(gone("member1")));
    assert_eq!(store.take_dirty(), Dirty::Nothing);
}

#[test]
fn the_two_halves_are_replaced_apart() {
    let mut store = Store::default();
    store.put::<kinds::Services>(service("web", "a"));
    store.apply(mcs("web"));
    let both = store.objects().clone();
    store.replace_part(ControlPlane::Local, &Objects::default());
    assert_eq!(store.objects().fleet, both.fleet);
    store.replace(&both);
    store.replace_part(ControlPlane::Karmada, &Objects::default());
    assert_eq!(store.objects().services, both.services);
}

#[test]
fn a_slice_from_another_cluster_belongs_to_the_service_that_was_exported() {
    let mut imported = slice("s", None);
    let label = "multicluster.kubernetes.io/service-name".to_owned();
    imported.metadata.labels = Some(BTreeMap::from([(label.clone(), "web".to_owned())]));
    assert_eq!(slice_owner(&imported), None, "nobody knows whose nodes and zones it names");
    let labels = imported.metadata.labels.as_mut().unwrap();
    labels.insert(SOURCE_CLUSTER_LABEL.to_owned(), "m1".to_owned());
    assert_eq!(slice_owner(&imported), Some(ServiceKey::new("shop", "web")));
    let labels = imported.metadata.labels.as_mut().unwrap();
    labels.insert(SERVICE_NAME_LABEL.to_owned(), "derived-1".to_owned());
    assert_eq!(slice_owner(&imported), Some(ServiceKey::new("shop", "derived-1")));
}

proptest! {
    /// Single events and lists leave a store that equals one replacement, even where the owner changes; deletions then empty
    /// both.
    #[test]
    fn works_one_by_one_end_where_one_replacement_ends(events in prop::collection::vec(event(), 0..40)) {
        let mut store = Store::default();
        for (upsert, number, owner) in events {
            let (name, collected) = (format!("w{number}"), number % 2 == 0);
            let change = if collected { Change::CollectedWorks } else { Change::ServiceWorks };
            match (upsert, owner) {
                (true, Some(owner)) => store.apply(change(Delta::Put(work(&name, &format!("web{owner}"), collected)))),
                (true, None) => store.apply(change(Delta::Put(work(&name, "", collected)))),
                (false, Some(_)) => store.apply(change(gone(&name))),
                (false, None) => store.apply(change(Delta::All(vec![work(&name, "web0", collected)]))),
            }
        }
        let mut at_once = Store::default();
        at_once.replace(store.objects());
        prop_assert_eq!(at_once.objects(), store.objects());
        for number in 0..4 {
            for change in [Change::CollectedWorks, Change::ServiceWorks] {
                store.apply(change(gone(&format!("w{number}"))));
                at_once.apply(change(gone(&format!("w{number}"))));
            }
        }
        prop_assert!(store.objects().fleet.works.is_empty());
        prop_assert!(at_once.objects().fleet.works.is_empty());
    }
}
