//! Setup of a connection, from accept to relay: admission, the header of a trusted proxy, the ClientHello if server names decide, the
//! pick of an endpoint, and attempts to connect. A failed attempt is followed by another before any byte of the client could be lost.

mod attempts;

use std::fmt::Display;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{ClientAddr, ClientSource, EndpointAddr, FrontendAddr};

use super::connect::Dial;
use super::read_client_hello::{ClientHello, HELLO_TIMEOUT, HelloRead, HelloReader, ServerNameError};
use super::read_proxy_header::{HeaderRead, HeaderReader, ProxyHeader, ProxyHeaderError};
use super::session::Session;
use super::splice::{Direction, RelayBuffers};
use super::stream::Stream;
use crate::connection_log::LoggedConnection;
use crate::counters::CloseReason;
use crate::port_search::PortSearch;
use crate::proxy_protocol::{self, Addresses, Transport};
use crate::select::{ActiveFrontend, PartId};
use crate::sys::epoll::{Readiness, Watch};
use crate::sys::sockets::reset_on_close;
use crate::worker::context::WorkerContext;
use crate::worker::token::{Key, Token};
use crate::worker_port::Accepted;

/// The worker's parts that a setup uses.
pub(super) struct SetupContext {
    pub(super) worker: Rc<WorkerContext>,
    pub(super) ports: PortSearch,
    pub(super) buffers: RelayBuffers,
}

/// Result of a step of the setup.
#[must_use]
pub(super) enum SetupStep {
    /// Waits for an event, and for at most this time.
    Waits(Duration),
    /// An endpoint is connected.
    Connected,
    /// The connection ends.
    Ends(CloseReason),
}

/// Event that the setup waits for.
enum SetupPhase {
    /// The header of a trusted proxy.
    Header(HeaderReader),
    /// The TLS ClientHello, which has the server name.
    ClientHello(HelloReader),
    /// A connection to this endpoint, the end of a shortage on this machine, or the next step of a walk through endpoints.
    Endpoint(Dial),
    /// A free port towards one of the crowded endpoints; also the initial phase, before any endpoint was picked.
    Port,
}

/// A connection that has no endpoint yet.
pub(super) struct Setup {
    key: Key,
    frontend: FrontendAddr,
    peer: ClientAddr,
    /// The peer, or the client that a trusted proxy named.
    client: ClientAddr,
    pub(super) session: Session,
    client_side: Stream,
    accepted: Instant,
    header: Option<Box<ProxyHeader>>,
    /// Bytes for the endpoint that the client has sent and that have been read.
    sent: Vec<u8>,
    connect_timeout: Duration,
    idle_timeout: Duration,
    keepalives: bool,
    max_age: Option<Duration>,
    phase: SetupPhase,
    attempts: usize,
    /// Part of a split frontend that the connection stays in.
    part: Option<PartId>,
    tried: Vec<EndpointAddr>,
    /// Endpoints among `tried` that failed for lack of a port.
    crowded: Vec<EndpointAddr>,
    ports_until: Option<Instant>,
    /// When the next step is due.
    pub(super) due: Instant,
}

/// Parts of a connection whose endpoint has been connected.
pub(super) struct Established {
    pub(super) client: Stream,
    pub(super) endpoint: Stream,
    pub(super) upload: Direction,
    pub(super) session: Session,
    pub(super) idle_timeout: Duration,
    /// Whether keepalives that peers send count as traffic.
    pub(super) keepalives: bool,
    pub(super) max_age: Option<Duration>,
}

