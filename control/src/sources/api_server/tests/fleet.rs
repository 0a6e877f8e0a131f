//! A Karmada API server as the source: the watched kinds, and the cost of one with problems.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;
use crate::api::karmada::Manifest;
use crate::api::problem::reason;
use crate::api::store::ServiceKey;

const COLLECTED: &str = "endpointslice.karmada.io%2Fmanaged-by";

fn selector(asked: &Asked) -> &str {
    asked.query.get("labelSelector").map_or("", String::as_str)
}

fn items(items: &[Value]) -> Reply {
    Reply::of(200, &json!({"metadata": {"resourceVersion": "5"}, "items": items}))
}

fn object(namespace: &str, name: &str, rest: &Value) -> Value {
    let mut object =
        json!({"metadata": {"name": name, "namespace": namespace, "resourceVersion": "5", "uid": name}});
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

fn collected() -> Value {
    let mut work = object(
        "karmada-es-member1",
        "web-x7k2p-6c7c559955",
        &json!({"spec": {"workload": {"manifests": [{
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-x7k2p", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": ["10.1.0.7"], "targetRef": {"name": "web-1"}}]}]}}}),
    );
    work["metadata"]["labels"] = json!({"endpointslice.karmada.io/managed-by": "MultiClusterService",
        "multiclusterservice.karmada.io/name": "web", "multiclusterservice.karmada.io/namespace": "shop"});
    work
}

fn carrying(name: &str, kind: &str) -> Value {
    let manifest =
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "web", "namespace": "shop"}});
    object("karmada-es-member1", name, &json!({"spec": {"workload": {"manifests": [manifest]}}}))
}

fn binding(name: &str, kind: &str) -> Value {
    let resource = json!({"apiVersion": "v1", "kind": kind, "namespace": "shop", "name": "web"});
    object("shop", name, &json!({"spec": {"resource": resource}}))
}

fn cluster() -> Value {
    object(
        "",
        "member1",
        &json!({"spec": {"region": "eu"}, "status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "", "lastTransitionTime": null}],
        "resourceSummary": {"allocatable": {"cpu": "8"}}}}),
    )
}

/// Lists of a control plane with one MultiClusterService.
fn karmada(asked: &Asked) -> Reply {
    if asked.streams() || asked.is_watch() {
        return nothing(asked);
    }
    match (asked.plural.as_str(), selector(asked)) {
        ("multiclusterservices", "") => {
            items(&[object("shop", "web", &json!({"spec": {"types": ["LoadBalancer"]}}))])
        }
        ("services", "") => items(&[object("shop", "web", &json!({"spec": {"ports": [{"port": 80}]}}))]),
        ("works", COLLECTED) => items(&[collected()]),
        ("works", _) => items(&[carrying("web-b97f76f44", "Service"), carrying("web-d", "Deployment")]),
        ("resourcebindings", "") => {
            items(&[binding("web-service", "Service"), binding("web-deployment", "Deployment")])
        }
        ("clusters", "") => items(&[cluster()]),
        _ => nothing(asked),
    }
}

fn following(stub: &Stub, service_works: bool) -> ApiWatch {
    let wanted = Wanted { service_works, ..Wanted::of(ControlPlane::Karmada) };
    watch(&Connection::to(&stub.url), wanted, LIMITS)
}

async fn first(watch: &mut ApiWatch) -> Store {
    let mut store = Store::default();
    take_next(watch, &mut store).await;
    store
}

async fn take_next(watch: &mut ApiWatch, store: &mut Store) {
    for change in soon(watch.next()).await.unwrap().changes {
        store.apply(change);
    }
}

#[tokio::test]
async fn what_a_control_plane_has_arrives_without_what_is_not_of_services() {
    let stub = Stub::start(karmada).await;
    let mut watch = following(&stub, true);
    let mut store = first(&mut watch).await;
    while store.objects().fleet.clusters.is_empty() {
        take_next(&mut watch, &mut store).await;
    }
    let fleet = &store.objects().fleet;
    let web = ServiceKey::multi_cluster("shop", "web");
    assert_eq!(fleet.services[&web].spec.types, ["LoadBalancer"]);
    assert!(fleet.templates.contains_key(&web));
    let works: Vec<&str> = fleet.works[&web].keys().map(|(_, name)| &**name).collect();
    assert_eq!(works, ["web-b97f76f44", "web-x7k2p-6c7c559955"]);
    let slices =
        fleet.works[&web].values().flat_map(|work| work.manifests()).filter_map(|manifest| match manifest {
            Manifest::EndpointSlice(slice) => slice.endpoints.as_ref(),
            _ => None,
        });
    assert!(slices.flatten().all(|endpoint| endpoint.target_ref.is_none()), "pruned as other slices are");
    assert_eq!(fleet.bindings.len(), 1);
    assert_eq!(fleet.clusters["member1"].status.conditions[0].status, "True");
    assert!(watch.problems().is_empty());
    let kinds = watch.kinds();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.kind).collect();
    assert_eq!(
        names,
        ["MultiClusterService", "Service", "Work", "EndpointSlice", "ResourceBinding", "Cluster"]
    );
    assert_eq!(kind(&kinds, "Work").objects, 2);
}

