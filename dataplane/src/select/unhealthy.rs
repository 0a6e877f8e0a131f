//! The endpoints that new traffic avoids, as an immutable value.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use sheave_model::{EndpointAddr, ServicePort};

/// The unhealthy endpoints of one Service port, each with the reason.
pub type UnhealthyEndpoints = BTreeMap<EndpointAddr, Arc<str>>;

/// The unhealthy endpoints of every Service port that has any. Cheap to clone.
///
/// By Service, because each judges its endpoints by its own connections and its own check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unhealthy(Arc<HashMap<ServicePort, Arc<UnhealthyEndpoints>>>);

impl Unhealthy {
    /// Those of one Service port; `None` if all of its endpoints are healthy.
    pub fn of(&self, service: &ServicePort) -> Option<&UnhealthyEndpoints> {
        // Without a hash of the name while everything is healthy.
        if self.0.is_empty() { None } else { self.0.get(service).map(AsRef::as_ref) }
    }

    /// Whether this endpoint is one of them.
    pub fn contains(&self, service: &ServicePort, endpoint: EndpointAddr) -> bool {
        self.of(service).is_some_and(|endpoints| endpoints.contains_key(&endpoint))
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&ServicePort, EndpointAddr)> {
        self.0.iter().flat_map(|(service, endpoints)| endpoints.keys().map(move |addr| (service, *addr)))
    }

    /// Adds an endpoint.
    pub fn insert(&mut self, service: &ServicePort, endpoint: EndpointAddr, reason: Arc<str>) {
        let endpoints = Arc::make_mut(&mut self.0).entry(service.clone()).or_default();
        Arc::make_mut(endpoints).insert(endpoint, reason);
    }

    /// Removes an endpoint.
    pub fn remove(&mut self, service: &ServicePort, endpoint: EndpointAddr) {
        let services = Arc::make_mut(&mut self.0);
        let Some(endpoints) = services.get_mut(service) else { return };
        Arc::make_mut(endpoints).remove(&endpoint);
        if endpoints.is_empty() {
            services.remove(service);
        }
    }

    /// The Service ports whose unhealthy endpoints differ between the two.
    pub(super) fn difference<'a>(&'a self, other: &'a Self) -> HashSet<&'a ServicePort> {
        let same = |one: &Arc<UnhealthyEndpoints>, other: Option<&Arc<UnhealthyEndpoints>>| {
            other.is_some_and(|other| Arc::ptr_eq(one, other) || one.keys().eq(other.keys()))
        };
        let left = self.0.iter().filter(|(service, endpoints)| !same(endpoints, other.0.get(*service)));
        let right = other.0.keys().filter(|service| !self.0.contains_key(*service));
        left.map(|(service, _)| service).chain(right).collect()
    }
}
