//! UDP flows that send queries all the time, and have to reach the same endpoint from the same source port each
//! time.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::UdpSocket as Watched;
use mio::{Events, Interest, Poll, Token};

use super::Shared;
use super::pace::Pace;
use crate::support::patience::{eventually, patience};
use crate::timeline::{Kind, Tally};

/// Interval of queries on each flow.
const EVERY: Duration = Duration::from_millis(500);

/// Clients with a port each.
pub(crate) struct Flows {
    /// Source addresses, used in turn.
    pub(crate) sources: Vec<IpAddr>,
    /// Destination.
    pub(crate) to: SocketAddr,
    /// Number of flows.
    pub(crate) count: usize,
}

struct Flow {
    socket: Watched,
    asked: Option<(Instant, String)>,
    /// Endpoint, and the source that it sees.
    met: Option<String>,
}

impl Flow {
    fn ask(&mut self, number: u64) -> io::Result<()> {
        let question = number.to_string();
        self.socket.send(question.as_bytes())?;
        self.asked = Some((Instant::now(), question));
        Ok(())
    }

    /// The next answer to its last query: its sender and latency.
    fn hear(&mut self) -> io::Result<(String, Duration)> {
        let mut buffer = [0; 256];
        loop {
            let size = self.socket.recv(&mut buffer)?;
            let text = String::from_utf8_lossy(&buffer[..size]).into_owned();
            let Some((who, answered)) = text.rsplit_once(' ') else { return Err(io::Error::other(text)) };
            if let Some((since, question)) = &self.asked
                && question == answered
            {
                let took = since.elapsed();
                self.asked = None;
                return Ok((who.to_owned(), took));
            }
        }
    }
}

impl Flows {
    /// Sends queries until stopped.
    pub(crate) fn run(&self, shared: &Shared) -> Tally {
        let poll = Poll::new().expect("epoll");
        let flows = (0..self.count).map(|number| self.open(number, &poll)).collect();
        let mut running = Running { flows, tally: Tally::new("datagrams of flows"), shared };
        running.run(poll, Pace::new(self.count as f64 / EVERY.as_secs_f64()));
        running.tally
    }

    fn open(&self, number: usize, poll: &Poll) -> Flow {
        let source = self.sources[number % self.sources.len()];
        let socket = eventually("a port is free", || UdpSocket::bind(SocketAddr::new(source, 0)));
        socket.connect(self.to).expect("the gateway is routed");
        socket.set_nonblocking(true).expect("a socket need not block");
        let mut socket = Watched::from_std(socket);
        poll.registry().register(&mut socket, Token(number), Interest::READABLE).expect("epoll");
        Flow { socket, asked: None, met: None }
    }
}

struct Running<'a> {
    flows: Vec<Flow>,
    tally: Tally,
    shared: &'a Shared,
}

impl Running<'_> {
    fn run(&mut self, mut poll: Poll, mut pace: Pace) {
        let (mut events, mut turn) = (Events::with_capacity(1024), 0);
        loop {
            let over = self.shared.is_over();
            if over && self.flows.iter().all(|flow| flow.asked.is_none()) {
                return;
            }
            while let Some(_due) = pace.next() {
                turn += 1;
                self.ask(turn, over);
            }
            if poll.poll(&mut events, Some(pace.wait())).is_err() {
                continue;
            }
            events.iter().for_each(|event| self.hear(event.token().0));
        }
    }

    /// Sends the next query in turn, once the flow has had its answer or waited long enough. Sends none when
    /// `over`.
    fn ask(&mut self, turn: usize, over: bool) {
        let number = turn % self.flows.len();
        let flow = &mut self.flows[number];
        match &flow.asked {
            Some((since, _)) if since.elapsed() < patience(5.0) => {}
            Some((since, _)) => {
                let what = format!("flow {number}: a datagram or its answer is lost");
                self.tally.failure(*since, Kind::Silent, what);
                flow.asked = None;
            }
            None if over => {}
            None => {
                if let Err(error) = flow.ask(turn as u64) {
                    self.tally.failure(Instant::now(), Kind::of(&error), format!("flow {number}: {error}"));
                }
            }
        }
    }

    fn hear(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        loop {
            match flow.hear() {
                Ok((who, took)) => {
                    self.tally.success(took);
                    if let Some(before) = &flow.met
                        && *before != who
                    {
                        let same = before.split(' ').next() == who.split(' ').next();
                        let kind = if same { Kind::Renumbered } else { Kind::Moved };
                        let what = format!("flow {number}: {before} before, {who} now");
                        self.tally.failure(Instant::now(), kind, what);
                    }
                    if flow.met.replace(who).is_none() {
                        self.shared.started.fetch_add(1, Ordering::SeqCst);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    let since = flow.asked.take().map_or_else(Instant::now, |(since, _)| since);
                    self.tally.failure(since, Kind::of(&error), format!("flow {number}: {error}"));
                }
            }
        }
    }
}
