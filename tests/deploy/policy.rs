//! Tests of the admission policies: what they allow the controller to write, and what they refuse. A CEL interpreter evaluates
//! their expressions on objects before and after a write, like an API server.

use std::sync::Arc;

use cel::{Context, Env};
use serde_json::{Value, json};

use crate::files::{self, Document};

const CONTROLLER: &str = "system:serviceaccount:sheave-system:sheave-controller";
const OURS: &str = "sheave.dev/load-balancer-cleanup";
/// Finalizer of an installation with another class.
const OTHER_CLASS: &str = "sheave.dev/load-balancer-cleanup-bf9cf968";
/// Finalizer of cloud providers.
const SHARED: &str = "service.kubernetes.io/load-balancer-cleanup";
const LABEL: &str = "sheave.dev/managed-by";

/// Write in the form of an admission request.
struct Write<'a> {
    user: &'a str,
    group: &'a str,
    /// Plural, followed by a slash and the subresource, if any.
    resource: &'a str,
    /// Object before the write; null if there was none.
    before: &'a Value,
    /// Object after the write; null if it is removed.
    after: &'a Value,
    /// Object that a binding names as a parameter; null for none.
    params: &'a Value,
}

impl Write<'_> {
    fn operation(&self) -> &'static str {
        match (self.before.is_null(), self.after.is_null()) {
            (true, _) => "CREATE",
            (_, true) => "DELETE",
            (false, false) => "UPDATE",
        }
    }

    /// Whether the expression is true, given the values of the policy's variables. An expression that cannot be evaluated
    /// refuses, as with `failurePolicy: Fail`.
    fn satisfies(&self, expression: &Value, variables: &Value) -> bool {
        let expression = expression.as_str().expect("an expression");
        let environment = Arc::new(Env::stdlib());
        let program = environment.compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let mut context = Context::with_env(environment);
        let (plural, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let request = json!({"userInfo": {"username": self.user}, "operation": self.operation(), "subResource": subresource,
                             "resource": {"group": self.group, "resource": plural}});
        let objects = [
            ("object", self.after),
            ("oldObject", self.before),
            ("params", self.params),
            ("request", &request),
        ];
        for (name, value) in objects.into_iter().chain([("variables", variables)]) {
            context.add_variable(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        program.execute(&context).is_ok_and(|value| value == true.into())
    }
}

/// Policy with a binding, and the object that the binding names as a parameter; null for none.
struct Policy {
    spec: Value,
    params: Value,
}

impl Policy {
    /// The policy of this name, which a binding with the same name enables.
    fn of(documents: &[Document], name: &str) -> Self {
        let spec = |kind: &str| {
            let mut found = documents.iter().filter(|it| it.value["kind"] == kind);
            let found = found.find(|it| it.value["metadata"]["name"] == name);
            found.unwrap_or_else(|| panic!("there is no {kind} {name}")).value["spec"].clone()
        };
        let policy = spec("ValidatingAdmissionPolicy");
        let mut binding = json!({"policyName": name, "validationActions": ["Deny"]});
        if policy.get("paramKind").is_some() {
            // All of that kind.
            binding["paramRef"] = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
        }
        assert_eq!(spec("ValidatingAdmissionPolicyBinding"), binding);
        assert_eq!(policy["failurePolicy"], "Fail");
        Self { spec: policy, params: Value::Null }
    }

    /// Reasons for which it refuses a write; `None` if the write does not match.
    fn refuses(&self, write: &Write<'_>) -> Option<Vec<&str>> {
        let has = |list: &Value, item: &str| list.as_array().is_some_and(|list| list.contains(&json!(item)));
        let concerned = list(&self.spec["matchConstraints"]["resourceRules"]).iter().any(|rule| {
            has(&rule["apiGroups"], write.group)
                && has(&rule["resources"], write.resource)
                && has(&rule["operations"], write.operation())
        });
        let mut variables = json!({});
        let conditions = list(&self.spec["matchConditions"]);
        if !concerned || !conditions.iter().all(|it| write.satisfies(&it["expression"], &variables)) {
            return None;
        }
        // Each may use earlier ones. All are true or false.
        for variable in self.spec["variables"].as_array().into_iter().flatten() {
            let value = write.satisfies(&variable["expression"], &variables);
            variables[variable["name"].as_str().expect("a name")] = json!(value);
        }
        let refused = list(&self.spec["validations"])
            .iter()
            .filter(|it| !write.satisfies(&it["expression"], &variables));
        Some(refused.map(|it| it["message"].as_str().expect("each says what it refuses")).collect())
    }

    /// The policy as it is evaluated with this parameter.
    fn given(&self, params: &Value) -> Self {
        Self { spec: self.spec.clone(), params: params.clone() }
    }

    /// The controller's write of `before` to `after`.
    fn write<'a>(
        &'a self,
        (group, resource): (&'a str, &'a str),
        before: &'a Value,
        after: &'a Value,
    ) -> Write<'a> {
        Write { user: CONTROLLER, group, resource, before, after, params: &self.params }
    }

    /// Asserts that the controller may change `before` to `after`.
    fn assert_allows(&self, resource: (&str, &str), before: &Value, after: &Value) {
        let write = self.write(resource, before, after);
        assert_eq!(self.refuses(&write), Some(Vec::new()), "{resource:?} {before} {after}");
    }

    /// Asserts that it may not, for one reason, and that all others may.
    fn assert_refuses(&self, resource: (&str, &str), before: &Value, after: &Value) {
        let write = self.write(resource, before, after);
        let refused = self.refuses(&write).unwrap_or_default();
        assert_eq!(refused.len(), 1, "{resource:?} {before} {after}: {refused:?}");
        for user in ["admin", "system:serviceaccount:sheave-system:sheave-gateway", ""] {
            assert_eq!(self.refuses(&Write { user, ..write }), None);
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).expect("a list")
}

/// The object with the field of a JSON pointer set; null removes it.
fn with(object: &Value, field: &str, value: Value) -> Value {
    let (parent, name) = field.rsplit_once('/').expect("a pointer");
    let mut changed = object.clone();
    let parent = changed.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
    if value.is_null() {
        parent.remove(name)
    } else {
        parent.insert(name.to_owned(), value)
    };
    changed
}

/// Checks what all objects with our finalizer have in common, both with and without some fields.
fn assert_metadata(policy: &Policy, resource: (&str, &str), full: &Value, more: &str) {
    let bare = ["labels", "annotations", "ownerReferences", "finalizers"]
        .iter()
        .fold(full.clone(), |object, field| with(&object, &format!("/metadata/{field}"), Value::Null));
    let theirs = with(full, "/metadata/finalizers", json!(["example.com/keep"]));
    for (before, after) in [(&bare, json!([OURS])), (&theirs, json!(["example.com/keep", OURS]))] {
        let held = with(before, "/metadata/finalizers", after);
        policy.assert_allows(resource, before, &held);
        policy.assert_allows(resource, &held, before);
    }
    policy.assert_allows(resource, &bare, &with(&bare, "/metadata/finalizers", json!([more])));
    for finalizers in [Value::Null, json!([OURS]), json!(["example.com/keep", "example.com/more"])] {
        policy.assert_refuses(resource, &theirs, &with(&theirs, "/metadata/finalizers", finalizers));
    }
    for (field, value) in [
        ("labels", json!({"a": "c"})),
        ("labels", json!({"a": "b", "more": "b"})),
        ("labels", Value::Null),
        ("annotations", json!({"sheave.dev/addresses": "203.0.113.7"})),
        ("ownerReferences", json!([{"kind": "Pod", "name": "x", "uid": "2"}])),
    ] {
        let field = format!("/metadata/{field}");
        policy.assert_refuses(resource, full, &with(full, &field, value.clone()));
        if !value.is_null() {
            policy.assert_refuses(resource, &bare, &with(&bare, &field, value));
        }
    }
}

fn metadata() -> Value {
    json!({"name": "web", "namespace": "shop", "uid": "1", "labels": {"a": "b"}, "annotations": {"c": "d"},
           "finalizers": ["example.com/keep"], "ownerReferences": [{"kind": "Shop", "name": "s", "uid": "1"}]})
}

#[test]
fn of_a_service_the_controller_changes_its_finalizer_and_its_status() {
    let policy = Policy::of(&files::base(), "sheave-controller");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(),
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "selector": {"app": "web"},
                 "ports": [{"port": 80, "nodePort": 30080}]},
        "status": {"loadBalancer": {}},
    });
    for resource in [("", "services"), ("", "services/status")] {
        assert_metadata(&policy, resource, &service, SHARED);
        for (field, value) in [
            ("selector", json!({"app": "bank"})),
            ("selector", Value::Null),
            ("type", json!("ExternalName")),
            ("externalIPs", json!(["192.0.2.1"])),
            ("loadBalancerClass", json!("x")),
        ] {
            policy.assert_refuses(resource, &service, &with(&service, &format!("/spec/{field}"), value));
        }
        let status = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.7", "ipMode": "Proxy"}]},
                            "conditions": [{"type": "sheave.dev/Programmed", "status": "True"}]});
        let published = with(&service, "/status", status);
        policy.assert_allows(resource, &service, &published);
        policy.assert_allows(resource, &published, &service);
        // Fields that the server itself changes with every write.
        let newer = with(&service, "/metadata/resourceVersion", json!("7"));
        policy.assert_allows(resource, &service, &with(&newer, "/metadata/managedFields", json!([{}])));
    }
}

