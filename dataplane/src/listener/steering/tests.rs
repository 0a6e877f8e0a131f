//! Tests of steered frontends in separate network namespaces, with the program loaded in the kernel. They need root outside of user
//! namespaces, which `tests/run` provides in CI.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command as Program;
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Socket as AnySocket, Type};

use super::*;
use crate::counters::{DropReason, FrontendCounters};
use crate::{CapacityLimits, Dataplane, Options, Settings, Timeouts};
use sheave_model::test_util::{self, table};
use sheave_model::{Algorithm, EndpointAddr, Frontend, Protocol, Route, RoutingTable, SourceRanges};

pub(in crate::listener) const PATIENCE: Duration = Duration::from_secs(10);
/// Time without an answer after which there will be none.
const SILENCE: Duration = Duration::from_millis(300);
const V4: &str = "127.0.0.2";
const V6: &str = "::1";

/// Runs `test` in a new network namespace with a gateway that steers in it.
fn steering(mode: SteeringMode, listening_sockets: usize, test: impl FnOnce(&mut Dataplane) + Send) {
    in_namespace(|| test(&mut start(mode, listening_sockets)));
}

/// Runs `test` on a thread in a new network namespace. If steering is not permitted, it fails in CI and skips `test` elsewhere.
pub(in crate::listener) fn in_namespace(test: impl FnOnce() + Send) {
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("tests/run provides for network namespaces");
        let up = Program::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        if let Err(error) = SkLookup::new() {
            assert!(
                std::env::var_os("CI").is_none(),
                "steering needs root outside of user namespaces: {error}"
            );
            eprintln!("not tested: {error}");
            return;
        }
        test();
    };
    thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A gateway with an empty table.
pub(in crate::listener) fn start(mode: SteeringMode, listening_sockets: usize) -> Dataplane {
    let timeouts = Timeouts {
        connect: PATIENCE,
        idle: PATIENCE,
        udp_idle: PATIENCE,
        udp_unanswered: PATIENCE,
        drain: PATIENCE,
    };
    let (workers, udp_flows, paths) = (2, 1000, Arc::default());
    let options = Options {
        workers,
        settings: Settings {
            timeouts,
            busy_poll: Duration::ZERO,
            capacity: CapacityLimits { descriptors: 10_000, connections: 10_000 },
            udp_flows,
        },
        listening_sockets,
        steering: mode,
        paths,
        connection_log: crate::ConnectionLog::new().0,
        kernel_path: crate::KernelPathOptions::default(),
        held: false,
    };
    Dataplane::start(options).unwrap()
}

pub(in crate::listener) fn addr(ip: &str, port: u16, protocol: Protocol) -> FrontendAddr {
    FrontendAddr { ip: ip.parse().unwrap(), port, protocol }
}

pub(in crate::listener) fn frontend(addr: FrontendAddr, endpoint: SocketAddr) -> Frontend {
    let mut frontend = test_util::frontend(1, Algorithm::RoundRobin, &[(1, 100)]);
    let mut backend = test_util::backend("local", 100, &[(1, 100)]);
    backend.endpoints[0].addr = EndpointAddr::new(endpoint.ip(), endpoint.port());
    frontend.addr = addr;
    frontend.service.protocol = addr.protocol;
    frontend.backends = Arc::new([backend]);
    frontend
}

fn only_for(frontend: Frontend, cidrs: &[&str]) -> Frontend {
    let cidrs: Vec<IpNet> = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
    Frontend { source_ranges: Arc::new(SourceRanges::new(cidrs)), ..frontend }
}

pub(in crate::listener) fn without_endpoints(frontend: Frontend) -> Frontend {
    Frontend { external: Route::Reject, internal: Route::Reject, backends: Arc::new([]), ..frontend }
}

/// An echo server for both protocols, on this thread's network.
pub(in crate::listener) fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(addr).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 64];
            let length = stream.read(&mut buffer).unwrap_or(0);
            stream.write_all(&buffer[..length]).ok();
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..length], from).ok();
        }
    });
    addr
}

/// Result of one exchange, from this address if one is given.
pub(in crate::listener) fn ask(addr: FrontendAddr, from: Option<IpAddr>) -> io::Result<()> {
    ask_for(addr, from, PATIENCE)
}

