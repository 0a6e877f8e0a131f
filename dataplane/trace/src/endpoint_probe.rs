//! Probes of endpoints: whether one accepts a connection or answers a datagram, and what it does then.
//!
//! One thread probes many at once: [`ROOM`] sockets are open at a time, and each ends by its own deadline or by that of all.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::unseen::Errno;

/// How many endpoints are probed at once.
pub const ROOM: usize = 64;
/// How much of an answer is read at a time.
const READ: usize = 16 << 10;

/// Probe by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpProbe<'a> {
    /// The source address; `None`: the kernel chooses it.
    pub from: Option<IpAddr>,
    /// Bytes that are sent once connected, for example a PROXY header or a request.
    pub send: Option<&'a [u8]>,
    /// How long a connection may take.
    pub timeout: Duration,
    /// How long the connection is watched then.
    pub linger: Duration,
}

/// Result of a probe by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpProbed {
    /// The endpoint accepted the connection.
    Connected {
        /// Time that it took.
        after: Duration,
        /// Bytes that the endpoint sent while it was watched.
        received: usize,
        /// Outcome of the connection.
        end: End,
    },
    /// The endpoint or a packet filter refused it with a reset or ICMP port unreachable.
    Refused,
    /// Nothing answered.
    Silent,
    /// A router or this machine's kernel reported that the endpoint cannot be reached.
    Unreachable(Errno),
    /// The probe could not be sent: for example, the source address is not on this machine, or no socket is left.
    NotSent(Errno),
    /// The deadline of all probes was over before its turn.
    NotTried,
}

/// Behaviour of a connection while it is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Stays open.
    Open,
    /// The endpoint closes it, this long after it was established.
    Closed(Duration),
    /// The endpoint resets it, this long after it was established.
    Reset(Duration),
}

/// Probe by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpProbe<'a> {
    /// The source address; `None`: the kernel chooses it.
    pub from: Option<IpAddr>,
    /// Datagram that is sent.
    pub send: &'a [u8],
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Result of a probe by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpProbed {
    /// Something answered.
    Answered {
        /// From there, which may be another address or port than the endpoint's.
        from: SocketAddr,
        /// Time that it took.
        after: Duration,
        /// Length of the answer.
        bytes: usize,
    },
    /// ICMP port unreachable.
    Refused,
    /// Nothing answered. Many servers ignore what they do not understand, so this says nothing.
    Silent,
    /// A router or this machine's kernel reported that the endpoint cannot be reached.
    Unreachable(Errno),
    /// The probe could not be sent.
    NotSent(Errno),
    /// The deadline of all probes was over before its turn.
    NotTried,
}

/// Probes endpoints by TCP; the results are in their order.
pub fn tcp_all(endpoints: &[SocketAddr], probe: &TcpProbe<'_>, within: Duration) -> Vec<TcpProbed> {
    let begin = |endpoint| match TcpAttempt::begin(endpoint, probe) {
        Ok(attempt) => Begun::Waits(attempt),
        Err(error) => Begun::Over(tcp_failed(&error)),
    };
    run(endpoints, within, TcpProbed::NotTried, begin)
}

/// Probes endpoints by UDP, from sockets that take answers from anywhere; the results are in their order.
pub fn udp_all(endpoints: &[SocketAddr], probe: &UdpProbe<'_>, within: Duration) -> Vec<UdpProbed> {
    let begin = |endpoint: SocketAddr| match UdpAttempt::begin(endpoint, probe) {
        Ok(attempt) => Begun::Waits(attempt),
        Err(error) => Begun::Over(match read_error(&error) {
            Failure::Refused => UdpProbed::Refused,
            Failure::Unreachable(errno) => UdpProbed::Unreachable(errno),
            Failure::Other(errno) => UdpProbed::NotSent(errno),
        }),
    };
    run(endpoints, within, UdpProbed::NotTried, begin)
}

/// A probe that waits for something.
trait Attempt {
    type Result: Copy;

    fn socket(&self) -> &Socket;
    /// Awaited events, and the deadline.
    fn waits_for(&self) -> (PollFlags, Instant);
    /// Continues when that has happened.
    fn on_ready(&mut self) -> Option<Self::Result>;
    /// The result when the time is over.
    fn on_timeout(&self) -> Self::Result;
}

