//! The process that takes over, as the one that serves sees it.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::Counter;
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

/// How long a successor may take to say who it is.
const HELLO: Duration = Duration::from_secs(2);
/// How long it may take to load its objects: an API server may be away. It tries again then.
const LOADING: Duration = Duration::from_secs(300);
/// How long it may take to put its table in force. Traffic goes on meanwhile, changes of objects wait.
const PREPARATION: Duration = Duration::from_secs(30);
/// How long it may take while new traffic waits in the sockets, in all: about ten microseconds for each flow.
const REST: Duration = Duration::from_secs(30);
/// How long nothing may happen in that time.
const SILENCE: Duration = Duration::from_secs(5);

/// Health records in one message: they have names, and errors for people.
const MOST_HEALTH_RECORDS: usize = 16;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Connections on which nothing has been said yet: startup probes close theirs at once.
const MOST_SILENT: usize = 64;
/// Processes that wait while another one takes over.
const MOST_WAITING: usize = 16;

/// Who asks to take over, until dropped.
#[derive(Debug)]
pub(crate) struct Successors {
    ready: mpsc::Receiver<Successor>,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// What the loop and the task tell each other.
#[derive(Debug, Default)]
struct State {
    /// One has said hello, and the loop has not taken it yet.
    loading: AtomicBool,
    /// This process was told to end.
    ending: AtomicBool,
}

/// What every successor is told at first.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) place: ServingPlace,
    /// The Pod that this process has taken over from.
    pub(crate) former_pod: Option<String>,
    /// Whether this process is started again if the successor ends.
    pub(crate) returns: bool,
    pub(crate) workers: usize,
    /// The HTTP servers of this process.
    pub(crate) servers: Vec<(SocketAddr, OwnedFd)>,
    /// Counts the successors that did not take over.
    pub(crate) failures: Counter,
}

/// A successor whose objects are loaded. If it is dropped it goes on as if this process had ended.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: Channel,
    token: Token,
    failures: Counter,
    stays: bool,
    /// The next one may come.
    _turn: oneshot::Sender<()>,
}

/// Who serves in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    /// The successor.
    HandedOver,
    /// This process, as if nothing had been.
    GoOn,
}

impl Successors {
    /// Listens for them in the state directory, in place of whoever did so before.
    ///
    /// # Errors
    /// As bind(2).
    pub(crate) fn listen(state_dir: &Path, greeting: Greeting) -> io::Result<Self> {
        let path = socket_path(state_dir);
        let listener = UnixListener::from_std(bind(&path)?.into())?;
        let (ready, inbox) = mpsc::channel(1);
        let state = Arc::<State>::default();
        let task = tokio::spawn(accept(listener, greeting, ready, Arc::clone(&state)));
        Ok(Self { ready: inbox, state, task })
    }

    /// The next one that is loaded. Cancel safe.
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

    /// Whether one has said hello and loads its objects.
    pub(crate) fn is_one_loading(&self) -> bool {
        self.state.loading.load(Ordering::Relaxed)
    }

    /// From now on the Pod that this process has taken over from may take over in its turn: it stays, and this one ends.
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
    // Under another name first, so that there is no moment without it.
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

/// Accepts whoever connects, whatever the others are doing: startup probes go on while a successor loads for minutes, and a full backlog
/// would look to them as if nobody served.
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
                    // A shortage of descriptors would be the same at once.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = silent.join_next() => {}
        }
    }
}

/// Waits for the first message. Who says nothing does not want to take over: a probe closes at once.
async fn hear(channel: Channel, heard: &mpsc::Sender<(Channel, Message)>) {
    match channel.receive_within(HELLO).await {
        // It closes, and the process is told so, if too many wait already.
        Ok((hello, _)) => drop(heard.try_send((channel, hello))),
        Err(TakeoverError::Closed) => {}
        Err(error) => tracing::warn!(%error, "a process connected and did not ask to take over"),
    }
}

/// Lets those who ask take over, one at a time.
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
                let failures = greeting.failures.clone();
                let stays = matches!(hello, Message::Hello(Hello { stays: true, .. }));
                let successor = Successor { channel, token, failures, stays, _turn: turn };
                if ready.send(successor).await.is_err() {
                    return;
                }
                over.await.ok();
            }
            Err(error) => {
                state.loading.store(false, Ordering::Relaxed);
                greeting.failures.increment(1);
                if !matches!(error, TakeoverError::Closed) {
                    tracing::warn!(%error, "a process asked to take over and did not");
                }
            }
        }
    }
}

