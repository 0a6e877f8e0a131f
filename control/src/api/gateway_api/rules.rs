//! Rules of the API server (schemas and CEL) that manifests can break. What would be refused there is corrected here as far as possible,
//! so that one mistake costs as little as it can, and each correction is reported.

use super::gateway::Gateway;
use super::listener::Listener;
use super::listener_set::ListenerSet;
use super::references::ParentReference;
use super::route::RouteSpec;
use crate::net::{DNS_NAME, is_object_name};

/// A value that an API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Path of the field.
    pub field: String,
    /// The value, why it is wrong, and what happens instead.
    pub message: String,
}

/// Largest number of listeners of an object.
pub(crate) const MOST_LISTENERS: usize = 64;
/// Largest number of addresses that a Gateway requests, and that its status lists.
pub(crate) const MOST_ADDRESSES: usize = 16;
/// Largest number of parents of a route.
const MOST_PARENTS: usize = 32;
/// Largest number of backends of a rule.
const MOST_BACKENDS: usize = 16;
/// Largest number of server names of a route.
const MOST_HOSTNAMES: usize = 1024;
/// Largest weight of a backend.
const MAX_WEIGHT: i32 = 1_000_000;

/// Breaches of one object.
#[derive(Default)]
struct Breaches(Vec<Breach>);

impl Breaches {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Breach { field: field.into(), message: message.into() });
    }

    /// Truncates a list that is too long.
    fn limit<T>(&mut self, field: &str, list: &mut Vec<T>, most: usize) {
        if list.len() > most {
            let message =
                format!("has {} entries; {most} are allowed, and those after them are not used", list.len());
            self.add(field, message);
            list.truncate(most);
        }
    }
}

/// Corrects a class.
pub(crate) fn of_class(class: &super::class::GatewayClass) -> Vec<Breach> {
    let mut breaches = Breaches::default();
    if class.spec.controller_name.is_empty() {
        breaches.add("spec.controllerName", "is empty, so no controller serves Gateways of this class");
    }
    breaches.0
}

/// Corrects a Gateway.
pub(crate) fn of_gateway(gateway: &mut Gateway) -> Vec<Breach> {
    let mut breaches = Breaches::default();
    if gateway.spec.gateway_class_name.is_empty() {
        breaches.add("spec.gatewayClassName", "is empty, so nobody serves the Gateway");
    }
    correct_listeners(&mut gateway.spec.listeners, &mut breaches);
    breaches.limit("spec.addresses", &mut gateway.spec.addresses, MOST_ADDRESSES);
    breaches.0
}

/// Corrects a ListenerSet.
pub(crate) fn of_listener_set(set: &mut ListenerSet) -> Vec<Breach> {
    let mut breaches = Breaches::default();
    if set.spec.parent_ref.name.is_empty() {
        breaches.add("spec.parentRef.name", "is empty, so the ListenerSet has no Gateway");
    }
    correct_listeners(&mut set.spec.listeners, &mut breaches);
    breaches.0
}

/// Corrects a route.
pub(crate) fn of_route(spec: &mut RouteSpec) -> Vec<Breach> {
    let mut breaches = Breaches::default();
    correct_parents(&mut spec.parent_refs, &mut breaches);
    match spec.rules.len() {
        1 => {}
        rules => breaches.add(
            "spec.rules",
            format!("has {rules} rules where one is required, so the route is not accepted"),
        ),
    }
    for (index, rule) in spec.rules.iter_mut().enumerate() {
        let field = format!("spec.rules[{index}].backendRefs");
        if rule.backend_refs.is_empty() {
            breaches.add(&field, "is empty, so connections are refused");
        }
        breaches.limit(&field, &mut rule.backend_refs, MOST_BACKENDS);
        for (index, backend) in rule.backend_refs.iter_mut().enumerate() {
            let field = format!("{field}[{index}]");
            if let Some(weight) = backend.weight.filter(|weight| !(0..=MAX_WEIGHT).contains(weight)) {
                let used = weight.clamp(0, MAX_WEIGHT);
                breaches.add(
                    format!("{field}.weight"),
                    format!("{weight} is not within 0 to {MAX_WEIGHT}; {used} is used"),
                );
                backend.weight = Some(used);
            }
            if !is_object_name(&backend.name) {
                let message =
                    format!("{:?} is not the name of an object, so its share is refused", backend.name);
                breaches.add(format!("{field}.name"), message);
            }
            let is_service = backend.group.as_deref().is_none_or(str::is_empty)
                && backend.kind.as_deref().is_none_or(|kind| kind == "Service");
            match backend.port {
                Some(port) if !is_port(port) => {
                    let message = format!("{port} is not a port (1 to 65535), so its share is refused");
                    breaches.add(format!("{field}.port"), message);
                }
                None if is_service => {
                    breaches.add(format!("{field}.port"), "is missing, so its share is refused");
                }
                _ => {}
            }
        }
    }
    breaches.0
}

