//! Sockets of UDP and their options: the frontend's, and one per flow towards its endpoint. None does path MTU discovery, since a client
//! could not see the result.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use super::batch::BundleLimit;
use super::flow_table::FlowOwner;
use super::local_ports::{Crowding, LocalPorts, PortLease, claim};
use crate::paths::Paths;
use crate::sys::bind::{bind_freebind, bind_transparent_udp};
use crate::sys::sockets::UDP_RECEIVE_BUFFER;
use crate::sys::{Errno, mmsg};
use crate::upstream_addresses::{KnownAddress, UpstreamAddresses};
use sheave_model::{ClientAddr, EndpointAddr, FrontendAddr};

/// Maximum number of ports tried before a flow is refused: other programs of the machine may use some.
const BIND_ATTEMPTS: usize = 8;

/// Offload features of the kernel, detected once per worker, and the network paths and ports towards endpoints.
#[derive(Debug)]
pub(super) struct Offload {
    paths: Arc<Paths>,
    ports: Rc<LocalPorts>,
    addresses: Arc<UpstreamAddresses>,
    gro: Cell<bool>,
    gso: Cell<Option<bool>>,
}

impl Offload {
    /// Assumes receive offload until a socket refuses it.
    pub(super) fn new(paths: Arc<Paths>, ports: Rc<LocalPorts>, addresses: Arc<UpstreamAddresses>) -> Self {
        Self { paths, ports, addresses, gro: Cell::new(true), gso: Cell::new(None) }
    }

    /// Limit for a path that has not refused a bundle yet.
    pub(super) fn initial_limit(&self) -> BundleLimit {
        if self.gso.get() == Some(true) { BundleLimit::UNKNOWN } else { BundleLimit::NONE }
    }

    /// Lets the kernel bundle the datagrams that the socket receives.
    fn enable_gro(&self, socket: &Socket) {
        if self.gro.get()
            && let Err(error) = mmsg::enable_gro(socket)
        {
            self.gro.set(false);
            tracing::info!(%error, "the kernel does not bundle received datagrams (UDP_GRO): going on without");
        }
    }

    /// Enables receive bundles, and detects whether the kernel supports bundles for sending.
    pub(super) fn prepare(&self, socket: &Socket) {
        self.enable_gro(socket);
        if self.gso.get().is_none() {
            let supported = mmsg::segmentation_supported(socket);
            self.gso.set(Some(supported));
            if !supported {
                tracing::info!("the kernel does not cut bundles to send (UDP_SEGMENT): going on without");
            }
        }
    }

