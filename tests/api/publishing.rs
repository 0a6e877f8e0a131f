//! Tests of the controller's writes to Services over HTTP: the writes themselves, and their result if answers are lost,
//! processes die and others write too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use sheave_control::api::address_pool::{AddressPool, AddressPoolStatus};
use sheave_control::api::names::{ALLOCATED, FINALIZER, PROGRAMMED};
use sheave_control::api::store::ServiceKey;
use sheave_control::controller::desired_status::{Desired, DesiredStatus};
use sheave_control::controller::ownership::Ownership;
use sheave_control::controller::status_writer::{SentStatuses, StatusWriter, WriteNotice};
use sheave_control::projection::{Ingress, PortStatus};
use sheave_control::sources::connection::Connection;
use tokio::runtime::{Builder, Handle};

use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::http::{Outgoing, exchange};
use crate::support::patience::{eventually, io_deadline};

const NAMESPACE: &str = "default";
const ADDRESS: &str = "203.0.113.7";

/// Server and publisher, with a control loop that processes the server's objects on request.
struct Cluster {
    server: ApiServer,
    handle: Handle,
    publisher: StatusWriter,
    seen: BTreeSet<String>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Cluster {
    fn start() -> Self {
        let server = ApiServer::start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || runtime.block_on(stopped));
        let publisher = publisher(&server, &handle);
        Self { server, handle, publisher, seen: BTreeSet::new(), _stop: stop }
    }

    /// Restarts the process.
    fn restart(&mut self) {
        self.publisher = publisher(&self.server, &self.handle);
        self.seen.clear();
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let outgoing = Outgoing::new(method, path, &self.server.token("user"), body);
        let answer = exchange(self.server.address(), &outgoing).unwrap();
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.status);
        answer.json()
    }

    fn create(&self, name: &str) -> Value {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "selector": {"app": name},
                     "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]},
        });
        self.request("POST", &path(""), &service)
    }

    fn patch(&self, name: &str, body: &Value) {
        self.request("PATCH", &path(name), body);
    }

    /// Patches as another field manager.
    fn patch_status(&self, name: &str, manager: &str, status: &Value) {
        let path = format!("{}/status?fieldManager={manager}", path(name));
        self.request("PATCH", &path, &json!({"status": status}));
    }

    fn get(&self, name: &str) -> Option<Value> {
        self.server.object("services", Some(NAMESPACE), name)
    }

    /// Processes all objects like the control loop: ours are published, all others released.
    fn sync(&mut self) {
        let mut present = BTreeSet::new();
        for object in self.server.objects("services") {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let ours =
                object["spec"]["type"] == "LoadBalancer" && object["metadata"]["deletionTimestamp"].is_null();
            let desired = if ours { Desired::Published(statement()) } else { Desired::Released };
            let service: Arc<Service> = Arc::new(serde_json::from_value(object).unwrap());
            self.publisher.set_desired(&ServiceKey::new(NAMESPACE, &name), &service, desired);
            present.insert(name);
        }
        for gone in self.seen.difference(&present) {
            self.publisher.forget(&ServiceKey::new(NAMESPACE, gone));
        }
        self.seen = present;
    }

    /// Syncs until a condition holds.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        eventually(what, || {
            self.sync();
            if is_so(self) { Ok(()) } else { Err(format!("{:?}", self.server.objects("services"))) }
        });
    }

    fn is_published(&self, name: &str) -> bool {
        let Some(service) = self.get(name) else { return false };
        let ingress = json!([{"ip": ADDRESS, "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]}]);
        has_finalizer(&service)
            && service["status"]["loadBalancer"]["ingress"] == ingress
            && [ALLOCATED, PROGRAMMED].iter().all(|kind| condition(&service, kind)["status"] == "True")
    }

    /// Waits until everything desired so far is decided and, if necessary, written: a Service that is desired afterwards
    /// must be published.
    fn barrier(&mut self, name: &str) {
        self.create(name);
        self.until("the last Service is published", |cluster| cluster.is_published(name));
    }

    /// Writes of the controller to other objects than `name`.
    fn writes_but(&self, name: &str) -> Vec<String> {
        let writes = self.server.writes().into_iter();
        let ours = writes.filter(|write| write.user == "controller" && write.name.as_deref() != Some(name));
        ours.map(|write| write.line).collect()
    }

    fn next_notice(&mut self) -> WriteNotice {
        let (handle, publisher) = (self.handle.clone(), &mut self.publisher);
        handle
            .block_on(async { tokio::time::timeout(io_deadline(), publisher.next_notice()).await })
            .unwrap()
            .unwrap()
    }
}

fn publisher(server: &ApiServer, handle: &Handle) -> StatusWriter {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig("controller")).unwrap();
    let connection = handle.block_on(Connection::open(Some(&file))).unwrap();
    start(&connection, handle)
}

fn start(connection: &Connection, handle: &Handle) -> StatusWriter {
    let _inside = handle.enter();
    StatusWriter::start(connection, Ownership::default(), SentStatuses::default(), || Some(Duration::MAX))
}

fn statement() -> DesiredStatus {
    let ports = vec![PortStatus { port: 80, protocol: "TCP", error: None }];
    let ingress = vec![Ingress { ip: ADDRESS.parse().unwrap(), hostname: None, ports }];
    DesiredStatus { ingress, gateways: 1, ..DesiredStatus::default() }
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/services/{name}").trim_end_matches('/').to_owned()
}

fn has_finalizer(service: &Value) -> bool {
    service["metadata"]["finalizers"].as_array().is_some_and(|held| held.contains(&json!(FINALIZER)))
}

fn condition(service: &Value, kind: &str) -> Value {
    let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|said| said["type"] == *kind).unwrap_or_default()
}