/// Corrects a TLSRoute.
pub(crate) fn of_tls_route(spec: &mut RouteSpec) -> Vec<Breach> {
    let mut breaches = Breaches(of_route(spec));
    if spec.hostnames.is_empty() {
        breaches.add("spec.hostnames", "is empty, so the route has no server names and gets no connections");
    }
    correct_hostnames(spec, &mut breaches);
    breaches.0
}

fn correct_hostnames(spec: &mut RouteSpec, breaches: &mut Breaches) {
    breaches.limit("spec.hostnames", &mut spec.hostnames, MOST_HOSTNAMES);
    for (index, hostname) in spec.hostnames.iter().enumerate() {
        if !is_hostname(hostname) {
            let field = format!("spec.hostnames[{index}]");
            breaches.add(field, format!("{hostname:?} is not a host name, so the name is not used"));
        }
    }
    spec.hostnames.retain(|hostname| is_hostname(hostname));
}

/// Removes parents that cannot exist.
fn correct_parents(parents: &mut Vec<ParentReference>, breaches: &mut Breaches) {
    breaches.limit("spec.parentRefs", parents, MOST_PARENTS);
    let mut index = 0;
    parents.retain(|parent| {
        let field = format!("spec.parentRefs[{index}]");
        index += 1;
        let section = parent.section_name.as_deref();
        let wrong = if !is_object_name(&parent.name) {
            (format!("{field}.name"), format!("{:?} is not the name of an object", parent.name))
        } else if let Some(section) = section.filter(|section| !is_object_name(section)) {
            (format!("{field}.sectionName"), format!("{section:?} is not the name of a listener"))
        } else if let Some(port) = parent.port.filter(|port| !is_port(*port)) {
            (format!("{field}.port"), format!("{port} is not a port (1 to 65535)"))
        } else {
            return true;
        };
        breaches.add(wrong.0, format!("{}, so the route does not attach there", wrong.1));
        false
    });
}

/// Corrects listeners, and removes those that cannot exist. Indistinct ones stay: they are in conflict with one another.
fn correct_listeners(listeners: &mut Vec<Listener>, breaches: &mut Breaches) {
    const FIELD: &str = "spec.listeners";
    if listeners.is_empty() {
        breaches.add(FIELD, "is empty, so nothing is served");
    }
    breaches.limit(FIELD, listeners, MOST_LISTENERS);
    for index in 0..listeners.len() {
        let (before, after) = listeners.split_at_mut(index);
        let Some(listener) = after.first_mut() else { continue };
        let field = format!("{FIELD}[{index}]");
        correct_listener(listener, &field, breaches);
        let is_same = |other: &&Listener| {
            (other.port, &other.protocol, hostname(other))
                == (listener.port, &listener.protocol, hostname(listener))
        };
        if before.iter().any(|other| other.name == listener.name) {
            let message = format!("{:?} is the name of another listener; neither is used", listener.name);
            breaches.add(format!("{field}.name"), message);
        } else if let Some(other) = before.iter().find(is_same) {
            let message = format!(
                "{} {} is what listener {:?} has, too, without another hostname; neither is used",
                listener.protocol, listener.port, other.name
            );
            breaches.add(format!("{field}.port"), message);
        }
    }
    listeners.retain(|listener| {
        is_object_name(&listener.name) && is_port(listener.port) && !listener.protocol.is_empty()
    });
}

fn hostname(listener: &Listener) -> &str {
    listener.hostname.as_deref().unwrap_or_default()
}

