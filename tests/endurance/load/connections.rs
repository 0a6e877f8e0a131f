//! New connections with one exchange each. They may be from clients that have to reach the same endpoint each time.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, Socket, Type};

use super::Shared;
use super::pace::Pace;
use crate::servers::BYE;
use crate::support::patience::patience;
use crate::timeline::{Kind, Tally};

/// Interval of checks for deadlines of open connections.
const SWEEP: Duration = Duration::from_millis(500);

/// Clients that open connections at a steady rate.
pub(crate) struct Connections {
    /// Source addresses, used in turn.
    pub(crate) sources: Vec<IpAddr>,
    /// Destination.
    pub(crate) to: SocketAddr,
    /// Connections per second.
    pub(crate) rate: f64,
    /// Whether each source always has to reach the endpoint that it reached first.
    pub(crate) sticky: bool,
}

struct Visit {
    stream: TcpStream,
    due: Instant,
    source: usize,
    asked: bool,
    text: Vec<u8>,
}

enum Progress {
    Open,
    Ended(io::Result<()>),
}

impl Visit {
    fn open(from: IpAddr, to: SocketAddr, source: usize, due: Instant) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(nix::errno::Errno::EINPROGRESS as i32) => Err(error),
            _ => {
                let stream = TcpStream::from_std(socket.into());
                Ok(Self { stream, due, source, asked: false, text: Vec::new() })
            }
        }
    }

    fn proceed(&mut self) -> Progress {
        match self.exchange() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Progress::Open,
            ended => Progress::Ended(ended),
        }
    }

    fn exchange(&mut self) -> io::Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        if !self.asked {
            match self.stream.write(&[BYE]) {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                written => drop(written?),
            }
            self.asked = true;
        }
        let mut buffer = [0; 256];
        loop {
            match self.stream.read(&mut buffer)? {
                0 => break,
                size => self.text.extend_from_slice(&buffer[..size]),
            }
        }
        if self.text.ends_with(b"\n.") {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&self.text);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it ended after {text:?}")))
    }

    fn name(&self) -> String {
        let end = self.text.iter().position(|byte| *byte == b' ').unwrap_or_default();
        String::from_utf8_lossy(&self.text[..end]).into_owned()
    }
}

impl Connections {
    /// Opens connections until stopped.
    pub(crate) fn run(&self, shared: &Shared) -> Tally {
        let name = if self.sticky { "connections with affinity" } else { "new connections" };
        let poll = Poll::new().expect("epoll");
        let mut running = Running {
            plan: self,
            shared,
            poll,
            tally: Tally::new(name),
            visits: HashMap::new(),
            met: HashMap::new(),
            next: 0,
        };
        running.run();
        running.tally
    }
}

struct Running<'a> {
    plan: &'a Connections,
    shared: &'a Shared,
    poll: Poll,
    tally: Tally,
    visits: HashMap<usize, Visit>,
    /// Endpoint by source.
    met: HashMap<usize, String>,
    next: usize,
}

impl Running<'_> {
    fn run(&mut self) {
        let (mut events, mut pace) = (Events::with_capacity(1024), Pace::new(self.plan.rate));
        let mut swept = Instant::now();
        loop {
            let over = self.shared.is_over();
            if over && self.visits.is_empty() {
                return;
            }
            while !over && let Some(due) = pace.next() {
                self.begin(due);
            }
            let wait = if over { SWEEP } else { pace.wait().min(SWEEP) };
            if self.poll.poll(&mut events, Some(wait)).is_err() {
                continue;
            }
            events.iter().for_each(|event| self.proceed(event.token().0));
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.sweep();
            }
        }
    }

    fn begin(&mut self, due: Instant) {
        let (token, source) = (self.next, self.next % self.plan.sources.len());
        self.next += 1;
        match Visit::open(self.plan.sources[source], self.plan.to, source, due) {
            Ok(mut visit) => {
                let interest = Interest::READABLE | Interest::WRITABLE;
                self.poll.registry().register(&mut visit.stream, Token(token), interest).expect("epoll");
                self.visits.insert(token, visit);
            }
            Err(error) => self.tally.failure(due, Kind::of(&error), format!("not begun: {error}")),
        }
    }

    fn proceed(&mut self, token: usize) {
        let Some(visit) = self.visits.get_mut(&token) else { return };
        let Progress::Ended(ended) = visit.proceed() else { return };
        let Some(visit) = self.visits.remove(&token) else { return };
        match ended {
            Ok(()) => {
                self.tally.success(visit.due.elapsed());
                self.meet(&visit);
            }
            Err(error) => {
                let after = visit.due.elapsed().as_millis();
                self.tally.failure(
                    visit.due,
                    Kind::of(&error),
                    format!("{error}, {after} ms after it began"),
                );
            }
        }
    }

    fn meet(&mut self, visit: &Visit) {
        let name = visit.name();
        match self.met.get(&visit.source) {
            None => {
                self.met.insert(visit.source, name);
                self.shared.started.fetch_add(1, Ordering::SeqCst);
            }
            Some(before) if self.plan.sticky && *before != name => {
                let client = self.plan.sources[visit.source];
                let what = format!("{client} met {before} before, and {name} now");
                self.tally.failure(visit.due, Kind::Moved, what);
                self.met.insert(visit.source, name);
            }
            Some(_) => {}
        }
    }

    fn sweep(&mut self) {
        let (limit, tally) = (patience(10.0), &mut self.tally);
        self.visits.retain(|_, visit| {
            let waits = visit.due.elapsed() < limit;
            if !waits {
                let what = format!("{} bytes within {limit:?}", visit.text.len());
                tally.failure(visit.due, Kind::Silent, what);
            }
            waits
        });
    }
}
