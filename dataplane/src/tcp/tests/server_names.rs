//! Tests of connections to a frontend with server names: what the endpoint gets, and who is reset.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sheave_model::test_util::{self, change_pools, pool, refused, set_server_names, split, table};
use sheave_model::{
    Algorithm, ClientAddr, ClientSource, EndpointAddr, Frontend, ServiceTimeouts, SourceRanges, SplitPart,
};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::clients::{Gateway, PATIENCE, announced, proxied_by_peer, receive};
use super::rig::TableRig;
use super::{LONG, client, connecting, reason};
use crate::counters::{CloseReason, ShedReason, TcpCounters};
use crate::select::ActiveTable;
use crate::tcp::client_hello::tests::hello_for;
use crate::tcp::read_client_hello::HELLO_TIMEOUT;
use crate::worker::context::{Shared, Timeouts};
use crate::worker_port::Accepted;

const STEP: Duration = Duration::from_millis(100);

/// A part with this endpoint alone.
fn part(number: u32, weight: u32, endpoint: SocketAddr) -> SplitPart {
    let mut whole = split(number, Algorithm::Random, [pool(number, weight, &[(1, 100)])]);
    change_pools(&mut whole, |pool| {
        let mut backend = pool.backends[0].clone();
        backend.endpoints[0].addr = EndpointAddr::new(endpoint.ip(), endpoint.port());
        pool.backends = Arc::new([backend]);
    });
    whole.split.unwrap().parts[0].clone()
}

/// A target with this endpoint alone.
fn target(number: u32, endpoint: SocketAddr) -> Frontend {
    split(number, Algorithm::Random, [part(number, 1, endpoint)])
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.3", 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// A gateway whose only name leads to its endpoint.
async fn gateway(shape: impl FnOnce(&mut Frontend)) -> Gateway {
    let (endpoint, addr) = listener().await;
    Gateway::start_with(endpoint, |frontend| {
        set_server_names(frontend, [("a.example", target(1, addr))]);
        shape(frontend);
    })
}

/// Asserts that a client that sends this, and FIN if it `finishes`, is reset for this reason.
async fn assert_reset(gateway: &Gateway, sent: &[u8], finishes: bool, reason: CloseReason) {
    let before = gateway.counters.closed(reason);
    let mut peer = gateway.connect().await;
    peer.write_all(sent).await.unwrap();
    if finishes {
        peer.shutdown().await.unwrap();
    }
    let end = timeout(PATIENCE / 2, peer.read(&mut [0])).await.expect("it is not left waiting");
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset, "{reason:?}");
    gateway.settle().await;
    assert_eq!(gateway.counters.closed(reason), before + 1, "{reason:?}");
}

#[tokio::test]
async fn a_client_hello_in_segments_of_a_byte_goes_unchanged_to_the_endpoint_of_its_name() {
    let [(own, first), (other, second)] = [listener().await, listener().await];
    let gateway = Gateway::start_with(own, |frontend| {
        set_server_names(frontend, [("a.example", target(1, first)), ("*.example", target(2, second))]);
    });
    let mut peer = gateway.connect().await;
    let hello = hello_for("Deep.B.Example.");
    for byte in &hello {
        peer.write_all(&[*byte]).await.unwrap();
        gateway.settle().await;
    }
    let (mut endpoint, _) = timeout(PATIENCE, other.accept()).await.unwrap().unwrap();
    peer.write_all(b"and more").await.unwrap();
    let expected = [&hello[..], b"and more"].concat();
    assert_eq!(receive(&mut endpoint, expected.len()).await, expected.escape_ascii().to_string());
    endpoint.write_all(b"answer").await.unwrap();
    assert_eq!(receive(&mut peer, 6).await, "answer");
    gateway.settle().await;
    assert_eq!(gateway.counters.client_bytes.get(), expected.len() as u64, "all of it is the client's");
}

