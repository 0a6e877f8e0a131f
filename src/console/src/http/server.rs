//! HTTP server. All servers share a thread with the event loop, and file descriptors with everything else. Each connection
//! therefore gets one answer and little time. A new connection never waits for old ones: beyond the limit, the oldest connection
//! whose peer is not yet authorized is closed. On an admin server, strangers make room for this machine's processes, and never the reverse.
//! Dropping a server closes its connections.

mod bearer;
pub mod guarded;
mod sources;
pub mod tls;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
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
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;

use self::sources::{Source, SourceRates, UNAUTHORIZED};
use self::tls::Tls;

/// Time limit from accept(2) to the end of the answer, for peers that have shown no token. Answers are made at once, so this is time for
/// the peer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of answers to administrators and controllers, which may be long and take the control loop a while.
const PATIENCE_WITH_ADMIN: Duration = Duration::from_secs(60);
/// Pause after accept(2) has failed for lack of descriptors or memory, which are not freed at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits of connections that some servers share. Clones share the count.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Connections, oldest first. A probe must not become the oldest within a round trip, however many others connect: with 1,024
    /// places it takes 50,000 connections a second to close one that is 20 ms away. Probes themselves time out after seconds.
    by_age: Arc<Mutex<VecDeque<OpenConnection>>>,
    most: usize,
    patience: Duration,
    /// Whether peers on loopback are administrators, which have no limit of their own and go last.
    favors_loopback: bool,
    /// Whether a source has a limit of connections that are not authorized.
    limits_sources: bool,
    /// Connection rates of sources, on servers where no single source may take all places.
    rates: Option<Arc<Mutex<SourceRates>>>,
}

/// Entry of [`Connections`].
#[derive(Debug)]
struct OpenConnection {
    task: AbortHandle,
    authorized: Authorized,
    source: Source,
    /// Whether the peer is on loopback, where that matters.
    is_favored: bool,
}

impl OpenConnection {
    fn is_stranger(&self) -> bool {
        !self.is_favored && !self.authorized.is_set()
    }
}

/// Whether the request has authorized the peer of a connection. Clones share it.
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

/// Source address of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    /// Whether the peer is certainly on this machine or in this Pod: a loopback address can come from nowhere else.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.to_canonical().is_loopback()
    }
}

/// Limits of a process with few other connections.
impl Default for Connections {
    fn default() -> Self {
        Self::of_pages(1024)
    }
}

impl Connections {
    /// Maximum of connections to a metrics listener. Nearly all are from peers that are not authorized.
    pub const METRICS: usize = 256;

    /// Limits for pages that are open to the network.
    pub fn of_pages(most: usize) -> Self {
        Self::new(most, PATIENCE)
    }

    /// Limits for the admin server. It may be open to the network, for probes: these take no time, and have no token. Sources have no
    /// rate, since the kubelet's probes come from an address that Pods of its node may share.
    pub fn of_admin(most: usize) -> Self {
        Self { favors_loopback: true, limits_sources: true, ..Self::new(most, PATIENCE) }
    }

    /// Limits for a metrics listener, where anyone may connect and few are authorized.
    pub fn of_metrics(most: usize) -> Self {
        let rates = Arc::new(Mutex::new(SourceRates::new(Instant::now())));
        Self { limits_sources: true, rates: Some(rates), ..Self::new(most, PATIENCE_WITH_ADMIN) }
    }

    fn new(most: usize, patience: Duration) -> Self {
        Self {
            by_age: Arc::default(),
            most,
            patience,
            favors_loopback: false,
            limits_sources: false,
            rates: None,
        }
    }

    /// Whether this peer goes last.
    fn favors(&self, peer: Peer) -> bool {
        self.favors_loopback && peer.is_loopback()
    }

    /// Time limit of this peer's connections, as long as it has shown no token.
    fn patience_with(&self, peer: Peer) -> Duration {
        if self.favors(peer) { PATIENCE_WITH_ADMIN } else { self.patience }
    }

    /// Whether a new connection of this source is within its rate.
    fn admits(&self, source: Source) -> bool {
        let Some(rates) = &self.rates else { return true };
        rates.lock().unwrap_or_else(PoisonError::into_inner).admits(source, Instant::now())
    }

    /// Adds a connection. If there is no place, the oldest connection that is neither authorized nor favored is closed, or else the oldest
    /// favored one, or else the new one. With separate sources, a source at its limit loses its own oldest connection. Returns whether all
    /// places are taken, or those of this source.
    fn add(&self, connection: OpenConnection) -> bool {
        let mut by_age = self.by_age.lock().unwrap_or_else(PoisonError::into_inner);
        if by_age.len() >= self.most || self.limits_sources {
            by_age.retain(|connection| !connection.task.is_finished());
        }
        let alike = |open: &&OpenConnection| open.source == connection.source && open.is_stranger();
        let is_limited = self.limits_sources && connection.is_stranger();
        let limited = if is_limited { by_age.iter().filter(alike).count() } else { 0 };
        if limited >= UNAUTHORIZED {
            close(&mut by_age, |open| alike(&open));
        }
        by_age.push_back(connection);
        if by_age.len() > self.most && !close(&mut by_age, OpenConnection::is_stranger) {
            close(&mut by_age, |open| !open.authorized.is_set());
        }
        by_age.len() >= self.most || limited + 1 >= UNAUTHORIZED
    }
}

