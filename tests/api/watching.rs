//! Tests of the source of objects with a faulty API server: in the end it must know what the server holds, and no object
//! may be dropped on the way.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sheave_control::api::store::{ControlPlane, Objects, Store};
use sheave_control::sources::api_server::{self, ApiWatch, KindStatus, Wanted, WatchLimits};
use sheave_control::sources::connection::Connection;

use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::apiserver::status::Status;
use crate::support::patience::io_deadline;

const EVERYTHING: Wanted = Wanted { namespaces: true, pools: true, ..Wanted::of(ControlPlane::Local) };

/// How long to wait for updates that may not come.
const LOOK: Duration = Duration::from_millis(20);

/// Short pauses and small pages; watches do not end on their own within the test.
fn limits() -> WatchLimits {
    WatchLimits {
        silence: Duration::from_secs(2),
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(50),
        unwatched: Duration::from_secs(600),
        refused: Duration::from_millis(20),
        absent: Duration::from_millis(20),
        page: 2,
        ..WatchLimits::default()
    }
}

/// Server with a source.
struct Bench {
    server: ApiServer,
    watch: ApiWatch,
    store: Store,
}

impl Bench {
    async fn of(server: ApiServer) -> Self {
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(kubeconfig.path(), server.kubeconfig("gateway")).unwrap();
        let connection = Connection::open(Some(kubeconfig.path())).await.unwrap();
        let watch = api_server::watch(&connection, EVERYTHING, limits());
        Self { server, watch, store: Store::default() }
    }

    /// With pools installed, some objects, and everything listed.
    async fn start() -> Self {
        let server = ApiServer::start();
        server.load([definition()]);
        server.load((0..5).flat_map(|index| [service(index, 80), slice(index, "10.0.0.1"), node(index)]));
        server.load([pool("edge")]);
        let mut bench = Self::of(server).await;
        bench.until("everything is known", Self::knows_everything).await;
        bench
    }

    /// Applies updates until the condition holds.
    async fn until(&mut self, what: &str, fact: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !fact(self) {
            assert!(started.elapsed() < io_deadline(), "{what}: {:#?}", self.watch.kinds());
            self.look().await;
        }
    }

    /// Applies updates for a moment.
    async fn look(&mut self) {
        if let Ok(batch) = tokio::time::timeout(LOOK, self.watch.next()).await {
            for change in batch.expect("the runtime runs").changes {
                self.store.apply(change);
            }
        }
    }

    /// Whether the store has the same versions of all objects as the server.
    fn knows_everything(&self) -> bool {
        let kinds =
            ["services", "endpointslices", "nodes", "namespaces"].map(|kind| self.server.objects(kind));
        versions(self.store.objects()) == kinds.iter().flatten().map(version).collect()
    }

    fn kind(&self, name: &str) -> KindStatus {
        self.watch.kinds().into_iter().find(|status| status.kind == name).unwrap()
    }

    fn lists(&self) -> Vec<u64> {
        self.watch.kinds().iter().map(|status| status.lists).collect()
    }

    fn problems(&self) -> Vec<String> {
        self.watch.problems().iter().map(ToString::to_string).collect()
    }
}

/// Versions by kind letter, namespace and name, without pools, which come and go with their kind.
fn versions(objects: &Objects) -> BTreeMap<String, String> {
    let slices = objects.slices.values().flat_map(BTreeMap::values).map(|it| ("E", &it.metadata));
    let metadata = objects.services.values().map(|it| ("S", &it.metadata));
    let metadata = metadata.chain(slices).chain(objects.nodes.values().map(|it| ("No", &it.metadata)));
    let metadata = metadata.chain(objects.namespaces.values().map(|it| ("Na", &it.metadata)));
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    metadata
        .map(|(kind, it)| {
            (format!("{kind} {}/{}", text(&it.namespace), text(&it.name)), text(&it.resource_version))
        })
        .collect()
}

fn version(object: &Value) -> (String, String) {
    let kind = match object["kind"].as_str().unwrap() {
        "Service" => "S",
        "EndpointSlice" => "E",
        "Node" => "No",
        other => &other[..2],
    };
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (format!("{kind} {}/{}", text("namespace"), text("name")), text("resourceVersion").to_owned())
}

fn service(index: usize, port: u16) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{index}"), "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port, "protocol": "TCP"}]}})
}

fn slice(index: usize, address: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("s{index}-x"), "namespace": "default",
            "labels": {"kubernetes.io/service-name": format!("s{index}")}},
        "endpoints": [{"addresses": [address]}], "ports": [{"port": 80}]})
}

