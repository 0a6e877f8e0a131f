//! Successor: the process that takes over, as the one that serves sees it.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sheave_dataplane::ListenersToHandOver;
use sheave_dataplane::handover::{AffinityRecord, ConnectionCount, FlowRecord, HandedFlow, HealthRecord};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use super::channel::{Channel, MOST_FDS, MOST_RECORDS};
use super::message::{HandedAnnouncing, Hello, Message, ServingPlace, Welcome};
use super::{PROTOCOL, TakeoverError, Token, own_pod, socket_path};

/// How long a successor may take to introduce itself.
const HELLO: Duration = Duration::from_secs(2);
/// How long it may take to load its objects, since an API server may be unreachable. It retries after that.
const LOADING: Duration = Duration::from_secs(300);
/// How long it may take to apply its table. Traffic continues meanwhile, but changes of objects wait.
const PREPARATION: Duration = Duration::from_secs(30);
/// Time limit of the pause, in which new traffic waits in the sockets. About ten microseconds for each flow are needed.
const REST: Duration = Duration::from_secs(30);
/// How long a single message may take to be sent or answered.
const SILENCE: Duration = Duration::from_secs(5);

/// Limit of health records in one message, lower since they have names and error messages.
const MOST_HEALTH_RECORDS: usize = 16;

/// Backlog of the listener.
const BACKLOG: i32 = 128;
/// Limit of connections without a message so far. Startup probes close theirs at once.
const MOST_SILENT: usize = 64;
/// Limit of processes that wait while another one takes over.
const MOST_WAITING: usize = 16;

/// Listener for successors, which ends when dropped.
#[derive(Debug)]
pub(crate) struct Successors {
    ready: mpsc::Receiver<Successor>,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// State shared between the loop and the task.
#[derive(Debug, Default)]
struct State {
    /// A successor has introduced itself, and the loop has not taken it yet.
    loading: AtomicBool,
    /// This process was told to end.
    ending: AtomicBool,
}

/// Data for a new successor.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) place: ServingPlace,
    /// Pod that this process has taken over from.
    pub(crate) former_pod: Option<String>,
    /// Whether this process is restarted if the successor ends.
    pub(crate) returns: bool,
    pub(crate) workers: usize,
    /// HTTP servers of this process.
    pub(crate) servers: Vec<(SocketAddr, OwnedFd)>,
    /// Counter of the successors that did not take over.
    pub(crate) failures: Arc<AtomicU64>,
}

/// Successor whose objects are loaded. To the successor, dropping this is the end of this process.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: Channel,
    token: Token,
    failures: Arc<AtomicU64>,
    stays: bool,
    /// Lets the next successor begin when dropped.
    _turn: oneshot::Sender<()>,
}

/// Process that serves after a takeover attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    /// The successor.
    HandedOver,
    /// This process, as before.
    GoOn,
}

impl Successors {
    /// Listens in the state directory, and replaces an earlier listener there.
    ///
    /// # Errors
    /// If the socket cannot be bound.
    pub(crate) fn listen(state_dir: &Path, greeting: Greeting) -> io::Result<Self> {
        let path = socket_path(state_dir);
        let listener = UnixListener::from_std(bind(&path)?.into())?;
        let (ready, inbox) = mpsc::channel(1);
        let state = Arc::<State>::default();
        let task = tokio::spawn(accept(listener, greeting, ready, Arc::clone(&state)));
        Ok(Self { ready: inbox, state, task })
    }

    /// Waits for the next successor whose objects are loaded. Cancel safe.
    pub(crate) async fn next(&mut self) -> Successor {
        match self.ready.recv().await {
            Some(successor) => {
                self.state.loading.store(false, Ordering::Relaxed);
                successor
            }
            // The task ends with this value.
            None => std::future::pending().await,
        }
    }

    /// Whether a successor has introduced itself and is loading its objects.
    pub(crate) fn is_one_loading(&self) -> bool {
        self.state.loading.load(Ordering::Relaxed)
    }

    /// Allows the Pod that this process has taken over from to take over again: that Pod stays, and this one ends.
    pub(crate) fn let_former_pod_return(&self) {
        self.state.ending.store(true, Ordering::Relaxed);
    }
}

