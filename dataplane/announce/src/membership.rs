//! Membership: the gateways that are alive, whether this one has a quorum, and which may own addresses.
//!
//! No socket, no clock, no thread: the caller passes in datagrams and the time, and sends what [`Membership::poll`] returns.
//! After each call it looks at [`Membership::next_due`] again, and calls `poll` by then; first of all after a standstill.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Member;
use crate::ability::Reach;
use crate::hash::{mix, name_hash};
use crate::heartbeat::{Applied, MemberId};
use crate::keys::KeyRing;
use crate::network::Network;

mod exchange;
mod fail_after;
mod minority;
mod options;
mod peer;
mod quorum;
mod reaching;
mod report;
mod silence;
mod staleness;
mod view;

#[cfg(test)]
mod tests;

pub use exchange::Datagram;
pub use minority::Precedence;
pub use options::{MembershipOptions, OptionsError};
pub use peer::Listing;
pub use quorum::{Continuation, HoldDown, Quorum, Start};
pub use report::{MembershipCounters, PeerReport};
pub(crate) use view::view_hash;
pub use view::{Candidate, Standing, View};

use exchange::KnownConflicts;
use fail_after::FailAfter;
use minority::Minority;
use options::margin;
use peer::Peer;
use quorum::{Others, Standby, quorum_until};
use reaching::Reaching;
use report::ABSENT;
pub use staleness::Knowledge;
use staleness::Staleness;

/// How long a member that the API server has never listed counts for the quorum once it is silent: the API server must have heard of it by then.
const UNLISTED: Duration = Duration::from_mins(1);

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
    staleness: Staleness,
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
    /// Somebody may have what was left to it no more.
    probe_again: bool,
    /// Another machine has announced what this gateway has: the others are to answer.
    challenged: bool,
    /// Someone is silent and not proved dead, or the leases of a majority are about to end.
    doubts: bool,
    counters: MembershipCounters,
}

/// Whether this gateway stays, in the order in which it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// Stays.
    Staying,
    /// About to stop: others are to take over its addresses. As long as there are none that stay, it serves on.
    Leaving,
    /// Stops now, whether others take over or not.
    Ending,
    /// About to stop, and announces nothing any more.
    Left,
}

/// Verdict on a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub enum ReceiveOutcome {
    /// Taken.
    Accepted,
    /// Echoes no recent heartbeat of this process: the first one of a member, or a replayed one.
    Unproven,
    /// None of the keys has signed it.
    Unsigned,
    /// Sent by a gateway of another fleet.
    ForeignFleet,
    /// Not newer than the one before.
    Replayed,
    /// Sent by this node.
    Own,
    /// Not a heartbeat.
    Malformed,
    /// Its major version is another one.
    Version,
}

/// Actions after a poll: first fence, then send, then follow the view.
#[derive(Debug, Default)]
#[must_use]
pub struct Actions {
    /// The gateway has just lost its quorum: withdraw everything before the next call of `poll`, which reports it to the others.
    pub fenced: bool,
    /// The gateway has a quorum again.
    pub unfenced: bool,
    /// [`Membership::view`] is another one.
    pub view_changed: bool,
    /// A gateway that was away is back: neighbours may have its MAC address for what this one owns. Announce all of that again.
    pub announce_again: bool,
    /// A gateway is fenced, dead, back or another process: probe again at once what was left to others, since it may have had that.
    pub probe_again: bool,
    /// A gateway that goes on elsewhere may have come in sight: announce one of the addresses once more.
    pub announce_one: bool,
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
            Start::Continued(before) => Some((before.fail_after, before.longest_fail_after)),
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
            staleness: Staleness::default(),
            tie_breaker: None,
            applied: Applied::default(),
            view_at: now,
            assignment_at: now,
            awaiting: false,
            urgent: true,
            dirty: true,
            clock_stood_still: false,
            announce_again: false,
            probe_again: false,
            challenged: false,
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

    /// Sets what this gateway knows of the cluster.
    pub fn set_knowledge(&mut self, knowledge: Knowledge) {
        if std::mem::replace(&mut self.staleness.knowledge, knowledge) != knowledge {
            (self.dirty, self.urgent) = (true, true);
        }
    }

