//! Request load on connections that stay open, with one request under way on each.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{self, Ipv4Addr};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::pace::{Arrivals, Pace};
use super::{PATIENCE, check, open};
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::ECHO;
use crate::sample::Moved;

/// Events per poll; more wait for the next one.
const EVENTS: usize = 1024;

/// Clients on one thread.
pub(crate) struct Clients {
    poll: Poll,
    clients: Vec<Client>,
    /// Clients without a request under way. The one that has waited longest sends next.
    free: VecDeque<usize>,
    latencies: Vec<Duration>,
}

impl Clients {
    /// Opens `connections` connections for requests of `size` bytes.
    pub(crate) fn open(address: Ipv4Addr, connections: usize, size: usize) -> Result<Self, Failure> {
        let streams = (0..connections).map(|_| open(address, ECHO)).collect::<Result<_, Failure>>()?;
        Self::of(streams, size)
    }

    /// Uses existing connections to the echo service.
    pub(crate) fn of(streams: Vec<net::TcpStream>, size: usize) -> Result<Self, Failure> {
        let poll = Poll::new().during("make a poll")?;
        let clients = streams.into_iter().enumerate();
        let clients = clients.map(|(index, stream)| Client::of(stream, index, size, &poll));
        let clients = clients.collect::<Result<Vec<_>, Failure>>()?;
        Ok(Self { poll, free: (0..clients.len()).collect(), clients, latencies: Vec::new() })
    }

    /// Sends requests at this pace for `duration`, and waits for the last answers.
    pub(crate) fn run(&mut self, pace: Pace, duration: Duration) -> Result<Moved, Failure> {
        let mut events = Events::with_capacity(EVENTS);
        let mut scratch = vec![0; 65_536];
        self.latencies = Vec::with_capacity(1 << 20);
        let mut arrivals = Arrivals::start(pace, duration, &self.poll)?;
        loop {
            self.ask(&mut arrivals)?;
            if self.free.len() == self.clients.len() && arrivals.are_over() {
                break;
            }
            arrivals.check_hung("an answer")?;
            arrivals.wait(&mut self.poll, &mut events, !self.free.is_empty(), PATIENCE)?;
            for event in &events {
                let Some(client) = self.clients.get_mut(event.token().0) else { continue };
                if event.is_writable() {
                    client.push()?;
                }
                if !event.is_readable() {
                    continue;
                }
                let Some(latency) = client.take(&mut scratch)? else { continue };
                self.latencies.push(latency);
                self.free.push_back(event.token().0);
                self.ask(&mut arrivals)?;
            }
        }
        let latencies = std::mem::take(&mut self.latencies);
        Ok(Moved { units: latencies.len() as u64, took: arrivals.elapsed(), latencies, lost: None })
    }

    /// Sends the requests that are due, as far as connections are free.
    fn ask(&mut self, arrivals: &mut Arrivals) -> Result<(), Failure> {
        while let Some(index) = self.free.front().copied() {
            let Some(from) = arrivals.next() else { return Ok(()) };
            self.free.pop_front();
            self.clients[index].ask(from)?;
        }
        Ok(())
    }
}

struct Client {
    stream: TcpStream,
    index: usize,
    size: usize,
    sequence: u64,
    /// Time from which the request counts.
    asked: Instant,
    sent: usize,
    received: usize,
}

impl Client {
    fn of(stream: net::TcpStream, index: usize, size: usize, poll: &Poll) -> Result<Self, Failure> {
        stream.set_nonblocking(true).during("make a connection non-blocking")?;
        let mut stream = TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(index), interest).during("poll a connection")?;
        // These values stand for a completed request.
        Ok(Self { stream, index, size, sequence: 0, asked: Instant::now(), sent: size, received: size })
    }

    fn position(&self) -> u64 {
        pattern::position(self.index, self.sequence)
    }

    fn ask(&mut self, from: Instant) -> Result<(), Failure> {
        self.sequence += 1;
        self.asked = from;
        self.sent = 0;
        self.received = 0;
        self.push()
    }

    /// Sends as much of the request as the socket accepts.
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

    /// Reads what is available. Returns the latency once the answer is complete. A short read has emptied the
    /// socket (epoll(7)).
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