#[tokio::test]
async fn what_comes_with_the_client_hello_is_not_lost_and_the_endpoints_header_is_before_all() {
    let gateway = gateway(|frontend| {
        let names = frontend.server_names.take().unwrap();
        let mut target = Frontend::clone(&names.targets()[0]);
        target.client_sources = announced(ClientSource::ProxyV1);
        set_server_names(frontend, [("a.example", target)]);
    })
    .await;
    let mut peer = gateway.connect().await;
    let sent = [hello_for("a.example"), vec![7; 20_000]].concat();
    peer.write_all(&sent).await.unwrap();
    peer.shutdown().await.unwrap();
    let (from, to) = (peer.local_addr().unwrap(), gateway.addr);
    let header = format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port());
    let mut received = Vec::new();
    gateway.accept().await.read_to_end(&mut received).await.unwrap();
    assert!(received == [header.as_bytes(), &sent].concat());
}

#[tokio::test]
async fn a_proxy_header_comes_before_the_client_hello_however_both_are_cut() {
    let gateway = gateway(proxied_by_peer).await;
    let (header, hello) = (b"PROXY TCP4 192.0.2.1 198.51.100.7 1234 443\r\n", hello_for("a.example"));
    let sent = [&header[..], &hello].concat();
    for cut in [0, 1, header.len() - 1, header.len(), header.len() + 1, sent.len() - 1] {
        let mut peer = gateway.connect().await;
        peer.write_all(&sent[..cut]).await.unwrap();
        gateway.settle().await;
        peer.write_all(&sent[cut..]).await.unwrap();
        let received = receive(&mut gateway.accept().await, hello.len()).await;
        assert_eq!(received, hello.escape_ascii().to_string(), "cut at {cut}");
    }
    assert_reset(&gateway, &hello, false, CloseReason::BadProxyHeader).await;
    let other = [&header[..], &hello_for("other")].concat();
    assert_reset(&gateway, &other, false, CloseReason::NoRoute).await;
    assert_reset(&gateway, &[header, &b"GET /"[..]].concat(), false, CloseReason::BadClientHello).await;
}

#[tokio::test]
async fn clients_without_a_name_that_leads_somewhere_are_reset_and_counted() {
    let gateway = gateway(|_| {}).await;
    let hello = hello_for("a.example");
    let half = &hello[..hello.len() / 2];
    for (sent, finishes, reason) in [
        (&hello_for("b.example")[..], false, CloseReason::NoRoute),
        (&hello_for("x.a.example"), false, CloseReason::NoRoute),
        (&hello_for("192.0.2.1"), false, CloseReason::NoServerName),
        (&hello_for("a.example\0"), false, CloseReason::NoServerName),
        (
            include_bytes!("../../../../tests/fuzz/corpus/client_hello/openssl-no-name"),
            false,
            CloseReason::NoServerName,
        ),
        (b"GET / HTTP/1.1\r\n", false, CloseReason::BadClientHello),
        (b"\x16\x03\x01\0\0", false, CloseReason::BadClientHello),
        (half, true, CloseReason::BadClientHello),
        (b"", true, CloseReason::BadClientHello),
    ] {
        assert_reset(&gateway, sent, finishes, reason).await;
    }
    let peer = gateway.connect().await;
    gateway.settle().await;
    peer.set_zero_linger().unwrap();
    drop(peer);
    while gateway.counters.closed(CloseReason::ClientReset) == 0 {
        gateway.settle().await;
    }
    assert_eq!(gateway.counters.accepted.get(), 10);
    assert_eq!(gateway.counters.client_bytes.get(), 0, "no endpoint has seen anything");
}

#[tokio::test]
async fn a_frontend_without_any_name_resets_its_clients_as_well() {
    let gateway = Gateway::start(|frontend| set_server_names(frontend, [])).await;
    assert_reset(&gateway, &hello_for("a.example"), false, CloseReason::NoRoute).await;
}