/// kube-proxy intercepts packets for a published address on every node, unless its mode is Proxy.
#[test]
fn addresses_are_published_as_a_proxys_and_on_services_of_the_class_alone() {
    let policy = Policy::of(&files::base(), "sheave-controller");
    let status = ("", "services/status");
    let of_class = |class: &str| {
        let spec = json!({"type": "LoadBalancer", "loadBalancerClass": class});
        let ingress = json!([{"ip": "192.0.2.9", "ipMode": "VIP"}]);
        json!({"metadata": metadata(), "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}})
    };
    let publishing = |before: &Value, mode: Value| {
        let ingress = json!([{"ip": "192.0.2.9", "ipMode": "VIP"}, with(&json!({"m": {"ip": "203.0.113.7"}}), "/m/ipMode", mode)["m"]]);
        with(before, "/status/loadBalancer/ingress", ingress)
    };
    let ours = of_class("sheave.dev/l4");
    policy.assert_allows(status, &ours, &publishing(&ours, json!("Proxy")));
    policy.assert_refuses(status, &ours, &publishing(&ours, json!("VIP")));
    policy.assert_refuses(status, &ours, &publishing(&ours, Value::Null));
    let unclassified = with(&of_class("x"), "/spec/loadBalancerClass", Value::Null);
    for theirs in [of_class("example.com/other"), unclassified] {
        policy.assert_refuses(status, &theirs, &publishing(&theirs, json!("Proxy")));
        let held = with(&theirs, "/metadata/finalizers", json!(["example.com/keep", OURS]));
        policy.assert_refuses(status, &held, &publishing(&held, json!("Proxy")));
    }
}

/// A DNS controller, or a load balancer in front, follows the addresses of Services of every implementation.
#[test]
fn addresses_of_other_implementations_stay() {
    let policy = Policy::of(&files::base(), "sheave-controller");
    let published = |kind: &str, finalizers: Value| {
        let ingress =
            json!([{"ip": "192.0.2.9", "ipMode": "Proxy"}, {"ip": "2001:db8::9", "ipMode": "Proxy"}]);
        let spec = json!({"type": kind, "loadBalancerClass": "example.com/other"});
        let metadata = json!({"name": "web", "namespace": "shop", "finalizers": finalizers});
        json!({"metadata": metadata, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}})
    };
    for resource in [("", "services"), ("", "services/status")] {
        for finalizers in [json!([]), json!([SHARED]), json!([OTHER_CLASS])] {
            let theirs = published("LoadBalancer", finalizers);
            policy.assert_allows(resource, &theirs, &theirs);
            let fewer = with(
                &theirs,
                "/status/loadBalancer/ingress",
                json!([{"ip": "192.0.2.9", "ipMode": "Proxy"}]),
            );
            policy.assert_refuses(resource, &theirs, &fewer);
            policy.assert_refuses(resource, &theirs, &with(&theirs, "/status/loadBalancer", json!({})));
            policy.assert_refuses(resource, &theirs, &with(&theirs, "/status", Value::Null));
        }
        // Those that were ours, until they are let go.
        for kind in ["LoadBalancer", "ClusterIP"] {
            let released = published(kind, json!([OURS]));
            policy.assert_allows(resource, &released, &with(&released, "/status/loadBalancer", json!({})));
        }
    }
}

/// Such a finalizer keeps a Service until a cloud provider has released paid resources.
#[test]
fn the_finalizers_of_cloud_providers_and_other_installations_stay() {
    let policy = Policy::of(&files::base(), "sheave-controller");
    let services = ("", "services");
    let held = |spec: Value, finalizers: Value| json!({"metadata": {"name": "web", "namespace": "shop", "finalizers": finalizers}, "spec": spec});
    let ours = json!({"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4"});
    let clouds = json!({"type": "LoadBalancer"});
    let moved = json!({"type": "ClusterIP"});
    for spec in [&ours, &moved] {
        let before = held(spec.clone(), json!([OURS, SHARED]));
        policy.assert_allows(services, &before, &held(spec.clone(), json!([])));
    }
    for (spec, finalizer) in
        [(&clouds, SHARED), (&moved, SHARED), (&ours, OTHER_CLASS), (&clouds, OTHER_CLASS)]
    {
        let before = held(spec.clone(), json!([finalizer]));
        policy.assert_refuses(services, &before, &held(spec.clone(), json!([])));
    }
}

#[test]
fn a_service_that_is_no_load_balancer_cannot_be_held() {
    let policy = Policy::of(&files::base(), "sheave-controller");
    let services = ("", "services");
    let theirs = json!({"metadata": metadata(), "spec": {"type": "ClusterIP"}});
    let held = with(&theirs, "/metadata/finalizers", json!(["example.com/keep", OURS]));
    policy.assert_refuses(services, &theirs, &held);
    // It was a load balancer.
    policy.assert_allows(services, &held, &with(&held, "/status", json!({"loadBalancer": {}})));
    policy.assert_allows(services, &held, &theirs);
}

#[test]
fn conditions_are_their_writers() {
    let policy = Policy::of(&files::base(), "sheave-controller");
    let status = ("", "services/status");
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4"});
    let service = json!({"metadata": metadata(), "spec": spec});
    let condition = |kind: &str, value: &str| json!({"type": kind, "status": value});
    let with_conditions = |conditions: Value| with(&service, "/status", json!({"conditions": conditions}));
    let (ours, theirs) = (condition("sheave.dev/Ready", "True"), condition("example.com/Scanned", "True"));
    let before = with_conditions(json!([theirs]));
    let after = with_conditions(json!([theirs, ours]));
    policy.assert_allows(status, &service, &with_conditions(json!([ours])));
    policy.assert_allows(status, &before, &after);
    policy.assert_allows(status, &after, &before);
    let announced = with_conditions(json!([theirs, ours, condition("sheave.dev/Announced", "False")]));
    policy.assert_allows(status, &after, &announced);
    policy.assert_allows(status, &announced, &after);
    for conditions in [json!([]), json!([condition("example.com/Scanned", "False"), ours])] {
        policy.assert_refuses(status, &before, &with_conditions(conditions));
    }
    policy.assert_refuses(status, &service, &before);
}

#[test]
fn what_the_controller_creates_is_its_own() {
    let policy = Policy::of(&files::base(), "sheave-controller-creates");
    let leases = ("coordination.k8s.io", "leases");
    let lease = |name: &str| json!({"metadata": {"name": name, "namespace": "sheave-system"}});
    for ours in ["sheave-controller", "sheave-unclassified", "sheave", "sheave-bf9cf968"] {
        policy.assert_allows(leases, &Value::Null, &lease(ours));
    }
    for theirs in ["cert-manager", "sheaves"] {
        policy.assert_refuses(leases, &Value::Null, &lease(theirs));
    }
    policy.assert_refuses(leases, &Value::Null, &json!({"metadata": {"generateName": "sheave-controller"}}));
    let karmada = Policy::of(&files::karmada(), "sheave-karmada-controller-creates");
    let events = ("events.k8s.io", "events");
    let event =
        |from: &str| json!({"metadata": {"name": "web.1", "namespace": "shop"}, "reportingController": from});
    for policy in [&policy, &karmada] {
        policy.assert_allows(events, &Value::Null, &event("sheave.dev/controller"));
        policy.assert_refuses(events, &Value::Null, &event("kubelet"));
    }
}

/// Request of an API server of Kubernetes 1.36: only the new object has the field that such a Service had with another type.
#[test]
fn of_a_gateway_class_the_controller_changes_its_finalizer() {
    let policy = Policy::of(&files::gateway_api(), "sheave-controller-routes");
    let classes = ("gateway.networking.k8s.io", "gatewayclasses");
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": metadata(),
                       "spec": {"controllerName": "sheave.dev/gateway"}});
    let used = json!(["example.com/keep", "gateway-exists-finalizer.gateway.networking.k8s.io"]);
    let held = with(&class, "/metadata/finalizers", used);
    policy.assert_allows(classes, &class, &held);
    policy.assert_allows(classes, &held, &class);
    for (field, value) in [
        ("/spec/parametersRef", json!({"group": "", "kind": "ConfigMap", "name": "x"})),
        ("/metadata/labels", json!({"a": "c"})),
        ("/metadata/annotations", json!({})),
        ("/metadata/ownerReferences", json!([])),
        ("/metadata/finalizers", json!([])),
        ("/metadata/finalizers", json!(["example.com/keep", "example.com/more"])),
    ] {
        policy.assert_refuses(classes, &class, &with(&class, field, value));
    }
    let status = ("gateway.networking.k8s.io", "gatewayclasses/status");
    let accepted = |class: &Value| with(class, "/status", json!({"conditions": [{"type": "Accepted"}]}));
    policy.assert_allows(status, &class, &accepted(&class));
    let theirs = with(&class, "/spec/controllerName", json!("example.com/gateway"));
    let used = with(&held, "/spec/controllerName", json!("example.com/gateway"));
    policy.assert_refuses(classes, &theirs, &used);
    policy.assert_refuses(classes, &used, &theirs);
    policy.assert_refuses(status, &theirs, &accepted(&theirs));
    policy.assert_allows(status, &accepted(&theirs), &accepted(&theirs));
}

