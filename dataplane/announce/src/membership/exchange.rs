//! Exchange of heartbeats: when they are sent, what they contain, what they prove, and what is remembered of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fail_after::CALM;
use super::options::margin;
use super::peer::{LastHeartbeat, Peer, RoundTrip};
use super::silence::opposes;
use super::{Membership, Presence, ReceiveOutcome};
use crate::heartbeat::{
    AddressHash, Contested, Entry, Heartbeat, MOST_ENTRIES, MOST_PASSED_ON, NodeState, PassedOn, Silence,
    WireError,
};

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

/// How long a gateway remembers what one has said: longer than it takes to follow one that has died, and to say the same.
const REMEMBERED: Duration = Duration::from_mins(1);

/// Contested addresses, as this gateway and others have reported them.
#[derive(Debug, Default)]
pub(super) struct KnownConflicts {
    own: Contested,
    said: BTreeMap<AddressHash, Instant>,
    all_said: Option<Instant>,
}

impl KnownConflicts {
    /// Remembers the addresses that a gateway reports.
    pub(super) fn note(&mut self, contested: &Contested, now: Instant) {
        match contested {
            Contested::All => self.all_said = Some(now),
            Contested::These(hashes) if hashes.is_empty() => {}
            Contested::These(hashes) => {
                self.said.retain(|_, said| now < *said + REMEMBERED);
                self.said.extend(hashes.iter().map(|hash| (*hash, now)));
            }
        }
    }

    /// Contents of the next heartbeat.
    pub(super) fn told(&mut self, now: Instant) -> Contested {
        let own = self.own.clone();
        self.note(&own, now);
        own
    }
}

/// Echo of a heartbeat of this gateway. It proves that the heartbeat with it is new if the echoed one was sent within `failAfter`.
#[derive(Clone, Copy)]
struct EchoOfOwn {
    /// When the echoed one was sent.
    sent: Instant,
    /// Whether it is a lease.
    lease: bool,
    /// How long the echo has waited.
    held: Silence,
}

impl EchoOfOwn {
    /// How long the two heartbeats took, but not what the first waited for the second; nothing is known where that was a silence.
    fn round_trip(&self, fail_after: Duration, now: Instant) -> Option<Duration> {
        let held = self.held.at_least(fail_after);
        (held < fail_after / 2).then(|| now.saturating_duration_since(self.sent + held))
    }
}

/// Time within which heartbeats are read that were held up together.
const READ_TOGETHER: Duration = Duration::from_millis(20);

impl RoundTrip {
    /// Whether a later one may have been long for the same reason: both were read together, or echo the same, or the later one, of a number that was
    /// echoed before, was on its way when this one was measured. New numbers are on their way all the time where round trips are long.
    fn held_up_with(&self, later: &Self, echoed_before: bool) -> bool {
        let same = later.sent == self.sent || later.measured <= self.measured + later.took;
        later.measured < self.measured + READ_TOGETHER || echoed_before && same
    }
}

impl Membership {
    pub(super) fn accept(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) -> ReceiveOutcome {
        let refused = |error| match error {
            WireError::Malformed => ReceiveOutcome::Malformed,
            WireError::Version(_) => ReceiveOutcome::Version,
            WireError::ForeignFleet => ReceiveOutcome::ForeignFleet,
        };
        if let Err(error) = Heartbeat::check_header(bytes, self.fleet) {
            return refused(error);
        }
        let Some(signed) = self.keys.verify(bytes) else { return ReceiveOutcome::Unsigned };
        let mut heartbeat = match Heartbeat::decode(signed, self.fleet) {
            Ok(heartbeat) => heartbeat,
            Err(error) => return refused(error),
        };
        if *heartbeat.node == *self.options.node {
            return ReceiveOutcome::Own;
        }
        if self.shows_a_clock_that_stood_still(&heartbeat, now) {
            (self.clock_stood_still, self.dirty) = (true, true);
        }
        let echoes = || self.echoes(&heartbeat).filter(|_| !self.clock_stood_still);
        // How long a process that did not run took to read says nothing of the network.
        let newest = echoes().filter(|_| !self.is_late(now)).max_by_key(|echo| echo.sent);
        let recent = echoes().filter(|echo| now < echo.sent + self.fail_after.promised());
        let proof = recent.max_by_key(|echo| (echo.lease, echo.sent));
        let (own_id, judged) = (self.id, self.fail_after.judged());
        let counted = self.peer(&heartbeat.node).is_some_and(|peer| self.counts(peer, now));
        let fenced_or_doubtful = self.standby.fenced || self.doubts;
        let Some(peer) = self.peer_mut(&heartbeat.node, now) else { return ReceiveOutcome::Malformed };
        let known = peer.last.as_ref().filter(|known| known.incarnation == heartbeat.incarnation);
        if known.is_some_and(|known| !is_newer(heartbeat.sequence, known.sequence)) {
            return ReceiveOutcome::Replayed;
        }
        let opposed = known.is_some() && opposes(&heartbeat, own_id);
        let newly_opposed = known.is_some() && peer.note_opposition(opposed, now);
        let late = newest.and_then(|echo| peer.late(&echo, heartbeat.fail_after, now));
        let Some(proof) = proof else {
            self.note_round_trip(late);
            // It does not hear this gateway's heartbeats, but perhaps its frames.
            self.announce_again |= newly_opposed;
            self.dirty |= opposed;
            return self.remember_unproven(from, &heartbeat, now);
        };
        let contested = std::mem::take(&mut heartbeat.contested);
        let Effect { urgent, applied, returned, released } = peer.take(from, heartbeat, &proof, now);
        peer.note_presence(counted, judged, now);
        self.note_round_trip(late);
        self.announce_again |= returned || newly_opposed;
        self.probe_again |= returned || released;
        self.conflicts.note(&contested, now);
        self.urgent |= urgent;
        self.dirty |= urgent || applied || opposed || fenced_or_doubtful;
        ReceiveOutcome::Accepted
    }

