//! Health check node ports: one listener per port and family, which reports whether the Service has an endpoint on this node
//! (pkg/proxy/healthcheck/service_health.go).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use sheave_control::api::problem::{ObjectRef, Problem, reason};
use sheave_control::api::store::ServiceKey;
use sheave_control::projection::HealthCheck;
use sheave_model::{Frontend, Protocol as Transport};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::proxy_health::{HealthReport, ProxyHealth};
use crate::http::server::{Connections, Server};
use crate::retry;

/// Backlog of the listeners. The control loop may be busy for a while, and a probe that is dropped is only repeated after a
/// second.
const BACKLOG: i32 = 1024;
/// Header with the number of local endpoints, by which a load balancer may weigh nodes.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// All ports of the last projection. Dropping it closes them.
#[derive(Debug)]
pub(super) struct NodePorts {
    shared: SharedState,
    /// Ports by listen address.
    ports: BTreeMap<SocketAddr, NodePort>,
    /// Problems of Services whose port belongs to an earlier Service.
    contested: Vec<Problem>,
}

/// Sockets of the process that is being replaced.
type FormerSockets = HashMap<SocketAddr, std::net::TcpListener>;

/// State that all ports share.
#[derive(Debug)]
struct SharedState {
    proxy: ProxyHealth,
    connections: Connections,
    former: FormerSockets,
    /// Whether another process still answers.
    held: bool,
}

/// Content of a port's responses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LocalEndpoints {
    service: ServiceKey,
    /// Number of ready endpoints of the family on this node.
    local: usize,
}

#[derive(Debug)]
struct NodePort {
    endpoints: watch::Sender<LocalEndpoints>,
    state: ListenState,
    /// Frontend of this gateway on the same port, such as a node port. Only one of the two can be open.
    rival: Option<Arc<Frontend>>,
}

#[derive(Debug)]
enum ListenState {
    Open(Server),
    /// Another socket has the port. Without a rival frontend it is another process; on cluster nodes it is kube-proxy, which
    /// gives the same answers.
    Taken,
    Failed(io::Error),
}

impl NodePorts {
    pub(super) fn new(proxy: ProxyHealth, connections: Connections) -> Self {
        let shared = SharedState { proxy, connections, former: FormerSockets::new(), held: false };
        Self { shared, ports: BTreeMap::new(), contested: Vec::new() }
    }

    /// Opens no ports until [`Self::take_over`].
    pub(super) fn hold(&mut self) {
        self.shared.held = true;
    }

    /// Starts to answer, on these sockets where the ports are still wanted. Other sockets are closed.
    pub(super) fn take_over(&mut self, sockets: FormerSockets) {
        (self.shared.held, self.shared.former) = (false, sockets);
        self.retry();
        self.shared.former.clear();
    }

    /// Duplicates the open sockets.
    ///
    /// # Errors
    /// If a descriptor cannot be duplicated (fcntl(2)).
    pub(super) fn hand_over(&self) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
        let open = self.ports.iter().filter_map(|(addr, port)| match &port.state {
            ListenState::Open(server) => Some((*addr, server)),
            ListenState::Taken | ListenState::Failed(_) => None,
        });
        open.map(|(addr, server)| Ok((addr, server.socket()?))).collect()
    }

    /// Leaves all ports to another process. Returns the tasks that answer the open connections.
    pub(super) fn leave(&mut self) -> impl Iterator<Item = JoinHandle<()>> + use<> {
        std::mem::take(&mut self.ports).into_values().filter_map(|port| match port.state {
            ListenState::Open(server) => server.leave(),
            ListenState::Taken | ListenState::Failed(_) => None,
        })
    }

    /// Opens and closes ports that changed, given the other `frontends`. If two Services ask for the same port, the first
    /// one gets it.
    pub(super) fn follow<'a>(
        &mut self,
        checks: &[HealthCheck],
        frontends: impl IntoIterator<Item = &'a Arc<Frontend>>,
    ) {
        self.contested.clear();
        let mut wanted: BTreeMap<SocketAddr, LocalEndpoints> = BTreeMap::new();
        for check in checks {
            for (addr, local) in addresses(check) {
                match wanted.entry(addr) {
                    Entry::Vacant(free) => {
                        free.insert(LocalEndpoints { service: check.service.clone(), local });
                    }
                    Entry::Occupied(taken) => self.contested.push(contested(check, addr, taken.get())),
                }
            }
        }
        self.ports.retain(|addr, _| wanted.contains_key(addr));
        let mut rivals = rivals(frontends, &wanted);
        for (addr, endpoints) in wanted {
            let rival = rivals.remove(&addr);
            match self.ports.entry(addr) {
                Entry::Occupied(mut port) => port.get_mut().follow(endpoints, rival),
                Entry::Vacant(free) => {
                    free.insert(NodePort::open(addr, endpoints, rival, &mut self.shared));
                }
            }
        }
    }

    /// Retries ports that are not open. Returns whether the Problems changed.
    pub(super) fn retry(&mut self) -> bool {
        let before: Vec<Problem> = self.problems().collect();
        for (addr, port) in &mut self.ports {
            port.retry(*addr, &mut self.shared);
        }
        !self.problems().eq(before)
    }

    /// A Problem for each port that is not open.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let failed = self.ports.iter().filter_map(|(addr, port)| {
            let message = format!("cannot listen on {addr}: {}", port.failure()?);
            Some(problem(&port.endpoints.borrow().service, message))
        });
        self.contested.iter().cloned().chain(failed)
    }
}

