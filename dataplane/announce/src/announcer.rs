//! The announcer: a thread of its own that sends heartbeats, follows who owns what, and announces what this gateway owns. Nothing
//! that takes long may run there: a gateway that is late with its heartbeats is dead to the others.

mod bgp;
mod hold_down_file;
mod holding;
mod publish;
mod run;
#[cfg(test)]
mod slow_kernel;
mod socket;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use self::socket::HeartbeatSocket;
use crate::bgp::{BgpInterfaces, BgpOptions};
use crate::keys::Keys;
use crate::layer2::{Layer2, OnConflict};
use crate::membership::{Continuation, Knowledge, MembershipOptions, OptionsError, Start};
use crate::status::Status;
use crate::tie_breaker::TieBreaker;
use crate::{Claim, Member};

/// How often addresses are renewed, and the status at the least.
const RENEWAL: Duration = Duration::from_secs(1);
/// How often what could not be announced is tried again, and the machine's interfaces are looked at.
const RETRY: Duration = Duration::from_secs(5);

/// How a gateway takes part, and how it announces what it owns.
#[derive(Clone, Debug)]
pub struct Options {
    /// How it takes part.
    pub membership: MembershipOptions,
    /// The folder with the keys, one per file.
    pub keys: PathBuf,
    /// The interfaces for addresses whose claims name none; empty = all.
    pub interfaces: Vec<Arc<str>>,
    /// Address whose answer lets this gateway go on without a majority.
    pub tie_breaker: TieBreaker,
    /// How often neighbours are reminded; `None` = never.
    pub repeat: Option<Duration>,
    /// Answer to another machine that uses an address.
    pub on_conflict: OnConflict,
    /// The folder in which it notes its hold-down for the process after it.
    pub state: PathBuf,
}

/// Why nothing can be announced.
#[derive(Debug, Error)]
pub enum StartError {
    /// The folder of keys, or a file in it, cannot be read, or is no key.
    #[error("keys of heartbeats: {folder}: {error}", folder = .folder.display())]
    Keys {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The options do not go together.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The machine has no resources for it, or this process no right.
    #[error("{what}: {error}")]
    System {
        /// Step that failed.
        what: String,
        /// The reason.
        error: io::Error,
    },
}

impl StartError {
    fn no_rights() -> impl FnOnce(io::Error) -> Self {
        Self::system("cannot announce addresses (needs CAP_NET_ADMIN and CAP_NET_RAW)")
    }

    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what: what.into(), error }
    }
}

/// Commands to the thread.
#[derive(Debug)]
enum Command {
    Begin(Start),
    Ready(oneshot::Sender<()>),
    Members(Vec<Member>),
    Claims(BTreeMap<IpAddr, Claim>),
    Knowledge(Knowledge),
    Continuation(oneshot::Sender<Continuation>),
    Leave,
    End,
    Detach,
}

/// Commands as the thread receives them.
type Inbox = mpsc::UnboundedReceiver<Command>;
/// Status as the thread publishes it.
type Publish = watch::Sender<Arc<Status>>;

/// Change of an announcer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AnnouncerEvent {
    /// Its status is another one.
    StatusChanged,
    /// Its thread has ended, by a command or because it could not go on.
    Ended,
}

/// A running announcer. Dropping all clones of it is as its end without a word: its addresses are gone after a few seconds.
#[derive(Clone, Debug)]
pub struct Announcer {
    commands: mpsc::UnboundedSender<Command>,
    status: watch::Receiver<Arc<Status>>,
}

impl Announcer {
    /// Starts it, and opens the port of heartbeats before it returns, if that is free. It owns nothing before it knows of any claims. A fresh one is held down for longer if the process before it on this node was
    /// lost, which a file in [`Options::state`] shows.
    ///
    /// # Errors
    /// If the keys are unusable, or the thread cannot be started. If it cannot go on later, it ends, and the status has the reason.
    pub fn start(options: Options, start: Start) -> Result<Self, StartError> {
        // One that is in use may be free in a moment.
        let socket = HeartbeatSocket::open(options.membership.port).ok();
        Self::open(options, socket, Some(start))
    }

    /// Opens what it needs beside one of another process on this node, from which it goes on when it [begins](Self::begin): what waits for
    /// the kernel then would keep heartbeats waiting.
    ///
    /// # Errors
    /// Like those of [`start`](Self::start).
    pub fn prepare(options: Options) -> Result<Self, StartError> {
        Self::open(options, None, None)
    }

    fn open(
        options: Options,
        socket: Option<HeartbeatSocket>,
        start: Option<Start>,
    ) -> Result<Self, StartError> {
        let keys = open_keys(&options.keys)?;
        let status = Status::new(Arc::clone(&options.membership.node));
        Self::spawn(status, move |inbox, publish| run::run(options, keys, socket, start, inbox, publish))
    }

