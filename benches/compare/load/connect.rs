//! Connect, one request, its answer, close; as often as it goes. The server closes first, as HTTP/1.0 servers do, so no
//! port of the client or of a proxy is blocked by TIME_WAIT.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::{PATIENCE, check, not_after, wait};
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::{ONCE, ONCE_LEN};
use crate::sample::Moved;

/// Keeps `parallel` connections under way on one thread for `duration`.
pub(crate) fn run(address: Ipv4Addr, parallel: usize, duration: Duration) -> Result<Moved, Failure> {
    let target = SocketAddr::from((address, ONCE));
    let mut poll = Poll::new().during("make a poll")?;
    let mut events = Events::with_capacity(parallel);
    let mut latencies = Vec::with_capacity(1 << 18);
    let start = Instant::now();
    let (end, limit) = (start + duration, start + duration + PATIENCE);
    let mut sequence = 0;
    let mut open = |slot: usize, poll: &Poll| {
        sequence += 1;
        Attempt::open(target, slot, pattern::position(slot, sequence), poll)
    };
    let mut slots =
        (0..parallel).map(|slot| open(slot, &poll).map(Some)).collect::<Result<Vec<_>, Failure>>()?;
    let mut busy = parallel;
    while busy > 0 {
        not_after(limit, "a connection")?;
        wait(&mut poll, &mut events, PATIENCE)?;
        for event in &events {
            let slot = event.token().0;
            let Some(attempt) = slots[slot].as_mut() else { continue };
            let Some(latency) = attempt.advance(event)? else { continue };
            latencies.push(latency);
            slots[slot] = None;
            if Instant::now() < end {
                slots[slot] = Some(open(slot, &poll)?);
            } else {
                busy -= 1;
            }
        }
    }
    Ok(Moved { units: latencies.len() as u64, took: start.elapsed(), latencies, lost: None })
}

struct Attempt {
    stream: TcpStream,
    position: u64,
    began: Instant,
    asked: bool,
    answer: [u8; ONCE_LEN],
    received: usize,
}

impl Attempt {
    fn open(target: SocketAddr, slot: usize, position: u64, poll: &Poll) -> Result<Self, Failure> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(target).during(format!("connect to {target}"))?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(slot), interest).during("poll a connection")?;
        Ok(Self { stream, position, began, asked: false, answer: [0; ONCE_LEN], received: 0 })
    }

    /// Goes on as far as the event allows; the latency when the server has answered and closed.
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
            // Once the answer is complete, one more byte of room is there to meet the end of the stream, or too much.
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
