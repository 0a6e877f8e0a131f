//! Another member: what the API server says of it, what it says itself, and for how long it has been silent.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fail_after::FailAfter;
use super::options::margin;
use crate::ability::Ability;
use crate::heartbeat::{Applied, Entry, Heartbeat, MemberId, NodeState, PassedOn, Silence};

/// Listing of a member at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Nothing yet: it may be behind.
    Never,
    /// Listed and ready.
    Ready,
    /// Listed, not ready.
    NotReady,
    /// Listed before, and not any more.
    Removed,
}

/// A member that others went on without.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parted {
    /// Since when it is heard again.
    pub(super) back: Option<Instant>,
}

/// A heartbeat of this gateway and the one that echoes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// When the first one was sent.
    pub(super) sent: Instant,
    /// How long the two took.
    pub(super) took: Duration,
    /// When the second one came.
    pub(super) measured: Instant,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: Arc<str>,
    pub(super) id: MemberId,
    pub(super) listing: Listing,
    /// Address at the API server.
    pub(super) address: Option<IpAddr>,
    /// Where its last heartbeat came from.
    pub(super) from: Option<SocketAddr>,
    /// When it was last heard, or since when it would have been.
    pub(super) heard_at: Instant,
    /// Since when it is known.
    pub(super) since: Instant,
    pub(super) last: Option<LastHeartbeat>,
    /// A heartbeat that proved nothing, and when it came: it is echoed, so that the next one can.
    pub(super) unproven: Option<(u64, u32, Instant)>,
    /// Since when it shows that it goes on without this gateway, which it does not hear, and when it last did.
    pub(super) opposed: Option<(Instant, Instant)>,
    /// Until when it need not give a lease to be no member yet: it did not count, and has been heard, or heard of, since.
    pub(super) joining: Option<Instant>,
    /// Until when it will not believe this gateway dead.
    pub(super) lease_until: Option<Instant>,
    /// Last state, by itself or by a member that hears it.
    pub(super) state: NodeState,
    /// Last ability, by itself or by a member that hears it.
    pub(super) ability: Arc<Ability>,
    /// Its view of the API server is old, as it said itself.
    pub(super) cut_off: bool,
    /// Something is known of its state.
    pub(super) known: bool,
    /// Since this gateway lost its quorum, it has said that it may own nothing either.
    pub(super) was_away: bool,
    /// A majority has not heard it for long enough that it has fenced itself.
    pub(super) dead: bool,
    /// Set since it was taken for dead, until it shows that it gave up its addresses.
    pub(super) parted: Option<Parted>,
    /// Member that hears it, while this gateway does not.
    pub(super) via: Option<MemberId>,
    /// Whether it was heard when last judged.
    pub(super) was_heard: bool,
    /// The last that was measured.
    pub(super) round_trip: Option<RoundTrip>,
    /// The longest one lately.
    pub(super) longest_trip: Option<RoundTrip>,
}

/// The last heartbeat that a member has proved to be new.
#[derive(Debug)]
pub(super) struct LastHeartbeat {
    pub(super) received: Instant,
    /// When this gateway sent what it echoes: the heartbeat was sent later.
    pub(super) proof: Instant,
    pub(super) incarnation: u64,
    pub(super) sequence: u32,
    pub(super) applied: Applied,
    pub(super) fail_after: Duration,
    listening: Silence,
    /// Sorted by member.
    entries: Vec<Entry>,
    passed_on: Vec<PassedOn>,
}

impl LastHeartbeat {
    pub(super) fn new(heartbeat: Heartbeat, received: Instant, proof: Instant) -> Self {
        let Heartbeat {
            incarnation, sequence, applied, fail_after, listening, mut entries, passed_on, ..
        } = heartbeat;
        entries.retain(|entry| !entry.unproven);
        // An older version does not sort them.
        if !entries.is_sorted_by_key(|entry| entry.id) {
            entries.sort_by_key(|entry| entry.id);
        }
        Self { received, proof, incarnation, sequence, applied, fail_after, listening, entries, passed_on }
    }

    fn entry(&self, id: MemberId) -> Option<&Entry> {
        self.entries
            .binary_search_by_key(&id, |entry| entry.id)
            .ok()
            .and_then(|index| self.entries.get(index))
    }

    /// When the sender last heard a member, and the state that this one reported; none if its process never heard it.
    pub(super) fn heard(&self, id: MemberId) -> Option<(Instant, NodeState)> {
        let entry = self.entry(id).filter(|entry| entry.silence.is_heard() && entry.echo.is_some())?;
        Some((self.heard_at(entry.silence)?, entry.state))
    }

