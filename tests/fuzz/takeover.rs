//! Fuzz target: any datagrams with any number of descriptors as the messages of the other process in a takeover, to either side. A
//! process that has not taken the right to serve never gets it by messages, and what a predecessor hands over can be given to a data
//! plane.
//!
//! The first byte of an input selects the side, and each line is a message whose first byte is the number of its descriptors.

use std::cell::RefCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use sheave_dataplane::handover::{FlowRecord, HandedFlow, SocketRole};
use sheave_dataplane::{
    CapacityLimits, Dataplane, ListenersToHandOver, Options, Settings, SteeringMode, Timeouts,
};
use sheave_model::test_util::{frontend, table};
use sheave_model::{Algorithm, ClientSource, EndpointAddr, Frontend, FrontendAddr, Protocol};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::invariants::scratch;
use crate::program::takeover::predecessor::{LastPart, Predecessor};
use crate::program::takeover::successor::{Greeting, Outcome, Successor, Successors};
use crate::program::takeover::{MOST_WORKERS, ServingPlace, TakeoverError};

/// Limit of messages in one input, since the queue of a socket is limited.
const MOST_MESSAGES: usize = 64;
/// Limit of the kernel.
const MOST_FDS: usize = 253;
/// No wait is longer.
const END: Duration = Duration::from_secs(1000);

/// Both sides, on a clock that advances whenever neither has anything to do.
struct Bench {
    runtime: Runtime,
    folder: TempDir,
    /// Folder for a socket other than that of `successors`.
    other_folder: TempDir,
    listener: OwnedFd,
    successors: Successors,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new());
}

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let messages: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').take(MOST_MESSAGES).collect();
    BENCH.with_borrow_mut(|bench| {
        if first & 1 == 0 { bench.predecessor_hears(&messages) } else { bench.successor_hears(&messages) }
    });
}

fn place() -> ServingPlace {
    ServingPlace { node: "gw".to_owned(), class: "c".to_owned(), network: "n".to_owned() }
}

fn socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket")
}

fn addr(folder: &Path) -> SocketAddrUnix {
    SocketAddrUnix::new(folder.join("takeover.sock")).expect("a short path")
}

fn udp_socket() -> OwnedFd {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket").into()
}

