//! Connecting to one endpoint: the socket, its source address, and the meaning of a failure.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sheave_model::{ClientSource, EndpointAddr};
use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};

use super::SHORTAGE_PAUSE;
use super::stream::Stream;
use crate::health::ConnectedFrom;
use crate::port_search::PortSearch;
use crate::select::Picked;
use crate::sys::bind::bind_transparent;
use crate::sys::epoll::Watch;
use crate::sys::errnos::{is_local_shortage, is_out_of_tcp_ports, is_source_unusable};
use crate::worker::context::WorkerContext;
use crate::worker::token::{Key, Token};

/// An attempt to reach one endpoint.
pub(super) struct Dial {
    pub(super) picked: Picked,
    /// Source address that the endpoint is to see.
    pub(super) source: ClientSource,
    /// Address to connect from, if not the gateway's, with a port that is used if it is free; `None` once the address proved
    /// unusable.
    source_addr: Option<SocketAddr>,
    /// The connecting or connected socket; `None` between two attempts.
    stream: Option<Stream>,
    /// When the first attempt at this endpoint began.
    pub(super) began: Instant,
    /// How long this machine has been short of a resource that sockets need.
    lacked: Duration,
}

/// Consequence of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum DialFailure {
    /// Retry from the gateway's address: the client's cannot be used here.
    SourceUnusable,
    /// Retry from the gateway's address, which counts as another attempt: the endpoint does not answer the client's address, perhaps
    /// because its replies are not routed through this machine.
    SourceUnanswered,
    /// No free port was found on this machine; no packet was sent.
    NoPort,
    /// Retry after a pause: this machine is short of a resource that sockets need.
    Shortage,
    /// The shortage lasted too long; the endpoint is not to blame.
    LastingShortage,
    /// The endpoint failed.
    Endpoint,
}

impl Dial {
    pub(super) fn new(
        picked: Picked,
        source: ClientSource,
        source_addr: Option<SocketAddr>,
        now: Instant,
    ) -> Self {
        Self { picked, source, source_addr, stream: None, began: now, lacked: Duration::ZERO }
    }

    /// The endpoint to reach.
    pub(super) fn endpoint(&self) -> EndpointAddr {
        self.picked.addr()
    }

    /// Whether the endpoint sees the client's or the gateway's address.
    pub(super) fn connected_from(&self) -> ConnectedFrom {
        if self.source_addr.is_some() { ConnectedFrom::Client } else { ConnectedFrom::Gateway }
    }

    /// Whether the endpoint should see the client's address but does not.
    pub(super) fn has_lost_source(&self) -> bool {
        self.source == ClientSource::Transparent && self.source_addr.is_none()
    }