    /// The members that the sender does not hear.
    pub(super) fn missed(&self) -> impl Iterator<Item = MemberId> {
        let missed = self.entries.iter().filter(|entry| entry.echo.is_none() || !entry.silence.is_heard());
        missed.map(|entry| entry.id)
    }

    /// Whether the sender went on without a member that it had taken for dead.
    pub(super) fn went_on_without(&self, id: MemberId) -> bool {
        self.entry(id).is_some_and(|entry| entry.state.minority)
    }

    /// Ability of a member, as the sender passes it on.
    pub(super) fn ability(&self, id: MemberId) -> Option<&Arc<Ability>> {
        self.passed_on.iter().find(|(member, _)| *member == id).map(|(_, ability)| ability)
    }

    /// From when to when a member had surely no lease from the sender.
    pub(super) fn without_lease(&self, id: MemberId) -> Option<(Instant, Instant)> {
        let silence = self.entry(id).map_or(self.listening, |entry| entry.silence);
        Some((self.heard_at(silence)? + self.fail_after, self.proof))
    }

    /// The latest time at which the sender can have heard the member last.
    fn heard_at(&self, silence: Silence) -> Option<Instant> {
        self.received.checked_sub(silence.at_least(self.fail_after))
    }

    /// Until when the sender will not believe this gateway dead, if it echoed the proof as a lease.
    pub(super) fn lease(&self) -> Instant {
        self.proof + self.fail_after - margin(self.fail_after)
    }
}

impl Peer {
    pub(super) fn new(node: Arc<str>, heard_at: Instant, since: Instant) -> Self {
        Self {
            id: MemberId::of(&node),
            node,
            listing: Listing::Never,
            address: None,
            from: None,
            heard_at,
            since,
            last: None,
            unproven: None,
            opposed: None,
            joining: None,
            lease_until: None,
            state: NodeState::default(),
            ability: Arc::default(),
            cut_off: false,
            known: false,
            was_away: false,
            dead: false,
            parted: None,
            via: None,
            was_heard: false,
            round_trip: None,
            longest_trip: None,
        }
    }

    /// Whether a heartbeat came within `fail_after`.
    pub(super) fn is_heard(&self, fail_after: Duration, now: Instant) -> bool {
        self.last.is_some() && now < self.heard_at + fail_after
    }

    /// Takes over what it said of its state, or who hears it; whether it has given up what it had.
    pub(super) fn set_state(&mut self, state: NodeState) -> bool {
        let released = state.fenced && !self.state.fenced;
        (self.state, self.known) = (state, true);
        self.was_away |= !state.eligible;
        released
    }

    /// Notes that it is heard, or heard of; `counted`: whether it counted just before.
    pub(super) fn note_presence(&mut self, counted: bool, fail_after: Duration, now: Instant) {
        if self.state.left {
            // Its next process has given no lease.
            (self.lease_until, self.joining) = (None, None);
        } else if self.has_lease(now) {
            self.joining = None;
        } else if !counted && !self.is_joining(now) {
            self.joining = Some(now + fail_after);
        }
    }

    /// Whether it has come lately, and given no lease since.
    pub(super) fn is_joining(&self, now: Instant) -> bool {
        self.joining.is_some_and(|until| now < until)
    }

    pub(super) fn has_lease(&self, now: Instant) -> bool {
        self.lease_until.is_some_and(|until| now < until)
    }

    /// Whether it may own addresses and go on to.
    pub(super) fn is_eligible(&self) -> bool {
        self.is_alive() && self.state.eligible && !self.state.leaving
    }

    /// Whether it was alive, and is not proved dead.
    pub(super) fn is_alive(&self) -> bool {
        self.known && !self.dead
    }

    pub(super) fn destination(&self, port: u16) -> Option<SocketAddr> {
        self.address.map(|address| SocketAddr::new(address, port)).or(self.from)
    }

    /// Its entries in a heartbeat: an echo that is a lease, and one that is none.
    pub(super) fn entries(&self, fail_after: &FailAfter, now: Instant) -> impl Iterator<Item = Entry> {
        let silence = fail_after.tell(now.saturating_duration_since(self.heard_at));
        let state = NodeState { minority: self.parted.is_some(), ..self.state };
        let entry = Entry { id: self.id, echo: None, unproven: false, silence, state };
        let heard = Entry { echo: self.last.as_ref().map(|last| last.sequence), ..entry };
        let unproven = self.unproven.map(|(_, sequence, received)| Entry {
            echo: Some(sequence),
            unproven: true,
            silence: fail_after.tell(now.saturating_duration_since(received)),
            ..entry
        });
        [Some(heard), unproven].into_iter().flatten()
    }

    /// Forgets the silence, which was that of this gateway after a standstill.
    pub(super) fn excuse(&mut self, now: Instant) {
        self.heard_at = now;
        self.lease_until = None;
    }
}
