//! A worker: one OS thread with its own reactor, its own sockets and its own buffers. What it accepts it serves to the
//! end; nothing moves between workers.
//!
//! It must not decide anything: sockets come from `listener`, endpoints from the table.

mod listeners;
pub(crate) mod pool;

use std::cell::Cell;
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

use crate::counters::FrontendCounters;
use crate::health::Reports;
use crate::limits::capacity::Capacity;
use crate::limits::overload::Shedding;
use crate::listener::{sk_lookup::DeferredRefusal, steering::SteeredFrontends};
use crate::log_throttle::LogThrottle;
use crate::paths::Paths;
use crate::select::ActiveTable;
use crate::select::affinity::AffinityTable;
use crate::splitmix64::SplitMix64;
use crate::task;
use crate::tcp::{ConnectionTable, CrowdedEndpoints, PipeBudget, PipePool, RelayBuffers, Served};
use crate::transparent::Transparency;
use crate::udp::{UdpContext, UdpLimits, UdpParts};
use listeners::Listeners;
use sheave_model::FrontendAddr;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One attempt to connect an endpoint.
    pub connect: Duration,
    /// A TCP connection on which nothing moves.
    pub idle: Duration,
    /// A UDP flow on which nothing moves.
    pub udp_idle: Duration,
    /// A UDP flow that no endpoint has answered yet.
    pub udp_unanswered: Duration,
}

/// What everything on one worker shares. Stays on its thread.
pub(crate) struct Worker {
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) transparency: Arc<Transparency>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) paths: Arc<Paths>,
    pub(crate) timeouts: Timeouts,
    pub(crate) random: SplitMix64,
    pub(crate) relays: ConnectionTable<Served>,
    pub(crate) crowded: CrowdedEndpoints,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) shedding: Arc<Shedding>,
    udp: Rc<UdpContext>,
    draining: Cell<bool>,
    drain_begins: Notify,
    /// Of complaints that the machine is short of something, for all listeners together.
    pub(crate) complaints: LogThrottle,
    live: Cell<usize>,
    ended: Notify,
    broken: mpsc::UnboundedSender<Broken>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("live", &self.live).finish_non_exhaustive()
    }
}

/// What a worker is made with.
#[derive(Clone)]
pub(crate) struct WorkerSeed {
    pub(crate) index: usize,
    /// How many there are.
    pub(crate) workers: usize,
    pub(crate) table: Arc<ArcSwap<ActiveTable>>,
    pub(crate) affinity: Arc<AffinityTable>,
    pub(crate) transparency: Arc<Transparency>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) paths: Arc<Paths>,
    pub(crate) timeouts: Timeouts,
    pub(crate) busy_poll: Duration,
    pub(crate) udp_flows: usize,
    pub(crate) pipes: PipeBudget,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) shedding: Arc<Shedding>,
    pub(crate) random: u64,
    /// The steered frontends.
    pub(crate) steered: Arc<SteeredFrontends>,
    /// Where to report listening sockets that are of no more use.
    pub(crate) broken: mpsc::UnboundedSender<Broken>,
}

/// The copy buffer that all connections of a worker share. 64 KiB takes what a receive queue usually holds in one
/// call, and stays within the second-level cache.
const SCRATCH: usize = 64 << 10;
/// A shortage is told once in so long.
const COMPLAIN_EVERY: Duration = Duration::from_secs(30);

