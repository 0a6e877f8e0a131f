//! Turns: how much one poll does, who comes first, and that a large table is checked in small steps.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;

use sheave_model::{ClientAddr, test_util};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::time::sleep;

use super::sweep::CHECKED_AT_A_TIME;
use super::*;
use crate::counters::TcpCounters;
use crate::tcp::splice::Direction;
use crate::tcp::{PipeBudget, PipePool};
use crate::worker::context::{Shared, Timeouts, WorkerContext};

/// More than one connection may move in a turn.
const QUEUED: usize = 2 << 20;

struct TableRig {
    table: ConnectionTable,
    worker: Rc<WorkerContext>,
    /// Of each connection.
    counters: RefCell<Vec<Arc<TcpCounters>>>,
    endpoints: TcpListener,
}

impl TableRig {
    fn new(idle: Duration) -> Self {
        let worker = WorkerContext::new(Shared::for_tests(Timeouts::all(idle)), 1);
        let pipes = PipePool::new(PipeBudget { pipes: 8, slots: usize::MAX });
        let buffers = RelayBuffers::new(pipes, Arc::clone(&worker.shared.capacity));
        let table = ConnectionTable::new(buffers, idle, Duration::ZERO).unwrap();
        let endpoints = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Self { table, worker, counters: RefCell::default(), endpoints }
    }

    /// A connection: the client's end and the endpoint's.
    async fn connection(&self, idle: Duration) -> (TcpStream, TcpStream) {
        let clients = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(clients.local_addr().unwrap()).unwrap();
        let (accepted, _) = clients.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
        SockRef::from(&accepted).set_recv_buffer_size(QUEUED).unwrap();
        let stream = Stream::to_connect(socket, false);
        let to: SocketAddr = self.endpoints.local_addr().unwrap();
        stream.connect(to).unwrap();
        let connecting = self.table.connecting(stream, idle).unwrap();
        let connected = async {
            tokio::select! {
                connected = connecting.connected(|| true) => connected.unwrap(),
                () = self.table.drive() => {}
            }
        };
        connected.await;
        let (frontend, peer) = (test_util::frontend_addr(1), ClientAddr(client.local_addr().unwrap()));
        let counters = Arc::default();
        let session = Session::admit(&self.worker, (frontend, peer), &counters, None, None).unwrap();
        self.counters.borrow_mut().push(counters);
        connecting.relay(Stream::accepted(accepted.into()), Direction::new(), idle, session).unwrap();
        (client, self.endpoints.accept().unwrap().0)
    }

    /// Bytes that all clients' connections have moved.
    fn moved(&self) -> u64 {
        self.counters.borrow().iter().map(|counters| counters.client_bytes.get()).sum()
    }

    /// Connections that have ended.
    fn ended(&self) -> usize {
        let ended =
            |counters: &TcpCounters| CloseReason::ALL.iter().any(|reason| counters.closed(*reason) > 0);
        self.counters.borrow().iter().filter(|counters| ended(counters)).count()
    }

    /// One poll, as the task that drives the table makes it.
    async fn poll(&self) {
        let mut events = Events::new();
        poll_fn(|cx| Poll::Ready(self.table.poll(cx, &mut events).is_ready())).await;
        yield_now().await;
    }
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

#[tokio::test]
async fn one_poll_moves_so_much_and_small_exchanges_do_not_wait_for_streams() {
    const HOUR: Duration = Duration::from_secs(3600);
    const STREAMS: usize = 16;
    let rig = TableRig::new(HOUR);
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let (client, endpoint) = rig.connection(HOUR).await;
        SockRef::from(&endpoint).set_recv_buffer_size(QUEUED).unwrap();
        streams.push((client, endpoint));
    }
    let (mut small, mut answering) = rig.connection(HOUR).await;
    let queued: usize = streams.iter().map(|(client, _)| fill(client)).sum();
    assert!(queued as u64 > 4 * BYTES_PER_POLL, "{queued} bytes are no load");
    let poll = async || {
        let before = rig.moved();
        rig.poll().await;
        let moved = rig.moved() - before;
        assert!(moved <= BYTES_PER_POLL + (1 << 20), "{moved} bytes in one poll");
    };
    for _ in 0..STREAMS {
        poll().await;
        streams.iter().map(|(client, _)| fill(client)).sum::<usize>();
    }
    assert!(rig.table.streams.borrow().len() > STREAMS / 2, "streams wait for their turns");
    small.write_all(b"ask").unwrap();
    // In the first one the reactor learns of it, in the next it is served, whatever the streams have.
    poll().await;
    poll().await;
    answering.set_nonblocking(true).unwrap();
    answering.read_exact(&mut [0; 3]).expect("it went before the streams");
}