fn foreign_condition() -> Value {
    json!({"type": "example.com/Ready", "status": "True", "reason": "Ready", "message": "",
           "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[test]
fn two_writes_publish_and_then_there_is_silence() {
    let mut cluster = Cluster::start();
    cluster.create("web");
    cluster.until("it is published", |cluster| cluster.is_published("web"));
    let sent = || -> Vec<(String, Option<String>)> {
        let writes = cluster.server.writes().into_iter().filter(|write| write.user == "controller");
        writes.map(|write| (write.verb, write.subresource)).collect()
    };
    // The server shows a write before it records the request.
    let sent = eventually("both writes are on record", || match sent() {
        sent if sent.len() > 1 => Ok(sent),
        sent => Err(format!("{sent:?}")),
    });
    let sent: Vec<_> = sent.iter().map(|(verb, what)| (verb.as_str(), what.as_deref())).collect();
    assert_eq!(sent, [("patch", None), ("patch", Some("status"))]);
    cluster.server.forget_requests();
    for _ in 0..10 {
        cluster.sync();
    }
    cluster.restart();
    cluster.barrier("last");
    assert_eq!(cluster.writes_but("last"), Vec::<String>::new());
}

#[test]
fn deletion_leaves_nothing_behind() {
    let mut cluster = Cluster::start();
    cluster.create("web");
    cluster.until("it is published", |cluster| cluster.is_published("web"));
    cluster.request("DELETE", &path("web"), &json!({}));
    cluster.until("it is gone", |cluster| cluster.get("web").is_none());
}

#[test]
fn a_change_of_type_takes_what_is_ours_and_nothing_else() {
    let mut cluster = Cluster::start();
    cluster.create("web");
    cluster.patch("web", &json!({"metadata": {"finalizers": ["example.com/other"]}}));
    cluster.patch_status("web", "other", &json!({"conditions": [foreign_condition()]}));
    cluster.until("it is published", |cluster| cluster.is_published("web"));
    assert_eq!(condition(&cluster.get("web").unwrap(), "example.com/Ready"), foreign_condition());
    cluster.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    cluster.until("it is released", |cluster| !has_finalizer(&cluster.get("web").unwrap()));
    let left = cluster.get("web").unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/other"]));
    assert_eq!(left["status"], json!({"loadBalancer": {}, "conditions": [foreign_condition()]}));
}

#[test]
fn a_rival_is_named_and_overruled() {
    let mut cluster = Cluster::start();
    cluster.create("web");
    cluster.until("it is published", |cluster| cluster.is_published("web"));
    let foreign = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}});
    cluster.patch_status("web", "cloud", &foreign);
    cluster.until("ours is back", |cluster| cluster.is_published("web"));
    let WriteNotice::Contested { fields, rivals, .. } = cluster.next_notice() else { panic!("no contest") };
    assert_eq!((fields, rivals), (vec!["status.loadBalancer.ingress".into()], vec!["cloud".into()]));
    // The second time, it waits before it retries, and other Services do not wait for it.
    cluster.patch_status("web", "cloud", &foreign);
    cluster.server.forget_requests();
    cluster.barrier("last");
    assert!(cluster.writes_but("last").len() <= 2, "{:?}", cluster.writes_but("last"));
    cluster.until("ours is back again", |cluster| cluster.is_published("web"));
}

#[test]
fn conditions_that_somebody_wrote_over_go_too() {
    let mut cluster = Cluster::start();
    cluster.create("web");
    cluster.until("it is published", |cluster| cluster.is_published("web"));
    let mut ours = condition(&cluster.get("web").unwrap(), PROGRAMMED);
    ours["status"] = json!("Unknown");
    cluster.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    cluster.patch_status("web", "editor", &json!({"conditions": [ours, foreign_condition()]}));
    cluster.until("it is released", |cluster| !has_finalizer(&cluster.get("web").unwrap()));
    assert_eq!(cluster.get("web").unwrap()["status"]["conditions"], json!([foreign_condition()]));
}

