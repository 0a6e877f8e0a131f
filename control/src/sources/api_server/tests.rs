//! The source against a scripted server, with answers that a real API server gives only when it has problems.

mod faults;
mod fleet;
mod gateway_api;
mod memory;
pub(crate) mod stub;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use self::stub::{Asked, Reply, Stub};
use super::*;
use crate::api::store::Store;
use crate::sources::{ApiSource, Source, Sources};

/// Short enough for tests, and long enough for a busy machine.
const LIMITS: WatchLimits = WatchLimits {
    silence: Duration::from_secs(1),
    list: Duration::from_secs(10),
    watch: Duration::from_secs(1),
    bookmarked_watch: Duration::from_secs(1),
    optional_watch: Duration::from_secs(1),
    bookmark: Duration::from_secs(2),
    grace: Duration::from_secs(1),
    relist: Duration::from_millis(5),
    first_pause: Duration::from_millis(5),
    longest_pause: Duration::from_millis(50),
    unstreamed: Duration::from_secs(300),
    unwatched: Duration::from_secs(1),
    poll: Duration::from_millis(20),
    refused: Duration::from_millis(20),
    absent: Duration::from_millis(20),
    undefined: Duration::from_millis(120),
    vanished: Duration::from_millis(100),
    spared: Duration::from_millis(100),
    page: 2,
};

const NECESSARY: Wanted = Wanted::of(ControlPlane::Local);

fn list(version: &str, names: &[&str]) -> Reply {
    let items: Vec<Value> = names.iter().map(|name| node(name, version)).collect();
    Reply::of(200, &json!({"metadata": {"resourceVersion": version}, "items": items}))
}

fn node(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version, "uid": name}})
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

/// Answers of a server that has no objects and does not stream lists.
fn nothing(asked: &Asked) -> Reply {
    match (asked.streams(), asked.is_watch()) {
        (true, _) => Reply::of(422, "no streams here"),
        (false, true) => Reply::lines([]),
        (false, false) => list("100", &[]),
    }
}

/// A server that has only Nodes, with answers from `answer`.
async fn nodes(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Stub {
    Stub::start(move |asked| match asked.plural.as_str() {
        "nodes" if !asked.streams() => answer(asked),
        _ => nothing(asked),
    })
    .await
}

fn watching(stub: &Stub, wanted: Wanted) -> ApiWatch {
    watch(&Connection::to(&stub.url), wanted, LIMITS)
}

/// Waits for something that takes much less than this on any machine.
async fn soon<T>(fact: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), fact).await.expect("nothing came")
}

/// Receives batches until the names of the Nodes are these.
async fn until_nodes(watch: &mut ApiWatch, names: &[&str]) {
    let mut store = Store::default();
    until_nodes_in(&mut store, watch, names).await;
}

async fn until_nodes_in(store: &mut Store, watch: &mut ApiWatch, names: &[&str]) {
    while !store.objects().nodes.keys().map(|name| &**name).eq(names.iter().copied()) {
        for change in soon(watch.next()).await.unwrap().changes {
            store.apply(change);
        }
    }
}

/// Receives batches until the condition holds.
async fn until(watch: &mut ApiWatch, store: &mut Store, holds: impl Fn(&ApiWatch, &Store) -> bool) {
    soon(async {
        while !holds(watch, store) {
            if let Ok(batch) = tokio::time::timeout(Duration::from_millis(20), watch.next()).await {
                batch.unwrap().changes.into_iter().for_each(|change| store.apply(change));
            }
        }
    })
    .await;
}

fn problems(watch: &ApiWatch) -> Vec<String> {
    watch.problems().iter().map(Problem::to_string).collect()
}

fn kind<'a>(kinds: &'a [KindStatus], name: &str) -> &'a KindStatus {
    kinds.iter().find(|status| status.kind == name).unwrap()
}