enum Begun<A: Attempt> {
    Waits(A),
    Over(A::Result),
}

/// Runs the probes, [`ROOM`] at a time.
fn run<A: Attempt>(
    endpoints: &[SocketAddr],
    within: Duration,
    not_tried: A::Result,
    begin: impl Fn(SocketAddr) -> Begun<A>,
) -> Vec<A::Result> {
    let deadline = Instant::now() + within;
    let mut results = vec![not_tried; endpoints.len()];
    let mut waiting: VecDeque<(usize, SocketAddr)> = endpoints.iter().copied().enumerate().collect();
    let mut open: Vec<(usize, A)> = Vec::new();
    loop {
        while open.len() < ROOM
            && Instant::now() < deadline
            && let Some((place, endpoint)) = waiting.pop_front()
        {
            match begin(endpoint) {
                Begun::Waits(attempt) => open.push((place, attempt)),
                Begun::Over(result) => results[place] = result,
            }
        }
        if open.is_empty() {
            return results;
        }
        let ready = wait(&open, deadline);
        let mut places = ready.iter();
        open.retain_mut(|(place, attempt)| {
            let is_ready = places.next().copied().unwrap_or(false);
            let result = if is_ready { attempt.on_ready() } else { None };
            let over = attempt.waits_for().1.min(deadline) <= Instant::now();
            match result.or_else(|| over.then(|| attempt.on_timeout())) {
                Some(result) => {
                    results[*place] = result;
                    false
                }
                None => true,
            }
        });
    }
}

/// Which of the probes can continue; ends when the time of one is over.
fn wait<A: Attempt>(open: &[(usize, A)], deadline: Instant) -> Vec<bool> {
    let until = open.iter().map(|(_, attempt)| attempt.waits_for().1).min().unwrap_or(deadline).min(deadline);
    let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
    let mut sockets: Vec<PollFd<'_>> =
        open.iter().map(|(_, attempt)| PollFd::new(attempt.socket(), attempt.waits_for().0)).collect();
    match poll(&mut sockets, left.as_ref()) {
        Ok(_) => sockets.iter().map(|socket| !socket.revents().is_empty()).collect(),
        // Interrupted; the next pass waits again.
        Err(_) => vec![false; open.len()],
    }
}

struct TcpAttempt<'a> {
    socket: Socket,
    probe: TcpProbe<'a>,
    begun: Instant,
    /// When and after how long it was connected.
    connected: Option<(Instant, Duration)>,
    received: usize,
}

impl<'a> TcpAttempt<'a> {
    fn begin(endpoint: SocketAddr, probe: &TcpProbe<'a>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(endpoint), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        report_icmp(&socket, endpoint)?;
        if let Some(from) = probe.from {
            // The kernel chooses a port when it knows the destination, so that none runs out.
            setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        let begun = Instant::now();
        match socket.connect(&endpoint.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        Ok(Self { socket, probe: *probe, begun, connected: None, received: 0 })
    }

    fn on_connected(&mut self) -> Option<TcpProbed> {
        let now = Instant::now();
        match self.socket.take_error() {
            Ok(None) => self.connected = Some((now, now.duration_since(self.begun))),
            // A connection that is not established is refused; this one was reset since (`tcp_reset` in net/ipv4/tcp_input.c).
            Ok(Some(error)) if is_reset(&error) => {
                self.connected = Some((now, now.duration_since(self.begun)));
                return Some(self.over(End::Reset(Duration::ZERO)));
            }
            Ok(Some(error)) | Err(error) => return Some(tcp_failed(&error)),
        }
        if let Some(bytes) = self.probe.send
            && let Err(error) = self.socket.send_with_flags(bytes, libc::MSG_NOSIGNAL)
            && is_reset(&error)
        {
            return Some(self.over(End::Reset(now.elapsed())));
        }
        None
    }

    fn on_data(&mut self, since: Instant) -> Option<TcpProbed> {
        let mut buffer = [0; READ];
        match (&self.socket).read(&mut buffer) {
            Ok(0) => Some(self.over(End::Closed(since.elapsed()))),
            Ok(length) => {
                self.received += length;
                None
            }
            Err(error) if is_reset(&error) => Some(self.over(End::Reset(since.elapsed()))),
            // Nothing waits, or ICMP reported something that leaves the connection open.
            Err(_) => None,
        }
    }

    fn over(&self, end: End) -> TcpProbed {
        let after = self.connected.map_or(Duration::ZERO, |(_, after)| after);
        TcpProbed::Connected { after, received: self.received, end }
    }
}

impl Attempt for TcpAttempt<'_> {
    type Result = TcpProbed;

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn waits_for(&self) -> (PollFlags, Instant) {
        match self.connected {
            None => (PollFlags::OUT, self.begun + self.probe.timeout),
            Some((since, _)) => (PollFlags::IN, since + self.probe.linger),
        }
    }

    fn on_ready(&mut self) -> Option<TcpProbed> {
        match self.connected {
            None => self.on_connected(),
            Some((since, _)) => self.on_data(since),
        }
    }

    fn on_timeout(&self) -> TcpProbed {
        if self.connected.is_some() { self.over(End::Open) } else { TcpProbed::Silent }
    }
}

/// Has a socket hear of every ICMP report at once. Without that, TCP keeps most of them to itself until it gives up, and even "port
/// unreachable" if it arrives while the program is still in connect(2) (`tcp_v4_err` in net/ipv4/tcp_ipv4.c, `tcp_v6_err`).
fn report_icmp(socket: &Socket, endpoint: SocketAddr) -> io::Result<()> {
    match endpoint {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4RecvErr, &true)?,
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvErr, &true)?,
    }
    Ok(())
}

