//! Worker: one OS thread with its own event loop, sockets and buffers. It serves a connection that it accepted to the end, unless
//! it hands the new connection to a worker with clearly fewer. It makes no decisions: sockets come from the listener, endpoints
//! from the table.

mod command;
pub(crate) mod context;
pub(crate) mod deadlines;
mod event_loop;
pub(crate) mod pool;
pub(crate) mod port;
mod standstill;
pub(crate) mod steps;
pub(crate) mod token;
pub(crate) mod watchdog;

use std::io;
use std::sync::{Arc, mpsc as thread_channel};
use std::thread;

use tokio::sync::{mpsc, oneshot};

pub(crate) use command::Command;
use event_loop::EventLoop;
pub(crate) use event_loop::WorkerSeed;
use port::WorkerPorts;

/// Owner's handle of a running worker. Dropping it ends the thread and everything that the thread serves, as soon as the thread
/// notices. The drop does not wait for the thread, so a stuck thread cannot block its owner; it ends with the process.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    commands: CommandSender,
    /// Never receives a value: the thread drops the sender when it ends.
    over: oneshot::Receiver<()>,
}

/// Sender of commands to a worker. Dropping it ends the worker's loop, which closes the worker's sockets.
#[derive(Debug)]
struct CommandSender {
    /// `None` only during the drop.
    channel: Option<mpsc::UnboundedSender<Command>>,
    ports: Arc<WorkerPorts>,
    index: usize,
}

impl CommandSender {
    fn channel(&self) -> Option<&mpsc::UnboundedSender<Command>> {
        self.channel.as_ref().filter(|channel| !channel.is_closed())
    }
}

impl Drop for CommandSender {
    fn drop(&mut self) {
        self.channel.take();
        self.ports.of(self.index).waker.wake();
    }
}

impl WorkerHandle {
    /// Starts a worker's thread.
    ///
    /// # Errors
    /// Returns an error if the thread or its epoll instance cannot be created.
    pub(crate) fn start(seed: WorkerSeed) -> io::Result<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (started, outcome) = thread_channel::channel();
        let (alive, over) = oneshot::channel();
        let (index, ports) = (seed.index, Arc::clone(&seed.shared.ports));
        thread::Builder::new().name(format!("sheave-w{index}")).spawn(move || {
            // Declared before the loop, so that it is dropped after it.
            let _alive = alive;
            match EventLoop::new(seed, inbox) {
                Ok(event_loop) => {
                    started.send(Ok(())).ok();
                    if let Err(error) = event_loop.run() {
                        tracing::error!(worker = index, %error, "a worker gets no more events");
                    }
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        outcome.recv().map_err(io::Error::other)??;
        Ok(Self { commands: CommandSender { channel: Some(commands), ports, index }, over })
    }

    /// Ends the worker, which cuts its connections and flows, and waits until the thread has ended.
    pub(crate) async fn end(self) {
        let Self { commands, over } = self;
        drop(commands);
        over.await.ok();
    }

    /// Sends a command; commands are executed in order.
    pub(crate) fn send(&self, command: Command) {
        let sent = self.commands.channel().is_some_and(|channel| channel.send(command).is_ok());
        if !sent {
            tracing::error!("a worker has ended early");
        }
        self.commands.ports.of(self.commands.index).waker.wake();
    }

    /// Whether the thread has ended and dropped everything it owned.
    pub(crate) fn is_over(&mut self) -> bool {
        self.over.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    /// Whether the thread still accepts commands. A stuck thread does; one that has panicked does not.
    pub(crate) fn runs(&self) -> bool {
        self.commands.channel().is_some()
    }
}

#[cfg(test)]
mod tests;
