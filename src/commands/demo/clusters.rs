//! Two pretend member clusters: web servers, and an HTTP switch that stops and starts the servers of a
//! cluster.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::any;
use sheave_console::http::server::{Connections, Server};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::backends::serve_web;

/// Address of the switch.
const SWITCH: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 30);
/// The clusters, with their loopback hosts.
const CLUSTERS: [(&str, [Ipv4Addr; 2]); 2] = [
    ("east", [Ipv4Addr::new(127, 0, 0, 31), Ipv4Addr::new(127, 0, 0, 32)]),
    ("west", [Ipv4Addr::new(127, 0, 0, 41), Ipv4Addr::new(127, 0, 0, 42)]),
];

/// Running clusters with their switch, which end when dropped.
#[derive(Debug)]
pub(super) struct Clusters {
    /// The clusters, in the order of [`CLUSTERS`].
    pub(super) members: Vec<Arc<Cluster>>,
    /// Address of the switch.
    pub(super) switch: SocketAddr,
    _server: Server,
}

/// A pretend member cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) name: &'static str,
    /// Addresses of its web servers, which stay the same while they are stopped.
    pub(super) web: Vec<SocketAddr>,
    /// The web servers; empty while they are stopped.
    servers: Mutex<JoinSet<()>>,
}

impl Clusters {
    /// Starts the web servers of every cluster, and the switch.
    ///
    /// # Errors
    /// If a port cannot be bound.
    pub(super) async fn start() -> io::Result<Self> {
        let mut members = Vec::new();
        let mut router = Router::new();
        for (name, hosts) in CLUSTERS {
            let cluster = Arc::new(Cluster::start(name, &hosts).await?);
            router = router.merge(cluster.switch());
            members.push(cluster);
        }
        let listener = TcpListener::bind((SWITCH, 0)).await?;
        let switch = listener.local_addr()?;
        Ok(Self { members, switch, _server: Server::start(listener, router, Connections::default()) })
    }
}

impl Cluster {
    /// Starts one server on each host, on a port that is free on the first host.
    async fn start(name: &'static str, hosts: &[Ipv4Addr]) -> io::Result<Self> {
        let (mut web, mut servers, mut port) = (Vec::new(), JoinSet::new(), 0);
        for (number, host) in (1..).zip(hosts) {
            let listener = TcpListener::bind((*host, port)).await?;
            port = listener.local_addr()?.port();
            web.push(listener.local_addr()?);
            servers.spawn(serve_web(listener, format!("{name}-{number}")));
        }
        Ok(Self { name, web, servers: Mutex::new(servers) })
    }

    /// Routes `/<name>/stop` and `/<name>/start`, for any method so that plain curl works.
    fn switch(self: &Arc<Self>) -> Router {
        Router::new()
            .route(&format!("/{}/stop", self.name), any(stop))
            .route(&format!("/{}/start", self.name), any(start))
            .with_state(Arc::clone(self))
    }
}

async fn stop(State(cluster): State<Arc<Cluster>>) -> String {
    // Wait, so that the ports are closed when the user reads the answer.
    cluster.servers.lock().await.shutdown().await;
    format!("the backends of {} have stopped\n", cluster.name)
}

async fn start(State(cluster): State<Arc<Cluster>>) -> (StatusCode, String) {
    let mut servers = cluster.servers.lock().await;
    if servers.is_empty() {
        for (number, address) in (1..).zip(&cluster.web) {
            match TcpListener::bind(address).await {
                Ok(listener) => servers.spawn(serve_web(listener, format!("{}-{number}", cluster.name))),
                // Another program has taken the port meanwhile. Start all servers or none, so that the user
                // can retry.
                Err(error) => {
                    servers.shutdown().await;
                    let why = format!("the backends of {} cannot start: {address}: {error}\n", cluster.name);
                    return (StatusCode::CONFLICT, why);
                }
            };
        }
    }
    (StatusCode::OK, format!("the backends of {} run\n", cluster.name))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: demo\r\n\r\n").as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    #[tokio::test]
    async fn a_cluster_is_stopped_and_started_without_the_other() {
        let clusters = Clusters::start().await.unwrap();
        let [east, west] = clusters.members.as_slice() else { panic!("two clusters") };
        assert!(get(east.web[0], "/").await.unwrap().ends_with("hello from east-1\n"));
        for _ in 0..2 {
            assert!(get(clusters.switch, "/east/stop").await.unwrap().ends_with("have stopped\n"));
        }
        for address in &east.web {
            let error = get(*address, "/").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        assert!(get(west.web[1], "/").await.unwrap().ends_with("hello from west-2\n"));
        for _ in 0..2 {
            assert!(get(clusters.switch, "/east/start").await.unwrap().ends_with("run\n"));
        }
        assert!(get(east.web[1], "/").await.unwrap().ends_with("hello from east-2\n"));
    }
}