/// Admits a connection. Returns `None`, and resets the connection, if capacity or a limit denies it; the refusal is counted.
pub(super) fn admit(
    worker: &Rc<WorkerContext>,
    accepted: Accepted,
    active: Option<&Arc<ActiveFrontend>>,
) -> Option<impl FnOnce(Key) -> Setup> {
    let Accepted { frontend, peer, socket, counters } = accepted;
    let proxies = active.and_then(|active| active.proxied_by());
    let proxied = proxies.is_some_and(|proxies| proxies.contains(peer.ip()));
    let client = (!proxied).then(|| peer.ip());
    // A client that may use no endpoint does not count for the limits: if the kernel cannot filter, such a client gets this far.
    let counts = |active: &Arc<ActiveFrontend>| {
        proxied || active.refusal(worker.table().origin(frontend, peer), peer).is_none()
    };
    let limiter = active.and_then(|active| active.limiter().filter(|_| counts(active)));
    let logged = || {
        let sampled = |active: &&Arc<ActiveFrontend>| {
            let part = active.logged();
            !part.is_none() && part.takes(worker.random.next())
        };
        let active = active.filter(sampled)?;
        Some(LoggedConnection::accepted(active.spec(), worker.now()))
    };
    let session = match Session::admit(worker, (frontend, peer), &counters, limiter, client, logged) {
        Ok(session) => session,
        Err(reason) => {
            worker.shared.refusals.count(frontend, counters.usage(), reason);
            reset_on_close(&socket);
            return None;
        }
    };
    let (timeouts, now) = (active.map(|active| active.timeouts()).unwrap_or_default(), worker.now());
    let connect_timeout = timeouts.connect.unwrap_or(worker.timeouts().connect);
    let phase = match proxied {
        true => SetupPhase::Header(HeaderReader::default()),
        false => SetupPhase::Port,
    };
    let idle_timeout = timeouts.idle.unwrap_or(worker.timeouts().idle);
    Some(move |key| Setup {
        key,
        frontend,
        peer,
        client: peer,
        session,
        client_side: Stream::accepted(socket),
        accepted: now,
        header: None,
        sent: Vec::new(),
        connect_timeout,
        idle_timeout,
        keepalives: timeouts.keepalives,
        max_age: timeouts.max_age,
        phase,
        attempts: 0,
        part: None,
        tried: Vec::new(),
        crowded: Vec::new(),
        ports_until: None,
        due: now,
    })
}

impl Setup {
    /// Starts the setup: waits for a header or a ClientHello, or searches for an endpoint.
    pub(super) fn begin(
        &mut self,
        context: &SetupContext,
        active: Option<&Arc<ActiveFrontend>>,
    ) -> SetupStep {
        let token = Token::Client(self.key).into();
        if let Err(error) = context.worker.poller.add(self.client_side.socket(), Watch::Stream, token) {
            tracing::debug!(peer.addr = %self.peer, %error, "a client cannot be watched");
            return SetupStep::Ends(CloseReason::Aborted);
        }
        match self.phase {
            // An event reports the header.
            SetupPhase::Header(..) => SetupStep::Waits(self.connect_timeout),
            SetupPhase::ClientHello(_) | SetupPhase::Endpoint(_) | SetupPhase::Port => {
                self.proceed(context, active)
            }
        }
    }

    /// Goes on once the client is known: waits for the ClientHello if the frontend has server names, or searches for an endpoint.
    fn proceed(&mut self, context: &SetupContext, active: Option<&Arc<ActiveFrontend>>) -> SetupStep {
        let (table, client) = (context.worker.table(), self.client);
        let Some(active) = active.or_else(|| table.get(self.frontend)).filter(|it| it.has_server_names())
        else {
            return self.search(context, active);
        };
        if !active.admits(client) {
            return SetupStep::Ends(CloseReason::Denied);
        }
        // The bytes behind the header are its beginning.
        self.phase = SetupPhase::ClientHello(HelloReader::beginning_with(std::mem::take(&mut self.sent)));
        self.read_hello(context).unwrap_or_else(|| {
            let deadline = self.accepted + HELLO_TIMEOUT;
            SetupStep::Waits(deadline.saturating_duration_since(context.worker.now()))
        })
    }

