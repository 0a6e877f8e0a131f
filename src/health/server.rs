//! The HTTP server for probes. It is open to the network, unlike the admin server, so it bounds what peers can hold, and
//! its end takes open connections along.
//!
//! It must not know what is answered.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// How long a peer may take from one request to the next: longer than the interval of usual probes, 2 s to 30 s, so that
/// those which keep their connection can.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections of one server; further ones wait in the kernel. Probes come from a handful of load balancers.
const CONNECTIONS: usize = 128;
/// After accept(2) failed for want of descriptors or memory, which do not come back at once.
const PAUSE: Duration = Duration::from_secs(1);

/// A running server. Dropping it closes its port and its connections.
#[derive(Debug)]
pub(crate) struct Server {
    listener: Arc<TcpListener>,
    task: AbortHandle,
}

impl Server {
    /// Answers on `listener` by `router`.
    pub(crate) fn start(listener: TcpListener, router: Router) -> Self {
        let listener = Arc::new(listener);
        let task = tokio::spawn(serve(Arc::clone(&listener), router)).abort_handle();
        Self { listener, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        // The task keeps the socket until it is next looked at. The port must be free at once: the next table may open it.
        if let Err(error) = SockRef::from(&*self.listener).shutdown(Shutdown::Both) {
            tracing::debug!(%error, "a health check port stays open until its task ends");
        }
    }
}

async fn serve(listener: Arc<TcpListener>, router: Router) {
    // Dropped with this task, which ends them all.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => drop(connections.spawn(answer(stream, router.clone()))),
                Err(error) => complain(&error).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(stream: TcpStream, router: Router) {
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // Names are the same in any case, but scripts that probe kube-proxy may look for its own.
    protocol.title_case_headers(true);
    let connection = protocol.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a probe's connection ended early");
    }
}

/// A connection that ended before it was accepted is its peer's concern; everything else may last.
async fn complain(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "health checks cannot be accepted for a moment");
        tokio::time::sleep(PAUSE).await;
    }
}
