//! What one worker counts for one frontend, by protocol. Read by whoever exports metrics.

use crate::model::Protocol;
use crate::tcp::counters::TcpCounters;

/// Counters of one frontend on one worker.
#[derive(Debug)]
pub enum FrontendCounters {
    /// A TCP frontend's.
    Tcp(std::sync::Arc<TcpCounters>),
    /// A UDP frontend's.
    Udp(()),
}

impl FrontendCounters {
    /// All zero.
    pub(crate) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp(Default::default()),
            Protocol::Udp => Self::Udp(()),
        }
    }
}
