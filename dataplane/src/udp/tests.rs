//! Real sockets on loopback, real tables; client, endpoints and gateway share one runtime.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::net::UdpSocket as AsyncSocket;
use tokio::runtime::{Builder, LocalOptions};
use tokio::{task, time};

use self::fixtures::{follow, frontend, with_sources};
use super::*;
use crate::counters::DropReason;
use crate::select::ActiveTable;
use crate::sys::mmsg::Sender;
use crate::worker::context::{Shared, Timeouts};
use sheave_model::{ClientAddr, ClientSource, ClientSources, EndpointAddr, EndpointState, Protocol};

mod client_source;
pub(super) mod fixtures;
mod lifecycle;
mod traffic;

const IDLE: Duration = Duration::from_secs(30);
const V4: &str = "127.0.0.1";
const V6: &str = "::1";

/// Runs a test as a worker runs its tasks.
fn on_a_worker(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test);
}

/// Lets all other tasks run until the fact holds; time may stand still meanwhile.
async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < Duration::from_secs(20), "in vain: {what}");
        task::yield_now().await;
    }
}

/// One frontend, served.
struct UdpGateway {
    addr: FrontendAddr,
    context: Rc<UdpContext>,
    counters: Arc<UdpCounters>,
    listener: UdpListener,
}

impl UdpGateway {
    fn start(ip: &str, endpoints: &[EndpointAddr], flows: usize) -> Self {
        let socket = bind_shared((ip.parse::<IpAddr>().unwrap(), 0).into());
        let bound = socket.local_addr().unwrap().as_socket().unwrap();
        let addr = FrontendAddr { ip: bound.ip(), port: bound.port(), protocol: Protocol::Udp };
        let counters = Arc::new(UdpCounters::default());
        let context = UdpContext::new(Shared::for_tests(Timeouts::all(IDLE)), flows, (0, 1), 1);
        let listener = UdpListener::start(socket, addr, Arc::clone(&counters), &context).unwrap();
        let gateway = Self { addr, context, counters, listener };
        gateway.swap(endpoints);
        gateway
    }

    fn swap(&self, endpoints: &[EndpointAddr]) {
        self.swap_with_source(endpoints, ClientSource::Gateway);
    }

    fn swap_with_source(&self, endpoints: &[EndpointAddr], source: ClientSource) {
        let table: &ArcSwap<ActiveTable> = &self.context.shared.table;
        let ready: Vec<_> = endpoints.iter().map(|endpoint| (*endpoint, EndpointState::Ready)).collect();
        let frontend =
            with_sources(frontend(self.addr, &ready), ClientSources { external: source, internal: source });
        table.store(Arc::new(follow(&table.load(), [frontend])));
    }

    fn counters(&self) -> &UdpCounters {
        &self.counters
    }

    /// The endpoint that the client's flow leads to.
    fn endpoint_of(&self, client: &Client) -> Option<EndpointAddr> {
        self.listener.state.flows.borrow().endpoint(ClientAddr(client.addr()))
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

/// A socket that others may share the address with from now on. (Asked before binding, the kernel would choose a port
/// that another test shares already.)
fn bind_shared(addr: SocketAddr) -> Arc<socket2::Socket> {
    let domain = socket2::Domain::for_address(addr);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM.nonblocking(), None).unwrap();
    socket.set_reuse_port(addr.port() != 0).unwrap();
    socket.bind(&addr.into()).unwrap();
    socket.set_reuse_port(true).unwrap();
    Arc::new(socket)
}

/// A socket connected to a frontend: it hears only answers that come from the frontend's address.
struct Client(UdpSocket);

impl Client {
    fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn send(&self, datagram: &[u8]) {
        assert_eq!(self.0.send(datagram).unwrap(), datagram.len());
    }

    /// The next answer; without timer or reactor, so that it works while time stands still and
    /// tells of ICMP errors.
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

/// Sends every datagram back, with a mark of its own before it if it has one.
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

/// An address at which nobody listens: the kernel answers with ICMP. The socket reserves it, connected to itself.
fn nobody(ip: &str) -> (EndpointAddr, UdpSocket) {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    let addr = socket.local_addr().unwrap();
    socket.connect(addr).unwrap();
    (EndpointAddr::new(addr.ip(), addr.port()), socket)
}

/// Bytes that differ from place to place and from datagram to datagram.
fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(31) ^ (index >> 8) ^ seed.wrapping_mul(131)) as u8).collect()
}