    /// Handles an event of the client's socket.
    pub(super) fn on_client(&mut self, context: &SetupContext, readiness: Readiness) -> Option<SetupStep> {
        self.client_side.on_ready(readiness);
        match self.phase {
            SetupPhase::Header(..) => self.read_header(context),
            SetupPhase::ClientHello(_) => self.read_hello(context),
            // The client has gone.
            _ if self.client_side.is_broken() => Some(SetupStep::Ends(CloseReason::ClientReset)),
            SetupPhase::Endpoint(_) | SetupPhase::Port => None,
        }
    }

    /// Handles an event of the endpoint's socket.
    pub(super) fn on_endpoint(&mut self, context: &SetupContext, readiness: Readiness) -> Option<SetupStep> {
        let SetupPhase::Endpoint(dial) = &mut self.phase else { return None };
        let stream = dial.stream()?;
        stream.on_ready(readiness);
        if !stream.is_writable() {
            return None;
        }
        let error = stream.take_connect_error();
        match (error, std::mem::replace(&mut self.phase, SetupPhase::Port)) {
            (Some(error), SetupPhase::Endpoint(dial)) => Some(self.connect(context, dial, Some(error))),
            (_, phase) => {
                self.phase = phase;
                Some(self.connected(context))
            }
        }
    }

    /// Handles the deadline: a late header or ClientHello, a connect timeout, or the end of a pause.
    pub(super) fn on_time(&mut self, context: &SetupContext) -> SetupStep {
        match std::mem::replace(&mut self.phase, SetupPhase::Port) {
            SetupPhase::Header(_) => self.refuse(&ProxyHeaderError::Late, ProxyHeaderError::reason),
            SetupPhase::ClientHello(_) => self.refuse(&ServerNameError::Late, ServerNameError::reason),
            SetupPhase::Endpoint(mut dial) => {
                let late = dial.stream().map(|_| io::ErrorKind::TimedOut.into());
                self.connect(context, dial, late)
            }
            SetupPhase::Port => {
                let Self { tried, crowded, .. } = self;
                tried.retain(|endpoint| !crowded.contains(endpoint));
                crowded.clear();
                self.search(context, None)
            }
        }
    }

    fn read_header(&mut self, context: &SetupContext) -> Option<SetupStep> {
        let SetupPhase::Header(reader) = &mut self.phase else { return None };
        match reader.read(&mut self.client_side) {
            HeaderRead::Incomplete => None,
            // The peer reset the connection after its header.
            HeaderRead::Whole(_) if self.client_side.is_broken() => {
                Some(SetupStep::Ends(CloseReason::ClientReset))
            }
            HeaderRead::Whole(mut header) => {
                self.sent = std::mem::take(&mut header.sent);
                self.header = Some(Box::new(header));
                self.client = ClientAddr(self.addresses().client);
                if let Err(reason) = self.session.identify(self.client, context.worker.now()) {
                    let counters = &self.session.counters;
                    context.worker.shared.refusals.count(self.frontend, counters.usage(), reason);
                    return Some(SetupStep::Ends(CloseReason::OverLimit));
                }
                Some(self.proceed(context, None))
            }
            HeaderRead::Failed(error) => Some(self.refuse(&error, ProxyHeaderError::reason)),
        }
    }

    fn read_hello(&mut self, context: &SetupContext) -> Option<SetupStep> {
        let SetupPhase::ClientHello(reader) = &mut self.phase else { return None };
        match reader.read(&mut self.client_side) {
            HelloRead::Partial => None,
            // The client reset the connection after its ClientHello.
            HelloRead::Complete(_) if self.client_side.is_broken() => {
                Some(SetupStep::Ends(CloseReason::ClientReset))
            }
            HelloRead::Complete(ClientHello { server_name, sent }) => {
                self.sent = sent;
                self.session.set_server_name(server_name);
                self.follow_destination(context);
                Some(self.search(context, None))
            }
            HelloRead::Refused(error) => Some(self.refuse(&error, ServerNameError::reason)),
        }
    }

