//! Tests of the relay as seen by TCP clients and servers: every byte, every end, every reset, at their own speed.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use nix::errno::Errno;

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, patience};
use crate::support::tcp::{self, Conversation, Server};
use crate::support::transfer::{Fingerprint, Plan, Start, exchange};
use crate::support::world::{Family, World};

for_both_families!(
    bytes_arrive_whole_both_ways_at_once,
    a_client_that_ends_first_still_receives_everything,
    a_server_that_ends_first_still_receives_everything,
    streams_without_bytes_end_cleanly,
    a_server_may_speak_first,
    a_reset_by_the_client_reaches_the_server_as_reset,
    a_reset_by_the_server_reaches_the_client_as_reset,
    a_reset_in_mid_stream_reaches_both_directions,
    a_reset_after_a_half_close_reaches_the_server,
    a_reset_behind_a_full_window_reaches_the_server,
    slow_readers_stall_nobody_and_memory_stays_bounded,
    connections_that_went_quiet_hold_no_buffers,
);

/// A world of one backend that hands its connections to the case.
struct Pair<'w> {
    world: &'w World,
    vip: SocketAddr,
    connections: Receiver<TcpStream>,
    gateway: Gateway<'w>,
    _server: Server,
}

impl<'w> Pair<'w> {
    fn new(world: &'w World, family: Family) -> Self {
        let (server, connections) = Server::handing_over(world.backend(0), at(family.backend(0), 9000));
        let app = App::new("stream", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(0));
        let gateway = Gateway::start(world, &[app]);
        Self { world, vip: at(family.vip(0), 80), connections, gateway, _server: server }
    }

    fn connect(&self) -> TcpStream {
        let vip = self.vip;
        self.world.client.run(|| tcp::connect(vip)).unwrap()
    }

    fn accept(&self) -> TcpStream {
        self.connections.recv_timeout(patience(10.0)).expect("the gateway connects to the backend")
    }

    /// A connection and its counterpart at the backend, after one byte in each direction.
    fn joined(&self) -> (TcpStream, TcpStream) {
        let mut client = self.connect();
        client.write_all(b"a").unwrap();
        let mut server = self.accept();
        server.read_exact(&mut [0]).unwrap();
        server.write_all(b"b").unwrap();
        client.read_exact(&mut [0]).unwrap();
        (client, server)
    }

    /// Waits until no connection is open. The idle timeout is an hour, so it cannot be what ended them.
    fn expect_none_open(&self) {
        eventually("the gateway has let go", || match self.gateway.metric("sheave_tcp_connections", &[]) {
            0.0 => Ok(()),
            open => Err(format!("{open} connections are open")),
        });
    }

    fn expect_whole(&self, client_plan: Plan, server_plan: Plan) {
        let client = self.connect();
        let sending: JoinHandle<io::Result<Fingerprint>> =
            std::thread::spawn(move || exchange(&client, client_plan));
        let at_server = exchange(&self.accept(), server_plan).expect("the server's side");
        let at_client = sending.join().unwrap().expect("the client's side");
        assert_eq!(at_server, client_plan.fingerprint(), "client to server: {client_plan:?}");
        assert_eq!(at_client, server_plan.fingerprint(), "server to client: {server_plan:?}");
    }
}

/// Sizes around those that matter: one byte, a page, a socket buffer, a pipe, and far beyond.
const SIZES: [usize; 6] = [1, 4095, 65_536, 300_001, 2_000_000, 24_000_000];

fn expect_all_sizes_whole(family: Family, client: Start, server: Start) {
    let world = World::new(1);
    let pair = Pair::new(&world, family);
    for (round, (bytes, other)) in (1..).zip(SIZES.into_iter().zip(SIZES.into_iter().rev())) {
        let client = Plan { seed: round, bytes, start: client };
        let server = Plan { seed: round + 100, bytes: other, start: server };
        pair.expect_whole(client, server);
    }
}

fn bytes_arrive_whole_both_ways_at_once(family: Family) {
    expect_all_sizes_whole(family, Start::AtOnce, Start::AtOnce);
}

fn a_client_that_ends_first_still_receives_everything(family: Family) {
    expect_all_sizes_whole(family, Start::AtOnce, Start::AfterTheirEnd);
}

