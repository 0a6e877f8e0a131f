//! Properties of each type of API object: where it is served, which fields are pruned before it is kept, and which of its changes
//! matter.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::address_pool::AddressPool;
use super::gateway_api::{
    Breach, Gateway, GatewayClass, ListenerSet, ReferenceGrant, TcpRoute, TlsRoute, UdpRoute, rules,
};
use super::karmada::{Cluster, Manifest, MultiClusterService, ResourceBinding, Work};
use super::owners::unreadable_owner;
use super::problem::Problem;
use super::prune;
use super::service_import::ServiceImport;

/// Annotation with the time of the Pod change that made the EndpointSlice controller write a slice
/// (`EndpointsLastChangeTriggerTime`).
const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Names and API path of a type.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// Kind, as in manifests.
    pub kind: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// Group and version, as in manifests.
    pub api_version: &'static str,
    /// Plural, as in URLs and the rules of a ClusterRole.
    pub plural: &'static str,
    /// Whether the objects are in namespaces.
    pub namespaced: bool,
}

impl Resource {
    const fn of<T: k8s_openapi::Resource>(namespaced: bool) -> Self {
        let (kind, plural) = (T::KIND, T::URL_PATH_SEGMENT);
        Self { kind, group: T::GROUP, api_version: T::API_VERSION, plural, namespaced }
    }

    /// URL path that lists the objects of all namespaces.
    pub(crate) fn path(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/{}", self.api_version, self.plural)
    }

    /// Whether every API server serves it. A group that ends in `.k8s.io` may belong to a CustomResourceDefinition as well.
    pub(crate) fn is_built_in(&self) -> bool {
        matches!(self.group, "" | "discovery.k8s.io")
    }

    /// Plural with its group, as `kubectl` accepts it and CustomResourceDefinitions are named.
    pub(crate) fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// A type of API object.
pub trait ApiObject:
    kube::Resource<DynamicType = ()>
    + DeserializeOwned
    + Serialize
    + Clone
    + Debug
    + PartialEq
    + Send
    + Sync
    + 'static
{
    /// Names and API path of the type.
    const RESOURCE: Resource;

    /// Whether anything outside metadata changed that a decision depends on.
    fn content_differs(&self, old: &Self) -> bool;

    /// Whether anything in metadata changed that a decision depends on.
    fn metadata_differs(&self, old: &Self) -> bool {
        metadata_differs(old.meta(), self.meta())
    }

    /// Removes fields that are never read.
    fn prune(_object: &mut Map<String, Value>) {}

    /// A Problem with an object that decodes, if only its reader can report it.
    fn warning(&self) -> Option<Problem> {
        None
    }

    /// Corrects what an API server would refuse, and returns that. For objects from manifests.
    fn correct(&mut self) -> Vec<Breach> {
        Vec::new()
    }

    /// Time of the latest change that the object reports, according to its writer.
    fn triggered(&self) -> Option<&str> {
        None
    }
}

/// Whether the new version of an object differs in anything that a decision depends on.
pub(super) fn differs<T: ApiObject>(old: &T, new: &T) -> bool {
    new.content_differs(old) || new.metadata_differs(old)
}

/// Ignores what every write changes: versions and field managers.
fn metadata_differs(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    old.labels != new.labels
        || old.annotations != new.annotations
        || old.deletion_timestamp != new.deletion_timestamp
        || old.creation_timestamp != new.creation_timestamp
        || old.finalizers != new.finalizers
        || old.uid != new.uid
        || old.name != new.name
        || old.namespace != new.namespace
}

impl ApiObject for Service {
    const RESOURCE: Resource = Resource::of::<Self>(true);

    fn content_differs(&self, old: &Self) -> bool {
        old.spec != self.spec || old.status != self.status
    }
}

impl ApiObject for EndpointSlice {
    const RESOURCE: Resource = Resource::of::<Self>(true);

    fn content_differs(&self, old: &Self) -> bool {
        old.endpoints != self.endpoints || old.ports != self.ports || old.address_type != self.address_type
    }

    fn prune(object: &mut Map<String, Value>) {
        prune::slice(object);
    }

    fn triggered(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(LAST_CHANGE_TRIGGER_TIME).map(String::as_str)
    }
}

impl ApiObject for Node {
    const RESOURCE: Resource = Resource::of::<Self>(false);

