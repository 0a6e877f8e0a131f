//! Table of the kinds that Sheave reads: their API server, where they are kept, and what a change affects. Watch, store,
//! snapshot, manifests, mass deletion guard and metrics are driven by it. A new kind is an [`ApiObject`] and a row here.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use serde_json::Value;

use super::address_pool::AddressPool;
use super::dependents;
use super::gateway_api::{
    self, Gateway, GatewayClass, ListenerSet, ReferenceGrant, TcpRoute, TlsRoute, UdpRoute,
};
use super::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};
use super::object::{ApiObject, Resource};
use super::objects::{Collection, ObjectKey, Objects};
use super::owners::{
    binding_owner, import_owner, imported_owner, name_of, namespace_of, service_key, slice_owner, work_owner,
};
use super::routes::RouteCollection;
use super::service_import::{self, ServiceImport};
use super::service_key::ServiceKey;

/// The API server that objects come from, or whose manifests a folder has. Several kinds exist on both, with different meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlPlane {
    /// The API server of the cluster that the gateways run in.
    Local,
    /// A Karmada control plane.
    Karmada,
}

/// How important a kind is: what happens while it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No Service is served until it is known.
    Required,
    /// Everything else works without it. If reading it is forbidden, startup goes on without it.
    Optional,
    /// Like `Optional`, but startup waits for it only briefly, however it fails.
    Spared,
}

/// Scope of a change: the Services to project again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affects {
    /// The Service or MultiClusterService that the object belongs to.
    Owner,
    /// All Services.
    All,
    /// The Services in the Namespace of that name.
    Namespace,
    /// All MultiClusterServices.
    Fleet,
    /// Only the [dependents](Kind::dependents).
    Dependents,
}

/// The Service or MultiClusterService whose key an object is kept under.
#[derive(Clone, Copy, Debug)]
pub enum Owner<T> {
    /// The Service with the object's own name.
    Service,
    /// The MultiClusterService with the object's own name.
    MultiClusterService,
    /// The Gateway with the object's own name.
    Gateway,
    /// The one that the object refers to, if any. A deletion does not name it, so the store keeps an index.
    Of(fn(&T) -> Option<ServiceKey>),
}

/// A definition that an administrator may install or remove at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// API group.
    pub group: &'static str,
    /// Plural, as in URLs.
    pub plural: &'static str,
    /// Group and version of each version that can be read, the preferred one first. All have the same schema.
    pub api_versions: &'static [&'static str],
    /// Group and version of an older one with another schema.
    pub outdated: Option<&'static str>,
}

/// A row of the table, without its type parameters.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Names and API path of the type.
    pub resource: Resource,
    /// API server that it is read from.
    pub plane: ControlPlane,
    /// Label selector of the objects; empty selects all.
    pub selector: &'static str,
    /// Effect while it cannot be read.
    pub need: Need,
    /// Advice if its CustomResourceDefinition is missing; `None` for built-in kinds.
    pub remedy: Option<&'static str>,
    /// The definition without which the kind is not watched; of the kind itself, or of the one that gives it a use.
    pub definition: Option<Definition>,
    /// Key of its lines in a snapshot. Other versions read it, so it never changes.
    pub line: &'static str,
    /// Name in messages of the mass deletion guard; `None` if every list is accepted.
    pub guarded_as: Option<&'static str>,
    /// Smallest number of known objects from which on the guard holds back the loss of nearly all.
    pub guarded_from: usize,
    /// Scope of a change.
    pub affects: Affects,
}

