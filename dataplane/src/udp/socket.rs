//! The sockets of the UDP side, registered with the worker's reactor: the frontend's own, one per flow towards its
//! endpoint, and those that keep a client reachable after its frontend has closed.
//!
//! It must not know flows. No socket here does path MTU discovery: a client cannot hear its verdict.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use socket2::{Domain, Protocol, Type};
use tokio::io::Interest;

use super::batch::BundleLimit;
use crate::model::{ClientAddr, EndpointAddr, FrontendAddr};
use crate::paths::Paths;
use crate::sys::bind_ahead::bind_ahead;
use crate::sys::bind_as_client::bind_as_client;
use crate::sys::{mmsg, reactor};

pub(super) use crate::sys::reactor::Registered as Socket;

/// What a socket is woken for: datagrams and ICMP errors. Not for room to send: each datagram that leaves would wake the
/// worker to tell it so.
pub(super) const READABLE: Interest = Interest::READABLE.add(Interest::ERROR);

/// Room for a burst of datagrams while the worker is busy; the kernel caps it at net.core.rmem_max, and takes memory
/// only for what waits.
pub(crate) const RECEIVE_BUFFER: usize = 4 << 20;

/// What the kernel can do for us, asked once per worker, and by which interfaces endpoints are reached.
#[derive(Debug)]
pub(super) struct Offload {
    paths: Arc<Paths>,
    gro: Cell<bool>,
    gso: Cell<Option<bool>>,
}

impl Offload {
    /// Assumes the best until a socket says otherwise.
    pub(super) fn new(paths: Arc<Paths>) -> Self {
        Self { paths, gro: Cell::new(true), gso: Cell::new(None) }
    }

    /// What to assume of a path that has not refused a bundle yet.
    pub(super) fn initial_limit(&self) -> BundleLimit {
        if self.gso.get() == Some(true) { BundleLimit::UNKNOWN } else { BundleLimit::NONE }
    }

    /// Turns on what the kernel has, and registers the socket.
    fn register(&self, socket: Arc<socket2::Socket>) -> io::Result<Rc<Socket>> {
        if self.gro.get()
            && let Err(error) = mmsg::enable_gro(&socket)
        {
            self.gro.set(false);
            tracing::info!(%error, "the kernel does not bundle received datagrams (UDP_GRO): going on without");
        }
        if self.gso.get().is_none() {
            let supported = mmsg::segmentation_supported(&socket);
            self.gso.set(Some(supported));
            if !supported {
                tracing::info!("the kernel does not cut bundles to send (UDP_SEGMENT): going on without");
            }
        }
        reactor::register(socket, READABLE).map(Rc::new)
    }

    /// Takes over a frontend's socket, which is bound and nonblocking.
    pub(super) fn listening(&self, socket: Arc<socket2::Socket>) -> io::Result<Rc<Socket>> {
        self.register(socket)
    }

    /// A new socket that talks to one endpoint alone; the kernel drops what others send to it. It speaks from the address
    /// of `speaker`, or from one that the kernel chooses.
    pub(super) fn upstream(&self, endpoint: EndpointAddr, speaker: Option<IpAddr>) -> io::Result<Rc<Socket>> {
        let addr = endpoint.socket_addr();
        let socket = new_socket(Domain::for_address(addr))?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        self.paths.bind(&socket, endpoint.path)?;
        if let Some(client) = speaker {
            bind_as_client(&socket, client)?;
        }
        socket.connect(&addr.into())?;
        self.register(Arc::new(socket))
    }

    /// A new socket on the frontend's address through which clients are answered. It is given no datagrams: those are
    /// steered past it.
    pub(super) fn answering(&self, frontend: FrontendAddr) -> io::Result<Rc<Socket>> {
        let addr = frontend.socket_addr();
        let socket = new_socket(Domain::for_address(addr))?;
        socket.set_reuse_port(true)?;
        bind_ahead(&socket, addr)?;
        self.register(Arc::new(socket))
    }

    /// A new socket on the frontend's address that talks to one client alone. It stands beside the frontend's own sockets
    /// (`SO_REUSEPORT`), and the kernel prefers it for that client, connected sockets scoring higher
    /// (`compute_score` in net/ipv4/udp.c). Between the two calls here it may be given a datagram of anyone.
    pub(super) fn towards_client(
        &self,
        frontend: FrontendAddr,
        client: ClientAddr,
    ) -> io::Result<Rc<Socket>> {
        let addr = frontend.socket_addr();
        let socket = new_socket(Domain::for_address(addr))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        bind_ahead(&socket, addr)?;
        socket.connect(&client.0.into())?;
        self.register(Arc::new(socket))
    }
}

fn new_socket(domain: Domain) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    mmsg::allow_fragments(&socket, domain)?;
    Ok(socket)
}

/// Whether an error says that the peer is not there, as ICMP or as the lack of a route: then another may be.
pub(super) fn tells_of_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
    )
}
