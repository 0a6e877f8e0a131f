//! Health checks for load balancers in front of the gateway: the `healthCheckNodePort` of each Service, and the proxy's `/healthz` and
//! `/livez`. The answers are kube-proxy's (pkg/proxy/healthcheck), so whatever probes kube-proxy can probe the gateway.

mod node_ports;
mod pages;
mod proxy_health;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sheave_control::api::problem::Problem;
use sheave_control::projection::Projection;
use tokio::net::TcpListener;

use self::node_ports::NodePorts;
pub(crate) use self::pages::{HealthPages, PageCounter};
use self::proxy_health::ProxyHealth;
use crate::http::server::{Connections, Server};

/// The state behind all health answers, which the event loop maintains. Dropping it closes every health check node port.
#[derive(Debug)]
pub(crate) struct Health {
    proxy: ProxyHealth,
    node_ports: NodePorts,
    pages: HealthPages,
    connections: Connections,
}

impl Health {
    /// Healthy, but on a node of which nothing is known yet; no port is open. All that are share `connections`.
    pub(crate) fn new(connections: Connections) -> Self {
        let proxy = ProxyHealth::new();
        let pages = HealthPages::new(proxy.clone());
        let node_ports = NodePorts::new(proxy.clone(), connections.clone());
        Self { proxy, node_ports, pages, connections }
    }

    /// Answers by `projection` from now on. Ports that stay are not bound again.
    pub(crate) fn follow(&mut self, projection: &Projection) {
        self.proxy.set_eligible(projection.node_eligible);
        self.node_ports.follow(&projection.health_checks, projection.table.frontends());
    }

    /// Answers Services' probes nowhere before it has [taken over](Self::take_over).
    pub(crate) fn hold(&mut self) {
        self.node_ports.hold();
    }

    /// Answers Services' probes from now on, on the sockets of the other process.
    pub(crate) fn take_over(&mut self, sockets: HashMap<SocketAddr, std::net::TcpListener>) {
        self.node_ports.take_over(sockets);
    }

    /// Copies of the sockets of all ports, for a process that takes over.
    ///
    /// # Errors
    /// As fcntl(2).
    pub(crate) fn hand_over(&self) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
        self.node_ports.hand_over()
    }

    /// Leaves the ports to the process that has taken over.
    pub(crate) fn leave(&mut self) {
        self.node_ports.leave();
    }

    /// Tries again to open the ports that could not be opened; whether that changed the Problems.
    pub(crate) fn retry(&mut self) -> bool {
        self.node_ports.retry()
    }

    /// Ports that could not be opened, each a Problem of its Service.
    pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.node_ports.problems()
    }

    /// Counts the proxy as healthy now, if `answers` becomes true: that every worker answers.
    pub(crate) fn proven_by(&self, answers: impl Future<Output = bool> + Send + 'static) {
        self.proxy.proven_by(answers);
    }

    /// Sends load balancers elsewhere from now on, without calling the process sick.
    pub(crate) fn drain(&self) {
        self.proxy.drain();
    }

    /// `/healthz` and `/livez`, to count what was asked.
    pub(crate) fn pages(&self) -> &HealthPages {
        &self.pages
    }

    /// Answers `/healthz` and `/livez` on `listener` until the result is dropped.
    pub(crate) fn serve_pages(&self, listener: TcpListener) -> Server {
        Server::start(listener, self.pages.router(), self.connections.clone())
    }
}

/// Where probes of Services are answered under `projection`.
pub(crate) fn places(projection: &Projection) -> impl Iterator<Item = SocketAddr> {
    projection.health_checks.iter().flat_map(node_ports::addresses).map(|(addr, _)| addr)
}

/// An answer as kube-proxy gives it.
fn answer(well: bool, body: String) -> Response {
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, body).into_response()
}
