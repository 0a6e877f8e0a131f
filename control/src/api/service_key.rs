//! Names of the objects that request frontends.

use std::fmt;
use std::sync::Arc;

use sheave_model::{FrontendSource, ServicePort};

use crate::api::problem::ObjectRef;

/// Key of an object that requests frontends: a Service, a MultiClusterService, or a Gateway. All get addresses from the same pools,
/// and a cluster can have one of each with the same name. Displays as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The object's namespace.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
    /// Kind of the object.
    pub source: FrontendSource,
}

impl ServiceKey {
    /// The key of the Service `namespace/name`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self::of_service(namespace.into(), name.into())
    }

    /// The key of the MultiClusterService `namespace/name`.
    pub fn multi_cluster(namespace: &str, name: &str) -> Self {
        Self { source: FrontendSource::MultiClusterService, ..Self::new(namespace, name) }
    }

    /// The key of the Gateway `namespace/name`.
    pub fn gateway(namespace: &str, name: &str) -> Self {
        Self { source: FrontendSource::Gateway, ..Self::new(namespace, name) }
    }

    /// The key of a Service, from shared strings.
    pub fn of_service(namespace: Arc<str>, name: Arc<str>) -> Self {
        Self { namespace, name, source: FrontendSource::Service }
    }

    /// The smallest possible key.
    pub(crate) fn first() -> Self {
        Self::of_service(Arc::default(), Arc::default())
    }

    /// The object as Problems name it.
    pub fn object(&self) -> ObjectRef {
        let kind = match self.source {
            FrontendSource::Service => "Service",
            FrontendSource::MultiClusterService => "MultiClusterService",
            FrontendSource::Gateway => "Gateway",
        };
        ObjectRef { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl From<&ServicePort> for ServiceKey {
    /// The object that the port belongs to.
    fn from(ServicePort { source, namespace, name, .. }: &ServicePort) -> Self {
        Self { namespace: Arc::clone(namespace), name: Arc::clone(name), source: *source }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
