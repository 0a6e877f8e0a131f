//! Tests that a controller at rest writes nothing except its Lease: neither on its own, nor when it lists everything again,
//! nor after a restart, except for repeated Events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::scene::{CONTROLLER, Scene, play, wait_for, wait_until_leading};
use crate::stage::{REST, Sheave, pool, service, wait_for_addresses, wait_for_condition};
use crate::support::apiserver::record::Request;
use crate::support::cluster::{Account, Cluster};
use crate::support::patience::{eventually_within, let_pass, patience};

/// How often watches are cut. A watch that has received a bookmark in between need not list.
const CUTS: usize = 12;
/// Kinds that a controller watches.
const KINDS: [&str; 5] = ["services", "endpointslices", "nodes", "namespaces", "addresspools"];
/// Interval of bookmarks, where it can be set.
const BOOKMARKS: Duration = Duration::from_millis(50);

#[test]
fn nothing_is_written_at_rest() {
    play("rest", "", |scene| {
        if let Some(server) = scene.cluster.test_server() {
            server.bookmark_every(BOOKMARKS);
        }
        let controller = scene.start();
        settle(scene);
        let quiet = Quiet::begin(scene.cluster);
        let_pass(REST);
        quiet.expect("nothing happens");
        for _ in 0..CUTS {
            relist(scene, &controller);
        }
        let_pass(REST);
        quiet.expect("everything was listed again");
        quiet.expect_lists();
        assert!(controller.stop().success());
        let controller = scene.start();
        let_pass(REST);
        quiet.expect_no_news("the controller was started again");
        scene.crash(controller);
        let controller = scene.start();
        wait_until_leading(&controller);
        let_pass(REST);
        quiet.expect_no_news("the controller was killed and started again");
    });
}

/// Creates Services in every lasting state: published, in conflict, waiting, with an invalid value, without a pool.
fn settle(scene: &Scene<'_>) {
    let cluster = scene.cluster;
    pool(cluster, "rest", "203.0.113.60, 203.0.113.61, 224.0.0.7");
    for name in ["one", "two", "waits"] {
        service(cluster, name, "");
        wait_for(cluster, ("Service", name), "is spoken of", |it| it["status"]["conditions"].is_array());
    }
    service(cluster, "shares", "loadBalancerIP: 203.0.113.60");
    service(cluster, "lost", "loadBalancerIP: 192.0.2.200");
    cluster.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: odd, annotations: {sheave.dev/balance: best, \
         sheave.dev/address-pool: nowhere}}\nspec: {type: LoadBalancer, loadBalancerClass: sheave.dev/l4, ports: [{name: \
         http, port: 80, protocol: TCP}, {name: sig, port: 90, protocol: SCTP}]}\n",
    );
    for name in ["one", "two", "shares"] {
        wait_for_addresses(cluster, name);
    }
    for name in ["waits", "lost", "odd"] {
        wait_for_condition(cluster, ("Service", name), "sheave.dev/Allocated", "False");
    }
    wait_for(cluster, ("AddressPool", "rest"), "counts what is used", |pool| {
        pool["status"]["used"] == 2 && pool["status"]["free"] == 0
    });
    wait_until_settled(cluster);
}

/// Waits until nothing has been written for a while, since Events follow later.
pub(crate) fn wait_until_settled(cluster: &Cluster) {
    let everything = || [versions(cluster), stamps(&events(cluster))].concat();
    let mut before = everything();
    eventually_within(patience(30.0), "everything has settled", || {
        let_pass(REST);
        let now = everything();
        if std::mem::replace(&mut before, now.clone()) == now { Ok(()) } else { Err("still changing") }
    });
}

/// Ends all watches. If history can be dropped, they cannot continue, so everything is listed again.
fn relist(scene: &Scene<'_>, controller: &Sheave<'_>) {
    all_is_watched(scene);
    let before = watches_begun(scene, controller);
    if let Some(server) = scene.cluster.test_server() {
        server.skip_to(server.revision() + 1);
        server.compact();
    }
    scene.road.cut();
    eventually_within(patience(30.0), "every watch was begun again", || {
        let now = watches_begun(scene, controller);
        if now.iter().all(|(kind, count)| *count > before[kind]) { Ok(()) } else { Err(format!("{now:?}")) }
    });
    controller_is_synced(controller);
}

/// Waits until watches run and have received something. Watches without events are restarted ever more slowly.
fn all_is_watched(scene: &Scene<'_>) {
    let Some(server) = scene.cluster.test_server() else { return let_pass(REST) };
    eventually_within(patience(30.0), "every kind is watched", || {
        let watches = server.faults().open_watches();
        if watches == KINDS.len() { Ok(()) } else { Err(format!("{watches} watches")) }
    });
    let_pass(4 * BOOKMARKS);
}

