//! Tests of the controller against a whole Gateway API: statuses appear, follow their objects, and cost nothing at rest.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use sheave_control::api::gateway_report::{GatewayReport, Trouble, TroubledFrontend};
use sheave_control::api::store::ServiceKey;
use sheave_control::controller::election::LeaseTiming;
use sheave_control::controller::ownership::Ownership;
use sheave_control::controller::{Controller, ControllerOptions};
use sheave_control::projection::{Options, Role};
use sheave_control::sources::api_server::GatewayApiMode;
use sheave_control::sources::connection::Connection;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::support::apiserver::ApiServer;
use crate::support::gateway_api;
use crate::support::patience::{eventually, let_pass};
use crate::uninstall::uninstall;

const GROUP: &str = "gateway.networking.k8s.io";

/// An API server with the objects of a shop, and a runtime for controllers.
struct Shop {
    server: ApiServer,
    /// What the gateway in the controller's process reports.
    report: watch::Sender<GatewayReport>,
    runtime: Handle,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Shop {
    fn new() -> Self {
        let server = ApiServer::start();
        server.load(gateway_api::definitions());
        server.load([pools(), json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})]);
        server.load(objects());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || runtime.block_on(stopped));
        let gateway_api = Some(true);
        let report =
            GatewayReport { node: "n1".to_owned(), generation: 1, gateway_api, ..GatewayReport::default() };
        Self { server, report: watch::Sender::new(report), runtime: handle, _stop: stop }
    }

    /// Starts a controller with a gateway in the same process.
    fn controller(&self) -> Controller {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, self.server.kubeconfig("controller")).unwrap();
        let connection = self.runtime.block_on(Connection::open(Some(&file))).unwrap();
        let gateways = ServiceKey::new("sheave-system", "sheave-gateways");
        let role = Role::Controller { gateways: gateways.clone(), own_gateway: Some("n1".into()) };
        let options = ControllerOptions {
            projection: Options { role, ..Options::default() },
            karmada: None,
            gateways,
            gateway_token: None,
            own_gateway: Some(self.report.subscribe()),
            own_hints: None,
            lease: ServiceKey::new("sheave-system", "sheave-controller"),
            timing: LeaseTiming::default(),
            identity: "test".to_owned(),
            ownership: Ownership::default(),
            gateway_api: GatewayApiMode::Auto,
            mass_deletion_hold: Duration::ZERO,
        };
        let _inside = self.runtime.enter();
        Controller::start(connection, options)
    }

    fn stop(&self, controller: Controller) {
        self.runtime.block_on(controller.stop());
    }

    fn object(&self, plural: &str, name: &str) -> Value {
        let namespace = (plural != "gatewayclasses").then_some("default");
        self.server.object(plural, namespace, name).unwrap()
    }

    /// Waits until the object has this in its status.
    fn await_status(&self, plural: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("the status of {plural} {name}"), || {
            let object = self.object(plural, name);
            if is_so(&object["status"]) { Ok(object) } else { Err(object.to_string()) }
        })
    }

    /// Resources of the Gateway API that a controller has written.
    fn written(&self) -> BTreeSet<String> {
        let writes =
            self.server.writes().into_iter().filter(|it| it.user == "controller" && it.group == GROUP);
        writes.map(|it| it.line).collect()
    }

    /// Asserts that nothing is written for a while.
    fn assert_rest(&self, when: &str) {
        // The server records a request after its answer.
        let_pass(Duration::from_millis(500));
        self.server.forget_requests();
        let_pass(Duration::from_secs(2));
        assert_eq!(self.written(), BTreeSet::new(), "{when}");
    }
}

fn pools() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "addresspools.sheave.dev"},
        "spec": {"group": "sheave.dev", "scope": "Cluster",
            "names": {"plural": "addresspools", "singular": "addresspool", "kind": "AddressPool", "listKind": "AddressPoolList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}}}]},
    })
}

