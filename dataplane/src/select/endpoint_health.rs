//! Health of endpoints as an immutable value: which ones new traffic avoids, and which ones are in slow start.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sheave_model::{EndpointAddr, ServicePort};

/// A full share, in the parts of slow start.
pub const FULL_SHARE: u8 = 10;

/// Permission for one flow to try an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Trial(AtomicBool);

impl Trial {
    /// Takes the permission; true for one caller only.
    pub(super) fn take(&self) -> bool {
        !self.is_taken() && !self.0.swap(true, Ordering::Relaxed)
    }

    /// Whether a flow has taken the permission.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for Trial {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Trial {}

/// Reason why an endpoint gets less than its share.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Limit {
    /// Unhealthy, for this reason; a trial permits one flow.
    Unhealthy(Arc<str>, Option<Arc<Trial>>),
    /// New or recovered: the endpoint gets this many of [`FULL_SHARE`] parts.
    SlowStart(u8),
}

/// Health of the endpoints of one Service port, except for those that are healthy with a full share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceHealth(BTreeMap<EndpointAddr, Limit>);

impl ServiceHealth {
    /// Why the endpoint is unhealthy; `None` if it is not.
    pub fn reason(&self, endpoint: EndpointAddr) -> Option<&Arc<str>> {
        match self.0.get(&endpoint) {
            Some(Limit::Unhealthy(reason, _)) => Some(reason),
            Some(Limit::SlowStart(_)) | None => None,
        }
    }

    /// The number of [`FULL_SHARE`] parts that an endpoint gets; `None` = all.
    pub fn slow_start(&self, endpoint: EndpointAddr) -> Option<u8> {
        match self.0.get(&endpoint) {
            Some(Limit::SlowStart(parts)) => Some(*parts),
            Some(Limit::Unhealthy(..)) | None => None,
        }
    }

    /// The trial of an unhealthy endpoint, if one is on offer or was taken.
    pub(super) fn trial(&self, endpoint: EndpointAddr) -> Option<&Arc<Trial>> {
        match self.0.get(&endpoint) {
            Some(Limit::Unhealthy(_, trial)) => trial.as_ref(),
            Some(Limit::SlowStart(_)) | None => None,
        }
    }

    /// Whether any endpoint is in slow start.
    pub fn any_slow_start(&self) -> bool {
        self.0.values().any(|limit| matches!(limit, Limit::SlowStart(_)))
    }
}

/// Health of the endpoints of every Service port, except for those that are healthy with a full share. Cheap to clone.
///
/// Kept by Service, because each Service judges endpoints by its own connections and its own check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointHealth(Arc<HashMap<ServicePort, Arc<ServiceHealth>>>);

impl EndpointHealth {
    /// Health of one Service port; `None` if all its endpoints are healthy with a full share.
    pub fn of(&self, service: &ServicePort) -> Option<&ServiceHealth> {
        // Avoids hashing the name while everything is healthy.
        if self.0.is_empty() { None } else { self.0.get(service).map(AsRef::as_ref) }
    }

    /// Whether this endpoint is unhealthy.
    pub fn is_unhealthy(&self, service: &ServicePort, endpoint: EndpointAddr) -> bool {
        self.of(service).is_some_and(|health| health.reason(endpoint).is_some())
    }

    /// All unhealthy endpoints, in no particular order.
    pub fn unhealthy(&self) -> impl Iterator<Item = (&ServicePort, EndpointAddr)> {
        self.0.iter().flat_map(|(service, health)| {
            let unhealthy = health.0.iter().filter(|(_, limit)| matches!(limit, Limit::Unhealthy(..)));
            unhealthy.map(move |(addr, _)| (service, *addr))
        })
    }

    /// Marks an endpoint as unhealthy.
    pub fn set_unhealthy(&mut self, service: &ServicePort, endpoint: EndpointAddr, reason: Arc<str>) {
        self.set(service, endpoint, Limit::Unhealthy(reason, None));
    }

    /// The trial of an unhealthy endpoint, if one is on offer or was taken.
    pub(crate) fn trial(&self, service: &ServicePort, endpoint: EndpointAddr) -> Option<&Trial> {
        self.of(service)?.trial(endpoint).map(AsRef::as_ref)
    }

    /// Offers a trial of an unhealthy endpoint, unless one is on offer; returns whether that changed anything.
    pub(crate) fn offer_trial(&mut self, service: &ServicePort, endpoint: EndpointAddr) -> bool {
        if self.trial(service, endpoint).is_some_and(|trial| !trial.is_taken()) {
            return false;
        }
        let Some(reason) = self.of(service).and_then(|health| health.reason(endpoint)).cloned() else {
            return false;
        };
        self.set(service, endpoint, Limit::Unhealthy(reason, Some(Arc::default())));
        true
    }

    /// Gives a healthy endpoint `parts` of [`FULL_SHARE`] parts of its share.
    pub fn set_slow_start(&mut self, service: &ServicePort, endpoint: EndpointAddr, parts: u8) {
        self.set(service, endpoint, Limit::SlowStart(parts));
    }

    fn set(&mut self, service: &ServicePort, endpoint: EndpointAddr, limit: Limit) {
        let health = Arc::make_mut(&mut self.0).entry(service.clone()).or_default();
        Arc::make_mut(health).0.insert(endpoint, limit);
    }

    /// Gives an endpoint its full share.
    pub fn set_healthy(&mut self, service: &ServicePort, endpoint: EndpointAddr) {
        let services = Arc::make_mut(&mut self.0);
        let Some(health) = services.get_mut(service) else { return };
        let endpoints = &mut Arc::make_mut(health).0;
        endpoints.remove(&endpoint);
        if endpoints.is_empty() {
            services.remove(service);
        }
    }

    /// The Service ports whose health differs between the two.
    pub(super) fn difference<'a>(&'a self, other: &'a Self) -> HashSet<&'a ServicePort> {
        let same = |one: &Arc<ServiceHealth>, other: Option<&Arc<ServiceHealth>>| {
            other.is_some_and(|other| Arc::ptr_eq(one, other) || one == other)
        };
        let left = self.0.iter().filter(|(service, health)| !same(health, other.0.get(*service)));
        let right = other.0.keys().filter(|service| !self.0.contains_key(*service));
        left.map(|(service, _)| service).chain(right).collect()
    }
}