impl Drop for Successors {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn bind(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Bind under another name and rename, so that there is always a listener.
    let own = path.with_extension(format!("{:016x}", RandomState::new().hash_one(0)));
    rustix::net::bind(&socket, &SocketAddrUnix::new(&own)?)?;
    let placed = rustix::fs::chmod(&own, Mode::RUSR | Mode::WUSR)
        .and_then(|()| rustix::net::listen(&socket, BACKLOG))
        .map_err(io::Error::from)
        .and_then(|()| std::fs::rename(&own, path));
    placed.inspect_err(|_| drop(std::fs::remove_file(&own)))?;
    Ok(socket)
}

async fn accept(
    listener: UnixListener,
    greeting: Greeting,
    ready: mpsc::Sender<Successor>,
    state: Arc<State>,
) {
    let (heard, hellos) = mpsc::channel(MOST_WAITING);
    tokio::join!(listen_for_hellos(listener, heard), greet_in_turn(hellos, greeting, ready, &state));
}

/// Accepts connections, independent of what current successors do. Startup probes continue while a successor loads for minutes, and a full
/// backlog would look to them as if no process served.
async fn listen_for_hellos(listener: UnixListener, heard: mpsc::Sender<(Channel, Message)>) {
    let mut silent = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if silent.len() < MOST_SILENT => match accepted {
                Ok((socket, _)) => {
                    let heard = heard.clone();
                    silent.spawn(async move { hear(Channel::new(socket), &heard).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a process that asks to take over");
                    // If descriptors are short, an immediate retry would fail as well.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = silent.join_next() => {}
        }
    }
}

/// Waits for the first message. A probe closes without one.
async fn hear(channel: Channel, heard: &mpsc::Sender<(Channel, Message)>) {
    match channel.receive_within(HELLO).await {
        // If too many are waiting already, the connection is closed, which the process sees.
        Ok((hello, _)) => drop(heard.try_send((channel, hello))),
        Err(TakeoverError::Closed) => {}
        Err(error) => tracing::warn!(%error, "a process connected and did not ask to take over"),
    }
}

/// Lets successors take over, one at a time.
async fn greet_in_turn(
    mut hellos: mpsc::Receiver<(Channel, Message)>,
    greeting: Greeting,
    ready: mpsc::Sender<Successor>,
    state: &State,
) {
    while let Some((channel, hello)) = hellos.recv().await {
        match greet(channel, &hello, &greeting, state).await {
            Ok((channel, token)) => {
                let (turn, over) = oneshot::channel();
                let failures = Arc::clone(&greeting.failures);
                let stays = matches!(hello, Message::Hello(Hello { stays: true, .. }));
                let successor = Successor { channel, token, failures, stays, _turn: turn };
                if ready.send(successor).await.is_err() {
                    return;
                }
                over.await.ok();
            }
            Err(error) => {
                state.loading.store(false, Ordering::Relaxed);
                greeting.failures.fetch_add(1, Ordering::Relaxed);
                if !matches!(error, TakeoverError::Closed) {
                    tracing::warn!(%error, "a process asked to take over and did not");
                }
            }
        }
    }
}

/// Sends a successor what it needs to start, and waits until it is loaded.
async fn greet(
    channel: Channel,
    hello: &Message,
    greeting: &Greeting,
    state: &State,
) -> Result<(Channel, Token), TakeoverError> {
    if let Err(why) = check(&channel, hello, greeting, state) {
        // The process may be gone already.
        channel.send(&Message::Refused { why: why.clone() }, NO_FDS).await.ok();
        return Err(TakeoverError::Refused(why));
    }
    let token = Token::new()?;
    let loaded = welcome(&channel, greeting, &token, state).await;
    if loaded.is_err() {
        // The successor may be slow, and must not take this for the end of this process.
        token.take();
    }
    loaded.map(|()| (channel, token))
}

async fn welcome(
    channel: &Channel,
    greeting: &Greeting,
    token: &Token,
    state: &State,
) -> Result<(), TakeoverError> {
    let mut fds = vec![token.0.try_clone()?];
    for (_, fd) in &greeting.servers {
        fds.push(fd.try_clone()?);
    }
    let claim = sheave_dataplane::local_ports_claim()?;
    let welcome = Welcome {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pod: own_pod(),
        workers: greeting.workers,
        servers: greeting.servers.iter().map(|(addr, _)| *addr).collect(),
        local_ports: claim.is_some(),
        returns: greeting.returns,
    };
    fds.extend(claim);
    channel.send(&Message::Welcome(welcome), &fds).await?;
    state.loading.store(true, Ordering::Relaxed);
    tracing::info!("another process is about to take over");
    // This process keeps serving meanwhile.
    match channel.receive_within(LOADING).await? {
        (Message::Begin, _) => Ok(()),
        (other, _) => Err(TakeoverError::Unexpected(format!("{other:?}"))),
    }
}

/// Checks whether the process may take over.
fn check(channel: &Channel, hello: &Message, greeting: &Greeting, state: &State) -> Result<(), String> {
    let peer = channel.peer().map_err(|error| error.to_string())?.uid();
    let own = rustix::process::geteuid().as_raw();
    if peer != own {
        return Err(format!("it runs as user {peer}, this one as {own}"));
    }
    let Message::Hello(Hello { protocol, version, place, pod, stays: _ }) = hello else {
        return Err("it did not say hello".to_owned());
    };
    if *protocol != PROTOCOL {
        return Err(format!("version {version} hands over by protocol {protocol}, this one by {PROTOCOL}"));
    }
    let ServingPlace { node, class, network } = &greeting.place;
    if place.node != *node {
        return Err(format!("it is of node {:?}, this one of {node:?}", place.node));
    }
    if place.class != *class {
        return Err(format!("it serves the class {:?}, this one {class:?}", place.class));
    }
    if place.network != *network {
        return Err("it is in another network namespace".to_owned());
    }
    let former = pod.is_some() && *pod == greeting.former_pod;
    if former && !state.ending.load(Ordering::Relaxed) {
        // Its container was restarted before its Pod was deleted.
        return Err("its Pod has handed over to this one".to_owned());
    }
    Ok(())
}

impl Successor {
    /// Process ID; 0 if the successor is not visible to this process.
    pub(crate) fn process_id(&self) -> i32 {
        self.channel.peer().ok().and_then(|peer| peer.pid()).unwrap_or_default()
    }

    /// Hands over the sockets that accept new traffic.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) async fn hand_over(
        &self,
        listeners: ListenersToHandOver,
        node_ports: Vec<(SocketAddr, OwnedFd)>,
        affinity: Vec<AffinityRecord>,
        health: Vec<HealthRecord>,
    ) -> Result<(), TakeoverError> {
        let ListenersToHandOver { sockets, steered, interfaces } = listeners;
        for sockets in sockets.chunks(MOST_FDS) {
            let roles = sockets.iter().map(|(role, _)| *role).collect();
            let fds: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
            self.say(Message::Sockets { roles }, &fds).await?;
        }
        let (addresses, fds): (Vec<SocketAddr>, Vec<OwnedFd>) = node_ports.into_iter().unzip();
        for (addresses, fds) in addresses.chunks(MOST_FDS).zip(fds.chunks(MOST_FDS)) {
            self.say(Message::NodePorts { addresses: addresses.to_vec() }, fds).await?;
        }
        for frontends in steered.chunks(MOST_RECORDS) {
            self.say(Message::Steered { frontends: frontends.to_vec() }, NO_FDS).await?;
        }
        // Sent even if empty.
        self.say(Message::Interfaces { names: interfaces }, NO_FDS).await?;
        self.affinity(affinity).await?;
        for records in health.chunks(MOST_HEALTH_RECORDS) {
            self.say(Message::Health { records: records.to_vec() }, NO_FDS).await?;
        }
        self.say(Message::Listening, NO_FDS).await
    }

    /// Waits until the successor has applied its table.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) async fn prepared(&self) -> Result<(), TakeoverError> {
        match self.channel.receive().await? {
            (Message::Prepared, _) => Ok(()),
            (other, _) => Err(TakeoverError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Hands over flows of a worker.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) async fn flows(&self, worker: usize, flows: Vec<HandedFlow>) -> Result<(), TakeoverError> {
        let (records, fds): (Vec<FlowRecord>, Vec<OwnedFd>) =
            flows.into_iter().map(|flow| (flow.record, flow.fd)).unzip();
        for (records, fds) in records.chunks(MOST_FDS).zip(fds.chunks(MOST_FDS)) {
            self.say(Message::Flows { worker, records: records.to_vec() }, fds).await?;
        }
        Ok(())
    }

    /// Hands over affinity records.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) async fn affinity(&self, records: Vec<AffinityRecord>) -> Result<(), TakeoverError> {
        for records in records.chunks(MOST_RECORDS) {
            self.say(Message::Affinity { records: records.to_vec() }, NO_FDS).await?;
        }
        Ok(())
    }

    /// Offers the right to serve and to announce addresses, and waits until the successor has taken it.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) async fn offer(
        &self,
        announcing: Option<HandedAnnouncing>,
        interfaces: Vec<(String, OwnedFd)>,
    ) -> Result<(), TakeoverError> {
        let (interfaces, fds): (Vec<String>, Vec<_>) = interfaces.into_iter().unzip();
        self.say(Message::Offer { announcing, interfaces }, &fds).await?;
        match self.channel.receive_within(SILENCE).await? {
            (Message::Serving, _) => Ok(()),
            (other, _) => Err(TakeoverError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Decides which process serves, after an offer or an earlier failure. The decision stands whatever happens to the successor.
    pub(crate) async fn settle(&self, offered: Result<(), TakeoverError>) -> Outcome {
        let regained = self.token.take();
        let error = match offered {
            Ok(()) if !regained => return Outcome::HandedOver,
            Ok(()) => TakeoverError::Unexpected("it serves without the right to".to_owned()),
            Err(error) => error,
        };
        // If the connection is closed, the successor has ended, with or without the token.
        let outcome = if regained || matches!(error, TakeoverError::Closed) {
            Outcome::GoOn
        } else {
            Outcome::HandedOver
        };
        tracing::warn!(%error, ?outcome, "another process could not take over as it should");
        if outcome == Outcome::GoOn {
            self.failures.fetch_add(1, Ordering::Relaxed);
            let why = error.to_string();
            // The successor may be gone or not read, and traffic must not wait for that.
            tokio::time::timeout(Duration::ZERO, self.say(Message::Refused { why }, NO_FDS)).await.ok();
        }
        outcome
    }

    /// Sends current connection counts of these Services. Waits up to `patience` for each part to be read. Returns false if the successor has
    /// not read them.
    pub(crate) async fn connections(&self, counts: &[ConnectionCount], patience: Duration) -> bool {
        for counts in counts.chunks(MOST_RECORDS).filter(|_| self.stays) {
            let message = Message::Connections { counts: counts.to_vec() };
            // A busy successor gets the counts the next time.
            if tokio::time::timeout(patience, self.channel.send(&message, NO_FDS)).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Waits until a successor that has taken over ends or is told to end. Never returns if it has handed over to another process, or does not
    /// keep the connection.
    pub(crate) async fn gone(&self) {
        let mut watched = self.stays;
        while watched {
            match self.channel.receive().await {
                Ok((Message::HandedOver, _)) => watched = false,
                Err(TakeoverError::Closed | TakeoverError::Io(_)) => return,
                said => tracing::debug!(?said, "the process that has taken over says something unexpected"),
            }
        }
        std::future::pending::<()>().await;
    }

    /// Time limit for handing over the sockets. Traffic continues meanwhile.
    pub(crate) const PREPARATION: Duration = PREPARATION;
    /// Time limit for handing over flows and records, until the successor serves.
    pub(crate) const REST: Duration = REST;

    async fn say(&self, message: Message, fds: &[impl AsFd]) -> Result<(), TakeoverError> {
        let sent = tokio::time::timeout(SILENCE, self.channel.send(&message, fds));
        sent.await.unwrap_or(Err(TakeoverError::Silent))
    }
}

const NO_FDS: &[OwnedFd] = &[];
