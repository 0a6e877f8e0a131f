//! Probes of endpoints.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use sheave_trace::endpoint_probe::{End, TcpProbe, TcpProbed, UdpProbe, UdpProbed, tcp_all, udp_all};

use crate::network::{addr, connect, on, soon};
use crate::support::for_both_families;
use crate::support::host::Host;
use crate::support::patience::{let_pass, patience};
use crate::support::world::Family;

for_both_families!(
    what_an_endpoint_does_with_a_connection_is_seen,
    a_request_is_answered,
    endpoints_that_refuse_drop_or_are_nowhere_are_told_apart,
    an_answer_from_another_port_is_seen,
    datagrams_are_refused_or_lost,
    the_source_address_is_bound,
);

/// The gateway, which is `on(1, 1)`, and the host of endpoints, `on(1, 2)`.
fn pair() -> [Host; 2] {
    let [gateway, endpoints] = ["gateway", "endpoints"].map(Host::new);
    connect(&gateway, "eth0", &endpoints, "eth0", 1);
    [gateway, endpoints]
}

fn probe() -> TcpProbe<'static> {
    TcpProbe { from: None, send: None, timeout: soon(), linger: patience(0.3) }
}

fn tcp(endpoint: SocketAddr, probe: &TcpProbe<'_>) -> TcpProbed {
    tcp_all(&[endpoint], probe, soon())[0]
}

fn udp(endpoint: SocketAddr, probe: &UdpProbe<'_>) -> UdpProbed {
    udp_all(&[endpoint], probe, soon())[0]
}

/// Serves one connection with this.
fn serve(
    host: &Host,
    family: Family,
    serve: impl FnOnce(std::net::TcpStream) + Send + 'static,
) -> SocketAddr {
    let listener = host.run(|| TcpListener::bind(addr(on(family, 1, 2), 0)).unwrap());
    let local = listener.local_addr().unwrap();
    std::thread::spawn(move || serve(listener.accept().unwrap().0));
    local
}

