//! Answers every byte with its complement, on one thread for any number of connections. On one of its three ports it
//! closes after one request.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use sheave_test_support::host::Host;

use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::{ECHO, MANY, ONCE, ONCE_LEN};
use crate::topology::SERVER;

const ECHO_LISTENER: Token = Token(0);
const ONCE_LISTENER: Token = Token(1);
const MANY_LISTENER: Token = Token(2);
const FIRST_PEER: usize = 3;

/// Client that connected last.
static LAST_CLIENT: AtomicU32 = AtomicU32::new(0);

/// Source address of the last connection to any echo server.
pub(crate) fn last_client() -> Ipv4Addr {
    Ipv4Addr::from(LAST_CLIENT.load(Ordering::Relaxed))
}

pub(super) fn start(server: &Host) -> Result<(), Failure> {
    let mut service = server.run(Service::listen)?;
    let serve = move || {
        if let Err(error) = service.serve() {
            // Later loads fail for lack of answers, and report it.
            eprintln!("compare: the echo server ended: {error}");
        }
    };
    server.spawn(serve);
    Ok(())
}

/// Lifetime of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    UntilClientCloses,
    OneRequest,
}

/// Whether to keep a connection.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
enum Next {
    Keep,
    Close,
}

struct Peer {
    stream: TcpStream,
    lifetime: Lifetime,
    answered: usize,
    /// Bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
}

struct Service {
    poll: Poll,
    echo: TcpListener,
    once: TcpListener,
    many: TcpListener,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    scratch: Vec<u8>,
}

impl Service {
    fn listen() -> Result<Self, Failure> {
        let open = |address, port| {
            let listener = super::listen(address, port)?;
            listener.set_nonblocking(true).during("make a listener non-blocking")?;
            Ok(TcpListener::from_std(listener))
        };
        let (mut echo, mut once) = (open(SERVER, ECHO)?, open(SERVER, ONCE)?);
        let mut many = open(Ipv4Addr::UNSPECIFIED, MANY)?;
        let poll = Poll::new().during("make a poll")?;
        for (listener, token) in
            [(&mut echo, ECHO_LISTENER), (&mut once, ONCE_LISTENER), (&mut many, MANY_LISTENER)]
        {
            poll.registry().register(listener, token, Interest::READABLE).during("poll a listener")?;
        }
        Ok(Self { poll, echo, once, many, peers: Vec::new(), free: Vec::new(), scratch: vec![0; 65_536] })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                match event.token() {
                    listener @ (ECHO_LISTENER | ONCE_LISTENER | MANY_LISTENER) => self.accept(listener)?,
                    Token(token) => self.answer(token - FIRST_PEER, event.is_read_closed()),
                }
            }
        }
    }

    fn accept(&mut self, listener: Token) -> io::Result<()> {
        let (listener, lifetime) = match listener {
            ONCE_LISTENER => (&self.once, Lifetime::OneRequest),
            MANY_LISTENER => (&self.many, Lifetime::UntilClientCloses),
            _ => (&self.echo, Lifetime::UntilClientCloses),
        };
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, client)) => {
                    if let IpAddr::V4(client) = client.ip() {
                        LAST_CLIENT.store(client.into(), Ordering::Relaxed);
                    }
                    stream
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            let index = self.free.pop().unwrap_or(self.peers.len());
            let token = Token(index + FIRST_PEER);
            self.poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
            let peer = Some(Peer { stream, lifetime, answered: 0, unsent: Vec::new() });
            match self.peers.get_mut(index) {
                Some(slot) => *slot = peer,
                None => self.peers.push(peer),
            }
        }
    }

    fn answer(&mut self, index: usize, to_the_end: bool) {
        let Some(slot) = self.peers.get_mut(index) else { return };
        let Some(peer) = slot.as_mut() else { return };
        // The client reports broken connections.
        if matches!(peer.answer(&mut self.scratch, to_the_end), Ok(Next::Keep)) {
            return;
        }
        *slot = None;
        self.free.push(index);
    }
}

impl Peer {
    /// Answers what is available. A read that did not fill the buffer has emptied the socket (epoll(7)), so there is no
    /// further read, unless the client has closed and the end is still to be read.
    fn answer(&mut self, scratch: &mut [u8], to_the_end: bool) -> io::Result<Next> {
        if self.flush()? == Flush::Waits {
            return Ok(Next::Keep);
        }
        loop {
            let len = match self.stream.read(scratch) {
                Ok(0) => return Ok(Next::Close),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::Keep),
                Err(error) => return Err(error),
            };
            pattern::complement(&mut scratch[..len]);
            self.answered += len;
            if self.send(&scratch[..len])? == Flush::Waits {
                return Ok(Next::Keep);
            }
            if self.lifetime == Lifetime::OneRequest && self.answered >= ONCE_LEN {
                return Ok(Next::Close);
            }
            if len < scratch.len() && !to_the_end {
                return Ok(Next::Keep);
            }
        }
    }

    fn send(&mut self, answer: &[u8]) -> io::Result<Flush> {
        let sent = match self.stream.write(answer) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if sent == answer.len() {
            return Ok(Flush::Done);
        }
        self.unsent.extend_from_slice(&answer[sent..]);
        Ok(Flush::Waits)
    }

    fn flush(&mut self) -> io::Result<Flush> {
        if self.unsent.is_empty() {
            return Ok(Flush::Done);
        }
        let waiting = std::mem::take(&mut self.unsent);
        self.send(&waiting)
    }
}

/// Whether the socket has accepted everything.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
enum Flush {
    Done,
    Waits,
}