#[test]
fn on_gateways_of_other_controllers_nothing_is_published() {
    let policy = Policy::of(&files::gateway_api(), "sheave-controller-gateways");
    assert_eq!(policy.spec["paramKind"]["kind"], "GatewayClass");
    let status = ("gateway.networking.k8s.io", "gateways/status");
    let class = |name: &str, controller: &str| json!({"metadata": {"name": name}, "spec": {"controllerName": controller}});
    let (ours, theirs) = (class("l4", "sheave.dev/gateway"), class("web", "example.com/gateway"));
    let gateway = |class: &str, addresses: Value, conditions: Value| {
        let status = json!({"addresses": addresses, "conditions": conditions});
        json!({"metadata": metadata(), "spec": {"gatewayClassName": class}, "status": status})
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let address = |value: &str| json!({"type": "IPAddress", "value": value});
    let foreign = json!([condition("example.com/Scanned")]);
    let standard = json!([
        condition("Accepted"),
        condition("example.com/Scanned"),
        condition("Programmed"),
        condition("sheave.dev/Ready")
    ]);
    let nothing = |class| gateway(class, json!([]), foreign.clone());
    let published = |class| gateway(class, json!([address("203.0.113.7")]), standard.clone());
    // Whatever other classes there are.
    for params in [&ours, &theirs] {
        policy.given(params).assert_allows(status, &nothing("l4"), &published("l4"));
        policy.given(params).assert_allows(status, &published("l4"), &nothing("l4"));
    }
    policy.given(&theirs).assert_refuses(status, &nothing("web"), &published("web"));
    // One that was ours before.
    policy.given(&theirs).assert_allows(status, &published("web"), &nothing("web"));
    policy.given(&theirs).assert_allows(status, &published("web"), &published("web"));
    let more = json!([address("203.0.113.7"), address("203.0.113.8")]);
    policy.given(&theirs).assert_refuses(status, &published("web"), &gateway("web", more, standard.clone()));
    let named = json!([{"type": "Hostname", "value": "bank.example.com"}]);
    policy.given(&ours).assert_refuses(status, &nothing("l4"), &gateway("l4", named, foreign.clone()));
    policy.given(&ours).assert_refuses(status, &nothing("l4"), &gateway("l4", json!([]), json!([])));
}

#[test]
fn what_other_controllers_say_of_their_gateways_stays() {
    let policy = Policy::of(&files::gateway_api(), "sheave-controller-gateways");
    let status = ("gateway.networking.k8s.io", "gateways/status");
    let theirs = json!({"metadata": {"name": "web"}, "spec": {"controllerName": "example.com/gateway"}});
    let condition = |kind: &str, value: &str| json!({"type": kind, "status": value});
    let gateway = json!({"metadata": metadata(), "spec": {"gatewayClassName": "web"}, "status": {
        "addresses": [{"type": "IPAddress", "value": "203.0.113.7"}],
        "conditions": [condition("Accepted", "True")],
        "listeners": [{"name": "tcp", "attachedRoutes": 1}],
    }});
    // Applies that find nothing of Sheave's.
    policy.given(&theirs).assert_allows(status, &gateway, &gateway);
    let bare = with(&gateway, "/status", Value::Null);
    policy.given(&theirs).assert_allows(status, &bare, &bare);
    for (field, value) in [
        ("", Value::Null),
        ("/addresses", json!([])),
        ("/conditions", json!([condition("Accepted", "False")])),
        ("/conditions", json!([condition("Accepted", "True"), condition("Programmed", "False")])),
        // With it everything else would be allowed.
        ("/conditions", json!([condition("Accepted", "True"), condition("sheave.dev/Ready", "True")])),
        ("/listeners", json!([])),
        ("/listeners", json!([{"name": "tcp", "attachedRoutes": 0}])),
    ] {
        let after = with(&gateway, &format!("/status{field}"), value);
        policy.given(&theirs).assert_refuses(status, &gateway, &after);
    }
    policy.given(&theirs).assert_refuses(status, &bare, &with(&bare, "/status", json!({"addresses": []})));
}

#[test]
fn of_a_listener_set_the_controller_writes_the_standard_conditions_and_its_listeners() {
    let policy = Policy::of(&files::gateway_api(), "sheave-controller-listener-sets");
    let status = ("gateway.networking.k8s.io", "listenersets/status");
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let spec = json!({"parentRef": {"name": "web"}, "listeners": [{"name": "tcp"}]});
    let set = |conditions: &[&str], listeners: &[&str]| {
        let conditions: Vec<Value> = conditions.iter().copied().map(condition).collect();
        let listeners: Vec<Value> = listeners.iter().map(|name| json!({"name": name})).collect();
        let status = json!({"conditions": conditions, "listeners": listeners});
        json!({"metadata": metadata(), "spec": spec, "status": status})
    };
    let bare = json!({"metadata": metadata(), "spec": spec});
    let (scanned, full) = (["example.com/Scanned"], ["Accepted", "example.com/Scanned", "Programmed"]);
    policy.assert_allows(status, &bare, &bare);
    policy.assert_allows(status, &bare, &set(&["Accepted", "Programmed"], &["tcp"]));
    policy.assert_allows(status, &set(&scanned, &[]), &set(&full, &["tcp"]));
    policy.assert_allows(status, &set(&full, &["tcp"]), &set(&scanned, &[]));
    // A listener that has gone from the spec, whose entry may stay.
    policy.assert_allows(status, &set(&full, &["old"]), &set(&full, &["old", "tcp"]));
    policy.assert_refuses(status, &set(&full, &[]), &set(&["Accepted", "Programmed"], &[]));
    policy.assert_refuses(status, &bare, &set(&scanned, &[]));
    policy.assert_refuses(status, &set(&full, &["tcp"]), &set(&full, &["tcp", "other"]));
}

#[test]
fn what_other_controllers_say_of_a_route_stays() {
    let policy = Policy::of(&files::gateway_api(), "sheave-controller-parents");
    let parent = |controller: &str, conditions: Value| json!({"parentRef": {"name": "a"}, "controllerName": controller, "conditions": conditions});
    let (ours, theirs) = (
        parent("sheave.dev/gateway", json!([])),
        parent("example.com/gateway", json!([{"type": "Accepted"}])),
    );
    let route =
        |parents: &[&Value]| json!({"metadata": metadata(), "spec": {}, "status": {"parents": parents}});
    let bare = json!({"metadata": metadata(), "spec": {}});
    for plural in ["tcproutes/status", "udproutes/status", "tlsroutes/status"] {
        let status = ("gateway.networking.k8s.io", plural);
        policy.assert_allows(status, &bare, &route(&[&ours]));
        policy.assert_allows(status, &route(&[&theirs]), &route(&[&theirs, &ours]));
        policy.assert_allows(status, &route(&[&ours, &theirs]), &route(&[&theirs]));
        policy.assert_refuses(status, &route(&[&theirs]), &route(&[&ours]));
        policy.assert_refuses(status, &route(&[]), &route(&[&theirs]));
        let changed = parent("example.com/gateway", json!([]));
        policy.assert_refuses(status, &route(&[&theirs]), &route(&[&changed, &ours]));
    }
}

#[test]
fn a_service_that_became_an_external_name_is_let_go() {
    let policy = Policy::of(&files::base(), "sheave-controller");
    let services = ("", "services");
    let held = with(&json!({"metadata": metadata()}), "/metadata/finalizers", json!([OURS]));
    let spec = json!({"type": "ExternalName", "externalName": "example.com", "ports": [{"port": 80}]});
    let before = with(&held, "/spec", spec);
    let shown = with(&before, "/spec/internalTrafficPolicy", json!("Cluster"));
    policy.assert_allows(services, &before, &with(&shown, "/metadata/finalizers", Value::Null));
    for (field, value) in [("externalName", json!("example.org")), ("selector", json!({"app": "bank"}))] {
        policy.assert_refuses(services, &before, &with(&shown, &format!("/spec/{field}"), value));
    }
    let internal = with(&before, "/spec/type", json!("ClusterIP"));
    policy.assert_refuses(
        services,
        &internal,
        &with(&internal, "/spec/internalTrafficPolicy", json!("Local")),
    );
    policy.assert_refuses(services, &shown, &with(&shown, "/spec/internalTrafficPolicy", json!("Local")));
}

/// With a served version, the API server checks the expressions against the types, which it does not with `*`. It handles other
/// versions itself (`matchPolicy: Equivalent`).
#[test]
fn every_policy_names_the_versions_that_it_is_checked_by() {
    for (documents, name) in [
        (files::base(), "sheave-controller"),
        (files::base(), "sheave-controller-creates"),
        (files::karmada(), "sheave-karmada-controller"),
        (files::karmada(), "sheave-karmada-controller-creates"),
        (files::exports(), "sheave-controller-exports"),
        (files::gateway_api(), "sheave-controller-routes"),
        (files::gateway_api(), "sheave-controller-gateways"),
        (files::gateway_api(), "sheave-controller-listener-sets"),
        (files::gateway_api(), "sheave-controller-parents"),
    ] {
        let Policy { spec: policy, .. } = Policy::of(&documents, name);
        assert_eq!(policy["matchConstraints"]["matchPolicy"], Value::Null);
        for rule in list(&policy["matchConstraints"]["resourceRules"]) {
            let stable = ["", "coordination.k8s.io", "events.k8s.io", "gateway.networking.k8s.io"];
            let version = if stable.map(|group| json!(group)).contains(&rule["apiGroups"][0]) {
                "v1"
            } else {
                "v1alpha1"
            };
            assert_eq!(rule["apiVersions"], json!([version]), "{name}");
        }
    }
}

#[test]
fn of_a_multi_cluster_service_the_controller_changes_its_finalizer_and_its_status() {
    let policy = Policy::of(&files::karmada(), "sheave-karmada-controller");
    let service = json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService", "metadata": metadata(),
        "spec": {"types": ["LoadBalancer"], "providerClusters": [{"name": "m1"}]},
    });
    let group = "networking.karmada.io";
    for resource in [(group, "multiclusterservices"), (group, "multiclusterservices/status")] {
        assert_metadata(&policy, resource, &service, OTHER_CLASS);
        let shared = with(&service, "/metadata/finalizers", json!(["example.com/keep", SHARED]));
        policy.assert_refuses(resource, &service, &shared);
        for (field, value) in [
            ("types", json!(["CrossCluster"])),
            ("ports", json!([{"port": 80}])),
            ("providerClusters", Value::Null),
            ("providerClusters", json!([{"name": "m2"}])),
            ("consumerClusters", json!([{"name": "m2"}])),
            ("range", json!({"clusterNames": ["m2"]})),
            ("serviceProvisionClusters", json!(["m2"])),
            ("serviceConsumptionClusters", json!(["m2"])),
        ] {
            policy.assert_refuses(resource, &service, &with(&service, &format!("/spec/{field}"), value));
        }
        policy.assert_allows(resource, &service, &with(&service, "/status", json!({"loadBalancer": {}})));
        // Karmada's webhook adds to every write.
        let ranged = with(&service, "/spec/range", json!({}));
        let id = json!({"a": "b", "multiclusterservice.karmada.io/permanent-id": "x"});
        let identified = with(&ranged, "/metadata/labels", id);
        policy.assert_allows(resource, &service, &identified);
        let id = json!({"a": "b", "multiclusterservice.karmada.io/permanent-id": "y"});
        policy.assert_refuses(resource, &identified, &with(&identified, "/metadata/labels", id));
    }
}

