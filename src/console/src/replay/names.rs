//! Names in logs, each kept once: Service ports, endpoints, and the clusters and nodes of endpoints. Lines refer to them by number, and
//! their number is limited, so that no log can fill the memory.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use sheave_model::FrontendSource;

use super::log_line::LineError;
use crate::views::routes::source_name;

/// Maximum number of Service ports.
const MOST_SERVICES: usize = 65_536;
/// Maximum number of endpoints.
const MOST_ENDPOINTS: usize = 1_000_000;
/// Maximum number of pairs of a Service port and a frontend.
const MOST_ROUTES: usize = 262_144;

/// Map with a quick hash, since a replay looks things up for each connection.
pub(super) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Number of a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ServiceId(u32);

/// Number of a pair of a Service port and a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RouteId(u32);

/// Number of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EndpointId(u32);

/// A Service port as lines name it.
#[derive(Debug)]
pub(super) struct ServiceName {
    pub(super) source: FrontendSource,
    /// `namespace/name`.
    pub(super) service: Box<str>,
    pub(super) port_name: Box<str>,
}

/// A frontend with the Service port that a log names for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LoggedRoute {
    pub(super) service: ServiceId,
    pub(super) frontend: SocketAddr,
}

/// An endpoint: an address in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EndpointName {
    pub(super) addr: SocketAddr,
    /// Empty if the log does not say it.
    pub(super) cluster: Arc<str>,
}

/// Names so far.
#[derive(Debug, Default)]
pub(super) struct LoggedNames {
    services: Vec<ServiceName>,
    service_ids: FastMap<Box<str>, ServiceId>,
    routes: Vec<LoggedRoute>,
    route_ids: FastMap<LoggedRoute, RouteId>,
    endpoints: Vec<(EndpointName, Arc<str>)>,
    endpoint_ids: FastMap<EndpointName, EndpointId>,
    texts: FastMap<Box<str>, Arc<str>>,
    /// Key of a lookup, kept so that no lookup allocates.
    key: String,
    /// Number of routes that [`Self::new_routes`] has returned.
    returned: usize,
}

impl LoggedNames {
    /// The number of a Service port with a frontend at this address.
    pub(super) fn route(
        &mut self,
        service: (FrontendSource, &str, &str),
        frontend: SocketAddr,
    ) -> Result<RouteId, LineError> {
        let route = LoggedRoute { service: self.service(service)?, frontend };
        if let Some(id) = self.route_ids.get(&route) {
            return Ok(*id);
        }
        if self.routes.len() >= MOST_ROUTES {
            return Err(LineError::TooMany { count: MOST_ROUTES, what: "frontends of Service ports" });
        }
        let id = RouteId(self.routes.len() as u32);
        self.routes.push(route);
        self.route_ids.insert(route, id);
        Ok(id)
    }

    fn service(
        &mut self,
        (source, service, port_name): (FrontendSource, &str, &str),
    ) -> Result<ServiceId, LineError> {
        self.key.clear();
        for part in [source_name(source), "\0", service, "\0", port_name] {
            self.key.push_str(part);
        }
        if let Some(id) = self.service_ids.get(self.key.as_str()) {
            return Ok(*id);
        }
        if self.services.len() >= MOST_SERVICES {
            return Err(LineError::TooMany { count: MOST_SERVICES, what: "Service ports" });
        }
        let id = ServiceId(self.services.len() as u32);
        self.services.push(ServiceName { source, service: service.into(), port_name: port_name.into() });
        self.service_ids.insert(self.key.as_str().into(), id);
        Ok(id)
    }

    /// The number of an endpoint. The node is the one that was named first.
    pub(super) fn endpoint(
        &mut self,
        addr: SocketAddr,
        cluster: &str,
        node: &str,
    ) -> Result<EndpointId, LineError> {
        let name = EndpointName { addr, cluster: self.text(cluster) };
        if let Some(id) = self.endpoint_ids.get(&name) {
            return Ok(*id);
        }
        if self.endpoints.len() >= MOST_ENDPOINTS {
            return Err(LineError::TooMany { count: MOST_ENDPOINTS, what: "endpoints" });
        }
        let (id, node) = (EndpointId(self.endpoints.len() as u32), self.text(node));
        self.endpoints.push((name.clone(), node));
        self.endpoint_ids.insert(name, id);
        Ok(id)
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = text.into();
        // As many as there are endpoints, at most.
        if self.texts.len() < MOST_ENDPOINTS {
            self.texts.insert(text.into(), Arc::clone(&shared));
        }
        shared
    }

    /// The Service port with this number.
    pub(super) fn service_of(&self, id: ServiceId) -> &ServiceName {
        &self.services[id.0 as usize]
    }

    /// The endpoint with this number, and its node.
    pub(super) fn endpoint_of(&self, id: EndpointId) -> (&EndpointName, &str) {
        let (name, node) = &self.endpoints[id.0 as usize];
        (name, node)
    }

    /// The route with this number.
    pub(super) fn route_of(&self, id: RouteId) -> LoggedRoute {
        self.routes[id.0 as usize]
    }

    /// The routes that came since the last call.
    pub(super) fn new_routes(&mut self) -> &[LoggedRoute] {
        let from = std::mem::replace(&mut self.returned, self.routes.len());
        &self.routes[from..]
    }
}

impl RouteId {
    /// Index in a list of all routes.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl ServiceName {
    /// Namespace and name.
    pub(super) fn parts(&self) -> (&str, &str) {
        self.service.split_once('/').unwrap_or(("", &self.service))
    }
}
