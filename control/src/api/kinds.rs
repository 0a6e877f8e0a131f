//! The table of the kinds that are read: from which API server, where they are kept, and what follows from a change. Watch,
//! store, snapshot, manifests, guard and metrics go by it. A new kind is an [`ApiObject`] and a row here.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use serde_json::Value;

use super::address_pool::AddressPool;
use super::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};
use super::object::{ApiObject, Resource};
use super::objects::{Collection, ObjectKey, Objects};
use super::owners::{binding_owner, imported_owner, name_of, namespace_of, slice_owner, work_owner};
use super::service_key::ServiceKey;

/// Which API server objects are from, or whose manifests are in a folder: several kinds are on both, and mean something else
/// on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlPlane {
    /// That of the cluster in which the gateways run.
    Local,
    /// A Karmada control plane.
    Karmada,
}

/// What happens to everything else while a kind cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing is served before it is known.
    Required,
    /// Everything else works without it. If reading it is forbidden, it counts as empty.
    Optional,
    /// The same, but what cannot be read never counts as empty, and is waited for only a moment.
    Spared,
}

/// What a change of an object makes a difference to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affects {
    /// The Service or MultiClusterService that it is about.
    Owner,
    /// Any Service.
    All,
    /// The Services of the Namespace of its name.
    Namespace,
    /// Every MultiClusterService.
    Fleet,
}

/// Under which Service or MultiClusterService an object is kept.
#[derive(Clone, Copy, Debug)]
pub enum Owner<T> {
    /// The Service of its own name.
    Service,
    /// The MultiClusterService of its own name.
    MultiClusterService,
    /// The one that it is about, if any. A deletion does not name it, so the store keeps an index.
    Of(fn(&T) -> Option<ServiceKey>),
}

/// A row of the table, as far as it is the same for all types.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// How the type is called and served.
    pub resource: Resource,
    /// Where it is read.
    pub plane: ControlPlane,
    /// Which labels the objects must have; empty = any.
    pub selector: &'static str,
    /// What happens while it cannot be read.
    pub need: Need,
    /// What to do where its CustomResourceDefinition is missing; none for built-in kinds.
    pub remedy: Option<&'static str>,
    /// The key of its lines in a snapshot. Never renamed: other versions read them.
    pub line: &'static str,
    /// What the mass deletion guard calls it; none where lists are accepted as they are.
    pub guarded_as: Option<&'static str>,
    /// What a change makes a difference to.
    pub affects: Affects,
}

/// A kind that is read from an API server, or one part of its objects.
pub trait Kind: Send + Sync + 'static {
    /// The type of its objects.
    type Object: ApiObject;
    /// Where they are kept.
    type Objects: Collection<Object = Self::Object>;
    /// What is known of it.
    const ROW: Row;
    /// Under what they are kept.
    const OWNER: Owner<Self::Object>;

    /// News of it.
    fn change(delta: Delta<Self::Object>) -> Change;
    /// Where they are kept.
    fn collection(objects: &Objects) -> &Self::Objects;
    /// Where they are kept.
    fn collection_mut(objects: &mut Objects) -> &mut Self::Objects;
    /// Whether a watched object is one of them, as far as labels cannot tell.
    fn concerns(_object: &Value) -> bool {
        true
    }
    /// Whether an object of its collection is one of them.
    fn includes(_object: &Self::Object) -> bool {
        true
    }

    /// Those that are kept.
    fn all(objects: &Objects) -> impl Iterator<Item = &Arc<Self::Object>> {
        Self::collection(objects).iter().filter(|object| Self::includes(object))
    }

    /// What it is kept under; none if it is about nothing.
    fn owner(object: &Self::Object) -> Option<ServiceKey> {
        match Self::OWNER {
            Owner::Of(owner) => owner(object),
            _ => Some(Self::own_key(&object_key(object.meta()))),
        }
    }

    /// The Service or MultiClusterService of this name.
    fn own_key((namespace, name): &ObjectKey) -> ServiceKey {
        match Self::OWNER {
            Owner::MultiClusterService => ServiceKey::multi_cluster(namespace, name),
            Owner::Service | Owner::Of(_) => ServiceKey::of_service(namespace.clone(), name.clone()),
        }
    }
}

/// What became of the objects of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta<T> {
    /// One came or changed.
    Put(Arc<T>),
    /// One went; its namespace is empty for cluster-scoped kinds.
    Gone {
        /// The object's namespace.
        namespace: Arc<str>,
        /// The object's name.
        name: Arc<str>,
    },
    /// These are all there are, as after a list: whatever is missing is gone.
    All(Vec<Arc<T>>),
}

/// Does the same for each kind.
pub trait KindVisitor {
    /// Once for each row, in the order of the table.
    fn visit<K: Kind>(&mut self);
}

/// Does something with a change, whatever its kind.
pub trait ChangeVisitor {
    /// What comes of it.
    type Output;
    /// Called with the kind of the change.
    fn visit<K: Kind>(self, delta: Delta<K::Object>) -> Self::Output;
}

