//! Drafts of Gateways, and the objects that they become: a Gateway, a ListenerSet for each further 64 listeners, and one route for
//! each listener.

pub(super) mod addresses;
pub(super) mod names;
pub(super) mod source_ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use sheave_model::Protocol;

use self::names::ObjectNames;
use super::draft::left;
use super::{MigratedObject, NAMESPACE_NAME};
use crate::api::gateway_api::{GROUP, GatewayAddress, MOST_ADDRESSES, MOST_LISTENERS};
use crate::net::is_object_name;
use crate::projection::gateway_api::MOST_MERGED_LISTENERS;
use crate::sources::manifests::{FileProblem, RawObject};

/// Largest number of labels of its `infrastructure` (`maxProperties`).
const MOST_LABELS: usize = 8;
/// Name of the class in deploy/gateway-api.
const CLASS: &str = "sheave";

/// A port of a Service: namespace, name, protocol and number.
pub(super) type ServicePortKey = (String, String, Protocol, u16);

/// A Gateway with its routes.
#[derive(Debug)]
pub(super) struct GatewayDraft {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) comments: Vec<String>,
    pub(super) left: Vec<FileProblem>,
    /// Labels for the selectors of AddressPools.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) listeners: Vec<ListenerDraft>,
}

/// A listener, and the route from it to one port of a Service. The route is in the Service's namespace, so it needs no ReferenceGrant.
#[derive(Debug)]
pub(super) struct ListenerDraft {
    pub(super) protocol: Protocol,
    pub(super) port: u16,
    pub(super) backend: BackendDraft,
    /// Annotations of the route.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) comments: Vec<String>,
    pub(super) left: Vec<FileProblem>,
}

/// A port of a Service.
#[derive(Clone, Debug)]
pub(super) struct BackendDraft {
    pub(super) namespace: String,
    pub(super) service: String,
    pub(super) port: u16,
}

impl ListenerDraft {
    /// The name of the listener: its protocol and port, which no other listener of the Gateway has.
    fn name(&self) -> String {
        format!("{}-{}", self.protocol.name().to_ascii_lowercase(), self.port)
    }

    /// The listener of an object in `home`. Only routes of the backend's namespace attach.
    fn listener(&self, home: &str) -> Value {
        let mut listener = json!({"name": self.name(), "port": self.port, "protocol": self.protocol.name()});
        if self.backend.namespace != home {
            let labels = json!({NAMESPACE_NAME: self.backend.namespace});
            listener["allowedRoutes"] =
                json!({"namespaces": {"from": "Selector", "selector": {"matchLabels": labels}}});
        }
        listener
    }

    fn route(self, parent: Parent<'_>, names: &mut ObjectNames) -> MigratedObject {
        let kind = match self.protocol {
            Protocol::Tcp => "TCPRoute",
            Protocol::Udp => "UDPRoute",
        };
        let BackendDraft { namespace, service, port } = &self.backend;
        let name = names.unique(kind, namespace, &format!("{service}-{}", self.name()));
        let spec = json!({
            "parentRefs": [parent.reference(namespace, &self.name())],
            "rules": [{"backendRefs": [{"name": service, "port": port}]}],
        });
        let metadata = metadata(namespace, &name, &self.annotations);
        MigratedObject {
            comments: self.comments,
            left: self.left,
            manifest: manifest(kind, &metadata, &spec),
        }
    }
}

/// An object with listeners.
#[derive(Clone, Copy)]
struct Parent<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl Parent<'_> {
    /// The reference to one of its listeners from a route in `own`.
    fn reference(self, own: &str, section: &str) -> Value {
        let mut reference = json!({"name": self.name, "sectionName": section});
        if self.kind != "Gateway" {
            reference["kind"] = self.kind.into();
        }
        if self.namespace != own {
            reference["namespace"] = self.namespace.into();
        }
        reference
    }
}

impl GatewayDraft {
    /// A draft without listeners. It gets another name if a Gateway of the wanted one exists.
    pub(super) fn new(namespace: &str, wanted: &str, names: &mut ObjectNames) -> Self {
        let name = names.unique("Gateway", namespace, wanted);
        let renamed = (name != wanted).then(|| {
            format!("{wanted:?} is in use, or no name for an object, so this one is called {name}.")
        });
        Self {
            namespace: namespace.to_owned(),
            name,
            comments: renamed.into_iter().collect(),
            left: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            addresses: Vec::new(),
            listeners: Vec::new(),
        }
    }

    /// Asks for these addresses of a Service, as far as a Gateway may ask for so many.
    pub(super) fn ask_for(&mut self, mut addresses: Vec<IpAddr>, service: &RawObject) {
        if addresses.len() > MOST_ADDRESSES {
            let message = format!(
                "has {} addresses, and a Gateway {MOST_ADDRESSES} at most; those after {MOST_ADDRESSES} are left out",
                addresses.len()
            );
            self.left.push(left(service, "status.loadBalancer.ingress", message));
            addresses.truncate(MOST_ADDRESSES);
        }
        self.addresses = addresses;
    }