fn controller_is_synced(controller: &Sheave<'_>) {
    eventually_within(patience(30.0), "every kind is known", || {
        let status = controller.page("/api/status");
        let source = &status["source"];
        let kinds = source["kinds"].as_array().map(Vec::as_slice).unwrap_or_default();
        let fine = !kinds.is_empty() && kinds.iter().all(|kind| kind["error"].is_null());
        if source["synced"] == true && fine { Ok(()) } else { Err(status.to_string()) }
    });
}

/// How often the watch of each kind was started. The controller only counts watches that continue where they ended, and not
/// those after a list; the test server counts all.
fn watches_begun(scene: &Scene<'_>, controller: &Sheave<'_>) -> BTreeMap<String, u64> {
    if let Some(server) = scene.cluster.test_server() {
        let requests = server.requests();
        let watches = requests.iter().filter(|it| it.verb == "watch" && it.user == CONTROLLER);
        let mut counts: BTreeMap<String, u64> = KINDS.iter().map(|kind| ((*kind).to_owned(), 0)).collect();
        watches.for_each(|watch| *counts.entry(watch.resource.clone()).or_default() += 1);
        return counts;
    }
    let status = controller.page("/api/status");
    let kinds = status["source"]["kinds"].as_array().expect("a leader watches").iter();
    let count = |kind: &Value| Some((kind["kind"].as_str()?.to_owned(), kind["watches"].as_u64()?));
    kinds.filter_map(count).collect()
}

/// A period without writes.
pub(crate) struct Quiet<'c> {
    cluster: &'c Cluster,
    versions: Vec<String>,
    events: Vec<String>,
    told: BTreeSet<String>,
}

impl<'c> Quiet<'c> {
    pub(crate) fn begin(cluster: &'c Cluster) -> Self {
        if let Some(server) = cluster.test_server() {
            server.forget_requests();
        }
        let events = events(cluster);
        Self { cluster, versions: versions(cluster), told: told(&events), events: stamps(&events) }
    }

    /// Checks that nothing was written.
    pub(crate) fn expect(&self, although: &str) {
        let events = stamps(&events(self.cluster));
        assert_eq!(events, self.events, "an Event was written although {although}");
        self.expect_no_writes(although, &["leases"]);
    }

    /// Checks that nothing was written except repeated Events, since a new leader does not know which were sent.
    fn expect_no_news(&self, although: &str) {
        let told = told(&events(self.cluster));
        assert_eq!(told, self.told, "an Event brought news although {although}");
        self.expect_no_writes(although, &["leases", "events"]);
    }

    fn expect_no_writes(&self, although: &str, beside: &[&str]) {
        assert_eq!(versions(self.cluster), self.versions, "something was written although {although}");
        let Some(server) = self.cluster.test_server() else { return };
        // Reviews are not stored.
        let stores = |it: &Request| !["tokenreviews", "subjectaccessreviews"].contains(&it.resource.as_str());
        let by_us =
            |it: &Request| [Account::Controller, Account::Gateway].iter().any(|us| us.user() == it.user);
        let counts = |it: &Request| by_us(it) && stores(it) && !beside.contains(&it.resource.as_str());
        let writes: Vec<_> = server.writes().into_iter().filter(counts).collect();
        assert!(writes.is_empty(), "although {although}: {writes:?}");
    }

    /// Checks that every kind was listed as often as expected, as far as that can be seen.
    fn expect_lists(&self) {
        let Some(server) = self.cluster.test_server() else { return };
        let requests = server.requests();
        for resource in KINDS {
            let lists = requests.iter().filter(|request| {
                request.resource == resource
                    && request.user == CONTROLLER
                    && request.line.contains("sendInitialEvents")
            });
            let lists = lists.count();
            assert!(lists >= 10, "{lists} lists of {resource}");
        }
    }
}

/// Revisions of everything that Sheave could write, except its Lease and Events.
fn versions(cluster: &Cluster) -> Vec<String> {
    let kinds = ["Service", "AddressPool", "EndpointSlice"];
    stamps(&kinds.iter().flat_map(|kind| cluster.list(kind)).collect::<Vec<_>>())
}

fn stamps(objects: &[Value]) -> Vec<String> {
    let metadata = objects.iter().map(|object| &object["metadata"]);
    metadata.map(|it| format!("{} {} {}", it["namespace"], it["name"], it["resourceVersion"])).collect()
}

/// Events about the case's objects; those about cluster-scoped objects are in `default`.
fn events(cluster: &Cluster) -> Vec<Value> {
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let list = cluster.send("GET", path, "", &Value::Null).expect("a list");
    let of_pools = list["items"].as_array().cloned().unwrap_or_default();
    let of_pool = |event: &Value| event["regarding"]["name"] == "rest";
    cluster.list("Event").into_iter().chain(of_pools.into_iter().filter(of_pool)).collect()
}

/// Object, reason and note of Events.
fn told(events: &[Value]) -> BTreeSet<String> {
    events.iter().map(|it| format!("{} {} {}", it["regarding"]["name"], it["reason"], it["note"])).collect()
}
