//! Connect, one request, its answer, close; as often as it goes. Either the server closes first, as HTTP/1.0 servers do, so no
//! port of the client or of a proxy is blocked by TIME_WAIT; or the client does, as most others do.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::pace::{Arrivals, Pace};
use super::{PATIENCE, check};
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::{MANY, ONCE, ONCE_LEN};
use crate::sample::Moved;

/// Time for the connections of a run in which clients close first to finish.
const GRACE: Duration = Duration::from_secs(1);

/// Side that closes a connection first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosesFirst {
    /// The server, and every connection must succeed.
    Server,
    /// The client. Those that break, or are not done when the run is over, are counted as lost: proxies may find no port.
    Client,
}

/// Opens connections at this pace on one thread for `duration`, with at most `parallel` at the same time.
pub(crate) fn run(
    address: Ipv4Addr,
    first: ClosesFirst,
    parallel: usize,
    pace: Pace,
    duration: Duration,
) -> Result<Moved, Failure> {
    let mut attempts = Attempts::none(address, first, parallel)?;
    let mut events = Events::with_capacity(parallel);
    let (mut latencies, mut broken) = (Vec::with_capacity(1 << 18), 0);
    let mut arrivals = Arrivals::start(pace, duration, &attempts.poll)?;
    loop {
        attempts.begin(&mut arrivals)?;
        if attempts.free.len() == parallel && arrivals.are_over() {
            break;
        }
        match first {
            ClosesFirst::Server => arrivals.check_hung("a connection")?,
            ClosesFirst::Client if arrivals.elapsed() > duration + GRACE => break,
            ClosesFirst::Client => {}
        }
        let most = if first == ClosesFirst::Client { GRACE } else { PATIENCE };
        arrivals.wait(&mut attempts.poll, &mut events, !attempts.free.is_empty(), most)?;
        for event in &events {
            let slot = event.token().0;
            let Some(attempt) = attempts.slots.get_mut(slot).and_then(Option::as_mut) else { continue };
            match attempt.advance(event) {
                Ok(None) => continue,
                Ok(Some(latency)) => latencies.push(latency),
                Err(_) if first == ClosesFirst::Client => broken += 1,
                Err(failure) => return Err(failure),
            }
            attempts.slots[slot] = None;
            attempts.free.push(slot);
            attempts.begin(&mut arrivals)?;
        }
    }
    let under_way = (parallel - attempts.free.len()) as u64;
    let lost = (first == ClosesFirst::Client).then(|| broken + under_way + arrivals.never_begun());
    Ok(Moved { units: latencies.len() as u64, took: arrivals.elapsed(), latencies, lost })
}

/// Connections of one thread.
struct Attempts {
    poll: Poll,
    target: SocketAddr,
    first: ClosesFirst,
    slots: Vec<Option<Attempt>>,
    free: Vec<usize>,
    sequence: u64,
}

impl Attempts {
    fn none(address: Ipv4Addr, first: ClosesFirst, parallel: usize) -> Result<Self, Failure> {
        let port = if first == ClosesFirst::Client { MANY } else { ONCE };
        let target = SocketAddr::from((address, port));
        let poll = Poll::new().during("make a poll")?;
        let slots = (0..parallel).map(|_| None).collect();
        Ok(Self { poll, target, first, slots, free: (0..parallel).rev().collect(), sequence: 0 })
    }

    /// Opens the connections that are due, as far as there are free slots.
    fn begin(&mut self, arrivals: &mut Arrivals) -> Result<(), Failure> {
        while let Some(slot) = self.free.last().copied() {
            let Some(from) = arrivals.next() else { return Ok(()) };
            self.free.pop();
            self.sequence += 1;
            let position = pattern::position(slot, self.sequence);
            let first = self.first;
            self.slots[slot] = Some(Attempt::open(self.target, first, slot, position, from, &self.poll)?);
        }
        Ok(())
    }
}

struct Attempt {
    stream: TcpStream,
    first: ClosesFirst,
    position: u64,
    /// Time from which the connection counts.
    began: Instant,
    asked: bool,
    answer: [u8; ONCE_LEN],
    received: usize,
}

impl Attempt {
    fn open(
        target: SocketAddr,
        first: ClosesFirst,
        slot: usize,
        position: u64,
        began: Instant,
        poll: &Poll,
    ) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(target).during(format!("connect to {target}"))?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(slot), interest).during("poll a connection")?;
        Ok(Self { stream, first, position, began, asked: false, answer: [0; ONCE_LEN], received: 0 })
    }

    /// Goes on as far as the event allows; the latency when the server has answered, and has closed if it is to do so first.
    fn advance(&mut self, event: &Event) -> Result<Option<Duration>, Failure> {
        if !self.asked && event.is_writable() {
            match self.stream.write(pattern::at(self.position, ONCE_LEN)) {
                Ok(ONCE_LEN) => self.asked = true,
                Ok(_) => return Err(Failure::WrongAnswer("a new connection took no request".to_owned())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error).during("connect and send a request"),
            }
        }
        if !event.is_readable() {
            return Ok(None);
        }
        loop {
            // After a complete answer, read one more byte, to see the end of the stream or excess data.
            let mut excess = [0];
            let room = if self.received < ONCE_LEN { &mut self.answer[self.received..] } else { &mut excess };
            match self.stream.read(room) {
                Ok(0) => break,
                Ok(len) => self.received += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error).during("read an answer and the end"),
            }
            if self.received > ONCE_LEN {
                return Err(Failure::WrongAnswer("more bytes came than were asked for".to_owned()));
            }
            if self.received == ONCE_LEN && self.first == ClosesFirst::Client {
                break;
            }
        }
        check(&self.answer[..self.received], self.position)?;
        if self.received < ONCE_LEN {
            return Err(Failure::WrongAnswer(format!("the end came after {} bytes", self.received)));
        }
        Ok(Some(self.began.elapsed()))
    }
}
