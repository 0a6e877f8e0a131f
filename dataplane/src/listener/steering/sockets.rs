//! Sockets that receive steered packets: for each protocol and address family one per worker, among which the kernel
//! selects as in any `SO_REUSEPORT` group, and a sink that drops everything.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use socket2::{Domain, Socket};

use crate::listener::allowed_sources::Family;
use crate::listener::open::{bound, listen};
use crate::listener::sk_lookup::SOCKET_KINDS;
use crate::listener::source_filter::SourceFilter;
use crate::sys::bpf::SocketFilter;
use crate::sys::bpf::instruction::{Instruction, Register};
use crate::sys::mmsg;
use sheave_model::{FrontendAddr, Protocol};

/// Combination of protocol and address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketKind {
    protocol: Protocol,
    family: Family,
}

impl SocketKind {
    /// Number of kinds.
    pub(super) const COUNT: usize = SOCKET_KINDS as usize;

    /// The kind of a frontend's packets.
    pub(super) fn of(addr: FrontendAddr) -> Self {
        Self { protocol: addr.protocol, family: Family::of(addr.ip) }
    }

    /// Index in the program's map of sockets: IPv4 before IPv6, TCP before UDP.
    pub(super) fn index(self) -> usize {
        usize::from(self.family == Family::V6) + 2 * usize::from(self.protocol == Protocol::Udp)
    }
}

/// The sockets of one kind.
#[derive(Debug)]
pub(super) struct SteeringSockets {
    /// Address that the sockets are bound to.
    pub(super) addr: FrontendAddr,
    /// One socket per worker.
    pub(super) sockets: Vec<Arc<Socket>>,
    /// Socket that drops all packets.
    pub(super) sink: Arc<Socket>,
}

impl SteeringSockets {
    /// Opens the sockets on a loopback address and a port that the kernel chooses, where no client connects.
    ///
    /// # Errors
    /// Returns an error if socket(2), setsockopt(2), bind(2), listen(2) or bpf(2) fails.
    pub(super) fn open(kind: SocketKind, workers: usize) -> io::Result<Self> {
        let SocketKind { protocol, family } = kind;
        // If sharing were requested first, the kernel could choose a port that others share already.
        let first = bound(protocol, any_loopback_port(family), false, &SourceFilter::Everyone)?;
        let addr = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        first.set_reuse_port(true)?;
        let mut sockets = vec![first];
        for _ in 1..workers {
            sockets.push(bound(protocol, addr, true, &SourceFilter::Everyone)?);
        }
        if protocol == Protocol::Udp {
            let domain = Domain::for_address(addr);
            sockets.iter().try_for_each(|socket| mmsg::report_destination(socket, domain))?;
        }
        listen(protocol, &sockets)?;
        Self::with(kind, sockets)
    }

    /// Uses sockets of the previous process, which listen already, with everything in their queues.
    ///
    /// # Errors
    /// Returns an error if the sink cannot be opened, as in [`open`](Self::open).
    pub(super) fn with(kind: SocketKind, sockets: Vec<Socket>) -> io::Result<Self> {
        let SocketKind { protocol, family } = kind;
        let first = sockets.first().ok_or(io::ErrorKind::InvalidInput)?;
        let addr = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let addr = FrontendAddr { ip: addr.ip(), port: addr.port(), protocol };
        let sockets = sockets.into_iter().map(Arc::new).collect();
        Ok(Self { addr, sockets, sink: Arc::new(sink(protocol, family)?) })
    }
}

fn sink(protocol: Protocol, family: Family) -> io::Result<Socket> {
    // Not a classic program, which requires another capability on TCP sockets than steering does.
    let drop_all = [Instruction::set(Register::Answer, 0), Instruction::exit()];
    let filter = SourceFilter::Shared(Arc::new(SocketFilter::load(&drop_all, "sheave_sink")?));
    let socket = bound(protocol, any_loopback_port(family), false, &filter)?;
    listen(protocol, std::slice::from_ref(&socket))?;
    Ok(socket)
}

fn any_loopback_port(family: Family) -> SocketAddr {
    let ip: IpAddr = match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, 0)
}