    /// The socket, if one was opened.
    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        self.stream.as_mut()
    }

    /// The socket of the endpoint, and the pick.
    pub(super) fn into_parts(self) -> Option<(Stream, Picked)> {
        Some((self.stream?, self.picked))
    }

    /// Starts to connect; the poller reports the outcome to `key`.
    ///
    /// # Errors
    /// Returns an error if no port towards the endpoint is free, or if socket(2), setsockopt(2), bind(2), connect(2) or epoll_ctl(2)
    /// fails.
    pub(super) fn begin(&mut self, worker: &WorkerContext, ports: &PortSearch, key: Key) -> io::Result<()> {
        let endpoint = self.endpoint();
        self.stream = None;
        if self.source_addr.is_none() {
            ports.check(endpoint, worker.now())?;
        }
        let (to, kind) = (endpoint.socket_addr(), Type::STREAM.nonblocking().cloexec());
        let socket = Socket::new(Domain::for_address(to), kind, Some(SocketProtocol::TCP))?;
        worker.shared.paths.bind(&socket, endpoint.path)?;
        if let Some(client) = self.source_addr {
            bind_transparent(&socket, client.ip())?;
        }
        let stream = Stream::to_connect(socket);
        ports.connect(stream.socket(), self.source_addr, endpoint, worker.now())?;
        worker.poller.add(stream.socket(), Watch::Stream, Token::Endpoint(key).into())?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Classifies a failed attempt, where each attempt may take `timeout`.
    pub(super) fn failed(&mut self, error: &io::Error, timeout: Duration) -> DialFailure {
        self.stream = None;
        if self.source_addr.is_some() && is_source_unusable(error) {
            self.source_addr = None;
            return DialFailure::SourceUnusable;
        }
        if is_out_of_tcp_ports(error) {
            return DialFailure::NoPort;
        }
        if is_local_shortage(error) {
            if self.lacked >= timeout {
                return DialFailure::LastingShortage;
            }
            self.lacked += SHORTAGE_PAUSE;
            return DialFailure::Shortage;
        }
        if error.kind() == io::ErrorKind::TimedOut && self.source_addr.take().is_some() {
            return DialFailure::SourceUnanswered;
        }
        DialFailure::Endpoint
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener};

    use sheave_model::ClientAddr;

    use super::*;
    use crate::select::affinity::AffinityTable;
    use crate::select::{Origin, Pick, PickRequest};
    use crate::sys::Errno;
    use crate::tcp::tests::rig::table_towards;
    use crate::worker::context::{Shared, Timeouts};
    use crate::worker::token::KeyedSlab;

    /// Picks the endpoint from a table that has no other.
    fn picked(endpoint: EndpointAddr) -> Picked {
        let (addr, table) = table_towards(endpoint);
        let client = ClientAddr(([192, 0, 2, 1], 1).into());
        let request = PickRequest {
            client,
            origin: Origin::External,
            random: 1,
            now: Instant::now(),
            tried: &[],
            part: None,
        };
        match table.get(addr).unwrap().pick(&request, &AffinityTable::default()) {
            Pick::Forward(picked) => picked,
            Pick::Reject | Pick::Drop | Pick::Refused(_) => panic!("no endpoint"),
        }
    }

    #[test]
    fn an_address_that_cannot_be_bound_is_given_up_and_the_endpoint_is_reached() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let worker =
            WorkerContext::new(Shared::for_tests(Timeouts::all(Duration::from_secs(1))), 0, 1).unwrap();
        let (ports, key) = (PortSearch::new(), KeyedSlab::default().insert_with(|_| ()));
        let endpoint = EndpointAddr::new(addr.ip(), addr.port());
        // An address of the other family can never be bound.
        let source_addr = Some((Ipv6Addr::LOCALHOST, 9).into());
        let mut dial = Dial::new(picked(endpoint), ClientSource::Transparent, source_addr, worker.now());
        assert!(!dial.has_lost_source());
        let error = dial.begin(&worker, &ports, key).unwrap_err();
        assert_eq!(dial.failed(&error, Duration::from_secs(1)), DialFailure::SourceUnusable);
        dial.begin(&worker, &ports, key).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), endpoint.ip);
        assert!(dial.has_lost_source());
    }

    #[test]
    fn a_lasting_shortage_is_not_the_endpoints_fault() {
        let dial = || {
            let endpoint = EndpointAddr::new([10, 0, 0, 1].into(), 80);
            Dial::new(picked(endpoint), ClientSource::Gateway, None, Instant::now())
        };
        let (mut short, timeout) = (dial(), 2 * SHORTAGE_PAUSE);
        let lack = Errno::ENOBUFS.into();
        let outcomes = [(); 3].map(|()| short.failed(&lack, timeout));
        assert_eq!(outcomes, [DialFailure::Shortage, DialFailure::Shortage, DialFailure::LastingShortage]);
        assert_eq!(dial().failed(&Errno::ECONNREFUSED.into(), timeout), DialFailure::Endpoint);
        assert_eq!(dial().failed(&Errno::EADDRNOTAVAIL.into(), timeout), DialFailure::NoPort);
    }
}
