//! Connecting one endpoint: the socket, from whose address, and what a failure says about whom.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sheave_model::{ClientSource, EndpointAddr};
use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};

use super::SHORTAGE_PAUSE;
use super::port_search::PortSearch;
use super::stream::Stream;
use crate::health::ConnectedFrom;
use crate::select::Picked;
use crate::sys::bind::bind_transparent;
use crate::sys::epoll::Watch;
use crate::sys::errnos::{is_local_shortage, is_out_of_tcp_ports, is_source_unusable};
use crate::worker::context::WorkerContext;
use crate::worker::token::{Key, Token};

/// An endpoint that is to be connected.
pub(super) struct Dial {
    pub(super) picked: Picked,
    /// What the endpoint is to see of the client.
    pub(super) source: ClientSource,
    /// The address to connect from, if not the gateway's, and the port if that can be had; taken away if the address cannot be used.
    source_addr: Option<SocketAddr>,
    /// Connecting, or connected. None between two attempts.
    stream: Option<Stream>,
    /// When it was begun to reach this endpoint.
    pub(super) began: Instant,
    /// How long this machine has lacked what a socket needs.
    lacked: Duration,
}

/// What a failure to connect leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum DialFailure {
    /// Once more, from the gateway's address: the client's cannot be used here.
    SourceUnusable,
    /// The endpoint does not answer the client's address: its answers may go another way than through this machine. Once more, from
    /// the gateway's; that is another attempt.
    SourceUnanswered,
    /// No port of this machine was found towards the endpoint; nothing was sent to anybody.
    NoPort,
    /// This machine is short of what sockets need: once more, after a pause.
    Shortage,
    /// It was short for too long, so the endpoint is not to blame.
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

    /// Whom it is to reach.
    pub(super) fn endpoint(&self) -> EndpointAddr {
        self.picked.addr()
    }

    /// Whose address the endpoint sees.
    pub(super) fn connected_from(&self) -> ConnectedFrom {
        if self.source_addr.is_some() { ConnectedFrom::Client } else { ConnectedFrom::Gateway }
    }

    /// Whether the endpoint is to see the client's address, and does not.
    pub(super) fn has_lost_source(&self) -> bool {
        self.source == ClientSource::Transparent && self.source_addr.is_none()
    }

    /// The socket, if one was opened.
    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        self.stream.as_mut()
    }

    /// The endpoint's side of the connection.
    pub(super) fn into_parts(self) -> Option<(Stream, Picked)> {
        Some((self.stream?, self.picked))
    }

    /// Begins to connect; the outcome is reported to `key`.
    ///
    /// # Errors
    /// As socket(2), bind(2), connect(2) and epoll_ctl(2).
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
        ports.connect(&stream, self.source_addr, endpoint, worker.now())?;
        worker.poller.add(stream.socket(), Watch::Stream, Token::Endpoint(key).into())?;
        self.stream = Some(stream);
        Ok(())
    }

    /// What to do after an attempt that failed, where each may take `timeout`.
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

    /// An endpoint as it is picked.
    fn picked(endpoint: EndpointAddr) -> Picked {
        let (addr, table) = table_towards(endpoint);
        let client = ClientAddr(([192, 0, 2, 1], 1).into());
        let request =
            PickRequest { client, origin: Origin::External, random: 1, now: Instant::now(), tried: &[] };
        match table.get(addr).unwrap().pick(&request, &AffinityTable::default()) {
            Pick::Forward(picked) => picked,
            Pick::Reject | Pick::Drop => panic!("no endpoint"),
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
        // An address of the other family cannot be bound, whatever one may.
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
