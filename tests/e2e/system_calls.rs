//! Tests of the number of system calls per connection and flow. Unlike times, counts are the same on every machine, so each bound is what the
//! gateway needs now, and may only be lowered.
//!
//! Waits for events are not counted, since their number depends on the speed of the peers.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use nix::sys::signal::Signal;
use socket2::{Domain, SockRef, Socket, Type};

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::patience::{eventually, io_deadline};
use crate::support::process::Process;
use crate::support::world::{Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    a_connection_that_the_client_ends_takes_no_more_calls_than_named,
    a_connection_that_the_server_ends_takes_no_more_calls_than_named,
    a_connection_from_the_clients_address_takes_no_more_calls_than_named,
    a_flow_takes_no_more_calls_than_named,
    a_flow_from_the_clients_address_takes_no_more_calls_than_named,
);

/// accept4, epoll_ctl (client), socket, setsockopt (no quick ACK), setsockopt (`IP_LOCAL_PORT_RANGE`), connect, epoll_ctl (endpoint),
/// recv (request), send (request), setsockopt (quick ACK), recv (answer), send (answer), recv (client's FIN), shutdown, recv (endpoint's FIN), close, close.
const CLIENT_ENDS_17: usize = 17;
/// Same without the endpoint's FIN, which is seen with the answer.
const SERVER_ENDS_16: usize = 16;
/// Additional calls before connect: setsockopt (`IP_TRANSPARENT`), setsockopt (`IP_BIND_ADDRESS_NO_PORT`), bind.
///
/// Without the first, the kernel refuses the address. Without the second, each port of a client would be unavailable to the whole machine:
/// connect(2) of every program skips ports that a bind chose (`fastreuse` in `__inet_hash_connect`, net/ipv4/inet_hashtables.c).
const TRANSPARENT_3: usize = 3;
/// recvmmsg (question), socket, setsockopt (path MTU), setsockopt (`SO_RCVBUF`), setsockopt (`SO_REUSEPORT`, or `IP_TRANSPARENT`),
/// bind, connect, epoll_ctl, sendmmsg (question), recvmmsg (answer), sendmmsg (answer).
const FLOW_11: usize = 11;
/// setsockopt (`IPV6_V6ONLY`): otherwise the port of a flow over IPv6 would also be unavailable for IPv4.
const V6_FLOW_1: usize = 1;

/// Number of connections or flows of one case, made sequentially.
const COUNT: usize = 20;
const REQUEST: [u8; 100] = [b'?'; 100];
const ANSWER: [u8; 200] = [b'!'; 200];

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).ready_here(family.backend(0))
}

/// Trace of the system calls of a gateway's only worker.
struct Trace(Process);

impl Trace {
    fn start(world: &World, gateway: &Gateway) -> Self {
        let tasks = format!("/proc/{}/task", gateway.id());
        let named = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "sheave-w0")
        };
        let worker = fs::read_dir(tasks).expect("the gateway runs").flatten().find(named);
        let worker = worker.expect("it has a worker").path();
        let id = worker.file_name().expect("a thread has a number").to_string_lossy().into_owned();
        let process = world.gateway.start("strace", &["-p", &id]);
        // Printed after PTRACE_INTERRUPT (startup_attach, strace's strace.c): the worker stops before its next call. `TracerPid` is set by
        // PTRACE_SEIZE, one call earlier, when the first accept4 may still pass unseen.
        eventually("strace is there", || {
            let text = process.stderr();
            if text.contains("attached") { Ok(()) } else { Err(text) }
        });
        Self(process)
    }

    /// Expects at most `bound` calls for each connection or flow, each of which has one successful call that starts with `each_has`.
    ///
    /// Uses the median, since a peer that is slow once causes a call or two more.
    fn expect(mut self, each_has: &str, bound: usize) {
        self.0.signal(Signal::SIGINT);
        self.0.wait();
        let text = self.0.stderr();
        let calls: Vec<&str> = text.lines().filter(|line| counts(line)).collect();
        let begins = |(_, call): &(usize, &&str)| call.starts_with(each_has) && !call.contains("= -1");
        let places: Vec<usize> = calls.iter().enumerate().filter(begins).map(|(place, _)| place).collect();
        assert_eq!(places.len(), COUNT, "{text}");
        let whole = places.windows(2).map(|pair| calls.get(pair[0]..pair[1]).unwrap_or_default());
        let mut whole: Vec<&[&str]> = whole.collect();
        whole.sort_by_key(|calls| calls.len());
        let usual = whole.get(COUNT / 2).expect("there are many");
        assert!(usual.len() <= bound, "{} calls, {bound} are named:\n{}", usual.len(), usual.join("\n"));
    }
}