/// Like [`ask`], where the kernel may refuse at once or no answer arrives within `patience`.
fn ask_for(addr: FrontendAddr, from: Option<IpAddr>, patience: Duration) -> io::Result<()> {
    let to = addr.socket_addr();
    let kind = match addr.protocol {
        Protocol::Tcp => Type::STREAM,
        Protocol::Udp => Type::DGRAM,
    };
    let socket = AnySocket::new(Domain::for_address(to), kind, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match addr.protocol {
        Protocol::Tcp => {
            socket.connect_timeout(&to.into(), patience)?;
            let mut stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"hello")?;
            stream.read_exact(&mut [0; 5])
        }
        Protocol::Udp => {
            socket.connect(&to.into())?;
            let socket = UdpSocket::from(socket);
            socket.set_read_timeout(Some(patience))?;
            socket.send(b"hello")?;
            socket.recv(&mut [0; 5]).map(drop)
        }
    }
}

pub(in crate::listener) fn refused(addr: FrontendAddr) -> bool {
    refused_from(addr, None)
}

/// Like [`refused`], for a client with this address.
pub(in crate::listener) fn refused_from(addr: FrontendAddr, from: Option<IpAddr>) -> bool {
    ask_for(addr, from, SILENCE).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Waits until the workers have closed their sockets at `addr`.
pub(in crate::listener) fn until_refused(addr: FrontendAddr) {
    let told = Instant::now();
    while !refused(addr) {
        assert!(told.elapsed() < PATIENCE, "strangers are not refused");
    }
}

/// Whether there is neither an answer nor a refusal.
fn ignored(addr: FrontendAddr, from: Option<IpAddr>) -> bool {
    ask_for(addr, from, SILENCE)
        .is_err_and(|error| matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock))
}

fn everywhere(port: u16) -> [FrontendAddr; 4] {
    [(V4, Protocol::Tcp), (V4, Protocol::Udp), (V6, Protocol::Tcp), (V6, Protocol::Udp)]
        .map(|(ip, protocol)| addr(ip, port, protocol))
}

#[test]
fn steered_frontends_serve_refuse_and_ignore_as_the_table_says() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let endpoint = endpoint();
        let serving = everywhere(80).map(|addr| frontend(addr, endpoint));
        let closed = everywhere(81).map(|addr| without_endpoints(frontend(addr, endpoint)));
        let dropping = everywhere(82).map(|addr| Frontend {
            external: Route::Drop,
            internal: Route::Drop,
            ..frontend(addr, endpoint)
        });
        dataplane.apply(table(serving.into_iter().chain(closed).chain(dropping)));
        assert_eq!(dataplane.failures().count(), 0);
        let report = dataplane.steering();
        assert_eq!((report.sockets, report.steered, report.obstacle), (0, 8, None));
        for (((served, closed), dropping), nobodys) in
            everywhere(80).into_iter().zip(everywhere(81)).zip(everywhere(82)).zip(everywhere(83))
        {
            for _ in 0..10 {
                ask(served, None).unwrap_or_else(|error| panic!("{served}: {error}"));
            }
            assert!(refused(closed), "{closed}");
            assert!(ignored(dropping, None), "{dropping}");
            assert!(refused(nobodys), "{nobodys}");
        }
    });
}

#[test]
fn clients_outside_of_the_ranges_meet_silence_and_a_change_of_ranges_counts_at_once() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let endpoint = endpoint();
        let [listed, other] = ["127.0.0.7", "127.0.0.9"].map(|ip| Some(ip.parse::<IpAddr>().unwrap()));
        let addrs = [Protocol::Tcp, Protocol::Udp].map(|protocol| addr(V4, 80, protocol));
        let with = |cidrs: &[&str]| table(addrs.map(|addr| only_for(frontend(addr, endpoint), cidrs)));
        let mut generation = 0;
        let mut apply = |dataplane: &mut Dataplane, table: RoutingTable| {
            generation += 1;
            dataplane.apply(RoutingTable::new(generation, table.frontends().to_vec(), Arc::default()));
        };
        apply(dataplane, with(&["127.0.0.7/32", "10.0.0.0/8"]));
        for addr in addrs {
            ask(addr, listed).unwrap();
            assert!(ignored(addr, other), "{addr}");
        }
        apply(dataplane, with(&["127.0.0.9/32"]));
        for addr in addrs {
            ask(addr, other).unwrap();
            assert!(ignored(addr, listed), "{addr}");
        }
        // All sources but a few.
        apply(dataplane, with(&["0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3", "224.0.0.0/4", "240.0.0.0/5"]));
        for addr in addrs {
            ask(addr, listed).unwrap();
        }
        apply(dataplane, with(&[]));
        for addr in addrs {
            ask(addr, other).unwrap();
        }
    });
}

