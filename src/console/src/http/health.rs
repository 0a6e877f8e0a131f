//! Health checks for load balancers in front of the gateway: the `healthCheckNodePort` of each Service, and `/healthz` and `/livez` of
//! the proxy. Responses are identical to kube-proxy's (pkg/proxy/healthcheck), so probes for kube-proxy work with the gateway.

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
use tokio::task::JoinHandle;

use self::node_ports::NodePorts;
pub(crate) use self::pages::{HealthPages, PageCounter};
use self::proxy_health::ProxyHealth;
use crate::http::server::{Connections, Server};

/// State of all health checks, maintained by the event loop. Dropping it closes every health check node port.
#[derive(Debug)]
pub struct Health {
    proxy: ProxyHealth,
    node_ports: NodePorts,
    pages: HealthPages,
    connections: Connections,
}

impl Health {
    /// Starts as healthy, on a node that is not known yet, without open ports. All ports share `connections`.
    pub fn new(connections: Connections) -> Self {
        let proxy = ProxyHealth::new();
        let pages = HealthPages::new(proxy.clone());
        let node_ports = NodePorts::new(proxy.clone(), connections.clone());
        Self { proxy, node_ports, pages, connections }
    }

    /// Answers by `projection` from now on. Ports that stay are not bound again.
    pub fn follow(&mut self, projection: &Projection) {
        self.proxy.set_eligible(projection.node_eligible);
        self.node_ports.follow(&projection.health_checks, projection.table.frontends());
    }

    /// Opens no ports until [`Self::take_over`].
    pub fn hold(&mut self) {
        self.node_ports.hold();
    }

    /// Starts to answer Services' probes, on the sockets of the other process.
    pub fn take_over(&mut self, sockets: HashMap<SocketAddr, std::net::TcpListener>) {
        self.node_ports.take_over(sockets);
    }

    /// Duplicates the sockets of all ports for a successor.
    ///
    /// # Errors
    /// If a descriptor cannot be duplicated (fcntl(2)).
    pub fn hand_over(&self) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
        self.node_ports.hand_over()
    }

    /// Leaves the ports to the successor. Returns the tasks that answer the open connections.
    pub fn leave(&mut self) -> impl Iterator<Item = JoinHandle<()>> + use<> {
        self.node_ports.leave()
    }

    /// Retries ports that could not be opened. Returns whether the Problems changed.
    pub fn retry(&mut self) -> bool {
        self.node_ports.retry()
    }

    /// One Problem for each port that could not be opened.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        self.node_ports.problems()
    }

    /// Marks the proxy as healthy as of now, once `answers` resolves to true: every worker answers.
    pub fn proven_by(&self, answers: impl Future<Output = bool> + Send + 'static) {
        self.proxy.proven_by(answers);
    }

    /// Makes load balancers send new traffic elsewhere, while the process stays live.
    pub fn drain(&self) {
        self.proxy.drain();
    }

    /// The `/healthz` and `/livez` pages, for their request counts.
    pub fn pages(&self) -> &HealthPages {
        &self.pages
    }

    /// Serves `/healthz` and `/livez` on `listener` until the result is dropped.
    pub fn serve_pages(&self, listener: TcpListener) -> Server {
        Server::start(listener, self.pages.router(), self.connections.clone())
    }
}

/// Addresses of the health check node ports of a `projection`.
pub fn places(projection: &Projection) -> impl Iterator<Item = SocketAddr> {
    projection.health_checks.iter().flat_map(node_ports::addresses).map(|(addr, _)| addr)
}

/// Response in kube-proxy's format.
fn answer(well: bool, body: String) -> Response {
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, body).into_response()
}
