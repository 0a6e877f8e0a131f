//! The kinds that are read from a Karmada API server: where each is served, which of its objects are followed, and what is
//! kept of them. It must not know how they are listed or watched.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Map, Value};

use super::prune;
use super::resources::{Definition, Need, Resource, Watched, slice_triggered};
use crate::api::decode;
use crate::api::karmada::{Cluster, Manifest, MultiClusterService, ResourceBinding, Work};
use crate::api::problem::Problem;
use crate::api::store::{Change, Delta, unreadable_owner};

/// For what only a Karmada API server serves.
const NO_KARMADA: &str = "nothing is served across clusters. The server is none of a Karmada control plane: \
                          `karmada.kubeconfig` in the config has to name the Karmada API server, which is neither that of \
                          its host cluster nor of a member";

const fn definition(name: &'static str) -> Definition {
    Definition { name, remedy: NO_KARMADA }
}

impl Watched for MultiClusterService {
    type Object = Self;

    const RESOURCE: Resource = Resource {
        kind: "MultiClusterService",
        group: "networking.karmada.io",
        plural: "multiclusterservices",
        path: "/apis/networking.karmada.io/v1alpha1/multiclusterservices",
        selector: "",
        need: Need::Required,
        definition: Some(definition("multiclusterservices.networking.karmada.io")),
    };

    fn prepare(object: &mut Map<String, Value>) {
        decode::complete_conditions(object);
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::MultiClusterServices(delta)
    }
}

/// Services on the Karmada API server: what those in the member clusters are made from.
pub(super) struct Templates;

impl Watched for Templates {
    type Object = Service;

    const RESOURCE: Resource = Service::RESOURCE;

    fn prepare(object: &mut Map<String, Value>) {
        Service::prepare(object);
    }

    fn change(delta: Delta<Service>) -> Change {
        Change::Templates(delta)
    }
}

/// EndpointSlices that Karmada imported from member clusters. By no label: v1.10 sets none that would tell them.
pub(super) struct Imported;

impl Watched for Imported {
    type Object = EndpointSlice;

    const RESOURCE: Resource = EndpointSlice::RESOURCE;

    fn prepare(object: &mut Map<String, Value>) {
        EndpointSlice::prepare(object);
    }

    fn change(delta: Delta<EndpointSlice>) -> Change {
        Change::Imported(delta)
    }

    fn triggered(object: &EndpointSlice) -> Option<&str> {
        slice_triggered(object)
    }
}

/// Both kinds of Works; they differ in the selector.
const WORKS: Resource = Resource {
    kind: "Work",
    group: "work.karmada.io",
    plural: "works",
    path: "/apis/work.karmada.io/v1alpha1/works",
    selector: "",
    need: Need::Required,
    definition: Some(definition("works.work.karmada.io")),
};

/// Works with the EndpointSlices of member clusters. Copies that are dispatched to other clusters have not this label.
pub(super) struct CollectedWorks;

impl Watched for CollectedWorks {
    type Object = Work;

    const RESOURCE: Resource = Resource { selector: "endpointslice.karmada.io/managed-by", ..WORKS };

    fn prepare(object: &mut Map<String, Value>) {
        prune::work(object);
    }

    fn complaint(object: &Work) -> Option<Problem> {
        unreadable_owner(object)
    }

    fn change(delta: Delta<Work>) -> Change {
        Change::CollectedWorks(delta)
    }

    fn triggered(object: &Work) -> Option<&str> {
        object.manifests().iter().find_map(|manifest| match manifest {
            Manifest::EndpointSlice(slice) => slice_triggered(slice),
            _ => None,
        })
    }
}

/// Works that bring Services to member clusters, and say what becomes of them there. Every propagated object has a Work like
/// this, most of them none of a Service, and no label says of what kind it is.
pub(super) struct ServiceWorks;

impl Watched for ServiceWorks {
    type Object = Work;

    const RESOURCE: Resource = Resource {
        selector: "resourcebinding.karmada.io/permanent-id,!endpointslice.karmada.io/managed-by",
        ..WORKS
    };

    fn concerns(object: &Value) -> bool {
        let manifests = object["spec"]["workload"]["manifests"].as_array();
        let is_service = |it: &Value| it["kind"] == "Service" && it["apiVersion"] == "v1";
        manifests.is_some_and(|manifests| manifests.iter().any(is_service))
    }

    fn prepare(object: &mut Map<String, Value>) {
        prune::work(object);
    }

    fn complaint(object: &Work) -> Option<Problem> {
        unreadable_owner(object)
    }

    fn change(delta: Delta<Work>) -> Change {
        Change::ServiceWorks(delta)
    }
}

impl Watched for ResourceBinding {
    type Object = Self;

    const RESOURCE: Resource = Resource {
        kind: "ResourceBinding",
        group: "work.karmada.io",
        plural: "resourcebindings",
        path: "/apis/work.karmada.io/v1alpha2/resourcebindings",
        selector: "",
        need: Need::Required,
        definition: Some(definition("resourcebindings.work.karmada.io")),
    };

    fn concerns(object: &Value) -> bool {
        object["spec"]["resource"]["kind"] == "Service"
    }

    fn prepare(_object: &mut Map<String, Value>) {}

    fn change(delta: Delta<Self>) -> Change {
        Change::Bindings(delta)
    }
}

/// Served by `karmada-aggregated-apiserver`, which may be away while everything else is there. Nothing is known of clusters then.
impl Watched for Cluster {
    type Object = Self;

    const RESOURCE: Resource = Resource {
        kind: "Cluster",
        group: "cluster.karmada.io",
        plural: "clusters",
        path: "/apis/cluster.karmada.io/v1alpha1/clusters",
        selector: "",
        need: Need::Spared,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        decode::complete_conditions(object);
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Clusters(delta)
    }
}
