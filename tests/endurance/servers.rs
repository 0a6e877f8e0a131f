//! Endpoints: one thread that serves TCP and UDP at many addresses, since thousands of connections per second do not allow a thread
//! each.
//!
//! A TCP client gets `NAME PEER\n` and then an echo. After a `.` the server closes first, so that neither client nor gateway keeps
//! the port (TIME_WAIT). A datagram is answered with `NAME PEER DATAGRAM`.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, Socket, Type};

use crate::support::host::Host;
use crate::support::patience::eventually;

/// Byte after which the server closes.
pub(crate) const BYE: u8 = b'.';

const STOP_EVERY: Duration = Duration::from_millis(100);

/// Location of an endpoint.
pub(crate) struct Site<'w> {
    pub(crate) host: &'w Host,
    /// Address, for TCP and UDP.
    pub(crate) addr: SocketAddr,
    /// Name in its answers.
    pub(crate) name: String,
}

/// Counts of all endpoints so far. Bytes and datagrams are counted as received and as sent.
#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    bytes: [AtomicU64; 2],
    datagrams: [AtomicU64; 2],
    datagram_bytes: [AtomicU64; 2],
}

/// Counts of connections, their bytes, datagrams, and their bytes; the pairs are received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Connections.
    pub(crate) connections: u64,
    /// Bytes of connections.
    pub(crate) bytes: [u64; 2],
    /// Datagrams.
    pub(crate) datagrams: [u64; 2],
    /// Bytes of datagrams.
    pub(crate) datagram_bytes: [u64; 2],
}

impl Counters {
    fn add(pair: &[AtomicU64; 2], came: usize, went: usize) {
        pair[0].fetch_add(came as u64, Ordering::Relaxed);
        pair[1].fetch_add(went as u64, Ordering::Relaxed);
    }
}

/// Running endpoints, which end when dropped.
pub(crate) struct Servers {
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Servers {
    /// Serves at each site.
    pub(crate) fn start(sites: &[Site<'_>]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut serving = Serving::new(Arc::clone(&stop));
        for Site { host, addr, name } in sites {
            let (tcp, udp) = eventually("the endpoint's port is free", || host.run(|| bind(*addr)));
            serving.add(tcp, udp, name);
        }
        let counters = Arc::clone(&serving.counters);
        let thread = std::thread::spawn(move || serving.run());
        Self { counters, stop, thread: Some(thread) }
    }

    /// Counts so far.
    pub(crate) fn seen(&self) -> Seen {
        let Counters { connections, bytes, datagrams, datagram_bytes } = &*self.counters;
        let pair = |pair: &[AtomicU64; 2]| [0, 1].map(|it: usize| pair[it].load(Ordering::Relaxed));
        Seen {
            connections: connections.load(Ordering::Relaxed),
            bytes: pair(bytes),
            datagrams: pair(datagrams),
            datagram_bytes: pair(datagram_bytes),
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn bind(addr: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    let udp = UdpSocket::bind(addr)?;
    udp.set_nonblocking(true)?;
    Ok((TcpListener::from_std(socket.into()), udp))
}

struct Serving {
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    poll: Poll,
    listeners: Vec<(TcpListener, String)>,
    sockets: Vec<(mio::net::UdpSocket, String)>,
    connections: HashMap<usize, TcpStream>,
    next: usize,
    buffer: Vec<u8>,
}

/// Lower tokens are of listeners (even) and datagram sockets (odd).
const FIRST_CONNECTION: usize = 1 << 20;

impl Serving {
    fn new(stop: Arc<AtomicBool>) -> Self {
        let poll = Poll::new().expect("epoll");
        let (listeners, sockets) = (Vec::new(), Vec::new());
        let (connections, next, buffer) = (HashMap::new(), FIRST_CONNECTION, vec![0; 65_536]);
        let counters = Arc::default();
        Self { counters, stop, poll, listeners, sockets, connections, next, buffer }
    }

    fn add(&mut self, mut tcp: TcpListener, udp: UdpSocket, name: &str) {
        let (number, mut udp) = (self.listeners.len(), mio::net::UdpSocket::from_std(udp));
        let registry = self.poll.registry();
        registry.register(&mut tcp, Token(2 * number), Interest::READABLE).expect("epoll takes a socket");
        registry.register(&mut udp, Token(2 * number + 1), Interest::READABLE).expect("epoll takes a socket");
        self.listeners.push((tcp, name.to_owned()));
        self.sockets.push((udp, name.to_owned()));
    }

    fn run(&mut self) {
        let mut events = Events::with_capacity(1024);
        while !self.stop.load(Ordering::SeqCst) {
            if self.poll.poll(&mut events, Some(STOP_EVERY)).is_err() {
                continue;
            }
            for token in events.iter().map(mio::event::Event::token) {
                match token.0 {
                    number if number >= FIRST_CONNECTION => self.talk(number),
                    number if number % 2 == 0 => self.accept(number / 2),
                    number => self.answer(number / 2),
                }
            }
        }
    }

    fn accept(&mut self, number: usize) {
        while let Some((listener, name)) = self.listeners.get(number)
            && let Ok((mut stream, peer)) = listener.accept()
        {
            let token = self.next;
            self.next += 1;
            let greeting = format!("{name} {peer}\n");
            self.counters.connections.fetch_add(1, Ordering::Relaxed);
            Counters::add(&self.counters.bytes, 0, greeting.len());
            let greeted = stream.set_nodelay(true).and_then(|()| stream.write_all(greeting.as_bytes()));
            let watched = self.poll.registry().register(&mut stream, Token(token), Interest::READABLE);
            if greeted.and(watched).is_ok() {
                self.connections.insert(token, stream);
                self.talk(token);
            }
        }
    }

    fn talk(&mut self, token: usize) {
        let Some(stream) = self.connections.get_mut(&token) else { return };
        let over = loop {
            match stream.read(&mut self.buffer) {
                Ok(0) => break true,
                Ok(size) => {
                    let said = &self.buffer[..size];
                    Counters::add(&self.counters.bytes, size, size);
                    if stream.write_all(said).is_err() || said.contains(&BYE) {
                        break true;
                    }
                }
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        if over {
            self.connections.remove(&token);
        }
    }

    fn answer(&mut self, number: usize) {
        let Some((socket, name)) = self.sockets.get(number) else { return };
        loop {
            match socket.recv_from(&mut self.buffer) {
                Ok((size, peer)) => {
                    let mut answer = format!("{name} {peer} ").into_bytes();
                    answer.extend_from_slice(&self.buffer[..size]);
                    Counters::add(&self.counters.datagrams, 1, 1);
                    Counters::add(&self.counters.datagram_bytes, size, answer.len());
                    drop(socket.send_to(&answer, peer));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // ICMP errors about clients that are gone.
                Err(_) => {}
            }
        }
    }
}
