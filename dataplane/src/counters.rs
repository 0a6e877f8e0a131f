//! What one worker counts for one frontend, by protocol. Read by whoever exports metrics.

use std::sync::Arc;

use crate::model::Protocol;
use crate::tcp::counters::TcpCounters;
use crate::udp::UdpCounters;

/// Counters of one frontend on one worker.
#[derive(Clone, Debug)]
pub enum FrontendCounters {
    /// A TCP frontend's.
    Tcp(Arc<TcpCounters>),
    /// A UDP frontend's.
    Udp(Arc<UdpCounters>),
}

impl FrontendCounters {
    /// All zero.
    pub(crate) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp(Arc::default()),
            Protocol::Udp => Self::Udp(Arc::default()),
        }
    }
}