#[test]
fn a_frontend_beyond_the_room_is_steered_and_one_in_the_way_of_another_process_is_not() {
    // Room for one frontend's sockets, one per worker.
    steering(SteeringMode::Auto, 2, |dataplane| {
        let endpoint = endpoint();
        let (first, second) = (addr(V4, 80, Protocol::Tcp), addr(V4, 81, Protocol::Udp));
        let taken = [addr(V4, 82, Protocol::Tcp), addr(V4, 83, Protocol::Udp)];
        let _others = (
            TcpListener::bind(taken[0].socket_addr()).unwrap(),
            UdpSocket::bind(taken[1].socket_addr()).unwrap(),
        );
        dataplane.apply(table([first, second, taken[0], taken[1]].map(|addr| frontend(addr, endpoint))));
        let failed: Vec<_> =
            dataplane.failures().map(|failure| (failure.frontend.addr, failure.error.kind())).collect();
        assert_eq!(failed, taken.map(|addr| (addr, ErrorKind::AddrInUse)));
        let report = dataplane.steering();
        assert_eq!((report.sockets, report.steered), (1, 1));
        ask(first, None).unwrap();
        ask(second, None).unwrap();
    });
}

#[test]
fn what_is_steered_always_comes_before_other_processes_but_not_before_the_own_servers() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let endpoint = endpoint();
        let [taken, own] = [80, 81].map(|port| addr(V4, port, Protocol::Tcp));
        let other = TcpListener::bind(("0.0.0.0", 80)).unwrap();
        let server = TcpListener::bind(("0.0.0.0", 81)).unwrap();
        other.set_nonblocking(true).unwrap();
        let both = || table([taken, own].map(|addr| frontend(addr, endpoint)));
        let servers = |port| BTreeSet::from([SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)]);
        dataplane.reserve(servers(81), BTreeSet::new());
        dataplane.apply(both());
        let failed: Vec<_> = dataplane.failures().map(|failure| failure.frontend.addr).collect();
        assert_eq!(failed, [own]);
        ask(taken, None).unwrap();
        assert_eq!(other.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(server);
        dataplane.reserve(servers(80), BTreeSet::new());
        dataplane.retry();
        let failed: Vec<_> = dataplane.failures().map(|failure| failure.frontend.addr).collect();
        assert_eq!(failed, [taken], "the other way round");
        ask(own, None).unwrap();
        let _to_the_other = TcpStream::connect(taken.socket_addr()).unwrap();
        other.set_nonblocking(false).unwrap();
        other.accept().unwrap();
    });
}

/// Binds as another process would.
fn bind_alone(addr: FrontendAddr) -> io::Result<()> {
    let socket = AnySocket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.socket_addr().into())
}

#[test]
fn at_an_address_of_the_machine_itself_its_own_processes_come_first() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let endpoint = endpoint();
        let [taken, free, empty] = [80, 81, 82].map(|port| addr(V4, port, Protocol::Tcp));
        let daemon = |addr: FrontendAddr| TcpListener::bind(("0.0.0.0", addr.port)).unwrap();
        let is_reached = |daemon: &TcpListener, addr: FrontendAddr| {
            let client = TcpStream::connect(addr.socket_addr()).unwrap();
            assert_eq!(daemon.accept().unwrap().1, client.local_addr().unwrap());
        };
        let failed = |dataplane: &Dataplane| -> Vec<(FrontendAddr, ErrorKind)> {
            dataplane.failures().map(|failure| (failure.frontend.addr, failure.error.kind())).collect()
        };
        let (first, second) = (daemon(taken), daemon(empty));
        dataplane.reserve(BTreeSet::new(), BTreeSet::from([taken.ip]));
        let all = [
            frontend(taken, endpoint),
            frontend(free, endpoint),
            without_endpoints(frontend(empty, endpoint)),
        ];
        dataplane.apply(table(all));
        assert_eq!(failed(dataplane), [(taken, ErrorKind::AddrInUse)]);
        is_reached(&first, taken);
        is_reached(&second, empty);
        ask(free, None).unwrap();
        // A server that starts later gets its port, and loses it again only when it ends.
        let late = daemon(free);
        dataplane.retry();
        assert_eq!(failed(dataplane), [taken, free].map(|addr| (addr, ErrorKind::AddrInUse)));
        is_reached(&late, free);
        drop(late);
        dataplane.retry();
        assert_eq!(failed(dataplane), [(taken, ErrorKind::AddrInUse)]);
        ask(free, None).unwrap();
        // A connection from this address is no listener, though it makes bind(2) fail.
        let leaving = AnySocket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        leaving.set_reuse_address(true).unwrap();
        leaving.bind(&free.socket_addr().into()).unwrap();
        leaving.connect(&SocketAddr::new(taken.ip, taken.port).into()).unwrap();
        leaving.set_reuse_address(false).unwrap();
        assert_eq!(bind_alone(free).unwrap_err().kind(), ErrorKind::AddrInUse);
        dataplane.retry();
        assert_eq!(failed(dataplane), [(taken, ErrorKind::AddrInUse)]);
        ask(free, None).unwrap();
    });
}

