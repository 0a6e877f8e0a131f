//! What is displayed of a membership.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::peer::Listing;
use super::view::Standing;
use super::{HoldDown, Membership, ReceiveOutcome};
use crate::heartbeat::{Applied, NodeState};

/// How long a member that is ready may be silent: longer than a restart, and than the API server takes to notice that it is gone, which is 40 s for a
/// machine by default, but it is told of too soon rather than too late.
const ABSENT: Duration = Duration::from_secs(30);

/// What this gateway knows of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Its node.
    pub node: Arc<str>,
    /// Where heartbeats are sent.
    pub address: Option<SocketAddr>,
    /// What the API server says of it.
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
    /// What it last said of itself.
    pub state: NodeState,
    /// It counts for the quorum.
    pub counts: bool,
    /// What it follows.
    pub applied: Option<Applied>,
    /// How long a heartbeat and its echo took lately, without what the echo waited for.
    pub round_trip: Option<Duration>,
    /// How long it will surely not believe this gateway dead.
    pub lease_left: Option<Duration>,
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MembershipCounters {
    /// Heartbeats sent, each to one member.
    pub sent: u64,
    /// Heartbeats taken.
    pub accepted: u64,
    /// Echoes nothing that was sent lately: the first of a process, or an old one.
    pub unproven: u64,
    /// Signed by none of the keys.
    pub unsigned: u64,
    /// Of another fleet.
    pub foreign_fleet: u64,
    /// Not newer than one before it.
    pub replayed: u64,
    /// By this node.
    pub own: u64,
    /// Not a heartbeat.
    pub malformed: u64,
    /// Of another major version.
    pub version: u64,
    /// How often this gateway was fenced.
    pub fences: u64,
    /// How often this process stood still for longer than `fail_after`.
    pub standstills: u64,
}

impl MembershipCounters {
    pub(super) fn count(&mut self, received: ReceiveOutcome) {
        let counter = match received {
            ReceiveOutcome::Accepted => &mut self.accepted,
            ReceiveOutcome::Unproven => &mut self.unproven,
            ReceiveOutcome::Unsigned => &mut self.unsigned,
            ReceiveOutcome::ForeignFleet => &mut self.foreign_fleet,
            ReceiveOutcome::Replayed => &mut self.replayed,
            ReceiveOutcome::Own => &mut self.own,
            ReceiveOutcome::Malformed => &mut self.malformed,
            ReceiveOutcome::Version => &mut self.version,
        };
        *counter += 1;
    }
}

impl Membership {
    /// What is known of each other member.
    pub fn peers(&self, now: Instant) -> impl Iterator<Item = PeerReport> {
        let name = |id| self.peers.iter().find(|peer| peer.id == id).map(|peer| peer.node.clone());
        self.peers.iter().map(move |peer| PeerReport {
            node: peer.node.clone(),
            address: peer.destination(self.options.port),
            listing: peer.listing,
            heard: peer.is_heard(self.fail_after.judged(), now),
            silence: peer.last.as_ref().map(|_| now.saturating_duration_since(peer.heard_at)),
            absent: peer.listing == Listing::Ready
                && peer.via.is_none()
                && now >= peer.heard_at.max(peer.since) + ABSENT,
            via: peer.via.and_then(name),
            standing: self.view.standings.get(&peer.node).copied().unwrap_or(Standing::NotAlive),
            state: peer.state,
            counts: self.counts(peer, now),
            applied: peer.last.as_ref().map(|last| last.applied),
            round_trip: peer.round_trip.map(|(_, trip)| trip),
            lease_left: peer.lease_until.map(|until| until.saturating_duration_since(now)),
        })
    }

    /// What has happened since the start.
    pub fn counters(&self) -> MembershipCounters {
        self.counters
    }

    /// The silence after which this gateway believes a member dead, by the round trips that it has measured.
    pub fn fail_after(&self) -> Duration {
        self.fail_after.promised()
    }

    /// How long this gateway must have a quorum before it becomes eligible, while others are.
    pub fn hold_down(&self) -> HoldDown {
        self.standby.hold_down()
    }
}
