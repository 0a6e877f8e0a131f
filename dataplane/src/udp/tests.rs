//! Tests with real loopback sockets and tables; client, endpoints and gateway share one runtime.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::net::UdpSocket as AsyncSocket;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task;

use self::fixtures::{follow, frontend, with_sources};
use super::flow_table::FlowOwner;
use super::*;
use crate::counters::DropReason;
use crate::select::ActiveTable;
use crate::sys::epoll::Events;
use crate::sys::mmsg::Sender;
use crate::worker::context::{Settings, Shared, Timeouts};
use crate::worker::token::Token;
use sheave_model::{
    ClientAddr, ClientSource, ClientSources, EndpointAddr, EndpointState, Frontend, PartTarget, Protocol,
    Route, Split, SplitPart, test_util,
};

mod client_source;
pub(super) mod fixtures;
mod lifecycle;
mod traffic;

const IDLE: Duration = Duration::from_secs(30);
const V4: &str = "127.0.0.1";
const V6: &str = "::1";

/// Runs a test on a single thread, like a worker's loop.
fn on_a_worker(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test);
}

/// Lets other tasks run until the condition holds.
async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < Duration::from_secs(20), "in vain: {what}");
        task::yield_now().await;
    }
}

/// The part of a worker's loop that concerns UDP.
struct Rig {
    worker: Rc<WorkerContext>,
    udp: Udp,
    events: Events,
    /// Time that the test has skipped.
    skipped: Duration,
}

impl Rig {
    fn now(&self) -> Instant {
        Instant::now() + self.skipped
    }

    /// Runs a command as the worker's loop does.
    fn execute<T>(&mut self, command: impl FnOnce(&mut Udp) -> T) -> T {
        self.worker.begin_turn(self.now());
        command(&mut self.udp)
    }

    fn turn(&mut self) {
        let now = self.now();
        self.worker.poller.wait(&mut self.events, false).unwrap();
        self.worker.begin_turn(now);
        for (token, _) in self.events.iter() {
            if let Token::UdpSocket(key) = Token::from(token) {
                self.udp.on_socket(key);
            }
        }
        self.udp.on_time(now);
        self.udp.serve();
    }
}

/// One frontend, served by a task that runs turns of the loop while the test waits.
struct UdpGateway {
    addr: FrontendAddr,
    worker: Rc<WorkerContext>,
    counters: Arc<UdpCounters>,
    rig: Rc<RefCell<Rig>>,
    place: Key,
}

impl UdpGateway {
    fn start(ip: &str, endpoints: &[EndpointAddr], flows: usize) -> Self {
        let socket = bind_shared((ip.parse::<IpAddr>().unwrap(), 0).into());
        let bound = socket.local_addr().unwrap().as_socket().unwrap();
        let addr = FrontendAddr { ip: bound.ip(), port: bound.port(), protocol: Protocol::Udp };
        let counters = Arc::new(UdpCounters::default());
        let worker = WorkerContext::new(Shared::for_tests(Timeouts::all(IDLE)), 0, 1).unwrap();
        worker.set_settings(Settings { udp_flows: flows, ..worker.settings() });
        let mut udp = Udp::new(&worker, Arc::default());
        udp.listen(addr, socket, Arc::clone(&counters));
        let place = udp.own[&addr];
        let rig = Rig { worker: Rc::clone(&worker), udp, events: Events::new(), skipped: Duration::ZERO };
        let rig = Rc::new(RefCell::new(rig));
        let turned = Rc::downgrade(&rig);
        task::spawn_local(async move {
            while let Some(rig) = turned.upgrade() {
                rig.borrow_mut().turn();
                drop(rig);
                task::yield_now().await;
            }
        });
        let gateway = Self { addr, worker, counters, rig, place };
        gateway.swap(endpoints);
        gateway
    }

    /// Serves another frontend with the same endpoints; returns its address and counters.
    fn listen_on_another(&self, endpoints: &[EndpointAddr]) -> (FrontendAddr, Arc<UdpCounters>) {
        let socket = bind_shared((self.addr.ip, 0).into());
        let bound = socket.local_addr().unwrap().as_socket().unwrap();
        let addr = FrontendAddr { ip: bound.ip(), port: bound.port(), protocol: Protocol::Udp };
        let counters = Arc::new(UdpCounters::default());
        self.execute(|udp| udp.listen(addr, socket, Arc::clone(&counters)));
        let ready: Vec<_> = endpoints.iter().map(|endpoint| (*endpoint, EndpointState::Ready)).collect();
        let frontends = [self.addr, addr].map(|addr| frontend(addr, &ready));
        let table = &self.worker.shared.table;
        table.store(Arc::new(follow(&table.load(), frontends)));
        (addr, counters)
    }

    fn turn(&self) {
        self.rig.borrow_mut().turn();
    }

    fn execute<T>(&self, command: impl FnOnce(&mut Udp) -> T) -> T {
        self.rig.borrow_mut().execute(command)
    }

    fn frontend_at(&self, place: Key) -> Rc<UdpFrontend> {
        Rc::clone(self.rig.borrow_mut().udp.frontends.get_mut(place).unwrap())
    }

