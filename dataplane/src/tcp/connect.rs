//! Finding an endpoint that answers: pick, connect, and on failure pick another, before any byte of the client has been taken from
//! its socket.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sheave_model::{ClientAddr, ClientSource, EndpointAddr, FrontendAddr};
use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};

use crate::select::{Pick, PickRequest, Picked};
use crate::sys::Errno;
use crate::sys::{
    bind::bind_transparent,
    errnos::{is_local_shortage, is_out_of_tcp_ports, is_source_unusable},
};

use super::SHORTAGE_PAUSE;
use super::TcpContext;
use super::connection_table::Connecting;
use super::stream::Stream;
use crate::counters::TcpCounters;

/// How often one connection may try to connect an endpoint. Each attempt may take the connect timeout, so this bounds the client's wait.
const ATTEMPTS: usize = 3;

/// What came of looking for an endpoint.
#[must_use]
pub(super) enum Connected<'a> {
    /// This endpoint took the connection, and is to see this of the client.
    To(Connecting<'a>, Picked, ClientSource),
    /// Endpoints were tried, none answered.
    Failed,
    /// The table has none for this client.
    NoEndpoint,
    /// The table does not let this client in.
    Denied,
    /// The client has reset the connection meanwhile.
    ClientGone,
}

/// Why an endpoint was not connected.
#[derive(Clone, Copy, Debug)]
enum Unconnected {
    /// It did not answer, or this machine was short of something that no other endpoint would change.
    Failed,
    /// This machine has no port left towards it.
    NoPort,
    /// Nobody waits for it any more.
    ClientGone,
}

/// The client that an endpoint is looked for.
pub(super) struct Search<'a, 'c> {
    pub(super) context: &'a TcpContext,
    pub(super) frontend: FrontendAddr,
    pub(super) client: ClientAddr,
    pub(super) client_side: &'c Stream,
    pub(super) counters: &'a TcpCounters,
    /// What each attempt may take.
    pub(super) timeout: Duration,
    /// There are bytes for the endpoint already.
    pub(super) eager: bool,
}