/// Like [`addresses_are_published_as_a_proxys_and_on_services_of_the_class_alone`]. The class may be that of the Service, which
/// the API server does not show here.
#[test]
fn addresses_and_finalizers_are_for_load_balancers_of_the_class_alone_on_karmada_as_well() {
    let policy = Policy::of(&files::karmada(), "sheave-karmada-controller");
    let (objects, status) = ("multiclusterservices", "multiclusterservices/status");
    let group = "networking.karmada.io";
    let of_type = |kind: &str| json!({"metadata": metadata(), "spec": {"types": [kind]}});
    let of_class = |class: &str| {
        let annotations = json!({"c": "d", "sheave.dev/load-balancer-class": class});
        with(&of_type("LoadBalancer"), "/metadata/annotations", annotations)
    };
    let published = |before: &Value, mode: &str| {
        let ingress = json!([{"ip": "203.0.113.7", "ipMode": mode}]);
        with(before, "/status", json!({"loadBalancer": {"ingress": ingress}}))
    };
    let held = |before: &Value| with(before, "/metadata/finalizers", json!(["example.com/keep", OURS]));
    for ours in [of_type("LoadBalancer"), of_class("sheave.dev/l4")] {
        policy.assert_allows((group, objects), &ours, &held(&ours));
        policy.assert_allows((group, status), &ours, &published(&ours, "Proxy"));
        policy.assert_refuses((group, status), &ours, &published(&ours, "VIP"));
        // API servers of Karmada before 1.9 do not know the field.
        let unknown = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}});
        policy.assert_allows((group, status), &ours, &with(&ours, "/status", unknown));
    }
    for theirs in [of_type("CrossCluster"), of_class("example.com/other")] {
        policy.assert_refuses((group, objects), &theirs, &held(&theirs));
        policy.assert_refuses((group, status), &theirs, &published(&theirs, "Proxy"));
        // Existing values may stay, and those that are Sheave's be removed.
        for before in [held(&theirs), published(&theirs, "VIP"), published(&held(&theirs), "VIP")] {
            policy.assert_allows(
                (group, status),
                &before,
                &with(&before, "/metadata/resourceVersion", json!("7")),
            );
        }
        policy.assert_allows((group, objects), &held(&theirs), &theirs);
        policy.assert_allows((group, status), &published(&held(&theirs), "VIP"), &held(&theirs));
        policy.assert_refuses((group, status), &published(&theirs, "VIP"), &theirs);
        let others = with(&theirs, "/metadata/finalizers", json!(["example.com/keep"]));
        policy.assert_refuses((group, status), &published(&others, "Proxy"), &others);
    }
}

