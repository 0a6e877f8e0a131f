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
    /// Those of a TCP frontend.
    pub fn tcp(&self) -> Option<Arc<TcpCounters>> {
        match self {
            Self::Tcp(counters) => Some(Arc::clone(counters)),
            Self::Udp(_) => None,
        }
    }

    /// Those of a UDP frontend.
    pub fn udp(&self) -> Option<Arc<UdpCounters>> {
        match self {
            Self::Udp(counters) => Some(Arc::clone(counters)),
            Self::Tcp(_) => None,
        }
    }

    /// Whether a worker still has them for a UDP frontend, and so its sockets.
    pub(crate) fn is_used_for_udp(&self) -> bool {
        matches!(self, Self::Udp(counters) if Arc::strong_count(counters) > 1)
    }

    /// All zero.
    pub(crate) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp(Arc::default()),
            Protocol::Udp => Self::Udp(Arc::default()),
        }
    }
}