fn objects() -> Vec<Value> {
    let api = format!("{GROUP}/v1");
    let metadata = json!({"name": "web", "namespace": "default", "generation": 1});
    let mut objects = vec![
        json!({"apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "lan"},
               "spec": {"addresses": ["203.0.113.0/28"]}}),
        json!({"apiVersion": api, "kind": "GatewayClass", "metadata": {"name": "sheave", "generation": 1},
               "spec": {"controllerName": "sheave.dev/gateway"}}),
        json!({"apiVersion": api, "kind": "Gateway", "metadata": metadata,
               "spec": {"gatewayClassName": "sheave", "listeners": [
                   {"name": "db", "protocol": "TCP", "port": 5432}, {"name": "page", "protocol": "HTTP", "port": 80}],
                   "allowedListeners": {"namespaces": {"from": "Same"}}}}),
        json!({"apiVersion": api, "kind": "ListenerSet", "metadata": metadata,
               "spec": {"parentRef": {"name": "web"}, "listeners": [{"name": "more", "protocol": "UDP", "port": 53}]}}),
        json!({"apiVersion": api, "kind": "TCPRoute", "metadata": metadata,
               "spec": {"parentRefs": [{"name": "web", "sectionName": "db"}, {"name": "elsewhere"}],
                        "rules": [{"backendRefs": [{"name": "db", "port": 5432}]}]}}),
        json!({"apiVersion": api, "kind": "UDPRoute", "metadata": metadata,
               "spec": {"parentRefs": [{"name": "web", "kind": "ListenerSet"}],
                        "rules": [{"backendRefs": [{"name": "dns", "port": 53}]}]}}),
    ];
    objects.extend(backend("db", 5432, "TCP"));
    objects.extend(backend("dns", 53, "UDP"));
    objects
}

/// A Service with one endpoint.
fn backend(name: &str, port: u16, protocol: &str) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
               "spec": {"type": "ClusterIP", "ports": [{"port": port, "protocol": protocol}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
               "metadata": {"name": format!("{name}-1"), "namespace": "default",
                            "labels": {"kubernetes.io/service-name": name}},
               "ports": [{"name": "", "port": port, "protocol": protocol}],
               "endpoints": [{"addresses": ["10.1.0.7"], "conditions": {"ready": true}}]}),
    ]
}

