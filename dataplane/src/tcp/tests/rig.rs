//! A connection table without a worker's loop, which the test turns between its awaits.

use std::cell::RefCell;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{
    Algorithm, ClientAddr, EndpointAddr, FrontendAddr, RoutingTable, ServiceTimeouts, test_util,
};
use socket2::{Domain, Socket, Type};

use crate::counters::{CloseReason, FrontendUse, KernelDrops, TcpCounters};
use crate::select::ActiveTable;
use crate::sys::Errno;
use crate::sys::epoll::Events;
use crate::tcp::connection_table::ConnectionTable;
use crate::tcp::pipe_pool::{PipeBudget, PipePool};
use crate::tcp::session::Session;
use crate::tcp::setup::Established;
use crate::tcp::splice::{Direction, RelayBuffers};
use crate::tcp::stream::Stream;
use crate::weak_map::service_id;
use crate::worker::context::{Shared, Timeouts, WorkerContext};
use crate::worker::token::Token;

/// The table, and its worker.
pub(in crate::tcp) struct TableRig {
    pub(in crate::tcp) worker: Rc<WorkerContext>,
    pub(in crate::tcp) table: RefCell<ConnectionTable>,
    events: RefCell<Events>,
    counters: RefCell<Vec<Arc<TcpCounters>>>,
}

