//! What is known of endpoints' health, as an immutable value: which ones new traffic avoids, and which ones start slowly.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sheave_model::{EndpointAddr, ServicePort};

/// A full share, in the parts that slow start counts in.
pub const FULL_SHARE: u8 = 10;

/// That one flow may try an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Trial(AtomicBool);

impl Trial {
    /// Whether it falls to the caller. To one only.
    pub(super) fn take(&self) -> bool {
        !self.is_taken() && !self.0.swap(true, Ordering::Relaxed)
    }

    /// Whether a flow tries the endpoint, or has.
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

/// Why an endpoint gets less than its share.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Limit {
    /// It is unhealthy, for this reason; perhaps one flow may try it.
    Unhealthy(Arc<str>, Option<Arc<Trial>>),
    /// It is new or has returned, and gets this many of [`FULL_SHARE`] parts.
    SlowStart(u8),
}

/// The health of the endpoints of one Service port, of those that are not simply healthy.
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

    /// How many of [`FULL_SHARE`] parts of its share an endpoint gets; `None` = all.
    pub fn slow_start(&self, endpoint: EndpointAddr) -> Option<u8> {
        match self.0.get(&endpoint) {
            Some(Limit::SlowStart(parts)) => Some(*parts),
            Some(Limit::Unhealthy(..)) | None => None,
        }
    }

    /// The trial of an unhealthy endpoint, if it is on offer or under way.
    pub(super) fn trial(&self, endpoint: EndpointAddr) -> Option<&Arc<Trial>> {
        match self.0.get(&endpoint) {
            Some(Limit::Unhealthy(_, trial)) => trial.as_ref(),
            Some(Limit::SlowStart(_)) | None => None,
        }
    }

    /// Whether any endpoint starts slowly.
    pub fn any_slow_start(&self) -> bool {
        self.0.values().any(|limit| matches!(limit, Limit::SlowStart(_)))
    }
}

/// The health of the endpoints of every Service port, of those that are not simply healthy. Cheap to clone.
///
/// By Service, because each judges its endpoints by its own connections and its own check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointHealth(Arc<HashMap<ServicePort, Arc<ServiceHealth>>>);

impl EndpointHealth {
    /// That of one Service port; `None` if all of its endpoints are simply healthy.
    pub fn of(&self, service: &ServicePort) -> Option<&ServiceHealth> {
        // Without a hash of the name while everything is healthy.
        if self.0.is_empty() { None } else { self.0.get(service).map(AsRef::as_ref) }
    }

    /// Whether this endpoint is unhealthy.
    pub fn is_unhealthy(&self, service: &ServicePort, endpoint: EndpointAddr) -> bool {
        self.of(service).is_some_and(|health| health.reason(endpoint).is_some())
    }

    /// All unhealthy endpoints, in no order.
    pub fn unhealthy(&self) -> impl Iterator<Item = (&ServicePort, EndpointAddr)> {
        self.0.iter().flat_map(|(service, health)| {
            let unhealthy = health.0.iter().filter(|(_, limit)| matches!(limit, Limit::Unhealthy(..)));
            unhealthy.map(move |(addr, _)| (service, *addr))
        })
    }

    /// Makes an endpoint unhealthy.
    pub fn set_unhealthy(&mut self, service: &ServicePort, endpoint: EndpointAddr, reason: Arc<str>) {
        self.set(service, endpoint, Limit::Unhealthy(reason, None));
    }

    /// The trial of an unhealthy endpoint, if it is on offer or under way.
    pub(crate) fn trial(&self, service: &ServicePort, endpoint: EndpointAddr) -> Option<&Trial> {
        self.of(service)?.trial(endpoint).map(AsRef::as_ref)
    }

    /// Lets one flow try an unhealthy endpoint, unless one may already; whether that is news.
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

    /// Gives a healthy endpoint so many of [`FULL_SHARE`] parts of its share.
    pub fn set_slow_start(&mut self, service: &ServicePort, endpoint: EndpointAddr, parts: u8) {
        self.set(service, endpoint, Limit::SlowStart(parts));
    }

    fn set(&mut self, service: &ServicePort, endpoint: EndpointAddr, limit: Limit) {
        let health = Arc::make_mut(&mut self.0).entry(service.clone()).or_default();
        Arc::make_mut(health).0.insert(endpoint, limit);
    }

    /// Gives an endpoint its whole share.
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
