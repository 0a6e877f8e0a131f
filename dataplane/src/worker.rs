//! A worker: one OS thread with its own reactor, its own sockets and its own buffers. What it accepts it serves to the
//! end; nothing moves between workers.
//!
//! It must not decide anything: sockets come from `listener`, endpoints from the table.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc as thread_channel};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use socket2::Socket;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::affinity::AffinityTable;
use crate::counters::FrontendCounters;
use crate::model::FrontendAddr;
use crate::pick::ActiveTable;
use crate::random::Random;
use crate::task::Task;
use crate::tcp::{self, PipePool, RelayBuffers};
use crate::udp::{UdpContext, UdpLimits, UdpListener};

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One attempt to connect an endpoint.
    pub connect: Duration,
    /// A TCP connection on which nothing moves.
    pub idle: Duration,
    /// A UDP flow on which nothing moves.
    pub udp_idle: Duration,
}

/// What everything on one worker shares. Stays on its thread.
pub(crate) struct Worker {
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) timeouts: Timeouts,
    pub(crate) random: Random,
    pub(crate) buffers: RelayBuffers,
    /// Notified when the process begins to drain.
    pub(crate) draining: Notify,
    udp: Rc<UdpContext>,
    live: Cell<usize>,
    ended: Notify,
    broken: mpsc::UnboundedSender<FrontendAddr>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("live", &self.live).finish_non_exhaustive()
    }
}

/// What a worker is made with.
pub(crate) struct WorkerSeed {
    pub(crate) index: usize,
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) timeouts: Timeouts,
    pub(crate) udp_flows: usize,
    pub(crate) random: u64,
    /// Where to report listening sockets that are of no more use.
    pub(crate) broken: mpsc::UnboundedSender<FrontendAddr>,
}

/// The copy buffer that all connections of a worker share. 64 KiB takes what a receive queue usually holds in one
/// call, and stays within the second-level cache.
const SCRATCH: usize = 64 << 10;
/// Pipes of one worker. A pipe is held only while its stream's receiver is slower than its sender, so this bounds
/// slow streams, not streams; beyond it they are copied.
const PIPES: usize = 64;

impl Worker {
    fn new(seed: WorkerSeed) -> Self {
        let limits = UdpLimits { flows: seed.udp_flows, idle: seed.timeouts.udp_idle };
        let (table, affinity) = (Arc::clone(&seed.table), Arc::clone(&seed.affinity));
        Self {
            udp: UdpContext::new(table, affinity, limits, !seed.random),
            table: seed.table,
            affinity: seed.affinity,
            timeouts: seed.timeouts,
            random: Random::new(seed.random),
            buffers: RelayBuffers::new(SCRATCH, PipePool::new(PIPES)),
            draining: Notify::new(),
            live: Cell::new(0),
            ended: Notify::new(),
            broken: seed.broken,
        }
    }

    /// Counts one connection or flow as open until the answer is dropped.
    pub(crate) fn admit(self: &Rc<Self>) -> Live {
        self.live.set(self.live.get() + 1);
        Live(Rc::clone(self))
    }

    /// Asks for a frontend's sockets to be made anew.
    pub(crate) fn report_broken(&self, addr: FrontendAddr, error: &io::Error) {
        tracing::warn!(frontend = %addr, %error, "listening socket is broken; binding it again");
        if self.broken.send(addr).is_err() {
            tracing::debug!("nobody is left to bind it");
        }
    }

    async fn all_ended(&self) {
        while self.live.get() > 0 {
            self.ended.notified().await;
        }
    }
}

/// One open connection or flow.
#[derive(Debug)]
pub(crate) struct Live(Rc<Worker>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.set(self.0.live.get() - 1);
        if self.0.live.get() == 0 {
            self.0.ended.notify_waiters();
        }
    }
}

/// What a worker can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this socket.
    Listen { addr: FrontendAddr, socket: Arc<Socket>, counters: FrontendCounters },
    /// The frontend is gone: let go of its socket, and of its UDP flows.
    Close(FrontendAddr),
    /// The frontend takes nothing new: let go of its socket, but keep its UDP flows.
    Retire(FrontendAddr),
    /// Answer, to show that the worker runs.
    Ping(oneshot::Sender<()>),
    /// Take nothing new, and answer when the last connection has ended.
    Drain(oneshot::Sender<()>),
}

