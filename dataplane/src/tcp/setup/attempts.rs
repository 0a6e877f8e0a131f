//! Connection attempts: pick an endpoint, connect, and try another after a failure, until one is being connected or none is left.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sheave_model::{ClientSource, EndpointAddr};

use super::{Setup, SetupContext, SetupPhase, SetupStep};
use crate::counters::CloseReason;
use crate::select::{ActiveFrontend, Pick, PickRequest, Picked};
use crate::tcp::SHORTAGE_PAUSE;
use crate::tcp::connect::{Dial, DialFailure};
use crate::worker::context::WorkerContext;

/// Maximum number of attempts per connection. Each may take the connect timeout, so this bounds the client's wait.
const ATTEMPTS: usize = 3;

/// Maximum number of endpoints tried in one step before the worker's other connections have their turn. Those without a free port are no
/// attempts, and there may be thousands.
const TRIED_AT_ONCE: usize = 64;
/// Pause between two steps of a walk through endpoints without a free port.
const NEXT_STEP: Duration = Duration::from_millis(1);

/// Next action after a failure.
#[must_use]
enum NextAttempt {
    SameEndpoint,
    /// After a pause, since this machine is short of a resource that sockets need.
    SameEndpointLater,
    AnotherEndpoint,
}

impl Setup {
    /// Picks an endpoint and starts to connect to it.
    ///
    /// Every pick uses the current table, so an endpoint that has just left is not tried.
    pub(super) fn search(
        &mut self,
        context: &SetupContext,
        active: Option<&Arc<ActiveFrontend>>,
    ) -> SetupStep {
        self.phase = SetupPhase::Port;
        match self.next_dial(&context.worker, active) {
            Ok(dial) => self.connect(context, dial, None),
            Err(step) => step,
        }
    }

    /// Picks the next endpoint; `Err` is the step to take without one.
    fn next_dial(
        &mut self,
        worker: &WorkerContext,
        active: Option<&Arc<ActiveFrontend>>,
    ) -> Result<Dial, SetupStep> {
        if self.attempts >= ATTEMPTS {
            return Err(SetupStep::Ends(self.unserved(worker)));
        }
        let picked = self.pick(worker, active).map_err(SetupStep::Ends)?;
        let Some((picked, source)) = picked else {
            let now = worker.now();
            if self.crowded.is_empty() || *self.ports_until.get_or_insert(now + self.connect_timeout) <= now {
                return Err(SetupStep::Ends(self.unserved(worker)));
            }
            // Ports become free as connections end.
            return Err(SetupStep::Waits(SHORTAGE_PAUSE));
        };
        if self.attempts > 0 {
            self.session.counters.add(|it| &it.connect_retries, 1);
        }
        self.attempts += 1;
        let endpoint = picked.addr();
        self.session.try_endpoint(endpoint);
        let source_addr = match self.may_be_source(worker) {
            true => worker.shared.transparency.source_addr(source, self.client, self.frontend, endpoint),
            false => None,
        };
        Ok(Dial::new(picked, source, source_addr, worker.now()))
    }

    /// Whether endpoints may see the client's address as the source of packets. An address that a proxy names is only a claim, so it
    /// must not be that of a Pod, node or Service.
    fn may_be_source(&self, worker: &WorkerContext) -> bool {
        self.client.ip() == self.peer.ip() || !worker.table().is_identity(self.client.ip())
    }

    /// Picks an endpoint that was not tried; `None` without one.
    ///
    /// # Errors
    /// If the server name leads nowhere, or the share of the connection's part is refused.
    fn pick(
        &mut self,
        worker: &WorkerContext,
        active: Option<&Arc<ActiveFrontend>>,
    ) -> Result<Option<(Picked, ClientSource)>, CloseReason> {
        let (table, client) = (worker.table(), self.client);
        let Some(whole) = active.or_else(|| table.get(self.frontend)) else { return Ok(None) };
        let frontend = whole.destination(self.session.server_name()).ok_or(CloseReason::NoRoute)?;
        // The target of a server name need not know the source ranges of the socket.
        if !Arc::ptr_eq(whole, frontend) && !whole.admits(client) {
            return Ok(None);
        }
        let (origin, affinity) = (table.origin(self.frontend, client), &worker.shared.affinity);
        let Self { tried, part, .. } = self;
        let (random, now) = (worker.random.next(), worker.now());
        let request = PickRequest { client, origin, random, now, tried, part: *part };
        *part = part.or_else(|| frontend.part(&request, affinity));
        Ok(match frontend.pick(&PickRequest { part: *part, ..request }, affinity) {
            // A failed endpoint is picked again only if there is no other.
            Pick::Forward(picked) if !tried.contains(&picked.addr()) => {
                Some((picked, frontend.client_source(origin)))
            }
            Pick::Forward(_) | Pick::Reject | Pick::Drop => None,
            Pick::Refused(refused) => return Err(refused.into()),
        })
    }

    /// Starts to connect to the endpoint, or handles its `failure` first, and goes on with others until one is being connected, or until it
    /// is the turn of other connections. A loop, since many may fail at once.
    pub(super) fn connect(
        &mut self,
        context: &SetupContext,
        mut dial: Dial,
        mut failure: Option<io::Error>,
    ) -> SetupStep {
        let mut tried = 0;
        while tried < TRIED_AT_ONCE {
            let begun = match failure.take() {
                Some(error) => Err(error),
                None => dial.begin(&context.worker, &context.ports, self.key),
            };
            let wait = match begun.map_err(|error| self.failed(context, &mut dial, error)) {
                Ok(()) => self.connect_timeout,
                Err(NextAttempt::SameEndpoint) => continue,
                Err(NextAttempt::SameEndpointLater) => SHORTAGE_PAUSE,
                Err(NextAttempt::AnotherEndpoint) => {
                    tried += 1;
                    dial = match self.next_dial(&context.worker, None) {
                        Ok(dial) => dial,
                        Err(step) => return step,
                    };
                    continue;
                }
            };
            self.phase = SetupPhase::Endpoint(dial);
            return SetupStep::Waits(wait);
        }
        self.phase = SetupPhase::Endpoint(dial);
        SetupStep::Waits(NEXT_STEP)
    }

