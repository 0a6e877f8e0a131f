//! Tests of turns: bytes per turn, priority of sparse connections, and a large table that is checked in small steps.

mod bereft;
mod deadlines;
mod unanswered;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::BYTES_PER_TURN;
use super::sweep::CHECKED_AT_A_TIME;
use crate::MemoryLeft;
use crate::counters::{CloseReason, TcpCounters};
use crate::limits::capacity::Capacity;
use crate::tcp::splice::Direction;
use crate::tcp::tests::rig::{TableRig, accepted, connecting, now, table_towards};
use crate::worker::context::{Shared, Timeouts};
use crate::worker_port::{Accepted, WorkerPorts};
use sheave_model::{ClientAddr, EndpointAddr, FrontendAddr};
use std::sync::Arc;

/// More data than one connection may move in a turn.
const QUEUED: usize = 2 << 20;

/// A connection: the client's end and the endpoint's.
fn connection(rig: &TableRig, idle: Duration) -> (TcpStream, TcpStream) {
    aging_connection(rig, (idle, None))
}

/// Like [`connection`], with an idle timeout and a maximum age.
fn aging_connection(rig: &TableRig, times: (Duration, Option<Duration>)) -> (TcpStream, TcpStream) {
    let [clients, endpoints] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let client = TcpStream::connect(clients.local_addr().unwrap()).unwrap();
    let client_side = accepted(&clients).unwrap();
    client_side.set_recv_buffer_size(QUEUED).unwrap();
    rig.relay_for(client_side, connecting(endpoints.local_addr().unwrap()), Direction::new(), times);
    (client, endpoints.accept().unwrap().0)
}

/// A rig with a frontend whose only endpoint is this listener.
fn rig_towards(endpoints: &TcpListener, timeouts: Timeouts) -> (TableRig, FrontendAddr) {
    let endpoint = endpoints.local_addr().unwrap();
    let (addr, table) = table_towards(EndpointAddr::new(endpoint.ip(), endpoint.port()));
    let shared = Shared::for_tests(timeouts);
    shared.table.store(Arc::new(table));
    (TableRig::with(shared, 8), addr)
}

/// A client of this frontend, whose connection is being set up.
fn setting_up(rig: &TableRig, addr: FrontendAddr) -> (TcpStream, Arc<TcpCounters>) {
    let clients = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(clients.local_addr().unwrap()).unwrap();
    let (socket, counters) = (accepted(&clients).unwrap(), Arc::default());
    let peer = ClientAddr(client.local_addr().unwrap());
    let accepted = Accepted { frontend: addr, peer, socket, counters: Arc::clone(&counters) };
    let active = rig.worker.table().get(addr).cloned();
    rig.table.borrow_mut().admit(accepted, active.as_ref());
    (client, counters)
}

/// Writes as much as the kernel accepts without blocking.
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
    // Served in the next turn, regardless of the streams' backlog.
    turn();
    answering.set_nonblocking(true).unwrap();
    answering.read_exact(&mut [0; 3]).expect("it went before the streams");
}

/// Runs a turn every `step`, from `began` on, until `enough`; returns the time that passed.
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

const HOUR: Duration = Duration::from_secs(3600);

/// A connection of some age, after a turn in which everything was relayed.
fn aging(rig: &TableRig, age: Duration) -> (TcpStream, TcpStream) {
    let pair = aging_connection(rig, (10 * HOUR, Some(age)));
    rig.turn();
    pair
}

/// How the stream ends, if it has.
fn end(mut stream: &TcpStream) -> Result<usize, std::io::ErrorKind> {
    stream.set_nonblocking(true).unwrap();
    stream.read(&mut [0; 64]).map_err(|error| error.kind())
}

const STEP: Duration = Duration::from_millis(50);
/// The client or the endpoint sends last.
const SPOKEN: [&[u8]; 2] = [b"ask", b"answer"];