fn tcp_failed(error: &io::Error) -> TcpProbed {
    match read_error(error) {
        Failure::Refused => TcpProbed::Refused,
        Failure::Unreachable(errno) => TcpProbed::Unreachable(errno),
        Failure::Other(Errno(libc::ETIMEDOUT)) => TcpProbed::Silent,
        Failure::Other(errno) => TcpProbed::NotSent(errno),
    }
}

struct UdpAttempt {
    socket: Socket,
    begun: Instant,
    until: Instant,
}

impl UdpAttempt {
    /// The socket is not connected, and so takes answers from other ports; it hears of ICMP all the same by IP_RECVERR
    /// (`__udp4_lib_err` in net/ipv4/udp.c).
    fn begin(endpoint: SocketAddr, probe: &UdpProbe<'_>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(endpoint), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        report_icmp(&socket, endpoint)?;
        let any: IpAddr = match endpoint {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        socket.bind(&SocketAddr::new(probe.from.unwrap_or(any), 0).into())?;
        socket.send_to(probe.send, &endpoint.into())?;
        let begun = Instant::now();
        Ok(Self { socket, begun, until: begun + probe.timeout })
    }

    fn receive(&self) -> io::Result<(usize, Option<SocketAddr>)> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); READ];
        let (length, from) = self.socket.recv_from(&mut buffer)?;
        Ok((length, from.as_socket()))
    }
}

impl Attempt for UdpAttempt {
    type Result = UdpProbed;

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn waits_for(&self) -> (PollFlags, Instant) {
        (PollFlags::IN, self.until)
    }

    fn on_ready(&mut self) -> Option<UdpProbed> {
        match self.receive() {
            Ok((bytes, Some(from))) => Some(UdpProbed::Answered { from, after: self.begun.elapsed(), bytes }),
            Ok((_, None)) => None,
            Err(error) => match (error.kind(), read_error(&error)) {
                (io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _) => None,
                (_, Failure::Refused) => Some(UdpProbed::Refused),
                (_, Failure::Unreachable(errno) | Failure::Other(errno)) => {
                    Some(UdpProbed::Unreachable(errno))
                }
            },
        }
    }

    fn on_timeout(&self) -> UdpProbed {
        UdpProbed::Silent
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE))
}

enum Failure {
    Refused,
    Unreachable(Errno),
    Other(Errno),
}

/// Errors that ICMP and missing routes cause (`icmp_err_convert` in net/ipv4/icmp.c, `tab_unreach` in net/ipv6/icmp.c).
fn read_error(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Failure::Refused,
        Some(
            code @ (libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENOPROTOOPT
            | libc::EACCES
            | libc::EPROTO
            | libc::EOPNOTSUPP
            | libc::ENONET
            | libc::EMSGSIZE),
        ) => Failure::Unreachable(Errno(code)),
        _ => Failure::Other(Errno::of(error)),
    }
}