impl<'a> Search<'a, '_> {
    /// Connects an endpoint, each attempt bounded by the connect timeout.
    ///
    /// Every endpoint is picked by the table of that moment, so one that has just left is not tried. An endpoint that does not answer
    /// the client's address is tried once more from the gateway's. Cancel safe.
    pub(super) async fn connect(&self) -> Connected<'a> {
        // Allocate only after a failure.
        let (mut tried, mut crowded) = (Vec::new(), Vec::new());
        let (mut attempts, mut deadline) = (0, None);
        while attempts < ATTEMPTS {
            let Some((picked, source)) = self.pick(&tried) else {
                let now = Instant::now();
                if self.client_side.is_closed() {
                    return Connected::ClientGone;
                }
                if crowded.is_empty() || *deadline.get_or_insert(now + self.timeout) <= now {
                    break;
                }
                // Ports come back as connections end.
                tokio::time::sleep(SHORTAGE_PAUSE).await;
                tried.retain(|endpoint| !crowded.contains(endpoint));
                crowded.clear();
                continue;
            };
            let endpoint = picked.addr();
            if attempts > 0 {
                self.counters.add(|it| &it.connect_retries, 1);
            }
            match self.connect_to(endpoint, source, &mut attempts).await {
                Ok(endpoint_side) => return Connected::To(endpoint_side, picked, source),
                Err(Unconnected::NoPort) => crowded.push(endpoint),
                Err(Unconnected::ClientGone) => return Connected::ClientGone,
                Err(Unconnected::Failed) => {}
            }
            tried.push(endpoint);
        }
        match tried.is_empty() {
            false => Connected::Failed,
            true if self.is_denied() => Connected::Denied,
            true => Connected::NoEndpoint,
        }
    }

    /// Connects this endpoint: from the client's address, if it is to see that, else or then from the gateway's.
    async fn connect_to(
        &self,
        endpoint: EndpointAddr,
        source: ClientSource,
        attempts: &mut usize,
    ) -> Result<Connecting<'a>, Unconnected> {
        let shared = &self.context.worker.shared;
        let source_ip = shared.transparency.source_ip(source, self.client, self.frontend, endpoint);
        let mut dial = Dial { search: self, endpoint, source_ip, short: false };
        let started = Instant::now();
        while *attempts < ATTEMPTS {
            *attempts += 1;
            let error = match dial.open().await {
                Ok(endpoint_side) => {
                    if let Some(totals) = self.counters.totals() {
                        totals.connect_times.record(started.elapsed());
                    }
                    shared.reports.answered(self.frontend.protocol, endpoint);
                    if source == ClientSource::Transparent && dial.source_ip.is_none() {
                        self.counters.add(|it| &it.source_lost, 1);
                    }
                    return Ok(endpoint_side);
                }
                Err(error) => error,
            };
            let Self { client, frontend, .. } = self;
            tracing::debug!(client.addr = %client, %frontend, %endpoint, ?dial.source_ip, %error, "connect failed");
            if self.client_side.is_closed() {
                return Err(Unconnected::ClientGone);
            }
            if is_out_of_tcp_ports(&error) {
                // Nothing was sent to anybody.
                *attempts -= 1;
                self.log_lack_of_ports(endpoint);
                return Err(Unconnected::NoPort);
            }
            // Its answers to the client may go another way than through this machine.
            if error.kind() != io::ErrorKind::TimedOut || dial.source_ip.take().is_none() {
                if !dial.short {
                    shared.reports.failed(&shared.table.load(), self.frontend, endpoint, error);
                }
                break;
            }
        }
        Err(Unconnected::Failed)
    }

    fn is_denied(&self) -> bool {
        let table = self.context.worker.shared.table.load();
        table.get(self.frontend).is_some_and(|frontend| !frontend.admits(self.client))
    }

    fn log_lack_of_ports(&self, endpoint: EndpointAddr) {
        if self.context.worker.log_throttle.admits(Instant::now()) {
            let frontend = self.frontend;
            let advice =
                "widen net.ipv4.ip_local_port_range, set net.ipv4.tcp_tw_reuse to 1, or add endpoints";
            tracing::warn!(%frontend, %endpoint, advice, "all local ports towards an endpoint are in use; clients wait");
        }
    }

    fn pick(&self, tried: &[EndpointAddr]) -> Option<(Picked, ClientSource)> {
        let Self { context: TcpContext { worker, .. }, client, .. } = *self;
        let table = worker.shared.table.load();
        let origin = table.origin(self.frontend, client);
        let request =
            PickRequest { client, origin, random: worker.random.next(), now: Instant::now(), tried };
        let frontend = table.get(self.frontend)?;
        match frontend.pick(&request, &worker.shared.affinity) {
            // An endpoint that failed already comes back only when there is no other.
            Pick::Forward(picked) if !tried.contains(&picked.addr()) => {
                Some((picked, frontend.client_source(origin)))
            }
            Pick::Forward(_) | Pick::Reject | Pick::Drop => None,
        }
    }
}

/// How one endpoint is to be connected.
struct Dial<'s, 'a> {
    search: &'s Search<'a, 's>,
    endpoint: EndpointAddr,
    /// The address to connect from, if not the gateway's; taken away if it cannot be used.
    source_ip: Option<IpAddr>,
    /// This machine lacked what a socket needs when it was last tried, so the endpoint is not to blame.
    short: bool,
}

