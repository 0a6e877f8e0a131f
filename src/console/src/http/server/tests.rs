//! Tests of what peers can hold, and for how long. The limits are so far apart that only the one under test takes
//! effect.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;

use axum::body::Bytes;
use axum::routing::get;
use tokio::sync::mpsc;

use super::bearer::{Access, guarded};
use super::*;

/// Long enough for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(20);
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);
/// So short that a peer cannot send anything in time.
const AT_ONCE: Duration = Duration::from_millis(1);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: node\r\n\r\n";
/// More than the buffers of both sockets hold.
const HUGE: usize = 64 << 20;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn router() -> Router {
    Router::new().fallback(async || "well")
}

/// Connects. The kernel accepts, whatever the server does.
fn connect(addr: SocketAddr) -> TcpStream {
    let peer = TcpStream::connect(addr).unwrap();
    peer.set_read_timeout(Some(DEADLINE)).unwrap();
    peer
}

/// Blocks outside of the server's thread.
async fn wait<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn whoever_has_shown_a_token_gets_the_time_of_an_administrator() {
    let lasts = async |shows: bool| {
        let (authorized, begun) = (Authorized::default(), tokio::time::Instant::now());
        if shows {
            authorized.set();
        }
        in_time(std::future::pending(), PATIENCE, authorized).await;
        begun.elapsed().as_secs()
    };
    assert_eq!((lasts(false).await, lasts(true).await), (5, 60));
}

/// Sends a request, and reads until the server ends the connection.
async fn ask(mut peer: TcpStream, request: Vec<u8>) -> String {
    wait(move || {
        peer.write_all(&request).unwrap();
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        text
    })
    .await
}

fn assert_one_answer(text: &str) {
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
    assert_eq!(text.split_once("\r\n\r\n").unwrap().1, "well");
}

