//! A term against a server that lists objects, takes writes, and fails to list kinds as scripted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::controller::election::LeaseTiming;
use crate::controller::ownership::Ownership;
use crate::projection::{Options, Role};
use crate::sources::api_server::GatewayApiMode;
use crate::sources::api_server::tests::stub::{Asked, Reply, Stub};

/// Plurals of the Gateway API.
const ALL: [&str; 7] =
    ["gatewayclasses", "gateways", "listenersets", "tcproutes", "udproutes", "tlsroutes", "referencegrants"];
const CLASS: &str = "sheave.dev/gateway";

/// A server with one object of a kind for each name. Writes of one manager replace what it is for.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// Answers to lists in place of the objects.
    failing: BTreeMap<&'static str, u16>,
    version: u64,
    /// Plural and body of each write.
    writes: Vec<(String, Value)>,
    /// Whether writes of statuses change nothing.
    keeps_status: bool,
    /// A Service whose statuses get no answer.
    hanging: Option<&'static str>,
    /// Writes that the process has sent.
    sent: SentStatuses,
    /// The Karmada control plane, if there is one.
    karmada: Option<World>,
}

impl World {
    /// A pool of two addresses, a class, and a Node.
    fn new() -> Self {
        let world = Self(Arc::default());
        world.put("addresspools", "lan", json!({"spec": {"addresses": ["203.0.113.10", "203.0.113.11"]}}));
        world.put("gatewayclasses", "sheave", json!({"spec": {"controllerName": CLASS}}));
        world
    }

    fn put(&self, plural: &str, name: &str, mut object: Value) {
        let mut contents = self.0.lock().unwrap();
        contents.version += 1;
        let mut metadata = json!({"name": name, "uid": format!("{plural}-{name}"), "generation": 1,
            "resourceVersion": contents.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z"});
        if !["addresspools", "gatewayclasses", "nodes"].contains(&plural) {
            metadata["namespace"] = json!("shop");
        }
        if object["metadata"].is_object() {
            json_patch::merge(&mut metadata, &object["metadata"]);
        }
        object["metadata"] = metadata;
        contents.objects.entry(plural.to_owned()).or_default().insert(name.to_owned(), object);
    }

    /// A Gateway of the class with this status, which a term before has written.
    fn put_gateway(&self, name: &str, class: &str, addresses: &[&str]) {
        let addresses: Vec<Value> =
            addresses.iter().map(|ip| json!({"type": "IPAddress", "value": ip})).collect();
        let condition = |kind: &str, reason: &str, message: String| {
            json!({"type": kind, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
        };
        let ready = condition("sheave.dev/Ready", "EndpointsReady", String::new());
        self.put("gateways", name, json!({
            "spec": {"gatewayClassName": class, "listeners": [{"name": "db", "protocol": "TCP", "port": 5432}]},
            "status": {"addresses": addresses, "conditions": [ready]},
        }));
    }

    fn put_service(&self, name: &str, addresses: &[&str]) {
        let ingress: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "Proxy"})).collect();
        self.put(
            "services",
            name,
            json!({
                "metadata": {"finalizers": [crate::api::names::FINALIZER]},
                "spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "ipFamilies": ["IPv4"],
                    "ports": [{"port": 80, "protocol": "TCP"}]},
                "status": {"loadBalancer": {"ingress": ingress}},
            }),
        );
    }

    fn object(&self, plural: &str, name: &str) -> Value {
        self.0.lock().unwrap().objects[plural][name].clone()
    }

    /// Addresses in the status of a Service or Gateway.
    fn addresses(&self, plural: &str, name: &str) -> Vec<String> {
        let status = self.object(plural, name)["status"].clone();
        let entries = [&status["loadBalancer"]["ingress"], &status["addresses"]];
        let entries = entries.into_iter().filter_map(Value::as_array).flatten();
        let ip = |entry: &Value| entry["ip"].as_str().or(entry["value"].as_str()).map(str::to_owned);
        entries.filter_map(ip).collect()
    }

