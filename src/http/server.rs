//! The HTTP servers of this process. They share a thread with the event loop and file descriptors with everything else, so each
//! connection gets one answer and little time, and a new connection never waits for old ones: beyond the limit the oldest is closed
//! whose peer is not authorized yet.
//! Dropping a server closes its connections.

mod bearer;
pub(crate) mod guarded;
mod sources;
mod tls;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use self::sources::{Source, SourceRates, UNAUTHORIZED};
use self::tls::Tls;

/// From accept(2) to the end of the answer. The answer takes no time, so this is the peer's.
const PATIENCE: Duration = Duration::from_secs(5);
/// Answers to administrators may take the control loop a while, and be long.
const PATIENCE_WITH_ADMIN: Duration = Duration::from_secs(60);
/// After accept(2) failed for want of descriptors or memory, which do not come back at once.
const PAUSE: Duration = Duration::from_secs(1);

/// What the peers of some servers can hold together. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    /// The younger, the further back. A prober's must not become the oldest within a round trip, however many others come: with
    /// 1,024 it takes 50,000 a second to cut one that is 20 ms away. Probers themselves give up after seconds.
    by_age: Arc<Mutex<VecDeque<OpenConnection>>>,
    most: usize,
    patience: Duration,
    /// Counts what comes from each source, where one must not take the places of all.
    rates: Option<Arc<Mutex<SourceRates>>>,
}

/// One connection, for [`Connections`].
#[derive(Debug)]
struct OpenConnection {
    task: AbortHandle,
    authorized: Authorized,
    source: Source,
}

/// Whether the peer of a connection was authorized by its request, which is being answered from then on. Clones share it.
#[derive(Clone, Debug, Default)]
struct Authorized(Arc<AtomicBool>);

impl Authorized {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    /// Whether it is on this machine, or in this Pod, for certain: no other one can have a conversation from a loopback address.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.to_canonical().is_loopback()
    }
}

/// For a process that does little else.
impl Default for Connections {
    fn default() -> Self {
        Self::of_pages(1024)
    }
}

impl Connections {
    /// To a server for metrics alone, at most: nearly all are those of peers that are not authorized.
    pub(crate) const METRICS: usize = 256;

    /// So many to pages that are open to the network.
    pub(crate) fn of_pages(most: usize) -> Self {
        Self::new(most, PATIENCE)
    }

    /// So many to the admin server.
    pub(crate) fn of_admin(most: usize) -> Self {
        Self::new(most, PATIENCE_WITH_ADMIN)
    }

    /// So many to a server for metrics alone. Everybody may connect there, and few are authorized.
    pub(crate) fn of_metrics(most: usize) -> Self {
        let rates = Arc::new(Mutex::new(SourceRates::new(Instant::now())));
        Self { rates: Some(rates), ..Self::of_admin(most) }
    }

    fn new(most: usize, patience: Duration) -> Self {
        Self { by_age: Arc::default(), most, patience, rates: None }
    }

    /// Whether a connection of this source is answered at all.
    fn admits(&self, source: Source) -> bool {
        let Some(rates) = &self.rates else { return true };
        rates.lock().unwrap_or_else(PoisonError::into_inner).admits(source, Instant::now())
    }

    /// Adds one. If there is no place, it takes that of the oldest whose peer is not authorized, or else is closed itself. Where
    /// sources are told apart, one that has its share gives up its own oldest.
    fn add(&self, connection: OpenConnection) {
        let mut by_age = self.by_age.lock().unwrap_or_else(PoisonError::into_inner);
        let limited = self.rates.is_some();
        if by_age.len() >= self.most || limited {
            by_age.retain(|connection| !connection.task.is_finished());
        }
        let alike = |open: &&OpenConnection| open.source == connection.source && !open.authorized.is_set();
        if limited && by_age.iter().filter(alike).count() >= UNAUTHORIZED {
            let own = by_age.iter().position(|open| alike(&open));
            if let Some(closed) = own.and_then(|own| by_age.remove(own)) {
                closed.task.abort();
            }
        }
        by_age.push_back(connection);
        if by_age.len() > self.most {
            let oldest = by_age.iter().position(|connection| !connection.authorized.is_set());
            if let Some(closed) = oldest.and_then(|oldest| by_age.remove(oldest)) {
                closed.task.abort();
            }
        }
    }
}

