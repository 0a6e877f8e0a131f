//! Tests of dedicated addresses in separate network namespaces, with other listeners and with the program loaded in the kernel.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command as Program;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use sheave_model::{Frontend, FrontendAddr, Protocol, RoutingTable};

use crate::listener::steering::SteeringMode;
use crate::listener::steering::tests::{
    PATIENCE, addr, ask, endpoint, frontend, in_namespace, refused, refused_from, start, until_refused,
    without_endpoints,
};
use crate::{Dataplane, HandedListeners};

/// Addresses that the machine has for frontends alone.
const DEDICATED: [&str; 2] = ["127.0.0.2", "2001:db8::2"];
/// The machine's own addresses.
const OWN: [&str; 2] = ["127.0.0.1", "::1"];

fn prepare() {
    let add = ["addr", "add", "2001:db8::2/128", "dev", "lo", "nodad", "noprefixroute"];
    assert!(Program::new("ip").args(add).status().unwrap().success());
    // The kernel makes an IPv6 address local later, from a queue of its own (`addrconf_dad_work`). A route to its prefix would hide that.
    until_done(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?.connect((DEDICATED[1], 80)));
}

fn dedicated() -> BTreeSet<IpAddr> {
    DEDICATED.iter().map(|ip| ip.parse().unwrap()).collect()
}

fn at(ips: [&str; 2], port: u16) -> impl Iterator<Item = FrontendAddr> {
    let protocols = [Protocol::Tcp, Protocol::Udp];
    ips.into_iter().flat_map(move |ip| protocols.map(|protocol| addr(ip, port, protocol)))
}

/// Retries until it succeeds: workers close the sockets of a departed frontend when they get to it.
fn until_done<T>(attempt: impl Fn() -> io::Result<T>) -> T {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(socket) => return socket,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        thread::yield_now();
    }
}

/// Listens on all addresses of both families, like sshd, and echoes.
fn daemon(port: u16) {
    let listener = until_done(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)));
    let socket = until_done(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..length]).ok();
                }
            });
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..length], from).ok();
        }
    });
}

/// A gateway with frontends at the dedicated addresses.
struct Gateway {
    dataplane: Dataplane,
    generation: u64,
}

impl Gateway {
    fn start(mode: SteeringMode) -> Self {
        Self { dataplane: start(mode, 100), generation: 0 }
    }

    fn apply(&mut self, frontends: impl IntoIterator<Item = Frontend>) {
        self.generation += 1;
        let frontends = frontends.into_iter().map(Arc::new).collect();
        self.dataplane.apply(RoutingTable::new(self.generation, frontends, Arc::default()));
    }
}

/// Expects that a [`daemon`] answers. Over UDP it answers from any address that the kernel chooses.
fn expect_daemon(addrs: impl Iterator<Item = FrontendAddr>) {
    for addr in addrs {
        let answer = match addr.protocol {
            Protocol::Tcp => ask(addr, None),
            Protocol::Udp => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).and_then(|client| {
                client.set_read_timeout(Some(PATIENCE))?;
                let ip = match addr.ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                client.send_to(b"hello", (ip, addr.port))?;
                client.recv_from(&mut [0; 5]).map(drop)
            }),
        };
        answer.unwrap_or_else(|error| panic!("{addr}: {error}"));
    }
}

fn expect_answered(addrs: impl Iterator<Item = FrontendAddr>) {
    addrs.for_each(|addr| ask(addr, None).unwrap_or_else(|error| panic!("{addr}: {error}")));
}

/// Expects a refusal for a client with another address of the machine: a packet whose source is the dedicated address itself
/// counts as an answer.
fn expect_refused(addrs: impl Iterator<Item = FrontendAddr>) {
    for addr in addrs {
        let from = OWN[usize::from(addr.ip.is_ipv6())].parse().unwrap();
        assert!(refused_from(addr, Some(from)), "{addr}");
    }
}

/// Runs a test in each mode, since the program is attached even if nothing is steered.
fn in_each_mode(test: impl Fn(Gateway) + Sync) {
    for mode in [SteeringMode::Auto, SteeringMode::Always, SteeringMode::Never] {
        in_namespace(|| {
            prepare();
            test(Gateway::start(mode));
        });
    }
}

#[test]
fn other_listeners_of_the_machine_answer_at_its_own_addresses_and_not_at_dedicated_ones() {
    in_each_mode(|mut gateway| {
        daemon(2222);
        let endpoint = endpoint();
        let serving = || at(DEDICATED, 80).map(|addr| frontend(addr, endpoint));
        let empty = || at(DEDICATED, 81).map(|addr| without_endpoints(frontend(addr, endpoint)));
        gateway.apply(serving().chain(empty()));
        expect_daemon(at(DEDICATED, 2222));
        let mut open = TcpStream::connect(("127.0.0.2", 2222)).unwrap();

        gateway.dataplane.dedicate(dedicated());
        assert_eq!(gateway.dataplane.dedicated_obstacle(), None);
        daemon(81);
        expect_refused(at(DEDICATED, 2222));
        expect_refused(at(DEDICATED, 81));
        expect_daemon(at(OWN, 2222));
        expect_daemon(at(OWN, 81));
        expect_answered(at(DEDICATED, 80));
        open.write_all(b"still there?").unwrap();
        open.read_exact(&mut [0; 12]).unwrap();

        gateway.dataplane.dedicate(BTreeSet::new());
        expect_daemon(at(DEDICATED, 2222));
        expect_answered(at(DEDICATED, 80));
    });
}

