//! Health check node ports: one listener per port and family, which tells load balancers in front whether the Service
//! has an endpoint on this node (pkg/proxy/healthcheck/service_health.go).
//!
//! It must not know how endpoints are counted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::Router;
use axum::extract::State as Extract;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use sheave_control::problem::{ObjectRef, Problem, reason};
use sheave_control::projection::HealthCheck;
use sheave_control::store::ServiceKey;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::proxy::{Proxy, Report};
use super::server::Server;
use crate::retry;

/// Connections that wait to be accepted. The control loop may be busy for a while, and a probe that finds no place is
/// repeated only after a second.
const BACKLOG: i32 = 1024;
/// By which a load balancer may weigh nodes: as many endpoints, as many shares.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// Every port that the projection named last. Dropping it closes them all.
#[derive(Debug)]
pub(super) struct NodePorts {
    proxy: Proxy,
    /// By where they listen.
    ports: BTreeMap<SocketAddr, Port>,
    /// Ports that two Services ask for, for the one that does not get it.
    contested: Vec<Problem>,
}

/// What a port tells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    service: ServiceKey,
    /// Ready endpoints of the family on this node.
    local: usize,
}

#[derive(Debug)]
struct Port {
    subject: watch::Sender<Subject>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open {
        _server: Server,
    },
    /// Another process has the port. On a cluster's nodes that is kube-proxy, which gives the same answers.
    Taken,
    Failed(io::Error),
}

impl NodePorts {
    pub(super) fn new(proxy: Proxy) -> Self {
        Self { proxy, ports: BTreeMap::new(), contested: Vec::new() }
    }

    /// Opens and closes what differs from before. Of two Services that ask for one port the first one gets it.
    pub(super) fn follow(&mut self, checks: &[HealthCheck]) {
        self.contested.clear();
        let mut wanted: BTreeMap<SocketAddr, Subject> = BTreeMap::new();
        for check in checks {
            for (addr, local) in addresses(check) {
                match wanted.entry(addr) {
                    Entry::Vacant(free) => {
                        free.insert(Subject { service: check.service.clone(), local });
                    }
                    Entry::Occupied(taken) => self.contested.push(contested(check, addr, taken.get())),
                }
            }
        }
        self.ports.retain(|addr, _| wanted.contains_key(addr));
        for (addr, subject) in wanted {
            match self.ports.entry(addr) {
                Entry::Occupied(port) => drop(port.get().subject.send_replace(subject)),
                Entry::Vacant(free) => {
                    free.insert(Port::open(addr, subject, &self.proxy));
                }
            }
        }
    }

    /// Tries again what is not open; whether that changed the Problems.
    pub(super) fn retry(&mut self) -> bool {
        let failing = |ports: &BTreeMap<_, Port>| -> Vec<_> {
            ports.iter().filter_map(|(addr, port)| Some((*addr, port.failure()?.kind()))).collect()
        };
        let before = failing(&self.ports);
        for (addr, port) in &mut self.ports {
            port.retry(*addr, &self.proxy);
        }
        failing(&self.ports) != before
    }

    /// What is not answered, and why.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let failed = self.ports.iter().filter_map(|(addr, port)| {
            let message = format!("cannot listen on {addr}: {}", retry::advice(port.failure()?));
            Some(problem(&port.subject.borrow().service, message))
        });
        self.contested.iter().cloned().chain(failed)
    }
}

impl Port {
    fn open(addr: SocketAddr, subject: Subject, proxy: &Proxy) -> Self {
        let subject = watch::Sender::new(subject);
        let state = State::open(addr, &subject, proxy);
        let port = Self { subject, state };
        if matches!(port.state, State::Taken) {
            port.tell_taken(addr);
        }
        port
    }

    fn retry(&mut self, addr: SocketAddr, proxy: &Proxy) {
        if matches!(self.state, State::Open { .. }) {
            return;
        }
        let known = matches!(self.state, State::Taken);
        self.state = State::open(addr, &self.subject, proxy);
        if matches!(self.state, State::Taken) && !known {
            self.tell_taken(addr);
        }
    }

    fn tell_taken(&self, addr: SocketAddr) {
        let service = &self.subject.borrow().service;
        tracing::info!(
            %service,
            %addr,
            "another process has this health check node port, as kube-proxy does on the nodes of a cluster; it answers there"
        );
    }

    fn failure(&self) -> Option<&io::Error> {
        match &self.state {
            State::Failed(error) => Some(error),
            State::Open { .. } | State::Taken => None,
        }
    }
}

impl State {
    fn open(addr: SocketAddr, subject: &watch::Sender<Subject>, proxy: &Proxy) -> Self {
        match listen(addr) {
            Ok(listener) => {
                let router = Router::new().fallback(tell).with_state((subject.subscribe(), proxy.clone()));
                Self::Open { _server: Server::start(listener, router) }
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Self::Taken,
            Err(error) => Self::Failed(error),
        }
    }
}

/// Whatever the path and the method are.
async fn tell(Extract((subject, proxy)): Extract<(watch::Receiver<Subject>, Proxy)>) -> Response {
    let subject = subject.borrow().clone();
    answer(&subject, &proxy.report())
}

fn answer(Subject { service, local }: &Subject, Report { serving, .. }: &Report) -> Response {
    let ServiceKey { namespace, name } = service;
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace:?},\n\t\t\"name\": {name:?}\n\t}},\n\t\
         \"localEndpoints\": {local},\n\t\"serviceProxyHealthy\": {serving}\n}}"
    );
    let mut answer = super::answer(*local > 0 && *serving, body);
    answer.headers_mut().insert(WEIGHT, HeaderValue::from(*local));
    answer
}

/// Where a Service is answered for, and with how many local endpoints. The families are apart, as kube-proxy's proxiers
/// are: a load balancer that speaks one family sends no traffic to endpoints of the other.
fn addresses(check: &HealthCheck) -> impl Iterator<Item = (SocketAddr, usize)> {
    let v4 = (SocketAddr::from((Ipv4Addr::UNSPECIFIED, check.port)), check.local_v4);
    let v6 = (SocketAddr::from((Ipv6Addr::UNSPECIFIED, check.port)), check.local_v6);
    [v4, v6].into_iter().filter_map(|(addr, local)| Some((addr, local?)))
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections in TIME_WAIT do not hold the port.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn contested(check: &HealthCheck, addr: SocketAddr, owner: &Subject) -> Problem {
    let family = if addr.is_ipv4() { "IPv4" } else { "IPv6" };
    let (port, owner) = (check.port, &owner.service);
    let message = format!(
        "{port} is already the health check node port of Service {owner}, which keeps it over {family}; \
         give this Service another one"
    );
    problem(&check.service, message)
}

fn problem(service: &ServiceKey, message: String) -> Problem {
    let ServiceKey { namespace, name } = service.clone();
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
