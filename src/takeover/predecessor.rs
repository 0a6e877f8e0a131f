//! Predecessor: the process to take over from, as its successor sees it.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sheave_dataplane::HandedListeners;
use sheave_dataplane::handover::{AffinityRecord, ConnectionCount, HandedFlow, HandedSocket, HealthRecord};
use tokio::time::Instant;

use super::channel::Channel;
use super::message::{HandedAnnouncing, Hello, Message, ServingPlace, Welcome};
use super::{MOST_WORKERS, PROTOCOL, TakeoverError, Token, own_pod, socket_path};

/// How long the predecessor may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a startup probe waits for a place in the queue of connections.
const PROBING: Duration = Duration::from_secs(2);
/// Interval of attempts while the queue is full.
const FULL_QUEUE: Duration = Duration::from_millis(20);
/// How often, and how long after, a socket without a listener is tried again. Between a process that has handed over and its successor's
/// first turn there is none; who found nobody then would meet ports in use, and end.
const GAPS: u32 = 5;
const GAP: Duration = Duration::from_millis(20);
/// How long a handover may take. The predecessor itself gives up sooner.
const HANDING_OVER: Duration = Duration::from_secs(65);

/// Connection to the process that serves.
#[derive(Debug)]
pub(crate) struct Predecessor {
    channel: Channel,
    token: Token,
    version: String,
    pod: Option<String>,
    workers: usize,
    returns: bool,
    servers: HashMap<SocketAddr, TcpListener>,
    /// Time limit of the handover, once it has begun.
    deadline: Option<Instant>,
}

/// Connection that shows the predecessor that its successor serves, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lifeline {
    channel: Channel,
    returns: bool,
}

/// State that is handed over before the predecessor pauses.
#[derive(Debug, Default)]
pub(crate) struct Estate {
    pub(crate) listeners: HandedListeners,
    /// Sockets of health check node ports.
    pub(crate) node_ports: HashMap<SocketAddr, TcpListener>,
    pub(crate) affinity: Vec<AffinityRecord>,
    pub(crate) health: Vec<HealthRecord>,
}

/// State that is handed over while the predecessor pauses.
#[derive(Debug)]
pub(crate) enum LastPart {
    Flows {
        worker: usize,
        flows: Vec<HandedFlow>,
    },
    Affinity(Vec<AffinityRecord>),
    /// End of the handover: this process may serve, with this state of the announcer and these interfaces.
    Offer(Option<HandedAnnouncing>, Vec<(String, OwnedFd)>),
}

impl Predecessor {
    /// Connects to the process that serves on this node; `None` if there is none.
    ///
    /// # Errors
    /// If there is one, but this process cannot take over from it.
    pub(crate) async fn find(state_dir: &Path, place: ServingPlace) -> Result<Option<Self>, TakeoverError> {
        for _ in 0..GAPS {
            match Self::greet(state_dir, place.clone()).await {
                // It may just have ended, or have handed over to a process that does not listen yet.
                Err(TakeoverError::Closed) | Ok(None) if socket_path(state_dir).exists() => {
                    tokio::time::sleep(GAP).await;
                }
                found => return found,
            }
        }
        Self::greet(state_dir, place).await
    }