    /// Copies the labels with these keys from the Service that the Gateway stands for, so that the same AddressPools admit it. Others
    /// stay: tools that own objects by label would take the Gateway for one of theirs.
    pub(super) fn select_labels(&mut self, service: &RawObject, keys: &BTreeSet<String>) {
        let labels = service.texts("labels").into_iter().filter(|(key, _)| keys.contains(key));
        let labels: Vec<(String, String)> = labels.collect();
        if labels.len() > MOST_LABELS {
            let message = format!(
                "AddressPools select by {} of these labels, and spec.infrastructure of a Gateway holds {MOST_LABELS}; the others are \
                 left out",
                labels.len()
            );
            self.left.push(left(service, "metadata.labels", message));
        }
        self.labels = labels.into_iter().take(MOST_LABELS).collect();
    }

    /// The objects of the draft, in the order in which they are to be applied.
    pub(super) fn finish(mut self, class: &str, names: &mut ObjectNames) -> Vec<MigratedObject> {
        let mut rest = std::mem::take(&mut self.listeners);
        rest.sort_by_key(|listener| (listener.protocol, listener.port));
        let mut objects = Vec::new();
        while !rest.is_empty() {
            if !objects.is_empty() {
                self.comments.push(format!(
                    "Gateway {} holds {MOST_MERGED_LISTENERS} listeners; here are more.",
                    self.name
                ));
                self.name = names.unique("Gateway", &self.namespace, &self.name);
            }
            let later = rest.split_off(rest.len().min(MOST_MERGED_LISTENERS));
            self.finish_one(std::mem::replace(&mut rest, later), class, names, &mut objects);
        }
        objects
    }

    /// One Gateway with all of these listeners.
    fn finish_one(
        &mut self,
        mut listeners: Vec<ListenerDraft>,
        class: &str,
        names: &mut ObjectNames,
        objects: &mut Vec<MigratedObject>,
    ) {
        let mut further = listeners.split_off(listeners.len().min(MOST_LISTENERS));
        let manifest = self.gateway(class, &listeners, !further.is_empty());
        let left = std::mem::take(&mut self.left);
        objects.push(MigratedObject { comments: self.comments.clone(), left, manifest });
        let parent = Parent { kind: "Gateway", namespace: &self.namespace, name: &self.name };
        objects.extend(listeners.into_iter().map(|listener| listener.route(parent, names)));
        while !further.is_empty() {
            let later = further.split_off(further.len().min(MOST_LISTENERS));
            let listeners = std::mem::replace(&mut further, later);
            self.listener_set(listeners, names, objects);
        }
    }

    fn gateway(&self, class: &str, listeners: &[ListenerDraft], has_sets: bool) -> Value {
        let listeners: Vec<Value> = listeners.iter().map(|it| it.listener(&self.namespace)).collect();
        let mut spec = json!({"gatewayClassName": class, "listeners": listeners});
        if !self.addresses.is_empty() {
            let address = |ip: &IpAddr| json!({"type": GatewayAddress::IP_ADDRESS, "value": ip.to_string()});
            spec["addresses"] = self.addresses.iter().map(address).collect();
        }
        if !self.labels.is_empty() {
            spec["infrastructure"] = json!({"labels": self.labels});
        }
        if has_sets {
            spec["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
        }
        manifest("Gateway", &metadata(&self.namespace, &self.name, &self.annotations), &spec)
    }

    fn listener_set(
        &self,
        listeners: Vec<ListenerDraft>,
        names: &mut ObjectNames,
        objects: &mut Vec<MigratedObject>,
    ) {
        const KIND: &str = "ListenerSet";
        let gateway = &self.name;
        let name = names.unique(KIND, &self.namespace, gateway);
        let entries: Vec<Value> = listeners.iter().map(|it| it.listener(&self.namespace)).collect();
        let spec = json!({"parentRef": {"name": gateway}, "listeners": entries});
        let metadata = metadata(&self.namespace, &name, &BTreeMap::new());
        let comments =
            vec![format!("Gateway {gateway} holds {MOST_LISTENERS} listeners; here are more of it.")];
        objects.push(MigratedObject {
            comments,
            left: Vec::new(),
            manifest: manifest(KIND, &metadata, &spec),
        });
        let parent = Parent { kind: KIND, namespace: &self.namespace, name: &name };
        objects.extend(listeners.into_iter().map(|listener| listener.route(parent, names)));
    }
}

fn manifest(kind: &str, metadata: &Map<String, Value>, spec: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "spec": spec})
}

fn metadata(namespace: &str, name: &str, annotations: &BTreeMap<String, String>) -> Map<String, Value> {
    let mut metadata = Map::new();
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    metadata.insert("name".to_owned(), name.into());
    metadata.insert("namespace".to_owned(), namespace.into());
    metadata
}

/// The GatewayClass of this controller: the only one that was read, or else that of deploy/gateway-api.
pub(super) fn class_of(controller: &str, objects: &[RawObject]) -> String {
    let is_ours = |it: &&RawObject| {
        it.kind() == "GatewayClass"
            && it.group() == GROUP
            && it.at(&["spec", "controllerName"]).and_then(Value::as_str) == Some(controller)
            && is_object_name(it.name())
    };
    let mut classes = objects.iter().filter(is_ours).map(RawObject::name);
    match (classes.next(), classes.next()) {
        (Some(class), None) => class.to_owned(),
        _ => CLASS.to_owned(),
    }
}
