//! Turns: how much one does, who comes first, and that a large table is checked in small steps.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::BYTES_PER_TURN;
use super::sweep::CHECKED_AT_A_TIME;
use crate::tcp::splice::Direction;
use crate::tcp::tests::rig::{TableRig, accepted, connecting, now};
use crate::worker::port::WorkerPorts;

/// More than one connection may move in a turn.
const QUEUED: usize = 2 << 20;

/// A connection: the client's end and the endpoint's.
fn connection(rig: &TableRig, idle: Duration) -> (TcpStream, TcpStream) {
    let [clients, endpoints] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let client = TcpStream::connect(clients.local_addr().unwrap()).unwrap();
    let client_side = accepted(&clients).unwrap();
    client_side.set_recv_buffer_size(QUEUED).unwrap();
    rig.relay(client_side, connecting(endpoints.local_addr().unwrap()), Direction::new(), idle);
    (client, endpoints.accept().unwrap().0)
}

/// As much as the kernel takes, without waiting.
fn fill(mut stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(count) = stream.write(&[1; 64 << 10]) {
        written += count;
    }
    written
}

#[test]
fn one_turn_moves_so_much_and_small_exchanges_do_not_wait_for_streams() {
    const HOUR: Duration = Duration::from_secs(3600);
    const STREAMS: usize = 16;
    let rig = TableRig::new(HOUR, 8);
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let (client, endpoint) = connection(&rig, HOUR);
        SockRef::from(&endpoint).set_recv_buffer_size(QUEUED).unwrap();
        streams.push((client, endpoint));
    }
    let (mut small, mut answering) = connection(&rig, HOUR);
    let queued: usize = streams.iter().map(|(client, _)| fill(client)).sum();
    assert!(queued as u64 > 4 * BYTES_PER_TURN, "{queued} bytes are no load");
    let turn = || {
        let before = rig.moved();
        rig.turn();
        let moved = rig.moved() - before;
        assert!(moved <= BYTES_PER_TURN + (1 << 20), "{moved} bytes in one turn");
    };
    for _ in 0..STREAMS {
        turn();
        streams.iter().map(|(client, _)| fill(client)).sum::<usize>();
    }
    assert!(rig.table.borrow().streams.len() > STREAMS / 2, "streams wait for their turns");
    small.write_all(b"ask").unwrap();
    // It is served in the next one, whatever the streams have.
    turn();
    answering.set_nonblocking(true).unwrap();
    answering.read_exact(&mut [0; 3]).expect("it went before the streams");
}

/// Turns once in so long, from `now` on, until `enough`; gives when that was.
fn turn_until(
    rig: &TableRig,
    began: Instant,
    step: Duration,
    mut enough: impl FnMut(Duration) -> bool,
) -> Duration {
    let mut now = began;
    while !enough(now - began) {
        now += step;
        rig.worker.begin_turn(now);
        rig.table.borrow_mut().on_time(now);
    }
    now - began
}

#[test]
fn a_large_table_is_checked_in_small_steps() {
    const CONNECTIONS: usize = 3 * CHECKED_AT_A_TIME;
    let idle = Duration::from_secs(100);
    let rig = TableRig::new(idle, 8);
    let _open: Vec<_> = (0..CONNECTIONS).map(|_| connection(&rig, idle)).collect();
    rig.turn();
    let mut together = BTreeMap::<Duration, usize>::new();
    let mut before = 0;
    turn_until(&rig, now(), Duration::from_millis(5), |after| {
        let ended = rig.ended();
        if ended > before {
            together.insert(after, ended - before);
        }
        before = ended;
        ended == CONNECTIONS
    });
    let late = |after: &Duration| *after < idle - Duration::from_secs(5) || *after > idle * 3 / 2;
    assert!(!together.keys().any(late), "{together:?}");
    assert!(together.values().all(|count| *count <= CHECKED_AT_A_TIME), "{together:?}");
}

#[test]
fn each_connection_has_its_own_idle_timeout() {
    let (short, long) = (Duration::from_secs(2), Duration::from_secs(1000));
    let rig = TableRig::new(long, 8);
    let began = now();
    let _open = (connection(&rig, long), connection(&rig, short), connection(&rig, long));
    let step = Duration::from_millis(50);
    let first = turn_until(&rig, began, step, |_| rig.ended() >= 1);
    assert!(first >= short && first < 2 * short, "{first:?}");
    let all = turn_until(&rig, began + first, step, |_| rig.ended() >= 3) + first;
    assert!(all >= long && all < long * 3 / 2, "{all:?}");
}

#[test]
fn where_memory_runs_out_those_are_reset_for_whom_the_most_waits() {
    const HOUR: Duration = Duration::from_secs(3600);
    let rig = TableRig::new(HOUR, 8);
    let capacity = crate::limits::capacity::Capacity::unlimited();
    let relieve = || rig.table.borrow_mut().relieve_memory(&capacity);
    let gauge = capacity.gauge(&WorkerPorts::new(0).unwrap());
    let set = |excess| gauge.set(crate::MemoryLeft { excess, ..Default::default() });
    let mut talks = Vec::new();
    for _ in 0..4 {
        talks.push(connection(&rig, HOUR));
    }
    // Nobody reads what the first endpoint sends, and little of what the second does.
    assert!(fill(&talks[0].1) > 100 << 10);
    (&talks[1].1).write_all(&[1; 30 << 10]).unwrap();
    for _ in 0..100 {
        rig.turn();
    }
    relieve();
    assert_eq!(rig.ended(), 0, "there is memory");
    set(1);
    relieve();
    assert_eq!(rig.ended(), 1);
    let (client, _) = &talks[0];
    let mut buffer = vec![0; 1 << 20];
    let error = loop {
        match (&mut &*client).read(&mut buffer) {
            Ok(count) => assert!(count > 0, "a clean end"),
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(error, std::io::ErrorKind::ConnectionReset);
    set(1 << 40);
    relieve();
    assert_eq!(rig.ended(), 1, "it does not help to reset those for whom little waits");
}