/// Status and reason of a condition in a list.
fn condition(list: &Value, kind: &str) -> String {
    let conditions = list["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|it| it["type"] == *kind).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    text("status") + " " + &text("reason")
}

/// Waits for the first status of each object, and checks it.
fn expect_first_statuses(shop: &Shop) {
    let gateway =
        shop.await_status("gateways", "web", |it| condition(it, "sheave.dev/Ready") == "True EndpointsReady");
    let status = &gateway["status"];
    assert_eq!(condition(status, "Accepted"), "True ListenersNotValid");
    assert_eq!(condition(status, "Programmed"), "True Programmed");
    assert_eq!(status["addresses"], json!([{"type": "IPAddress", "value": "203.0.113.0"}]));
    assert_eq!(status["attachedListenerSets"], 1);
    let (db, page) = (&status["listeners"][0], &status["listeners"][1]);
    assert_eq!(
        (&db["attachedRoutes"], condition(db, "Programmed")),
        (&json!(1), "True Programmed".to_owned())
    );
    assert_eq!(
        (&page["supportedKinds"], condition(page, "Accepted")),
        (&json!([]), "False UnsupportedProtocol".to_owned())
    );

    let set = shop.await_status("listenersets", "web", |it| condition(it, "Programmed") == "True Programmed");
    assert_eq!(
        set["status"]["listeners"][0]["supportedKinds"],
        json!([{"group": GROUP, "kind": "UDPRoute"}])
    );

    let route = shop.await_status("tcproutes", "web", |it| it["parents"].is_array());
    let parents = route["status"]["parents"].as_array().unwrap();
    assert_eq!(parents.len(), 1, "nobody implements the other parent: {route}");
    assert_eq!(parents[0]["parentRef"], json!({"name": "web", "sectionName": "db"}));
    assert_eq!(condition(&parents[0], "sheave.dev/Serving"), "True Serving");

    let class =
        shop.await_status("gatewayclasses", "sheave", |it| condition(it, "Accepted") == "True Accepted");
    assert_eq!(class["status"]["supportedFeatures"][0]["name"], "Gateway");
    eventually("the finalizer of the class", || {
        let class = shop.object("gatewayclasses", "sheave");
        let held = json!(["gateway-exists-finalizer.gateway.networking.k8s.io"]);
        if class["metadata"]["finalizers"] == held { Ok(()) } else { Err(class.to_string()) }
    });
}

#[test]
fn statuses_appear_follow_their_objects_and_cost_nothing_at_rest() {
    let shop = Shop::new();
    let controller = shop.controller();
    expect_first_statuses(&shop);
    shop.assert_rest("everything is written");

    assert!(shop.server.unload("services", Some("default"), "db"));
    let resolved = |it: &Value| condition(&it["parents"][0], "ResolvedRefs");
    shop.await_status("tcproutes", "web", |it| resolved(it) == "False BackendNotFound");
    shop.await_status("gateways", "web", |it| condition(it, "sheave.dev/Ready") == "False NoValidBackend");
    shop.assert_rest("the Service is gone");

    shop.stop(controller);
    shop.server.forget_requests();
    let controller = shop.controller();
    let mut state = controller.status();
    eventually("the next leader has read everything", || {
        if state.borrow_and_update().synced { Ok(()) } else { Err("not yet") }
    });
    let_pass(Duration::from_secs(2));
    assert_eq!(shop.written(), BTreeSet::new(), "a restart writes nothing");

    let foreign = json!({"spec": {"gatewayClassName": "foreign"}});
    patch(&shop, "gateways", &foreign);
    shop.assert_rest("a class that is missing releases nothing");
    let theirs = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "GatewayClass",
        "metadata": {"name": "foreign", "generation": 1}, "spec": {"controllerName": "theirs.example/gateway"}});
    shop.server.load([theirs]);
    shop.await_status("gateways", "web", |it| it["listeners"].is_null() && it["addresses"].is_null());
    shop.await_status("tcproutes", "web", |it| it["parents"] == json!([]) || it["parents"].is_null());
    shop.await_status("listenersets", "web", |it| it["listeners"].is_null());
    eventually("the class is free", || {
        let class = shop.object("gatewayclasses", "sheave");
        let held = class["metadata"]["finalizers"].as_array().is_some_and(|it| !it.is_empty());
        if held { Err(class.to_string()) } else { Ok(()) }
    });
    shop.assert_rest("everything is released");
    shop.stop(controller);
}

#[test]
fn a_gateway_is_programmed_once_all_nodes_read_gateways_and_stays_so() {
    let shop = Shop::new();
    let reads = |reads| shop.report.send_modify(|report| report.gateway_api = Some(reads));
    reads(false);
    let controller = shop.controller();
    let pending = |it: &Value| condition(it, "Programmed") == "False Pending";
    let gateway = shop.await_status("gateways", "web", |it| pending(it) && pending(&it["listeners"][0]));
    assert_eq!(gateway["status"]["addresses"][0]["value"], "203.0.113.0");
    assert_eq!(condition(&gateway["status"], "sheave.dev/Ready"), "False Pending");
    assert!(gateway.to_string().contains("Not every gateway node reads Gateways: gateway n1. "), "{gateway}");
    shop.assert_rest("the node does not read Gateways");
    reads(true);
    shop.await_status("gateways", "web", |it| condition(it, "sheave.dev/Ready") == "True EndpointsReady");
    shop.await_status("listenersets", "web", |it| condition(it, "Programmed") == "True Programmed");
    reads(false);
    shop.assert_rest("what is programmed stays so");
    shop.stop(controller);
}

