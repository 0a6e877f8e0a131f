//! Long-lived connections that exchange data all the time.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::Shared;
use super::pace::Pace;
use crate::servers::BYE;
use crate::support::patience::io_deadline;
use crate::support::tcp;
use crate::timeline::{Kind, Tally};

/// Interval of messages on each connection.
const EVERY: Duration = Duration::from_millis(200);
/// Length of a message, none of whose bytes is [`BYE`].
const LENGTH: usize = 8;

/// Clients that stay connected.
pub(crate) struct Talks {
    /// Source addresses, used in turn.
    pub(crate) sources: Vec<IpAddr>,
    /// Destination.
    pub(crate) to: SocketAddr,
    /// Number of connections at any time.
    pub(crate) count: usize,
}

struct Talk {
    stream: TcpStream,
    /// Message that has not been echoed yet, with its time.
    said: Option<(Instant, [u8; LENGTH])>,
    heard: Vec<u8>,
}

impl Talk {
    fn open(from: IpAddr, to: SocketAddr) -> io::Result<Self> {
        let mut stream = tcp::connect_from(Some(from), to, io_deadline())?;
        let mut byte = [0];
        while byte != *b"\n" {
            stream.read_exact(&mut byte)?;
        }
        stream.set_nonblocking(true)?;
        Ok(Self { stream, said: None, heard: Vec::new() })
    }

    fn say(&mut self, number: u64) -> io::Result<()> {
        let mut words = [0; LENGTH];
        write!(&mut words[..], "{:07};", number % 10_000_000)?;
        self.stream.write_all(&words)?;
        self.said = Some((Instant::now(), words));
        Ok(())
    }

    /// Latency of the echo, once it is complete.
    fn hear(&mut self) -> io::Result<Option<Duration>> {
        let mut buffer = [0; LENGTH];
        while let Some((since, words)) = self.said {
            match self.stream.read(&mut buffer[..LENGTH - self.heard.len()]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(size) => self.heard.extend_from_slice(&buffer[..size]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            if self.heard.len() == LENGTH {
                if self.heard != words {
                    return Err(io::Error::other(format!("{:?} came back as {:?}", words, self.heard)));
                }
                self.said = None;
                self.heard.clear();
                return Ok(Some(since.elapsed()));
            }
        }
        // Nothing is due, so only the end can arrive.
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Err(io::Error::other("bytes that nobody asked for")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Closes the connection by the protocol of the servers.
    fn close(mut self) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.write_all(&[BYE])?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        if rest.ends_with(&[BYE]) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Talks {
    /// Exchanges messages until stopped.
    pub(crate) fn run(&self, shared: &Shared) -> Tally {
        let mut running = Running {
            plan: self,
            poll: Poll::new().expect("epoll"),
            tally: Tally::new("messages on long-lived connections"),
            talks: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
        };
        for _ in 0..self.count {
            running.open();
            shared.started.fetch_add(1, Ordering::SeqCst);
        }
        running.run(shared);
        running.tally
    }
}

struct Running<'a> {
    plan: &'a Talks,
    poll: Poll,
    tally: Tally,
    talks: HashMap<usize, Talk>,
    /// Connections, oldest first, including those that have ended.
    order: VecDeque<usize>,
    next: usize,
}

impl Running<'_> {
    fn run(&mut self, shared: &Shared) {
        let mut events = Events::with_capacity(1024);
        let mut pace = Pace::new(self.plan.count as f64 / EVERY.as_secs_f64());
        let mut turn = 0;
        while !shared.is_over() {
            while let Some(_due) = pace.next() {
                turn += 1;
                self.say(turn);
            }
            if self.poll.poll(&mut events, Some(pace.wait())).is_err() {
                continue;
            }
            events.iter().for_each(|event| self.hear(event.token().0));
            // One at a time, since each takes a moment in which the others pause.
            let renew = |left: usize| left.checked_sub(1);
            if shared.to_renew.fetch_update(Ordering::SeqCst, Ordering::SeqCst, renew).is_ok() {
                self.renew();
            }
        }
        let all: Vec<usize> = self.talks.keys().copied().collect();
        all.into_iter().for_each(|number| self.close(number));
    }

    fn open(&mut self) {
        let (number, source) = (self.next, self.plan.sources[self.next % self.plan.sources.len()]);
        self.next += 1;
        let began = Instant::now();
        match Talk::open(source, self.plan.to) {
            Ok(talk) => {
                let fd = talk.stream.as_raw_fd();
                self.poll
                    .registry()
                    .register(&mut SourceFd(&fd), Token(number), Interest::READABLE)
                    .expect("epoll");
                self.talks.insert(number, talk);
                self.order.push_back(number);
            }
            Err(error) => self.tally.failure(began, Kind::of(&error), format!("not opened: {error}")),
        }
    }

    /// Sends a message on the next connection in turn, if it exists and has had its echo.
    fn say(&mut self, turn: usize) {
        let Some(&number) = self.order.get(turn % self.plan.count.max(1)) else { return };
        let Some(talk) = self.talks.get_mut(&number) else { return };
        if let Some((since, _)) = talk.said {
            if since.elapsed() > io_deadline() {
                self.fail(number, &io::ErrorKind::TimedOut.into());
            }
        } else if let Err(error) = talk.say(turn as u64) {
            self.fail(number, &error);
        }
    }

    fn hear(&mut self, number: usize) {
        let Some(talk) = self.talks.get_mut(&number) else { return };
        match talk.hear() {
            Ok(Some(took)) => self.tally.success(took),
            Ok(None) => {}
            Err(error) => self.fail(number, &error),
        }
    }

    fn fail(&mut self, number: usize, error: &io::Error) {
        let talk = self.talks.remove(&number);
        let since = talk.and_then(|talk| talk.said).map_or_else(Instant::now, |(since, _)| since);
        self.tally.failure(since, Kind::of(error), format!("long-lived connection {number}: {error}"));
        self.order.retain(|it| *it != number);
    }

    fn renew(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.close(oldest);
        }
        self.open();
    }

    fn close(&mut self, number: usize) {
        let Some(talk) = self.talks.remove(&number) else { return };
        drop(self.poll.registry().deregister(&mut SourceFd(&talk.stream.as_raw_fd())));
        let began = Instant::now();
        if let Err(error) = talk.close() {
            let what = format!("at the end of connection {number}: {error}");
            self.tally.failure(began, Kind::of(&error), what);
        }
    }
}