    /// Opens a socket that is connected to one endpoint for a client; the kernel drops datagrams of other senders. Its local address is
    /// `source`, with that port if it is free, or one that the kernel or the pool chooses.
    ///
    /// # Errors
    /// Returns an error if socket(2), setsockopt(2), bind(2) or connect(2) fails.
    /// [`is_out_of_udp_ports`](crate::sys::errnos::is_out_of_udp_ports) recognizes the error if all ports towards the endpoint are in use.
    pub(super) fn upstream(
        &self,
        endpoint: EndpointAddr,
        client: ClientAddr,
        source: Option<SocketAddr>,
        owner: &Weak<dyn FlowOwner>,
    ) -> io::Result<Rc<Upstream>> {
        let addr = endpoint.socket_addr();
        for _ in 0..BIND_ATTEMPTS {
            let lease = match source {
                Some(_) => None,
                None => Some(self.lease(endpoint, client, owner).ok_or(Errno::EADDRNOTAVAIL)?),
            };
            let socket = new_socket(Domain::for_address(addr))?;
            // Set before the first answer, which may be a burst.
            socket.set_recv_buffer_size(UDP_RECEIVE_BUFFER)?;
            self.paths.bind(&socket, endpoint.path)?;
            match (source, lease.as_ref().and_then(PortLease::port)) {
                (Some(source), _) => {
                    let port = if self.ports.gives(source.port()) { source.port() } else { 0 };
                    bind_transparent_udp(&socket, source.ip(), port)?;
                }
                (None, Some(port)) => match bind_shared(&socket, endpoint.ip, port) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                    bound => bound?,
                },
                (None, None) => {}
            }
            socket.connect(&addr.into())?;
            let known = match source {
                Some(_) => None,
                None => self.make_known(&socket, endpoint, client, lease.as_ref()),
            };
            return Ok(Rc::new(Upstream { socket, endpoint, answers: Cell::new(0), lease, _known: known }));
        }
        Err(Errno::EADDRNOTAVAIL.into())
    }

    /// Whether a flow of this client may share its port. If the client is itself a flow of this process, the port must identify the number
    /// of flows that the client's datagrams have passed.
    fn shares_port(&self, client: ClientAddr) -> bool {
        !claim::is_refused() && self.addresses.hops(client) == 0
    }

    /// Leases a port of the gateway for a flow.
    fn lease(
        &self,
        endpoint: EndpointAddr,
        client: ClientAddr,
        owner: &Weak<dyn FlowOwner>,
    ) -> Option<PortLease> {
        if self.shares_port(client) {
            self.ports.lease(endpoint, owner)
        } else {
            self.ports.lease_unshared(owner)
        }
    }

    /// The socket towards its endpoint of a flow of another process.
    ///
    /// # Errors
    /// Returns `EADDRNOTAVAIL` if this worker cannot lease the flow's shared `port`. Another worker may give it to another client then, whose
    /// answers the kernel could deliver to this socket.
    pub(super) fn take_over(
        &self,
        socket: Socket,
        endpoint: EndpointAddr,
        client: ClientAddr,
        port: Option<u16>,
        owner: &Weak<dyn FlowOwner>,
    ) -> io::Result<Rc<Upstream>> {
        // It may have receive bundles enabled already, which does no harm.
        let local = || socket.local_addr().ok()?.as_socket();
        let transparent = port.is_none() && local().is_some_and(|local| local.ip() == client.ip());
        let lease = match port {
            Some(port) => Some(self.ports.take_over(endpoint, port, owner).ok_or(Errno::EADDRNOTAVAIL)?),
            None if transparent => None,
            // No other flow can have its port, even beyond the limit.
            None => self.ports.lease_unshared(owner),
        };
        let known =
            if transparent { None } else { self.make_known(&socket, endpoint, client, lease.as_ref()) };
        Ok(Rc::new(Upstream { socket, endpoint, answers: Cell::new(0), lease, _known: known }))
    }

    /// Publishes the local address of a connected socket to all workers. Not used for the address of a client, which may send from any of
    /// its ports.
    fn make_known(
        &self,
        socket: &Socket,
        endpoint: EndpointAddr,
        client: ClientAddr,
        lease: Option<&PortLease>,
    ) -> Option<KnownAddress> {
        let ask = || socket.local_addr().ok()?.as_socket();
        let local = match lease.and_then(PortLease::port) {
            Some(port) => SocketAddr::new(self.ports.local_ip(endpoint, || Some(ask()?.ip()))?, port),
            None => ask()?,
        };
        Some(self.addresses.add(local, endpoint, client))
    }

    /// Counts answers of a flow's endpoint. The socket bundles them from the second on: most flows are one query and its answer, and save
    /// this system call.
    pub(super) fn count_answers(&self, upstream: &Upstream, count: usize) {
        const SEVERAL: usize = 2;
        let before = upstream.answers.get();
        upstream.answers.set((before + count).min(SEVERAL));
        if before < SEVERAL && before + count >= SEVERAL {
            self.enable_gro(&upstream.socket);
        }
    }

    /// The owner that is to give up a port for flows of this client to an endpoint, if such ports are scarce or one was `lacking`; `None`
    /// otherwise.
    pub(super) fn crowding(
        &self,
        endpoint: EndpointAddr,
        client: ClientAddr,
        lacking: bool,
    ) -> Option<Crowding> {
        if self.shares_port(client) {
            self.ports.crowding(endpoint, lacking)
        } else {
            self.ports.crowding_unshared(lacking)
        }
    }

    /// Opens a socket on the frontend's address through which clients are answered. It receives no datagrams, since those are steered to
    /// another socket.
    pub(super) fn answering(&self, frontend: FrontendAddr) -> io::Result<Arc<Socket>> {
        let addr = frontend.socket_addr();
        let socket = new_socket(Domain::for_address(addr))?;
        socket.set_reuse_port(true)?;
        bind_freebind(&socket, addr)?;
        self.prepare(&socket);
        Ok(Arc::new(socket))
    }
}

