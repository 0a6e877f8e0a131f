//! The names of objects that ask for frontends.

use std::fmt;
use std::sync::Arc;

use sheave_model::{FrontendSource, ServicePort};

use crate::api::problem::ObjectRef;

/// Names what asks for frontends: a Service, or a MultiClusterService. Both get them from the same pools, and a cluster may
/// have one of each with the same name. Prints as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The object's namespace.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
    /// Which of the two it is.
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

    /// The key of a Service, by names that are shared.
    pub fn of_service(namespace: Arc<str>, name: Arc<str>) -> Self {
        Self { namespace, name, source: FrontendSource::Service }
    }

    /// The first of all keys there can be.
    pub(crate) fn first() -> Self {
        Self::of_service(Arc::default(), Arc::default())
    }

    /// How Problems name the object.
    pub fn object(&self) -> ObjectRef {
        let kind = match self.source {
            FrontendSource::Service => "Service",
            FrontendSource::MultiClusterService => "MultiClusterService",
        };
        ObjectRef { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl From<&ServicePort> for ServiceKey {
    /// The object that the port is of.
    fn from(ServicePort { source, namespace, name, .. }: &ServicePort) -> Self {
        Self { namespace: Arc::clone(namespace), name: Arc::clone(name), source: *source }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