#[tokio::test(start_paused = true)]
async fn a_large_table_is_checked_in_small_steps() {
    const CONNECTIONS: usize = 3 * CHECKED_AT_A_TIME;
    let idle = Duration::from_secs(100);
    let rig = TableRig::new(idle);
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        open.push(rig.connection(idle).await);
    }
    let began = Instant::now();
    let mut together = BTreeMap::<Duration, usize>::new();
    let all_ended = async {
        let mut before = 0;
        while before < CONNECTIONS {
            sleep(Duration::from_millis(5)).await;
            let ended = rig.ended();
            if ended > before {
                together.insert(began.elapsed(), ended - before);
            }
            before = ended;
        }
    };
    tokio::select! {
        () = all_ended => {}
        () = rig.table.watch_idle() => unreachable!(),
    }
    assert!(together.keys().all(|after| *after >= idle && *after <= idle * 3 / 2), "{together:?}");
    assert!(together.values().all(|count| *count <= CHECKED_AT_A_TIME), "{together:?}");
}

#[tokio::test(start_paused = true)]
async fn each_connection_has_its_own_idle_timeout() {
    let (short, long) = (Duration::from_secs(2), Duration::from_secs(1000));
    let rig = TableRig::new(long);
    let _open = (rig.connection(long).await, rig.connection(short).await, rig.connection(long).await);
    let began = Instant::now();
    let ended = async |count: usize| {
        while rig.ended() < count {
            sleep(Duration::from_millis(50)).await;
        }
        began.elapsed()
    };
    tokio::select! {
        () = async {
            let first = ended(1).await;
            assert!(first >= short && first < 2 * short, "{first:?}");
            let all = ended(3).await;
            assert!(all >= long && all < long * 3 / 2, "{all:?}");
        } => {}
        () = rig.table.watch_idle() => unreachable!(),
    }
}

#[tokio::test]
async fn where_memory_runs_out_those_are_reset_for_whom_the_most_waits() {
    const HOUR: Duration = Duration::from_secs(3600);
    let rig = TableRig::new(HOUR);
    let capacity = crate::limits::capacity::Capacity::unlimited();
    let mut talks = Vec::new();
    for _ in 0..4 {
        talks.push(rig.connection(HOUR).await);
    }
    // Nobody reads what the first endpoint sends, and little of what the second does.
    assert!(fill(&talks[0].1) > 100 << 10);
    (&talks[1].1).write_all(&[1; 30 << 10]).unwrap();
    for _ in 0..100 {
        rig.poll().await;
    }
    assert_eq!(rig.table.relieve_memory(&capacity, 0), 0);
    assert_eq!(rig.ended(), 0, "there is memory");
    capacity.gauge().set(crate::MemoryLeft { excess: 1, ..Default::default() });
    assert_eq!(rig.table.relieve_memory(&capacity, 0), 0);
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
    capacity.gauge().set(crate::MemoryLeft { excess: 1 << 40, ..Default::default() });
    rig.table.relieve_memory(&capacity, 0);
    assert_eq!(rig.ended(), 1, "it does not help to reset those for whom little waits");
}