    /// Has lists of these kinds fail, or none.
    fn fail(&self, plurals: &[&'static str], status: u16) {
        self.0.lock().unwrap().failing = plurals.iter().map(|plural| (*plural, status)).collect();
    }

    /// Writes to objects of this kind.
    fn writes(&self, plural: &str) -> Vec<Value> {
        let contents = self.0.lock().unwrap();
        contents.writes.iter().filter(|(it, _)| it == plural).map(|(_, body)| body.clone()).collect()
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let segments: Vec<&str> = asked.path.split('/').skip(1).collect();
        match segments.as_slice() {
            [.., name, "status"]
                if self.0.lock().unwrap().hanging == Some(*name) && asked.method == "PATCH" =>
            {
                let body = serde_json::from_str(&asked.body).unwrap();
                self.0.lock().unwrap().writes.push(("hanging".to_owned(), body));
                Reply { hangs: true, ..Reply::of(200, "") }
            }
            _ if asked.method == "PATCH" => self.write(&segments, &asked.body),
            [.., "leases"] if asked.method == "POST" => self.keep_lease(asked),
            [.., "leases", name] => match asked.method.as_str() {
                "PUT" => self.keep_lease(asked),
                _ => match self.0.lock().unwrap().objects.get("leases").and_then(|all| all.get(*name)) {
                    Some(lease) => Reply::of(200, lease),
                    None => {
                        let details = json!({"name": name, "kind": "leases"});
                        let status =
                            json!({"kind": "Status", "reason": "NotFound", "code": 404, "details": details});
                        Reply::of(404, &status)
                    }
                },
            },
            _ if asked.method != "GET" => Reply::of(404, "not here"),
            ["apis", "gateway.networking.k8s.io"] => {
                let version = json!({"groupVersion": "gateway.networking.k8s.io/v1", "version": "v1"});
                Reply::of(200, &json!({"kind": "APIGroup", "versions": [version]}))
            }
            ["apis", "gateway.networking.k8s.io", "v1"] => {
                let resources: Vec<Value> = ALL.iter().map(|name| json!({"name": name})).collect();
                Reply::of(200, &json!({"kind": "APIResourceList", "resources": resources}))
            }
            ["apis", "multicluster.x-k8s.io", ..] => Reply::of(404, "404 page not found"),
            [.., plural] => self.list(plural, asked),
            [] => panic!("{asked:?}"),
        }
    }

    fn list(&self, plural: &str, asked: &Asked) -> Reply {
        let contents = self.0.lock().unwrap();
        if let Some(status) = contents.failing.get(plural) {
            return Reply::of(*status, "not now");
        }
        if asked.streams() {
            return Reply::of(422, "no streams here");
        }
        if asked.is_watch() {
            return Reply::lines([]);
        }
        let items: Vec<Value> =
            contents.objects.get(plural).into_iter().flat_map(|it| it.values().cloned()).collect();
        let metadata = json!({"resourceVersion": contents.version.to_string()});
        Reply::of(200, &json!({"metadata": metadata, "items": items}))
    }

    fn write(&self, segments: &[&str], body: &str) -> Reply {
        let (segments, is_status) = match segments {
            [object @ .., "status"] => (object, true),
            object => (object, false),
        };
        let [.., plural, name] = segments else { panic!("{segments:?}") };
        let body: Value = serde_json::from_str(body).unwrap();
        let mut contents = self.0.lock().unwrap();
        contents.writes.push(((*plural).to_owned(), body.clone()));
        contents.version += 1;
        let (version, keeps_status) = (contents.version.to_string(), contents.keeps_status);
        let Some(object) = contents.objects.get_mut(*plural).and_then(|it| it.get_mut(*name)) else {
            return Reply::of(404, "no such object");
        };
        if is_status && keeps_status {
        } else if is_status {
            object["status"] = body["status"].clone();
        } else {
            object["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
        }
        object["metadata"]["resourceVersion"] = json!(version);
        Reply::of(200, object)
    }

    /// Keeps a Lease as it is written.
    fn keep_lease(&self, asked: &Asked) -> Reply {
        let lease: Value = serde_json::from_str(&asked.body).unwrap();
        let name = lease["metadata"]["name"].as_str().unwrap().to_owned();
        self.put("leases", &name, lease);
        Reply::of(200, &self.object("leases", &name))
    }

    /// Leads until the condition holds.
    async fn lead_until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let start = |world: Self| Stub::start(move |asked| world.answer(asked));
        let stub = start(self.clone()).await;
        let karmada = self.0.lock().unwrap().karmada.clone();
        let karmada = match karmada {
            Some(karmada) => Some(start(karmada).await),
            None => None,
        };
        let karmada_connection = karmada.as_ref().map(|stub| Connection::to(&stub.url));
        let options = ControllerOptions { karmada: karmada_connection, ..options() };
        let (connection, until) = (Connection::to(&stub.url), Instant::now() + Duration::from_secs(600));
        let (leadership, sent) = (Leadership::until(until.into()), self.0.lock().unwrap().sent.clone());
        let mut term = LeaderTerm::start(&connection, &options, &leadership, "test", sent);
        let publish = watch::Sender::new(ControllerStatus::default());
        let begun = Instant::now();
        let holds = async {
            while !holds(self) {
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "{what}: {:?}",
                    self.0.lock().unwrap().objects
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            broken = term.run(&publish) => panic!("{broken:?}"),
            () = holds => {}
        }
    }
}

fn options() -> ControllerOptions {
    let gateways = ServiceKey::new("sheave-system", "sheave-gateways");
    let role = Role::Controller { gateways: gateways.clone(), own_gateway: None };
    ControllerOptions {
        projection: Options { role, gateway_controller: Some(CLASS.into()), ..Options::default() },
        karmada: None,
        gateways,
        gateway_token: None,
        own_gateway: None,
        own_hints: None,
        lease: ServiceKey::new("sheave-system", "sheave-controller"),
        timing: LeaseTiming::default(),
        identity: "test".to_owned(),
        ownership: Ownership::default(),
        gateway_api: GatewayApiMode::Auto,
        mass_deletion_hold: Duration::ZERO,
    }
}

#[tokio::test]
async fn no_address_is_allocated_before_the_gateways_are_listed() {
    for status in [429, 403, 500] {
        let world = World::new();
        world.put_gateway("edge", "sheave", &["203.0.113.10"]);
        world.put_service("new", &[]);
        world.put_service("old", &["203.0.113.11"]);
        world.fail(&["gateways"], status);
        let mut given = BTreeSet::new();
        let begun = Instant::now();
        world
            .lead_until("everything is published", |world| {
                if begun.elapsed() > Duration::from_millis(3500) {
                    world.fail(&[], 200);
                }
                given.extend(world.addresses("services", "new"));
                assert_eq!(world.addresses("gateways", "edge"), ["203.0.113.10"], "{status}");
                assert_eq!(world.addresses("services", "old"), ["203.0.113.11"], "{status}");
                world.object("services", "new")["status"].to_string().contains("NoAddress")
                    && world.object("gateways", "edge")["status"].to_string().contains("Accepted")
                    && world.object("services", "old")["status"].to_string().contains("sheave.dev/Programmed")
            })
            .await;
        assert_eq!(given, BTreeSet::new(), "{status}: both addresses have an owner");
    }
}

/// An installation that a term before has published: two Gateways and a ListenerSet with a route each, and a class in use.
fn published_gateways() -> World {
    let world = World::new();
    world.put_gateway("edge", "sheave", &["203.0.113.10"]);
    let mut class = world.object("gatewayclasses", "sheave");
    class["metadata"] = json!({"finalizers": [crate::controller::gateway_status::class::FINALIZER]});
    world.put("gatewayclasses", "sheave", class);
    let mut gateway = world.object("gateways", "edge");
    gateway["metadata"] = json!({});
    gateway["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    gateway["status"]["attachedListenerSets"] = json!(1);
    let ports = json!({"type": "sheave.dev/PortsPublished", "status": "True", "reason": "Ports",
        "message": "TCP 5432, 5433 at 203.0.113.10.", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    gateway["status"]["conditions"].as_array_mut().unwrap().push(ports);
    world.put("gateways", "edge", gateway);
    let listener = json!({"name": "db", "protocol": "TCP", "port": 5433});
    let programmed = json!({"type": "Programmed", "status": "True", "reason": "Programmed", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    world.put(
        "listenersets",
        "more",
        json!({
            "spec": {"parentRef": {"name": "edge"}, "listeners": [listener]},
            "status": {"conditions": [programmed]},
        }),
    );
    for (name, reference) in
        [("direct", json!({"name": "edge"})), ("behind", json!({"name": "more", "kind": "ListenerSet"}))]
    {
        let entry = json!({"parentRef": reference, "controllerName": CLASS, "conditions": [programmed]});
        world.put("tcproutes", name, json!({
            "spec": {"parentRefs": [reference], "rules": [{"backendRefs": [{"name": "db", "port": 5432}]}]},
            "status": {"parents": [entry]},
        }));
    }
    world
}

/// A condition that holds once this much time has passed since it was first looked at.
fn after(time: Duration) -> impl FnMut(&World) -> bool {
    let begun = Instant::now();
    move |_| begun.elapsed() >= time
}

#[tokio::test]
async fn nothing_is_released_because_a_kind_may_not_be_read() {
    for refused in ["gatewayclasses", "gateways", "listenersets"] {
        let world = published_gateways();
        world.fail(&[refused], 403);
        // A kind counts as refused after 5 s.
        world.lead_until("some time has passed", after(Duration::from_secs(9))).await;
        assert_eq!(world.addresses("gateways", "edge"), ["203.0.113.10"], "{refused}");
        let gateway = world.object("gateways", "edge");
        let ports = gateway["status"]["conditions"].as_array().unwrap().iter();
        let ports: Vec<&Value> = ports.filter(|it| it["type"] == "sheave.dev/PortsPublished").collect();
        assert!(ports[0]["message"].to_string().contains("5433"), "{refused}: {gateway}");
        let class = world.object("gatewayclasses", "sheave");
        assert_eq!(class["metadata"]["finalizers"].as_array().unwrap().len(), 1, "{refused}");
        assert!(
            world.object("listenersets", "more")["status"].to_string().contains("Programmed"),
            "{refused}"
        );
        for route in ["direct", "behind"] {
            let route = world.object("tcproutes", route);
            assert_eq!(route["status"]["parents"].as_array().unwrap().len(), 1, "{refused}: {route}");
        }
    }
}

#[tokio::test]
async fn a_gateway_is_released_when_its_class_has_another_controller() {
    let world = published_gateways();
    world.put("gatewayclasses", "sheave", json!({"spec": {"controllerName": "theirs.example/gateway"}}));
    world
        .lead_until("everything is released", |world| {
            let parents = ["direct", "behind"]
                .map(|route| world.object("tcproutes", route)["status"]["parents"].clone());
            world.addresses("gateways", "edge").is_empty() && parents.iter().all(|it| *it == json!([]))
        })
        .await;
}

/// The Gateway went while no controller led.
#[tokio::test]
async fn a_listener_set_without_a_gateway_loses_its_status_once() {
    let world = published_gateways();
    world.0.lock().unwrap().objects.remove("gateways");
    world
        .lead_until("the status is gone", |world| {
            !world.object("listenersets", "more")["status"].to_string().contains("Programmed")
        })
        .await;
    // As if others had written the status, too, so that it stays.
    let world = published_gateways();
    world.0.lock().unwrap().objects.remove("gateways");
    world.0.lock().unwrap().keeps_status = true;
    world.lead_until("some time has passed", after(Duration::from_secs(4))).await;
    assert_eq!(world.writes("listenersets").len(), 1);
}

/// An aborted write of the term before may still take effect.
#[tokio::test]
async fn a_term_knows_what_the_one_before_has_sent() {
    let world = World::new();
    world.put_service("first", &[]);
    world.0.lock().unwrap().hanging = Some("first");
    world.lead_until("the status is sent", |world| world.writes("hanging").len() == 1).await;
    let sent = world.writes("hanging")[0]["status"].to_string();
    assert!(sent.contains("203.0.113.10"), "{sent}");
    // An older Service, which chooses first.
    world.put_service("older", &[]);
    let mut older = world.object("services", "older");
    older["metadata"] =
        json!({"creationTimestamp": "2025-01-01T00:00:00Z", "finalizers": [crate::api::names::FINALIZER]});
    world.put("services", "older", older);
    world.lead_until("both have one", |world| !world.addresses("services", "older").is_empty()).await;
    assert_eq!(world.addresses("services", "older"), ["203.0.113.11"]);
}

/// The term after it knows the Services of this cluster before those of the Karmada control plane.
#[tokio::test]
async fn what_was_sent_to_a_server_counts_although_another_one_is_listed_first() {
    let (world, karmada) = (World::new(), World(Arc::default()));
    world.0.lock().unwrap().karmada = Some(karmada.clone());
    let held = json!({"finalizers": [crate::api::names::FINALIZER]});
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let template = json!({"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "ipFamilies": ["IPv4"], "ports": ports});
    karmada.put("services", "fed", json!({"spec": template}));
    karmada.put(
        "multiclusterservices",
        "fed",
        json!({"metadata": held, "spec": {"types": ["LoadBalancer"]}}),
    );
    karmada.0.lock().unwrap().hanging = Some("fed");
    let is_sent = |karmada: &World| !karmada.writes("hanging").is_empty();
    world.lead_until("the status is sent", |_| is_sent(&karmada)).await;
    let sent = karmada.writes("hanging")[0]["status"].to_string();
    assert!(sent.contains("203.0.113.10"), "{sent}");
    // An older Service, which chooses first.
    world.put_service("older", &[]);
    let mut older = world.object("services", "older");
    older["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    world.put("services", "older", older);
    karmada.fail(&["multiclusterservices"], 503);
    world
        .lead_until("both have one", |world| {
            if world.object("services", "older")["status"].to_string().contains("NoAddress") {
                karmada.fail(&[], 200);
            }
            !world.addresses("services", "older").is_empty()
        })
        .await;
    assert_eq!(world.addresses("services", "older"), ["203.0.113.11"]);
}