    fn note_round_trip(&mut self, trip: Option<Duration>) {
        trip.into_iter().for_each(|trip| self.fail_after.measured(trip, &self.options));
    }

    /// Echoes of heartbeats that this process sent within `fail_after_max`.
    fn echoes(&self, heartbeat: &Heartbeat) -> impl Iterator<Item = EchoOfOwn> {
        let sent = |entry: &Entry| {
            let sent = self.sent_at(entry.echo?)?;
            Some(EchoOfOwn { sent, lease: !entry.unproven, held: entry.silence })
        };
        let own = heartbeat.entries.iter().filter(|entry| entry.id == self.id);
        own.filter_map(sent)
    }

    /// Whether the sender has been without a heartbeat of this process for longer than has passed, by the clock of this machine, since it
    /// sent the one that is echoed; and long enough for others to have gone on. Then the machine was stopped, clock and all, as virtual machines
    /// are for a snapshot or a migration.
    fn shows_a_clock_that_stood_still(&self, heartbeat: &Heartbeat, now: Instant) -> bool {
        let fail_after = heartbeat.fail_after;
        let stood_still = |entry: &Entry| {
            let silence = entry.silence.at_least(fail_after);
            let sent = self.sent_at(entry.echo?)?;
            // Clocks that are being set run apart by up to 8.3 % (chrony's `maxslewrate`).
            Some(!entry.silence.is_heard() && silence > now - sent + margin(silence) * 2)
        };
        let own = heartbeat.entries.iter().filter(|entry| entry.id == self.id && !entry.unproven);
        own.filter_map(stood_still).any(|it| it)
    }

    /// When this process sent its heartbeat of this number, if that was lately.
    fn sent_at(&self, sequence: u32) -> Option<Instant> {
        let &(first, _) = self.sent.front()?;
        let &(_, sent) = self.sent.get(sequence.wrapping_sub(first) as usize)?;
        Some(sent)
    }

    /// The first heartbeat of a process, or an old one: echoed, so that the sender can prove itself.
    fn remember_unproven(&mut self, from: SocketAddr, heartbeat: &Heartbeat, now: Instant) -> ReceiveOutcome {
        let Some(peer) = self.peer_mut(&heartbeat.node, now) else { return ReceiveOutcome::Malformed };
        let is_new = match peer.unproven {
            Some((incarnation, sequence, _)) if incarnation == heartbeat.incarnation => {
                if !is_newer(heartbeat.sequence, sequence) {
                    return ReceiveOutcome::Replayed;
                }
                false
            }
            _ => true,
        };
        peer.unproven = Some((heartbeat.incarnation, heartbeat.sequence, now));
        peer.from.get_or_insert(from);
        self.urgent |= is_new || heartbeat.asks;
        ReceiveOutcome::Unproven
    }

    /// Where the member of this name is, or would be.
    fn position(&self, node: &str) -> Result<usize, usize> {
        self.peers.binary_search_by(|peer| (*peer.node).cmp(node))
    }

    /// The member of this name.
    pub(super) fn peer(&self, node: &str) -> Option<&Peer> {
        self.peers.get(self.position(node).ok()?)
    }