impl Worker {
    /// Must be called inside the worker's runtime.
    fn new(seed: WorkerSeed) -> io::Result<Rc<Self>> {
        let buffers = RelayBuffers::new(SCRATCH, PipePool::new(seed.pipes), Arc::clone(&seed.capacity));
        let relays = ConnectionTable::new(buffers, seed.timeouts)?.busy_polling(seed.busy_poll);
        let udp = UdpContext::new(UdpParts {
            table: Arc::clone(&seed.table),
            affinity: Arc::clone(&seed.affinity),
            transparency: Arc::clone(&seed.transparency),
            reports: Arc::clone(&seed.reports),
            paths: Arc::clone(&seed.paths),
            capacity: Arc::clone(&seed.capacity),
            shedding: Arc::clone(&seed.shedding),
            limits: UdpLimits {
                flows: seed.udp_flows,
                idle: seed.timeouts.udp_idle,
                unanswered: seed.timeouts.udp_unanswered,
            },
            worker: (seed.index, seed.workers),
            seed: !seed.random,
        });
        Ok(Rc::new(Self {
            udp,
            transparency: seed.transparency,
            reports: seed.reports,
            paths: seed.paths,
            table: seed.table,
            affinity: seed.affinity,
            timeouts: seed.timeouts,
            random: SplitMix64::new(seed.random),
            relays,
            crowded: CrowdedEndpoints::default(),
            capacity: seed.capacity,
            shedding: seed.shedding,
            draining: Cell::new(false),
            drain_begins: Notify::new(),
            complaints: LogThrottle::new(COMPLAIN_EVERY),
            live: Cell::new(0),
            ended: Notify::new(),
            broken: seed.broken,
        }))
    }

    /// Counts one connection or flow as open until the answer is dropped.
    pub(crate) fn admit(self: &Rc<Self>) -> Live {
        self.live.set(self.live.get() + 1);
        Live(Rc::clone(self))
    }

    /// Waits until the process drains, which it may do already.
    pub(crate) async fn drain_begins(&self) {
        let begins = self.drain_begins.notified();
        if !self.draining.get() {
            begins.await;
        }
    }

    fn report_broken(&self, addr: FrontendAddr, socket: Arc<Socket>, error: io::Error) {
        if self.broken.send(Broken { addr, socket, error }).is_err() {
            tracing::debug!(frontend = %addr, "nobody is left to bind it again");
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

impl Live {
    /// The worker that serves it.
    pub(crate) fn worker(&self) -> &Worker {
        &self.0
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.set(self.0.live.get() - 1);
        if self.0.live.get() == 0 {
            self.0.ended.notify_waiters();
        }
    }
}

/// A listening socket that a worker found to be of no more use. If it was closed meanwhile, that is why.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) addr: FrontendAddr,
    pub(crate) socket: Arc<Socket>,
    pub(crate) error: io::Error,
}

/// What a worker can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this socket.
    Listen { addr: FrontendAddr, socket: Arc<Socket>, counters: FrontendCounters },
    /// The frontend is gone: let go of its socket, and of its UDP flows.
    Close(FrontendAddr),
    /// The frontend takes nothing new: let go of its socket, but keep its UDP flows. Whoever is told last has the kernel
    /// refuse what still comes, if it was steered.
    Retire(FrontendAddr, Option<Arc<DeferredRefusal>>),
    /// Serve this socket, to which all steered frontends' packets of a protocol and family come. The address is its own.
    Steer { addr: FrontendAddr, socket: Arc<Socket> },
    /// Answer, to show that the worker runs.
    Ping(oneshot::Sender<()>),
    /// Take nothing new, and answer when the last connection has ended.
    Drain(oneshot::Sender<()>),
    /// Panic, in the loop itself or in one of its tasks.
    #[cfg(test)]
    Panic { in_a_task: bool },
}

/// A running worker, as its owner sees it. Dropping it ends the thread and everything that it serves, as soon as the
/// thread looks up: nobody waits for that, so a stuck thread cannot hold its owner, and the process's end takes it along.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    /// Once closed, the worker's loop ends; then the runtime drops its tasks, and their sockets close.
    commands: mpsc::UnboundedSender<Command>,
    /// Nothing is ever sent: the thread drops the other end when it is over.
    over: oneshot::Receiver<()>,
}