/// Tells a successor what it needs to start, and waits until it is loaded.
async fn greet(
    channel: Channel,
    hello: &Message,
    greeting: &Greeting,
    state: &State,
) -> Result<(Channel, Token), TakeoverError> {
    if let Err(why) = check(&channel, hello, greeting, state) {
        // It may be gone already.
        channel.send(&Message::Refused { why: why.clone() }, NO_FDS).await.ok();
        return Err(TakeoverError::Refused(why));
    }
    let token = Token::new()?;
    let loaded = welcome(&channel, greeting, &token, state).await;
    if loaded.is_err() {
        // It may be slow, and must not take this for the end of the process.
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
    // This one serves meanwhile.
    match channel.receive_within(LOADING).await? {
        (Message::Begin, _) => Ok(()),
        (other, _) => Err(TakeoverError::Unexpected(format!("{other:?}"))),
    }
}

/// Whether this is a successor.
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
        // Its container was started again, before the Pod is deleted.
        return Err("its Pod has handed over to this one".to_owned());
    }
    Ok(())
}

impl Successor {
    /// Its process id, as far as this process can see it; 0 if it cannot.
    pub(crate) fn process_id(&self) -> i32 {
        self.channel.peer().ok().and_then(|peer| peer.pid()).unwrap_or_default()
    }

    /// Tells it what takes new traffic.
    ///
    /// # Errors
    /// As of the connection.
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
        // In one part also if there is none.
        self.say(Message::Interfaces { names: interfaces }, NO_FDS).await?;
        self.affinity(affinity).await?;
        for records in health.chunks(MOST_HEALTH_RECORDS) {
            self.say(Message::Health { records: records.to_vec() }, NO_FDS).await?;
        }
        self.say(Message::Listening, NO_FDS).await
    }

    /// Waits until it has put its table in force.
    ///
    /// # Errors
    /// As of the connection.
    pub(crate) async fn prepared(&self) -> Result<(), TakeoverError> {
        match self.channel.receive().await? {
            (Message::Prepared, _) => Ok(()),
            (other, _) => Err(TakeoverError::Unexpected(format!("{other:?}"))),
        }
    }

    /// Hands over flows of a worker.
    ///
    /// # Errors
    /// As of the connection.
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
    /// As of the connection.
    pub(crate) async fn affinity(&self, records: Vec<AffinityRecord>) -> Result<(), TakeoverError> {
        for records in records.chunks(MOST_RECORDS) {
            self.say(Message::Affinity { records: records.to_vec() }, NO_FDS).await?;
        }
        Ok(())
    }

    /// Offers the right to serve, and to announce addresses, once everything has been handed over, and waits until the successor has taken it.
    ///
    /// # Errors
    /// As of the connection.
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

    /// Who serves, once the right to do so was offered, or something failed before. The answer holds, whatever becomes of the
    /// successor.
    pub(crate) async fn settle(&self, offered: Result<(), TakeoverError>) -> Outcome {
        let regained = self.token.take();
        let error = match offered {
            Ok(()) if !regained => return Outcome::HandedOver,
            Ok(()) => TakeoverError::Unexpected("it serves without the right to".to_owned()),
            Err(error) => error,
        };
        // If it is closed, the successor has ended, with whatever it had.
        let outcome = if regained || matches!(error, TakeoverError::Closed) {
            Outcome::GoOn
        } else {
            Outcome::HandedOver
        };
        tracing::warn!(%error, ?outcome, "another process could not take over as it should");
        if outcome == Outcome::GoOn {
            self.failures.increment(1);
            let why = error.to_string();
            // It may be gone, or read nothing: traffic must not wait for that.
            tokio::time::timeout(Duration::ZERO, self.say(Message::Refused { why }, NO_FDS)).await.ok();
        }
        outcome
    }

    /// Tells it what these Services still have here, and waits so long for each part to be read. True if it was told, or does not listen.
    pub(crate) async fn connections(&self, counts: &[ConnectionCount], patience: Duration) -> bool {
        for counts in counts.chunks(MOST_RECORDS).filter(|_| self.stays) {
            let message = Message::Connections { counts: counts.to_vec() };
            // It may be busy, and is told the next time.
            if tokio::time::timeout(patience, self.channel.send(&message, NO_FDS)).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Waits until it serves no longer, once it has taken over: it has ended, or was told to. Does not end if it has handed over to another
    /// process in its turn, or does not let itself be watched.
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

    /// How long it may take to hand over what takes new traffic. Traffic goes on meanwhile.
    pub(crate) const PREPARATION: Duration = PREPARATION;
    /// How long it may take to hand over flows and records, and until the successor serves.
    pub(crate) const REST: Duration = REST;

    async fn say(&self, message: Message, fds: &[impl AsFd]) -> Result<(), TakeoverError> {
        let sent = tokio::time::timeout(SILENCE, self.channel.send(&message, fds));
        sent.await.unwrap_or(Err(TakeoverError::Silent))
    }
}

const NO_FDS: &[OwnedFd] = &[];
