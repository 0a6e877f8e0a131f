//! Tests of the controller's writes over HTTP: what is sent, and when nothing is.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use sheave_control::api::address_pool::{AddressPool, AddressPoolStatus};
use sheave_control::api::names::{ALLOCATED, FINALIZER, PROGRAMMED};
use sheave_control::api::store::ServiceKey;
use sheave_control::controller::desired_status::{Desired, DesiredStatus};
use sheave_control::controller::ownership::Ownership;
use sheave_control::controller::status_writer::{SentStatuses, StatusWriter};
use sheave_control::projection::{Ingress, PortStatus};
use sheave_control::sources::connection::Connection;
use tokio::runtime::{Builder, Handle};

use crate::support::apiserver::ApiServer;
use crate::support::http::{Outgoing, exchange};
use crate::support::patience::eventually;

const NAMESPACE: &str = "default";
const ADDRESS: &str = "203.0.113.7";

/// Server and publisher, with a control loop that publishes the server's Services on request.
struct Cluster {
    server: ApiServer,
    handle: Handle,
    publisher: StatusWriter,
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
        Self { server, handle, publisher, _stop: stop }
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

    fn get(&self, name: &str) -> Option<Value> {
        self.server.object("services", Some(NAMESPACE), name)
    }

    /// Has all Services published, as the control loop does.
    fn sync(&mut self) {
        for object in self.server.objects("services") {
            let service: Arc<Service> = Arc::new(serde_json::from_value(object).unwrap());
            let key = ServiceKey::new(NAMESPACE, service.metadata.name.as_deref().unwrap());
            self.publisher.set_desired(&key, &service, Desired::Published(statement()));
        }
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
    let ingress = vec![Ingress { ip: ADDRESS.parse().unwrap(), hostname: None, ports, whole: false }];
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
    cluster.publisher = publisher(&cluster.server, &cluster.handle);
    cluster.barrier("last");
    assert_eq!(cluster.writes_but("last"), Vec::<String>::new());
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
