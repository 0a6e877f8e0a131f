//! The HTTP server of pages that are open to the network, as probes, reports and a controller's own: it shares a thread with
//! the control loop. So a connection gets one answer and little time, and a new one never waits for old ones: a connection is cut
//! when as many newer ones have come as there may be. Its end takes open connections along.
//!
//! It must not know what is answered.

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// What the peers of one server can hold.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Open connections. A prober's must not become the oldest of them within a round trip, however many others come.
    connections: usize,
    /// From accept(2) to the end of the answer. The answer takes no time, so this is the peer's.
    patience: Duration,
}

/// It takes 50,000 connections per second to cut a prober that is 20 ms away. Probers themselves give up after seconds.
const LIMITS: Limits = Limits { connections: 1024, patience: Duration::from_secs(5) };
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
        Self::limited(listener, router, LIMITS)
    }

    fn limited(listener: TcpListener, router: Router, limits: Limits) -> Self {
        let listener = Arc::new(listener);
        let task = tokio::spawn(serve(Arc::clone(&listener), router, limits)).abort_handle();
        Self { listener, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        // The task keeps the socket until it is next looked at. The port must be free at once: the next table may open it.
        if let Err(error) = SockRef::from(&*self.listener).shutdown(Shutdown::Both) {
            tracing::debug!(%error, "a port of this process stays open until its task ends");
        }
    }
}

async fn serve(listener: Arc<TcpListener>, router: Router, limits: Limits) {
    // Dropped with this task, which ends them all.
    let mut connections = JoinSet::new();
    let mut by_age = VecDeque::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    make_room(&mut by_age, limits.connections);
                    by_age.push_back(connections.spawn(answer(stream, router.clone(), limits.patience)));
                }
                Err(error) => complain(&error).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Cuts the oldest connection when `most` have come since, and forgets those that ended before it.
fn make_room(by_age: &mut VecDeque<AbortHandle>, most: usize) {
    while by_age.front().is_some_and(AbortHandle::is_finished) {
        by_age.pop_front();
    }
    if by_age.len() >= most
        && let Some(oldest) = by_age.pop_front()
    {
        oldest.abort();
    }
}

/// Answers one request. Probers connect anew each time, as Kubernetes' own do; a peer that may ask again could do so
/// without end and without reading.
async fn answer(stream: TcpStream, router: Router, patience: Duration) {
    let mut protocol = http1::Builder::new();
    protocol.keep_alive(false);
    // Names are the same in any case, but scripts that probe kube-proxy may look for its own.
    protocol.title_case_headers(true);
    let connection = protocol.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(patience, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection ended early"),
        Err(_) => tracing::debug!(?patience, "an HTTP connection was cut: it took too long"),
    }
}

/// A connection that ended before it was accepted is its peer's concern; everything else may last.
async fn complain(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "HTTP connections (probes, reports, admin pages) cannot be accepted for a moment");
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