/// A running worker, as its owner sees it. Dropping it ends the thread and everything that it serves.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<thread::JoinHandle<()>>,
}

impl WorkerHandle {
    /// Starts a worker's thread.
    ///
    /// # Errors
    /// If the thread or its reactor cannot be made.
    pub(crate) fn start(seed: WorkerSeed) -> io::Result<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (started, outcome) = thread_channel::channel();
        let name = format!("sheave-w{}", seed.index);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let runtime = match reactor() {
                Ok(runtime) => runtime,
                Err(error) => {
                    started.send(Err(error)).ok();
                    return;
                }
            };
            started.send(Ok(())).ok();
            runtime.block_on(obey(Rc::new(Worker::new(seed)), inbox));
        })?;
        outcome.recv().map_err(io::Error::other)??;
        Ok(Self { commands, thread: Some(thread) })
    }

    /// Hands over a command, to be obeyed in order.
    pub(crate) fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::error!("a worker has ended before its time");
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        // A closed channel ends the loop; then the runtime drops its tasks, and their sockets close.
        self.commands = mpsc::unbounded_channel().0;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a worker had panicked");
        }
    }
}

fn reactor() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_io().enable_time().build_local(LocalOptions::default())
}

/// What a worker listens on. Dropping an entry closes its socket.
#[derive(Default)]
struct Listeners {
    tcp: HashMap<FrontendAddr, Task>,
    udp: HashMap<FrontendAddr, UdpListener>,
}

async fn obey(worker: Rc<Worker>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut listeners = Listeners::default();
    while let Some(command) = commands.recv().await {
        match command {
            Command::Listen { addr, socket, counters } => listeners.open(&worker, addr, socket, counters),
            Command::Close(addr) => {
                listeners.tcp.remove(&addr);
                listeners.udp.remove(&addr);
            }
            Command::Retire(addr) => {
                listeners.tcp.remove(&addr);
                if let Some(listener) = listeners.udp.remove(&addr) {
                    listener.retire();
                    keep_until_finished(&worker, listener);
                }
            }
            // Whoever asked may have given up waiting.
            Command::Ping(reply) => {
                reply.send(()).ok();
            }
            Command::Drain(reply) => {
                worker.draining.notify_waiters();
                for (_, listener) in listeners.udp.drain() {
                    listener.drain();
                    keep_until_finished(&worker, listener);
                }
                let worker = Rc::clone(&worker);
                tokio::task::spawn_local(async move {
                    // The accept loops take what has already shaken hands before this runs: they were woken first.
                    tokio::task::yield_now().await;
                    worker.all_ended().await;
                    reply.send(()).ok();
                });
            }
        }
    }
}

impl Listeners {
    fn open(
        &mut self,
        worker: &Rc<Worker>,
        addr: FrontendAddr,
        socket: Arc<Socket>,
        counters: FrontendCounters,
    ) {
        match counters {
            FrontendCounters::Tcp(counters) => {
                let worker = Rc::clone(worker);
                self.tcp.insert(
                    addr,
                    Task::spawn(async move {
                        if let Err(error) = tcp::listen(&worker, addr, socket, &counters).await {
                            worker.report_broken(addr, &error);
                        }
                    }),
                );
            }
            FrontendCounters::Udp(counters) => {
                let started = socket
                    .try_clone()
                    .and_then(|socket| UdpListener::start(socket.into(), addr, counters, &worker.udp));
                match started {
                    Ok(listener) => drop(self.udp.insert(addr, listener)),
                    Err(error) => worker.report_broken(addr, &error),
                }
            }
        }
    }
}

/// Lets the flows of a listener that takes no new ones come to their end.
fn keep_until_finished(worker: &Rc<Worker>, listener: UdpListener) {
    let live = worker.admit();
    tokio::task::spawn_local(async move {
        listener.finished().await;
        drop(live);
    });
}
