//! Kinds of the Gateway API, whose definitions an administrator may install or remove at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Ready, ready};
use std::io;
use std::sync::Mutex;
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower_service::Service;

use super::*;
use crate::api::kinds::{Delta, GatewayClasses};

const V1: &str = "gateway.networking.k8s.io/v1";
/// Plurals of the Gateway API that Sheave reads, as release 1.6 has them.
const ALL: [&str; 7] =
    ["gatewayclasses", "gateways", "listenersets", "tcproutes", "udproutes", "tlsroutes", "referencegrants"];

/// A server that has no objects but those given, and custom kinds as it is told to.
#[derive(Clone, Default)]
struct Server {
    state: Arc<Mutex<ServerState>>,
}

#[derive(Default)]
struct ServerState {
    /// Plurals by group and version.
    served: BTreeMap<String, BTreeSet<&'static str>>,
    denied: BTreeSet<&'static str>,
    objects: BTreeMap<&'static str, Vec<Value>>,
    /// How often each path was requested.
    asked: BTreeMap<String, u32>,
    /// What the last watch of each kind asked for in seconds, if watches send bookmarks.
    watches: Option<BTreeMap<String, u64>>,
    discovery_fails: bool,
}

impl Server {
    fn serve(&self, api_version: &str, plurals: &[&'static str]) {
        self.state.lock().unwrap().served.insert(api_version.to_owned(), plurals.iter().copied().collect());
    }

    fn deny(&self, plurals: &[&'static str]) {
        self.state.lock().unwrap().denied.extend(plurals);
    }

    fn put(&self, plural: &'static str, object: Value) {
        self.state.lock().unwrap().objects.entry(plural).or_default().push(object);
    }

    fn asked(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().asked.keys().cloned().collect()
    }

    /// How often each group was asked for, in this order.
    fn asked_for(&self, groups: [&str; 2]) -> [u32; 2] {
        let asked = &self.state.lock().unwrap().asked;
        groups.map(|group| asked.get(&format!("/apis/{group}")).copied().unwrap_or_default())
    }

    async fn start(&self) -> Stub {
        let server = self.clone();
        Stub::start(move |asked| server.answer(asked)).await
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let mut state = self.state.lock().unwrap();
        *state.asked.entry(asked.path.clone()).or_default() += 1;
        let segments: Vec<&str> = asked.path.split('/').skip(1).collect();
        match segments.as_slice() {
            ["apis", group] => state.group(group),
            ["apis", group, version] => state.resources(&format!("{group}/{version}")),
            ["apis", group, version, plural] if group.contains("gateway") || group.contains("x-k8s") => {
                let served = state.served.get(&format!("{group}/{version}"));
                if state.denied.contains(plural) {
                    Reply::of(403, "forbidden")
                } else if !served.is_some_and(|served| served.contains(plural)) {
                    Reply::of(404, "404 page not found")
                } else {
                    state.objects_of(plural, asked)
                }
            }
            [.., plural] if state.denied.contains(plural) => Reply::of(403, "forbidden"),
            [.., plural] => state.objects_of(plural, asked),
            [] => panic!("{asked:?}"),
        }
    }
}

impl ServerState {
    fn group(&self, group: &str) -> Reply {
        let prefix = format!("{group}/");
        let versions: Vec<Value> = self
            .served
            .keys()
            .filter(|it| it.starts_with(&prefix))
            .map(|it| json!({"groupVersion": it, "version": it.trim_start_matches(&prefix)}))
            .collect();
        match (self.discovery_fails, versions.is_empty()) {
            (true, _) => Reply::of(503, "unavailable"),
            (false, true) => Reply::of(404, "404 page not found"),
            (false, false) => Reply::of(200, &json!({"kind": "APIGroup", "versions": versions})),
        }
    }

    fn resources(&self, api_version: &str) -> Reply {
        let names = self.served.get(api_version).into_iter().flatten();
        let resources: Vec<Value> = names.map(|name| json!({"name": name})).collect();
        Reply::of(200, &json!({"kind": "APIResourceList", "resources": resources}))
    }

    fn objects_of(&mut self, plural: &str, asked: &Asked) -> Reply {
        if let Some(watches) = self.watches.as_mut().filter(|_| asked.is_watch() && !asked.streams()) {
            let before = watches.insert(plural.to_owned(), asked.query["timeoutSeconds"].parse().unwrap());
            let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "100"}}});
            return Reply { hangs: before.is_some(), ..Reply::lines([bookmark]) };
        }
        if asked.streams() || asked.is_watch() {
            return nothing(asked);
        }
        let items = self.objects.get(plural).cloned().unwrap_or_default();
        Reply::of(200, &json!({"metadata": {"resourceVersion": "100"}, "items": items}))
    }
}

