//! Reports on members, and counters, for display.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::ReceiveOutcome;
use super::peer::Listing;
use super::view::Standing;
use crate::heartbeat::{Applied, NodeState};

/// How long a member that is ready may be silent: longer than a restart, and than the API server takes to notice that it is gone, which is 40 s for a
/// machine by default, since a warning too soon is better than one too late.
pub(super) const ABSENT: Duration = Duration::from_secs(30);

/// Report on another gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Its node.
    pub node: Arc<str>,
    /// Where heartbeats are sent.
    pub address: Option<SocketAddr>,
    /// Its listing at the API server.
    pub listing: Listing,
    /// Whether its heartbeats arrive.
    pub heard: bool,
    /// How long ago the last one came.
    pub silence: Option<Duration>,
    /// The API server calls it ready, and nobody has heard it for a while.
    pub absent: bool,
    /// The member that hears it, while this gateway does not.
    pub via: Option<Arc<str>>,
    /// Whether it may own addresses, and why not.
    pub standing: Standing,
    /// Its last state.
    pub state: NodeState,
    /// View and assignment that it follows.
    pub applied: Option<Applied>,
    /// How long a heartbeat and its echo took lately, without what the echo waited for.
    pub round_trip: Option<Duration>,
}

/// Counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MembershipCounters {
    /// Heartbeats sent, each to one member.
    pub sent: u64,
    /// Datagrams received, by their verdict.
    pub received: BTreeMap<ReceiveOutcome, u64>,
    /// How often this gateway was fenced.
    pub fences: u64,
    /// How often this process stood still for longer than `fail_after`.
    pub standstills: u64,
}

impl MembershipCounters {
    /// Datagrams with this verdict.
    pub fn of(&self, outcome: ReceiveOutcome) -> u64 {
        self.received.get(&outcome).copied().unwrap_or(0)
    }
}
