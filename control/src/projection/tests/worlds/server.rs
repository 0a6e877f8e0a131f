//! Objects of API servers as JSON, by kind and name, and the changes that they deliver: single changes, or whole lists.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::names::FINALIZER;
use crate::api::problem::reason;
use crate::api::store::{Change, Delta, ServiceKey};
use crate::controller::desired_status::{Desired, DesiredStatus};
use crate::controller::gateway_status::GatewayApiSubject;
use crate::controller::gateway_status::gateway::DesiredGateway;
use crate::controller::ownership::Ownership;
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::next_step::{Seen, WriteStep, next_step};
use crate::projection::Published;

/// A kind that is listed and watched separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Service,
    Slice,
    Node,
    Namespace,
    Pool,
    MultiClusterService,
    Template,
    CollectedWork,
    ServiceWork,
    Imported,
    Binding,
    Cluster,
    Class,
    Gateway,
    ListenerSet,
}

impl Kind {
    pub(super) const ALL: [Self; 15] = [
        Self::Service,
        Self::Slice,
        Self::Node,
        Self::Namespace,
        Self::Pool,
        Self::MultiClusterService,
        Self::Template,
        Self::CollectedWork,
        Self::ServiceWork,
        Self::Imported,
        Self::Binding,
        Self::Cluster,
        Self::Class,
        Self::Gateway,
        Self::ListenerSet,
    ];

    /// Whether Karmada's API server has it.
    pub(super) fn is_of_fleet(self) -> bool {
        matches!(
            self,
            Self::MultiClusterService
                | Self::Template
                | Self::CollectedWork
                | Self::ServiceWork
                | Self::Imported
                | Self::Binding
                | Self::Cluster
        )
    }

    /// Whether we write its objects, and the server counts their creations.
    fn is_ours(self) -> bool {
        matches!(self, Self::Service | Self::MultiClusterService) || self.has_generation()
    }

    fn has_generation(self) -> bool {
        matches!(self, Self::Gateway | Self::ListenerSet)
    }
}

/// Field of a MultiClusterService's status with the ports that are its own, which only these worlds read.
const OWN_PORTS: &str = "ownPorts";

/// Namespace and name; cluster-scoped objects have no namespace.
type Name = (String, String);

/// A write of a status that was sent, and that the API server has not carried out yet.
#[derive(Clone, Debug)]
pub(super) struct LateWrite {
    kind: Kind,
    pub(super) key: ServiceKey,
    /// The object that it was computed from.
    of: Value,
    body: Value,
}

impl LateWrite {
    /// Whether it is for the object with this metadata.
    pub(super) fn is_of(&self, metadata: &ObjectMeta) -> bool {
        self.of["metadata"]["uid"].as_str() == metadata.uid.as_deref()
    }

    /// What it publishes.
    pub(super) fn published(&self) -> Published {
        Published::written(self.key.source, &self.body["status"])
    }
}

/// Ports that a status publishes, by address.
pub(super) type PublishedPorts = BTreeMap<IpAddr, BTreeSet<(u16, String)>>;

/// Objects of both API servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    objects: BTreeMap<(Kind, Name), Value>,
    made: u32,
}

impl Server {
    /// Creates an object, or replaces all of it except its status and the fields that only the server writes.
    pub(super) fn put(&mut self, kind: Kind, mut object: Value) -> Change {
        let at = (kind, name(&object));
        let before = self.objects.get(&at);
        if kind.is_ours() {
            match before {
                Some(before) => {
                    for field in ["uid", "creationTimestamp", "finalizers", "deletionTimestamp"] {
                        object["metadata"][field] = before["metadata"][field].clone();
                    }
                    object["status"] = before["status"].clone();
                }
                None => {
                    self.made += 1;
                    object["metadata"]["uid"] = json!(format!("u{}", self.made));
                    object["metadata"]["creationTimestamp"] =
                        json!(format!("2026-01-01T00:{:02}:{:02}Z", self.made / 60 % 60, self.made % 60));
                }
            }
            object["metadata"]["resourceVersion"] = json!("1");
            if kind.has_generation() {
                let was = before.map(|it| it["metadata"]["generation"].as_i64().unwrap_or_default());
                let changed = before.is_none_or(|it| it["spec"] != object["spec"]);
                object["metadata"]["generation"] = json!(was.unwrap_or_default() + i64::from(changed));
            }
        }
        if kind == Kind::Service && object["spec"]["type"] != "LoadBalancer" {
            // As in the API server (pkg/registry/core/service, `dropTypeDependentFields`).
            object["status"]["loadBalancer"] = json!({});
        }
        self.set(kind, object)
    }

