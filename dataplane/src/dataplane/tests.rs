//! Tests of frontends without descriptors, of workers that panic, and of traffic watches.

mod watches;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::*;
use crate::CapacityLimits;
use crate::sys::Errno;
use crate::worker::context::Timeouts;
use sheave_model::test_util::{frontend, table};
use sheave_model::{Algorithm, Protocol};

/// A data plane with room for `listening_sockets` sockets.
fn dataplane(listening_sockets: usize) -> Dataplane {
    dataplane_of(1, listening_sockets)
}

fn dataplane_of(workers: usize, listening_sockets: usize) -> Dataplane {
    let second = Duration::from_secs(1);
    let timeouts = Timeouts {
        connect: second,
        idle: 60 * second,
        udp_idle: 60 * second,
        udp_unanswered: second,
        drain: second,
    };
    Dataplane::start(Options {
        workers,
        settings: Settings {
            timeouts,
            busy_poll: Duration::ZERO,
            capacity: CapacityLimits { descriptors: 10_000, connections: 10_000 },
            udp_flows: 16,
        },
        listening_sockets,
        steering: SteeringMode::Never,
        paths: Arc::default(),
        connection_log: crate::ConnectionLog::new().0,
        kernel_path: crate::KernelPathOptions::default(),
        held: false,
    })
    .unwrap()
}

/// An address for a frontend, whose port no other test has: it is below the range of ephemeral ports.
fn free_address(ip: IpAddr, kind: Type) -> SocketAddr {
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 10_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = std::process::id() as u16;
    let next = || FIRST + own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
    std::iter::repeat_with(|| SocketAddr::new(ip, next()))
        .take(PORTS.into())
        .find(|addr| is_free(*addr, kind))
        .unwrap()
}

/// Whether no other socket has or shares the address.
fn is_free(addr: SocketAddr, kind: Type) -> bool {
    let socket = Socket::new(Domain::for_address(addr), kind, None).unwrap();
    socket.bind(&addr.into()).is_ok()
}

/// Frontends with these numbers, on addresses that no interface has and a port that needs no privilege.
fn frontends(numbers: impl IntoIterator<Item = u32>) -> RoutingTable {
    table(numbers.into_iter().map(|number| {
        let mut frontend = frontend(number, Algorithm::Random, &[(1, 100)]);
        frontend.addr.port = 8080;
        frontend
    }))
}

#[test]
fn beyond_the_room_frontends_stay_closed_until_others_leave() {
    let mut dataplane = dataplane(2);
    dataplane.apply(frontends(1..=4));
    let failed: Vec<_> =
        dataplane.failures().map(|failure| (failure.frontend.addr, failure.error.raw_os_error())).collect();
    let none_left = Some(Errno::EMFILE as i32);
    let addrs: Vec<_> = frontends(3..=4).frontends().iter().map(|frontend| frontend.addr).collect();
    assert_eq!(failed, [(addrs[0], none_left), (addrs[1], none_left)]);
    let revision = dataplane.failures_revision();
    dataplane.retry();
    assert_eq!((dataplane.failures().count(), dataplane.failures_revision()), (2, revision));
    dataplane.apply(frontends(2..=4));
    dataplane.retry();
    let failed: Vec<_> = dataplane.failures().map(|failure| failure.frontend.addr).collect();
    assert_eq!(failed, addrs[1..]);
    assert!(dataplane.failures_revision() > revision);
    dataplane.apply(frontends([4]));
    dataplane.retry();
    assert_eq!(dataplane.failures().count(), 0);
}

#[test]
fn a_port_that_a_process_of_the_machine_had_is_not_taken_when_it_is_away_for_a_moment() {
    let mut dataplane = dataplane(100);
    let daemon = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = daemon.local_addr().unwrap();
    let served = |number| {
        let mut frontend = frontend(number, Algorithm::Random, &[(1, 100)]);
        frontend.addr = FrontendAddr { ip: addr.ip(), port: addr.port(), protocol: Protocol::Tcp };
        table([frontend])
    };
    let failed =
        |dataplane: &Dataplane| -> Vec<bool> { dataplane.failures().map(|it| it.is_final).collect() };
    dataplane.reserve(BTreeSet::new(), BTreeSet::from([addr.ip()]));
    dataplane.apply(served(1));
    assert_eq!(failed(&dataplane), [false], "it may be that of a process before this one");
    dataplane.let_predecessors_pass();
    dataplane.retry();
    assert_eq!(failed(&dataplane), [true]);
    drop(daemon);
    dataplane.retry();
    assert_eq!(failed(&dataplane), [true]);
    let again = std::net::TcpListener::bind(addr).unwrap();
    drop(again);
    // Other processes have no precedence at other addresses.
    dataplane.reserve(BTreeSet::new(), BTreeSet::new());
    dataplane.apply(RoutingTable::default());
    dataplane.apply(served(1));
    assert_eq!(dataplane.failures().count(), 0);
}

