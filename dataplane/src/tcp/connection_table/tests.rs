//! Turns: how much one poll does, who comes first, and that a large table is checked in small steps.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;

use socket2::{Domain, SockRef, Socket, Type};

use super::*;
use crate::tcp::splice::Direction;
use crate::tcp::{PipeBudget, PipePool};

/// More than one connection may move in a turn.
const QUEUED: usize = 2 << 20;

/// Counts, and notes the moments at which connections end.
struct Noted {
    counters: TcpCounters,
    ends: Rc<RefCell<Vec<Instant>>>,
}

impl Story for Noted {
    fn counters(&self) -> &TcpCounters {
        &self.counters
    }

    fn end(self, _: CloseReason) {
        self.ends.borrow_mut().push(Instant::now());
    }
}

struct Rig {
    table: ConnectionTable<Noted>,
    ends: Rc<RefCell<Vec<Instant>>>,
    endpoints: TcpListener,
}

impl Rig {
    fn new(idle: Duration) -> Self {
        let pipes = PipePool::new(PipeBudget { pipes: 8, slots: usize::MAX });
        let timeouts = Timeouts { connect: idle, idle, udp_idle: idle, udp_unanswered: idle };
        let table = ConnectionTable::new(
            RelayBuffers::new(64 << 10, pipes, crate::limits::capacity::Capacity::unlimited()),
            timeouts,
        )
        .unwrap();
        let endpoints = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Self { table, ends: Rc::default(), endpoints }
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
        let noted = Noted { counters: TcpCounters::default(), ends: Rc::clone(&self.ends) };
        connecting.relay(Stream::accepted(accepted.into()), Direction::new(), idle, noted).unwrap();
        (client, self.endpoints.accept().unwrap().0)
    }

    fn moved(&self) -> BTreeMap<usize, u64> {
        let entries = self.table.entries.borrow();
        let moved = entries.iter().filter_map(|(index, entry)| match &entry.state {
            State::Relaying(_, noted) => Some((index, noted.counters.client_bytes.get())),
            State::Connecting(_) | State::Changing => None,
        });
        moved.collect()
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
    let rig = Rig::new(HOUR);
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
        let before: u64 = rig.moved().values().sum();
        rig.poll().await;
        let moved = rig.moved().values().sum::<u64>() - before;
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
    let rig = Rig::new(idle);
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        open.push(rig.connection(idle).await);
    }
    let began = Instant::now();
    let all_ended = async {
        while rig.ends.borrow().len() < CONNECTIONS {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = all_ended => {}
        () = rig.table.watch_idle() => unreachable!(),
    }
    let mut together = BTreeMap::<_, usize>::new();
    for end in rig.ends.borrow().iter() {
        *together.entry(*end).or_default() += 1;
        let after = *end - began;
        assert!(after >= idle && after <= idle * 3 / 2, "{after:?}");
    }
    assert!(together.values().all(|count| *count <= CHECKED_AT_A_TIME), "{together:?}");
}

#[tokio::test(start_paused = true)]
async fn each_connection_has_its_own_idle_timeout() {
    let (short, long) = (Duration::from_secs(2), Duration::from_secs(1000));
    let rig = Rig::new(long);
    let _open = (rig.connection(long).await, rig.connection(short).await, rig.connection(long).await);
    let began = Instant::now();
    let ended = async |count: usize| {
        while rig.ends.borrow().len() < count {
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
    let rig = Rig::new(HOUR);
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
    assert_eq!(rig.table.relieve(&capacity, 0), 0);
    assert_eq!(rig.ends.borrow().len(), 0, "there is memory");
    capacity.gauge().set(crate::MemoryLeft { excess: 1, ..Default::default() });
    assert_eq!(rig.table.relieve(&capacity, 0), 0);
    assert_eq!(rig.ends.borrow().len(), 1);
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
    rig.table.relieve(&capacity, 0);
    assert_eq!(rig.ends.borrow().len(), 1, "it does not help to reset those for whom little waits");
}
