//! Datagram load: several flows, each with a few datagrams under way.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use super::{LOOK_EVERY, LOST_AFTER, NUMBER, PATIENCE, not_after, wait};
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::DATAGRAM;
use crate::sample::Moved;

/// Datagrams under way on each flow.
const WINDOW: usize = 8;

/// Runs `flows` flows of datagrams of `size` bytes on one thread for `duration`. Each answered datagram counts as two, since
/// it passed the gateway twice.
pub(crate) fn run(
    address: Ipv4Addr,
    flows: usize,
    size: usize,
    duration: Duration,
) -> Result<Moved, Failure> {
    let mut load = Load::open(address, flows, size)?;
    let mut events = Events::with_capacity(flows);
    let start = Instant::now();
    let (end, limit) = (start + duration, start + duration + PATIENCE);
    let mut look = start + LOOK_EVERY;
    for index in 0..flows {
        load.refill(index, start)?;
    }
    while load.under_way() {
        not_after(limit, "a datagram")?;
        wait(&mut load.poll, &mut events, LOOK_EVERY)?;
        for event in &events {
            let index = event.token().0;
            load.take(index)?;
            let now = Instant::now();
            if now < end {
                load.refill(index, now)?;
            }
        }
        let now = Instant::now();
        if now >= look {
            look = now + LOOK_EVERY;
            load.write_off(now);
            for index in 0..flows {
                if now < end {
                    load.refill(index, now)?;
                }
            }
        }
    }
    let took = start.elapsed();
    Ok(Moved {
        units: 2 * load.latencies.len() as u64,
        took,
        latencies: load.latencies,
        lost: Some(load.lost),
    })
}

/// Waits for one answer. A proxy opens its ports one by one, so TCP may be served before UDP.
pub(crate) fn answers(address: Ipv4Addr, port: u16) -> Result<(), Failure> {
    const LEN: usize = 64;
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).during("bind a socket")?;
    socket.connect((address, port)).during("connect a socket")?;
    socket.set_read_timeout(Some(LOST_AFTER)).during("limit a read")?;
    socket.send(pattern::at(0, LEN)).during("send a datagram")?;
    let mut answer = [0; LEN];
    socket.recv(&mut answer).during("receive a datagram")?;
    super::check(&answer, 0)
}

/// Makes a flow from each of the first `count` client ports from `first` on, one after the other; they stay when their sockets are closed.
pub(crate) fn make_flows(address: Ipv4Addr, first: u16, count: u16) -> Result<(), Failure> {
    for port in first..first + count {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).during("bind a socket")?;
        socket.connect((address, DATAGRAM)).during("connect a socket")?;
        socket.set_read_timeout(Some(LOST_AFTER)).during("limit a read")?;
        socket.send(pattern::at(0, 2 * NUMBER)).during("send a datagram")?;
        socket.recv(&mut [0; 2 * NUMBER]).during("receive a datagram")?;
    }
    Ok(())
}

/// A sent datagram without an answer so far.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    at: Instant,
}

struct Flow {
    socket: UdpSocket,
    window: [Option<Sent>; WINDOW],
}

struct Load {
    poll: Poll,
    flows: Vec<Flow>,
    size: usize,
    next_number: u64,
    buffer: Vec<u8>,
    latencies: Vec<Duration>,
    lost: u64,
}

impl Load {
    fn open(address: Ipv4Addr, flows: usize, size: usize) -> Result<Self, Failure> {
        let poll = Poll::new().during("make a poll")?;
        let open = |index| {
            let mut socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into()).during("bind a flow")?;
            socket.connect(SocketAddr::from((address, DATAGRAM))).during("connect a flow")?;
            poll.registry().register(&mut socket, Token(index), Interest::READABLE).during("poll a flow")?;
            Ok(Flow { socket, window: [None; WINDOW] })
        };
        let flows = (0..flows).map(open).collect::<Result<_, Failure>>()?;
        let (buffer, latencies) = (vec![0; size + 1], Vec::with_capacity(1 << 20));
        Ok(Self { poll, flows, size, next_number: 0, buffer, latencies, lost: 0 })
    }

    fn under_way(&self) -> bool {
        self.flows.iter().any(|flow| flow.window.iter().any(Option::is_some))
    }

    /// Sends until the flow's window is full.
    fn refill(&mut self, index: usize, now: Instant) -> Result<(), Failure> {
        let flow = &mut self.flows[index];
        for place in flow.window.iter_mut().filter(|place| place.is_none()) {
            let number = self.next_number;
            self.next_number += 1;
            self.buffer[..NUMBER].copy_from_slice(&number.to_le_bytes());
            let pattern = pattern::at(pattern::position(index, number), self.size - NUMBER);
            self.buffer[NUMBER..self.size].copy_from_slice(pattern);
            *place = Some(Sent { number, at: now });
            match flow.socket.send(&self.buffer[..self.size]) {
                Ok(_) => {}
                // It counts as sent, and will be found lost.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).during("send a datagram"),
            }
        }
        Ok(())
    }

    /// Receives and checks all available answers of a flow.
    fn take(&mut self, index: usize) -> Result<(), Failure> {
        let flow = &mut self.flows[index];
        loop {
            let len = match flow.socket.recv(&mut self.buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).during("receive a datagram"),
            };
            if len != self.size {
                return Err(Failure::WrongAnswer(format!("{len} bytes came for {}", self.size)));
            }
            let (number, rest) = self.buffer[..len].split_at(NUMBER);
            let number = !u64::from_le_bytes(number.try_into().unwrap_or_default());
            super::check(rest, pattern::position(index, number))?;
            let mut window = flow.window.iter_mut();
            let place = window.find(|place| place.is_some_and(|sent| sent.number == number));
            // Otherwise it was given up before.
            if let Some(sent) = place.and_then(Option::take) {
                self.latencies.push(sent.at.elapsed());
            }
        }
    }

    /// Gives up datagrams that were sent too long ago.
    fn write_off(&mut self, now: Instant) {
        for place in self.flows.iter_mut().flat_map(|flow| &mut flow.window) {
            if place.is_some_and(|sent| now.saturating_duration_since(sent.at) > LOST_AFTER) {
                *place = None;
                self.lost += 1;
            }
        }
    }
}