/// A flow's socket towards its endpoint.
#[derive(Debug)]
pub(super) struct Upstream {
    socket: Socket,
    endpoint: EndpointAddr,
    /// Number of answers, up to two; see [`Offload::count_answers`].
    answers: Cell<usize>,
    lease: Option<PortLease>,
    _known: Option<KnownAddress>,
}

impl Upstream {
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn endpoint(&self) -> EndpointAddr {
        self.endpoint
    }

    /// The local port, if it is a shared one.
    pub(super) fn shared_port(&self) -> Option<u16> {
        self.lease.as_ref().and_then(PortLease::port)
    }
}

/// Binds to a port that flows to other endpoints may share. Only sockets of the same user may do so (`SO_REUSEPORT`, socket(7)), and each
/// answer goes to the socket connected to its sender (`compute_score` in net/ipv4/udp.c).
fn bind_shared(socket: &Socket, towards: IpAddr, port: u16) -> io::Result<()> {
    let any: IpAddr = match towards {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    if any.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.bind(&SocketAddr::new(any, port).into())
}

fn new_socket(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    mmsg::allow_fragments(&socket, domain)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::socket::{getsockopt, sockopt};

    use super::super::frontend::UdpFrontend;
    use super::*;
    use crate::sys::port_range::port_range;
    use crate::worker::context::{Shared, Timeouts, WorkerContext};

    fn offload() -> Offload {
        let shared = Shared::for_tests(Timeouts::all(Duration::from_secs(1)));
        let worker = WorkerContext::new(shared, 0, 1).unwrap();
        Offload::new(Arc::default(), LocalPorts::of_worker(&worker), Arc::default())
    }

    #[test]
    fn a_clients_port_is_kept_where_it_is_free_and_may_be_anybodys() {
        let (offload, range) = (offload(), port_range());
        let nobody: Weak<dyn FlowOwner> = Weak::<UdpFrontend>::new();
        let open = |endpoint, port| {
            let client = SocketAddr::from(([127, 0, 0, 2], port));
            let endpoint = EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), endpoint);
            let flow = offload.upstream(endpoint, ClientAddr(client), Some(client), &nobody).unwrap();
            let local = flow.socket.local_addr().unwrap().as_socket().unwrap();
            assert_eq!(local.ip(), client.ip());
            (flow, local.port())
        };
        let port = *range.end();
        let (flow, kept) = open(9, port);
        assert_eq!(kept, port);
        // Answers to both would go to one address; and a port outside of the range may belong to a server.
        for (endpoint, wanted) in [(10, port), (9, range.start() - 1)] {
            let (_flow, other) = open(endpoint, wanted);
            assert!(other != wanted && range.contains(&other), "{wanted}: {other}");
        }
        drop(flow);
        assert_eq!(open(10, port).1, port);
    }

    #[test]
    fn a_flow_of_another_process_is_kept_only_if_no_other_worker_can_have_its_port() {
        let (former, offload) = (offload(), offload());
        let nobody: Weak<dyn FlowOwner> = Weak::<UdpFrontend>::new();
        let endpoint = EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        let client = ClientAddr(([198, 51, 100, 1], 1).into());
        let flow = former.upstream(endpoint, client, None, &nobody).unwrap();
        let take_over =
            |port| offload.take_over(flow.socket.try_clone().unwrap(), endpoint, client, port, &nobody);
        let kept = take_over(flow.shared_port()).unwrap();
        assert_eq!(kept.shared_port(), flow.shared_port());
        // One flow has it already, and every fourth port belongs to no worker.
        for port in [flow.shared_port(), Some(*port_range().start() / 4 * 4)] {
            assert_eq!(take_over(port).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable, "{port:?}");
        }
        let unshared = take_over(None).unwrap();
        assert!(unshared.lease.is_some(), "it counts as one of those whose port the kernel chose");
    }

    /// Thousands of chained Services in pairs, whose flows come and go: no lease leaks.
    #[test]
    fn flows_of_flows_share_no_ports_with_others() {
        let offload = offload();
        let nobody: Weak<dyn FlowOwner> = Weak::<UdpFrontend>::new();
        let endpoint = |port| EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let local = |flow: &Upstream| ClientAddr(flow.socket.local_addr().unwrap().as_socket().unwrap());
        let mut open = std::collections::VecDeque::new();
        for number in 0..2_000_u16 {
            let client = ClientAddr(([198, 51, 100, 1], number).into());
            let front = offload.upstream(endpoint(1 + number % 50), client, None, &nobody).unwrap();
            assert_eq!(offload.addresses.hops(local(&front)), 1, "{number}");
            let back = offload.upstream(endpoint(100 + number % 50), local(&front), None, &nobody).unwrap();
            assert_eq!(offload.addresses.hops(local(&back)), 2, "{number}");
            open.extend([front, back]);
            open.drain(..open.len().saturating_sub(300));
        }
    }

    #[test]
    fn who_has_the_most_ports_for_themselves_gives_way_to_a_flow_that_finds_none() {
        let offload = offload();
        let nobody: Weak<dyn FlowOwner> = Weak::<UdpFrontend>::new();
        let endpoint = EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        let client = ClientAddr(([198, 51, 100, 1], 1).into());
        let front = offload.upstream(endpoint, client, None, &nobody).unwrap();
        let of_flow = ClientAddr(front.socket.local_addr().unwrap().as_socket().unwrap());
        let leases: Vec<PortLease> = std::iter::from_fn(|| offload.ports.lease_unshared(&nobody)).collect();
        let error = offload.upstream(endpoint, of_flow, None, &nobody).unwrap_err();
        assert!(crate::sys::errnos::is_out_of_udp_ports(&error));
        let crowding = offload.crowding(endpoint, of_flow, true).expect("an owner of thousands");
        assert!(crowding.holder.ptr_eq(&nobody) && crowding.towards.is_none());
        assert!(offload.crowding(endpoint, client, false).is_none(), "ports that are shared are free");
        drop(leases);
        assert!(offload.upstream(endpoint, of_flow, None, &nobody).is_ok());
    }

    #[test]
    fn a_flow_has_room_for_bursts_and_bundles_from_the_second_answer_on() {
        let offload = offload();
        let nobody: Weak<dyn FlowOwner> = Weak::<UdpFrontend>::new();
        let endpoint = EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        let client = ClientAddr(([198, 51, 100, 1], 1).into());
        let open = || offload.upstream(endpoint, client, None, &nobody).unwrap();
        let bundles = |flow: &Upstream| getsockopt(&flow.socket, sockopt::UdpGroSegment).unwrap();
        let (slow, fast, usual) = (open(), open(), std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap());
        assert!(slow.socket.recv_buffer_size().unwrap() > Socket::from(usual).recv_buffer_size().unwrap());
        offload.count_answers(&slow, 1);
        assert!(!bundles(&slow));
        offload.count_answers(&slow, 1);
        offload.count_answers(&fast, 2);
        assert!(bundles(&slow) && bundles(&fast));
    }
}