    /// Sets in which networks this gateway can announce. A loss is sent to others at once, a return after a hold-down.
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

    /// Sets what this gateway follows, once all that it does not own by it is withdrawn.
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

    /// Another machine announces what this gateway has. It may be a gateway that went on without this one while the machine was stopped, clock and all:
    /// others are asked to answer at once, which shows it.
    pub fn challenge(&mut self) {
        (self.challenged, self.urgent) = (true, true);
    }

    /// Takes a datagram.
    pub fn receive(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) -> ReceiveOutcome {
        let received = self.accept(from, bytes, now);
        *self.counters.received.entry(received).or_default() += 1;
        received
    }

    /// Draws the conclusions that are due.
    pub fn poll(&mut self, now: Instant) -> Actions {
        let stood_still = std::mem::take(&mut self.clock_stood_still) || self.is_late(now);
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
        self.urgent |= self.update_staleness(now);
        self.doubts = self.has_doubts(now) || self.lease_risk().is_some_and(|risk| risk.contains(&now));
        let view_changed = self.update_view(now);
        let due = now >= self.send_due();
        // Others take "fenced" for "announces nothing": it is sent when that is so.
        let send = if fenced || !due { None } else { self.datagram(now) };
        (self.last_poll, self.dirty) = (now, fenced);
        self.conclusions_due = self.next_conclusions(others);
        let announce_again = std::mem::take(&mut self.announce_again);
        let probe_again = std::mem::take(&mut self.probe_again);
        let announce_one = send.is_some() && self.precedence() != Precedence::Own && self.may_have_rivals();
        Actions { fenced, unfenced, view_changed, announce_again, probe_again, announce_one, send }
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

    /// Whether this process did not run when it should have, and has not concluded anything since.
    fn is_late(&self, now: Instant) -> bool {
        now > self.scheduled().max(self.last_poll) + self.options.fail_after
    }

    /// When there is something to conclude even if nothing comes. What comes may put it off, which the next `poll` finds out: it is due within an
    /// interval anyway, and whoever reads five hundred heartbeats in a second need not compute it after each of them.
    fn next_conclusions(&self, others: Others) -> Instant {
        let eligible = self.standby.next_due(&self.options, others).filter(|_| self.may_be_eligible());
        let quorum = if self.standby.fenced { None } else { self.quorum_until() };
        let listened = self.view.listening.then(|| self.listening_since + self.fail_after.promised());
        let split = self.staleness.due(self.last_poll);
        let reach = self.reaching.next_due(&self.options);
        let risk = self.lease_risk().map(|risk| risk.start).filter(|at| *at > self.last_poll);
        let times = [self.silence_due(self.last_poll), eligible, quorum, risk, listened, split, reach];
        times.into_iter().flatten().fold(self.last_poll + self.options.interval, Instant::min)
    }

    /// Present view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// How the gateway takes part.
    pub fn options(&self) -> &MembershipOptions {
        &self.options
    }

    /// State that a successor on this node starts with.
    pub fn hand_over(&self, now: Instant) -> Continuation {
        let until =
            if self.members(now) == 1 { Some(now + self.fail_after.promised()) } else { self.quorum_until() };
        Continuation {
            eligible: self.standby.eligible,
            lease_left: until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)),
            hold_down: self.standby.hold_down.time,
            fail_after: self.fail_after.promised(),
            longest_fail_after: self.fail_after.judged(),
        }
    }

    /// Whether this gateway stays.
    pub fn presence(&self) -> Presence {
        self.presence
    }

    /// Reports on each other member.
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
            applied: peer.last.as_ref().map(|last| last.applied),
            round_trip: peer.round_trip.map(|trip| trip.took),
        })
    }

    /// Counters since the start.
    pub fn counters(&self) -> &MembershipCounters {
        &self.counters
    }

    /// The silence after which this gateway believes a member dead, by the round trips that it has measured.
    pub fn fail_after(&self) -> Duration {
        self.fail_after.promised()
    }

    /// How long this gateway must have a quorum before it becomes eligible, while others are.
    pub fn hold_down(&self) -> HoldDown {
        self.standby.hold_down
    }

    /// This process did not run: its leases are over, and the silence is its own.
    fn stand_still(&mut self, now: Instant) {
        self.counters.standstills += 1;
        self.listening_since = now;
        self.sent.clear();
        self.tie_breaker = None;
        self.peers.iter_mut().for_each(|peer| peer.excuse(now));
    }

    /// Forgets who is neither listed nor heard.
    fn retire(&mut self, now: Instant) {
        let kept = UNLISTED.max(self.options.fail_after_max * 4);
        let listed = |peer: &Peer| matches!(peer.listing, Listing::Ready | Listing::NotReady);
        self.peers.retain(|peer| listed(peer) || now < peer.heard_at.max(peer.since) + kept);
    }

    /// Whether a member counts for the quorum. One that comes, or is back after it has left, counts from its first lease on, or once it has had the time
    /// to give one: so far there was a majority without it, and it could only take that away.
    fn counts(&self, peer: &Peer, now: Instant) -> bool {
        let heard = peer.is_heard(self.fail_after.judged(), now) || peer.via.is_some();
        match peer.listing {
            _ if peer.state.left || peer.is_joining(now) => false,
            _ if heard => true,
            Listing::Ready => true,
            Listing::Never => peer.known && !peer.dead && now < peer.heard_at + UNLISTED,
            Listing::NotReady | Listing::Removed => false,
        }
    }

    /// How many members count, this gateway included.
    fn members(&self, now: Instant) -> usize {
        1 + self.peers.iter().filter(|peer| self.counts(peer, now)).count()
    }

    fn tie_breaker_until(&self) -> Option<Instant> {
        self.tie_breaker
            .map(|pinged_at| pinged_at + self.options.fail_after - margin(self.options.fail_after))
    }

    fn tie_breaker_holds(&self, now: Instant) -> bool {
        self.tie_breaker_until().is_some_and(|until| now < until)
            && !self.is_opposed(now)
            && !self.is_outvoted(now)
    }

    /// Whether others say that more than half of the members are alive which this gateway has long not heard: these take it for dead, and
    /// what it has, if one of them is eligible. Of those who have just started none is.
    fn is_outvoted(&self, now: Instant) -> bool {
        let long = self.fail_after.judged() * 2;
        let elsewhere =
            |peer: &&Peer| peer.via.is_some() && !peer.has_lease(now) && now >= peer.heard_at + long;
        let elsewhere = || self.peers.iter().filter(elsewhere);
        elsewhere().count() * 2 > self.members(now) && elsewhere().any(|peer| peer.state.eligible)
    }

    /// When the quorum ends if nothing is heard.
    fn quorum_until(&self) -> Option<Instant> {
        let tie = self.tie_breaker_until().filter(|_| !self.is_opposed(self.last_poll));
        let until = self.leases_until(tie).max(self.standby.inherited);
        until.filter(|until| *until > self.last_poll)
    }

    fn leases_until(&self, tie: Option<Instant>) -> Option<Instant> {
        let counted = self.peers.iter().filter(|peer| self.counts(peer, self.last_poll));
        let leases = counted.filter_map(|peer| peer.lease_until).collect();
        quorum_until(leases, self.view.quorum.members, tie)
    }

    /// Until when there are leases of a majority, and from when on a few more lost heartbeats would end that: others are asked to answer
    /// at once in this time. Without loss it hardly ever comes to that: what is echoed is two intervals old at most.
    fn lease_risk(&self) -> Option<Range<Instant>> {
        let until = self.leases_until(None).filter(|_| !self.standby.fenced)?;
        Some(until.checked_sub(self.options.fail_after / 3)?..until)
    }

    /// Fences or ends the fence; true if it has just been fenced.
    fn update_quorum(&mut self, stood_still: bool, now: Instant) -> bool {
        let votes = self.peers.iter().filter(|peer| self.counts(peer, now) && peer.has_lease(now)).count();
        let tie_breaker = self.tie_breaker_holds(now);
        self.view.quorum = Quorum { votes: 1 + votes, members: self.members(now), tie_breaker };
        let inherited = self.standby.inherited.is_some_and(|until| now < until);
        let lost = stood_still || !(self.view.quorum.holds() || inherited);
        if lost || self.must_give_way(inherited, now) {
            let fenced = self.standby.fence(now);
            if fenced {
                self.peers.iter_mut().for_each(|peer| peer.was_away = false);
                let heard_at = self.peers.iter().filter(|peer| peer.is_alive()).map(|peer| peer.heard_at);
                self.standby.quiet_since = heard_at.max().filter(|at| now > *at + self.options.interval);
            }
            self.end_minority();
            self.counters.fences += u64::from(fenced);
            self.urgent |= fenced;
            return fenced;
        }
        let interruption = self.fail_after.judged() + self.options.interval;
        let unfenced = self.standby.unfence(interruption, now);
        self.urgent |= unfenced;
        false
    }

    /// State of the others while this gateway could own nothing.
    fn others(&self, now: Instant) -> Others {
        let since = self.standby.away_since;
        let said = |peer: &Peer| peer.last.as_ref().is_some_and(|last| last.received >= since);
        let eligible = || {
            let told = |peer: &&Peer| peer.via.is_some() || said(peer);
            self.peers.iter().filter(|peer| peer.is_eligible()).filter(told)
        };
        // Whoever is not ready, or not known to the API server yet, may own something as well.
        let possible = |peer: &&Peer| {
            let listed = matches!(peer.listing, Listing::Ready | Listing::NotReady);
            let heard = peer.is_joining(now) || self.counts(peer, now);
            !peer.dead && !peer.state.left && (listed || heard)
        };
        let mut possible = self.peers.iter().filter(possible).peekable();
        Others {
            eligible: eligible().next().is_some(),
            went_on: eligible().any(|peer| !peer.was_away),
            complete: possible.peek().is_some()
                && possible.all(|peer| said(peer) && peer.is_heard(self.fail_after.judged(), now)),
        }
    }

    /// Follows who reaches the API server of those who may own addresses; true if others go first now, or no longer do. What another one that is
    /// not heard would say of it is unknown.
    fn update_staleness(&mut self, now: Instant) -> bool {
        let heard = |peer: &&Peer| peer.is_eligible() && peer.via.is_none();
        let others = self.peers.iter().filter(heard).map(|peer| (&peer.node, peer.cut_off));
        self.staleness.update(others, now)
    }

    /// Computes the view; true if it is another one.
    fn update_view(&mut self, now: Instant) -> bool {
        let peers = self
            .peers
            .iter()
            .map(|peer| (peer.node.clone(), view::standing(peer.is_alive(), self.regard(peer, now))));
        let own = (self.options.node.clone(), view::standing(true, self.state()));
        let standings: BTreeMap<_, _> = peers.chain([own]).collect();
        let ability =
            |node: &str| Arc::clone(self.peer(node).map_or(&self.reaching.told, |peer| &peer.ability));
        let candidates = view::candidates(&standings);
        let candidate = |node: &Arc<str>| Candidate {
            node: node.clone(),
            ability: ability(node),
            stale: standings.get(node) == Some(&Standing::Stale),
        };
        let candidates: Vec<_> = candidates.map(candidate).collect();
        // Before the first conclusion it is 0.
        let same = self.view.hash != 0 && candidates == self.view.candidates;
        let view = View {
            hash: if same { self.view.hash } else { view_hash(&candidates) },
            candidates,
            standings,
            quorum: self.view.quorum,
            fenced: self.standby.fenced,
            eligible: self.standby.eligible,
            listening: self.view.listening && now < self.listening_since + self.fail_after.promised(),
        };
        let relevant = |view: &View| (view.fenced, view.listening);
        let changed = !same || relevant(&view) != relevant(&self.view);
        self.view = view;
        changed
    }
}

/// Whether one of these that may own addresses is in a network.
fn reached(peers: &[Peer]) -> impl Fn(Network) -> bool {
    |network| {
        let reaches = |peer: &Peer| match &peer.ability.reach {
            Reach::Everywhere => true,
            Reach::Subnets(subnets) => subnets.iter().any(|subnet| subnet.network.overlaps(network)),
        };
        peers.iter().any(|peer| peer.is_eligible() && reaches(peer))
    }
}
