//! What one worker counts for one frontend, by protocol. Read by whoever exports metrics.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::model::Protocol;
use crate::shed::FrontendUse;
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

    /// What all workers together have of the frontend.
    pub fn usage(&self) -> &Arc<FrontendUse> {
        match self {
            Self::Tcp(counters) => counters.usage(),
            Self::Udp(counters) => counters.usage(),
        }
    }

    /// Those of a frontend on so many workers, all zero. `open` counts what its Service has open.
    pub(crate) fn of_workers(protocol: Protocol, workers: usize, open: Arc<AtomicU32>) -> Vec<Self> {
        let usage = Arc::new(FrontendUse::of_service(open));
        let one = || match protocol {
            Protocol::Tcp => Self::Tcp(Arc::new(TcpCounters::new(Arc::clone(&usage)))),
            Protocol::Udp => Self::Udp(Arc::new(UdpCounters::new(Arc::clone(&usage)))),
        };
        std::iter::repeat_with(one).take(workers).collect()
    }
}