/// Current time of tokio's clock, which a test may have paused.
pub(in crate::tcp) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl TableRig {
    /// A table with this idle timeout and number of pipes.
    pub(in crate::tcp) fn new(idle: Duration, pipes: usize) -> Self {
        Self::with(Shared::for_tests(Timeouts::all(idle)), pipes)
    }

    pub(in crate::tcp) fn with(shared: Shared, pipes: usize) -> Self {
        let worker = WorkerContext::new(shared, 0, 1).unwrap();
        worker.begin_turn(now());
        worker.port().begin();
        let pipes = PipePool::new(PipeBudget { pipes, slots: usize::MAX }, now());
        let buffers = RelayBuffers::new(pipes, Arc::clone(&worker.shared.capacity));
        let table = RefCell::new(ConnectionTable::new(&worker, buffers));
        Self { worker, table, events: RefCell::new(Events::new()), counters: RefCell::default() }
    }

    /// Relays between two sockets; returns the connection's counters.
    pub(in crate::tcp) fn relay(
        &self,
        client: Socket,
        endpoint: Socket,
        upload: Direction,
        idle_timeout: Duration,
    ) -> Arc<TcpCounters> {
        self.relay_for(client, endpoint, upload, (idle_timeout, None))
    }

    /// Like [`relay`](Self::relay), with an idle timeout and a maximum age.
    pub(in crate::tcp) fn relay_for(
        &self,
        client: Socket,
        endpoint: Socket,
        upload: Direction,
        (idle_timeout, max_age): (Duration, Option<Duration>),
    ) -> Arc<TcpCounters> {
        let (frontend, peer) = (test_util::frontend_addr(1), ClientAddr((Ipv4Addr::LOCALHOST, 1).into()));
        let service = service_id(&test_util::frontend(1, Algorithm::Random, &[]));
        let usage = FrontendUse::of_service(service, Arc::default(), Arc::default(), KernelDrops::default());
        let counters = Arc::new(TcpCounters::new(Arc::new(usage), Arc::default()));
        let mut session =
            Session::admit(&self.worker, (frontend, peer), &counters, None, None, || None).unwrap();
        let to = endpoint.peer_addr().ok().and_then(|addr| addr.as_socket());
        let picked = to.and_then(|to| {
            let table = self.worker.table();
            table.get(frontend)?.take_over(EndpointAddr::new(to.ip(), to.port()))
        });
        picked.into_iter().for_each(|picked| session.set_endpoint(picked));
        let (client, endpoint) = (Stream::accepted(client), Stream::to_connect(endpoint));
        let begin =
            Established { client, endpoint, upload, session, idle_timeout, keepalives: false, max_age };
        self.table.borrow_mut().relay_between(begin);
        self.counters.borrow_mut().push(Arc::clone(&counters));
        counters
    }

    /// Runs one turn as the worker's loop does.
    pub(in crate::tcp) fn turn(&self) {
        let now = now();
        self.worker.begin_turn(now);
        self.table.borrow_mut().on_time(now);
        self.serve();
    }

    /// Applies the events of sockets, and serves the connections.
    pub(in crate::tcp) fn serve(&self) {
        let (mut events, mut table) = (self.events.borrow_mut(), self.table.borrow_mut());
        self.worker.poller.wait(&mut events, false).unwrap();
        for (token, readiness) in events.iter() {
            match Token::from(token) {
                Token::Client(key) => table.on_client(key, readiness),
                Token::Endpoint(key) => table.on_endpoint(key, readiness),
                Token::Waker | Token::Alarm | Token::TcpListener(_) | Token::UdpSocket(_) => {}
            }
        }
        table.serve();
    }

    /// Runs turns forever. If tokio's clock is paused, it advances by `step` between turns.
    pub(in crate::tcp) async fn drive(&self, step: Option<Duration>) {
        loop {
            self.turn();
            match step {
                Some(step) => tokio::time::sleep(step).await,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Waits until no connection is open.
    pub(in crate::tcp) async fn all_closed(&self) {
        while self.worker.port().open() > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Number of bytes sent by all clients.
    pub(in crate::tcp) fn moved(&self) -> u64 {
        self.counters.borrow().iter().map(|counters| counters.client_bytes.get()).sum()
    }

    /// Number of connections that have ended.
    pub(in crate::tcp) fn ended(&self) -> usize {
        self.ended_each().into_iter().filter(|ended| *ended).count()
    }

    /// Whether each connection has ended, in the order in which they began.
    pub(in crate::tcp) fn ended_each(&self) -> Vec<bool> {
        let ended =
            |counters: &Arc<TcpCounters>| CloseReason::ALL.iter().any(|reason| counters.closed(*reason) > 0);
        self.counters.borrow().iter().map(ended).collect()
    }

    /// Number of connections closed for this reason.
    pub(in crate::tcp) fn closed(&self, reason: CloseReason) -> usize {
        self.counters.borrow().iter().filter(|counters| counters.closed(reason) > 0).count()
    }
}

/// A table with one frontend, whose only endpoint is `endpoint`.
pub(in crate::tcp) fn table_towards(endpoint: EndpointAddr) -> (FrontendAddr, ActiveTable) {
    table_with(endpoint, ServiceTimeouts::default())
}

/// Like [`table_towards`], with timeouts of the Service.
pub(in crate::tcp) fn table_with(
    endpoint: EndpointAddr,
    timeouts: ServiceTimeouts,
) -> (FrontendAddr, ActiveTable) {
    let mut backend = test_util::backend("local", 100, &[(1, 100)]);
    backend.endpoints[0].addr = endpoint;
    let mut frontend = test_util::frontend(1, Algorithm::Random, &[(1, 100)]);
    frontend.backends = Arc::new([backend]);
    frontend.timeouts = timeouts;
    let addr = frontend.addr;
    let table = RoutingTable::new(1, vec![Arc::new(frontend)], Arc::default());
    (addr, ActiveTable::compile(table, &ActiveTable::default()))
}

/// A socket that is connecting to `to`.
pub(in crate::tcp) fn connecting(to: std::net::SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), None).unwrap();
    if let Err(error) = socket.connect(&to.into()) {
        assert_eq!(error.raw_os_error(), Some(Errno::EINPROGRESS as i32), "{error}");
    }
    socket
}

/// The gateway's side of a client's connection to `listener`.
pub(in crate::tcp) fn accepted(listener: &std::net::TcpListener) -> io::Result<Socket> {
    let (accepted, _) = listener.accept()?;
    accepted.set_nonblocking(true)?;
    Ok(accepted.into())
}
