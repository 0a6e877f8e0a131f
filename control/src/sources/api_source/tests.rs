//! Which objects of a snapshot are in force once the API server has listed its own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::*;
use crate::api::gateway_api::GatewayClass;
use crate::api::karmada::Work;
use crate::api::kinds::{GatewayClasses, Nodes, ServiceWorks, Services};
use crate::sources::api_server::tests::stub::{Reply, Stub};
use crate::sources::api_server::{self, Wanted, WatchLimits};

const HOLD: Duration = Duration::from_secs(60);

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some("shop".to_owned()), ..ObjectMeta::default() }
}

fn service(number: usize) -> Service {
    Service { metadata: meta(&format!("s{number}")), ..Service::default() }
}

/// A server that lists these Services, by number, and nothing else.
async fn server(services: &'static [usize]) -> Stub {
    Stub::start(move |asked| match asked.plural.as_str() {
        _ if asked.streams() => Reply::of(422, "no streams here"),
        _ if asked.is_watch() => Reply::lines([]),
        plural => {
            let listed = if plural == "services" { services } else { &[] };
            let items: Vec<Service> = listed.iter().map(|number| service(*number)).collect();
            Reply::of(200, &json!({"metadata": {"resourceVersion": "5"}, "items": items}))
        }
    })
    .await
}

/// A source that finds this snapshot.
fn source(stub: &Stub, plane: ControlPlane, stored: &Objects) -> ApiSource {
    let (connection, folder) = (Connection::to(&stub.url), tempfile::tempdir().unwrap());
    let authorities = connection.authorities().as_ref().clone();
    let identity = Identity {
        part: plane,
        server: connection.server().as_ref().to_owned(),
        cluster: "local".to_owned(),
        authorities,
    };
    snapshot::write(folder.path(), &identity, stored).unwrap();
    let watch = api_server::watch(&connection, Wanted::of(plane), WatchLimits::default());
    ApiSource::new(&connection, watch, HOLD).with_snapshot(&connection, folder.path(), "local")
}

/// The objects and held lists after the first update of a process that finds this snapshot.
async fn started(stub: &Stub, plane: ControlPlane, stored: &Objects) -> (Store, Vec<(&'static str, usize)>) {
    let (mut source, mut store) = (source(stub, plane, stored), Store::default());
    let update = source.next(store.objects()).await.unwrap();
    assert!(matches!(update, Update::Batch(_)), "{update:?}");
    source.take(update, &mut store, Some);
    let held = source.held_lists().iter().map(|held| (held.kind, held.kept)).collect();
    (store, held)
}

#[tokio::test]
async fn the_first_list_after_a_start_is_judged_by_the_snapshot() {
    let mut stored = Store::default();
    (0..12).for_each(|number| stored.put::<Services>(service(number)));
    stored.put::<Nodes>(Node { metadata: ObjectMeta { namespace: None, ..meta("gw-1") }, ..Node::default() });
    for (listed, there, held) in [
        (&[][..], 12, vec![("Node", 1), ("Service", 12)]),
        (&[3, 20], 13, vec![("Node", 1), ("Service", 11)]),
        (&[0, 1, 2], 3, vec![("Node", 1)]),
    ] {
        let (store, now_held) = started(&server(listed).await, ControlPlane::Local, stored.objects()).await;
        assert_eq!((store.objects().services.len(), now_held), (there, held), "{listed:?}");
        assert_eq!(store.objects().nodes.len(), 1);
    }
}

/// For example Works of Services, after `karmada.serviceWorks` was unset, and more of them than may disappear at once.
#[tokio::test]
async fn nothing_stays_of_a_kind_that_is_no_longer_watched() {
    let mut stored = Store::default();
    for number in 0..12 {
        let work = json!({
            "metadata": {"name": format!("w{number}"), "namespace": "karmada-es-m1"},
            "spec": {"workload": {"manifests": [
                {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}}]}},
        });
        stored.put::<ServiceWorks>(serde_json::from_value::<Work>(work).unwrap());
    }
    assert_eq!(stored.objects().fleet.works.values().map(BTreeMap::len).sum::<usize>(), 12);
    let (store, held) = started(&server(&[]).await, ControlPlane::Karmada, stored.objects()).await;
    assert!(store.objects().fleet.works.is_empty() && held.is_empty(), "{held:?}");
}

/// A Service and the only GatewayClass, as they were before `gatewayAPI.mode: off`.
fn before_the_gateway_api_was_switched_off() -> Store {
    let mut stored = Store::default();
    stored.put::<Services>(service(0));
    let class = json!({"metadata": {"name": "edge"}, "spec": {"controllerName": "sheave.dev/gateway"}});
    stored.put::<GatewayClasses>(serde_json::from_value::<GatewayClass>(class).unwrap());
    assert_eq!(stored.objects().gateway_api.classes.len(), 1);
    stored
}

#[tokio::test]
async fn what_is_switched_off_is_not_taken_for_a_mass_deletion() {
    let stored = before_the_gateway_api_was_switched_off();
    let (store, held) = started(&server(&[0]).await, ControlPlane::Local, stored.objects()).await;
    assert!(store.objects().gateway_api.classes.is_empty() && held.is_empty(), "{held:?}");
    assert_eq!(store.objects().services.len(), 1);
}

#[tokio::test]
async fn what_is_switched_off_is_not_served_while_the_server_is_away() {
    let stored = before_the_gateway_api_was_switched_off();
    let stub = Stub::start(|_| Reply::of(503, "unavailable")).await;
    let (mut source, mut store) = (source(&stub, ControlPlane::Local, stored.objects()), Store::default());
    let update = source.next(store.objects()).await.unwrap();
    assert!(matches!(update, Update::Away(_)), "{update:?}");
    source.take(update, &mut store, Some);
    assert_eq!((store.objects().services.len(), store.objects().gateway_api.classes.len()), (1, 0));
}