    /// Compares only the addresses of the status: conditions, images and the like change with every heartbeat of a kubelet (by
    /// default every 5 minutes, and with every image pulled), and each change here projects every Service again.
    fn content_differs(&self, old: &Self) -> bool {
        let addresses = |node: &Self| node.status.as_ref().and_then(|status| status.addresses.clone());
        old.spec != self.spec || addresses(old) != addresses(self)
    }

    fn prune(object: &mut Map<String, Value>) {
        prune::node(object);
    }
}

impl ApiObject for Namespace {
    const RESOURCE: Resource = Resource::of::<Self>(false);

    fn content_differs(&self, _old: &Self) -> bool {
        false
    }

    /// Compares only labels, which the selectors of pools read: each change here projects every Service of the Namespace again.
    fn metadata_differs(&self, old: &Self) -> bool {
        old.metadata.labels != self.metadata.labels
    }

    fn prune(object: &mut Map<String, Value>) {
        prune::namespace(object);
    }
}

impl ApiObject for AddressPool {
    const RESOURCE: Resource = Resource::of::<Self>(false);

    fn content_differs(&self, old: &Self) -> bool {
        old.spec != self.spec
    }
}

macro_rules! gateway_api_object {
    ($($type:ty: $namespaced:literal, $($field:ident),+ $(=> $correct:expr)?;)+) => {$(
        impl ApiObject for $type {
            const RESOURCE: Resource = Resource::of::<Self>($namespaced);

            /// Compares the generation as well: conditions repeat it, even where nothing changed that is read.
            fn content_differs(&self, old: &Self) -> bool {
                old.metadata.generation != self.metadata.generation $(|| old.$field != self.$field)+
            }

            $(fn correct(&mut self) -> Vec<Breach> {
                ($correct)(self)
            })?
        }
    )+};
}

gateway_api_object! {
    GatewayClass: false, spec, status => |class: &mut Self| rules::of_class(class);
    Gateway: true, spec, status => rules::of_gateway;
    ListenerSet: true, spec, status => rules::of_listener_set;
    TcpRoute: true, spec, status => |route: &mut Self| rules::of_route(&mut route.spec);
    UdpRoute: true, spec, status => |route: &mut Self| rules::of_route(&mut route.spec);
    TlsRoute: true, spec, status => |route: &mut Self| rules::of_tls_route(&mut route.spec);
    ReferenceGrant: true, spec;
    ServiceImport: true, spec;
}

impl ApiObject for MultiClusterService {
    const RESOURCE: Resource = Resource::of::<Self>(true);

    fn content_differs(&self, old: &Self) -> bool {
        old.spec != self.spec || old.status != self.status
    }
}

impl ApiObject for Work {
    const RESOURCE: Resource = Resource::of::<Self>(true);

    fn content_differs(&self, old: &Self) -> bool {
        old.manifests() != self.manifests() || old.manifest_statuses() != self.manifest_statuses()
    }

    fn prune(object: &mut Map<String, Value>) {
        prune::work(object);
    }

    fn warning(&self) -> Option<Problem> {
        unreadable_owner(self)
    }

    fn triggered(&self) -> Option<&str> {
        self.manifests().iter().find_map(|manifest| match manifest {
            Manifest::EndpointSlice(slice) => slice.triggered(),
            _ => None,
        })
    }
}

impl ApiObject for ResourceBinding {
    const RESOURCE: Resource = Resource::of::<Self>(true);

    fn content_differs(&self, old: &Self) -> bool {
        old.spec != self.spec || old.status != self.status
    }
}

impl ApiObject for Cluster {
    const RESOURCE: Resource = Resource::of::<Self>(false);

    /// Karmada writes the status every ten seconds (`cluster-status-update-frequency`). Messages of conditions are ignored,
    /// because they report the latest attempt; a condition counts as changed when it transitions.
    fn content_differs(&self, old: &Self) -> bool {
        let conditions = |cluster: &Self| -> Vec<_> {
            let conditions = cluster.status.conditions.iter().cloned();
            conditions.map(|it| (it.type_, it.status, it.last_transition_time, it.reason)).collect()
        };
        old.spec != self.spec
            || old.status.remedy_actions != self.status.remedy_actions
            || old.status.api_enablements != self.status.api_enablements
            || conditions(old) != conditions(self)
    }
}