/// A kind that is read from an API server, or a subset of its objects.
pub trait Kind: Send + Sync + 'static {
    /// Type of the objects.
    type Object: ApiObject;
    /// Type of the collection that keeps them.
    type Objects: Collection<Object = Self::Object>;
    /// Row of the table.
    const ROW: Row;
    /// Rule for the key that they are kept under.
    const OWNER: Owner<Self::Object>;

    /// A [`Change`] of this kind.
    fn change(delta: Delta<Self::Object>) -> Change;
    /// The collection of this kind.
    fn collection(objects: &Objects) -> &Self::Objects;
    /// The mutable collection of this kind.
    fn collection_mut(objects: &mut Objects) -> &mut Self::Objects;
    /// Whether a watched object belongs to this kind, as far as the label selector cannot decide.
    fn concerns(_object: &Value) -> bool {
        true
    }
    /// Whether an object in the collection belongs to this kind.
    fn includes(_object: &Self::Object) -> bool {
        true
    }

    /// Calls `affected` for each Gateway that depends on this object. Called with the old and with the new object of a change.
    fn dependents(_objects: &Objects, _object: &Self::Object, _affected: &mut dyn FnMut(ServiceKey)) {}

    /// All kept objects of this kind.
    fn all(objects: &Objects) -> impl Iterator<Item = &Arc<Self::Object>> {
        Self::collection(objects).iter().filter(|object| Self::includes(object))
    }

    /// Key that the object is kept under; `None` if it refers to no Service.
    fn owner(object: &Self::Object) -> Option<ServiceKey> {
        match Self::OWNER {
            Owner::Of(owner) => owner(object),
            _ => Some(Self::own_key(&object_key(object.meta()))),
        }
    }

    /// The Service or MultiClusterService with this name.
    fn own_key((namespace, name): &ObjectKey) -> ServiceKey {
        match Self::OWNER {
            Owner::MultiClusterService => ServiceKey::multi_cluster(namespace, name),
            Owner::Gateway => ServiceKey::gateway(namespace, name),
            Owner::Service | Owner::Of(_) => ServiceKey::of_service(namespace.clone(), name.clone()),
        }
    }
}

/// A change of the objects of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta<T> {
    /// An object was added or changed.
    Put(Arc<T>),
    /// An object was removed; the namespace is empty for cluster-scoped kinds.
    Gone {
        /// The object's namespace.
        namespace: Arc<str>,
        /// The object's name.
        name: Arc<str>,
    },
    /// The complete set of objects, as after a list: any other object is gone.
    All(Vec<Arc<T>>),
}

/// An operation that runs for each kind.
pub trait KindVisitor {
    /// Called for each row, in the order of the table.
    fn visit<K: Kind>(&mut self);
}

/// An operation on a change of any kind.
pub trait ChangeVisitor {
    /// Result of the operation.
    type Output;
    /// Called with the kind of the change.
    fn visit<K: Kind>(self, delta: Delta<K::Object>) -> Self::Output;
}

/// Namespace and name.
pub(crate) fn object_key(metadata: &ObjectMeta) -> ObjectKey {
    (namespace_of(metadata), name_of(metadata))
}

/// Fewer objects than this may disappear at once, as happens in small clusters.
const PLENTY: usize = 10;
/// For kinds of which a cluster has few, and many other objects depend on each.
const ANY: usize = 1;

/// A row with the defaults: a required built-in kind. The table overrides fields as needed.
const fn row<T: ApiObject>(plane: ControlPlane, line: &'static str) -> Row {
    Row {
        resource: T::RESOURCE,
        plane,
        selector: "",
        need: Need::Required,
        remedy: None,
        definition: None,
        line,
        guarded_as: None,
        guarded_from: PLENTY,
        affects: Affects::Owner,
    }
}

macro_rules! kinds {
    ($(
        $(#[doc = $doc:literal])*
        $kind:ident($object:ty) in $($field:ident).+: $objects:ty, of $owner:expr,
            $plane:ident $line:literal { $($name:ident: $value:expr),* } $({ $($extra:item)* })?;
    )*) => {
        /// A change of one kind of object.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Change {
            $($(#[doc = $doc])* $kind(Delta<$object>),)*
        }

        impl Change {
            /// Calls the visitor with the delta and its kind.
            pub fn visit<V: ChangeVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$kind(delta) => visitor.visit::<$kind>(delta),)*
                }
            }
        }

        /// All rows of the table.
        pub const KINDS: &[Row] = &[$($kind::ROW),*];

        /// Calls the visitor for each row of the table.
        pub fn visit_kinds(visitor: &mut impl KindVisitor) {
            $(visitor.visit::<$kind>();)*
        }

        $(
            $(#[doc = $doc])*
            #[derive(Debug)]
            pub enum $kind {}

            impl Kind for $kind {
                type Object = $object;
                type Objects = $objects;
                const OWNER: Owner<$object> = $owner;
                const ROW: Row = Row { $($name: $value,)* ..row::<$object>(ControlPlane::$plane, $line) };

                fn change(delta: Delta<$object>) -> Change {
                    Change::$kind(delta)
                }

                fn collection(objects: &Objects) -> &$objects {
                    &objects.$($field).+
                }

                fn collection_mut(objects: &mut Objects) -> &mut $objects {
                    &mut objects.$($field).+
                }

                $($($extra)*)?
            }
        )*
    };
}

