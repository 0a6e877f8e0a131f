//! Who is alive, whether this gateway has a quorum, and who may own addresses.
//!
//! No socket, no clock, no thread: the caller passes in datagrams and the time, and sends what [`Membership::poll`] returns.
//! After each call it looks at [`Membership::next_due`] again, and calls `poll` by then; first of all after a standstill.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ability::Reach;
use crate::hash::{mix, name_hash};
use crate::heartbeat::{Applied, MemberId};
use crate::keys::KeyRing;
use crate::member::Member;

mod agreement;
mod conclusions;
mod contested;
mod fail_after;
mod hold_down;
mod minority;
mod opposition;
mod options;
mod peer;
mod quorum;
mod reaching;
mod receiving;
mod report;
mod sending;
mod silence;
mod start;
mod view;

#[cfg(test)]
mod tests;

pub use hold_down::HoldDown;
pub use options::{MembershipOptions, OptionsError};
pub use peer::Listing;
pub use quorum::Quorum;
pub use report::{MembershipCounters, PeerReport};
pub use sending::Datagram;
pub use start::{Continuation, Start};
pub(crate) use view::view_hash;
pub use view::{Candidate, Standing, View};

use conclusions::reached;
use contested::KnownConflicts;
use fail_after::FailAfter;
use minority::Minority;
use peer::Peer;
use quorum::{Others, Standby};
use reaching::Reaching;
use view::StaleSplit;

/// The state of this gateway among the others.
#[derive(Debug)]
pub struct Membership {
    options: MembershipOptions,
    keys: KeyRing,
    id: MemberId,
    fleet: u64,
    incarnation: u64,
    sequence: u32,
    /// Numbers of heartbeats sent within `fail_after_max`, consecutive.
    sent: VecDeque<(u32, Instant)>,
    last_sent: Option<Instant>,
    last_poll: Instant,
    /// When there is something to conclude next, as of the last poll.
    conclusions_due: Instant,
    /// Since when it would have heard whoever was alive.
    listening_since: Instant,
    /// Sorted by node.
    peers: Vec<Peer>,
    standby: Standby,
    minority: Minority,
    fail_after: FailAfter,
    presence: Presence,
    stale: bool,
    stale_split: StaleSplit,
    reaching: Reaching,
    conflicts: KnownConflicts,
    tie_breaker: Option<Instant>,
    applied: Applied,
    view_at: Instant,
    assignment_at: Instant,
    awaiting: bool,
    view: View,
    /// To be sent as soon as possible.
    urgent: bool,
    /// To be polled at once.
    dirty: bool,
    /// Somebody has shown that the clock of this machine has stood still.
    clock_stood_still: bool,
    /// Somebody may have announced what this gateway owns.
    announce_again: bool,
    /// Someone is silent and not proved dead, or the leases of a majority are about to end.
    doubts: bool,
    counters: MembershipCounters,
}

/// Whether this gateway stays, in the order in which it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// It does.
    Staying,
    /// It is about to stop: others are to take over its addresses. As long as there are none that stay, it serves on.
    Leaving,
    /// It stops now, whether others take over or not.
    Ending,
    /// It is about to stop, and announces nothing any more.
    Left,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReceiveOutcome {
    /// Taken.
    Accepted,
    /// It echoes no recent heartbeat of this process. The first one of a member does not, nor does a replayed one.
    Unproven,
    /// None of the keys has signed it.
    Unsigned,
    /// It is of another fleet.
    ForeignFleet,
    /// It is not newer than the one before.
    Replayed,
    /// It comes from this node.
    Own,
    /// It is not a heartbeat.
    Malformed,
    /// Its major version is another one.
    Version,
}

/// What to do: first fence, then send, then follow the view.
#[derive(Debug, Default)]
#[must_use]
pub struct Actions {
    /// The gateway has just lost its quorum: withdraw everything before the next call of `poll`, which reports it to the others.
    pub fenced: bool,
    /// It has a quorum again.
    pub unfenced: bool,
    /// [`Membership::view`] is another one.
    pub view_changed: bool,
    /// A gateway that was away is back: neighbours may have its MAC address for what this one owns. Announce all of that again.
    pub announce_again: bool,
    /// Send this.
    pub send: Option<Datagram>,
}