impl NodePort {
    fn open(
        addr: SocketAddr,
        endpoints: LocalEndpoints,
        rival: Option<Arc<Frontend>>,
        shared: &mut SharedState,
    ) -> Self {
        let endpoints = watch::Sender::new(endpoints);
        let state = ListenState::open(addr, &endpoints, shared);
        let port = Self { endpoints, state, rival };
        if matches!(port.state, ListenState::Taken) && !shared.held {
            port.log_taken(addr);
        }
        port
    }

    fn follow(&mut self, endpoints: LocalEndpoints, rival: Option<Arc<Frontend>>) {
        self.endpoints.send_replace(endpoints);
        self.rival = rival;
    }

    fn retry(&mut self, addr: SocketAddr, shared: &mut SharedState) {
        if matches!(self.state, ListenState::Open(_)) {
            return;
        }
        let known = matches!(self.state, ListenState::Taken);
        self.state = ListenState::open(addr, &self.endpoints, shared);
        if matches!(self.state, ListenState::Taken) && !known {
            self.log_taken(addr);
        }
    }

    /// Logs who answers instead. With a rival frontend there is a Problem instead of a log line.
    fn log_taken(&self, addr: SocketAddr) {
        if self.rival.is_some() {
            return;
        }
        let service = &self.endpoints.borrow().service;
        tracing::info!(
            %service,
            %addr,
            "another process has this health check node port, as kube-proxy does on the nodes of a cluster; it answers there"
        );
    }

    /// Reason why the port is not open, if any, and what to do.
    fn failure(&self) -> Option<String> {
        match (&self.state, &self.rival) {
            (ListenState::Failed(error), _) => Some(retry::advice(error)),
            (ListenState::Taken, Some(rival)) => Some(format!(
                "this gateway's own frontend {} ({}) of Service {} has the port, and load balancers that \
                 probe it do not learn this Service's health; give one of the two another port",
                rival.addr, rival.kind, rival.service
            )),
            (ListenState::Open(_), _) | (ListenState::Taken, None) => None,
        }
    }
}

impl ListenState {
    fn open(addr: SocketAddr, endpoints: &watch::Sender<LocalEndpoints>, shared: &mut SharedState) -> Self {
        if shared.held {
            return Self::Taken;
        }
        let opened = match shared.former.remove(&addr) {
            Some(socket) => TcpListener::from_std(socket),
            None => listen(addr),
        };
        match opened {
            Ok(listener) => {
                let SharedState { proxy, connections, .. } = shared;
                let router =
                    Router::new().fallback(answer_probe).with_state((endpoints.subscribe(), proxy.clone()));
                Self::Open(Server::start(listener, router, connections.clone()))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Self::Taken,
            Err(error) => Self::Failed(error),
        }
    }
}

/// Answers any path and method.
async fn answer_probe(
    State((endpoints, proxy)): State<(watch::Receiver<LocalEndpoints>, ProxyHealth)>,
) -> Response {
    let endpoints = endpoints.borrow().clone();
    answer(&endpoints, &proxy.report())
}

fn answer(
    LocalEndpoints { service, local }: &LocalEndpoints,
    HealthReport { serving, .. }: &HealthReport,
) -> Response {
    let ServiceKey { namespace, name, .. } = service;
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace:?},\n\t\t\"name\": {name:?}\n\t}},\n\t\
         \"localEndpoints\": {local},\n\t\"serviceProxyHealthy\": {serving}\n}}"
    );
    let mut answer = super::answer(*local > 0 && *serving, body);
    answer.headers_mut().insert(WEIGHT, HeaderValue::from(*local));
    answer
}

/// Listen addresses of a check, each with the number of local endpoints. Families are separate, as in kube-proxy: a load
/// balancer of one family sends no traffic to endpoints of the other.
pub(super) fn addresses(check: &HealthCheck) -> impl Iterator<Item = (SocketAddr, usize)> {
    let v4 = (SocketAddr::from((Ipv4Addr::UNSPECIFIED, check.port)), check.local_v4);
    let v6 = (SocketAddr::from((Ipv6Addr::UNSPECIFIED, check.port)), check.local_v6);
    [v4, v6].into_iter().filter_map(|(addr, local)| Some((addr, local?)))
}

/// For each listen address, a frontend with the same port, if any.
fn rivals<'a>(
    frontends: impl IntoIterator<Item = &'a Arc<Frontend>>,
    wanted: &BTreeMap<SocketAddr, LocalEndpoints>,
) -> BTreeMap<SocketAddr, Arc<Frontend>> {
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let tcp = frontends.into_iter().filter(|frontend| frontend.addr.protocol == Transport::Tcp);
    let places = tcp.map(|frontend| (everywhere(frontend.addr.ip, frontend.addr.port), Arc::clone(frontend)));
    places.filter(|(addr, _)| wanted.contains_key(addr)).collect()
}

/// Wildcard address of the family of `ip`.
fn everywhere(ip: IpAddr, port: u16) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections in TIME_WAIT must not block the port.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn contested(check: &HealthCheck, addr: SocketAddr, owner: &LocalEndpoints) -> Problem {
    let family = if addr.is_ipv4() { "IPv4" } else { "IPv6" };
    let (port, owner) = (check.port, &owner.service);
    let message = format!(
        "{port} is already the health check node port of Service {owner}, which keeps it over {family}; \
         give this Service another one"
    );
    problem(&check.service, message)
}

fn problem(service: &ServiceKey, message: String) -> Problem {
    let ServiceKey { namespace, name, .. } = service.clone();
    Problem {
        object: ObjectRef { kind: "Service", namespace, name },
        reason: reason::FAILED_TO_START_SERVICE_HEALTHCHECK,
        field: "spec.healthCheckNodePort".to_owned(),
        message,
        port: None,
    }
}

#[cfg(test)]
mod tests;