    /// Handles a failed attempt, and decides on the next.
    fn failed(&mut self, context: &SetupContext, dial: &mut Dial, error: io::Error) -> NextAttempt {
        let (endpoint, from) = (dial.endpoint(), dial.connected_from());
        let failure = dial.failed(&error, self.connect_timeout);
        let Self { client, frontend, .. } = self;
        tracing::debug!(client.addr = %client, %frontend, %endpoint, %error, ?failure, "connect failed");
        match failure {
            DialFailure::SourceUnusable => return NextAttempt::SameEndpoint,
            DialFailure::Shortage => return NextAttempt::SameEndpointLater,
            DialFailure::SourceUnanswered if self.attempts < ATTEMPTS => {
                self.attempts += 1;
                return NextAttempt::SameEndpoint;
            }
            DialFailure::NoPort => {
                self.attempts -= 1;
                self.crowded.push(endpoint);
                self.log_lack_of_ports(context, endpoint);
            }
            DialFailure::Endpoint => {
                let worker = &context.worker;
                let (table, reports) = (worker.table(), &worker.shared.reports);
                if let Some(active) = self.session.destination(&table) {
                    reports.failed(&table, active, endpoint, from, error, worker.now());
                }
            }
            DialFailure::SourceUnanswered | DialFailure::LastingShortage => {}
        }
        self.tried.push(endpoint);
        NextAttempt::AnotherEndpoint
    }

    fn log_lack_of_ports(&self, context: &SetupContext, endpoint: EndpointAddr) {
        if context.worker.log_throttle.admits(context.worker.now()) {
            let frontend = self.frontend;
            let advice =
                "widen net.ipv4.ip_local_port_range, set net.ipv4.tcp_tw_reuse to 1, or add endpoints";
            tracing::warn!(%frontend, %endpoint, advice, "all local ports towards an endpoint are in use; clients wait");
        }
    }

    /// Why the connection has no endpoint.
    fn unserved(&self, worker: &WorkerContext) -> CloseReason {
        if !self.tried.is_empty() {
            return CloseReason::ConnectFailed;
        }
        let table = worker.table();
        match table.get(self.frontend).is_some_and(|frontend| !frontend.admits(self.client)) {
            true => CloseReason::Denied,
            false => CloseReason::NoEndpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use sheave_model::{Algorithm, ClientAddr, test_util};

    use super::*;
    use crate::limits::capacity::Capacity;
    use crate::port_search::PortSearch;
    use crate::select::ActiveTable;
    use crate::tcp::pipe_pool::{PipeBudget, PipePool};
    use crate::tcp::setup::admit;
    use crate::tcp::splice::RelayBuffers;
    use crate::tcp::tests::rig::accepted;
    use crate::worker::context::{Shared, Timeouts};
    use crate::worker::token::KeyedSlab;
    use crate::worker_port::Accepted;

    /// A setup towards a frontend with so many endpoints, none of which has a free port.
    fn among_crowded(endpoints: u32) -> (Setup, SetupContext, TcpStream) {
        let numbers: Vec<(u32, u16)> = (0..endpoints).map(|number| (number, 100)).collect();
        let frontend = test_util::frontend(1, Algorithm::RoundRobin, &numbers);
        let (addr, spec) = (frontend.addr, test_util::table([frontend]));
        let shared = Shared::for_tests(Timeouts::all(Duration::from_secs(60)));
        shared.table.store(Arc::new(ActiveTable::compile(spec, &ActiveTable::default())));
        let worker = WorkerContext::new(shared, 0, 1).unwrap();
        let pipes = PipePool::new(PipeBudget { pipes: 0, slots: usize::MAX }, worker.now());
        let buffers = RelayBuffers::new(pipes, Capacity::unlimited());
        let context = SetupContext { worker, ports: PortSearch::new(), buffers };
        let now = context.worker.now();
        for (number, _) in numbers {
            context.ports.set_crowded(test_util::endpoint_addr(number), now, now + Duration::from_secs(60));
        }
        let clients = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(clients.local_addr().unwrap()).unwrap();
        let (peer, socket) = (ClientAddr(client.local_addr().unwrap()), accepted(&clients).unwrap());
        let accepted = Accepted { frontend: addr, peer, socket, counters: Arc::default() };
        let key = KeyedSlab::default().insert_with(|_| ());
        let active = context.worker.table().get(addr).cloned();
        let setup = admit(&context.worker, accepted, active.as_ref()).unwrap()(key);
        (setup, context, client)
    }

    #[test]
    fn endpoints_without_a_port_are_passed_over_some_at_a_time() {
        let (mut setup, context, _client) = among_crowded(1_000);
        let (mut step, mut tried) = (setup.search(&context, None), vec![setup.tried.len()]);
        while matches!(step, SetupStep::Waits(wait) if wait == NEXT_STEP) {
            step = setup.on_time(&context);
            tried.push(setup.tried.len());
        }
        assert!(matches!(step, SetupStep::Waits(wait) if wait == SHORTAGE_PAUSE), "none is left");
        let expected: Vec<usize> = (1..=16).map(|step| (step * TRIED_AT_ONCE).min(1_000)).collect();
        assert_eq!((tried, setup.attempts), (expected, 0));
    }
}