/// Sends all messages that fit, each with its descriptors: a token first, then sockets.
fn say(socket: &OwnedFd, messages: &[&[u8]]) {
    let token = eventfd(1, EventfdFlags::NONBLOCK).expect("an eventfd");
    let other = udp_socket();
    for message in messages {
        let (count, text) =
            message.split_first().map_or((0, *message), |(count, text)| (usize::from(*count), text));
        // '0' stands for none, and every other byte for some number.
        let count = (count + 256 - usize::from(b'0')) % 256 % (MOST_FDS + 1);
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(&token).chain(std::iter::repeat(&other)).map(AsFd::as_fd).take(count).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        // The other side may have closed the connection.
        rustix::net::sendmsg(socket, &[IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL).ok();
    }
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let [folder, other_folder] = [scratch(), scratch()].map(|folder| folder.expect("a temporary folder"));
        let listener = socket();
        rustix::net::bind(&listener, &addr(other_folder.path())).expect("a name");
        rustix::net::listen(&listener, 8).expect("a listening socket");
        let greeting = Greeting {
            place: place(),
            former_pod: None,
            returns: false,
            workers: 1,
            servers: Vec::new(),
            failures: Arc::default(),
        };
        let successors = {
            let _inside = runtime.enter();
            Successors::listen(folder.path(), greeting).expect("a listening socket")
        };
        Self { runtime, folder, other_folder, listener, successors }
    }

    /// Sends the messages to the process that serves, from a possible successor that never takes the token.
    fn predecessor_hears(&mut self, messages: &[&[u8]]) {
        let other = socket();
        rustix::net::connect(&other, &addr(self.folder.path())).expect("it listens");
        say(&other, messages);
        let Self { runtime, successors, .. } = self;
        runtime.block_on(async {
            tokio::select! {
                successor = successors.next() => assert_eq!(hand_over(&successor).await, Outcome::GoOn),
                () = sleep(END) => {}
            }
        });
    }

    /// Sends the messages to a successor, from a possible predecessor.
    fn successor_hears(&self, messages: &[&[u8]]) {
        let speaks = async {
            loop {
                match rustix::net::accept(&self.listener) {
                    // It stays open until the successor has ended.
                    Ok(socket) => {
                        say(&socket, messages);
                        break socket;
                    }
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let taken = self.runtime.block_on(async {
            let taken = timeout(END, take_over(self.other_folder.path()));
            tokio::join!(taken, speaks).0
        });
        // Whatever the result is, it comes in time.
        drop(taken.expect("a successor waits no longer than it says"));
    }
}

/// Handover as in the gateway's loop.
async fn hand_over(successor: &Successor) -> Outcome {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
    let record = FlowRecord {
        frontend: addr,
        client: addr,
        endpoint: EndpointAddr::new(addr.ip(), addr.port()),
        source: ClientSource::Gateway,
        quiet_millis: 0,
        answered: true,
        suspect: false,
        port: None,
    };
    let offered = timeout(Successor::PREPARATION, async {
        let addr = FrontendAddr { ip: addr.ip(), port: addr.port(), protocol: Protocol::Udp };
        let sockets = vec![(SocketRole::Frontend { addr, worker: 0 }, Arc::new(udp_socket().into()))];
        successor
            .hand_over(
                ListenersToHandOver { sockets, ..ListenersToHandOver::default() },
                Vec::new(),
                Vec::new(),
                Vec::new(),
            )
            .await?;
        successor.prepared().await?;
        successor.flows(0, vec![HandedFlow { record, fd: udp_socket() }]).await?;
        successor.offer(None, Vec::new()).await
    });
    successor.settle(offered.await.unwrap_or(Err(TakeoverError::Silent))).await
}

/// Takeover as in the gateway's loop.
async fn take_over(state_dir: &Path) -> Result<(), TakeoverError> {
    let Some(mut predecessor) = Predecessor::find(state_dir, place()).await? else { return Ok(()) };
    assert!((1..=MOST_WORKERS).contains(&predecessor.workers()));
    let estate = predecessor.begin().await?;
    let mut dataplane = dataplane();
    dataplane.take_over(estate.listeners);
    estate.affinity.into_iter().for_each(|record| dataplane.take_over_affinity(record));
    dataplane.apply(table([Protocol::Tcp, Protocol::Udp].map(some_frontend)));
    dataplane.take_over_health(estate.health);
    predecessor.prepared().await?;
    loop {
        match predecessor.next_part().await? {
            LastPart::Flows { worker, flows } => dataplane.take_over_flows(worker, flows),
            LastPart::Affinity(records) => {
                records.into_iter().for_each(|record| dataplane.take_over_affinity(record));
            }
            LastPart::Offer(..) => break,
        }
    }
    predecessor.succeed().await?;
    dataplane.serve();
    Ok(())
}

fn dataplane() -> Dataplane {
    let settings = Settings {
        timeouts: Timeouts { connect: END, idle: END, udp_idle: END, udp_unanswered: END, drain: END },
        busy_poll: Duration::ZERO,
        capacity: CapacityLimits { descriptors: 1000, connections: 1000 },
        udp_flows: 100,
    };
    let options = Options {
        workers: 1,
        settings,
        listening_sockets: 100,
        steering: SteeringMode::Never,
        paths: Arc::default(),
        connection_log: sheave_dataplane::ConnectionLog::new().0,
        kernel_path: sheave_dataplane::KernelPathOptions::default(),
        held: true,
    };
    Dataplane::start(options).expect("a worker")
}

/// Frontend 198.51.100.1:80 with the endpoint 10.0.0.1:8080.
fn some_frontend(protocol: Protocol) -> Frontend {
    let frontend = frontend(1, Algorithm::Random, &[(1, 1)]);
    Frontend { addr: FrontendAddr { protocol, ..frontend.addr }, ..frontend }
}