/// Namespace and name.
pub(crate) fn object_key(metadata: &ObjectMeta) -> ObjectKey {
    (namespace_of(metadata), name_of(metadata))
}

/// A row of a built-in kind without which nothing is served; the table says what is different.
const fn row<T: ApiObject>(plane: ControlPlane, line: &'static str) -> Row {
    Row {
        resource: T::RESOURCE,
        plane,
        selector: "",
        need: Need::Required,
        remedy: None,
        line,
        guarded_as: None,
        affects: Affects::Owner,
    }
}

macro_rules! kinds {
    ($(
        $(#[doc = $doc:literal])*
        $kind:ident($object:ty) in $($field:ident).+: $objects:ty, of $owner:expr,
            $plane:ident $line:literal { $($name:ident: $value:expr),* } $({ $($extra:item)* })?;
    )*) => {
        /// News of one kind of object.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Change {
            $($(#[doc = $doc])* $kind(Delta<$object>),)*
        }

        impl Change {
            /// Hands the delta on with its kind.
            pub fn visit<V: ChangeVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$kind(delta) => visitor.visit::<$kind>(delta),)*
                }
            }
        }

        /// Every row.
        pub const KINDS: &[Row] = &[$($kind::ROW),*];

        /// Calls the visitor for each row.
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

/// Objects in places of their own.
type Flat<P, T> = BTreeMap<P, Arc<T>>;
/// Objects of which a Service may have many.
type Nested<P, T> = BTreeMap<ServiceKey, BTreeMap<P, Arc<T>>>;

/// For what only a Karmada API server serves.
const NO_KARMADA: Option<&str> = Some(
    "nothing is served across clusters. The server is none of a Karmada control plane: `karmada.kubeconfig` in the config has \
     to name the Karmada API server, which is neither that of its host cluster nor of a member",
);

// What is guarded: a wrong list of it would take traffic away. Namespaces and pools take away nothing that is published, there are too few
// pools for the guard, and imported slices and bindings repeat what Works have.
kinds! {
    /// Services.
    Services(Service) in services: Flat<ServiceKey, Service>, of Owner::Service,
        Local "service" { guarded_as: Some("Service") };
    /// EndpointSlices.
    Slices(EndpointSlice) in slices: Nested<Arc<str>, EndpointSlice>, of Owner::Of(slice_owner),
        Local "slice" { guarded_as: Some("EndpointSlice") };
    /// Nodes.
    Nodes(Node) in nodes: Flat<Arc<str>, Node>, of Owner::Service,
        Local "node" { guarded_as: Some("Node"), affects: Affects::All };
    /// Namespaces, for the selectors of pools.
    Namespaces(Namespace) in namespaces: Flat<Arc<str>, Namespace>, of Owner::Service,
        Local "namespace" { need: Need::Optional, affects: Affects::Namespace };
    /// AddressPools.
    Pools(AddressPool) in pools: Flat<Arc<str>, AddressPool>, of Owner::Service,
        Local "pool" {
            need: Need::Optional,
            affects: Affects::All,
            remedy: Some("everything else works. `kubectl apply -k deploy/base` installs it")
        };
    /// MultiClusterServices.
    MultiClusterServices(MultiClusterService) in fleet.services: Flat<ServiceKey, MultiClusterService>,
        of Owner::MultiClusterService,
        Karmada "multiClusterService" { guarded_as: Some("MultiClusterService"), remedy: NO_KARMADA };
    /// Services on the Karmada API server: what those in the member clusters are made from.
    Templates(Service) in fleet.templates: Flat<ServiceKey, Service>, of Owner::MultiClusterService,
        Karmada "template" { guarded_as: Some("template Service") };
    /// Works with EndpointSlices that were collected from member clusters. Copies that are dispatched to other clusters do not
    /// have the label. A list of them says nothing of other Works.
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
    /// Works that bring Services to member clusters, and report what becomes of them there. Every propagated object has a Work
    /// like this, most of them none of a Service, and no label says of what kind it is.
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
    /// EndpointSlices that Karmada imported from member clusters. By no label: v1.10 sets none that would tell them.
    Imported(EndpointSlice) in fleet.imported: Nested<Arc<str>, EndpointSlice>, of Owner::Of(imported_owner),
        Karmada "imported" {};
    /// ResourceBindings of Services.
    Bindings(ResourceBinding) in fleet.bindings: Flat<ServiceKey, ResourceBinding>, of Owner::Of(binding_owner),
        Karmada "binding" { remedy: NO_KARMADA } {
            fn concerns(object: &Value) -> bool {
                object["spec"]["resource"]["kind"] == "Service"
            }
        };
    /// Member clusters. `karmada-aggregated-apiserver` serves them, which may be away while everything else is there.
    Clusters(Cluster) in fleet.clusters: Flat<Arc<str>, Cluster>, of Owner::MultiClusterService,
        Karmada "cluster" { need: Need::Spared, guarded_as: Some("Cluster"), affects: Affects::Fleet };
}

/// How many objects of each kind an API server has, in the order of the table.
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
