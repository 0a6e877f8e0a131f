//! Connection load: connect, one request, its answer, close, at full speed. The server closes first, as HTTP/1.0
//! servers do, so that TIME_WAIT blocks no port of the client or of a proxy.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::check;
use super::pace::{Arrivals, Pace};
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::{ONCE, ONCE_LEN};
use crate::sample::Moved;

/// Opens connections at this pace on one thread for `duration`, with at most `parallel` at the same time.
pub(crate) fn run(
    address: Ipv4Addr,
    parallel: usize,
    pace: Pace,
    duration: Duration,
) -> Result<Moved, Failure> {
    let mut attempts = Attempts::none(SocketAddr::from((address, ONCE)), parallel)?;
    let mut events = Events::with_capacity(parallel);
    let mut latencies = Vec::with_capacity(1 << 18);
    let mut arrivals = Arrivals::start(pace, duration, &attempts.poll)?;
    loop {
        attempts.begin(&mut arrivals)?;
        if attempts.free.len() == parallel && arrivals.are_over() {
            break;
        }
        arrivals.check_hung("a connection")?;
        arrivals.wait(&mut attempts.poll, &mut events, !attempts.free.is_empty())?;
        for event in &events {
            let slot = event.token().0;
            let Some(attempt) = attempts.slots.get_mut(slot).and_then(Option::as_mut) else { continue };
            let Some(latency) = attempt.advance(event)? else { continue };
            latencies.push(latency);
            attempts.slots[slot] = None;
            attempts.free.push(slot);
            attempts.begin(&mut arrivals)?;
        }
    }
    Ok(Moved { units: latencies.len() as u64, took: arrivals.elapsed(), latencies, lost: None })
}

/// Connections of one thread.
struct Attempts {
    poll: Poll,
    target: SocketAddr,
    slots: Vec<Option<Attempt>>,
    free: Vec<usize>,
    sequence: u64,
}

impl Attempts {
    fn none(target: SocketAddr, parallel: usize) -> Result<Self, Failure> {
        let poll = Poll::new().during("make a poll")?;
        let slots = (0..parallel).map(|_| None).collect();
        Ok(Self { poll, target, slots, free: (0..parallel).rev().collect(), sequence: 0 })
    }

    /// Opens the connections that are due, as far as there are free slots.
    fn begin(&mut self, arrivals: &mut Arrivals) -> Result<(), Failure> {
        while let Some(slot) = self.free.last().copied() {
            let Some(from) = arrivals.next() else { return Ok(()) };
            self.free.pop();
            self.sequence += 1;
            let position = pattern::position(slot, self.sequence);
            self.slots[slot] = Some(Attempt::open(self.target, slot, position, from, &self.poll)?);
        }
        Ok(())
    }
}

struct Attempt {
    stream: TcpStream,
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
        slot: usize,
        position: u64,
        began: Instant,
        poll: &Poll,
    ) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(target).during(format!("connect to {target}"))?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(slot), interest).during("poll a connection")?;
        Ok(Self { stream, position, began, asked: false, answer: [0; ONCE_LEN], received: 0 })
    }

    /// Continues as far as the event allows. Returns the latency once the server has answered and closed.
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
        }
        check(&self.answer[..self.received], self.position)?;
        if self.received < ONCE_LEN {
            return Err(Failure::WrongAnswer(format!("the end came after {} bytes", self.received)));
        }
        Ok(Some(self.began.elapsed()))
    }
}
