//! Runs scripts: many at a time, each on a lane of its own, and finds the least script that still goes wrong.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sheave_dataplane::proxy_protocol::{Parsed, parse};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::end::{Observation, perform};
use crate::judge::{Outcome, judge};
use crate::pattern::Pattern;
use crate::road::{LANES, Road, Source};
use crate::script::{Part, Script, any_script};
use crate::support::patience::{eventually, let_pass, patience};
use crate::support::world::World;

/// So many scripts instead of the usual number.
const SCRIPTS: &str = "SHEAVE_TORTURE_SCRIPTS";
/// Repeats the scripts of a run.
const SEED: &str = "SHEAVE_TORTURE_SEED";

/// A script goes wrong only at times: each smaller one is tried so often before it is taken for right.
const TRIES: usize = 20;
/// Smaller scripts that are tried.
const SMALLER: usize = 150;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is no number")))
}

/// How many scripts to run where `usual` is enough.
pub(crate) fn count(usual: usize) -> usize {
    number(SCRIPTS).map_or(usual, |count| usize::try_from(count).expect("a number that fits"))
}

/// What decides the scripts.
pub(crate) fn seed() -> u64 {
    number(SEED).unwrap_or_else(|| fastrand::u64(..))
}

/// The `index`-th script of a seed, and how to make it smaller.
fn tree(seed: u64, index: usize) -> impl ValueTree<Value = Script> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(index as u64).to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    any_script().new_tree(&mut runner).expect("every choice makes a script")
}

/// What went wrong in a run.
#[derive(Debug, Default)]
pub(crate) struct Wrong {
    /// Scripts that went wrong.
    pub(crate) count: usize,
    /// The first of them, made as small as possible.
    pub(crate) first: Option<String>,
}

/// Runs `count` scripts, spread over `roads`. Stops at the first that goes wrong if `shrink` says so.
pub(crate) fn run(world: &World, roads: &[Road], seed: u64, count: usize, shrink: bool) -> Wrong {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let wrong = Mutex::new(Wrong::default());
    let lane = |lane| {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let road = roads[index % roads.len()];
            let tree = tree(seed, index);
            let (script, complaints, outcome) = attempt(world, road, lane, tree.current());
            if complaints.is_empty() {
                continue;
            }
            let mut wrong = wrong.lock().expect("nobody panics with it");
            wrong.count += 1;
            if shrink && wrong.first.is_none() {
                stop.store(true, Ordering::Relaxed);
                let mut text = format!(
                    "{SEED}={seed}, script {index} over {road:?}: {complaints:?}\n{script:#?}\n{outcome:#?}"
                );
                write!(text, "\n\nsmaller:\n{}", smaller(world, road, lane, tree))
                    .expect("strings take text");
                wrong.first = Some(text);
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..LANES {
            let lane = &lane;
            scope.spawn(move || lane(number));
        }
    });
    wrong.into_inner().expect("nobody panicked with it")
}

fn attempt(world: &World, road: Road, lane: u16, script: Script) -> (Script, Vec<String>, Outcome) {
    let outcome = play(world, road, lane, &script);
    let complaints = judge(&script, &outcome);
    (script, complaints, outcome)
}

/// The smallest script found that goes wrong, with what was observed.
fn smaller(world: &World, road: Road, lane: u16, mut tree: impl ValueTree<Value = Script>) -> String {
    let mut found = "none goes wrong again".to_owned();
    let mut more = true;
    for _ in 0..SMALLER {
        if !more {
            break;
        }
        let failed = (0..TRIES).find_map(|_| {
            let (script, complaints, outcome) = attempt(world, road, lane, tree.current());
            (!complaints.is_empty()).then(|| format!("{complaints:?}\n{script:#?}\n{outcome:#?}"))
        });
        more = match failed {
            Some(text) => {
                found = text;
                tree.simplify()
            }
            None => tree.complicate(),
        };
    }
    found
}

/// Plays a script on a lane.
pub(crate) fn play(world: &World, road: Road, lane: u16, script: &Script) -> Outcome {
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
                // The server was quicker: it accepted, may have ended its side, and reset (`tcp_reset` in net/ipv4/tcp_input.c).
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
    // The last listener stays open for as long as a program that another test is just starting has not let go of what it
    // inherited of this process.
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

/// The client's connection; `None` if the client has left and none came.
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