/// Whether a line is a call that counts. Waits and memory management do not belong to a connection; in debug builds, the standard library
/// checks a descriptor before it closes it.
fn counts(line: &str) -> bool {
    const OTHERS: [&str; 9] =
        ["strace:", "epoll_", "mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "futex"];
    let set_up = line.starts_with("epoll_ctl");
    let checks = line.starts_with("fcntl") && line.contains("F_GETFD");
    set_up || !(checks || OTHERS.iter().any(|name| line.starts_with(name)))
}

/// Makes connections sequentially and counts their calls.
fn expect_of_connections(family: Family, app: &App, server_ends: bool, bound: usize) {
    let world = World::new(1);
    let serve = move |mut stream: TcpStream| -> io::Result<()> {
        stream.read_exact(&mut [0; REQUEST.len()])?;
        if server_ends {
            // The FIN is sent with the answer, not a moment later (TCP_CORK, tcp(7)).
            SockRef::from(&stream).set_tcp_cork(true)?;
            return stream.write_all(&ANSWER);
        }
        stream.write_all(&ANSWER)?;
        stream.read(&mut [0]).map(drop)
    };
    let _server = tcp::Server::start(world.backend(0), at(family.backend(0), 9000), serve);
    let settings = Settings { workers: 1, ..Settings::default() };
    let gateway = Gateway::start_with(&world, std::slice::from_ref(app), &settings);
    let connect = || -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(vip(family)), Type::STREAM, None)?;
        // The request is sent with the last packet of the handshake, not a moment later (tcp(7)).
        socket.set_tcp_quickack(false)?;
        socket.connect_timeout(&vip(family).into(), io_deadline())?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(io_deadline()))?;
        stream.write_all(&REQUEST)?;
        stream.read_exact(&mut [0; ANSWER.len()])?;
        if server_ends { stream.read(&mut [0]).map(drop) } else { Ok(()) }
    };
    let quiet = gateway.open_files();
    let one = || {
        world.client.run(connect).expect("the connection is served");
        eventually("it is over", || if gateway.open_files() <= quiet { Ok(()) } else { Err("open") });
    };
    one();
    let trace = Trace::start(&world, &gateway);
    (0..COUNT).for_each(|_| one());
    trace.expect("accept4(", bound);
}

fn a_connection_that_the_client_ends_takes_no_more_calls_than_named(family: Family) {
    expect_of_connections(family, &web(family), false, CLIENT_ENDS_17);
}

fn a_connection_that_the_server_ends_takes_no_more_calls_than_named(family: Family) {
    expect_of_connections(family, &web(family), true, SERVER_ENDS_16);
}

fn a_connection_from_the_clients_address_takes_no_more_calls_than_named(family: Family) {
    let local = web(family).local_policy();
    expect_of_connections(family, &local, false, CLIENT_ENDS_17 + TRANSPARENT_3);
    expect_of_connections(family, &local, true, SERVER_ENDS_16 + TRANSPARENT_3);
}

fn expect_of_flows(family: Family, app: &App, bound: usize) {
    let world = World::new(1);
    let _server = udp::Server::who_am_i(world.backend(0), at(family.backend(0), 9000), "there");
    let settings = Settings { workers: 1, ..Settings::default() };
    let gateway = Gateway::start_with(&world, std::slice::from_ref(app), &settings);
    // Each client keeps its port, since two with the same one would be one flow.
    let served = || {
        let client = udp::Client::new(&world.client, family.client(0), vip(family));
        client.ask().expect("the flow is served");
        client
    };
    let _first = served();
    let trace = Trace::start(&world, &gateway);
    let _others: Vec<udp::Client> = (0..COUNT).map(|_| served()).collect();
    trace.expect("socket(", bound);
}

fn a_flow_takes_no_more_calls_than_named(family: Family) {
    expect_of_flows(family, &web(family), FLOW_11 + if family == Family::V6 { V6_FLOW_1 } else { 0 });
}

fn a_flow_from_the_clients_address_takes_no_more_calls_than_named(family: Family) {
    expect_of_flows(family, &web(family).local_policy(), FLOW_11);
}
