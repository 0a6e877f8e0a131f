//! Client host: puts load on a subject and checks each answer. A load knows an address, but not the subject.

pub(crate) mod bulk;
pub(crate) mod bundle;
pub(crate) mod connect;
pub(crate) mod datagram;
pub(crate) mod idle;
pub(crate) mod pace;
pub(crate) mod request;
pub(crate) mod visit;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

use crate::failure::{During, Failure};
use crate::pattern;
use crate::sample::Moved;

/// Time limit of each step of a load, which only a hang exceeds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which an answer counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// Interval of checks for lost datagrams.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Length of a datagram's number, which precedes its pattern.
const NUMBER: usize = 8;

/// Waits for events up to a time limit; returns none after a signal.
fn wait(poll: &mut Poll, events: &mut Events, most: Duration) -> Result<(), Failure> {
    match poll.poll(events, Some(most)) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        polled => polled.during("poll"),
    }
}

/// Opens a blocking connection with timeouts.
fn open(address: Ipv4Addr, port: u16) -> Result<TcpStream, Failure> {
    let target = SocketAddr::from((address, port));
    let stream = TcpStream::connect_timeout(&target, PATIENCE).during(format!("connect to {target}"))?;
    stream.set_nodelay(true).during("set TCP_NODELAY")?;
    stream.set_read_timeout(Some(PATIENCE)).during("limit a read")?;
    stream.set_write_timeout(Some(PATIENCE)).during("limit a write")?;
    Ok(stream)
}

/// Sends one request on a blocking connection and checks the answer.
fn exchange(stream: &mut TcpStream, position: u64, len: usize) -> Result<(), Failure> {
    let mut answer = vec![0; len];
    stream.write_all(pattern::at(position, len)).during("send a request")?;
    stream.read_exact(&mut answer).during("read an answer")?;
    check(&answer, position)
}

/// Checks that an answer is the complement of the request that began at `position`.
fn check(answer: &[u8], position: u64) -> Result<(), Failure> {
    if *answer == *pattern::complement_at(position, answer.len()) {
        return Ok(());
    }
    Err(Failure::WrongAnswer(format!("{} bytes differ from what the server sends", answer.len())))
}

/// Checks whether the echo service answers through `address`.
pub(crate) fn answers(address: Ipv4Addr, port: u16) -> Result<(), Failure> {
    exchange(&mut open(address, port)?, 1, 64)
}

/// Runs `load` on up to `threads` threads, each with its share of `total` connections or flows.
pub(crate) fn spread<F>(threads: usize, total: usize, load: F) -> Result<Moved, Failure>
where
    F: Fn(usize) -> Result<Moved, Failure> + Copy + Send + 'static,
{
    let threads = threads.clamp(1, total.max(1));
    if threads == 1 {
        return load(total);
    }
    let share = |index| total / threads + usize::from(index < total % threads);
    let parts: Vec<_> = (0..threads)
        .map(|index| {
            let share = share(index);
            thread::spawn(move || load(share))
        })
        .collect();
    let mut all: Option<Moved> = None;
    for part in parts {
        let moved = part.join().map_err(|_| Failure::ThreadGone("client"))??;
        all = Some(match all {
            Some(sum) => sum.beside(moved),
            None => moved,
        });
    }
    all.ok_or(Failure::ThreadGone("client"))
}

/// Fails if a load is still running after its limit.
fn not_after(limit: Instant, what: &'static str) -> Result<(), Failure> {
    if Instant::now() < limit { Ok(()) } else { Err(Failure::TooSlow { what, limit: PATIENCE }) }
}