    /// Applies the timeouts towards the endpoint of what the server name leads to. Those of the client's side stay the frontend's.
    fn follow_destination(&mut self, context: &SetupContext) {
        let (worker, table) = (&context.worker, context.worker.table());
        if let Some(timeouts) = self.session.destination(&table).map(|active| active.timeouts()) {
            self.connect_timeout = timeouts.connect.unwrap_or(worker.timeouts().connect);
            self.max_age = timeouts.max_age;
        }
    }

    /// Number of bytes that the client has sent and that no endpoint has got: read by this process, or in the socket's buffer.
    pub(super) fn waiting(&self) -> u64 {
        let hello = match &self.phase {
            SetupPhase::ClientHello(reader) => reader.received(),
            // A header has a few hundred bytes.
            SetupPhase::Header(_) | SetupPhase::Endpoint(_) | SetupPhase::Port => 0,
        };
        self.client_side.waiting() + (self.sent.len() + hello) as u64
    }

    fn refuse<E: Display>(&self, error: &E, reason: impl FnOnce(&E) -> CloseReason) -> SetupStep {
        tracing::debug!(peer.addr = %self.peer, frontend = %self.frontend, %error, "not served");
        SetupStep::Ends(reason(error))
    }

    fn connected(&self, context: &SetupContext) -> SetupStep {
        if let SetupPhase::Endpoint(dial) = &self.phase {
            let counters = &self.session.counters;
            let worker = &context.worker;
            counters.add_connected(worker.now().saturating_duration_since(dial.began));
            let table = worker.table();
            worker.shared.reports.answered(dial.endpoint(), || self.session.destination(&table));
            counters.add(|it| &it.source_lost, u64::from(dial.has_lost_source()));
        }
        SetupStep::Connected
    }

    /// The parts of the connection, if an endpoint is connected.
    pub(super) fn establish(mut self) -> Option<Established> {
        let SetupPhase::Endpoint(dial) = std::mem::replace(&mut self.phase, SetupPhase::Port) else {
            return None;
        };
        let upload = self.upload(dial.source);
        let (endpoint, picked) = dial.into_parts()?;
        let Self { mut session, client_side: client, idle_timeout, keepalives, max_age, .. } = self;
        session.set_endpoint(picked);
        Some(Established { client, endpoint, upload, session, idle_timeout, keepalives, max_age })
    }

    /// Ends the connection. Its handshake is complete, so a reset is the closest a proxy gets to a refusal; an endpoint that may have
    /// been connected meanwhile is reset, too.
    pub(super) fn end(mut self, reason: CloseReason) {
        self.client_side.reset_on_close();
        if let SetupPhase::Endpoint(dial) = &mut self.phase
            && let Some(endpoint) = dial.stream()
        {
            endpoint.reset_on_close();
        }
        // Counted before the client can see the socket closed.
        self.session.close(reason);
    }

    /// Client and destination from the PROXY protocol header, or the connection's own addresses.
    fn addresses(&self) -> Addresses {
        self.header
            .as_ref()
            .and_then(|header| header.addresses)
            .unwrap_or_else(|| Addresses { client: self.peer.0, destination: self.frontend.socket_addr() })
    }

    /// The direction to the endpoint, beginning with the header that the endpoint expects and what the client has sent for it.
    fn upload(&mut self, source: ClientSource) -> Direction {
        let mut bytes = match source {
            ClientSource::Gateway | ClientSource::Transparent => Vec::new(),
            ClientSource::ProxyV1 => proxy_protocol::write_v1(&self.addresses()),
            ClientSource::ProxyV2 => proxy_protocol::write_v2(Transport::Stream, &self.addresses()),
        };
        let own = bytes.len();
        bytes.append(&mut self.sent);
        Direction::beginning_with(bytes, own)
    }
}