#[test]
fn a_connection_that_is_too_old_ends_in_a_pause_between_age_and_a_tenth_more() {
    let rig = TableRig::new(10 * HOUR, 8);
    let (age, began) = (Duration::from_secs(600), now());
    let open: Vec<_> = (0..50).map(|_| aging(&rig, age)).collect();
    let _forever = connection(&rig, 10 * HOUR);
    let mut ends = Vec::new();
    turn_until(&rig, began, STEP, |after| {
        ends.resize(rig.ended(), after);
        ends.len() == open.len() || after > 2 * age
    });
    let (first, last) = (ends[0], *ends.last().unwrap());
    // A pass of the sweep takes at most a tenth of the age, and a pause takes a second.
    assert!(first >= age && last <= age * 12 / 10 + Duration::from_secs(2), "{first:?} to {last:?}");
    assert!(last - first > age / 20, "{first:?} to {last:?}: they end together");
    assert_eq!(ends.len(), open.len());
    for (client, endpoint) in &open {
        assert_eq!([end(client), end(endpoint)], [Ok(0), Ok(0)], "FIN");
    }
    assert_eq!(rig.closed(CloseReason::MaxAge), open.len());
}

#[test]
fn a_request_has_the_grace_to_be_answered_and_what_never_rests_is_cut_after_it() {
    let rig = TableRig::new(10 * HOUR, 8);
    let (age, began) = (Duration::from_secs(10), now());
    let [asks, answered, streams, half_closed] = [(); 4].map(|()| aging(&rig, age));
    for (mut from, words) in [(&asks.0, SPOKEN[0]), (&answered.0, SPOKEN[0]), (&streams.0, SPOKEN[0])] {
        from.write_all(words).unwrap();
    }
    half_closed.0.shutdown(std::net::Shutdown::Write).unwrap();
    rig.turn();
    (&answered.1).write_all(SPOKEN[1]).unwrap();
    rig.turn();
    let mut ended_at = [Duration::ZERO; 4];
    turn_until(&rig, began, STEP, |after| {
        (&streams.1).write_all(b"x").ok();
        rig.serve();
        for (ended, at) in rig.ended_each().into_iter().zip(&mut ended_at) {
            if ended && at.is_zero() {
                *at = after;
            }
        }
        rig.ended() == 4 || after > HOUR
    });
    let [asks_at, answered_at, streams_at, half_closed_at] = ended_at;
    let precise = age * 12 / 10 + Duration::from_secs(2);
    assert!(answered_at >= age && answered_at <= precise, "{answered_at:?}");
    let grace = Duration::from_secs(30);
    for at in [asks_at, streams_at, half_closed_at] {
        assert!(at >= age + grace && at <= precise + grace, "{ended_at:?}");
    }
    assert_eq!(end(&asks.0), Ok(0), "nothing is cut short");
    assert_eq!(end(&half_closed.0), Err(std::io::ErrorKind::ConnectionReset));
    let mut left = Vec::new();
    streams.0.set_nonblocking(false).unwrap();
    let cut = (&streams.0).read_to_end(&mut left).unwrap_err();
    assert_eq!(cut.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn connections_of_a_frontend_that_has_left_end_after_a_drain_unless_it_is_back() {
    let drain = Duration::from_secs(60);
    let timeouts = Timeouts { drain, ..Timeouts::all(10 * HOUR) };
    let shared = Shared::for_tests(timeouts);
    let (addr, with_frontend) = table_towards(EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), 9));
    let (with_frontend, table) = (Arc::new(with_frontend), Arc::clone(&shared.table));
    let rig = TableRig::with(shared, 8);
    let began = now();
    let [rests, half_closed, kept] = [(); 3].map(|()| aging(&rig, 10 * HOUR));
    half_closed.0.shutdown(std::net::Shutdown::Write).unwrap();
    rig.turn();
    rig.table.borrow_mut().remove_frontend(addr);
    table.store(Arc::clone(&with_frontend));
    let back = turn_until(&rig, began, STEP, |after| after > 3 * drain);
    assert_eq!(rig.ended(), 0, "it is back");

    table.store(Arc::default());
    rig.worker.begin_turn(began + back);
    rig.table.borrow_mut().remove_frontend(addr);
    let (mut first, mut last) = (None, Duration::ZERO);
    turn_until(&rig, began + back, STEP, |after| {
        if rig.ended() > 0 {
            (first, last) = (first.or(Some(after)), after);
        }
        rig.ended() == 3 || after > HOUR
    });
    assert!(first.unwrap() >= drain && last <= drain * 5 / 4, "{first:?} to {last:?}");
    assert_eq!([end(&rests.0), end(&rests.1), end(&kept.0)], [Ok(0); 3], "FIN");
    assert_eq!(end(&half_closed.0), Err(std::io::ErrorKind::ConnectionReset));
    assert_eq!(rig.closed(CloseReason::Removed), 3);
}