#[tokio::test]
async fn a_version_that_is_refused_as_the_watch_starts_is_listed_anew() {
    let lists = AtomicUsize::new(0);
    let stub = nodes(move |asked| match (asked.is_watch(), asked.version()) {
        (false, _) if lists.fetch_add(1, Ordering::Relaxed) == 0 => list("5", &["gone", "stays"]),
        (false, _) => list("9", &["came", "stays"]),
        (true, "5") => Reply::of(410, "too old"),
        (true, _) => Reply::lines([]),
    })
    .await;
    let mut watch = watching(&stub, NECESSARY);
    until_nodes(&mut watch, &["came", "stays"]).await;
    let lists: Vec<u64> = watch.kinds().iter().map(|kind| kind.lists).collect();
    assert_eq!(lists, [1, 1, 2], "the other kinds stay as they are");
}

#[tokio::test]
async fn a_watch_that_says_its_version_is_too_old_is_followed_by_a_list() {
    let expired = json!({"kind": "Status", "status": "Failure", "code": 410, "message": "too old"});
    let stub = nodes(move |asked| match (asked.is_watch(), asked.version()) {
        (true, "5") => Reply::lines([event("ADDED", &node("b", "6")), event("ERROR", &expired)]),
        (true, _) => Reply::lines([event("DELETED", &node("a", "8"))]),
        (false, _) => list("5", &["a"]),
    })
    .await;
    let mut watch = watching(&stub, NECESSARY);
    let mut store = Store::default();
    until_nodes_in(&mut store, &mut watch, &["a"]).await;
    while kind(&watch.kinds(), "Node").lists < 2 {
        for change in soon(watch.next()).await.unwrap().changes {
            store.apply(change);
        }
    }
}

#[tokio::test]
async fn a_watch_that_is_cut_goes_on_where_it_was() {
    let stub = nodes(|asked| match (asked.is_watch(), asked.version()) {
        (false, _) => list("5", &["a"]),
        (true, "5") => Reply::lines([event("ADDED", &node("b", "6"))]).ending(),
        (true, "6") => {
            Reply::lines([event("BOOKMARK", &json!({"metadata": {"resourceVersion": "7"}}))]).ending()
        }
        (true, "7") => Reply::lines([event("DELETED", &node("a", "8"))]),
        (true, other) => panic!("{other}"),
    })
    .await;
    let mut watch = watching(&stub, NECESSARY);
    until_nodes(&mut watch, &["b"]).await;
    let node = kind(&watch.kinds(), "Node").clone();
    assert_eq!((node.lists, node.restarts), (1, 2));
}

#[tokio::test]
async fn a_server_that_lost_its_latest_versions_is_noticed_though_it_is_silent() {
    let lists = AtomicUsize::new(0);
    let stub = nodes(move |asked| match (asked.is_watch(), asked.version()) {
        (false, _) if lists.fetch_add(1, Ordering::Relaxed) == 0 => list("500", &["lost"]),
        (false, _) => list("40", &["restored"]),
        (true, _) => Reply::lines([]),
    })
    .await;
    let mut watch = watching(&stub, NECESSARY);
    until_nodes(&mut watch, &["restored"]).await;
}