    /// Deletes an object if it exists. An object with our finalizer stays until that is removed.
    pub(super) fn delete(&mut self, kind: Kind, namespace: &str, name: &str) -> Option<Change> {
        let at = (kind, (namespace.to_owned(), name.to_owned()));
        let mut object = self.objects.get(&at)?.clone();
        if is_kept(&object) {
            object["metadata"]["deletionTimestamp"] = json!("2026-02-01T00:00:00Z");
            return Some(self.set(kind, object));
        }
        self.objects.remove(&at);
        Some(change(kind, News::Gone(&at.1)))
    }

    /// The controller's next write toward the desired state of an object.
    pub(super) fn next_write(&self, kind: Kind, key: &ServiceKey, desired: &Desired) -> WriteStep {
        let Some(object) = self.objects.get(&at(kind, key)) else { return WriteStep::Nothing };
        let exposed = match kind {
            Kind::Service => ServiceObject::Service(read(object)),
            _ => ServiceObject::MultiClusterService(read(object)),
        };
        let now = jiff::Timestamp::UNIX_EPOCH;
        // There are no other writers, so a cleared status is empty.
        let seen = Seen { object: &exposed, status_cleared: false, now };
        let mut step = next_step(&seen, desired, &Ownership::default());
        if let (WriteStep::ApplyStatus(body), Desired::Published(desired)) = (&mut step, desired)
            && kind == Kind::MultiClusterService
        {
            body["status"][OWN_PORTS] = Self::own_ports_of(object, desired);
        }
        step
    }

    /// Ports of a MultiClusterService with this status. It keeps the ports of an address while it is not known which it has.
    fn own_ports_of(object: &Value, desired: &DesiredStatus) -> Value {
        let mut own = json!({});
        for entry in &desired.ingress {
            let ip = entry.ip.to_string();
            let ports = entry.ports.iter().filter(|port| port.error != Some(reason::ADDRESS_IN_USE));
            own[&ip] = match entry.ports.is_empty() {
                true => object["status"][OWN_PORTS][&ip].clone(),
                false => ports.map(|port| json!([port.port, port.protocol])).collect(),
            };
        }
        own
    }