impl Membership {
    /// A gateway of which nobody has heard; `incarnation` is random.
    pub fn new(
        options: MembershipOptions,
        keys: KeyRing,
        start: Start,
        incarnation: u64,
        now: Instant,
    ) -> Result<Self, OptionsError> {
        options.check()?;
        let standby = Standby::new(&options, start, now);
        let continued = match start {
            Start::Continued(continuation) => Some(continuation.fail_after),
            Start::Fresh(_) => None,
        };
        Ok(Self {
            id: MemberId::of(&options.node),
            fleet: name_hash(&options.fleet),
            // Numbers of different processes are far apart, so that the echo of one is not taken for another's.
            sequence: mix(incarnation) as u32,
            view: View {
                listening: matches!(start, Start::Continued(_)),
                fenced: standby.fenced,
                ..View::default()
            },
            standby,
            minority: Minority::default(),
            reaching: Reaching::new(&options),
            conflicts: KnownConflicts::default(),
            fail_after: FailAfter::new(&options, continued, now),
            options,
            keys,
            incarnation,
            sent: VecDeque::new(),
            last_sent: None,
            last_poll: now,
            conclusions_due: now,
            listening_since: now,
            peers: Vec::new(),
            presence: Presence::Staying,
            stale: false,
            stale_split: StaleSplit::default(),
            tie_breaker: None,
            applied: Applied::default(),
            view_at: now,
            assignment_at: now,
            awaiting: false,
            urgent: true,
            dirty: true,
            clock_stood_still: false,
            announce_again: false,
            doubts: false,
            counters: MembershipCounters::default(),
        })
    }

    /// Replaces the members that the API server lists; this gateway may be among them.
    pub fn set_members(&mut self, members: Vec<Member>, now: Instant) {
        let mut listed: BTreeMap<Arc<str>, Member> =
            members.into_iter().map(|member| (member.node.clone(), member)).collect();
        listed.remove(&self.options.node);
        for peer in &mut self.peers {
            peer.listing = match (listed.remove(&peer.node), peer.listing) {
                (Some(member), _) => {
                    peer.address = member.addresses.first().copied();
                    if member.ready { Listing::Ready } else { Listing::NotReady }
                }
                (None, Listing::Never) => Listing::Never,
                (None, _) => Listing::Removed,
            };
        }
        for (node, member) in listed {
            let listing = if member.ready { Listing::Ready } else { Listing::NotReady };
            let address = member.addresses.first().copied();
            self.peers.push(Peer { listing, address, ..Peer::new(node, self.listening_since.min(now), now) });
        }
        self.peers.sort_by(|a, b| a.node.cmp(&b.node));
        (self.dirty, self.urgent) = (true, true);
    }

