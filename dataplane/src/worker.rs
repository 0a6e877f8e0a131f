//! Worker: what a thread of the data plane shares among TCP, UDP and its event loop, and the handle by which others command it. A worker
//! makes no decisions: sockets come from the listener, endpoints from the table. [`event_loop`](crate::event_loop) runs it.

mod command;
pub(crate) mod context;
pub(crate) mod deadlines;
pub(crate) mod steps;
pub(crate) mod token;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::worker_port::WorkerPorts;

pub(crate) use command::Command;

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
    /// Creates the handle of the worker `index`, whose thread receives `commands` and drops the sender of `over` when it ends.
    pub(crate) fn new(
        commands: mpsc::UnboundedSender<Command>,
        ports: Arc<WorkerPorts>,
        index: usize,
        over: oneshot::Receiver<()>,
    ) -> Self {
        Self { commands: CommandSender { channel: Some(commands), ports, index }, over }
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
