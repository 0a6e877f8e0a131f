//! Sends heartbeats: when, and what they contain.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::options::margin;
use super::peer::LastHeartbeat;
use super::{Membership, Presence};
use crate::heartbeat::{Heartbeat, MOST_PASSED_ON, NodeState, PassedOn};

/// From so many members on, heartbeats are read five times in an interval; of fewer, at most twenty times.
const MEMBERS_OF_LONGEST_PAUSE: u32 = 50;

/// A heartbeat to be sent: the same bytes to everyone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Signed.
    pub bytes: Vec<u8>,
    /// Where to.
    pub to: Vec<SocketAddr>,
}

impl Membership {
    /// When the next heartbeat is to be sent.
    pub(super) fn send_due(&self) -> Instant {
        let pause = match () {
            () if self.urgent => self.options.gap(),
            () if self.asks() => self.options.interval / 4,
            () => self.options.interval,
        };
        self.last_sent.map_or(self.last_poll, |sent| sent + pause)
    }

    /// How long heartbeats may wait to be read together: the longer the more members there are, since to be woken costs more than to read one. What
    /// is read late makes a member seem alive for so much longer, and no member silent: they are read before that is concluded.
    pub fn reading_pause(&self) -> Duration {
        if self.asks() {
            return Duration::ZERO;
        }
        let members = u32::try_from(self.peers.len()).unwrap_or(u32::MAX).min(MEMBERS_OF_LONGEST_PAUSE);
        let longest = self.options.interval / 5;
        (longest * members / MEMBERS_OF_LONGEST_PAUSE).max(self.options.gap())
    }

    /// Whether answers are wanted at once: they decide who owns an address.
    fn asks(&self) -> bool {
        self.doubts || self.awaiting
    }

    /// The next heartbeat.
    pub(super) fn datagram(&mut self, now: Instant) -> Option<Datagram> {
        self.urgent = false;
        self.last_sent = Some(now);
        self.sequence = self.sequence.wrapping_add(1);
        let horizon = self.options.fail_after_max;
        while self.sent.front().is_some_and(|(_, sent)| now >= *sent + horizon) {
            self.sent.pop_front();
        }
        self.sent.push_back((self.sequence, now));
        let to: Vec<_> = self.peers.iter().filter_map(|peer| peer.destination(self.options.port)).collect();
        if to.is_empty() {
            return None;
        }
        let told = self.peers.iter().flat_map(|peer| peer.entries(&self.fail_after, now));
        let mut entries: Vec<_> = told.collect();
        // Once here rather than by everyone who receives it.
        entries.sort_by_key(|entry| entry.id);
        let heartbeat = Heartbeat {
            node: (*self.options.node).to_owned(),
            incarnation: self.incarnation,
            sequence: self.sequence,
            state: self.state(),
            asks: self.asks(),
            listening: self.fail_after.tell(now.saturating_duration_since(self.listening_since)),
            fail_after: self.fail_after.promised(),
            applied: self.applied,
            entries,
            ability: Arc::clone(self.reaching.told()),
            passed_on: self.passed_on_abilities(now),
            contested: self.conflicts.told(now),
        };
        let mut bytes = heartbeat.encode(self.fleet);
        self.keys.sign(&mut bytes);
        self.counters.sent += to.len() as u64;
        Some(Datagram { bytes, to })
    }

    /// What members are able to own whom others do not hear: as much as leaves room in a frame, and the next time what comes next.
    fn passed_on_abilities(&self, now: Instant) -> Vec<PassedOn> {
        let heard = || self.peers.iter().filter(|peer| peer.is_heard(self.fail_after.judged(), now));
        let missed: BTreeSet<_> =
            heard().filter_map(|peer| peer.last.as_ref()).flat_map(LastHeartbeat::missed).collect();
        let missed = heard().filter(|peer| missed.contains(&peer.id));
        let mut passed_on: Vec<_> = missed.map(|peer| (peer.id, Arc::clone(&peer.ability))).collect();
        let first = self.sequence as usize % passed_on.len().max(1);
        passed_on.rotate_left(first);
        let mut bytes = 0;
        let fits = passed_on.iter().take_while(|(_, ability)| {
            bytes += ability.encoded_size();
            bytes <= MOST_PASSED_ON
        });
        let fits = fits.count().max(1);
        passed_on.truncate(fits);
        passed_on
    }

    /// What this gateway says of itself.
    pub(super) fn state(&self) -> NodeState {
        NodeState {
            eligible: self.standby.eligible && self.presence != Presence::Ending,
            leaving: self.presence != Presence::Staying,
            left: self.presence == Presence::Left,
            stale: self.stale,
            fenced: self.standby.fenced,
            minority: self.minority.goes_on,
        }
    }

    /// Whether a member is silent for so long that it should be dead, and is not proved to be.
    pub(super) fn has_doubts(&self, now: Instant) -> bool {
        let fail_after = self.fail_after.judged();
        let silent = fail_after + margin(fail_after);
        let doubted = |from: Instant| (from + silent..from + fail_after * 2).contains(&now);
        self.peers.iter().any(|peer| peer.last.is_some() && !peer.dead && doubted(peer.heard_at))
    }

    /// When silence means something next: a member is not heard any more, or should be dead.
    pub(super) fn silence_due(&self, after: Instant) -> Option<Instant> {
        let heard = self.fail_after.judged();
        let peers = self.peers.iter().filter(|peer| peer.last.is_some());
        let due = peers.flat_map(|peer| [heard, heard + margin(heard)].map(|time| peer.heard_at + time));
        due.filter(|due| *due > after).min()
    }
}