fn what_an_endpoint_does_with_a_connection_is_seen(family: Family) {
    let [gateway, endpoints] = pair();
    let open = serve(&endpoints, family, |stream| {
        let_pass(soon());
        drop(stream);
    });
    let close = serve(&endpoints, family, drop);
    let reset = serve(&endpoints, family, |stream| {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let greet = serve(&endpoints, family, |mut stream| {
        stream.write_all(b"220 hello\r\n").unwrap();
        let_pass(soon());
    });
    let results = gateway.run(|| tcp_all(&[open, close, reset, greet], &probe(), soon()));
    let ends = results.iter().map(|result| match result {
        TcpProbed::Connected { received, end, after } => {
            assert!(*after < soon());
            let end = match end {
                End::Open => "open",
                End::Closed(_) => "closed",
                End::Reset(_) => "reset",
            };
            (end, *received)
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(Vec::from_iter(ends), [("open", 0), ("closed", 0), ("reset", 0), ("open", 11)]);
}

fn a_request_is_answered(family: Family) {
    let [gateway, endpoints] = pair();
    let echo = serve(&endpoints, family, |mut stream| {
        let mut buffer = [0; 4];
        stream.read_exact(&mut buffer).unwrap();
        stream.write_all(&buffer.repeat(2)).unwrap();
    });
    let asks = TcpProbe { send: Some(b"PING"), ..probe() };
    let result = gateway.run(|| tcp(echo, &asks));
    assert!(matches!(result, TcpProbed::Connected { received: 8, end: End::Closed(_), .. }), "{result:?}");
}

fn endpoints_that_refuse_drop_or_are_nowhere_are_told_apart(family: Family) {
    let [gateway, endpoints] = pair();
    endpoints
        .finish(
            "nft",
            &["add table inet f; add chain inet f i { type filter hook input priority 0; }; \
               add rule inet f i tcp dport 81 drop; add rule inet f i tcp dport 82 reject"],
        )
        .expect_success();
    let there = |port| addr(on(family, 1, 2), port);
    // An answer has all the time that it needs on a busy machine: resolving the neighbour alone may take a second.
    let asked = [there(80), there(82), addr(family.vip(0), 80)];
    let results = gateway.run(|| tcp_all(&asked, &probe(), soon()));
    assert_eq!(results[..2], [TcpProbed::Refused, TcpProbed::Refused]);
    assert!(matches!(results[2], TcpProbed::Unreachable(_)), "{results:?}");
    let quick = TcpProbe { timeout: patience(0.3), ..probe() };
    let begun = Instant::now();
    assert_eq!(gateway.run(|| tcp(there(81), &quick)), TcpProbed::Silent);
    assert!(begun.elapsed() < patience(2.0));
    // Nobody answers for the address of a neighbour.
    let nobody = gateway.run(|| tcp(addr(on(family, 1, 9), 80), &probe()));
    assert!(matches!(nobody, TcpProbed::Unreachable(_)), "{nobody:?}");
}

#[test]
fn many_are_probed_at_once_within_the_deadline() {
    let [gateway, endpoints] = pair();
    let listener = endpoints.run(|| TcpListener::bind("10.9.1.2:0").unwrap());
    let open = listener.local_addr().unwrap();
    let mut asked = vec![addr(on(Family::V4, 1, 2), 9); 500];
    asked.push(open);
    let results = gateway.run(|| tcp_all(&asked, &probe(), soon()));
    assert!(results[..500].iter().all(|result| *result == TcpProbed::Refused));
    assert!(matches!(results[500], TcpProbed::Connected { end: End::Open, .. }));
    endpoints
        .finish(
            "nft",
            &["add table inet f; add chain inet f i { type filter hook input priority 0; policy drop; }"],
        )
        .expect_success();
    let begun = Instant::now();
    let results = gateway.run(|| tcp_all(&asked, &probe(), patience(0.3)));
    assert!(begun.elapsed() < patience(2.0), "{:?}", begun.elapsed());
    let count = |wanted| results.iter().filter(|result| **result == wanted).count();
    assert_eq!((count(TcpProbed::Silent), count(TcpProbed::NotTried)), (64, 437));
}

fn the_source_address_is_bound(family: Family) {
    let [gateway, endpoints] = pair();
    gateway.own([family.vip(0)]);
    endpoints.ip(&[format!("route add {} via {}", family.vip(0), on(family, 1, 1))]);
    let listener = endpoints.run(|| TcpListener::bind(addr(on(family, 1, 2), 0)).unwrap());
    let there = listener.local_addr().unwrap();
    let from = TcpProbe { from: Some(family.vip(0)), linger: Duration::ZERO, ..probe() };
    let result = gateway.run(|| tcp(there, &from));
    assert!(matches!(result, TcpProbed::Connected { .. }), "{result:?}");
    assert_eq!(listener.accept().unwrap().1.ip(), family.vip(0));
    let foreign = TcpProbe { from: Some(family.vip(1)), ..probe() };
    assert!(matches!(gateway.run(|| tcp(there, &foreign)), TcpProbed::NotSent(_)));
}

fn an_answer_from_another_port_is_seen(family: Family) {
    let [gateway, endpoints] = pair();
    let bind = || UdpSocket::bind(addr(on(family, 1, 2), 0)).unwrap();
    let [asked, other] = endpoints.run(|| [bind(), bind()]);
    let there = asked.local_addr().unwrap();
    let wrong = other.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 16];
        for socket in [&other, &asked] {
            let (length, from) = asked.recv_from(&mut buffer).unwrap();
            socket.send_to(&buffer[..length], from).unwrap();
        }
    });
    let probe = UdpProbe { from: None, send: b"hello", timeout: soon() };
    for expected in [wrong, there] {
        let result = gateway.run(|| udp(there, &probe));
        assert!(
            matches!(result, UdpProbed::Answered { from, bytes: 5, .. } if from == expected),
            "{result:?} instead of {expected}"
        );
    }
}

fn datagrams_are_refused_or_lost(family: Family) {
    let [gateway, endpoints] = pair();
    let silent = endpoints.run(|| UdpSocket::bind(addr(on(family, 1, 2), 0)).unwrap());
    let asked = [addr(on(family, 1, 2), 9), silent.local_addr().unwrap(), addr(family.vip(0), 9)];
    let probe = UdpProbe { from: None, send: b"hello", timeout: patience(0.3) };
    let results = gateway.run(|| udp_all(&asked, &probe, soon()));
    assert_eq!(results[..2], [UdpProbed::Refused, UdpProbed::Silent]);
    assert!(matches!(results[2], UdpProbed::Unreachable(_)), "{results:?}");
    let patient = UdpProbe { timeout: soon(), ..probe };
    let nobody = gateway.run(|| udp(addr(on(family, 1, 9), 9), &patient));
    assert!(matches!(nobody, UdpProbed::Unreachable(_)), "{nobody:?}");
}