impl WorkerHandle {
    /// Starts a worker's thread.
    ///
    /// # Errors
    /// If the thread or its reactor cannot be made.
    pub(crate) fn start(seed: WorkerSeed) -> io::Result<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (started, outcome) = thread_channel::channel();
        let (alive, over) = oneshot::channel();
        let name = format!("sheave-w{}", seed.index);
        thread::Builder::new().name(name).spawn(move || {
            // Declared before the runtime, so that it is dropped after it.
            let _alive = alive;
            let runtime = match reactor() {
                Ok(runtime) => runtime,
                Err(error) => {
                    started.send(Err(error)).ok();
                    return;
                }
            };
            runtime.block_on(async {
                let (steered, index) = (Arc::clone(&seed.steered), seed.index);
                match Worker::new(seed) {
                    Ok(worker) => {
                        started.send(Ok(())).ok();
                        let _cut = CutAtEnd(Rc::clone(&worker));
                        let listeners = Listeners::new(&worker, steered, index);
                        tokio::select! {
                            () = obey(worker, listeners, inbox) => {}
                            () = task::panicked() => {}
                        }
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        })?;
        outcome.recv().map_err(io::Error::other)??;
        Ok(Self { commands, over })
    }

    /// Ends the worker, cutting what it serves, and waits until that is done.
    pub(crate) async fn end(self) {
        drop(self.commands);
        self.over.await.ok();
    }

    /// Hands over a command, to be obeyed in order.
    pub(crate) fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::error!("a worker has ended before its time");
        }
    }

    /// Whether the thread has come to its end, with all that it had.
    pub(crate) fn is_over(&mut self) -> bool {
        self.over.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    /// Whether the thread still takes commands. It may be stuck all the same. One that has panicked does not.
    pub(crate) fn runs(&self) -> bool {
        !self.commands.is_closed()
    }
}

fn reactor() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_io().enable_time().build_local(LocalOptions::default())
}

async fn obey(worker: Rc<Worker>, mut listeners: Listeners, mut commands: mpsc::UnboundedReceiver<Command>) {
    let [driven, connects, idle, pipes, memory] = [(); 5].map(|()| Rc::clone(&worker));
    task::spawn(async move { driven.relays.drive().await });
    task::spawn(async move { connects.relays.watch_connects().await });
    task::spawn(async move { idle.relays.watch_idle().await });
    task::spawn(async move { pipes.relays.watch_pipes().await });
    task::spawn(async move { memory.relays.watch_memory(&memory.capacity).await });
    while let Some(command) = commands.recv().await {
        match command {
            Command::Listen { addr, socket, counters } => listeners.open(&worker, addr, socket, counters),
            Command::Close(addr) => listeners.close(addr),
            // The refusal comes after that.
            Command::Retire(addr, _refusal) => listeners.retire(addr),
            Command::Steer { addr, socket } => listeners.steer(&worker, addr, socket),
            // Whoever asked may have given up waiting.
            Command::Ping(reply) => {
                reply.send(()).ok();
            }
            #[cfg(test)]
            Command::Panic { in_a_task: false } => panic!("on command"),
            #[cfg(test)]
            Command::Panic { in_a_task: true } => drop(task::spawn(async { panic!("on command") })),
            Command::Drain(reply) => {
                worker.draining.set(true);
                worker.drain_begins.notify_waiters();
                listeners.drain(&worker);
                let worker = Rc::clone(&worker);
                task::spawn(async move {
                    // The accept loops take what has already shaken hands before this runs: they were woken first.
                    tokio::task::yield_now().await;
                    worker.all_ended().await;
                    reply.send(()).ok();
                });
            }
        }
    }
}

/// Connections hold their worker, which holds them: without this none of them would be closed at its end, least of all at
/// one that nobody expected.
struct CutAtEnd(Rc<Worker>);

impl Drop for CutAtEnd {
    fn drop(&mut self) {
        self.0.relays.cut();
    }
}

#[cfg(test)]
mod tests;
