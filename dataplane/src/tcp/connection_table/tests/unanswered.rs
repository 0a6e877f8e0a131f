//! Tests of endpoints that accept connections and reset them.

use std::io::ErrorKind::ConnectionReset;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

/// The endpoint accepts a connection, sends `says` and resets the connection before the gateway reads.
fn reset(
    rig: &TableRig,
    addr: FrontendAddr,
    endpoints: &TcpListener,
    says: &[u8],
) -> (TcpStream, Arc<TcpCounters>) {
    let (client, counters) = setting_up(rig, addr);
    let mut endpoint = endpoints.accept().unwrap().0;
    endpoint.write_all(says).unwrap();
    SockRef::from(&endpoint).set_linger(Some(Duration::ZERO)).unwrap();
    drop(endpoint);
    for _ in 0..4 {
        rig.serve();
    }
    (client, counters)
}

#[test]
fn a_connection_that_is_reset_once_it_is_there_was_no_failure_to_connect() {
    let endpoints = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (rig, addr) = rig_towards(&endpoints, Timeouts::all(LONG));
    for says in [&b""[..], b"too busy"] {
        let (mut client, counters) = reset(&rig, addr, &endpoints, says);
        let mut received = Vec::new();
        let error = client.read_to_end(&mut received).unwrap_err();
        assert_eq!((&received[..], error.kind()), (says, ConnectionReset));
        let closed = [CloseReason::EndpointReset, CloseReason::ConnectFailed].map(|it| counters.closed(it));
        assert_eq!((closed, counters.connect_retries.get()), ([1, 0], 0));
    }
}

#[test]
fn a_connection_without_an_answer_counts_for_its_endpoint_a_moment_longer() {
    let endpoints = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (rig, addr) = rig_towards(&endpoints, Timeouts::all(LONG));
    let counts = || {
        let table = rig.worker.table();
        let load = table.get(addr).unwrap().loads().next().unwrap().1;
        (load.for_choice(), load.active(), load.unanswered())
    };
    let began = rig.worker.now();
    drop(reset(&rig, addr, &endpoints, b"too busy"));
    assert_eq!(counts(), (0, 0, 0));
    drop(reset(&rig, addr, &endpoints, b""));
    assert_eq!(counts(), (1, 0, 1));
    let due = rig.table.borrow_mut().next_deadline().unwrap();
    assert!(due <= began + Duration::from_secs(1), "nobody else may wake the worker");
    rig.table.borrow_mut().on_time(began + Duration::from_secs(1));
    assert_eq!(counts(), (0, 0, 1));
}
