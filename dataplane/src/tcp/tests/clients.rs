//! Tests of whole connections on a running worker: the client that the gateway identifies, and the address that the
//! endpoint sees.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use socket2::Socket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::counters::FrontendCounters;
use crate::counters::{CloseReason, TcpCounters};
use crate::event_loop::WorkerSeed;
use crate::event_loop::pool::start_thread;
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::transparent::Transparency;
use crate::worker::context::Timeouts;
use crate::worker::{Command, WorkerHandle};
use sheave_model::RoutingTable;
use sheave_model::test_util;
use sheave_model::{AddressSet, AffinityScope, PartTarget, SourceRanges, Split, SplitPart};
use sheave_model::{
    Affinity, Algorithm, ClientSource, ClientSources, EndpointAddr, Frontend, FrontendAddr, Protocol, Route,
};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// A peer whose address is neither the frontend's nor an endpoint's.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// One frontend on 127.0.0.1, served by one worker.
pub(super) struct Gateway {
    pub(super) addr: SocketAddr,
    pub(super) endpoint: TcpListener,
    worker: WorkerHandle,
    table: Arc<ArcSwap<ActiveTable>>,
    pub(super) counters: Arc<TcpCounters>,
    affinity: Arc<AffinityTable>,
    transparency: Arc<Transparency>,
}

impl Gateway {
    pub(super) async fn start(shape: impl FnOnce(&mut Frontend)) -> Self {
        let endpoint = TcpListener::bind(("127.0.0.3", 0)).await.unwrap();
        Self::start_with(endpoint, shape)
    }

    /// A gateway that presents outside clients to the endpoint this way.
    async fn announcing(source: ClientSource) -> Self {
        Self::start(|frontend| frontend.client_sources = announced(source)).await
    }

    pub(super) fn start_with(endpoint: TcpListener, shape: impl FnOnce(&mut Frontend)) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let frontend_addr = FrontendAddr { ip: addr.ip(), port: addr.port(), protocol: Protocol::Tcp };
        let serves = endpoint.local_addr().unwrap();
        let mut backend = test_util::backend("local", 100, &[(1, 100)]);
        backend.endpoints[0].addr = EndpointAddr::new(serves.ip(), serves.port());
        let mut frontend = test_util::frontend(1, Algorithm::Random, &[(1, 100)]);
        (frontend.addr, frontend.backends) = (frontend_addr, Arc::new([backend]));
        shape(&mut frontend);
        let table = RoutingTable::new(1, vec![Arc::new(frontend)], internal_clients());
        let seed = WorkerSeed::for_tests(Timeouts::all(PATIENCE));
        seed.shared.table.store(Arc::new(ActiveTable::compile(table, &ActiveTable::default())));
        let (table, affinity) = (Arc::clone(&seed.shared.table), Arc::clone(&seed.shared.affinity));
        let transparency = Arc::clone(&seed.shared.transparency);
        let worker = start_thread(seed).unwrap();
        let counters = Arc::<TcpCounters>::default();
        worker.send(Command::ListenTcp {
            addr: frontend_addr,
            socket: Arc::new(Socket::from(listener)),
            counters: Arc::new([FrontendCounters::Tcp(Arc::clone(&counters))]),
        });
        Self { addr, endpoint, worker, table, counters, affinity, transparency }
    }

    /// Changes the frontend.
    pub(super) fn change(&self, shape: impl FnOnce(&mut Frontend)) {
        let before = self.table.load_full();
        let mut frontend = Frontend::clone(&before.table().frontends()[0]);
        shape(&mut frontend);
        let table = RoutingTable::new(2, vec![Arc::new(frontend)], internal_clients());
        self.table.store(Arc::new(ActiveTable::compile(table, &before)));
    }

    pub(super) async fn connect(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((PEER, 0).into()).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.connect(self.addr).await.unwrap()
    }

    /// Connects; `None` if the gateway has reset the connection before its establishment was noticed.
    pub(super) async fn try_connect(&self) -> Option<TcpStream> {
        match TcpStream::connect(self.addr).await {
            Ok(peer) => Some(peer),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                None
            }
        }
    }

    /// The endpoint's side of the next connection.
    pub(super) async fn accept(&self) -> TcpStream {
        timeout(PATIENCE, self.endpoint.accept()).await.expect("nobody connects").unwrap().0
    }

    /// Waits until the worker has finished what it was doing.
    pub(super) async fn settle(&self) {
        let (reply, answer) = oneshot::channel();
        self.worker.send(Command::Ping(reply));
        answer.await.unwrap();
    }

    /// Asserts that a connection that begins with these bytes is reset for this reason and reaches no endpoint.
    pub(super) async fn assert_refuses(&self, begin: &[u8], reason: CloseReason) {
        let before = self.counters.closed(reason);
        let mut peer = self.connect().await;
        peer.write_all(begin).await.unwrap();
        assert_eq!(peer.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        self.settle().await;
        assert_eq!(self.counters.closed(reason), before + 1);
    }
}

