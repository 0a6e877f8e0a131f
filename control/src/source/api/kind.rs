//! The kinds that are read from an API server: where each is served, and what is kept of it. It must not know how they are
//! listed or watched.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::prune;
use crate::address_pool::{self, AddressPool};
use crate::source::typed;
use crate::store::{Change, Delta};

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
    /// Whether everything else works without it. If we may not read it, it then counts as empty.
    pub(super) optional: bool,
    /// The CustomResourceDefinition that has to be installed first, if it is not built in.
    pub(super) definition: Option<&'static str>,
}

/// A kind that is read from an API server.
pub(super) trait Watched: DeserializeOwned + Send + Sync + 'static {
    const RESOURCE: Resource;
    /// Takes out what is not read, and puts in what our type requires and the server may leave out.
    fn prepare(object: &mut Map<String, Value>);
    fn metadata(&self) -> &ObjectMeta;
    fn change(delta: Delta<Self>) -> Change;
    /// When the latest change of what the object tells of happened, as its writer says.
    fn triggered(&self) -> Option<&str> {
        None
    }
}

impl Watched for Service {
    const RESOURCE: Resource = Resource {
        kind: "Service",
        group: "",
        plural: "services",
        path: "/api/v1/services",
        optional: false,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        typed::complete_conditions(object);
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Services(delta)
    }
}

impl Watched for EndpointSlice {
    const RESOURCE: Resource = Resource {
        kind: "EndpointSlice",
        group: "discovery.k8s.io",
        plural: "endpointslices",
        path: "/apis/discovery.k8s.io/v1/endpointslices",
        optional: false,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        prune::slice(object);
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Slices(delta)
    }

    fn triggered(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(LAST_CHANGE_TRIGGER_TIME).map(String::as_str)
    }
}

impl Watched for Node {
    const RESOURCE: Resource = Resource {
        kind: "Node",
        group: "",
        plural: "nodes",
        path: "/api/v1/nodes",
        optional: false,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        prune::node(object);
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Nodes(delta)
    }
}

impl Watched for Namespace {
    const RESOURCE: Resource = Resource {
        kind: "Namespace",
        group: "",
        plural: "namespaces",
        path: "/api/v1/namespaces",
        optional: true,
        definition: None,
    };

    fn prepare(object: &mut Map<String, Value>) {
        prune::namespace(object);
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Namespaces(delta)
    }
}

impl Watched for AddressPool {
    const RESOURCE: Resource = Resource {
        kind: address_pool::KIND,
        group: "sheave.dev",
        plural: "addresspools",
        path: "/apis/sheave.dev/v1alpha1/addresspools",
        optional: true,
        definition: Some("addresspools.sheave.dev"),
    };

    fn prepare(_object: &mut Map<String, Value>) {}

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Pools(delta)
    }
}

/// Namespace and name; the namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}