/// A Service appears and is deleted. The fault hits one write of each, and the process may die before it gets the answer.
fn live_through(resource: &str, fault: &Fault, dies: bool) {
    let mut cluster = Cluster::start();
    let strike = |cluster: &mut Cluster| {
        cluster.server.faults().plan(Matching::new("patch", resource).by("controller"), 1, fault.clone());
        cluster.until("the fault happens", |cluster| cluster.server.faults().outstanding() == 0);
        if dies {
            cluster.restart();
        }
    };
    cluster.create("web");
    strike(&mut cluster);
    cluster.until("it is published", |cluster| cluster.is_published("web"));
    cluster.request("DELETE", &path("web"), &json!({}));
    strike(&mut cluster);
    cluster.until("it is gone", |cluster| cluster.get("web").is_none());
}

#[test]
fn lost_answers_and_restarts_between_any_two_writes_end_the_same() {
    let faults = [Fault::LoseAnswer, Fault::unavailable(), Fault::conflict(), Fault::internal_error()];
    // Each waits for a back-off or two, so all run in parallel. A panic is passed on when the scope ends.
    std::thread::scope(|scope| {
        for resource in ["services", "services/status"] {
            for fault in &faults {
                for dies in [false, true] {
                    scope.spawn(move || live_through(resource, fault, dies));
                }
            }
        }
    });
}

#[test]
fn what_was_meant_for_one_service_never_reaches_the_next_of_that_name() {
    let mut cluster = Cluster::start();
    let old: Arc<Service> = Arc::new(serde_json::from_value(cluster.create("web")).unwrap());
    cluster.request("DELETE", &path("web"), &json!({}));
    cluster.create("web");
    cluster.publisher.set_desired(&ServiceKey::new(NAMESPACE, "web"), &old, Desired::Published(statement()));
    eventually("it is tried", || {
        let writes = cluster.server.writes().into_iter();
        let status = writes.filter(|write| write.user == "controller").find_map(|write| write.status);
        status.ok_or("no write")
    });
    assert!(!has_finalizer(&cluster.get("web").unwrap()));
    cluster.until("the new one is published", |cluster| cluster.is_published("web"));
}

#[test]
fn a_missing_right_is_named() {
    let mut cluster = Cluster::start();
    cluster.server.authorize("controller", &[json!({"kind": "ClusterRole", "rules": []})]);
    cluster.create("web");
    cluster.sync();
    let WriteNotice::Forbidden { verb, resource, .. } = cluster.next_notice() else { panic!("not told") };
    assert_eq!((verb, resource), ("patch", "services"));
}

#[test]
fn the_status_of_a_pool_is_written_once() {
    let mut cluster = Cluster::start();
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}});
    cluster.server.load([json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "addresspools.sheave.dev"},
        "spec": {"group": "sheave.dev", "scope": "Cluster",
                 "names": {"plural": "addresspools", "singular": "addresspool", "kind": "AddressPool", "listKind": "AddressPoolList"},
                 "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema}]},
    })]);
    let pool = json!({"apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "lan"},
                      "spec": {"addresses": ["203.0.113.0/28"]}});
    let pool = cluster.request("POST", "/apis/sheave.dev/v1alpha1/addresspools", &pool);
    let desire = |cluster: &mut Cluster, pool: Value| {
        let pool: AddressPool = serde_json::from_value(pool).unwrap();
        let status = AddressPoolStatus { used: 3, free: 13, ..AddressPoolStatus::default() };
        cluster.publisher.set_pool(&Arc::new(pool), status);
    };
    desire(&mut cluster, pool);
    let written = eventually("the status is written", || {
        let pool = cluster.server.object("addresspools", None, "lan").ok_or("no pool")?;
        if pool["status"] == json!({"used": 3, "free": 13}) { Ok(pool) } else { Err("another status") }
    });
    cluster.server.forget_requests();
    desire(&mut cluster, written);
    cluster.barrier("last");
    assert_eq!(cluster.writes_but("last"), Vec::<String>::new());
}

#[test]
fn new_credentials_reach_a_publisher_that_runs() {
    let mut cluster = Cluster::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let good = cluster.server.kubeconfig("controller");
    let token = cluster.server.token("controller");
    std::fs::write(&file, good.replace(&token, "expired")).unwrap();
    let connection = cluster.handle.block_on(Connection::open(Some(&file))).unwrap();
    cluster.publisher = start(&connection, &cluster.handle);
    std::fs::write(&file, good).unwrap();
    cluster.create("web");
    cluster.until("the Service is published", |cluster| cluster.is_published("web"));
}