/// Addresses of clients inside the cluster.
fn internal_clients() -> Arc<AddressSet> {
    Arc::new(set("10.0.0.0/8"))
}

pub(super) fn set(cidr: &str) -> AddressSet {
    AddressSet::from_cidrs([&cidr.parse().unwrap()])
}

pub(super) fn announced(external: ClientSource) -> ClientSources {
    ClientSources { external, internal: ClientSource::Gateway }
}

pub(super) fn proxied_by_peer(frontend: &mut Frontend) {
    frontend.proxied_by = Some(Arc::new(set("127.0.0.2/32")));
}

pub(super) async fn receive(stream: &mut TcpStream, count: usize) -> String {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes.escape_ascii().to_string()
}

#[tokio::test]
async fn a_silent_client_is_announced_and_the_header_is_not_counted_as_its_bytes() {
    let gateway = Gateway::announcing(ClientSource::ProxyV1).await;
    let mut client = gateway.connect().await;
    let mut endpoint = gateway.accept().await;
    let (from, to) = (client.local_addr().unwrap(), gateway.addr);
    let expected = format!("PROXY TCP4 {} {} {} {}\\r\\n", from.ip(), to.ip(), from.port(), to.port());
    assert_eq!(receive(&mut endpoint, expected.len() - 2).await, expected);
    endpoint.write_all(b"220 ready").await.unwrap();
    assert_eq!(receive(&mut client, 9).await, "220 ready");
    gateway.settle().await;
    assert_eq!((gateway.counters.client_bytes.get(), gateway.counters.endpoint_bytes.get()), (0, 9));
    client.write_all(b"HELO").await.unwrap();
    assert_eq!(receive(&mut endpoint, 4).await, "HELO");
    gateway.settle().await;
    assert_eq!(gateway.counters.client_bytes.get(), 4);
}

#[tokio::test]
async fn version_2_is_sent_in_binary_also_for_a_client_that_has_finished_already() {
    let gateway = Gateway::announcing(ClientSource::ProxyV2).await;
    let mut client = gateway.connect().await;
    client.shutdown().await.unwrap();
    let mut received = Vec::new();
    gateway.accept().await.read_to_end(&mut received).await.unwrap();
    let expected = [
        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x02\x7f\0\0\x01"[..],
        &client.local_addr().unwrap().port().to_be_bytes(),
        &gateway.addr.port().to_be_bytes(),
    ];
    assert_eq!(received, expected.concat());
}

#[tokio::test]
async fn an_incoming_header_is_handed_on_before_what_came_behind_it() {
    for cut in [0, 1, 20, 47] {
        let gateway = Gateway::start(|frontend| {
            proxied_by_peer(frontend);
            frontend.client_sources = announced(ClientSource::ProxyV1);
        })
        .await;
        let mut peer = gateway.connect().await;
        let stream = b"PROXY TCP4 192.0.2.1 198.51.100.7 1234 443\r\nGET /";
        peer.write_all(&stream[..cut]).await.unwrap();
        gateway.settle().await;
        peer.write_all(&stream[cut..]).await.unwrap();
        let mut endpoint = gateway.accept().await;
        assert_eq!(receive(&mut endpoint, stream.len()).await, stream.escape_ascii().to_string());
        peer.write_all(b" HTTP/1.1").await.unwrap();
        assert_eq!(receive(&mut endpoint, 9).await, " HTTP/1.1");
        gateway.settle().await;
        assert_eq!(gateway.counters.client_bytes.get(), 14, "cut at {cut}");
    }
}