/// Objects with one key each.
type Flat<P, T> = BTreeMap<P, Arc<T>>;
/// Objects of which a Service can have many.
type Nested<P, T> = BTreeMap<ServiceKey, BTreeMap<P, Arc<T>>>;

/// Advice for kinds that only a Karmada API server serves.
const NO_KARMADA: Option<&str> = Some(
    "nothing is served across clusters. The server is none of a Karmada control plane: `karmada.kubeconfig` in the config has \
     to name the Karmada API server, which is neither that of its host cluster nor of a member",
);

/// Advice for kinds of the Gateway API.
const NO_GATEWAY_API: Option<&str> = Some(
    "Services are not affected. `kubectl apply -f https://github.com/kubernetes-sigs/gateway-api/releases/download/v1.6.1/\
     standard-install.yaml` installs it",
);
/// Advice for ServiceImports.
const NO_SERVICE_IMPORTS: Option<&str> = Some(
    "everything else works. An implementation of the Multi-Cluster Services API, for example Submariner or Karmada, installs it",
);

/// Definition of a kind of the Gateway API. Before its release 1.6, routes had version v1alpha2.
const fn of_gateway_api(plural: &'static str, outdated: Option<&'static str>) -> Definition {
    let api_versions = &["gateway.networking.k8s.io/v1"];
    Definition { group: gateway_api::GROUP, plural, api_versions, outdated }
}

/// Version of routes before release 1.6 of the Gateway API.
const OLD_ROUTES: Option<&str> = Some("gateway.networking.k8s.io/v1alpha2");
const REFERENCE_GRANTS: Option<Definition> = Some(Definition {
    group: gateway_api::GROUP,
    plural: "referencegrants",
    api_versions: &["gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1beta1"],
    outdated: None,
});
const SERVICE_IMPORTS: Option<Definition> = Some(Definition {
    group: service_import::GROUP,
    plural: "serviceimports",
    api_versions: &["multicluster.x-k8s.io/v1beta1", "multicluster.x-k8s.io/v1alpha1"],
    outdated: None,
});