fn correct_listener(listener: &mut Listener, field: &str, breaches: &mut Breaches) {
    let namespaces = listener.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    if let Some(from) = namespaces.and_then(|it| it.from.as_deref())
        && !matches!(from, "All" | "Same" | "Selector")
    {
        let message = format!("{from:?} is not All, Same or Selector; no route may attach");
        breaches.add(format!("{field}.allowedRoutes.namespaces.from"), message);
    }
    if !is_object_name(&listener.name) {
        let message = format!(
            "{:?} is not a name of lower-case letters, digits, '-' and '.'; the listener is not used",
            listener.name
        );
        breaches.add(format!("{field}.name"), message);
    }
    if !is_port(listener.port) {
        let message = format!("{} is not a port (1 to 65535); the listener is not used", listener.port);
        breaches.add(format!("{field}.port"), message);
    }
    if listener.protocol.is_empty() {
        breaches.add(format!("{field}.protocol"), "is empty; the listener is not used");
    }
    let protocol = listener.protocol.as_str();
    if matches!(protocol, "TCP" | "UDP") {
        if !hostname(listener).is_empty() {
            let message = format!("{:?} has no meaning with {protocol}, and is ignored", hostname(listener));
            breaches.add(format!("{field}.hostname"), message);
        }
        if listener.tls.is_some() {
            breaches.add(format!("{field}.tls"), format!("has no meaning with {protocol}, and is ignored"));
        }
        (listener.hostname, listener.tls) = (None, None);
    } else if protocol == "TLS" && listener.tls.as_ref().is_none_or(|tls| tls.mode.is_none()) {
        let message = "is missing, so it is Terminate, which Sheave does not support; write Passthrough";
        breaches.add(format!("{field}.tls.mode"), message);
    }
    if let Some(name) = listener.hostname.as_deref().filter(|name| !name.is_empty() && !is_hostname(name)) {
        let message = format!("{name:?} is not a host name; the listener is as one without");
        breaches.add(format!("{field}.hostname"), message);
        listener.hostname = None;
    }
}

fn is_port(port: i32) -> bool {
    (1..=65_535).contains(&port)
}