/// Retries until every frontend is open. A process that another test starts has copies of closed sockets until it executes its program.
fn until_opened(dataplane: &mut Dataplane) {
    let deadline = Instant::now() + PATIENCE;
    while dataplane.failures().count() > 0 {
        assert!(Instant::now() < deadline, "{:?}", dataplane.failures().next());
        dataplane.retry();
    }
}

#[test]
fn a_connection_with_the_port_of_a_frontend_is_no_server_there() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let endpoint = endpoint();
        let ip: IpAddr = V4.parse().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = |kind| {
            let socket = AnySocket::new(Domain::IPV4, kind, None).unwrap();
            socket.bind(&SocketAddr::new(ip, 0).into()).unwrap();
            socket.connect(&server.local_addr().unwrap().into()).unwrap();
            let port = socket.local_addr().unwrap().as_socket().unwrap().port();
            (socket, port)
        };
        let ((_stream, tcp), (socket, udp)) = (from(Type::STREAM), from(Type::DGRAM));
        let (tcp, udp) = (addr(V4, tcp, Protocol::Tcp), addr(V4, udp, Protocol::Udp));
        dataplane.reserve(BTreeSet::new(), BTreeSet::from([ip]));
        dataplane.apply(table([tcp, udp].map(|addr| frontend(addr, endpoint))));
        let failed: Vec<_> =
            dataplane.failures().map(|failure| (failure.frontend.addr, failure.error.kind())).collect();
        assert_eq!(failed, [(udp, ErrorKind::ResourceBusy)], "a socket there has to answer");
        ask(tcp, None).unwrap();
        drop(socket);
        until_opened(dataplane);
        ask(udp, None).unwrap();
    });
}

/// A client of the machine may have the port for a moment; nothing tells its socket from a server's.
#[test]
fn a_frontend_that_cannot_answer_for_a_moment_opens_again_at_an_address_of_the_machine_too() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let served = addr(V4, 53, Protocol::Udp);
        dataplane.let_predecessors_pass();
        dataplane.reserve(BTreeSet::new(), BTreeSet::from([served.ip]));
        dataplane.apply(table([frontend(served, endpoint())]));
        assert_eq!(dataplane.failures().count(), 0);
        let client = UdpSocket::bind(served.socket_addr()).unwrap();
        assert!(ask_for(served, None, SILENCE).is_err());
        for _ in 0..3 {
            dataplane.retry();
            let failed: Vec<(ErrorKind, bool)> =
                dataplane.failures().map(|failure| (failure.error.kind(), failure.is_final)).collect();
            assert_eq!(failed, [(ErrorKind::AddrInUse, false)]);
        }
        drop(client);
        until_opened(dataplane);
        ask(served, None).unwrap();
        // A server that was there first keeps its port.
        let first = addr(V4, 54, Protocol::Udp);
        let _server = UdpSocket::bind(first.socket_addr()).unwrap();
        dataplane.apply(table([frontend(first, endpoint())]));
        let deadline = Instant::now() + PATIENCE;
        // What was read of the machine's sockets is used for a second.
        while !dataplane.failures().all(|failure| failure.is_final) {
            assert!(Instant::now() < deadline, "{:?}", dataplane.failures().next());
            dataplane.retry();
        }
        assert_eq!(dataplane.failures().map(|failure| failure.frontend.addr).collect::<Vec<_>>(), [first]);
    });
}