    async fn greet(state_dir: &Path, place: ServingPlace) -> Result<Option<Self>, TakeoverError> {
        let connected = match connect_within(PATIENCE, &socket_path(state_dir)).await {
            Err(error) if is_unusable(&error) => {
                // If a process serves after all, its ports will be in use.
                tracing::warn!(directory = %state_dir.display(), %error, "cannot look for a process to take over from");
                None
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(TakeoverError::Silent),
            connected => connected?,
        };
        let Some(socket) = connected else { return Ok(None) };
        let channel = Channel::over(socket)?;
        let (peer, own) = (channel.peer()?.uid(), rustix::process::geteuid().as_raw());
        if peer != own {
            return Err(TakeoverError::Refused(format!("it runs as user {peer}, this one as {own}")));
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = Message::Hello(Hello { protocol: PROTOCOL, version, place, pod: own_pod(), stays: true });
        channel.send(&hello, NO_FDS).await?;
        let (mut welcome, mut fds) = match channel.receive_within(PATIENCE).await? {
            (Message::Welcome(welcome), fds) => (welcome, fds),
            (Message::Refused { why }, _) => return Err(TakeoverError::Refused(why)),
            (other, _) => return Err(unexpected(&other)),
        };
        if fds.is_empty() {
            return Err(TakeoverError::Unexpected("it welcomes without a token".to_owned()));
        }
        if !(1..=MOST_WORKERS).contains(&welcome.workers) {
            return Err(TakeoverError::Unexpected(format!("it has {} workers", welcome.workers)));
        }
        let token = Token(fds.remove(0));
        if welcome.local_ports
            && let Some(claim) = fds.pop()
        {
            sheave_dataplane::take_over_local_ports(claim);
        }
        let servers = named(std::mem::take(&mut welcome.servers), fds)?;
        let Welcome { version, pod, workers, returns, .. } = welcome;
        Ok(Some(Self { channel, token, version, pod, workers, returns, servers, deadline: None }))
    }

    /// Version of the predecessor.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Pod of the predecessor, if any.
    pub(crate) fn pod(&self) -> Option<&str> {
        self.pod.as_deref()
    }

    /// Number of its workers, and so of its successor's.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Takes the socket of its HTTP server at this address, if there is one.
    pub(crate) fn server(&mut self, addr: SocketAddr) -> Option<TcpListener> {
        self.servers.remove(&addr)
    }

    /// Waits until the predecessor has ended or refuses to hand over. Cancel safe. Nothing else may receive meanwhile.
    pub(crate) async fn ended(&self) {
        match self.channel.receive().await {
            Ok((message, _)) => tracing::warn!(?message, "the process that serves says something unexpected"),
            Err(error) => tracing::info!(%error, "the process that serves"),
        }
    }

    /// Begins the handover. From then on, the predecessor's table does not change.
    ///
    /// # Errors
    /// If the connection fails. The predecessor then continues.
    pub(crate) async fn begin(&mut self) -> Result<Estate, TakeoverError> {
        self.deadline = Some(Instant::now() + HANDING_OVER);
        self.channel.send(&Message::Begin, NO_FDS).await?;
        let mut estate = Estate::default();
        loop {
            match self.receive().await? {
                (Message::Sockets { roles }, fds) => {
                    let sockets = paired(roles, fds)?;
                    let sockets = sockets.map(|(role, fd)| HandedSocket { role, fd });
                    estate.listeners.sockets.extend(sockets);
                }
                (Message::NodePorts { addresses }, fds) => estate.node_ports.extend(named(addresses, fds)?),
                (Message::Steered { frontends }, _) => estate.listeners.steered.extend(frontends),
                (Message::Interfaces { names }, _) => {
                    estate.listeners.interfaces.get_or_insert_default().extend(names);
                }
                (Message::Affinity { records }, _) => estate.affinity.extend(records),
                (Message::Health { records }, _) => estate.health.extend(records),
                (Message::Listening, _) => return Ok(estate),
                (Message::Refused { why }, _) => return Err(TakeoverError::Refused(why)),
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }

    /// Reports that everything but the flows is ready. The predecessor pauses from now on, so nothing may take long.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) async fn prepared(&self) -> Result<(), TakeoverError> {
        self.channel.send(&Message::Prepared, NO_FDS).await
    }

    /// Receives the next part of what is handed over during the pause.
    ///
    /// # Errors
    /// If the connection fails. The predecessor then continues.
    pub(crate) async fn next_part(&self) -> Result<LastPart, TakeoverError> {
        match self.receive().await? {
            (Message::Flows { worker, records }, fds) => {
                let flows = paired(records, fds)?.map(|(record, fd)| HandedFlow { record, fd }).collect();
                Ok(LastPart::Flows { worker, flows })
            }
            (Message::Affinity { records }, _) => Ok(LastPart::Affinity(records)),
            (Message::Offer { announcing, interfaces }, fds) => {
                Ok(LastPart::Offer(announcing, paired(interfaces, fds)?.collect()))
            }
            (Message::Refused { why }, _) => Err(TakeoverError::Refused(why)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Takes the offered right to serve. The other process releases everything when it learns of it.
    ///
    /// # Errors
    /// [`Revoked`](TakeoverError::Revoked) if the predecessor has resumed, or if the connection fails. This process must not serve
    /// then.
    pub(crate) async fn succeed(&self) -> Result<(), TakeoverError> {
        if !self.token.take() {
            return Err(TakeoverError::Revoked);
        }
        match self.channel.send(&Message::Serving, NO_FDS).await {
            // The predecessor has ended.
            Err(TakeoverError::Closed) => Ok(()),
            // Without this message, the predecessor would take this process for dead and resume.
            told => told,
        }
    }

    /// Lifeline to hold for as long as this process serves.
    pub(crate) fn into_lifeline(self) -> Lifeline {
        Lifeline { channel: self.channel, returns: self.returns }
    }

    async fn receive(&self) -> Result<(Message, Vec<OwnedFd>), TakeoverError> {
        let left =
            self.deadline.map_or(PATIENCE, |deadline| deadline.saturating_duration_since(Instant::now()));
        self.channel.receive_within(left.min(PATIENCE)).await
    }

    #[cfg(test)]
    pub(super) async fn say(&self, message: Message) -> Result<(), TakeoverError> {
        self.channel.send(&message, NO_FDS).await
    }

    /// After the connection was closed: whether the predecessor has ended without taking back the right to serve. Takes the right
    /// if so.
    pub(crate) fn is_dead(&self) -> bool {
        self.token.take()
    }
}

impl Lifeline {
    /// How long a stopping process gives its predecessor to be restarted. A kubelet waits for 10 s the second time.
    pub(crate) const RETURN: Duration = Duration::from_secs(15);

    /// Whether the predecessor is alive, and takes over when this is dropped.
    pub(crate) fn is_watched(&self) -> bool {
        self.returns && !self.channel.is_closed()
    }

    /// Changed connection counts of the predecessor; `None` once it has ended. Cancel safe.
    pub(crate) async fn connections(&self) -> Option<Vec<ConnectionCount>> {
        loop {
            match self.channel.receive().await {
                Ok((Message::Connections { counts }, _)) => return Some(counts),
                Err(TakeoverError::Closed | TakeoverError::Io(_)) => return None,
                said => tracing::debug!(?said, "the process that has handed over says something unexpected"),
            }
        }
    }

    /// Tells the predecessor that another process has taken over, so that the end of this one does not matter to it.
    pub(crate) async fn hand_over(self) {
        // The predecessor may have ended, or does not read.
        tokio::time::timeout(Duration::ZERO, self.channel.send(&Message::HandedOver, NO_FDS)).await.ok();
    }
}

/// Whether a process serves that is not visible from here, since it is in another container.
///
/// # Errors
/// If connect(2) fails. A process may serve nevertheless, unless the path is [unusable](is_unusable).
pub(crate) async fn serves_elsewhere(state_dir: &Path) -> io::Result<bool> {
    match connect_within(PROBING, &socket_path(state_dir)).await? {
        // The kernel reports the ID 0 for such a process (unix(7), SO_PEERCRED).
        Some(socket) => Ok(Channel::over(socket)?.peer()?.pid().is_none_or(|process| process == 0)),
        None => Ok(false),
    }
}

const NO_FDS: &[OwnedFd] = &[];

/// Whether connecting fails permanently, so that no takeover is possible through this directory.
pub(crate) fn is_unusable(error: &io::Error) -> bool {
    let lasting = [Errno::ACCESS, Errno::PERM, Errno::NOTDIR, Errno::NAMETOOLONG, Errno::LOOP, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|errno| lasting.contains(&errno))
}

/// Connects, and waits for a place if the queue is full.
async fn connect_within(patience: Duration, path: &Path) -> io::Result<Option<OwnedFd>> {
    let deadline = Instant::now() + patience;
    loop {
        match connect(path) {
            // There is a listener that has not accepted for a while (connect(2), EAGAIN).
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                tokio::time::sleep(FULL_QUEUE).await;
            }
            connected => return connected,
        }
    }
}

/// Connects; `None` if there is no listener.
pub(super) fn connect(path: &Path) -> io::Result<Option<OwnedFd>> {
    let addr = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    match rustix::net::connect(&socket, &addr).map_err(io::Error::from) {
        Ok(()) => Ok(Some(socket)),
        // There never was a listener, or it has ended.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn unexpected(message: &Message) -> TakeoverError {
    TakeoverError::Unexpected(format!("{message:?}"))
}

/// Pairs each name with its descriptor.
fn paired<T>(names: Vec<T>, fds: Vec<OwnedFd>) -> Result<impl Iterator<Item = (T, OwnedFd)>, TakeoverError> {
    if names.len() != fds.len() {
        let why = format!("{} descriptors for {} names", fds.len(), names.len());
        return Err(TakeoverError::Unexpected(why));
    }
    Ok(names.into_iter().zip(fds))
}

fn named(
    addresses: Vec<SocketAddr>,
    fds: Vec<OwnedFd>,
) -> Result<HashMap<SocketAddr, TcpListener>, TakeoverError> {
    Ok(paired(addresses, fds)?.map(|(addr, fd)| (addr, TcpListener::from(fd))).collect())
}