/// Retries until every frontend is open. A process that another test starts has copies of closed sockets until it executes its program.
fn until_opened(dataplane: &mut Dataplane, protocol: Protocol) {
    let begun = Instant::now();
    while dataplane.failures().count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{protocol}");
        dataplane.retry();
    }
}

/// A health check server that ends with its Service, for instance.
#[test]
fn a_port_that_a_server_of_this_process_had_is_taken_when_that_ends() {
    let mut dataplane = dataplane(100);
    dataplane.let_predecessors_pass();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = server.local_addr().unwrap();
    let mut served = frontend(1, Algorithm::Random, &[(1, 100)]);
    served.addr = FrontendAddr { ip: addr.ip(), port: addr.port(), protocol: Protocol::Tcp };
    dataplane.reserve(BTreeSet::from([addr]), BTreeSet::from([addr.ip()]));
    dataplane.apply(table([served]));
    let failed: Vec<(bool, String)> =
        dataplane.failures().map(|it| (it.is_final, it.error.to_string())).collect();
    assert_eq!(failed, [(false, "this gateway itself listens there".to_owned())]);
    drop(server);
    dataplane.reserve(BTreeSet::new(), BTreeSet::from([addr.ip()]));
    until_opened(&mut dataplane, Protocol::Tcp);
}

/// A connected socket, and the port that it uses at this address.
fn connection(protocol: Protocol, ip: IpAddr) -> (Box<dyn std::any::Any>, u16) {
    match protocol {
        Protocol::Tcp => {
            let listener = std::net::TcpListener::bind((ip, 0)).unwrap();
            let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            // Without TIME_WAIT.
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            let port = stream.local_addr().unwrap().port();
            (Box::new((stream, listener)), port)
        }
        Protocol::Udp => {
            let socket = std::net::UdpSocket::bind((ip, 0)).unwrap();
            socket.connect((ip, 9)).unwrap();
            let port = socket.local_addr().unwrap().port();
            (Box::new(socket), port)
        }
    }
}

#[test]
fn a_port_that_a_connection_of_the_machine_has_is_taken_when_that_ends() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (connection, port) = connection(protocol, ip);
        let mut dataplane = dataplane(100);
        dataplane.let_predecessors_pass();
        dataplane.reserve(BTreeSet::new(), BTreeSet::from([ip]));
        let mut frontend = frontend(1, Algorithm::Random, &[(1, 100)]);
        frontend.addr = FrontendAddr { ip, port, protocol };
        dataplane.apply(table([frontend]));
        let failed: Vec<(bool, String)> =
            dataplane.failures().map(|it| (it.is_final, it.error.to_string())).collect();
        assert_eq!(failed.len(), 1, "{protocol}");
        assert!(!failed[0].0 && failed[0].1.contains("ip_local_reserved_ports"), "{protocol}: {failed:?}");
        drop(connection);
        until_opened(&mut dataplane, protocol);
    }
}

mod panics {
    //! Tests: a worker that panics is restarted with its sockets; the other workers are not affected.

    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use sheave_model::EndpointAddr;

    use super::*;
    use crate::worker::Command;

