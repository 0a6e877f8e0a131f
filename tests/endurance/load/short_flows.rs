//! UDP flows of one query and its answer, each from a new port.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use super::Shared;
use super::pace::Pace;
use crate::support::patience::patience;
use crate::timeline::{Kind, Tally};

/// Interval of checks for deadlines of queries.
const SWEEP: Duration = Duration::from_millis(500);
/// First port and number of ports. It takes minutes until a port is reused, and its last flow has then ended.
const FIRST_PORT: usize = 20_000;
const PORTS: usize = 40_000;

/// Clients that send one query each.
pub(crate) struct ShortFlows {
    /// Source addresses, used in turn.
    pub(crate) sources: Vec<IpAddr>,
    /// Destination.
    pub(crate) to: SocketAddr,
    /// Queries per second.
    pub(crate) rate: f64,
}

struct Running<'a> {
    plan: &'a ShortFlows,
    poll: Poll,
    tally: Tally,
    asked: HashMap<usize, (UdpSocket, Instant)>,
    next: usize,
}

impl ShortFlows {
    /// Sends queries until stopped.
    pub(crate) fn run(&self, shared: &Shared) -> Tally {
        let (poll, tally) = (Poll::new().expect("epoll"), Tally::new("UDP flows of one question"));
        let mut running =
            Running { plan: self, poll, tally, asked: HashMap::new(), next: fastrand::usize(..PORTS) };
        running.run(shared);
        running.tally
    }

    /// Source of a flow: all ports of all addresses in turn.
    fn source(&self, number: usize) -> SocketAddr {
        let port = FIRST_PORT + number / self.sources.len() % PORTS;
        SocketAddr::new(self.sources[number % self.sources.len()], u16::try_from(port).expect("a port"))
    }
}

impl Running<'_> {
    fn run(&mut self, shared: &Shared) {
        let (mut events, mut pace) = (Events::with_capacity(1024), Pace::new(self.plan.rate));
        let mut swept = Instant::now();
        loop {
            let over = shared.is_over();
            if over && self.asked.is_empty() {
                return;
            }
            while !over && pace.next().is_some() {
                self.ask();
            }
            let wait = if over { SWEEP } else { pace.wait().min(SWEEP) };
            if self.poll.poll(&mut events, Some(wait)).is_err() {
                continue;
            }
            events.iter().for_each(|event| self.hear(event.token().0));
            if self.tally.done > 0 {
                shared.started.store(1, Ordering::SeqCst);
            }
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.sweep();
            }
        }
    }

    /// Sends the next query, skipping ports that are in use.
    fn ask(&mut self) {
        let asked = loop {
            self.next += 1;
            match UdpSocket::bind(self.plan.source(self.next)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => break bound.and_then(|socket| self.ask_from(socket)),
            }
        };
        if let Err(error) = asked {
            self.tally.failure(Instant::now(), Kind::of(&error), format!("not asked: {error}"));
        }
    }

    fn ask_from(&mut self, mut socket: UdpSocket) -> io::Result<()> {
        socket.connect(self.plan.to)?;
        self.poll.registry().register(&mut socket, Token(self.next), Interest::READABLE)?;
        socket.send(b"?")?;
        self.asked.insert(self.next, (socket, Instant::now()));
        Ok(())
    }

    fn hear(&mut self, number: usize) {
        let Some((socket, since)) = self.asked.get(&number) else { return };
        let mut buffer = [0; 256];
        match socket.recv(&mut buffer) {
            Ok(size) if buffer[..size].ends_with(b" ?") => self.tally.success(since.elapsed()),
            Ok(size) => {
                let text = String::from_utf8_lossy(&buffer[..size]).into_owned();
                self.tally.failure(*since, Kind::Other, text);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => self.tally.failure(*since, Kind::of(&error), error.to_string()),
        }
        self.asked.remove(&number);
    }

    fn sweep(&mut self) {
        let (limit, tally) = (patience(5.0), &mut self.tally);
        self.asked.retain(|_, (_, since)| {
            let waits = since.elapsed() < limit;
            if !waits {
                tally.failure(*since, Kind::Silent, "a datagram or its answer is lost".to_owned());
            }
            waits
        });
    }
}