    fn frontend(&self) -> Rc<UdpFrontend> {
        self.frontend_at(self.place)
    }

    fn flows(&self) -> usize {
        self.frontend().flows()
    }

    fn skip(&self, time: Duration) {
        self.rig.borrow_mut().skipped += time;
    }

    /// Skips from deadline to deadline until no flow is left; returns the time skipped.
    async fn finished(&self) -> Duration {
        let start = self.rig.borrow().skipped;
        until("the flows end", || {
            let rig = &mut *self.rig.borrow_mut();
            let due = rig.udp.next_deadline().filter(|_| !rig.udp.is_drained());
            rig.skipped += due.map_or(Duration::ZERO, |due| due.saturating_duration_since(rig.now()));
            rig.udp.is_drained()
        })
        .await;
        self.rig.borrow().skipped - start
    }

    fn swap(&self, endpoints: &[EndpointAddr]) {
        self.swap_with_source(endpoints, ClientSource::Gateway);
    }

    fn swap_with_source(&self, endpoints: &[EndpointAddr], source: ClientSource) {
        let table: &ArcSwap<ActiveTable> = &self.worker.shared.table;
        let ready: Vec<_> = endpoints.iter().map(|endpoint| (*endpoint, EndpointState::Ready)).collect();
        let frontend =
            with_sources(frontend(self.addr, &ready), ClientSources { external: source, internal: source });
        table.store(Arc::new(follow(&table.load(), [frontend])));
    }

    /// Splits the frontend: the part of its endpoints has the first weight, and a refused one the second.
    fn split_off(&self, own: u32, refused: u32) {
        let table: &ArcSwap<ActiveTable> = &self.worker.shared.table;
        let before = table.load();
        let spec = before.get(self.addr).unwrap().spec();
        let own = SplitPart {
            name: "Service shop/dns:53".into(),
            weight: own,
            target: PartTarget::Pool(Arc::clone(spec)),
        };
        let parts = vec![test_util::refused("gone", refused), own];
        let whole = Frontend {
            backends: Arc::new([]),
            external: Route::Reject,
            internal: Route::Reject,
            split: Some(Arc::new(Split { parts, ..Split::default() })),
            ..Frontend::clone(spec)
        };
        table.store(Arc::new(follow(&before, [whole])));
    }

    fn counters(&self) -> &UdpCounters {
        &self.counters
    }

    fn endpoint_of(&self, client: &Client) -> Option<EndpointAddr> {
        self.frontend().flows.borrow().endpoint(ClientAddr(client.addr()))
    }

    fn client(&self) -> Client {
        self.client_from(self.addr.ip)
    }

    fn client_from(&self, ip: IpAddr) -> Client {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.connect(self.addr.socket_addr()).unwrap();
        Client(socket)
    }
}

/// A bound socket whose address others may share from now on. (If sharing were enabled before binding to port 0, the kernel
/// could choose a port that another test shares already.)
fn bind_shared(addr: SocketAddr) -> Arc<socket2::Socket> {
    let domain = socket2::Domain::for_address(addr);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM.nonblocking(), None).unwrap();
    socket.set_reuse_port(addr.port() != 0).unwrap();
    socket.bind(&addr.into()).unwrap();
    socket.set_reuse_port(true).unwrap();
    Arc::new(socket)
}

/// A socket connected to a frontend, which only receives answers from the frontend's address.
struct Client(UdpSocket);

impl Client {
    fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn send(&self, datagram: &[u8]) {
        assert_eq!(self.0.send(datagram).unwrap(), datagram.len());
    }

    /// Waits for the next answer, without a reactor, so that ICMP errors are reported.
    async fn answer(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        let mut result = Err(io::ErrorKind::WouldBlock.into());
        until("an answer", || {
            result = self.0.recv(&mut buffer);
            !matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        })
        .await;
        let length = result?;
        buffer.truncate(length);
        Ok(buffer)
    }

    async fn exchange(&self, datagram: &[u8]) -> Vec<u8> {
        self.send(datagram);
        self.answer().await.unwrap()
    }
}

/// An endpoint that sends every datagram back, prefixed with its mark.
async fn endpoint(ip: &str, mark: &'static [u8]) -> EndpointAddr {
    let socket = AsyncSocket::bind((ip, 0)).await.unwrap();
    let addr = socket.local_addr().unwrap();
    task::spawn_local(async move {
        let mut buffer = vec![0; 65_536];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            socket.send_to(&[mark, &buffer[..length]].concat(), peer).await.unwrap();
        }
    });
    EndpointAddr::new(addr.ip(), addr.port())
}

/// An address without a listener: the kernel answers with ICMP. The returned socket, connected to itself, reserves the address.
fn nobody(ip: &str) -> (EndpointAddr, UdpSocket) {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    let addr = socket.local_addr().unwrap();
    socket.connect(addr).unwrap();
    (EndpointAddr::new(addr.ip(), addr.port()), socket)
}

/// Content that differs from byte to byte and from datagram to datagram.
fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(31) ^ (index >> 8) ^ seed.wrapping_mul(131)) as u8).collect()
}