#[tokio::test]
async fn lists_are_streamed_where_the_server_does_that() {
    let end =
        json!({"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}});
    let stub = Stub::start(move |asked| match (asked.plural.as_str(), asked.streams(), asked.is_watch()) {
        ("nodes", true, _) => Reply::lines([event("ADDED", &node("a", "3")), event("BOOKMARK", &end)]),
        ("nodes", false, true) if asked.version() == "7" => Reply::lines([event("ADDED", &node("b", "8"))]),
        ("nodes", ..) => panic!("{asked:?}"),
        _ => nothing(asked),
    })
    .await;
    let mut watch = watching(&stub, NECESSARY);
    until_nodes(&mut watch, &["a", "b"]).await;
}

#[tokio::test]
async fn a_server_that_never_ends_a_streamed_list_is_asked_for_pages() {
    let streams = Arc::new(AtomicUsize::new(0));
    let counted = streams.clone();
    let stub = Stub::start(move |asked| match (asked.plural.as_str(), asked.streams(), asked.is_watch()) {
        ("nodes", true, _) => {
            counted.fetch_add(1, Ordering::Relaxed);
            Reply::lines([event("ADDED", &node("half", "3"))]).ending()
        }
        ("nodes", false, true) if asked.version() == "7" => Reply::of(410, "again"),
        ("nodes", false, true) => Reply::lines([event("ADDED", &node("b", "8"))]),
        ("nodes", false, false) => list("7", &["a"]),
        _ => nothing(asked),
    })
    .await;
    let mut watch = watching(&stub, NECESSARY);
    until_nodes(&mut watch, &["a"]).await;
    while kind(&watch.kinds(), "Node").lists < 3 {
        assert!(soon(watch.next()).await.is_some());
    }
    assert_eq!(streams.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_list_whose_next_page_is_forgotten_is_had_at_once() {
    let forgotten = Arc::new(AtomicUsize::new(0));
    let counted = forgotten.clone();
    let stub =
        nodes(move |asked| match (asked.is_watch(), asked.query.get("limit"), asked.query.get("continue")) {
            (true, ..) => Reply::lines([]),
            (_, Some(_), None) => {
                let metadata = json!({"resourceVersion": "5", "continue": "x"});
                Reply::of(200, &json!({"metadata": metadata, "items": [node("gone", "5")]}))
            }
            (_, Some(_), Some(_)) => {
                counted.fetch_add(1, Ordering::Relaxed);
                Reply::of(410, "the continue parameter is too old")
            }
            (_, None, _) => list("6", &["a", "b", "c"]),
        })
        .await;
    let mut watch = watching(&stub, NECESSARY);
    until_nodes(&mut watch, &["a", "b", "c"]).await;
    assert_eq!(forgotten.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_list_that_hangs_is_asked_for_again() {
    let lists = AtomicUsize::new(0);
    let stub = nodes(move |asked| match (asked.is_watch(), lists.fetch_add(1, Ordering::Relaxed)) {
        (true, _) => Reply::lines([]),
        (false, 0) => Reply { status: 200, body: "{\"items\":[".to_owned(), hangs: true },
        (false, 1) => Reply::of(500, "etcd is slow"),
        (false, 2) => Reply::of(429, "storage is (re)initializing"),
        (false, 3) => Reply::of(200, "{\"items\":["),
        (false, _) => list("7", &["a"]),
    })
    .await;
    let mut watch = watching(&stub, NECESSARY);
    soon(watch.first_failure()).await;
    let error = kind(&watch.kinds(), "Node").error.clone();
    assert_eq!(error.as_deref(), Some("the API server does not answer in time"));
    until_nodes(&mut watch, &["a"]).await;
    assert_eq!(kind(&watch.kinds(), "Node").error, None);
}

#[tokio::test]
async fn kinds_that_may_be_missing_do_not_hold_up_the_rest() {
    let stub = Stub::start(|asked| match asked.plural.as_str() {
        "addresspools" => Reply::of(404, "404 page not found"),
        "namespaces" => Reply::of(403, &json!({"kind": "Status", "message": "namespaces is forbidden"})),
        "nodes" if !asked.streams() && !asked.is_watch() => list("7", &["a"]),
        _ => nothing(asked),
    })
    .await;
    let mut watch = watching(&stub, Wanted { namespaces: true, pools: true, ..NECESSARY });
    until_nodes(&mut watch, &["a"]).await;
    let problems = problems(&watch);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("CustomResourceDefinition addresspools.sheave.dev: "), "{problems:?}");
    assert!(problems[1].starts_with("Resource namespaces: AccessDenied: "), "{problems:?}");
    assert!(kind(&watch.kinds(), "AddressPool").synced);
}

#[tokio::test]
async fn pools_come_and_go_with_their_definition() {
    let defined = Arc::new(AtomicBool::new(false));
    let is_defined = defined.clone();
    let stub = Stub::start(move |asked| match asked.plural.as_str() {
        "addresspools" if !is_defined.load(Ordering::Relaxed) => Reply::of(404, "404 page not found"),
        "addresspools" if !asked.is_watch() => {
            let pool = json!({"metadata": {"name": "edge", "resourceVersion": "1", "uid": "1"}, "spec": {}});
            Reply::of(200, &json!({"metadata": {"resourceVersion": "100"}, "items": [pool]}))
        }
        _ => nothing(asked),
    })
    .await;
    let mut watch = watching(&stub, Wanted { pools: true, ..NECESSARY });
    let mut store = Store::default();
    for is_there in [false, true, false, true] {
        defined.store(is_there, Ordering::Relaxed);
        until(&mut watch, &mut store, |watch, store| {
            let missing = "CustomResourceDefinition addresspools.sheave.dev: DefinitionMissing: ";
            let is_missing = problems(watch).iter().any(|it| it.starts_with(missing));
            (store.objects().pools.len() == 1, is_missing) == (is_there, !is_there)
        })
        .await;
    }
}

#[tokio::test]
async fn a_kind_that_may_not_be_read_holds_up_the_first_batch_if_it_is_needed() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let counted = refusals.clone();
    let stub = nodes(move |asked| match (asked.is_watch(), counted.fetch_add(1, Ordering::Relaxed)) {
        (true, _) => Reply::lines([]),
        (false, 0..3) => Reply::of(403, "no"),
        (false, _) => list("7", &["a"]),
    })
    .await;
    let mut watch = watching(&stub, NECESSARY);
    soon(watch.first_failure()).await;
    assert!(!kind(&watch.kinds(), "Node").synced);
    let batch = soon(watch.next()).await.unwrap();
    assert!(refusals.load(Ordering::Relaxed) >= 4);
    let [Change::Services(_), Change::Slices(_), Change::Nodes(_), ..] = &batch.changes[..] else {
        panic!("{batch:?}")
    };
    assert!(watch.problems().is_empty());
}

#[tokio::test]
async fn credentials_that_are_refused_are_read_again() {
    let stub = nodes(|asked| match (asked.bearer.as_str(), asked.is_watch()) {
        ("new", true) => Reply::lines([]),
        ("new", false) => list("7", &["a"]),
        _ => Reply::of(401, "Unauthorized"),
    })
    .await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let kubeconfig = |token: &str| {
        json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": stub.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]})
        .to_string()
    };
    std::fs::write(file.path(), kubeconfig("old")).unwrap();
    let connection = Connection::open(Some(file.path())).await.unwrap();
    std::fs::write(file.path(), kubeconfig("new")).unwrap();
    let mut watch = super::watch(&connection, NECESSARY, LIMITS);
    until_nodes(&mut watch, &["a"]).await;
}

#[tokio::test]
async fn a_gateway_is_cut_off_without_services_or_endpoints_but_not_without_nodes() {
    for (broken, cut_off) in [("services", true), ("endpointslices", true), ("nodes", false)] {
        let stub = Stub::start(move |asked| match (asked.streams(), asked.is_watch()) {
            (false, true) if asked.plural == broken => Reply::of(500, "broken"),
            _ => nothing(asked),
        })
        .await;
        let watch = watching(&stub, NECESSARY);
        let source = ApiSource::new(&Connection::to(&stub.url), watch, Duration::from_secs(60));
        let mut sources = Sources { local: Source::api(source), karmada: None };
        let mut store = Store::default();
        while !sources.local.kinds().iter().any(|kind| kind.error.is_some()) {
            tokio::select! {
                update = sources.next(store.objects()) => sources.take(update.unwrap(), &mut store, Some),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        assert_eq!(sources.is_cut_off(), cut_off, "{broken}");
    }
}