/// A socket of another user, which no socket of this process may share an address with.
#[test]
fn clients_that_cannot_be_answered_are_no_lack_of_ports() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let served = addr(V4, 53, Protocol::Udp);
        dataplane.apply(table([frontend(served, endpoint())]));
        assert_eq!(dataplane.failures().count(), 0);
        let other = UdpSocket::bind(served.socket_addr()).unwrap();
        assert!(ask_for(served, None, SILENCE).is_err());
        let dropped = |reason| -> u64 {
            dataplane
                .counters(served)
                .iter()
                .filter_map(FrontendCounters::as_udp)
                .map(|it| it.dropped(reason))
                .sum()
        };
        assert_eq!([DropReason::NoPort, DropReason::NoSocket].map(dropped), [0, 1]);
        dataplane.retry();
        let failed = |dataplane: &Dataplane| -> Vec<ErrorKind> {
            dataplane.failures().map(|failure| failure.error.kind()).collect()
        };
        assert_eq!(failed(dataplane), [ErrorKind::AddrInUse]);
        dataplane.retry();
        assert_eq!(failed(dataplane), [ErrorKind::AddrInUse]);
        drop(other);
        until_opened(dataplane);
        ask(served, None).unwrap();
    });
}

#[test]
fn flows_end_with_the_endpoints_of_their_frontend_and_come_back_with_them() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let endpoint = endpoint();
        let addr = addr(V4, 53, Protocol::Udp);
        let (open, closed) = (frontend(addr, endpoint), without_endpoints(frontend(addr, endpoint)));
        let apply = |dataplane: &mut Dataplane, generation, frontends: &[&Frontend]| {
            let frontends = frontends.iter().map(|frontend| Arc::new((*frontend).clone())).collect();
            dataplane.apply(RoutingTable::new(generation, frontends, Arc::default()));
        };
        let clients: Vec<UdpSocket> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let exchange = |client: &UdpSocket| {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send(b"hello")?;
            client.recv(&mut [0; 5]).map(|length| assert_eq!(length, 5))
        };
        let all_are_refused = || {
            for client in &clients {
                assert_eq!(exchange(client).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            }
        };
        clients.iter().for_each(|client| client.connect(addr.socket_addr()).unwrap());
        for generation in [1, 4] {
            apply(dataplane, generation, &[&open]);
            clients.iter().for_each(|client| exchange(client).unwrap());
            apply(dataplane, generation + 1, &[&closed]);
            all_are_refused();
        }
        apply(dataplane, 7, &[&open]);
        clients.iter().for_each(|client| exchange(client).unwrap());
        apply(dataplane, 8, &[]);
        until_refused(addr);
        all_are_refused();
    });
}

#[test]
fn a_frontend_that_closes_and_opens_again_at_once_serves() {
    steering(SteeringMode::Always, 0, |dataplane| {
        let endpoint = endpoint();
        let open = everywhere(80).map(|addr| Arc::new(frontend(addr, endpoint)));
        let closed = everywhere(80).map(|addr| Arc::new(without_endpoints(frontend(addr, endpoint))));
        let mut generation = 0;
        for round in 0..50 {
            // The workers still process the previous state of the frontend.
            for frontends in [&open, &closed, &open] {
                generation += 1;
                dataplane.apply(RoutingTable::new(generation, frontends.to_vec(), Arc::default()));
            }
            for addr in everywhere(80) {
                ask(addr, None).unwrap_or_else(|error| panic!("{addr}, round {round}: {error}"));
            }
        }
    });
}

#[test]
fn thousands_of_frontends_are_opened_in_no_time_and_need_no_descriptors() {
    const FRONTENDS: u32 = 30_000;
    steering(SteeringMode::Auto, 0, |dataplane| {
        let endpoint = endpoint();
        let numbered = |number: u32| FrontendAddr {
            ip: IpAddr::V4((0x7f80_0000 + number).into()),
            port: 80,
            protocol: if number.is_multiple_of(2) { Protocol::Tcp } else { Protocol::Udp },
        };
        // Each with its own source ranges.
        let all = table((0..FRONTENDS).map(|number| {
            let addr = numbered(number);
            only_for(frontend(addr, endpoint), &["127.0.0.0/16", &format!("{}/32", addr.ip)])
        }));
        let before = descriptors();
        let started = Instant::now();
        dataplane.apply(all);
        let took = started.elapsed();
        assert_eq!((dataplane.failures().count(), dataplane.steering().steered), (0, FRONTENDS as usize));
        // Other tests of this process open some, too.
        assert!(descriptors() < before + FRONTENDS as usize / 2);
        for number in (0..FRONTENDS).step_by(997) {
            ask(numbered(number), None).unwrap();
        }
        eprintln!("{FRONTENDS} frontends in {took:?}");
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
