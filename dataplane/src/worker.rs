//! A worker: one OS thread with its own event loop, sockets and buffers. It serves what it accepts to the end; nothing moves
//! between workers. It decides nothing: sockets come from the listener, endpoints from the table.

pub(crate) mod context;
mod listeners;
pub(crate) mod pool;

use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc as thread_channel};
use std::thread;
use std::time::Duration;

use sheave_model::FrontendAddr;
use socket2::Socket;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, oneshot};

use crate::counters::FrontendCounters;
use crate::listener::sk_lookup::DeferredRefusal;
use crate::listener::steering::frontends::SteeredFrontends;
use crate::task;
use crate::tcp::{PipeBudget, TcpContext};
use crate::udp::UdpContext;
#[cfg(test)]
use context::Timeouts;
use context::{Shared, WorkerContext};
use listeners::WorkerListeners;

/// What a worker is started with.
#[derive(Clone)]
pub(crate) struct WorkerSeed {
    pub(crate) index: usize,
    /// How many workers there are.
    pub(crate) workers: usize,
    pub(crate) shared: Shared,
    pub(crate) busy_poll: Duration,
    pub(crate) udp_flows: usize,
    pub(crate) pipes: PipeBudget,
    pub(crate) random: u64,
    pub(crate) steered: Arc<SteeredFrontends>,
}

#[cfg(test)]
impl WorkerSeed {
    /// The only worker, with room for one flow.
    pub(crate) fn for_tests(timeouts: Timeouts) -> Self {
        Self {
            index: 0,
            workers: 1,
            shared: Shared::for_tests(timeouts),
            busy_poll: Duration::ZERO,
            udp_flows: 1,
            pipes: PipeBudget { pipes: 8, slots: usize::MAX },
            random: 1,
            steered: Arc::default(),
        }
    }
}

/// A command to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve a frontend's own socket.
    Listen { addr: FrontendAddr, socket: Arc<Socket>, counters: FrontendCounters },
    /// The frontend is gone: let go of its socket, and of its UDP flows.
    Close(FrontendAddr),
    /// The frontend takes nothing new: let go of its socket, but keep its UDP flows. If it was steered, the kernel refuses
    /// what still comes once the last worker has dropped the refusal.
    Retire(FrontendAddr, Option<Arc<DeferredRefusal>>),
    /// Serve a socket that packets of all steered frontends of a protocol and family arrive on; the address is its own.
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
/// thread notices: nothing waits for that, so a stuck thread cannot hold its owner, and the process's end takes it along.
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
                match WorkerLoop::new(seed) {
                    Ok(worker) => {
                        started.send(Ok(())).ok();
                        let _reset = ResetAtEnd(Rc::clone(&worker.tcp));
                        tokio::select! {
                            () = worker.run(inbox) => {}
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

    /// Sends a command; commands are executed in order.
    pub(crate) fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::error!("a worker has ended early");
        }
    }

    /// Whether the thread has ended, with all that it had.
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

/// What runs on the worker's thread.
struct WorkerLoop {
    context: Rc<WorkerContext>,
    tcp: Rc<TcpContext>,
    listeners: WorkerListeners,
}

impl WorkerLoop {
    /// Must be called inside the worker's runtime.
    fn new(seed: WorkerSeed) -> io::Result<Self> {
        let context = WorkerContext::new(seed.shared.clone(), seed.random);
        let tcp = TcpContext::new(&context, seed.pipes, seed.busy_poll)?;
        let udp = UdpContext::new(seed.shared, seed.udp_flows, (seed.index, seed.workers), !seed.random);
        let listeners = WorkerListeners::new(&context, &tcp, udp, seed.steered, seed.index);
        Ok(Self { context, tcp, listeners })
    }

    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        self.tcp.spawn_tasks();
        while let Some(command) = commands.recv().await {
            match command {
                Command::Listen { addr, socket, counters } => self.listeners.open(addr, socket, counters),
                Command::Close(addr) => self.listeners.close(addr),
                // The refusal takes effect after that, when the command is dropped.
                Command::Retire(addr, _refusal) => self.listeners.retire(addr),
                Command::Steer { addr, socket } => self.listeners.steer(addr, socket),
                // The receiver may have given up waiting.
                Command::Ping(reply) => drop(reply.send(())),
                #[cfg(test)]
                Command::Panic { in_a_task: false } => panic!("on command"),
                #[cfg(test)]
                Command::Panic { in_a_task: true } => drop(task::spawn(async { panic!("on command") })),
                Command::Drain(reply) => self.drain(reply),
            }
        }
    }

    fn drain(&mut self, reply: oneshot::Sender<()>) {
        self.context.drain();
        self.listeners.drain();
        let context = Rc::clone(&self.context);
        task::spawn(async move {
            // The accept loops take what has already shaken hands before this runs: they were woken first.
            tokio::task::yield_now().await;
            context.all_closed().await;
            reply.send(()).ok();
        });
    }
}

/// Resets all connections when the worker ends, also by a panic: closing alone would make half an answer look like a whole one.
struct ResetAtEnd(Rc<TcpContext>);

impl Drop for ResetAtEnd {
    fn drop(&mut self) {
        self.0.connections.reset_all();
    }
}

#[cfg(test)]
mod tests;
