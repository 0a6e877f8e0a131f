//! Requests and answers on connections that stay open: one under way on each, as a client that waits has it.

use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::{PATIENCE, check, not_after, open, wait};
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::ECHO;
use crate::sample::Moved;

/// Runs `connections` clients on one thread for `duration`; each sends `size` bytes, and again when the answer is there.
pub(crate) fn run(
    address: Ipv4Addr,
    connections: usize,
    size: usize,
    duration: Duration,
) -> Result<Moved, Failure> {
    let mut poll = Poll::new().during("make a poll")?;
    let mut clients = (0..connections)
        .map(|index| Client::open(address, index, size, &poll))
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut events = Events::with_capacity(connections);
    let mut scratch = vec![0; 65_536];
    let mut latencies = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    let (end, limit) = (start + duration, start + duration + PATIENCE);
    for client in &mut clients {
        client.ask()?;
    }
    let mut busy = connections;
    while busy > 0 {
        not_after(limit, "an answer")?;
        wait(&mut poll, &mut events, PATIENCE)?;
        for event in &events {
            let client = &mut clients[event.token().0];
            if event.is_writable() {
                client.push()?;
            }
            if !event.is_readable() {
                continue;
            }
            let Some(latency) = client.take(&mut scratch)? else { continue };
            latencies.push(latency);
            if Instant::now() < end {
                client.ask()?;
            } else {
                busy -= 1;
            }
        }
    }
    Ok(Moved { units: latencies.len() as u64, took: start.elapsed(), latencies, lost: None })
}

struct Client {
    stream: TcpStream,
    index: usize,
    size: usize,
    sequence: u64,
    asked: Instant,
    sent: usize,
    received: usize,
}

impl Client {
    fn open(address: Ipv4Addr, index: usize, size: usize, poll: &Poll) -> Result<Self, Failure> {
        let stream = open(address, ECHO)?;
        stream.set_nonblocking(true).during("make a connection non-blocking")?;
        let mut stream = TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(index), interest).during("poll a connection")?;
        // Nothing is under way yet, and that is what these say.
        Ok(Self { stream, index, size, sequence: 0, asked: Instant::now(), sent: size, received: size })
    }

    fn position(&self) -> u64 {
        pattern::position(self.index, self.sequence)
    }

    fn ask(&mut self) -> Result<(), Failure> {
        self.sequence += 1;
        self.asked = Instant::now();
        self.sent = 0;
        self.received = 0;
        self.push()
    }

    /// Sends what the socket takes of the request.
    fn push(&mut self) -> Result<(), Failure> {
        while self.sent < self.size {
            let rest = &pattern::at(self.position(), self.size)[self.sent..];
            match self.stream.write(rest) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).during("send a request"),
            }
        }
        Ok(())
    }

    /// Reads what there is; the latency when the answer is complete. A short read has emptied the socket (epoll(7)).
    fn take(&mut self, scratch: &mut [u8]) -> Result<Option<Duration>, Failure> {
        loop {
            let len = match self.stream.read(scratch) {
                Ok(0) => return Err(Failure::WrongAnswer("the connection was closed".to_owned())),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error).during("read an answer"),
            };
            if self.received + len > self.sent {
                return Err(Failure::WrongAnswer("more bytes came than were asked for".to_owned()));
            }
            check(&scratch[..len], self.position() + self.received as u64)?;
            self.received += len;
            if self.received == self.size {
                return Ok(Some(self.asked.elapsed()));
            }
            if len < scratch.len() {
                return Ok(None);
            }
        }
    }
}