    /// Waits until one that is [prepared](Self::prepare) has opened what it needs, or cannot. Cancel safe.
    pub async fn ready(&self) {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Ready(reply));
        answer.await.ok();
    }

    /// Begins, after [`prepare`](Self::prepare).
    pub fn begin(&self, start: Start) {
        self.tell(Command::Begin(start));
    }

    /// Starts one that announces by BGP, and adopts what is on the interfaces. It announces whatever it knows to be claimed for its node.
    ///
    /// # Errors
    /// Like those of [`start`](Self::start).
    pub fn start_bgp(options: BgpOptions, interfaces: Arc<BgpInterfaces>) -> Result<Self, StartError> {
        let status = Status { shared: true, ..Status::new(Arc::clone(&options.node)) };
        Self::spawn(status, move |inbox, publish| bgp::run(options, interfaces, inbox, publish))
    }

    /// Runs an announcer on a thread of its own. If it cannot go on, the status has the reason.
    fn spawn(
        status: Status,
        run: impl FnOnce(Inbox, Publish) -> Result<(), StartError> + Send + 'static,
    ) -> Result<Self, StartError> {
        let node = Arc::clone(&status.node);
        let (commands, inbox) = mpsc::unbounded_channel();
        let (publish, status) = watch::channel(Arc::new(status));
        let thread = move || {
            if let Err(error) = run(inbox, publish.clone()) {
                publish.send_replace(Arc::new(Status::failed(node, error.to_string())));
            }
        };
        let spawned = std::thread::Builder::new().name("announce".to_owned()).spawn(thread);
        spawned.map_err(StartError::system("cannot start a thread"))?;
        Ok(Self { commands, status })
    }

    /// Whether an announcer with these options could start here, as far as that can be told beforehand.
    ///
    /// # Errors
    /// Like those of [`start`](Self::start), and if this process lacks the rights to announce.
    pub fn check(options: &Options) -> Result<(), StartError> {
        open_keys(&options.keys)?;
        options.membership.check()?;
        Layer2::check().map_err(StartError::no_rights())
    }

    /// Sets which gateways there are.
    pub fn set_members(&self, members: Vec<Member>) {
        self.tell(Command::Members(members));
    }

    /// Sets which addresses are to be announced.
    pub fn set_claims(&self, claims: BTreeMap<IpAddr, Claim>) {
        self.tell(Command::Claims(claims));
    }

    /// Sets what this gateway knows of the cluster: others that know more go first, once that has lasted or at once.
    pub fn set_knowledge(&self, knowledge: Knowledge) {
        self.tell(Command::Knowledge(knowledge));
    }

    /// State that a successor on this node starts with.
    pub async fn continuation(&self) -> Option<Continuation> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Continuation(reply));
        answer.await.ok()
    }

    /// Gives all addresses to other gateways, and ends then. As long as no gateway stays that can take them, it serves on.
    pub fn leave(&self) {
        self.tell(Command::Leave);
    }

    /// Like [`leave`](Self::leave), and ends even where nobody takes over.
    pub fn end(&self) {
        self.tell(Command::End);
    }

    /// Ends, and leaves all addresses as they are to a process that goes on with a [`Continuation`].
    pub fn detach(&self) {
        self.tell(Command::Detach);
    }

    /// Waits until it has ended. Cancel safe.
    pub async fn ended(&mut self) {
        while self.status.changed().await.is_ok() {}
    }

    /// Waits until the status has changed, or it has ended. Cancel safe.
    pub async fn changed(&mut self) -> AnnouncerEvent {
        match self.status.changed().await {
            Ok(()) => AnnouncerEvent::StatusChanged,
            Err(_) => AnnouncerEvent::Ended,
        }
    }

    /// Current status.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status.borrow())
    }

    fn tell(&self, command: Command) {
        // After the end there is nothing to be told.
        self.commands.send(command).ok();
    }
}

fn open_keys(path: &Path) -> Result<Keys, StartError> {
    let unusable = |error| StartError::Keys { folder: path.to_owned(), error };
    Keys::open(path.to_owned(), Instant::now()).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, UdpSocket};

    use super::*;

    #[test]
    fn the_port_of_heartbeats_is_taken_when_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "a key of more than 24 bytes").unwrap();
        let probe = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let options = Options {
            membership: MembershipOptions::new("n".into(), "f".into(), port),
            keys: folder.path().to_owned(),
            interfaces: Vec::new(),
            tie_breaker: TieBreaker::default(),
            repeat: None,
            on_conflict: OnConflict::default(),
            state: folder.path().to_owned(),
        };
        let announcer = Announcer::start(options, Start::Fresh(None)).unwrap();
        let others = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port));
        assert_eq!(others.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(announcer);
    }
}