#[test]
fn conditions_and_finalizers_of_others_stay_on_karmada_as_well() {
    let policy = Policy::of(&files::karmada(), "sheave-karmada-controller");
    let group = "networking.karmada.io";
    let service = json!({"metadata": metadata(), "spec": {"types": ["LoadBalancer"]}});
    let with_conditions = |all: &[&str]| {
        let all: Vec<Value> = all.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        with(&service, "/status", json!({"conditions": all}))
    };
    let (theirs, ours) = ("ServiceApplied", "sheave.dev/Degraded");
    let status = (group, "multiclusterservices/status");
    policy.assert_allows(status, &with_conditions(&[theirs]), &with_conditions(&[theirs, ours]));
    policy.assert_allows(status, &with_conditions(&[theirs, ours]), &with_conditions(&[theirs]));
    policy.assert_refuses(status, &with_conditions(&[theirs, ours]), &with_conditions(&[ours]));
    policy.assert_refuses(status, &service, &with_conditions(&[theirs]));
    let similar = format!("{OURS}s");
    let similar = with(&service, "/metadata/finalizers", json!(["example.com/keep", similar]));
    policy.assert_refuses((group, "multiclusterservices"), &similar, &service);
}

/// With a token of the cluster that Sheave runs in (`karmada/bound`), the controller is subject to the same rules.
#[test]
fn a_bound_token_is_no_way_around_the_policies_of_karmada() {
    let user = format!("sheave:{CONTROLLER}");
    let (before, after) = (Value::Null, json!({"kind": "ServiceExport", "metadata": {"name": "web"}}));
    let write = Write {
        user: &user,
        group: "multicluster.x-k8s.io",
        resource: "serviceexports",
        before: &before,
        after: &after,
        params: &Value::Null,
    };
    let refused =
        Policy::of(&files::exports(), "sheave-controller-exports").refuses(&write).map(|it| it.len());
    assert_eq!(refused, Some(1));
    let before = json!({"metadata": {"name": "web"}, "spec": {"types": ["LoadBalancer"]}});
    let after = with(&before, "/spec/types", json!(["CrossCluster"]));
    let group = "networking.karmada.io";
    let write = Write { group, resource: "multiclusterservices", before: &before, after: &after, ..write };
    let refused =
        Policy::of(&files::karmada(), "sheave-karmada-controller").refuses(&write).map(|it| it.len());
    assert_eq!(refused, Some(1));
}