#[test]
fn a_port_that_no_node_can_open_is_not_available() {
    let shop = Shop::new();
    let controller = shop.controller();
    shop.await_status("gateways", "web", |it| condition(it, "sheave.dev/Ready") == "True EndpointsReady");
    let db = TroubledFrontend { address: [203, 0, 113, 0].into(), port: 5432, protocol: "TCP".to_owned() };
    let trouble = Trouble {
        kind: "Gateway".to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        reason: "BindFailed".to_owned(),
        message: "cannot listen".to_owned(),
        frontend: Some(db),
    };
    let listener = |it: &Value, kind| condition(&it["listeners"][0], kind);
    shop.report.send_modify(|report| report.troubles = vec![trouble]);
    shop.await_status("gateways", "web", |it| listener(it, "Accepted") == "False PortUnavailable");
    shop.await_status("gateways", "web", |it| listener(it, "Programmed") == "False PortUnavailable");
    shop.report.send_modify(|report| report.troubles.clear());
    shop.await_status("gateways", "web", |it| listener(it, "Accepted") == "True Accepted");
    shop.stop(controller);
}

/// A user changes an object.
fn patch(shop: &Shop, plural: &str, body: &Value) {
    let path = format!("/apis/{GROUP}/v1/namespaces/default/{plural}/web");
    let outgoing = crate::support::http::Outgoing::new("PATCH", &path, &shop.server.token("user"), body);
    let answer = crate::support::http::exchange(shop.server.address(), &outgoing).expect("an answer");
    assert_eq!(answer.status, 200);
}

#[test]
fn uninstall_removes_every_mark_and_names_the_gateways_that_stay() {
    let shop = Shop::new();
    let theirs = json!({"parentRef": {"name": "elsewhere"}, "controllerName": "theirs.example/gateway", "conditions": []});
    let mut route = shop.object("tcproutes", "web");
    route["status"] = json!({"parents": [theirs]});
    shop.server.load([route]);
    let controller = shop.controller();
    shop.await_status("gateways", "web", |it| condition(it, "sheave.dev/Ready") == "True EndpointsReady");
    shop.await_status("listenersets", "web", |it| condition(it, "Programmed") == "True Programmed");
    for plural in ["tcproutes", "udproutes"] {
        shop.await_status(plural, "web", |it| it.to_string().contains("sheave.dev/Serving"));
    }
    eventually("the finalizer of the class", || {
        let class = shop.object("gatewayclasses", "sheave");
        if class["metadata"]["finalizers"][0].is_string() { Ok(()) } else { Err(class.to_string()) }
    });
    shop.stop(controller);

    let (code, out, err) = uninstall(&shop.server, &["--dry-run"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("5 objects of the Gateway API would be cleaned: nothing was changed\n"), "{out}");
    let (code, out, err) = uninstall(&shop.server, &[]);
    assert_eq!(code, Some(0), "{out}{err}");
    let finalizer = "gateway-exists-finalizer.gateway.networking.k8s.io";
    for line in [
        "TCPRoute default/web: 1 entry of status.parents: removed",
        "ListenerSet default/web: status: removed",
        "Gateway default/web: status: removed",
        &format!("GatewayClass sheave: status, finalizer {finalizer}: removed"),
        "5 objects of the Gateway API cleaned",
        "Gateway default/web still has a GatewayClass of Sheave",
    ] {
        assert!(out.lines().any(|it| it == line), "{line} in {out}");
    }
    assert_eq!(shop.object("tcproutes", "web")["status"]["parents"], json!([theirs]));
    for (plural, name) in [("gateways", "web"), ("listenersets", "web"), ("gatewayclasses", "sheave")] {
        let object = shop.object(plural, name);
        assert!(!object["status"].to_string().contains("Accepted"), "{object}");
        assert!(!object["metadata"]["finalizers"].to_string().contains(finalizer), "{object}");
    }
    shop.server.forget_requests();
    assert_eq!(uninstall(&shop.server, &[]).0, Some(0));
    assert_eq!(shop.server.writes(), []);
}
