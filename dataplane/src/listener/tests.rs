//! Tests of frontends that another Service gets while they are open, in separate network namespaces. Those that are steered need root outside
//! of user namespaces, which `tests/run` provides in CI.

use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io::Read as _, io::Write as _, thread};

use sheave_model::test_util::table;
use sheave_model::{Frontend, FrontendAddr, Protocol, ServiceLimits};

use super::steering::SteeringMode;
use super::steering::tests::{PATIENCE, addr, endpoint, frontend, in_namespace, start};
use crate::counters::{CloseReason, FrontendCounters, TcpCounters, UdpCounters};
use crate::{Dataplane, Drained};

/// The frontend as one of this Service.
fn of(service: &str, frontend: Frontend) -> Frontend {
    let mut frontend = frontend;
    frontend.service.name = service.into();
    frontend
}

/// Numbers of connections and flows that the frontend has opened, and that its Service has open.
fn counted(dataplane: &Dataplane, addr: FrontendAddr) -> (u64, u32) {
    let workers = dataplane.counters(addr);
    let opened = |counters: &FrontendCounters| {
        let (tcp, udp) = (counters.as_tcp(), counters.as_udp());
        tcp.map(TcpCounters::opened).or_else(|| udp.map(UdpCounters::opened)).unwrap_or_default()
    };
    (workers.iter().map(opened).sum(), workers[0].usage().open())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::yield_now();
    }
}