    /// Replaces the keys.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.keys = keys;
    }

    /// Whether this gateway stays.
    pub fn set_presence(&mut self, presence: Presence) {
        if std::mem::replace(&mut self.presence, presence) != presence {
            (self.dirty, self.urgent) = (true, true);
        }
    }

    /// Whether this gateway's view of the API server is old.
    pub fn set_stale(&mut self, stale: bool) {
        if std::mem::replace(&mut self.stale, stale) != stale {
            (self.dirty, self.urgent) = (true, true);
        }
    }

    /// In which networks this gateway can announce. Others are told at once what it has lost, and what has returned after a hold-down.
    pub fn set_reach(&mut self, reach: Reach, now: Instant) {
        if self.reaching.set(reach, &self.options, self.standby.eligible, now) {
            self.urgent = true;
        }
        self.dirty = true;
    }

    /// The tie-breaker has answered a ping that was sent at this time. It counts for `fail_after` from then.
    pub fn set_tie_breaker(&mut self, pinged_at: Instant) {
        self.tie_breaker = self.tie_breaker.max(Some(pinged_at));
        self.dirty |= self.standby.fenced || self.doubts;
    }

    /// What this gateway follows, once all that it does not own by it is withdrawn.
    pub fn set_applied(&mut self, applied: Applied, now: Instant) {
        let old = std::mem::replace(&mut self.applied, applied);
        if old.view != applied.view {
            self.view_at = now;
        }
        if old.assignment != applied.assignment {
            self.assignment_at = now;
        }
        self.urgent |= old != applied;
    }

    /// Whether addresses wait for others: they are asked to answer at once.
    pub fn set_awaiting(&mut self, awaiting: bool) {
        self.urgent |= awaiting && !self.awaiting;
        self.awaiting = awaiting;
    }

    /// Takes a datagram.
    pub fn receive(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) -> ReceiveOutcome {
        let received = self.accept(from, bytes, now);
        self.counters.count(received);
        received
    }

    /// Draws the conclusions that are due.
    pub fn poll(&mut self, now: Instant) -> Actions {
        let late = now > self.scheduled().max(self.last_poll) + self.options.fail_after;
        let stood_still = std::mem::take(&mut self.clock_stood_still) || late;
        if stood_still {
            self.stand_still(now);
        }
        self.fail_after.update(&self.options, now);
        self.retire(now);
        self.judge_silence(now);
        self.welcome_back(now);
        let fenced = self.update_quorum(stood_still, now);
        let unfenced = !self.standby.fenced && self.view.fenced;
        let others = self.others(now);
        if self.may_be_eligible() && self.standby.update(&self.options, others, now) {
            self.urgent = true;
        }
        if self.reaching.update(&self.options, self.standby.eligible, reached(&self.peers), now) {
            self.urgent = true;
        }
        self.doubts = self.has_doubts(now) || self.lease_risk().is_some_and(|risk| risk.contains(&now));
        let view_changed = self.update_view(now);
        let due = now >= self.send_due();
        // Others take "fenced" for "announces nothing": it is sent when that is so.
        let send = if fenced || !due { None } else { self.datagram(now) };
        (self.last_poll, self.dirty) = (now, fenced);
        self.conclusions_due = self.next_conclusions(others);
        let announce_again = std::mem::take(&mut self.announce_again);
        Actions { fenced, unfenced, view_changed, announce_again, send }
    }

    /// When `poll` is to be called.
    pub fn next_due(&self) -> Instant {
        if self.dirty { self.last_poll } else { self.scheduled() }
    }

    /// When `poll` would be called if nothing came. Whoever is later than that by far did not run; the last call says nothing of it,
    /// since heartbeats that change nothing are read between two calls.
    fn scheduled(&self) -> Instant {
        self.send_due().min(self.conclusions_due)
    }

    /// When there is something to conclude even if nothing comes. What comes may put it off, which the next `poll` finds out: it is due within an
    /// interval anyway, and whoever reads five hundred heartbeats in a second need not compute it after each of them.
    fn next_conclusions(&self, others: Others) -> Instant {
        let eligible = self.standby.next_due(&self.options, others).filter(|_| self.may_be_eligible());
        let quorum = if self.standby.fenced { None } else { self.quorum_until() };
        let listened = self.view.listening.then(|| self.listening_since + self.fail_after.promised());
        let split = self.stale_split.due(self.last_poll);
        let reach = self.reaching.next_due(&self.options);
        let risk = self.lease_risk().map(|risk| risk.start).filter(|at| *at > self.last_poll);
        let times = [self.silence_due(self.last_poll), eligible, quorum, risk, listened, split, reach];
        times.into_iter().flatten().fold(self.last_poll + self.options.interval, Instant::min)
    }

    /// What this gateway concludes.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// How the gateway takes part.
    pub fn options(&self) -> &MembershipOptions {
        &self.options
    }

    /// What a successor on this node starts with.
    pub fn hand_over(&self, now: Instant) -> Continuation {
        let until =
            if self.members(now) == 1 { Some(now + self.fail_after.promised()) } else { self.quorum_until() };
        Continuation {
            eligible: self.standby.eligible,
            lease_left: until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)),
            hold_down: self.standby.hold_down().time,
            fail_after: self.fail_after.judged(),
        }
    }

    /// Whether this gateway stays.
    pub fn presence(&self) -> Presence {
        self.presence
    }
}