impl<'a> Dial<'_, 'a> {
    /// Connects. While this machine is short of what a socket needs, it waits, but no longer than for an endpoint.
    async fn open(&mut self) -> io::Result<Connecting<'a>> {
        let mut waited = Duration::ZERO;
        loop {
            let outcome = self.attempt().await;
            self.short = outcome.as_ref().is_err_and(is_local_shortage);
            match outcome {
                Err(error) if self.source_ip.is_some() && is_source_unusable(&error) => {
                    let Self { endpoint, source_ip, .. } = self;
                    tracing::debug!(?source_ip, %endpoint, %error, "connecting from the gateway's address");
                    self.source_ip = None;
                }
                Err(error) if is_out_of_tcp_ports(&error) => return Err(error),
                Err(_)
                    if self.short && waited < self.search.timeout && !self.search.client_side.is_closed() =>
                {
                    waited += SHORTAGE_PAUSE;
                    tokio::time::sleep(SHORTAGE_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(&self) -> io::Result<Connecting<'a>> {
        let Self { search, endpoint, .. } = self;
        let TcpContext { worker, connections, crowded } = search.context;
        if self.source_ip.is_none() && crowded.contains(*endpoint, Instant::now()) {
            return Err(Errno::EADDRNOTAVAIL.into());
        }
        let (to, kind) = (endpoint.socket_addr(), Type::STREAM.nonblocking().cloexec());
        let socket = Socket::new(Domain::for_address(to), kind, Some(SocketProtocol::TCP))?;
        worker.shared.paths.bind(&socket, endpoint.path)?;
        if let Some(client) = self.source_ip {
            bind_transparent(&socket, client)?;
        }
        let stream = Stream::to_connect(socket, search.eager);
        stream.connect(to).inspect_err(|error| {
            if self.source_ip.is_none() && is_out_of_tcp_ports(error) {
                crowded.add(*endpoint, Instant::now());
            }
        })?;
        let connecting = connections.connecting(stream, search.timeout)?;
        connecting.connected(|| !search.client_side.is_closed()).await?;
        Ok(connecting)
    }
}

/// Endpoints towards which all local ports were in use a moment ago. The kernel looks at every port of its range to find that
/// out (`__inet_hash_connect` in net/ipv4/inet_hashtables.c), which thousands of clients must not make it do.
#[derive(Debug, Default)]
pub(crate) struct CrowdedEndpoints(RefCell<HashMap<EndpointAddr, Instant>>);

impl CrowdedEndpoints {
    /// Whether it is of no use to try this one now.
    pub(super) fn contains(&self, endpoint: EndpointAddr, now: Instant) -> bool {
        self.0
            .borrow()
            .get(&endpoint)
            .is_some_and(|since| now.saturating_duration_since(*since) < SHORTAGE_PAUSE)
    }

    pub(super) fn add(&self, endpoint: EndpointAddr, now: Instant) {
        let mut crowded = self.0.borrow_mut();
        crowded.retain(|_, since| now.saturating_duration_since(*since) < SHORTAGE_PAUSE);
        crowded.insert(endpoint, now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener};

    use super::super::PipeBudget;
    use super::*;
    use crate::worker::context::{Shared, Timeouts, WorkerContext};

    #[tokio::test]
    async fn an_address_that_cannot_be_bound_is_given_up_and_the_endpoint_is_reached() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (endpoint, timeout) = (EndpointAddr::new(addr.ip(), addr.port()), Duration::from_secs(1));
        let worker = WorkerContext::new(Shared::for_tests(Timeouts::all(timeout)), 1);
        let context = &*TcpContext::new(&worker, PipeBudget { pipes: 0, slots: 0 }, Duration::ZERO).unwrap();
        let client = std::net::TcpStream::connect(addr).unwrap();
        let search = Search {
            context,
            frontend: FrontendAddr { ip: addr.ip(), port: 80, protocol: sheave_model::Protocol::Tcp },
            client: ClientAddr(client.local_addr().unwrap()),
            client_side: &Stream::accepted(client.into()),
            counters: &TcpCounters::default(),
            timeout,
            eager: false,
        };
        let (_, _) = listener.accept().unwrap();
        // An address of the other family cannot be bound, whatever one may.
        let source_ip = Some(Ipv6Addr::LOCALHOST.into());
        let mut dial = Dial { search: &search, endpoint, source_ip, short: false };
        tokio::select! {
            connected = dial.open() => drop(connected.unwrap()),
            () = context.connections.drive() => {}
        }
        let seen = listener.accept().unwrap().1;
        assert_eq!((seen.ip(), dial.source_ip), (endpoint.ip, None));
    }

    #[test]
    fn an_endpoint_is_crowded_for_a_moment() {
        let endpoint = |number| EndpointAddr::new([10, 0, 0, number].into(), 80);
        let (crowded, now) = (CrowdedEndpoints::default(), Instant::now());
        crowded.add(endpoint(1), now);
        assert!(crowded.contains(endpoint(1), now) && !crowded.contains(endpoint(2), now));
        assert!(!crowded.contains(endpoint(1), now + SHORTAGE_PAUSE));
        crowded.add(endpoint(2), now + SHORTAGE_PAUSE);
        assert_eq!(crowded.0.borrow().len(), 1);
    }
}