/// The kernel uses an address of the machine as the source of packets sent to that address.
#[test]
fn answers_reach_sockets_of_the_machine_that_are_not_connected() {
    in_each_mode(|mut gateway| {
        let endpoint = endpoint();
        gateway.apply(at(DEDICATED, 80).map(|addr| frontend(addr, endpoint)));
        gateway.dataplane.dedicate(dedicated());
        expect_daemon(at(DEDICATED, 80));
        expect_refused(at(DEDICATED, 2222));
    });
}

#[test]
fn frontends_that_come_and_go_at_a_dedicated_address_answer_for_as_long_as_they_are_open() {
    in_each_mode(|mut gateway| {
        let endpoint = endpoint();
        gateway.dataplane.dedicate(dedicated());
        let open = |port| at(DEDICATED, port).map(move |addr| frontend(addr, endpoint));
        gateway.apply(open(80));
        expect_answered(at(DEDICATED, 80));
        gateway.apply(open(80).chain(open(81)));
        expect_answered(at(DEDICATED, 80).chain(at(DEDICATED, 81)));
        gateway.apply(open(81).chain(open(80).map(without_endpoints)));
        at(DEDICATED, 80).for_each(until_refused);
        gateway.apply(open(81));
        daemon(80);
        expect_refused(at(DEDICATED, 80));
        expect_daemon(at(OWN, 80));
        expect_answered(at(DEDICATED, 81));
        // The second address is no longer dedicated.
        gateway.dataplane.dedicate(BTreeSet::from([DEDICATED[0].parse().unwrap()]));
        assert!(refused(addr(DEDICATED[0], 80, Protocol::Tcp)));
        ask(addr(DEDICATED[1], 80, Protocol::Tcp), None).unwrap();
        expect_answered(at(DEDICATED, 81));
    });
}

#[test]
fn a_port_that_another_listener_keeps_from_a_frontend_is_refused() {
    in_namespace(|| {
        prepare();
        let (mut gateway, endpoint) = (Gateway::start(SteeringMode::Never), endpoint());
        daemon(80);
        gateway.dataplane.dedicate(dedicated());
        gateway.apply(at(DEDICATED, 80).map(|addr| frontend(addr, endpoint)));
        assert_eq!(gateway.dataplane.failures().count(), 4);
        expect_refused(at(DEDICATED, 80));
        expect_daemon(at(OWN, 80));
    });
}

#[test]
fn who_takes_over_is_not_refused_what_the_former_process_does_not_know() {
    in_namespace(|| {
        prepare();
        let endpoint = endpoint();
        let open = |port| at(DEDICATED, port).map(move |addr| frontend(addr, endpoint));
        let (mut former, mut next) = (Gateway::start(SteeringMode::Auto), Gateway::start(SteeringMode::Auto));
        former.apply(open(80));
        former.dataplane.dedicate(dedicated());
        next.apply(open(81));
        expect_refused(at(DEDICATED, 81));
        drop(former.dataplane.listeners_to_hand_over());
        expect_answered(at(DEDICATED, 80).chain(at(DEDICATED, 81)));
        // The other process did not take over.
        former.dataplane.resume();
        expect_refused(at(DEDICATED, 81));
        expect_answered(at(DEDICATED, 80));
    });
}

#[test]
fn a_dedicated_address_changes_hands_without_a_refusal() {
    in_each_mode(|mut former| {
        daemon(2222);
        let endpoint = endpoint();
        let open = |port| at(DEDICATED, port).map(move |addr| frontend(addr, endpoint));
        former.apply(open(80));
        former.dataplane.dedicate(dedicated());
        let handed = former.dataplane.listeners_to_hand_over();
        let sockets = handed.sockets.iter().map(|(role, socket)| crate::handover::HandedSocket {
            role: *role,
            fd: socket.try_clone().unwrap().into(),
        });
        let sockets = sockets.collect();
        let mut next = Gateway::start(former.dataplane.steering().mode);
        let listeners = HandedListeners { sockets, steered: handed.steered.clone(), interfaces: None };
        next.dataplane.take_over(listeners);
        // Connections wait in the sockets, of which both processes have copies.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert!(runtime.block_on(former.dataplane.pause(PATIENCE)));
        next.apply(open(80).chain(open(81)));
        expect_answered(at(DEDICATED, 80).chain(at(DEDICATED, 81)));
        former.dataplane.leave();
        next.dataplane.serve();
        expect_answered(at(DEDICATED, 80).chain(at(DEDICATED, 81)));
        next.dataplane.dedicate(dedicated());
        expect_answered(at(DEDICATED, 80).chain(at(DEDICATED, 81)));
        expect_refused(at(DEDICATED, 2222));
    });
}

/// Served regardless of one program's verdict, as soon as another program assigns a socket.
#[test]
fn what_another_gateway_steers_at_a_dedicated_address_is_served() {
    in_namespace(|| {
        prepare();
        let endpoint = endpoint();
        let (mut gateway, mut other) =
            (Gateway::start(SteeringMode::Auto), Gateway::start(SteeringMode::Always));
        other.apply(at(DEDICATED, 81).map(|addr| frontend(addr, endpoint)));
        gateway.dataplane.dedicate(dedicated());
        expect_answered(at(DEDICATED, 81));
        expect_refused(at(DEDICATED, 82));
    });
}