/// A running server. Dropping it closes its port and its connections.
#[derive(Debug)]
pub(crate) struct Server {
    listener: Arc<TcpListener>,
    task: AbortHandle,
    /// Another process may have the socket, too.
    shared: AtomicBool,
    /// To end when the open connections have.
    leave: Arc<Notify>,
    left: bool,
}

impl Server {
    /// Answers on `listener` by `router`, with its place among `connections`.
    pub(crate) fn start(listener: TcpListener, router: Router, connections: Connections) -> Self {
        Self::start_over(listener, router, connections, None)
    }

    /// The same, over TLS if there is any.
    fn start_over(listener: TcpListener, router: Router, connections: Connections, tls: Option<Tls>) -> Self {
        let listener = Arc::new(listener);
        let leave = Arc::<Notify>::default();
        let apart = tls.as_ref().and_then(|_| tls::thread());
        let serving = serve(Arc::clone(&listener), router, connections, tls, Arc::clone(&leave));
        // Handshakes take far more time than answers.
        let task = match apart {
            Some(apart) => apart.spawn(serving),
            None => tokio::spawn(serving),
        };
        let task = task.abort_handle();
        Self { listener, task, shared: AtomicBool::new(false), leave, left: false }
    }

    /// A copy of the socket, for a process that takes over.
    ///
    /// # Errors
    /// As fcntl(2).
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.shared.store(true, Ordering::Relaxed);
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Takes no more connections, since another process takes them, but answers those that are open.
    pub(crate) fn leave(mut self) {
        self.left = true;
        self.leave.notify_one();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        self.task.abort();
        if self.shared.load(Ordering::Relaxed) {
            return;
        }
        // The task keeps the socket until it is next looked at. The port must be free at once: the next table may open it.
        if let Err(error) = SockRef::from(&*self.listener).shutdown(Shutdown::Both) {
            tracing::debug!(%error, "a port of this process stays open until its task ends");
        }
    }
}

async fn serve(
    listener: Arc<TcpListener>,
    router: Router,
    connections: Connections,
    tls: Option<Tls>,
    leave: Arc<Notify>,
) {
    // Dropped with this task, which ends them all.
    let mut own = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // It is closed: it comes too often.
                Ok((_, peer)) if !connections.admits(Source::of(peer.ip())) => {}
                Ok((stream, peer)) => {
                    let authorized = Authorized::default();
                    let facts = (Peer(peer.ip()), authorized.clone());
                    let answered = answer(stream, router.clone(), tls.clone(), facts);
                    let task = own.spawn(in_time(answered, connections.patience));
                    connections.add(OpenConnection { task, authorized, source: Source::of(peer.ip()) });
                }
                Err(error) => complain(&error).await,
            },
            Some(_) = own.join_next() => {}
            () = leave.notified() => break,
        }
    }
    drop(listener);
    while own.join_next().await.is_some() {}
}

async fn in_time(answered: impl Future<Output = ()>, patience: Duration) {
    if tokio::time::timeout(patience, answered).await.is_err() {
        tracing::debug!(?patience, "an HTTP connection was cut: it took too long");
    }
}

async fn answer(stream: TcpStream, router: Router, tls: Option<Tls>, facts: (Peer, Authorized)) {
    let Some(tls) = tls else { return exchange(stream, router, facts).await };
    let Some(acceptor) = tls.acceptor().await else { return };
    match acceptor.accept(stream).await {
        Ok(stream) => exchange(stream, router, facts).await,
        Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
    }
}

/// Answers one request. Probers connect anew each time, as Kubernetes' own do; a peer that may ask again could do so
/// without end and without reading.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    router: Router,
    (peer, authorized): (Peer, Authorized),
) {
    let mut protocol = http1::Builder::new();
    protocol.keep_alive(false);
    // Names are the same in any case, but scripts that probe kube-proxy may look for its own.
    protocol.title_case_headers(true);
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(authorized.clone());
        service.call(request)
    });
    let connection = protocol.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}

/// A connection that ended before it was accepted is its peer's concern; everything else may last.
async fn complain(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "HTTP connections (probes, reports, admin pages) cannot be accepted; retrying");
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
