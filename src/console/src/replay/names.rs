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
/// Maximum number of frontend addresses that are remembered for a Service port.
const MOST_ADDRESSES: usize = 8;

/// Number of a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ServiceId(u32);

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
    addresses: Vec<SocketAddr>,
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
    service_ids: HashMap<Box<str>, ServiceId>,
    endpoints: Vec<(EndpointName, Arc<str>)>,
    endpoint_ids: HashMap<EndpointName, EndpointId>,
    texts: HashMap<Box<str>, Arc<str>>,
    /// Key of a lookup, kept so that no lookup allocates.
    key: String,
    /// Service ports whose frontends are new since [`Self::take_new_frontends`].
    new_frontends: Vec<(ServiceId, SocketAddr)>,
}

impl LoggedNames {
    /// The number of a Service port with a frontend at this address.
    pub(super) fn service(
        &mut self,
        (source, service, port_name): (FrontendSource, &str, &str),
        frontend: SocketAddr,
    ) -> Result<ServiceId, LineError> {
        self.key.clear();
        for part in [source_name(source), "\0", service, "\0", port_name] {
            self.key.push_str(part);
        }
        let id = match self.service_ids.get(self.key.as_str()) {
            Some(id) => *id,
            None if self.services.len() >= MOST_SERVICES => {
                return Err(LineError::TooMany { count: MOST_SERVICES, what: "Service ports" });
            }
            None => {
                let id = ServiceId(self.services.len() as u32);
                let (service, port_name) = (service.into(), port_name.into());
                self.services.push(ServiceName { source, service, port_name, addresses: Vec::new() });
                self.service_ids.insert(self.key.as_str().into(), id);
                id
            }
        };
        if let Some(ServiceName { addresses, .. }) = self.services.get_mut(id.0 as usize)
            && !addresses.contains(&frontend)
            && addresses.len() < MOST_ADDRESSES
        {
            addresses.push(frontend);
            self.new_frontends.push((id, frontend));
        }
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

    /// The frontends that came since the last call.
    pub(super) fn take_new_frontends(&mut self) -> Vec<(ServiceId, SocketAddr)> {
        std::mem::take(&mut self.new_frontends)
    }
}

impl ServiceName {
    /// Namespace and name.
    pub(super) fn parts(&self) -> (&str, &str) {
        self.service.split_once('/').unwrap_or(("", &self.service))
    }
}
