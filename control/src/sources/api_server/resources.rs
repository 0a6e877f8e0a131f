//! The kinds that are read from an API server: where each is served, and what is kept of it. It must not know how they are
//! listed or watched.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::prune;
use crate::api::address_pool::{self, AddressPool};
use crate::api::decode;
use crate::api::problem::Problem;
use crate::api::store::{Change, Delta};

/// When the Pod changed that the EndpointSlice controller wrote a slice for (its `EndpointsLastChangeTriggerTime`).
const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// How a kind is called and served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) kind: &'static str,
    /// The API group; empty for the core group.
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    /// Where the objects of all namespaces are listed.
    pub(super) path: &'static str,
    /// Which labels the objects have to have; empty = any.
    pub(super) selector: &'static str,
    pub(super) need: Need,
    /// What has to be installed first, if it is not built in.
    pub(super) definition: Option<Definition>,
}

impl Resource {
    /// As requests have it.
    pub(super) fn selector(&self) -> Option<String> {
        (!self.selector.is_empty()).then(|| self.selector.to_owned())
    }
}

/// What becomes of everything else without a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing is served before it is known.
    Required,
    /// Everything else works without it. If we may not read it, it counts as empty.
    Optional,
    /// The same, but what cannot be read is not known and never counts as empty; it is waited for a moment alone.
    Spared,
}

/// A CustomResourceDefinition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Definition {
    pub(super) name: &'static str,
    /// What to do about it where it is missing.
    pub(super) remedy: &'static str,
}

/// A kind that is read from an API server, or some of its objects.
pub(super) trait Watched: Send + Sync + 'static {
    type Object: kube::Resource + DeserializeOwned + Send + Sync + 'static;
    const RESOURCE: Resource;
    /// Whether the object is any concern of ours, as far as labels cannot say it.
    fn concerns(_object: &Value) -> bool {
        true
    }
    /// Takes out what is not read, and puts in what our type requires and the server may leave out.
    fn prepare(object: &mut Map<String, Value>);
    /// What is wrong with an object that can be read, where nobody but its reader would tell.
    fn complaint(_object: &Self::Object) -> Option<Problem> {
        None
    }
    fn change(delta: Delta<Self::Object>) -> Change;
    /// When the latest change of what the object tells of happened, as its writer says.
    fn triggered(_object: &Self::Object) -> Option<&str> {
        None
    }
}

impl Watched for Service {
    type Object = Self;
    const RESOURCE: Resource = Resource {
        kind: "Service",
        group: "",
        plural: "services",
        path: "/api/v1/services",
        selector: "",
        need: Need::Required,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        decode::complete_conditions(object);
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Services(delta)
    }
}

impl Watched for EndpointSlice {
    type Object = Self;
    const RESOURCE: Resource = Resource {
        kind: "EndpointSlice",
        group: "discovery.k8s.io",
        plural: "endpointslices",
        path: "/apis/discovery.k8s.io/v1/endpointslices",
        selector: "",
        need: Need::Required,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        prune::slice(object);
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Slices(delta)
    }

    fn triggered(slice: &Self) -> Option<&str> {
        slice_triggered(slice)
    }
}

impl Watched for Node {
    type Object = Self;
    const RESOURCE: Resource = Resource {
        kind: "Node",
        group: "",
        plural: "nodes",
        path: "/api/v1/nodes",
        selector: "",
        need: Need::Required,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        prune::node(object);
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Nodes(delta)
    }
}

impl Watched for Namespace {
    type Object = Self;
    const RESOURCE: Resource = Resource {
        kind: "Namespace",
        group: "",
        plural: "namespaces",
        path: "/api/v1/namespaces",
        selector: "",
        need: Need::Optional,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        prune::namespace(object);
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Namespaces(delta)
    }
}

impl Watched for AddressPool {
    type Object = Self;
    const RESOURCE: Resource = Resource {
        kind: address_pool::KIND,
        group: "sheave.dev",
        plural: "addresspools",
        path: "/apis/sheave.dev/v1alpha1/addresspools",
        selector: "",
        need: Need::Optional,
        definition: Some(Definition {
            name: "addresspools.sheave.dev",
            remedy: "everything else works. `kubectl apply -k deploy/base` installs it",
        }),
    };

    fn prepare(_object: &mut Map<String, Value>) {}

    fn change(delta: Delta<Self>) -> Change {
        Change::Pools(delta)
    }
}

/// When what a slice tells of happened.
pub(super) fn slice_triggered(slice: &EndpointSlice) -> Option<&str> {
    slice.metadata.annotations.as_ref()?.get(LAST_CHANGE_TRIGGER_TIME).map(String::as_str)
}

/// Namespace and name; the namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}