#[test]
fn of_exports_the_controller_has_its_own_and_policies_that_bring_nothing_else() {
    let rule = Policy::of(&files::exports(), "sheave-controller-exports");
    let ours = json!({"name": "web", "namespace": "shop", "labels": {LABEL: "sheave"}});
    let selector = |kind: &str, name: &str| json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": kind, "namespace": "shop", "name": name});
    let export = json!({"kind": "ServiceExport", "metadata": ours});
    let policy = json!({"kind": "PropagationPolicy", "metadata": with(&json!({"m": ours}), "/m/name", json!("sheave-export-web"))["m"],
                        "spec": {"resourceSelectors": [selector("ServiceExport", "web")], "placement": {}}});
    let exports = ("multicluster.x-k8s.io", "serviceexports");
    let policies = ("policy.karmada.io", "propagationpolicies");
    for (resource, object) in [(exports, &export), (policies, &policy)] {
        for (before, after) in [(&Value::Null, object), (object, object), (object, &Value::Null)] {
            rule.assert_allows(resource, before, after);
        }
        for labels in [Value::Null, json!({}), json!({"a": "b"})] {
            let theirs = with(object, "/metadata/labels", labels);
            rule.assert_refuses(resource, &Value::Null, &theirs);
            rule.assert_refuses(resource, &theirs, object);
            rule.assert_refuses(resource, object, &theirs);
            rule.assert_refuses(resource, &theirs, &Value::Null);
        }
    }
    let moved = with(&policy, "/spec/placement", json!({"clusterAffinity": {"clusterNames": ["m1"]}}));
    rule.assert_allows(policies, &policy, &moved);
    for selectors in [
        json!([selector("Secret", "web")]),
        json!([selector("ServiceExport", "web"), selector("Secret", "web")]),
        json!([selector("ServiceExport", "bank")]),
        json!([{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport"}]),
        json!([{"apiVersion": "example.com/v1", "kind": "ServiceExport", "name": "web"}]),
        json!([with(&json!({"m": selector("ServiceExport", "web")}), "/m/namespace", json!("bank"))["m"]]),
    ] {
        let wide = with(&policy, "/spec/resourceSelectors", selectors);
        rule.assert_refuses(policies, &Value::Null, &wide);
        rule.assert_refuses(policies, &policy, &wide);
    }
    // Defaults that Karmada's definition sets.
    let completed = with(&policy, "/spec/conflictResolution", json!("Abort"));
    rule.assert_allows(policies, &policy, &with(&completed, "/spec/preemption", json!("Never")));
    for (field, value) in [
        ("conflictResolution", json!("Overwrite")),
        ("preemption", json!("Always")),
        ("propagateDeps", json!(true)),
        ("association", json!(true)),
    ] {
        rule.assert_refuses(policies, &policy, &with(&policy, &format!("/spec/{field}"), value));
    }
}