fn node(index: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{index}")}, "spec": {}})
}

fn pool(name: &str) -> Value {
    json!({"apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": name},
        "spec": {"addresses": ["203.0.113.0/28"]}})
}

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "addresspools.sheave.dev"},
        "spec": {"group": "sheave.dev", "scope": "Cluster",
            "names": {"kind": "AddressPool", "plural": "addresspools", "singular": "addresspool"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}]}})
}

#[tokio::test]
async fn a_hundred_cuts_under_churn_lose_nothing_and_list_nothing_again() {
    let mut bench = Bench::start().await;
    for round in 0..100_usize {
        bench.server.load([
            service(round, 81),
            slice(round % 7, &format!("10.0.1.{round}")),
            node(round % 9),
        ]);
        // A watch that was cut counts as open until the server notices, so the requests are counted as well.
        let watches =
            |it: &Bench| it.server.requests().iter().filter(|request| request.verb == "watch").count();
        bench.until("all watches run", |it| watches(it) >= 5 && it.server.faults().open_watches() == 5).await;
        bench.server.forget_requests();
        assert_eq!(bench.server.faults().cut_watches(), 5);
        bench.server.load([slice(round % 7, &format!("10.0.2.{round}"))]);
        bench.server.unload("services", Some("default"), &format!("s{}", round / 2));
        bench.server.unload("nodes", None, &format!("n{}", round % 5));
    }
    bench.until("nothing is lost", Bench::knows_everything).await;
    assert_eq!(bench.lists(), [1, 1, 1, 1, 1]);
    bench.until("each cut was made good", |it| it.kind("Service").restarts >= 100).await;
}

#[tokio::test]
async fn a_server_that_was_away_is_taken_up_where_it_was() {
    let mut bench = Bench::start().await;
    let before = versions(bench.store.objects());
    bench.server.stop();
    bench.until("all are lost", |it| it.watch.kinds().iter().all(|kind| kind.error.is_some())).await;
    assert_eq!(versions(bench.store.objects()), before);
    bench.server.load([service(9, 80), node(0)]);
    bench.server.unload("services", Some("default"), "s1");
    bench.server.resume();
    bench.until("what happened meanwhile is known", Bench::knows_everything).await;
    bench.until("all are back", |it| it.watch.kinds().iter().all(|kind| kind.error.is_none())).await;
    assert_eq!(bench.lists(), [1, 1, 1, 1, 1]);
}

#[tokio::test]
async fn a_server_that_forgot_what_happened_is_listed_anew() {
    let mut bench = Bench::start().await;
    let before = versions(bench.store.objects());
    bench.server.stop();
    bench.until("all are lost", |it| it.watch.kinds().iter().all(|kind| kind.error.is_some())).await;
    bench.server.load([service(9, 80), node(0)]);
    bench.server.unload("services", Some("default"), "s1");
    bench.server.unload("endpointslices", Some("default"), "s2-x");
    bench.server.compact();
    assert_eq!(versions(bench.store.objects()), before);
    bench.server.resume();
    bench.until("what vanished is gone", Bench::knows_everything).await;
    assert_eq!(bench.kind("Service").lists, 2);
}

#[tokio::test]
async fn a_version_that_is_refused_by_status_is_listed_anew() {
    let mut bench = Bench::start().await;
    let gone = Fault::Answer(Status::new(410, "Expired", "too old resource version"));
    bench.server.faults().plan(Matching::new("watch", "services"), 1, gone);
    bench.until("all watches run", |it| it.server.faults().open_watches() == 5).await;
    bench.server.faults().cut_watches();
    bench.until("Services are listed", |it| it.kind("Service").lists == 2).await;
    bench.server.load([service(9, 80)]);
    bench.until("they are watched", Bench::knows_everything).await;
    assert_eq!(bench.lists(), [2, 1, 1, 1, 1]);
}

