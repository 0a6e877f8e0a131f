//! Plays a script for the two ends of a connection on a lane.

use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use proptest::strategy::Strategy;
use sheave_dataplane::proxy_protocol::{Parsed, parse};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::end::{Observation, perform};
use crate::judge::{Outcome, judge};
use crate::pattern::Pattern;
use crate::road::{LANES, Road, Source};
use crate::run::Torture;
use crate::script::{Part, Script, any_script};
use crate::support::patience::{eventually, let_pass, patience};
use crate::support::world::World;

/// Torture of connections.
pub(crate) struct Connections;

impl Torture for Connections {
    type Script = Script;
    const LANES: u16 = LANES;
    const SCRIPTS: usize = 1000;
    const SOURCES: &'static [Source] = &Source::ALL;

    fn any() -> impl Strategy<Value = Script> {
        any_script()
    }

    fn attempt(world: &World, road: Road, lane: u16, script: &Script) -> (Vec<String>, String) {
        let outcome = play(world, road, lane, script);
        (judge(script, &outcome), format!("{outcome:#?}"))
    }
}

/// Plays a script on a lane.
fn play(world: &World, road: Road, lane: u16, script: &Script) -> Outcome {
    let (server, entrance) = (road.server(lane), road.entrance(lane));
    let limit = script.pauses() + patience(6.0);
    let (mine, theirs) = (Pattern::new(script.seed), Pattern::new(!script.seed));
    let (ready, is_ready) = channel();
    let (left, has_left) = channel();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || {
            world.backend(0).run(move || {
                let listener = listen(server, &script.server);
                ready.send(()).expect("the client waits");
                let stream = accept(&listener, || has_left.try_recv().is_ok(), limit)?;
                let_pass(script.accept_after);
                strip_header(&stream, road).ok()?;
                Some(perform(stream, &script.server, theirs, mine, limit))
            })
        });
        is_ready.recv().expect("the server listens");
        let client = world.client.run(|| -> Observation {
            match connect(entrance, &script.client) {
                Ok(stream) => perform(stream, &script.client, mine, theirs, limit),
                // The server was faster: it has accepted, may have ended its side, and reset the connection (`tcp_reset` in
                // net/ipv4/tcp_input.c).
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    Observation::nothing_but(ErrorKind::ConnectionReset)
                }
                Err(error) => panic!("cannot connect {entrance}: {error}"),
            }
        });
        left.send(()).ok();
        let server = serving.join().expect("a server does not panic");
        Outcome { client, server }
    })
}

fn socket(addr: SocketAddr, part: &Part) -> Socket {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    if let Some(size) = part.buffers {
        socket.set_send_buffer_size(size).expect("a socket takes sizes");
        socket.set_recv_buffer_size(size).expect("a socket takes sizes");
    }
    socket
}

fn listen(addr: SocketAddr, part: &Part) -> TcpListener {
    // The port may still be in use: a program that another test is starting may have inherited the last listener of this
    // process.
    let socket = eventually("a port is free", || {
        let socket = socket(addr, part);
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        socket.listen(8).map(|()| socket)
    });
    socket.set_nonblocking(true).expect("a socket can be nonblocking");
    socket.into()
}

fn connect(addr: SocketAddr, part: &Part) -> io::Result<TcpStream> {
    let socket = socket(addr, part);
    socket.connect_timeout(&addr.into(), patience(10.0))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// The client's connection; `None` if the client has left and none arrived.
fn accept(listener: &TcpListener, client_has_left: impl Fn() -> bool, limit: Duration) -> Option<TcpStream> {
    let deadline = Instant::now() + limit;
    let mut left_at = None;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                SockRef::from(&stream).set_tcp_nodelay(true).expect("a socket takes TCP_NODELAY");
                return Some(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => continue,
        }
        if left_at.is_none() && client_has_left() {
            left_at = Some(Instant::now());
        }
        let waited = left_at.is_some_and(|at| at.elapsed() > patience(0.3));
        if waited || Instant::now() > deadline {
            return None;
        }
        let_pass(Duration::from_millis(1));
    }
}

/// Reads the PROXY header, if the road has one.
fn strip_header(mut stream: &TcpStream, road: Road) -> io::Result<()> {
    let Road::Gateway(Source::ProxyV1 | Source::ProxyV2) = road else { return Ok(()) };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience(5.0)))?;
    let mut header = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        header.push(byte[0]);
        match parse(&header) {
            Parsed::Incomplete => {}
            Parsed::Header { .. } => return Ok(()),
            Parsed::Invalid(flaw) => panic!("{flaw}: {header:?}"),
        }
    }
}