    /// Two workers in front of an echo server.
    fn serving() -> (Dataplane, SocketAddr) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let serves = server.local_addr().unwrap();
        thread::spawn(move || {
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read(&mut byte).is_ok_and(|read| read > 0) && stream.write_all(&byte).is_ok()
                    {
                    }
                });
            }
        });
        let mut dataplane = dataplane_of(2, 100);
        let mut frontend = frontend(1, Algorithm::Random, &[(1, 100)]);
        let mut backend = frontend.backends[0].clone();
        backend.endpoints[0].addr = EndpointAddr::new(serves.ip(), serves.port());
        frontend.backends = Arc::new([backend]);
        let free = free_address(Ipv4Addr::LOCALHOST.into(), Type::STREAM);
        (frontend.addr.ip, frontend.addr.port) = (free.ip(), free.port());
        dataplane.apply(table([frontend]));
        assert_eq!(dataplane.failures().count(), 0);
        (dataplane, free)
    }

    fn open(to: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        exchange(&mut stream).unwrap();
        stream
    }

    fn exchange(stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])
    }

    fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(20), "{what}");
            thread::yield_now();
        }
    }

    /// Retries once, and returns the number of restarts.
    fn restarts(dataplane: &mut Dataplane) -> u64 {
        dataplane.retry();
        dataplane.worker_restarts()
    }

    #[test]
    fn connections_are_handed_to_the_worker_that_has_fewer() {
        let (dataplane, to) = serving();
        let mut streams: Vec<TcpStream> = (0..100).map(|_| open(to)).collect();
        let has = |worker: usize| dataplane.ports.of(worker).open();
        assert_eq!(has(0) + has(1), 100);
        // Two and an eighth more are tolerated; the kernel's hash alone is often less even.
        assert!(has(0).abs_diff(has(1)) <= 10, "{} and {}", has(0), has(1));
        assert!(streams.iter_mut().all(|stream| exchange(stream).is_ok()));
        drop(streams);
        wait_until("all have ended", || has(0) + has(1) == 0);
    }

    #[test]
    fn a_worker_that_panics_is_started_again() {
        let (mut dataplane, to) = serving();
        let addr = dataplane.table().table().frontends()[0].addr;
        let accepted = |dataplane: &Dataplane, worker: usize| {
            dataplane.counters(addr)[worker].tcp().map_or(0, |counters| counters.accepted.get())
        };
        // The kernel spreads connections: after a while both workers have some.
        let mut streams = Vec::new();
        while accepted(&dataplane, 0) < 3 || accepted(&dataplane, 1) < 3 {
            streams.push(open(to));
        }
        let (lost, kept) = (accepted(&dataplane, 0), accepted(&dataplane, 1));
        dataplane.workers[0].send(Command::Panic);
        wait_until("the worker ends", || !dataplane.runs());
        // These wait in the queue of the ended worker, or are served by the other.
        let waiting: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(to).unwrap()).collect();
        wait_until("it is started again", || restarts(&mut dataplane) == 1);
        assert!(dataplane.runs());
        for mut stream in waiting {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            exchange(&mut stream).expect("nobody who waited is lost");
        }
        let alive = streams.iter_mut().filter_map(|stream| exchange(stream).ok()).count();
        assert_eq!(alive as u64, kept, "the other worker's connections go on");
        assert!(accepted(&dataplane, 0) > lost, "it accepts again");
        assert_eq!(
            dataplane.counters(addr)[0].tcp().unwrap().closed(crate::counters::CloseReason::Aborted),
            lost
        );
    }

    #[test]
    fn a_worker_that_keeps_failing_is_left_so() {
        let (mut dataplane, _) = serving();
        for number in 1..=5 {
            dataplane.workers[1].send(Command::Panic);
            wait_until("it is started again", || restarts(&mut dataplane) == number);
            assert!(dataplane.runs());
        }
        dataplane.workers[1].send(Command::Panic);
        wait_until("the worker ends", || !dataplane.runs());
        dataplane.workers[0].send(Command::Panic);
        wait_until("both have ended", || dataplane.workers.iter().all(|worker| !worker.runs()));
        assert_eq!(restarts(&mut dataplane), 5, "now a restart of the process is due");
    }
}

mod conflicts {
    //! Tests: a frontend that is opened again conflicts with a new owner of its address like a new frontend.

    use super::*;

    /// A socket of another program that shares its address (SO_REUSEPORT).
    fn sharing(addr: SocketAddr, kind: Type) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(addr), kind, None)?;
        socket.set_reuse_port(true)?;
        socket.set_reuse_address(kind == Type::STREAM)?;
        socket.bind(&addr.into())?;
        if kind == Type::STREAM {
            socket.listen(1)?;
        }
        Ok(socket)
    }

    fn expect_conflict(protocol: Protocol, kind: Type) {
        let mut dataplane = dataplane_of(2, 100);
        let addr = free_address(Ipv4Addr::LOCALHOST.into(), kind);
        let served = || {
            let mut frontend = frontend(1, Algorithm::Random, &[(1, 100)]);
            frontend.addr = FrontendAddr { ip: addr.ip(), port: addr.port(), protocol };
            table([frontend])
        };
        for _ in 0..3 {
            dataplane.apply(served());
            assert_eq!(dataplane.failures().count(), 0, "its own sockets are no conflict");
            dataplane.apply(RoutingTable::default());
        }
        let started = Instant::now();
        while !is_free(addr, kind) {
            assert!(started.elapsed() < Duration::from_secs(20), "the workers let go");
        }
        let other = sharing(addr, kind).unwrap();
        // A worker closes its sockets a moment before it drops its counters.
        loop {
            dataplane.apply(served());
            let errors: Vec<_> = dataplane.failures().map(|failure| failure.error.kind()).collect();
            if errors == [io::ErrorKind::AddrInUse] {
                break;
            }
            assert!(errors.is_empty() && started.elapsed() < Duration::from_secs(20), "{errors:?}");
            dataplane.apply(RoutingTable::default());
        }
        drop(other);
        dataplane.retry();
        assert_eq!(dataplane.failures().count(), 0);
    }

    #[test]
    fn of_tcp() {
        expect_conflict(Protocol::Tcp, Type::STREAM);
    }

    #[test]
    fn of_udp() {
        expect_conflict(Protocol::Udp, Type::DGRAM);
    }
}