fn a_server_that_ends_first_still_receives_everything(family: Family) {
    expect_all_sizes_whole(family, Start::AfterTheirEnd, Start::AtOnce);
}

fn streams_without_bytes_end_cleanly(family: Family) {
    let world = World::new(1);
    let pair = Pair::new(&world, family);
    for (client, server) in [
        (Start::AtOnce, Start::AtOnce),
        (Start::AtOnce, Start::AfterTheirEnd),
        (Start::AfterTheirEnd, Start::AtOnce),
    ] {
        pair.expect_whole(
            Plan { seed: 1, bytes: 0, start: client },
            Plan { seed: 2, bytes: 0, start: server },
        );
    }
}

fn a_server_may_speak_first(family: Family) {
    let world = World::new(1);
    let pair = Pair::new(&world, family);
    let mut client = pair.connect();
    let mut server = pair.accept();
    server.write_all(b"220 ready\r\n").unwrap();
    let mut greeting = [0; 11];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 ready\r\n");
}

fn expect_reset(mut stream: &TcpStream) {
    let mut read = || stream.read(&mut [0; 65536]);
    let error = loop {
        match read() {
            Ok(0) => panic!("the reset arrived as a clean end"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(Errno::ECONNRESET as i32), "{error}");
}

fn a_reset_by_the_client_reaches_the_server_as_reset(family: Family) {
    let world = World::new(1);
    let pair = Pair::new(&world, family);
    let (client, server) = pair.joined();
    tcp::reset(client);
    expect_reset(&server);
}

fn a_reset_by_the_server_reaches_the_client_as_reset(family: Family) {
    let world = World::new(1);
    let pair = Pair::new(&world, family);
    let (client, server) = pair.joined();
    tcp::reset(server);
    expect_reset(&client);
    // Also after the client has closed its half.
    let (client, server) = pair.joined();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&server).read(&mut [0]).unwrap(), 0);
    tcp::reset(server);
    expect_reset(&client);
}

/// The sender fills every buffer on the way, then the receiver resets: neither the bytes under way nor the sender's
/// blocked write may hide it.
fn a_reset_in_mid_stream_reaches_both_directions(family: Family) {
    let world = World::new(1);
    let pair = Pair::new(&world, family);
    for client_resets in [true, false] {
        let (client, server) = pair.joined();
        let (resetting, mut sending) = if client_resets { (client, server) } else { (server, client) };
        let (tell, started) = std::sync::mpsc::channel();
        let sender = std::thread::spawn(move || {
            loop {
                if let Err(error) = sending.write_all(&[7; 65536]) {
                    return error;
                }
                // The case only waits for the first chunks.
                tell.send(()).ok();
            }
        });
        for _ in 0..20 {
            started.recv_timeout(patience(10.0)).expect("bytes flow");
            (&resetting).read_exact(&mut [0; 65536]).unwrap();
        }
        tcp::reset(resetting);
        let error = sender.join().unwrap();
        let reset = [Errno::ECONNRESET as i32, Errno::EPIPE as i32];
        assert!(error.raw_os_error().is_some_and(|errno| reset.contains(&errno)), "{error}");
    }
}

/// Waits for the socket's error without I/O: reading would return the end that preceded the reset, and writing would
/// provoke another reset.
fn expect_heard(stream: &TcpStream) {
    let errno = eventually("the server hears of the reset", || match stream.take_error() {
        Ok(Some(error)) => Ok(error.raw_os_error()),
        other => Err(format!("{other:?}")),
    });
    // Linux reports EPIPE for a reset that follows a FIN (tcp_reset() in tcp_input.c).
    let reset = [Errno::ECONNRESET, Errno::EPIPE].map(|errno| Some(errno as i32));
    assert!(reset.contains(&errno), "{errno:?}");
}

fn a_reset_after_a_half_close_reaches_the_server(family: Family) {
    let world = World::new(1);
    let pair = Pair::new(&world, family);
    for sending in [false, true] {
        let (client, mut server) = pair.joined();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0, "the half-close came through");
        if sending {
            // More than the client's window accepts, so the gateway holds bytes that it cannot pass on.
            fill(&server);
        }
        tcp::reset(client);
        expect_heard(&server);
        pair.expect_none_open();
    }
}