#[tokio::test]
async fn a_target_refuses_what_its_parts_refuse() {
    let empty = split(1, Algorithm::Random, [refused("gone", 1), pool(2, 0, &[(1, 100)])]);
    let other = split(1, Algorithm::Random, [refused("gone", 1), pool(2, 1, &[(1, 100)])]);
    for (target, reason) in [(empty, CloseReason::NoEndpoint), (other, CloseReason::InvalidBackend)] {
        let gateway = Gateway::start(|frontend| set_server_names(frontend, [("a.example", target)])).await;
        let mut refusals = 0;
        while refusals == 0 {
            let mut peer = gateway.connect().await;
            peer.write_all(&hello_for("a.example")).await.unwrap();
            // The other part's endpoint is at an address that nobody has.
            drop(timeout(STEP, peer.read(&mut [0])).await);
            gateway.settle().await;
            refusals = gateway.counters.closed(reason);
        }
    }
}

#[tokio::test]
async fn a_client_counts_for_the_limits_before_it_has_sent_a_byte() {
    let gateway = gateway(|frontend| frontend.limits.connections = 1.try_into().ok()).await;
    let mut first = gateway.connect().await;
    gateway.settle().await;
    if let Some(mut second) = gateway.try_connect().await {
        assert_eq!(second.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    gateway.settle().await;
    assert_eq!(gateway.counters.usage().shed(ShedReason::Connections), 1);
    first.write_all(&hello_for("a.example")).await.unwrap();
    gateway.accept().await;
}

#[tokio::test]
async fn clients_outside_the_source_ranges_are_denied_without_waiting_for_them() {
    let ranges = |cidr: &str| Arc::new(SourceRanges::new(vec![cidr.parse().unwrap()]));
    let gateway = gateway(|frontend| frontend.source_ranges = ranges("192.0.2.0/24")).await;
    if let Some(mut peer) = gateway.try_connect().await {
        assert_eq!(peer.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    gateway.settle().await;
    assert_eq!(gateway.counters.closed(CloseReason::Denied), 1);
    // Also if the ranges are narrowed meanwhile.
    gateway.change(|frontend| frontend.source_ranges = ranges("127.0.0.0/8"));
    let mut peer = gateway.connect().await;
    gateway.settle().await;
    gateway.change(|frontend| frontend.source_ranges = ranges("192.0.2.0/24"));
    peer.write_all(&hello_for("a.example")).await.unwrap();
    assert_eq!(peer.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    gateway.settle().await;
    assert_eq!(gateway.counters.closed(CloseReason::Denied), 2);
}

#[tokio::test]
async fn the_table_of_the_moment_in_which_the_client_hello_is_whole_counts() {
    let gateway = gateway(|_| {}).await;
    let (hello, [(other, addr), _]) = (hello_for("a.example"), [listener().await, listener().await]);
    let waiting = async || {
        let mut peer = gateway.connect().await;
        peer.write_all(&hello[..20]).await.unwrap();
        gateway.settle().await;
        peer
    };
    let mut peer = waiting().await;
    gateway.change(|frontend| set_server_names(frontend, [("a.example", target(2, addr))]));
    peer.write_all(&hello[20..]).await.unwrap();
    let (mut endpoint, _) = timeout(PATIENCE, other.accept()).await.unwrap().unwrap();
    assert_eq!(receive(&mut endpoint, hello.len()).await, hello.escape_ascii().to_string());

    let mut lost = waiting().await;
    gateway.change(|frontend| set_server_names(frontend, [("b.example", target(2, addr))]));
    lost.write_all(&hello[20..]).await.unwrap();
    assert_eq!(lost.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    gateway.settle().await;
    assert_eq!(gateway.counters.closed(CloseReason::NoRoute), 1);
    // A connection stays when its name has gone.
    peer.write_all(b"more").await.unwrap();
    assert_eq!(receive(&mut endpoint, 4).await, "more");
}

#[tokio::test]
async fn a_split_is_by_weight_inside_its_name() {
    let [(own, first), (other, second)] = [listener().await, listener().await];
    let whole = split(1, Algorithm::Random, [part(1, 70, first), part(2, 30, second)]);
    let gateway = Gateway::start_with(own, |frontend| set_server_names(frontend, [("a.example", whole)]));
    let mut first = 0;
    for _ in 0..200 {
        let mut peer = gateway.connect().await;
        peer.write_all(&hello_for("a.example")).await.unwrap();
        tokio::select! {
            _ = gateway.accept() => first += 1,
            accepted = other.accept() => drop(accepted.unwrap()),
        }
    }
    assert!((115..165).contains(&first), "{first}");
}

/// A table whose frontend has these names; changes are compiled from the table before.
fn apply(current: &ArcSwap<ActiveTable>, targets: &[(&str, Frontend)]) {
    let whole = test_util::with_server_names(1, targets.iter().cloned());
    current.store(Arc::new(ActiveTable::compile(table([whole]), &current.load())));
}

/// A client of a frontend with these names, whose clock is tokio's.
async fn admitted(
    timeouts: Timeouts,
    targets: &[(&str, Frontend)],
) -> (TableRig, TcpStream, Arc<TcpCounters>) {
    let shared = Shared::for_tests(timeouts);
    apply(&shared.table, targets);
    let rig = TableRig::with(shared, 0);
    let (client, socket) = client().await;
    let counters = Arc::<TcpCounters>::default();
    let (frontend, peer) = (test_util::frontend_addr(1), ClientAddr(client.local_addr().unwrap()));
    let accepted = Accepted { frontend, peer, socket, counters: Arc::clone(&counters) };
    let active = rig.worker.table().get(frontend).cloned();
    rig.table.borrow_mut().admit(accepted, active.as_ref());
    (rig, client, counters)
}

async fn assert_ends(rig: &TableRig, client: &mut TcpStream) -> Duration {
    let started = tokio::time::Instant::now();
    tokio::select! {
        end = client.read_u8() => assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset),
        () = rig.drive(Some(STEP)) => unreachable!(),
    }
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_late_client_hello_is_waited_for_no_longer_than_5_s_however_busy_the_client() {
    for bytes in [0, 1, 100] {
        let (rig, mut client, counters) = admitted(Timeouts::all(LONG), &[]).await;
        client.write_all(&hello_for("a.example")[..bytes]).await.unwrap();
        let ended = assert_ends(&rig, &mut client).await;
        assert!(ended >= HELLO_TIMEOUT && ended < HELLO_TIMEOUT + 3 * STEP, "{ended:?}");
        assert_eq!(reason(&counters), CloseReason::BadClientHello);
    }
    let (rig, client, counters) = admitted(Timeouts::all(LONG), &[]).await;
    let started = tokio::time::Instant::now();
    let busy = async {
        let (mut read, mut write) = client.into_split();
        let mut hello = hello_for("a.example").into_iter().cycle();
        let send = async {
            while write.write_all(&[hello.next().unwrap()]).await.is_ok() {
                tokio::time::sleep(STEP).await;
            }
        };
        tokio::join!(send, async { drop(read.read_u8().await) });
    };
    tokio::select! {
        () = busy => {}
        () = rig.drive(Some(STEP)) => unreachable!(),
    }
    assert!(started.elapsed() < HELLO_TIMEOUT + 5 * STEP, "{:?}", started.elapsed());
    assert_eq!(reason(&counters), CloseReason::BadClientHello);
}

/// An endpoint that answers nobody: one connection waits already, and the backlog admits one more (listen(2)).
fn silent() -> (Socket, SocketAddr, [Socket; 2]) {
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    silent.listen(0).unwrap();
    let to = silent.local_addr().unwrap().as_socket().unwrap();
    (silent, to, [connecting(to), connecting(to)])
}

#[tokio::test(start_paused = true)]
async fn a_retry_looks_its_name_up_again_after_the_connect_timeout_of_its_target() {
    let (_silent, to, _waiting) = silent();
    let (endpoints, there) = listener().await;
    let mut slow = target(1, to);
    slow.timeouts.connect = Some(Duration::from_secs(9));
    for (names, serves) in
        [(vec![("b.example", target(2, there))], false), (vec![("a.example", target(2, there))], true)]
    {
        let (rig, mut client, counters) = admitted(Timeouts::all(LONG), &[("a.example", slow.clone())]).await;
        client.write_all(&hello_for("a.example")).await.unwrap();
        let started = tokio::time::Instant::now();
        let drive = rig.drive(Some(STEP));
        let change = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            apply(&rig.worker.shared.table, &names);
            match serves {
                true => drop(endpoints.accept().await.unwrap()),
                false => assert!(client.read_u8().await.is_err()),
            }
        };
        tokio::select! {
            () = change => {}
            () = drive => unreachable!(),
        }
        assert_eq!(started.elapsed().as_secs(), 9, "{serves}");
        if !serves {
            assert_eq!(reason(&counters), CloseReason::NoRoute);
        }
    }
}

/// When a connection ends whose target sets a grace for departed endpoints, after the targets have changed to these.
async fn ended_after(
    targets: impl Fn(Frontend, SocketAddr) -> Vec<(&'static str, Frontend)>,
) -> Option<Duration> {
    let (endpoints, there) = listener().await;
    let mut own = target(1, there);
    let grace = Some(Duration::from_secs(30));
    own.timeouts = ServiceTimeouts { removed_endpoint_grace: grace, ..ServiceTimeouts::default() };
    let (rig, mut client, counters) = admitted(Timeouts::all(10 * LONG), &[("a.example", own.clone())]).await;
    client.write_all(&hello_for("a.example")).await.unwrap();
    let drive = rig.drive(Some(STEP));
    let ended = async {
        let _endpoint = endpoints.accept().await.unwrap();
        tokio::time::sleep(Duration::from_secs(120)).await;
        let left = tokio::time::Instant::now();
        apply(&rig.worker.shared.table, &targets(own, there));
        let end = timeout(Duration::from_secs(300), client.read(&mut [0])).await;
        end.is_ok().then(|| left.elapsed())
    };
    let ended = tokio::select! {
        ended = ended => ended,
        () = drive => unreachable!(),
    };
    assert_eq!(counters.closed(CloseReason::Removed), u64::from(ended.is_some()));
    ended
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_after_its_targets_grace_when_no_name_has_its_endpoint_any_more() {
    let elsewhere = || SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let moved = |own: &Frontend| Frontend { split: target(1, elsewhere()).split, ..own.clone() };
    let ended = ended_after(|own, _| vec![("a.example", moved(&own))]).await.unwrap();
    assert!((30..40).contains(&ended.as_secs()), "{ended:?}");
    let kept =
        ended_after(|own, there| vec![("a.example", moved(&own)), ("b.example", target(2, there))]).await;
    assert_eq!(kept, None, "another name has the endpoint");
    let without = ended_after(|_, _| vec![("b.example", target(2, elsewhere()))]).await;
    assert_eq!(without, None, "the name has gone, and nothing sets a grace");
}

#[tokio::test(start_paused = true)]
async fn the_maximum_age_and_its_grace_are_those_of_the_target() {
    let (endpoints, there) = listener().await;
    let mut aging = target(1, there);
    let [age, grace] = [60, 20].map(|seconds| Some(Duration::from_secs(seconds)));
    aging.timeouts = ServiceTimeouts { max_age: age, max_age_grace: grace, ..ServiceTimeouts::default() };
    let (rig, mut client, counters) = admitted(Timeouts::all(10 * LONG), &[("a.example", aging)]).await;
    client.write_all(&hello_for("a.example")).await.unwrap();
    let started = tokio::time::Instant::now();
    let ended = async {
        let _endpoint = endpoints.accept().await.unwrap();
        // The client sent last, so the connection waits for an answer until the grace is over.
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        started.elapsed().as_secs()
    };
    let ended = tokio::select! {
        ended = ended => ended,
        () = rig.drive(Some(STEP)) => unreachable!(),
    };
    assert!((80..90).contains(&ended), "{ended}");
    assert_eq!(reason(&counters), CloseReason::MaxAge);
}
