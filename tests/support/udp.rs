//! UDP servers and clients with a deadline on every call.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::host::Host;
use super::patience::{eventually, io_deadline, patience};
use super::tcp::Answer;
use super::world::{Family, World};

/// Largest payload that fits in an IPv4 packet: 65,535 - 20 - 8.
pub const LARGEST: usize = 65_507;

/// Interval at which a server checks whether to stop.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// Server on one address, which ends when dropped.
pub struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Answers every datagram with its name and the sender's address.
    pub fn who_am_i(host: &Host, addr: SocketAddr, name: &str) -> Self {
        let name = name.to_owned();
        Self::start(host, addr, move |_, peer| Some(format!("{name} {peer}").into_bytes()))
    }

    /// Starts a [`Server::who_am_i`] on every backend, named `backend-0`, `backend-1` and so on.
    pub fn on_every_backend(world: &World, family: Family, port: u16) -> Vec<Self> {
        let start = |(index, host)| {
            Self::who_am_i(host, SocketAddr::new(family.backend(index), port), &format!("backend-{index}"))
        };
        (0..).zip(&world.backends).map(start).collect()
    }

    /// Sends every datagram back.
    pub fn echo(host: &Host, addr: SocketAddr) -> Self {
        Self::start(host, addr, |datagram, _| Some(datagram.to_vec()))
    }

    /// Receives every datagram without answering.
    pub fn silent(host: &Host, addr: SocketAddr) -> Self {
        Self::start(host, addr, |_, _| None)
    }

    fn start(
        host: &Host,
        addr: SocketAddr,
        answer: impl Fn(&[u8], SocketAddr) -> Option<Vec<u8>> + Send + 'static,
    ) -> Self {
        let socket = eventually("the server's port is free", || host.run(|| UdpSocket::bind(addr)));
        socket.set_read_timeout(Some(STOP_EVERY)).expect("a socket takes a time-out");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = host.spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !stopped.load(Ordering::SeqCst) {
                // Errors are timeouts and ICMP responses to clients that have gone.
                if let Ok((size, peer)) = socket.recv_from(&mut buffer)
                    && let Some(reply) = answer(buffer.get(..size).expect("datagrams fit"), peer)
                {
                    drop(socket.send_to(&reply, peer));
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Client with one source port. Its socket is connected, so that it only receives replies from the address that it
/// queries.
pub struct Client {
    socket: UdpSocket,
}

impl Client {
    /// Client on a host, with one of its addresses.
    pub fn new(host: &Host, from: IpAddr, to: SocketAddr) -> Self {
        Self::bound(host, SocketAddr::new(from, 0), to)
    }

    /// Like [`Client::new`], with a given port.
    pub fn bound(host: &Host, from: SocketAddr, to: SocketAddr) -> Self {
        // The port may still be in use: a program that another test is starting may have inherited a socket of this
        // process.
        let socket =
            eventually("the client's address and port are there", || host.run(|| UdpSocket::bind(from)));
        socket.connect(to).expect("the gateway is routed");
        socket.set_read_timeout(Some(io_deadline())).expect("a socket takes a time-out");
        Self { socket }
    }

    /// Source address.
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr().expect("a bound socket has an address")
    }

    /// Sends a datagram without waiting. Errors may belong to earlier ones, as reported by ICMP.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(datagram)?;
        assert_eq!(sent, datagram.len(), "datagrams are sent whole");
        Ok(())
    }

    /// Sends a datagram and receives one.
    pub fn exchange(&self, datagram: &[u8]) -> io::Result<Vec<u8>> {
        self.send(datagram)?;
        self.receive()
    }

    /// Queries a [`Server::who_am_i`].
    pub fn ask(&self) -> io::Result<Answer> {
        Answer::parse(&String::from_utf8_lossy(&self.exchange(b"?")?))
    }

    /// Like [`Client::ask`] with a short deadline, for a moment without answers, so that the caller can retry.
    pub fn ask_briefly(&self) -> io::Result<Answer> {
        self.send(b"?")?;
        Answer::parse(&String::from_utf8_lossy(&self.receive_briefly()?))
    }

    /// Like [`Client::receive`], with a short deadline.
    pub fn receive_briefly(&self) -> io::Result<Vec<u8>> {
        self.socket.set_read_timeout(Some(patience(0.5)))?;
        let datagram = self.receive();
        self.socket.set_read_timeout(Some(io_deadline()))?;
        datagram
    }

    /// Sends a datagram and expects neither an answer nor an ICMP error for `time`.
    pub fn expect_silence(&self, time: Duration) {
        self.socket.send(b"?").expect("sending needs nobody");
        self.socket.set_read_timeout(Some(time)).expect("a socket takes a time-out");
        let error = self.receive().expect_err("nobody answers");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "silence, not an error: {error}");
        self.socket.set_read_timeout(Some(io_deadline())).expect("a socket takes a time-out");
    }

    /// Receives one datagram.
    pub fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        let size = self.socket.recv(&mut buffer)?;
        buffer.truncate(size);
        Ok(buffer)
    }
}