/// Whether the text is a host name, exact or with `*` as its first label. Addresses are none.
fn is_hostname(text: &str) -> bool {
    text.len() <= DNS_NAME
        && is_object_name(text.strip_prefix("*.").unwrap_or(text))
        && text.parse::<std::net::IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::super::references::BackendReference;
    use super::super::route::RouteRule;
    use super::*;

    fn shown(breaches: &[Breach]) -> Vec<String> {
        breaches.iter().map(|it| format!("{}: {}", it.field, it.message)).collect()
    }

    fn listener(name: &str, protocol: &str, port: i32) -> Listener {
        Listener { name: name.to_owned(), protocol: protocol.to_owned(), port, ..Listener::default() }
    }

    fn gateway(listeners: Vec<Listener>) -> Gateway {
        let mut gateway = Gateway::default();
        gateway.spec.gateway_class_name = "sheave".to_owned();
        gateway.spec.listeners = listeners;
        gateway
    }

    fn route(backend: BackendReference) -> RouteSpec {
        let rule = RouteRule { backend_refs: vec![backend] };
        RouteSpec { rules: vec![rule], ..RouteSpec::default() }
    }

    fn backend() -> BackendReference {
        BackendReference { name: "web".to_owned(), port: Some(80), ..BackendReference::default() }
    }

    #[test]
    fn listeners_that_an_api_server_admits_are_left_alone() {
        let passthrough = super::super::listener::ListenerTls { mode: Some("Passthrough".to_owned()) };
        let tls = Listener {
            hostname: Some("*.example.com".to_owned()),
            tls: Some(passthrough),
            ..listener("tls", "TLS", 443)
        };
        let other =
            Listener { hostname: Some("a.example.com".to_owned()), name: "tls-a".to_owned(), ..tls.clone() };
        let future = listener("quic", "example.com/QUIC", 65_535);
        let mut gateway =
            gateway(vec![listener("a", "TCP", 1), listener("b.c", "UDP", 1), tls, other, future]);
        let before = gateway.clone();
        assert_eq!(shown(&of_gateway(&mut gateway)), [""; 0]);
        assert_eq!(gateway, before);
    }

    #[test]
    fn each_mistake_of_a_listener_is_reported_and_costs_no_other_listener() {
        let with_hostname = Listener {
            hostname: Some("a.example.com".to_owned()),
            tls: Some(super::super::listener::ListenerTls::default()),
            ..listener("a", "TCP", 80)
        };
        let mut gateway = gateway(vec![
            with_hostname,
            listener("b", "TCP", 0),
            listener("c", "UDP", 65_536),
            listener("D\u{7}", "TCP", 81),
            listener("", "", 82),
            listener("e", "TLS", 443),
            listener("a", "TCP", 83),
            listener("f", "TCP", 80),
        ]);
        assert_eq!(
            shown(&of_gateway(&mut gateway)),
            [
                "spec.listeners[0].hostname: \"a.example.com\" has no meaning with TCP, and is ignored",
                "spec.listeners[0].tls: has no meaning with TCP, and is ignored",
                "spec.listeners[1].port: 0 is not a port (1 to 65535); the listener is not used",
                "spec.listeners[2].port: 65536 is not a port (1 to 65535); the listener is not used",
                "spec.listeners[3].name: \"D\\u{7}\" is not a name of lower-case letters, digits, '-' and '.'; the listener is not used",
                "spec.listeners[4].name: \"\" is not a name of lower-case letters, digits, '-' and '.'; the listener is not used",
                "spec.listeners[4].protocol: is empty; the listener is not used",
                "spec.listeners[5].tls.mode: is missing, so it is Terminate, which Sheave does not support; write Passthrough",
                "spec.listeners[6].name: \"a\" is the name of another listener; neither is used",
                "spec.listeners[7].port: TCP 80 is what listener \"a\" has, too, without another hostname; neither is used",
            ]
        );
        let names: Vec<&str> = gateway.spec.listeners.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["a", "e", "a", "f"]);
        assert_eq!(gateway.spec.listeners[0], listener("a", "TCP", 80));
    }

    #[test]
    fn too_many_listeners_cost_those_after_the_limit() {
        let mut gateway = gateway((1..=65).map(|port| listener(&format!("l{port}"), "TCP", port)).collect());
        let told = shown(&of_gateway(&mut gateway));
        assert_eq!(
            told,
            ["spec.listeners: has 65 entries; 64 are allowed, and those after them are not used"]
        );
        assert_eq!(gateway.spec.listeners.len(), 64);
        assert_eq!(shown(&of_listener_set(&mut ListenerSet::default())).len(), 2);
        assert_eq!(shown(&of_gateway(&mut Gateway::default())).len(), 2);
    }

    #[test]
    fn weights_outside_their_range_are_limited() {
        for (weight, used, wrong) in [
            (-1, 0, true),
            (0, 0, false),
            (MAX_WEIGHT, MAX_WEIGHT, false),
            (MAX_WEIGHT + 1, MAX_WEIGHT, true),
        ] {
            let mut spec = route(BackendReference { weight: Some(weight), ..backend() });
            assert_eq!(!of_route(&mut spec).is_empty(), wrong, "{weight}");
            assert_eq!(spec.rules[0].backend_refs[0].weight, Some(used), "{weight}");
        }
    }

    #[test]
    fn mistakes_of_backends_cost_their_share_alone() {
        for (wrong, field) in [
            (BackendReference { name: String::new(), ..backend() }, "name"),
            (BackendReference { name: "web\n".to_owned(), ..backend() }, "name"),
            (BackendReference { port: Some(0), ..backend() }, "port"),
            (BackendReference { port: Some(65_536), ..backend() }, "port"),
            (BackendReference { port: None, ..backend() }, "port"),
        ] {
            let mut spec = route(wrong.clone());
            let told = shown(&of_route(&mut spec));
            assert!(
                told.len() == 1 && told[0].starts_with(&format!("spec.rules[0].backendRefs[0].{field}: ")),
                "{told:?}"
            );
            assert_eq!(spec.rules[0].backend_refs, [wrong]);
        }
        let import = BackendReference { kind: Some("ServiceImport".to_owned()), port: None, ..backend() };
        assert!(of_route(&mut route(import)).is_empty());
        let mut spec = route(backend());
        spec.rules[0].backend_refs = vec![backend(); 17];
        assert_eq!((of_route(&mut spec).len(), spec.rules[0].backend_refs.len()), (1, 16));
        for rules in [0, 2] {
            let mut spec =
                RouteSpec { rules: vec![route(backend()).rules.remove(0); rules], ..RouteSpec::default() };
            let told = shown(&of_route(&mut spec));
            assert_eq!(
                told,
                [format!(
                    "spec.rules: has {rules} rules where one is required, so the route is not accepted"
                )]
            );
        }
    }

    #[test]
    fn parents_and_host_names_that_cannot_exist_are_left_out() {
        let parent = |name: &str| ParentReference { name: name.to_owned(), ..ParentReference::default() };
        let mut spec = route(backend());
        spec.parent_refs = vec![
            parent(""),
            ParentReference { section_name: Some("a\u{0}".to_owned()), ..parent("edge") },
            ParentReference { port: Some(0), ..parent("edge") },
            parent("edge"),
        ];
        spec.hostnames = ["a.example.com", "*.example.com", "10.0.0.1", "a_b", ""].map(str::to_owned).into();
        let told = shown(&of_tls_route(&mut spec));
        let fields: Vec<&str> = told.iter().filter_map(|it| it.split(": ").next()).collect();
        let expected = [
            "spec.parentRefs[0].name",
            "spec.parentRefs[1].sectionName",
            "spec.parentRefs[2].port",
            "spec.hostnames[2]",
            "spec.hostnames[3]",
            "spec.hostnames[4]",
        ];
        assert_eq!(fields, expected);
        assert_eq!((spec.parent_refs, spec.hostnames.len()), (vec![parent("edge")], 2));
    }
}