#[tokio::test]
async fn an_incoming_header_ends_at_the_gateway_unless_the_endpoint_wants_one() {
    let gateway = Gateway::start(proxied_by_peer).await;
    let mut peer = gateway.connect().await;
    peer.write_all(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\nGET /").await.unwrap();
    assert_eq!(receive(&mut gateway.accept().await, 5).await, "GET /");
}

#[tokio::test]
async fn a_proxy_that_speaks_for_itself_is_the_client() {
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x07\0\x01\0\x02";
    for header in [&local[..], b"PROXY UNKNOWN 192.0.2.1 198.51.100.7 1 2\r\n"] {
        let gateway = Gateway::start(|frontend| {
            proxied_by_peer(frontend);
            frontend.client_sources = announced(ClientSource::ProxyV1);
        })
        .await;
        let mut peer = gateway.connect().await;
        peer.write_all(header).await.unwrap();
        let (from, to) = (peer.local_addr().unwrap(), gateway.addr);
        let expected = format!("PROXY TCP4 {} {} {} {}\\r\\n", from.ip(), to.ip(), from.port(), to.port());
        assert_eq!(receive(&mut gateway.accept().await, expected.len() - 2).await, expected);
    }
}

#[tokio::test]
async fn peers_that_are_not_trusted_are_ordinary_clients() {
    let gateway = Gateway::start(|frontend| {
        frontend.proxied_by = Some(Arc::new(set("192.0.2.0/24")));
        frontend.client_sources = announced(ClientSource::ProxyV1);
    })
    .await;
    let mut peer = gateway.connect().await;
    let claim = b"PROXY TCP4 192.0.2.1 198.51.100.7 1234 443\r\n";
    peer.write_all(claim).await.unwrap();
    let (from, to) = (peer.local_addr().unwrap(), gateway.addr);
    let truth = format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port());
    let expected = [truth.as_bytes(), claim].concat();
    let received = receive(&mut gateway.accept().await, expected.len()).await;
    assert_eq!(received, expected.escape_ascii().to_string());
}

#[tokio::test]
async fn without_a_header_a_trusted_peer_is_reset_and_nothing_is_picked() {
    let gateway = Gateway::start(|frontend| {
        proxied_by_peer(frontend);
        frontend.affinity = Affinity::ClientIp { timeout: PATIENCE, scope: AffinityScope::Port };
    })
    .await;
    gateway.assert_refuses(b"GET / HTTP/1.1\r\n", CloseReason::BadProxyHeader).await;
    assert_eq!(gateway.affinity.len(), 0);
}

#[tokio::test]
async fn a_header_that_takes_too_long_is_no_header_however_busy_the_peer() {
    let gateway = Gateway::start(|frontend| {
        proxied_by_peer(frontend);
        frontend.timeouts.connect = Some(Duration::from_millis(300));
    })
    .await;
    let late = CloseReason::BadProxyHeader;
    for begin in [&b""[..], b"PROXY TCP4 192.0.2.1"] {
        gateway.assert_refuses(begin, late).await;
    }
    let mut peer = gateway.connect().await;
    let mut seen = peer.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\xff\xff").await;
    while seen.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        seen = peer.write_all(b"x").await;
    }
    gateway.settle().await;
    assert_eq!(gateway.counters.closed(late), 3);
}

#[tokio::test]
async fn source_ranges_routes_and_affinity_go_by_the_introduced_client() {
    let gateway = Gateway::start(|frontend| {
        proxied_by_peer(frontend);
        frontend.affinity = Affinity::ClientIp { timeout: PATIENCE, scope: AffinityScope::Port };
        frontend.external = Route::Drop;
        let ranges = ["10.1.0.0/16", "192.0.2.0/24"].map(|cidr| cidr.parse().unwrap());
        frontend.source_ranges = Arc::new(SourceRanges::new(ranges.to_vec()));
    })
    .await;
    let header = |client: &str| format!("PROXY TCP4 {client} 198.51.100.7 1 2\r\n").into_bytes();
    gateway.assert_refuses(&header("10.2.0.1"), CloseReason::Denied).await;
    gateway.assert_refuses(&header("192.0.2.1"), CloseReason::NoEndpoint).await;
    assert_eq!(gateway.affinity.len(), 0);
    for (client, records) in [("10.1.0.1", 1), ("10.1.0.2", 2), ("10.1.0.1", 2)] {
        let mut peer = gateway.connect().await;
        peer.write_all(&header(client)).await.unwrap();
        gateway.accept().await;
        assert_eq!(gateway.affinity.len(), records, "{client}");
    }
}