// Guarded kinds: a wrong list of one would take traffic away. Only imported slices are not: they repeat what Works contain.
kinds! {
    /// Services.
    Services(Service) in services: Flat<ServiceKey, Service>, of Owner::Service,
        Local "service" { guarded_as: Some("Service") } {
            fn dependents(objects: &Objects, service: &Service, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_backend(objects, &service_key(&service.metadata), affected);
            }
        };
    /// EndpointSlices.
    Slices(EndpointSlice) in slices: Nested<Arc<str>, EndpointSlice>, of Owner::Of(slice_owner),
        Local "slice" { guarded_as: Some("EndpointSlice") };
    /// Nodes.
    Nodes(Node) in nodes: Flat<Arc<str>, Node>, of Owner::Service,
        Local "node" { guarded_as: Some("Node"), guarded_from: ANY, affects: Affects::All };
    /// Namespaces, for the selectors of pools and of Gateways.
    Namespaces(Namespace) in namespaces: Flat<Arc<str>, Namespace>, of Owner::Service,
        Local "namespace" {
            need: Need::Optional,
            guarded_as: Some("Namespace"),
            guarded_from: ANY,
            affects: Affects::Namespace
        } {
            fn dependents(objects: &Objects, namespace: &Namespace, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_namespace(objects, &name_of(&namespace.metadata), affected);
            }
        };
    /// AddressPools.
    Pools(AddressPool) in pools: Flat<Arc<str>, AddressPool>, of Owner::Service,
        Local "pool" {
            need: Need::Optional,
            guarded_as: Some("AddressPool"),
            guarded_from: ANY,
            affects: Affects::All,
            remedy: Some("everything else works. `kubectl apply -k deploy/base` installs it")
        };
    /// GatewayClasses.
    GatewayClasses(GatewayClass) in gateway_api.classes: Flat<Arc<str>, GatewayClass>, of Owner::Service,
        Local "gatewayClass" {
            need: Need::Optional,
            remedy: NO_GATEWAY_API,
            definition: Some(of_gateway_api("gatewayclasses", None)),
            guarded_as: Some("GatewayClass"),
            guarded_from: ANY,
            affects: Affects::Dependents
        } {
            fn dependents(objects: &Objects, class: &GatewayClass, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_class(objects, &name_of(&class.metadata), affected);
            }
        };
    /// Gateways.
    Gateways(Gateway) in gateway_api.gateways: Flat<ServiceKey, Gateway>, of Owner::Gateway,
        Local "gateway" {
            need: Need::Optional,
            remedy: NO_GATEWAY_API,
            definition: Some(of_gateway_api("gateways", None)),
            guarded_as: Some("Gateway")
        };
    /// ListenerSets.
    ListenerSets(ListenerSet) in gateway_api.listener_sets: Flat<ObjectKey, ListenerSet>, of Owner::Service,
        Local "listenerSet" {
            need: Need::Optional,
            remedy: NO_GATEWAY_API,
            definition: Some(of_gateway_api("listenersets", None)),
            guarded_as: Some("ListenerSet"),
            affects: Affects::Dependents
        } {
            fn dependents(_objects: &Objects, set: &ListenerSet, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_listener_set(set, affected);
            }
        };
    /// TCPRoutes.
    TcpRoutes(TcpRoute) in gateway_api.tcp_routes: RouteCollection<TcpRoute>, of Owner::Service,
        Local "tcpRoute" {
            need: Need::Optional,
            remedy: NO_GATEWAY_API,
            definition: Some(of_gateway_api("tcproutes", OLD_ROUTES)),
            guarded_as: Some("TCPRoute"),
            affects: Affects::Dependents
        } {
            fn dependents(objects: &Objects, route: &TcpRoute, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_route(objects, &route.metadata, &route.spec, affected);
            }
        };
    /// UDPRoutes.
    UdpRoutes(UdpRoute) in gateway_api.udp_routes: RouteCollection<UdpRoute>, of Owner::Service,
        Local "udpRoute" {
            need: Need::Optional,
            remedy: NO_GATEWAY_API,
            definition: Some(of_gateway_api("udproutes", OLD_ROUTES)),
            guarded_as: Some("UDPRoute"),
            affects: Affects::Dependents
        } {
            fn dependents(objects: &Objects, route: &UdpRoute, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_route(objects, &route.metadata, &route.spec, affected);
            }
        };
    /// TLSRoutes.
    TlsRoutes(TlsRoute) in gateway_api.tls_routes: RouteCollection<TlsRoute>, of Owner::Service,
        Local "tlsRoute" {
            need: Need::Optional,
            remedy: NO_GATEWAY_API,
            definition: Some(of_gateway_api("tlsroutes", OLD_ROUTES)),
            guarded_as: Some("TLSRoute"),
            affects: Affects::Dependents
        } {
            fn dependents(objects: &Objects, route: &TlsRoute, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_route(objects, &route.metadata, &route.spec, affected);
            }
        };
    /// ReferenceGrants.
    ReferenceGrants(ReferenceGrant) in gateway_api.grants: Flat<ObjectKey, ReferenceGrant>, of Owner::Service,
        Local "referenceGrant" {
            need: Need::Optional,
            remedy: NO_GATEWAY_API,
            definition: REFERENCE_GRANTS,
            guarded_as: Some("ReferenceGrant"),
            affects: Affects::Dependents
        } {
            fn dependents(objects: &Objects, grant: &ReferenceGrant, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_grants_in(objects, &namespace_of(&grant.metadata), affected);
            }
        };
    /// ServiceImports.
    ServiceImports(ServiceImport) in gateway_api.imports: Flat<ObjectKey, ServiceImport>, of Owner::Service,
        Local "serviceImport" {
            need: Need::Optional,
            remedy: NO_SERVICE_IMPORTS,
            definition: SERVICE_IMPORTS,
            guarded_as: Some("ServiceImport"),
            affects: Affects::Dependents
        } {
            fn dependents(objects: &Objects, import: &ServiceImport, affected: &mut dyn FnMut(ServiceKey)) {
                dependents::of_backend(objects, &service_key(&import.metadata), affected);
            }
        };
    /// EndpointSlices of ServiceImports. A slice with the label of a Service as well is of both.
    ImportSlices(EndpointSlice) in gateway_api.import_slices: Nested<Arc<str>, EndpointSlice>,
        of Owner::Of(import_owner),
        Local "importSlice" {
            selector: "multicluster.kubernetes.io/service-name",
            need: Need::Optional,
            definition: SERVICE_IMPORTS,
            guarded_as: Some("imported EndpointSlice"),
            affects: Affects::Dependents
        } {
            fn dependents(objects: &Objects, slice: &EndpointSlice, affected: &mut dyn FnMut(ServiceKey)) {
                import_owner(slice).iter().for_each(|owner| dependents::of_backend(objects, owner, affected));
            }
        };
    /// MultiClusterServices.
    MultiClusterServices(MultiClusterService) in fleet.services: Flat<ServiceKey, MultiClusterService>,
        of Owner::MultiClusterService,
        Karmada "multiClusterService" { guarded_as: Some("MultiClusterService"), remedy: NO_KARMADA };
    /// Services on the Karmada API server: the templates of the Services in member clusters.
    Templates(Service) in fleet.templates: Flat<ServiceKey, Service>, of Owner::MultiClusterService,
        Karmada "template" { guarded_as: Some("template Service") };
    /// Works with EndpointSlices that Karmada collected from member clusters. Copies dispatched to other clusters do not have the
    /// label. A list of these Works does not cover other Works.
    CollectedWorks(Work) in fleet.works: Nested<ObjectKey, Work>, of Owner::Of(work_owner),
        Karmada "work" {
            selector: "endpointslice.karmada.io/managed-by",
            guarded_as: Some("collected Work"),
            remedy: NO_KARMADA
        } {
            fn includes(work: &Work) -> bool {
                work.is_collected()
            }
        };
    /// Works that bring Services to member clusters and report their status there. Every propagated object has such a Work; most
    /// are not for a Service, and no label holds the kind.
    ServiceWorks(Work) in fleet.works: Nested<ObjectKey, Work>, of Owner::Of(work_owner),
        Karmada "work" {
            selector: "resourcebinding.karmada.io/permanent-id,!endpointslice.karmada.io/managed-by",
            guarded_as: Some("Work"),
            remedy: NO_KARMADA
        } {
            fn includes(work: &Work) -> bool {
                !work.is_collected()
            }
            fn concerns(object: &Value) -> bool {
                let manifests = object["spec"]["workload"]["manifests"].as_array();
                let is_service = |it: &Value| it["kind"] == "Service" && it["apiVersion"] == "v1";
                manifests.is_some_and(|manifests| manifests.iter().any(is_service))
            }
        };
    /// EndpointSlices that Karmada imported from member clusters, without a label selector: v1.10 sets no label that identifies
    /// them.
    Imported(EndpointSlice) in fleet.imported: Nested<Arc<str>, EndpointSlice>, of Owner::Of(imported_owner),
        Karmada "imported" {};
    /// ResourceBindings of Services.
    Bindings(ResourceBinding) in fleet.bindings: Flat<ServiceKey, ResourceBinding>, of Owner::Of(binding_owner),
        Karmada "binding" { guarded_as: Some("ResourceBinding"), remedy: NO_KARMADA } {
            fn concerns(object: &Value) -> bool {
                object["spec"]["resource"]["kind"] == "Service"
            }
        };
    /// Member clusters. `karmada-aggregated-apiserver` serves them and can be unavailable while everything else works.
    Clusters(Cluster) in fleet.clusters: Flat<Arc<str>, Cluster>, of Owner::MultiClusterService,
        Karmada "cluster" { need: Need::Spared, guarded_as: Some("Cluster"), affects: Affects::Fleet };
}

/// Number of objects of each kind from an API server, in the order of the table.
pub fn counts(plane: ControlPlane, objects: &Objects) -> Vec<(&'static str, usize)> {
    let mut counts = Counts { plane, objects, counts: Vec::new() };
    visit_kinds(&mut counts);
    counts.counts
}

struct Counts<'a> {
    plane: ControlPlane,
    objects: &'a Objects,
    counts: Vec<(&'static str, usize)>,
}

impl KindVisitor for Counts<'_> {
    fn visit<K: Kind>(&mut self) {
        if K::ROW.plane != self.plane {
            return;
        }
        let (kind, count) = (K::ROW.resource.kind, K::all(self.objects).count());
        match self.counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += count,
            None => self.counts.push((kind, count)),
        }
    }
}
