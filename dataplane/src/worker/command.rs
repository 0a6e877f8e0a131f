//! What a worker is told to do.

use std::sync::Arc;

use sheave_model::FrontendAddr;
use socket2::Socket;
use tokio::sync::oneshot;

use crate::counters::{FrontendCounters, UdpCounters};
use crate::handover::HandedFlow;

use super::context::Settings;
use super::steps::Step;

/// A command to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve a TCP frontend's own socket. The counters are those of all workers.
    ListenTcp { addr: FrontendAddr, socket: Arc<Socket>, counters: Arc<[FrontendCounters]> },
    /// Serve a UDP frontend's own socket.
    ListenUdp { addr: FrontendAddr, socket: Arc<Socket>, counters: Arc<UdpCounters> },
    /// The frontend takes nothing new: let go of its socket, and end its UDP flows.
    Close(FrontendAddr),
    /// The frontend has left the table: as `Close`, and its TCP connections end after the time of a drain.
    Remove(FrontendAddr),
    /// Serve a socket that packets of all steered frontends of a protocol and family arrive on; the address is its own.
    Steer { addr: FrontendAddr, socket: Arc<Socket> },
    /// Go by these settings.
    Configure(Settings),
    /// Begin to serve, if the worker was held.
    Serve,
    /// Take nothing new and read no datagrams, and answer then: another process is about to take over.
    Pause(oneshot::Sender<()>),
    /// Answer with the next UDP flows for that process; with none after the last. To a worker that is paused.
    HandOver(oneshot::Sender<Vec<HandedFlow>>),
    /// Serve these UDP flows of the process that was there before.
    TakeOver(Vec<HandedFlow>),
    /// Nobody has taken over: go on.
    Resume,
    /// Another process has taken over: let go of what it has, and go on with the connections.
    Leave,
    /// Answer, to show that the worker runs.
    Ping(oneshot::Sender<()>),
    /// Take nothing new, and answer when the last connection has ended.
    Drain(oneshot::Sender<()>),
    /// Panic.
    #[cfg(test)]
    Panic,
}

impl Command {
    /// The step that it is, and the frontend that it is for.
    pub(super) fn step(&self) -> (Step, Option<FrontendAddr>) {
        match self {
            Self::ListenTcp { addr, .. } | Self::ListenUdp { addr, .. } | Self::Steer { addr, .. } => {
                (Step::Open, Some(*addr))
            }
            Self::Close(addr) | Self::Remove(addr) => (Step::Close, Some(*addr)),
            Self::Serve
            | Self::Pause(_)
            | Self::HandOver(_)
            | Self::TakeOver(_)
            | Self::Resume
            | Self::Leave => (Step::TakeOver, None),
            Self::Configure(_) | Self::Ping(_) | Self::Drain(_) => (Step::Command, None),
            #[cfg(test)]
            Self::Panic => (Step::Command, None),
        }
    }
}