/// A Work can carry any object that Karmada brings to a cluster, and its status changes with that object's.
#[tokio::test]
async fn works_of_everything_that_is_propagated_are_not_asked_for_unless_wanted() {
    for service_works in [false, true] {
        let selectors: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let noted = selectors.clone();
        let stub = Stub::start(move |asked| {
            if asked.plural == "works" {
                noted.lock().unwrap().insert(selector(asked).to_owned());
            }
            karmada(asked)
        })
        .await;
        let mut watch = following(&stub, service_works);
        let mut store = Store::default();
        let web = ServiceKey::multi_cluster("shop", "web");
        take_next(&mut watch, &mut store).await;
        let works: Vec<&str> = store.objects().fleet.works[&web].keys().map(|(_, name)| &**name).collect();
        let all = ["web-b97f76f44", "web-x7k2p-6c7c559955"];
        assert_eq!(works, if service_works { &all[..] } else { &all[1..] });
        let selectors = selectors.lock().unwrap();
        assert_eq!(selectors.len(), 1 + usize::from(service_works), "{selectors:?}");
    }
}

#[tokio::test]
async fn the_cluster_api_may_be_away_alone_and_come_later() {
    let asked_before = AtomicUsize::new(0);
    let stub = Stub::start(move |asked| match asked.plural.as_str() {
        "clusters" if asked_before.fetch_add(1, Ordering::Relaxed) < 20 => {
            Reply::of(503, "no endpoints available")
        }
        _ => karmada(asked),
    })
    .await;
    let mut watch = following(&stub, true);
    let mut failure = std::pin::pin!(watch.first_failure());
    let mut store = first(&mut watch).await;
    assert!(store.objects().fleet.clusters.is_empty(), "it is not waited for");
    let kinds = watch.kinds();
    let clusters = kind(&kinds, "Cluster");
    assert!(!clusters.synced && !clusters.needed && clusters.error.as_ref().unwrap().contains("503"));
    let failed = tokio::time::timeout(Duration::from_millis(1), failure.as_mut()).await;
    assert!(failed.is_err(), "the control plane has not failed");
    while store.objects().fleet.clusters.is_empty() {
        take_next(&mut watch, &mut store).await;
    }
    assert!(watch.kinds().iter().all(|kind| kind.synced));
}

#[tokio::test]
async fn clusters_that_cannot_be_read_any_more_stay_as_they_were() {
    let lists = AtomicUsize::new(0);
    let stub = Stub::start(move |asked| match (asked.plural.as_str(), asked.is_watch()) {
        ("clusters", true) if !asked.streams() => Reply::of(410, "too old"),
        ("clusters", false) if lists.fetch_add(1, Ordering::Relaxed) > 0 => Reply::of(503, "unavailable"),
        _ => karmada(asked),
    })
    .await;
    let mut watch = following(&stub, true);
    let mut store = first(&mut watch).await;
    while store.objects().fleet.clusters.is_empty() {
        take_next(&mut watch, &mut store).await;
    }
    while kind(&watch.kinds(), "Cluster").error.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let news = tokio::time::timeout(Duration::from_millis(200), watch.next()).await;
    assert!(news.is_err(), "{news:?}");
}

#[tokio::test]
async fn rights_that_are_missing_for_clusters_alone_leave_them_unknown() {
    let stub = Stub::start(|asked| match asked.plural.as_str() {
        "clusters" => Reply::of(403, "no"),
        _ => karmada(asked),
    })
    .await;
    let mut watch = following(&stub, true);
    let batch = soon(watch.next()).await.unwrap();
    assert!(
        batch.changes.iter().all(|change| !matches!(change, Change::Clusters(_))),
        "not even that there are none"
    );
    while watch.problems().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(watch.problems()[0].reason, reason::ACCESS_DENIED);
}

#[tokio::test]
async fn a_server_without_karmada_is_told_for_what_it_is() {
    let stub = Stub::start(|asked| match asked.plural.as_str() {
        "services" | "endpointslices" => nothing(asked),
        _ => Reply::of(404, "404 page not found"),
    })
    .await;
    let mut watch = following(&stub, true);
    let store = first(&mut watch).await;
    assert!(store.objects().fleet.services.is_empty());
    let problems = watch.problems();
    let missing = problems.iter().filter(|problem| problem.reason == reason::DEFINITION_MISSING);
    assert_eq!(missing.count(), 3, "each once: {problems:?}");
    assert!(problems[0].message.contains("none of a Karmada control plane"), "{}", problems[0]);
}

#[tokio::test]
async fn a_work_that_carries_no_service_any_more_is_gone() {
    let mut turned = carrying("web-b97f76f44", "ConfigMap");
    turned["metadata"]["resourceVersion"] = json!("6");
    let stub = Stub::start(move |asked| match asked.plural.as_str() {
        "works" if asked.is_watch() && !asked.streams() && selector(asked) != COLLECTED => {
            Reply::lines([event("MODIFIED", &turned)])
        }
        _ => karmada(asked),
    })
    .await;
    let mut watch = following(&stub, true);
    let mut store = first(&mut watch).await;
    while store.objects().fleet.works.values().flatten().count() > 1 {
        take_next(&mut watch, &mut store).await;
    }
}

#[tokio::test]
async fn definitions_that_seem_to_be_gone_take_nothing_away() {
    let lists = AtomicUsize::new(0);
    let stub = Stub::start(move |asked| match (asked.plural.as_str(), asked.is_watch()) {
        ("multiclusterservices", true) if !asked.streams() => Reply::of(404, "404 page not found"),
        ("multiclusterservices", false) if lists.fetch_add(1, Ordering::Relaxed) > 0 => {
            Reply::of(404, "404 page not found")
        }
        _ => karmada(asked),
    })
    .await;
    let mut watch = following(&stub, true);
    let mut store = first(&mut watch).await;
    while watch.problems().is_empty() {
        take_next(&mut watch, &mut store).await;
    }
    assert_eq!(store.objects().fleet.services.len(), 1);
}