/// Whether the server closed the connection without an answer.
async fn is_cut(mut peer: TcpStream) -> bool {
    let read = wait(move || peer.read(&mut [0])).await;
    match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[tokio::test]
async fn silent_connections_beyond_the_slots_give_way_to_a_probe_the_oldest_first() {
    let (listener, addr) = listener().await;
    let _server = Server::start(listener, router(), Connections::new(4, NEVER));
    let mut silent: Vec<TcpStream> = (0..6).map(|_| connect(addr)).collect();
    assert_one_answer(&ask(connect(addr), GET.to_vec()).await);
    // The probe took the fourth slot. The youngest connections have the others, and can still send requests.
    for young in silent.split_off(3) {
        assert_one_answer(&ask(young, GET.to_vec()).await);
    }
    for old in silent {
        assert!(is_cut(old).await);
    }
}

/// More at once than there are places, as a scan of a port opens: whoever has asked by then is answered.
#[tokio::test]
async fn a_burst_beyond_the_places_cuts_nobody_who_has_asked() {
    let of_sources = Connections { limits_sources: true, ..Connections::of_pages(1000) };
    for connections in [Connections::of_admin(8), of_sources] {
        let (listener, addr) = listener().await;
        let asked = wait(move || {
            let ask = |mut peer: TcpStream| {
                peer.write_all(GET).unwrap();
                peer
            };
            (0..64).map(|_| ask(connect(addr))).collect::<Vec<_>>()
        });
        let asked = asked.await;
        let _server = Server::start(listener, router(), connections);
        for mut peer in asked {
            let text = wait(move || {
                let mut text = String::new();
                peer.read_to_string(&mut text).map(|_| text)
            });
            assert_one_answer(&text.await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_silent_connection_is_cut() {
    let (listener, addr) = listener().await;
    let _server = Server::start(listener, router(), Connections::new(4, AT_ONCE));
    assert!(is_cut(connect(addr)).await);
}

#[tokio::test]
async fn half_a_request_is_no_better_than_none() {
    let (listener, addr) = listener().await;
    let mut peer = connect(addr);
    peer.write_all(&GET[..GET.len() - 2]).unwrap();
    let _server = Server::start(listener, router(), Connections::new(4, AT_ONCE));
    assert!(is_cut(peer).await);
}

#[tokio::test]
async fn pipelined_requests_get_one_answer() {
    let (listener, addr) = listener().await;
    let _server = Server::start(listener, router(), Connections::new(4, NEVER));
    assert_one_answer(&ask(connect(addr), GET.repeat(3)).await);
}

/// Body that closes the channel when it is dropped.
struct Held {
    body: Vec<u8>,
    _released: mpsc::Sender<()>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[tokio::test]
async fn a_peer_that_never_reads_is_cut() {
    let (listener, addr) = listener().await;
    let (held, mut released) = mpsc::channel(1);
    let (asked, mut was_asked) = mpsc::channel(1);
    let held = Arc::new(Mutex::new(Some(held)));
    let page = get(async move || {
        let released = held.lock().unwrap().take().unwrap();
        asked.send(()).await.unwrap();
        Bytes::from_owner(Held { body: vec![0; HUGE], _released: released })
    });
    // The request arrives before the server starts, so it is answered even in a short time.
    let mut peer = connect(addr);
    peer.write_all(GET).unwrap();
    let _server = Server::start(listener, Router::new().fallback(page), Connections::new(4, AT_ONCE));
    tokio::time::timeout(DEADLINE, was_asked.recv()).await.unwrap().unwrap();
    assert_eq!(tokio::time::timeout(DEADLINE, released.recv()).await.unwrap(), None);
    let got = wait(move || io::copy(&mut peer, &mut io::sink())).await;
    assert!(got.as_ref().map_or(true, |&count| count < HUGE as u64), "{got:?}");
}

#[tokio::test]
async fn the_end_of_the_server_ends_its_connections() {
    let (listener, addr) = listener().await;
    let server = Server::start(listener, router(), Connections::new(4, NEVER));
    let silent = connect(addr);
    // Accepted later, which proves that the silent one is accepted as well.
    assert_one_answer(&ask(connect(addr), GET.to_vec()).await);
    drop(server);
    assert!(is_cut(silent).await);
    assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn servers_may_share_what_their_peers_can_hold() {
    let connections = Connections::new(4, NEVER);
    let [(first, crowded), (second, quiet)] = [listener().await, listener().await];
    let _servers = [first, second].map(|listener| Server::start(listener, router(), connections.clone()));
    let silent: Vec<TcpStream> = (0..6).map(|_| connect(crowded)).collect();
    for _ in 0..20 {
        assert_one_answer(&ask(connect(quiet), GET.to_vec()).await);
    }
    for young in silent.into_iter().skip(3) {
        assert_one_answer(&ask(young, GET.to_vec()).await);
    }
}

#[tokio::test]
async fn idle_connections_do_not_cut_an_answer_to_an_authorized_peer() {
    const WITH_TOKEN: &[u8] = b"GET / HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer t\r\n\r\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "t").unwrap();
    let (asked, mut was_asked) = mpsc::channel(4);
    let (finish, finished) = tokio::sync::watch::channel(false);
    let slow = get(async move || {
        asked.send(()).await.unwrap();
        finished.clone().wait_for(|finished| *finished).await.map(|_| "well").unwrap()
    });
    let (listener, addr) = listener().await;
    let router = guarded(Router::new().fallback(slow), Access::TokenFile(file.path().into()));
    let _server = Server::start(listener, router, Connections::new(4, NEVER));
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(tokio::spawn(ask(connect(addr), WITH_TOKEN.to_vec())));
        tokio::time::timeout(DEADLINE, was_asked.recv()).await.unwrap().unwrap();
        let idle: Vec<TcpStream> = (0..16).map(|_| connect(addr)).collect();
        // The oldest of them.
        for oldest in idle.into_iter().take(12) {
            assert!(is_cut(oldest).await);
        }
    }
    assert!(is_cut(connect(addr)).await, "all that are open are being answered");
    finish.send_replace(true);
    for answer in answers {
        assert_one_answer(&answer.await.unwrap());
    }
    assert_one_answer(&ask(connect(addr), WITH_TOKEN.to_vec()).await);
}

#[tokio::test]
async fn idle_connections_of_one_source_leave_room_for_others() {
    let (listener, addr) = listener().await;
    let _server = Server::start(listener, router(), Connections::of_metrics(64));
    let from = |ip: &str| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(ip.parse().unwrap(), 0).into()).unwrap();
        socket.connect(&addr.into()).unwrap();
        let peer = TcpStream::from(socket);
        peer.set_read_timeout(Some(DEADLINE)).unwrap();
        peer
    };
    let scraper = from("127.0.0.2");
    // As many as the source may have, and then replacing its own.
    let mut idle: Vec<TcpStream> = (0..2 * UNAUTHORIZED).map(|_| from("127.0.0.1")).collect();
    let young = idle.split_off(UNAUTHORIZED);
    // One that is answered would leave its place to another.
    for old in idle {
        assert!(is_cut(old).await);
    }
    for peer in young {
        assert_one_answer(&ask(peer, GET.to_vec()).await);
    }
    assert_one_answer(&ask(scraper, GET.to_vec()).await);
}

/// Adds a connection of this peer that lasts.
fn hold(connections: &Connections, ip: &str) -> AbortHandle {
    let peer = Peer(ip.parse().unwrap());
    let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
    connections.add(OpenConnection {
        task: task.clone(),
        authorized: Authorized::default(),
        source: Source::of(peer.0),
        is_favored: connections.favors(peer),
    });
    task
}

/// How many of these connections are open, after the closed ones have ended.
async fn open(held: &[AbortHandle]) -> usize {
    // Each lets some tasks run.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    held.iter().filter(|task| !task.is_finished()).count()
}

/// The admin server of a controller is open to the kubelet, and so to everyone.
#[tokio::test]
async fn strangers_never_take_the_place_of_an_administrator() {
    let connections = Connections::of_admin(64);
    let administrator = [hold(&connections, "::ffff:127.0.0.1"), hold(&connections, "::1")];
    let strangers: Vec<_> =
        (0..1000).map(|number| hold(&connections, &format!("192.0.2.{}", number % 250))).collect();
    assert_eq!((open(&administrator).await, open(&strangers).await), (2, 62));
    // Each of this machine finds a place, and the oldest of them makes room.
    let probes: Vec<_> = (0..63).map(|_| hold(&connections, "127.0.0.1")).collect();
    assert_eq!((open(&administrator).await, open(&strangers).await, open(&probes).await), (1, 0, 63));
    let late = [hold(&connections, "192.0.2.1")];
    assert_eq!((open(&probes).await, open(&late).await), (63, 0));
}

#[tokio::test]
async fn one_stranger_leaves_room_for_others_on_an_admin_server() {
    let connections = Connections::of_admin(64);
    let kubelet = [hold(&connections, "192.0.2.1")];
    let greedy: Vec<_> = (0..1000).map(|_| hold(&connections, "192.0.2.2")).collect();
    assert_eq!((open(&kubelet).await, open(&greedy).await), (1, UNAUTHORIZED));
    let local: Vec<_> = (0..40).map(|_| hold(&connections, "127.0.0.1")).collect();
    assert_eq!(open(&local).await, 40);
}

#[test]
fn only_this_machine_has_the_time_of_an_administrator() {
    let patience =
        |connections: &Connections, ip: &str| connections.patience_with(Peer(ip.parse().unwrap())).as_secs();
    let (admin, pages) = (Connections::of_admin(4), Connections::of_pages(4));
    assert_eq!([patience(&admin, "127.0.0.1"), patience(&admin, "192.0.2.1")], [60, 5]);
    assert_eq!(patience(&pages, "127.0.0.1"), 5);
}