/// Without sockets, for simulated time.
impl Service<Request<Body>> for Server {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Ready<io::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Reply { status, body, .. } = self.answer(&Asked::of(request.uri().path()));
        ready(Ok(Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap()))
    }
}

fn class(name: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": "1", "uid": name},
        "spec": {"controllerName": "sheave.dev/gateway"}})
}

fn gateway(name: &str, port: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "resourceVersion": "1", "uid": name, "generation": 1},
        "spec": {"gatewayClassName": "sheave", "listeners": [{"name": "a", "protocol": "TCP", "port": port}]}})
}

fn wanted(gateway_api: GatewayApiMode) -> Wanted {
    Wanted { gateway_api, ..NECESSARY }
}

#[tokio::test]
async fn without_its_definitions_nothing_waits_and_nothing_is_reported() {
    let server = Server::default();
    let stub = server.start().await;
    let mut watch = watching(&stub, wanted(GatewayApiMode::Auto));
    let mut failure = std::pin::pin!(watch.first_failure());
    soon(watch.next()).await.unwrap();
    assert!(watch.gateway_api_is_listed());
    assert!(watch.problems().is_empty(), "{:?}", watch.problems());
    let kinds = watch.kinds();
    assert!(kinds.iter().all(|kind| kind.synced && kind.error.is_none()), "{kinds:?}");
    // With a class of this installation, each missing definition is a Problem, but ServiceImports are another project's.
    watch.set_gateways_wanted(true);
    let missing = problems(&watch);
    assert_eq!(missing.len(), 7, "{missing:?}");
    assert!(
        missing.iter().any(|it| it.contains("tcproutes.gateway.networking.k8s.io: DefinitionMissing")),
        "{missing:?}"
    );
    watch.set_gateways_wanted(false);
    assert!(!kinds.iter().any(|kind| kind.kind == "Namespace"), "{kinds:?}");
    assert!(tokio::time::timeout(Duration::from_millis(1), failure.as_mut()).await.is_err());
    let asked = server.asked();
    assert!(
        !asked.iter().any(|path| path.ends_with("gateways") || path.ends_with("namespaces")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn where_it_is_wanted_a_missing_definition_comes_with_its_remedy() {
    let server = Server::default();
    let stub = server.start().await;
    let mut watch = watching(&stub, wanted(GatewayApiMode::On));
    soon(watch.next()).await.unwrap();
    let problems = problems(&watch);
    assert_eq!(problems.len(), 8, "{problems:?}");
    let class = "CustomResourceDefinition gatewayclasses.gateway.networking.k8s.io: DefinitionMissing: is not installed, so \
                 there are no GatewayClasses; ";
    assert!(problems[0].starts_with(class), "{}", problems[0]);
    assert!(problems[0].contains("releases/download/v1.6.1/standard-install.yaml"), "{}", problems[0]);
    let import = problems.iter().find(|it| it.contains("serviceimports.multicluster.x-k8s.io")).unwrap();
    assert!(import.contains("Multi-Cluster Services API"), "{import}");
}

#[tokio::test]
async fn definitions_that_come_later_are_read_and_objects_stay_when_they_vanish() {
    let server = Server::default();
    let stub = server.start().await;
    let mut watch = watching(&stub, wanted(GatewayApiMode::Auto));
    let mut store = Store::default();
    soon(watch.next()).await.unwrap();
    assert!(!watch.reads_gateways());
    server.put("gatewayclasses", class("sheave"));
    server.put("namespaces", node("shop", "1"));
    server.put("gateways", gateway("edge", &json!(80)));
    // Without TLSRoutes, ListenerSets and ServiceImports.
    server.serve(V1, &["gatewayclasses", "gateways", "tcproutes"]);
    until(&mut watch, &mut store, |_, store| {
        let objects = store.objects();
        objects.gateway_api.gateways.len() + objects.gateway_api.classes.len() + objects.namespaces.len() == 3
    })
    .await;
    until(&mut watch, &mut store, |watch, _| watch.reads_gateways()).await;
    server.state.lock().unwrap().served.clear();
    // A watch of the stub ends after a second or two.
    until(&mut watch, &mut store, |watch, _| {
        watch.subscriptions.iter().filter(|it| !it.is_built_in()).all(|it| it.is_absent())
    })
    .await;
    tokio::time::sleep(LIMITS.vanished * 3).await;
    until(&mut watch, &mut store, |_, _| true).await;
    assert_eq!(store.objects().gateway_api.gateways.len(), 1);
    assert_eq!(store.objects().gateway_api.classes.len(), 1);
    assert!(watch.problems().is_empty(), "{:?}", watch.problems());
    assert!(watch.gateway_api_is_listed() && !watch.reads_gateways());
    server.put("gateways", gateway("other", &json!(81)));
    server.serve(V1, &ALL);
    until(&mut watch, &mut store, |_, store| store.objects().gateway_api.gateways.len() == 2).await;
    until(&mut watch, &mut store, |watch, _| watch.reads_gateways()).await;
}

#[tokio::test]
async fn objects_of_a_snapshot_stay_until_their_definition_has_been_missing_for_long() {
    let server = Server::default();
    let stub = server.start().await;
    let limits = WatchLimits { vanished: Duration::from_secs(1), ..LIMITS };
    let mut watch = super::watch(&Connection::to(&stub.url), wanted(GatewayApiMode::Auto), limits);
    let mut store = Store::default();
    let stored = serde_json::from_value(class("stored")).unwrap();
    store.apply(GatewayClasses::change(Delta::Put(Arc::new(stored))));
    for change in soon(watch.next()).await.unwrap().changes {
        store.apply(change);
    }
    assert_eq!(store.objects().gateway_api.classes.len(), 1);
    until(&mut watch, &mut store, |_, store| store.objects().gateway_api.classes.is_empty()).await;
}

#[tokio::test]
async fn without_any_right_it_counts_as_not_wanted_unless_the_configuration_wants_it() {
    for mode in [GatewayApiMode::Auto, GatewayApiMode::On] {
        let server = Server::default();
        server.serve(V1, &ALL);
        server.deny(&ALL);
        server.deny(&["namespaces"]);
        let stub = server.start().await;
        let mut watch = watching(&stub, wanted(mode));
        let mut store = Store::default();
        until(&mut watch, &mut store, |watch, _| watch.gateway_api_is_listed()).await;
        let problems = problems(&watch);
        let kinds = watch.kinds();
        if mode == GatewayApiMode::Auto {
            assert!(problems.is_empty(), "{problems:?}");
            assert!(kinds.iter().all(|kind| kind.error.is_none()), "{kinds:?}");
            assert!(!kinds.iter().any(|kind| kind.kind == "Namespace"), "{kinds:?}");
        } else {
            let denied = problems.iter().filter(|problem| problem.contains("AccessDenied")).count();
            assert_eq!(denied, ALL.len() + 1, "{problems:?}");
        }
    }
}

#[tokio::test]
async fn a_right_that_is_missing_alone_is_named() {
    let server = Server::default();
    server.serve(V1, &ALL);
    server.deny(&["tcproutes"]);
    let stub = server.start().await;
    let mut watch = watching(&stub, wanted(GatewayApiMode::Auto));
    let mut store = Store::default();
    until(&mut watch, &mut store, |watch, _| watch.gateway_api_is_listed()).await;
    let problems = problems(&watch);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].starts_with("Resource tcproutes.gateway.networking.k8s.io: AccessDenied: "),
        "{problems:?}"
    );
}

#[tokio::test]
async fn the_first_batch_does_not_wait_for_rights_nor_for_discovery() {
    for fails in [false, true] {
        let server = Server::default();
        server.serve(V1, &ALL);
        server.deny(&ALL);
        server.state.lock().unwrap().discovery_fails = fails;
        let stub = server.start().await;
        let limits = WatchLimits { refused: Duration::from_secs(600), ..LIMITS };
        let mut watch = super::watch(&Connection::to(&stub.url), wanted(GatewayApiMode::Auto), limits);
        soon(watch.next()).await.unwrap();
        assert!(!watch.gateway_api_is_listed(), "nothing may be concluded from it");
        let kinds = watch.kinds();
        assert!(kinds.iter().all(|kind| kind.synced || !kind.needed), "{kinds:?}");
    }
}

#[tokio::test]
async fn older_versions_are_read_where_their_fields_are_the_same_and_reported_where_not() {
    let server = Server::default();
    server.serve(V1, &["gatewayclasses", "gateways", "listenersets", "udproutes", "tlsroutes"]);
    server.serve("gateway.networking.k8s.io/v1beta1", &["gatewayclasses", "gateways", "referencegrants"]);
    server.serve("gateway.networking.k8s.io/v1alpha2", &["tcproutes", "udproutes"]);
    server.serve("multicluster.x-k8s.io/v1alpha1", &["serviceimports"]);
    for plural in ["referencegrants", "serviceimports"] {
        let metadata = json!({"name": "a", "namespace": "shop", "resourceVersion": "1"});
        server.put(plural, json!({"metadata": metadata}));
    }
    let stub = server.start().await;
    let mut watch = watching(&stub, wanted(GatewayApiMode::Auto));
    let mut store = Store::default();
    until(&mut watch, &mut store, |_, store| {
        let objects = &store.objects().gateway_api;
        objects.grants.len() + objects.imports.len() == 2
    })
    .await;
    let problems = problems(&watch);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(
        problems[0],
        "CustomResourceDefinition tcproutes.gateway.networking.k8s.io: DefinitionMissing: has only the version \
         gateway.networking.k8s.io/v1alpha2, and Sheave reads gateway.networking.k8s.io/v1, so no TCPRoute is used; \
         upgrade the Gateway API CRDs to 1.6 or later"
    );
}

#[tokio::test]
async fn an_object_that_cannot_be_read_does_not_stop_the_others() {
    let server = Server::default();
    server.serve(V1, &ALL);
    server.put("gateways", gateway("broken", &json!("eighty")));
    server.put("gateways", gateway("edge", &json!(80)));
    let stub = server.start().await;
    let mut watch = watching(&stub, wanted(GatewayApiMode::Auto));
    let mut store = Store::default();
    until(&mut watch, &mut store, |_, store| store.objects().gateway_api.gateways.len() == 1).await;
    let problems = problems(&watch);
    assert!(
        problems[0].starts_with("Gateway shop/broken: UnreadableObject: spec.listeners[0].port: "),
        "{problems:?}"
    );
}

#[tokio::test]
async fn switched_off_nothing_is_asked_for() {
    let server = Server::default();
    server.serve(V1, &ALL);
    let stub = server.start().await;
    let mut watch = watching(&stub, wanted(GatewayApiMode::Off));
    soon(watch.next()).await.unwrap();
    assert!(!watch.watches::<GatewayClasses>() && watch.gateway_api_is_listed());
    let asked = server.asked();
    assert!(!asked.iter().any(|path| path.contains("gateway") || path.contains("namespaces")), "{asked:?}");
}

/// A gateway that hears nothing of its controller, and a controller.
#[tokio::test(start_paused = true)]
async fn definitions_that_stay_missing_are_asked_for_ever_less() {
    const GROUPS: [&str; 2] = ["gateway.networking.k8s.io", "multicluster.x-k8s.io"];
    let day = Duration::from_secs(24 * 3600);
    for (limits, longest) in [(WatchLimits::default(), 600), (WatchLimits::of_controller(), 60)] {
        for installed in [false, true] {
            let server = Server::default();
            if installed {
                server.serve(V1, &ALL);
            }
            let discovery = Arc::new(Discovery::new(&limits));
            let definitions = KINDS.iter().filter_map(|row| row.definition).collect();
            let connection = Connection::by(Client::new(server.clone(), "default"));
            let following = discovery.follow(connection, limits, definitions);
            assert!(tokio::time::timeout(day, following).await.is_err());
            let [gateways, imports] = server.asked_for(GROUPS);
            let least = 24 * 3600 / longest;
            assert!((least..=2 * least + 10).contains(&imports), "{imports} in a day");
            // What was found is asked for again only when it is gone.
            assert_eq!(gateways, if installed { 1 } else { imports });
        }
    }
}

/// Limits of a gateway that looks for what is missing, or refused, on its own after this test.
const PATIENT: WatchLimits =
    WatchLimits { absent: Duration::from_secs(600), undefined: Duration::from_secs(6000), ..LIMITS };

#[tokio::test]
async fn what_the_controller_reads_is_looked_for_at_once_and_once() {
    let server = Server::default();
    let stub = server.start().await;
    let mut watch = super::watch(&Connection::to(&stub.url), wanted(GatewayApiMode::Auto), PATIENT);
    let mut store = Store::default();
    soon(watch.next()).await.unwrap();
    let told = KindHints::text(&BTreeSet::from(["services", "gateways", "gatewayclasses"]));
    assert_eq!(told, "gatewayclasses,gateways,services");
    let hints = watch.hints();
    let hear = async |text: &str| {
        // More than the shortest time between hints, and than their delay.
        for _ in 0..10 {
            hints.hear(text);
            tokio::time::sleep(LIMITS.relist * 2).await;
        }
    };
    let asked = || server.asked_for(["gateway.networking.k8s.io", "multicluster.x-k8s.io"]);
    hear("services,nodes,widgets").await;
    assert_eq!(asked(), [1, 1], "the controller reads nothing that is missing");
    hear(&told).await;
    assert_eq!(asked(), [2, 2], "it was asked for once, in vain");
    server.serve(V1, &["gatewayclasses", "gateways"]);
    hear("services").await;
    hear(&told).await;
    until(&mut watch, &mut store, |watch, _| watch.reads_gateways()).await;
    assert_eq!(asked(), [3, 3]);
}

#[tokio::test]
async fn a_kind_that_was_refused_is_asked_for_as_soon_as_the_controller_reads_it() {
    let server = Server::default();
    server.serve(V1, &ALL);
    server.deny(&ALL);
    let stub = server.start().await;
    let mut watch = super::watch(&Connection::to(&stub.url), wanted(GatewayApiMode::Auto), PATIENT);
    let mut store = Store::default();
    until(&mut watch, &mut store, |watch, _| watch.gateway_api_is_listed()).await;
    server.state.lock().unwrap().denied.clear();
    tokio::time::sleep(LIMITS.refused * 5).await;
    assert!(!watch.reads_gateways());
    watch.hints().hear(&ALL.join(","));
    until(&mut watch, &mut store, |watch, _| watch.reads_gateways()).await;
}

#[tokio::test]
async fn watches_of_optional_kinds_last_longer() {
    let server = Server::default();
    server.serve(V1, &ALL);
    server.state.lock().unwrap().watches = Some(BTreeMap::new());
    let stub = server.start().await;
    let limits = WatchLimits {
        bookmarked_watch: Duration::from_secs(100),
        optional_watch: Duration::from_secs(1000),
        ..LIMITS
    };
    let mut watch = super::watch(&Connection::to(&stub.url), wanted(GatewayApiMode::Auto), limits);
    let mut store = Store::default();
    until(&mut watch, &mut store, |_, _| {
        let state = server.state.lock().unwrap();
        let asked = |plural| state.watches.iter().flatten().find(|(it, _)| *it == plural).map(|(_, it)| *it);
        let has =
            |plural, shortest: u64| asked(plural).is_some_and(|it| (shortest..=2 * shortest).contains(&it));
        has("services", 100) && has("nodes", 100) && has("gateways", 1000) && has("namespaces", 1000)
    })
    .await;
}