#[tokio::test]
async fn lists_that_hang_fail_or_are_put_off_are_had_in_the_end() {
    let server = ApiServer::start();
    server.load([definition()]);
    server.load((0..5).map(|index| service(index, 80)));
    let services = |verb| Matching::new(verb, "services");
    let refused = Fault::Answer(Status::new(422, "Invalid", "sendInitialEvents is forbidden"));
    server.faults().plan(services("watch"), 1, refused);
    for fault in [
        Fault::too_many_requests(1),
        Fault::unavailable(),
        Fault::internal_error(),
        Fault::Swallow,
        Fault::LoseAnswer,
    ] {
        server.faults().plan(services("list"), 1, fault);
    }
    let mut bench = Bench::of(server).await;
    tokio::time::timeout(io_deadline(), bench.watch.first_failure()).await.expect("failures are told");
    bench.until("everything is known", Bench::knows_everything).await;
    assert_eq!(bench.server.faults().outstanding(), 0);
    assert_eq!(bench.kind("Service").error, None);
    let pages = bench.server.requests();
    let pages =
        pages.iter().filter(|it| it.verb == "list" && it.resource == "services" && it.status == Some(200));
    assert_eq!(pages.count(), 3, "five Services in pages of two");
}

#[tokio::test]
async fn lists_are_streamed_unless_the_server_does_not() {
    let bench = Bench::start().await;
    assert!(bench.server.requests().iter().all(|request| request.verb != "list"), "{:#?}", bench.lists());
}

#[tokio::test]
async fn pools_come_and_go_with_their_definition() {
    let server = ApiServer::start();
    server.faults().slow_definitions(true);
    server.load([service(1, 80)]);
    let mut bench = Bench::of(server).await;
    bench.until("the rest is known without it", Bench::knows_everything).await;
    let missing =
        |it: &Bench| it.problems().iter().any(|it| it.contains("addresspools.sheave.dev: DefinitionMissing"));
    assert!(missing(&bench), "{:?}", bench.problems());
    bench.server.load([definition(), pool("edge")]);
    bench.until("its pools are known", |it| it.store.objects().pools.len() == 1).await;
    bench.until("nothing is missing", |it| it.problems().is_empty()).await;
    bench.server.load([pool("more")]);
    bench.until("pools are watched", |it| it.store.objects().pools.len() == 2).await;
    bench.server.unload("customresourcedefinitions", None, "addresspools.sheave.dev");
    bench.until("its pools are gone", |it| it.store.objects().pools.is_empty()).await;
    bench.until("it is missing again", missing).await;
    bench.server.load([definition(), pool("edge")]);
    bench.until("its pools are back", |it| it.store.objects().pools.len() == 1).await;
}

#[tokio::test]
async fn a_condition_without_a_time_is_no_trouble() {
    let mut bench = Bench::start().await;
    let mut odd = service(1, 80);
    odd["status"] = json!({"conditions": [{"type": "example.com/A", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": null}]});
    bench.server.load([odd, service(2, 81)]);
    bench.until("both are known", Bench::knows_everything).await;
    assert_eq!(bench.problems(), [""; 0]);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_told_and_the_others_go_on() {
    let mut bench = Bench::start().await;
    let mut odd = pool("edge");
    odd["spec"]["priority"] = json!("high");
    bench.server.load([odd, pool("more")]);
    bench.until("the other one is known", |it| it.store.objects().pools.len() == 2).await;
    bench.until("it is told", |it| !it.problems().is_empty()).await;
    assert!(
        bench.problems()[0]
            .starts_with("AddressPool edge: UnreadableObject: spec.priority: \"high\" cannot be read"),
        "{:?}",
        bench.problems()
    );
    bench.server.load([pool("edge")]);
    bench.until("it is mended", |it| it.problems().is_empty()).await;
}

#[tokio::test]
async fn rights_that_are_missing_are_named_until_they_are_given() {
    let server = ApiServer::start();
    let may = |resources: &[&str]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "gateway"},
            "rules": [{"apiGroups": ["", "discovery.k8s.io"], "verbs": ["list", "watch"], "resources": resources}]})
    };
    server.load([service(1, 80)]);
    server.authorize("gateway", &[may(&["nodes", "endpointslices"])]);
    let mut bench = Bench::of(server).await;
    tokio::time::timeout(io_deadline(), bench.watch.first_failure()).await.expect("the refusal is told");
    let names = ["Resource addresspools.sheave.dev", "Resource namespaces", "Resource services"];
    bench.until("all three are told", |it| it.problems().len() == names.len()).await;
    for (problem, name) in bench.problems().iter().zip(names) {
        assert!(problem.starts_with(&format!("{name}: AccessDenied: ")), "{problem}");
    }
    assert!(!bench.kind("Service").synced);
    assert!(bench.kind("Namespace").synced);
    assert!(bench.store.objects().nodes.is_empty(), "nothing is told before Services are known");
    bench.server.authorize("gateway", &[may(&["nodes", "endpointslices", "services", "namespaces"])]);
    bench.until("everything is known", Bench::knows_everything).await;
}