    /// The member of this name, new if need be.
    fn peer_mut(&mut self, node: &str, now: Instant) -> Option<&mut Peer> {
        let index = match self.position(node) {
            Ok(index) => index,
            Err(_) if self.peers.len() >= MOST_ENTRIES => return None,
            Err(index) => {
                // Before `listening_since` this process did not listen either.
                self.peers.insert(index, Peer::new(Arc::from(node), self.listening_since.min(now), now));
                index
            }
        };
        self.peers.get_mut(index)
    }

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
        self.doubts || self.awaiting || self.challenged
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
            cut_off: self.staleness.is_cut_off(),
            listening: self.fail_after.tell(now.saturating_duration_since(self.listening_since)),
            fail_after: self.fail_after.promised(),
            applied: self.applied,
            entries,
            ability: Arc::clone(&self.reaching.told),
            passed_on: self.passed_on_abilities(now),
            contested: self.conflicts.told(now),
        };
        self.challenged = false;
        let mut bytes = heartbeat.encode(self.fleet);
        self.keys.sign(&mut bytes);
        self.counters.sent += to.len() as u64;
        Some(Datagram { bytes, to })
    }

    /// Abilities of members whom others do not hear: as many as leave room in a frame, and with the next heartbeat the next ones.
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

    /// State of this gateway.
    pub(super) fn state(&self) -> NodeState {
        NodeState {
            eligible: self.standby.eligible && self.presence != Presence::Ending,
            leaving: self.presence != Presence::Staying,
            left: self.presence == Presence::Left,
            stale: self.staleness.stale,
            fenced: self.standby.fenced,
            minority: self.minority.goes_on,
        }
    }

    /// Sets which addresses this gateway leaves to another machine.
    pub fn set_contested(&mut self, ips: &[IpAddr]) {
        let contested = Contested::of(ips);
        if self.conflicts.own != contested {
            self.conflicts.own = contested;
            self.urgent = true;
        }
    }

    /// Whether some gateway has left the address to another machine within the last minute.
    pub fn is_contested(&self, ip: IpAddr, now: Instant) -> bool {
        let said = self.conflicts.said.get(&AddressHash::of(ip)).into_iter().chain(&self.conflicts.all_said);
        said.into_iter().any(|said| now < *said + REMEMBERED)
    }
}

/// Effect of a heartbeat.
struct Effect {
    /// This gateway sends at once: the member is new, its state or ability is another one, or it asks.
    urgent: bool,
    /// The member follows another view or assignment.
    applied: bool,
    /// The member was away, and may have owned addresses meanwhile that this gateway owns as well.
    returned: bool,
    /// The member has given up what it had.
    released: bool,
}

impl Peer {
    fn take(&mut self, from: SocketAddr, heartbeat: Heartbeat, proof: &EchoOfOwn, now: Instant) -> Effect {
        let old = self.last.as_ref();
        let other_process = old.is_none_or(|old| old.incarnation != heartbeat.incarnation);
        let new = !self.was_heard || other_process;
        let state = self.state != heartbeat.state || self.ability != heartbeat.ability;
        let urgent = new || state || heartbeat.asks;
        let applied = old.is_none_or(|old| old.applied != heartbeat.applied);
        // A process that another one continues goes on with what that had; a fresh one is fenced.
        let away = self.dead || old.is_none();
        let may_own = !other_process || !heartbeat.state.fenced;
        let returned = away && may_own || self.state.minority && !heartbeat.state.minority;
        let restarted = old.is_some() && other_process;
        let released = self.set_state(heartbeat.state) || restarted;
        self.cut_off = heartbeat.cut_off;
        (self.dead, self.via) = (false, None);
        if self.ability != heartbeat.ability {
            self.ability = Arc::clone(&heartbeat.ability);
        }
        (self.heard_at, self.was_heard, self.from) = (now, true, Some(from));
        self.unproven = None;
        if other_process {
            self.opposed = None;
        }
        let last = LastHeartbeat::new(heartbeat, now, proof.sent);
        if proof.lease {
            self.lease_until = self.lease_until.max(Some(last.lease()));
        }
        self.last = Some(last);
        Effect { urgent, applied, returned, released }
    }

    /// Takes the round trip of an echo, and gives how long it and another one lately took at least: a single one may have been held up at either end, by
    /// a machine that stood still. What was held up with it does not count as another one.
    fn late(&mut self, echo: &EchoOfOwn, fail_after: Duration, now: Instant) -> Option<Duration> {
        let trip = RoundTrip { sent: echo.sent, took: echo.round_trip(fail_after, now)?, measured: now };
        let echoed_before = self.round_trip.is_some_and(|last| trip.sent <= last.sent);
        if self.longest_trip.is_some_and(|longest| longest.held_up_with(&trip, echoed_before)) {
            return None;
        }
        self.round_trip = Some(trip);
        let longest = self.longest_trip.filter(|longest| now < longest.measured + CALM);
        if longest.is_none_or(|longest| longest.took <= trip.took) {
            self.longest_trip = Some(trip);
        }
        longest.map(|longest| longest.took.min(trip.took))
    }
}

/// Whether a number comes after another (RFC 1982).
fn is_newer(sequence: u32, than: u32) -> bool {
    sequence.wrapping_sub(than).cast_signed() > 0
}