/// The setup outlasts the record of the frontend's removal.
#[test]
fn a_connection_that_was_being_set_up_when_its_frontend_left_has_the_time_of_a_drain() {
    let drain = Duration::from_secs(60);
    let endpoints = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (rig, addr) = rig_towards(&endpoints, Timeouts { drain, ..Timeouts::all(10 * HOUR) });
    let (client, counters) = setting_up(&rig, addr);
    let _endpoint = endpoints.accept().unwrap();

    rig.worker.shared.table.store(Arc::default());
    let began = now();
    rig.worker.begin_turn(began);
    rig.table.borrow_mut().remove_frontend(addr);
    // The endpoint's socket is not polled meanwhile.
    let late = turn_until(&rig, began, STEP, |after| after > 10 * drain);
    assert_eq!(rig.worker.port().open(), 1);
    rig.serve();
    let closed = || counters.closed(CloseReason::Removed) > 0;
    let ended = turn_until(&rig, began + late, STEP, |after| closed() || after > HOUR);
    assert!(closed() && ended >= drain && ended <= drain * 5 / 4, "{ended:?}");
    assert_eq!(end(&client), Ok(0), "FIN");
}

/// Relieves the memory, of which so many bytes too many are in use.
fn relieve(rig: &TableRig, excess: u64) {
    let capacity = Capacity::unlimited();
    capacity.gauge(&WorkerPorts::new(0).unwrap()).set(MemoryLeft { excess, ..MemoryLeft::default() });
    rig.table.borrow_mut().relieve_memory(&capacity);
}

#[test]
fn where_memory_runs_out_those_are_reset_for_whom_the_most_waits() {
    let rig = TableRig::new(HOUR, 8);
    let mut talks = Vec::new();
    for _ in 0..4 {
        talks.push(connection(&rig, HOUR));
    }
    // The first client reads nothing of what its endpoint sends; the second has little to read.
    assert!(fill(&talks[0].1) > 100 << 10);
    (&talks[1].1).write_all(&[1; 30 << 10]).unwrap();
    for _ in 0..100 {
        rig.turn();
    }
    relieve(&rig, 0);
    assert_eq!(rig.ended(), 0, "there is memory");
    relieve(&rig, 1);
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
    relieve(&rig, 1 << 40);
    assert_eq!(rig.ended(), 1, "it does not help to reset those for whom little waits");
}

#[test]
fn where_memory_runs_out_a_client_that_waits_for_its_endpoint_is_reset_too() {
    let endpoints = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (rig, addr) = rig_towards(&endpoints, Timeouts::all(HOUR));
    let (client, counters) = setting_up(&rig, addr);
    // The endpoint's socket is not polled, so that the connection stays without one.
    assert!(fill(&client) > 100 << 10);
    relieve(&rig, 1);
    assert_eq!((counters.closed(CloseReason::Memory), rig.worker.port().open()), (1, 0));
    assert_eq!(end(&client), Err(std::io::ErrorKind::ConnectionReset));
}