    /// The ports of a MultiClusterService, as the controller meant the status, by address. The API has no field for them.
    pub(super) fn own_ports(&self, key: &ServiceKey) -> PublishedPorts {
        let Some(object) = self.objects.get(&at(Kind::MultiClusterService, key)) else {
            return BTreeMap::new();
        };
        let entries = object["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
        let of_entry = |entry: &Value| {
            let ip = entry["ip"].as_str()?;
            let ports = serde_json::from_value(object["status"][OWN_PORTS][ip].clone()).unwrap_or_default();
            Some((ip.parse().ok()?, ports))
        };
        entries.filter_map(of_entry).collect()
    }

    /// The controller's next write to a Gateway.
    pub(super) fn next_gateway_write(&self, key: &ServiceKey, desired: Option<DesiredGateway>) -> WriteStep {
        let Some(object) = self.objects.get(&at(Kind::Gateway, key)) else { return WriteStep::Nothing };
        let subject = GatewayApiSubject::Gateway(read(object), desired.map(Arc::new));
        subject.next_step(false, jiff::Timestamp::UNIX_EPOCH)
    }

    /// Sends a write that arrives later, if it sets a status.
    pub(super) fn send(&self, kind: Kind, key: &ServiceKey, step: &WriteStep) -> Option<LateWrite> {
        let WriteStep::ApplyStatus(body) = step else { return None };
        let of = self.objects.get(&at(kind, key))?.clone();
        Some(LateWrite { kind, key: key.clone(), of, body: body.clone() })
    }

    /// Executes a write that was sent before. The API server refuses a status of another object, and addresses of a Service that is no
    /// load balancer; the status of a Gateway is written for one version only.
    pub(super) fn land(&mut self, LateWrite { kind, key, of, body }: LateWrite) -> Option<Change> {
        let there = self.objects.get(&at(kind, &key))?;
        let is_same = there["metadata"]["uid"] == of["metadata"]["uid"];
        let applies = match kind {
            Kind::Service => there["spec"]["type"] == "LoadBalancer",
            Kind::Gateway => *there == of,
            _ => true,
        };
        if is_same && applies { self.execute(kind, &key, WriteStep::ApplyStatus(body)) } else { None }
    }

    /// Executes a write.
    pub(super) fn execute(&mut self, kind: Kind, key: &ServiceKey, step: WriteStep) -> Option<Change> {
        let at = at(kind, key);
        let mut object = self.objects.get(&at)?.clone();
        match step {
            WriteStep::Nothing | WriteStep::Export(_) | WriteStep::PatchParents { .. } => return None,
            WriteStep::AddFinalizer(body) | WriteStep::RemoveFinalizer(body) => {
                object["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
            }
            WriteStep::RemoveRest(body) if kind == Kind::Gateway => {
                json_patch::merge(&mut object["status"], &body["status"]);
            }
            WriteStep::ApplyStatus(body) | WriteStep::RemoveRest(body) => {
                object["status"] = body["status"].clone();
            }
            WriteStep::ClearStatus(body) if kind == Kind::Gateway => {
                object["status"] = body["status"].clone();
            }
            WriteStep::ClearStatus(_) => object["status"] = json!({"loadBalancer": {}}),
        }
        if kind != Kind::Gateway && !object["metadata"]["deletionTimestamp"].is_null() && !is_kept(&object) {
            self.objects.remove(&at);
            return Some(change(kind, News::Gone(&at.1)));
        }
        Some(self.set(kind, object))
    }

    /// A new list of the kind.
    pub(super) fn list(&self, kind: Kind) -> Change {
        let all = self.objects.iter().filter(|((of, _), _)| *of == kind).map(|(_, object)| object);
        change(kind, News::All(all.collect()))
    }

    fn set(&mut self, kind: Kind, object: Value) -> Change {
        let change = change(kind, News::Put(&object));
        self.objects.insert((kind, name(&object)), object);
        change
    }
}

fn at(kind: Kind, key: &ServiceKey) -> (Kind, Name) {
    (kind, (key.namespace.to_string(), key.name.to_string()))
}

fn is_kept(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)))
}

fn name(object: &Value) -> Name {
    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (field("namespace"), field("name"))
}

enum News<'a> {
    Put(&'a Value),
    Gone(&'a Name),
    All(Vec<&'a Value>),
}

fn change(kind: Kind, news: News<'_>) -> Change {
    match kind {
        Kind::Service => Change::Services(delta(news)),
        Kind::Slice => Change::Slices(delta(news)),
        Kind::Node => Change::Nodes(delta(news)),
        Kind::Namespace => Change::Namespaces(delta(news)),
        Kind::Pool => Change::Pools(delta(news)),
        Kind::MultiClusterService => Change::MultiClusterServices(delta(news)),
        Kind::Template => Change::Templates(delta(news)),
        Kind::CollectedWork => Change::CollectedWorks(delta(news)),
        Kind::ServiceWork => Change::ServiceWorks(delta(news)),
        Kind::Imported => Change::Imported(delta(news)),
        Kind::Binding => Change::Bindings(delta(news)),
        Kind::Cluster => Change::Clusters(delta(news)),
        Kind::Class => Change::GatewayClasses(delta(news)),
        Kind::Gateway => Change::Gateways(delta(news)),
        Kind::ListenerSet => Change::ListenerSets(delta(news)),
    }
}

fn delta<T: DeserializeOwned>(news: News<'_>) -> Delta<T> {
    match news {
        News::Put(object) => Delta::Put(read(object)),
        News::Gone((namespace, name)) => {
            Delta::Gone { namespace: namespace.as_str().into(), name: name.as_str().into() }
        }
        News::All(objects) => Delta::All(objects.into_iter().map(read).collect()),
    }
}

fn read<T: DeserializeOwned>(object: &Value) -> Arc<T> {
    Arc::new(T::deserialize(object).unwrap_or_else(|why| panic!("{why}: {object}")))
}
