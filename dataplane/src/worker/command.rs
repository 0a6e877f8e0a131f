//! Commands of the owner to a worker.

use std::sync::Arc;

use sheave_model::FrontendAddr;
use socket2::Socket;
use tokio::sync::oneshot;

use crate::counters::{FrontendCounters, UdpCounters};
use crate::handover::HandedFlow;

use super::context::Settings;
use super::steps::Step;

#[derive(Debug)]
pub(crate) enum Command {
    /// Serve a TCP frontend's own socket. The counters are those of all workers.
    ListenTcp { addr: FrontendAddr, socket: Arc<Socket>, counters: Arc<[FrontendCounters]> },
    /// Serve a UDP frontend's own socket.
    ListenUdp { addr: FrontendAddr, socket: Arc<Socket>, counters: Arc<UdpCounters> },
    /// Count what begins from now on at a TCP frontend, which belongs to another Service, with these counters of all workers.
    CountTcp { addr: FrontendAddr, counters: Arc<[FrontendCounters]> },
    /// Like `CountTcp`, for a UDP frontend.
    CountUdp { addr: FrontendAddr, counters: Arc<UdpCounters> },
    /// Stop accepting new traffic for the frontend: release its socket, and end its UDP flows.
    Close(FrontendAddr),
    /// Like `Close`, for a frontend that has left the table: its TCP connections end after the drain timeout.
    Remove(FrontendAddr),
    /// Serve a socket that receives the packets of all steered frontends of one protocol and family; `addr` is the
    /// socket's own address.
    Steer { addr: FrontendAddr, socket: Arc<Socket> },
    /// Apply these settings.
    Configure(Settings),
    /// Start to serve, if the worker was held.
    Serve,
    /// Stop accepting and reading datagrams, then reply: another process is about to take over.
    Pause(oneshot::Sender<()>),
    /// Reply with the next batch of UDP flows for the process that takes over, empty after the last one. For a paused
    /// worker.
    HandOver(oneshot::Sender<Vec<HandedFlow>>),
    /// Serve these UDP flows of the previous process.
    TakeOver(Vec<HandedFlow>),
    /// Go on after a pause: the other process did not take over.
    Resume,
    /// Release the listening sockets and flows, since another process has taken over, and keep serving the connections.
    Leave,
    /// Reply, to show that the worker runs.
    Ping(oneshot::Sender<()>),
    /// Stop accepting, and reply when the last connection has ended.
    Drain(oneshot::Sender<()>),
    /// Panic, for tests.
    #[cfg(test)]
    Panic,
}

impl Command {
    /// The step of the watchdog's record that the command belongs to, and the frontend that it concerns.
    pub(crate) fn step(&self) -> (Step, Option<FrontendAddr>) {
        match self {
            Self::ListenTcp { addr, .. }
            | Self::ListenUdp { addr, .. }
            | Self::CountTcp { addr, .. }
            | Self::CountUdp { addr, .. }
            | Self::Steer { addr, .. } => (Step::Open, Some(*addr)),
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