/// Closes the oldest connection that is one of these. Returns whether there is one.
fn close(by_age: &mut VecDeque<OpenConnection>, is_one: impl Fn(&OpenConnection) -> bool) -> bool {
    let oldest = by_age.iter().position(is_one);
    let closed = oldest.and_then(|oldest| by_age.remove(oldest));
    closed.inspect(|closed| closed.task.abort()).is_some()
}

/// Running server. Dropping it closes its port and its connections.
#[derive(Debug)]
pub struct Server {
    listener: Arc<TcpListener>,
    /// `None` once it is left alone.
    task: Option<JoinHandle<()>>,
    /// Whether another process may have the socket as well.
    shared: AtomicBool,
    /// Tells the task to end after the open connections.
    leave: Arc<Notify>,
}

impl Server {
    /// Serves `router` on `listener`, within the limits of `connections`.
    pub fn start(listener: TcpListener, router: Router, connections: Connections) -> Self {
        Self::start_over(listener, router, connections, None)
    }

    /// Serves with TLS if configured.
    fn start_over(listener: TcpListener, router: Router, connections: Connections, tls: Option<Tls>) -> Self {
        let listener = Arc::new(listener);
        let leave = Arc::<Notify>::default();
        let apart = tls.as_ref().and_then(|_| tls::thread());
        let serving = serve(Arc::clone(&listener), router, connections, tls, Arc::clone(&leave));
        // TLS handshakes take far more time than answers, so they run on another thread.
        let task = match apart {
            Some(apart) => apart.spawn(serving),
            None => tokio::spawn(serving),
        };
        Self { listener, task: Some(task), shared: AtomicBool::new(false), leave }
    }

    /// Duplicates the socket for a successor.
    ///
    /// # Errors
    /// If the descriptor cannot be duplicated (fcntl(2)).
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.shared.store(true, Ordering::Relaxed);
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Stops accepting connections, which another process does now. Returns the task that answers the open ones, which ends once all are
    /// answered or their time is over.
    #[must_use = "what is not awaited is cut when the process ends"]
    pub fn leave(mut self) -> Option<JoinHandle<()>> {
        self.leave.notify_one();
        self.task.take()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(task) = &self.task else { return };
        task.abort();
        if self.shared.load(Ordering::Relaxed) {
            return;
        }
        // The task holds the socket until its next poll, but the port must be free at once: the next table may open it.
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
    // Dropped with this task, which ends the connections.
    let mut own = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // The source exceeds its rate, so the connection is closed.
                Ok((_, peer)) if !connections.admits(Source::of(peer.ip())) => {}
                Ok((stream, peer)) => {
                    let authorized = Authorized::default();
                    let (source, peer) = (Source::of(peer.ip()), Peer(peer.ip()));
                    let answered = answer(stream, router.clone(), tls.clone(), (peer, authorized.clone()));
                    let patience = connections.patience_with(peer);
                    let task = own.spawn(in_time(answered, patience, authorized.clone()));
                    let is_favored = connections.favors(peer);
                    let full = connections.add(OpenConnection { task, authorized, source, is_favored });
                    if full {
                        // Those who have asked are answered before the next one takes a place: accepting alone never waits.
                        tokio::task::yield_now().await;
                    }
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

/// Whoever has shown a token gets the time of an administrator.
async fn in_time(answered: impl Future<Output = ()>, patience: Duration, authorized: Authorized) {
    let mut answered = pin!(answered);
    let mut late = timeout(patience, &mut answered).await.is_err();
    if late && authorized.is_set() {
        late = timeout(PATIENCE_WITH_ADMIN.saturating_sub(patience), answered).await.is_err();
    }
    if late {
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

/// Answers one request. Probes open a new connection each time, as those of Kubernetes do. With keep-alive, a peer could send
/// requests forever without reading.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    router: Router,
    (peer, authorized): (Peer, Authorized),
) {
    let mut protocol = http1::Builder::new();
    protocol.keep_alive(false);
    // Header names are case-insensitive, but scripts that probe kube-proxy may expect its spelling.
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

/// Logs an accept error, unless the connection ended before it was accepted. Other errors may persist.
async fn complain(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "HTTP connections (probes, reports, admin pages) cannot be accepted; retrying");
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