/// Waits until the workers have done everything that they were told.
fn settle(dataplane: &Dataplane) {
    assert!(wait_for(dataplane.answers(PATIENCE)));
}

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn tcp_client(to: FrontendAddr) -> TcpStream {
    let stream = TcpStream::connect(to.socket_addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn udp_client(to: FrontendAddr) -> UdpSocket {
    let socket = UdpSocket::bind((to.ip, 0)).unwrap();
    socket.connect(to.socket_addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn exchange(client: &UdpSocket) {
    client.send(b"x").unwrap();
    assert_eq!(client.recv(&mut [0; 8]).unwrap(), 1);
}

const MODES: [SteeringMode; 2] = [SteeringMode::Never, SteeringMode::Always];

/// Two frontends, of Services a and b.
fn two_frontends(protocol: Protocol) -> [FrontendAddr; 2] {
    [8080, 8081].map(|port| addr("127.0.0.2", port, protocol))
}

/// Longer than a handshake takes here; SYNs that are dropped are sent again a second later.
const HANDSHAKE: Duration = Duration::from_millis(50);

/// Connects to these frontends one after another until `stop` is set; returns why connections failed once they were established.
fn ask_in_turn(frontends: &[FrontendAddr], stop: &AtomicBool) -> Vec<String> {
    let mut failed = Vec::new();
    for addr in frontends.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
        let Ok(mut client) = TcpStream::connect_timeout(&addr.socket_addr(), HANDSHAKE) else { continue };
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let answer = client.write_all(b"x").and_then(|()| client.read(&mut [0; 8]));
        if !matches!(answer, Ok(1)) {
            failed.push(format!("{addr}: {answer:?}"));
        }
    }
    failed
}

/// The kernel resets a connection that is established after the last accept(2) and before close(2).
#[test]
fn no_client_that_has_connected_is_reset_when_the_gateway_drains() {
    for mode in MODES {
        in_namespace(|| {
            let served = endpoint();
            let addrs: Vec<_> = (8000..8050).map(|port| addr("127.0.0.2", port, Protocol::Tcp)).collect();
            for _ in 0..8 {
                let mut dataplane = start(mode, 1000);
                dataplane.apply(table(addrs.iter().map(|addr| frontend(*addr, served))));
                assert_eq!(dataplane.failures().count(), 0);
                let stop = AtomicBool::new(false);
                thread::scope(|scope| {
                    let clients: Vec<_> =
                        (0..4).map(|_| scope.spawn(|| ask_in_turn(&addrs, &stop))).collect();
                    let opened = || addrs.iter().map(|addr| counted(&dataplane, *addr).0).sum::<u64>();
                    wait_until("clients are served", || opened() > 100);
                    assert_eq!(wait_for(dataplane.drain(PATIENCE)), Drained::Completely, "{mode:?}");
                    stop.store(true, Ordering::Relaxed);
                    let failed: Vec<_> = clients.into_iter().flat_map(|it| it.join().unwrap()).collect();
                    assert_eq!(failed, Vec::<String>::new(), "{mode:?}");
                });
            }
        });
    }
}

#[test]
fn connections_count_for_the_service_that_had_the_address_when_they_began() {
    for mode in MODES {
        in_namespace(|| {
            let (mut dataplane, served, [first, second]) =
                (start(mode, 100), endpoint(), two_frontends(Protocol::Tcp));
            let tables =
                |owner| table([of(owner, frontend(first, served)), of("b", frontend(second, served))]);
            dataplane.apply(tables("a"));
            let mut of_a = tcp_client(first);
            wait_until("it is open", || counted(&dataplane, first) == (1, 1));
            let before: Vec<FrontendCounters> = dataplane.counters(first).to_vec();
            dataplane.apply(tables("b"));
            settle(&dataplane);
            assert_eq!([first, second].map(|addr| counted(&dataplane, addr)), [(0, 0), (0, 0)], "{mode:?}");
            let of_b = tcp_client(first);
            wait_until("another is open", || counted(&dataplane, first) == (1, 1));
            assert_eq!((counted(&dataplane, second), before[0].usage().open()), ((0, 1), 1), "{mode:?}");
            // The one that was open goes on, and ends for the Service with which it began.
            of_a.write_all(b"x").unwrap();
            assert_eq!(of_a.read(&mut [0; 8]).unwrap(), 1);
            drop(of_a);
            wait_until("it has ended", || before[0].usage().open() == 0);
            assert_eq!(counted(&dataplane, first), (1, 1), "{mode:?}");
            let closed = before.iter().filter_map(FrontendCounters::as_tcp);
            assert_eq!(closed.map(|it| it.closed(CloseReason::Finished)).sum::<u64>(), 1);
            drop(of_b);
            wait_until("the other has ended", || counted(&dataplane, second) == (0, 0));
        });
    }
}

#[test]
fn flows_go_on_and_count_for_the_service_that_has_the_address_now() {
    for mode in MODES {
        in_namespace(|| {
            let (mut dataplane, served, [first, second]) =
                (start(mode, 100), endpoint(), two_frontends(Protocol::Udp));
            let tables =
                |owner| table([of(owner, frontend(first, served)), of("b", frontend(second, served))]);
            dataplane.apply(tables("a"));
            let flow = udp_client(first);
            exchange(&flow);
            assert_eq!(counted(&dataplane, first), (1, 1));
            let before: Vec<FrontendCounters> = dataplane.counters(first).to_vec();
            dataplane.apply(tables("b"));
            settle(&dataplane);
            let open = |dataplane: &Dataplane| {
                (counted(dataplane, first), counted(dataplane, second), before[0].usage().open())
            };
            assert_eq!(open(&dataplane), ((0, 0), (0, 0), 1), "{mode:?}");
            exchange(&flow);
            assert_eq!(open(&dataplane), ((0, 1), (0, 1), 0), "{mode:?}");
            exchange(&udp_client(first));
            assert_eq!(open(&dataplane), ((1, 2), (0, 2), 0), "{mode:?}");
            let totals = dataplane.observer();
            let opened = totals.totals().udp().map(|totals| totals.counters.flows_opened.get());
            assert_eq!(opened.sum::<u64>(), 2, "{mode:?}: the flow went on");
        });
    }
}

#[test]
fn a_service_is_not_overloaded_because_the_one_before_it_was() {
    in_namespace(|| {
        let (mut dataplane, served) = (start(SteeringMode::Never, 100), endpoint());
        let addr = addr("127.0.0.2", 8080, Protocol::Tcp);
        let limits = ServiceLimits { connections: std::num::NonZeroU32::new(1), ..ServiceLimits::default() };
        dataplane.apply(table([Frontend { limits, ..of("a", frontend(addr, served)) }]));
        let _open = tcp_client(addr);
        wait_until("it is open", || counted(&dataplane, addr) == (1, 1));
        let _refused = tcp_client(addr);
        wait_until("another is refused", || {
            dataplane.refresh();
            dataplane.overloaded().count() == 1
        });
        dataplane.apply(table([of("b", frontend(addr, served))]));
        assert_eq!(dataplane.overloaded().count(), 0);
    });
}