/// Sends a header of this client. Returns the client that the endpoint sees, and how many connections lost their
/// client's address.
async fn seen(gateway: &Gateway, client: &str) -> (IpAddr, u64) {
    let mut peer = gateway.connect().await;
    let header = format!("PROXY TCP6 {client} ::1 1 2\r\nping");
    peer.write_all(header.as_bytes()).await.unwrap();
    let mut endpoint = gateway.accept().await;
    assert_eq!(receive(&mut endpoint, 4).await, "ping");
    gateway.settle().await;
    (endpoint.peer_addr().unwrap().ip(), gateway.counters.source_lost.get())
}

#[tokio::test]
async fn traffic_flows_where_the_clients_address_cannot_be_kept() {
    let transparent = |frontend: &mut Frontend| {
        proxied_by_peer(frontend);
        let source = ClientSource::Transparent;
        frontend.client_sources = ClientSources { external: source, internal: source };
    };
    let gateway = Gateway::start(transparent).await;
    let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
    assert_eq!(seen(&gateway, "::ffff:127.0.0.4").await, (own, 1), "not available");
    gateway.transparency.set(Some(AddressSet::default()));
    assert_eq!(seen(&gateway, "2001:db8::1").await, (own, 2), "the other family");
    assert_eq!(seen(&gateway, "::ffff:127.0.0.3").await, (own, 3), "the endpoint itself");
    assert_eq!(seen(&gateway, "::ffff:127.0.0.1").await, (own, 4), "this machine");
    assert_eq!(seen(&gateway, "::ffff:198.51.100.9").await, (own, 5), "answers would not come back");
}

/// Splits the frontend: its only endpoint is in a part of the first weight, and the other part is refused or without endpoints.
fn split_over(frontend: &mut Frontend, weights: [u32; 2], other: SplitPart) {
    let mut own = test_util::pool(1, weights[0], &[]);
    own.target = PartTarget::Pool(Arc::new(frontend.clone()));
    let parts = vec![own, SplitPart { weight: weights[1], ..other }];
    (frontend.external, frontend.internal) = (Route::Reject, Route::Reject);
    (frontend.backends, frontend.split) = (Arc::new([]), Some(Arc::new(Split { parts, ..Split::default() })));
}

#[tokio::test]
async fn the_share_of_a_refused_part_is_reset_before_a_byte_and_the_rest_is_served() {
    for (other, reason) in [
        (test_util::refused("gone", 1), CloseReason::InvalidBackend),
        (test_util::pool(2, 1, &[]), CloseReason::NoEndpoint),
    ] {
        let gateway = Gateway::start(|frontend| split_over(frontend, [1, 1], other)).await;
        let mut served = 0;
        for _ in 0..40 {
            let Some(mut peer) = gateway.try_connect().await else { continue };
            tokio::select! {
                mut endpoint = gateway.accept() => {
                    endpoint.write_all(b"!").await.unwrap();
                    assert_eq!(peer.read_u8().await.unwrap(), b'!');
                    served += 1;
                }
                // The client has sent nothing, and gets nothing but the reset.
                end = peer.read_u8() => assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset),
            }
        }
        gateway.settle().await;
        assert!((5..=35).contains(&served), "{served}");
        assert_eq!(gateway.counters.closed(reason), 40 - served);
        assert_eq!(gateway.counters.accepted.get(), 40);
        assert_eq!(gateway.counters.closed(CloseReason::ConnectFailed), 0);
        assert_eq!(gateway.counters.connect_retries.get(), 0);
    }
}

#[tokio::test]
async fn a_connection_that_fails_in_its_part_is_not_retried_in_another() {
    let dead = std::net::TcpListener::bind(("127.0.0.3", 0)).unwrap().local_addr().unwrap();
    let mut other = test_util::frontend(2, Algorithm::Random, &[(1, 100)]);
    let mut backend = other.backends[0].clone();
    backend.endpoints[0].addr = EndpointAddr::new(dead.ip(), dead.port());
    other.backends = Arc::new([backend]);
    let target = PartTarget::Pool(Arc::new(other));
    let other = SplitPart { name: "Service shop/dead:80".into(), weight: 1, target };
    let gateway = Gateway::start(|frontend| split_over(frontend, [0, 1], other)).await;
    for _ in 0..10 {
        let Some(mut peer) = gateway.try_connect().await else { continue };
        assert_eq!(peer.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    gateway.settle().await;
    assert_eq!(gateway.counters.closed(CloseReason::ConnectFailed), 10);
}