fn a_reset_behind_a_full_window_reaches_the_server(family: Family) {
    let world = World::new(1);
    let pair = Pair::new(&world, family);
    let (client, server) = pair.joined();
    fill(&client);
    tcp::reset(client);
    expect_heard(&server);
    pair.expect_none_open();
}

/// Number of chunks of 64 KiB: more than all buffers on the way can hold.
const MOST_CHUNKS: usize = 4096;

/// Writes until nothing was accepted for a while.
fn fill(mut stream: &TcpStream) {
    stream.set_write_timeout(Some(patience(0.5))).unwrap();
    let error = (0..MOST_CHUNKS).find_map(|_| stream.write(&[7; 65536]).err()).expect("windows are finite");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
}

/// Number of clients that request an endless stream and never read it.
const SLOW_READERS: usize = 100;
/// Allowed growth of the gateway for all of them. A copying proxy with one 64 KiB buffer per direction would need 12.8
/// MiB; socket buffers of the kernel do not count here.
const ALLOWED_GROWTH_KIB: u64 = 8 * 1024;

fn slow_readers_stall_nobody_and_memory_stays_bounded(family: Family) {
    let world = World::new(2);
    let endless = Server::endless(world.backend(0), at(family.backend(0), 9001));
    let _echo = Server::who_am_i(world.backend(1), at(family.backend(1), 9000), "quick");
    let stream = App::new("stream", &[family.vip(0)]).tcp(80, 9001).ready(family.backend(0));
    let quick = App::new("quick", &[family.vip(1)]).tcp(80, 9000).ready(family.backend(1));
    let gateway = Gateway::start(&world, &[stream, quick]);
    let ask = || world.client.run(|| tcp::ask(at(family.vip(1), 80))).unwrap();
    ask();
    let before = gateway.usage().resident_kib;

    let open = |_| world.client.run(|| tcp::connect(at(family.vip(0), 80))).unwrap();
    let mut slow: Vec<TcpStream> = (0..SLOW_READERS).map(open).collect();
    eventually("every slow reader has its stream", || {
        let accepted = endless.accepted();
        if accepted == SLOW_READERS { Ok(()) } else { Err(format!("{accepted} have")) }
    });
    for stream in &mut slow {
        stream.read_exact(&mut [0; 1000]).unwrap();
    }
    for _ in 0..50 {
        assert_eq!(ask().name, "quick");
    }
    let grown = gateway.usage().resident_kib.saturating_sub(before);
    assert!(grown < ALLOWED_GROWTH_KIB, "{grown} KiB more for {SLOW_READERS} slow readers");
    // None of them is lost.
    for stream in &mut slow {
        stream.read_exact(&mut vec![0; 200_000]).unwrap();
    }
}

/// Number of connections that were busy once.
const QUIET: usize = 400;
/// Memory that the gateway may keep for each of them: its state, without a buffer. Unoptimized builds have larger
/// state.
const ALLOWED_PER_QUIET_KIB: u64 = 16;

fn connections_that_went_quiet_hold_no_buffers(family: Family) {
    let world = World::new(1);
    let _server = Server::who_am_i(world.backend(0), at(family.backend(0), 9000), "echo");
    let app = App::new("echo", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(0));
    let gateway = Gateway::start(&world, &[app]);
    let open = || world.client.run(|| Conversation::open(at(family.vip(0), 80))).unwrap();
    let burst = "x".repeat(20_000);
    let busy_once = || {
        let mut talk = open();
        for _ in 0..10 {
            talk.say(&burst).unwrap();
        }
        talk
    };
    // The first ones fill shared memory: scratch buffers, pipes, the allocator's arenas.
    let mut all: Vec<Conversation> = (0..20).map(|_| busy_once()).collect();
    let before = gateway.usage().resident_kib;
    all.extend((0..QUIET).map(|_| busy_once()));
    let grown = gateway.usage().resident_kib.saturating_sub(before);
    assert!(grown < ALLOWED_PER_QUIET_KIB * QUIET as u64, "{grown} KiB more for {QUIET} quiet connections");
    for talk in &mut all {
        talk.say("still there?").unwrap();
    }
}
