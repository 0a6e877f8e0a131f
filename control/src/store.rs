//! The objects of one cluster as last seen, indexed the way the projection asks for them, and which Services have to be
//! projected again. Sources write here; it must not know where the objects come from or what they mean.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::address_pool::AddressPool;

/// Namespace and name of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
}

impl ServiceKey {
    /// The key of `namespace/name`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The objects of one cluster. Slices are kept under the Service that their label names, whether it exists or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// Every Service.
    pub services: BTreeMap<ServiceKey, Arc<Service>>,
    /// EndpointSlices by Service, then by slice name.
    pub slices: BTreeMap<ServiceKey, BTreeMap<Arc<str>, Arc<EndpointSlice>>>,
    /// Nodes by name.
    pub nodes: BTreeMap<Arc<str>, Arc<Node>>,
    /// Address pools by name.
    pub pools: BTreeMap<Arc<str>, Arc<AddressPool>>,
}

/// What has to be projected again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Dirty {
    /// Nothing changed.
    Nothing,
    /// These Services, or slices of theirs, changed, came or went.
    Services(BTreeSet<ServiceKey>),
    /// Something that every Service depends on changed: a Node, a pool.
    Everything,
}
