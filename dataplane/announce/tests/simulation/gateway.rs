//! One simulated gateway: what drives `Membership` and `Handover`, as the announcer does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_announce::{
    Applied, Claim, Datagram, Handover, HandoverSteps, KeyRing, Membership, MembershipOptions, Precedence,
    Presence, ReceiveOutcome, Start, assign,
};

/// The claims of all gateways.
pub(crate) type Claims = Arc<BTreeMap<IpAddr, Claim>>;

/// A process that takes part.
pub(crate) struct Gateway {
    pub(crate) membership: Membership,
    handover: Handover,
    claims: Claims,
    /// What it announces.
    pub(crate) announced: BTreeSet<IpAddr>,
    /// How often that has changed.
    pub(crate) changes: u64,
    /// Addresses left to another gateway that announces them, each with its next probe.
    pub(crate) yielded: BTreeMap<IpAddr, Yielded>,
    /// Set when it announces all its addresses again.
    pub(crate) announced_again: bool,
    /// What it announces once more, out of turn.
    pub(crate) out_of_turn: BTreeSet<IpAddr>,
    /// The address that it announced last, of those that are in turn.
    in_turn: Option<IpAddr>,
    met_rival: Option<Instant>,
    precedence: Precedence,
}

/// Probes of an address, as in `layer2`.
const PROBES: u8 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// Half of the first wait for another that answers: it is doubled with each first probe.
const HALF_A_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(2);
/// Time from a claim to the defence of an address where no rival is expected, as in `layer2`.
const DEFENCE: Duration = Duration::from_millis(50);
/// How long all addresses are not announced again because of a rival, as in `layer2`.
const RIVAL_PAUSE: Duration = Duration::from_millis(200);
/// Time until the first probe by the one of two that both give way which comes back first, as in `layer2`.
const SOON: Duration = Duration::from_millis(200);

/// An address that is left to another, or probed first, as in `layer2`.
#[derive(Clone, Copy)]
pub(crate) struct Yielded {
    /// When the next probe is sent, or the last one has had no answer.
    until: Instant,
    wait: Duration,
    /// Probes that were sent.
    sent: u8,
    /// Of all that have given way to each other, this one comes back first.
    first: bool,
}

impl Yielded {
    /// An address that is probed at once.
    fn probed(now: Instant) -> Self {
        Self { until: now, wait: HALF_A_RETRY, sent: 0, first: false }
    }

    /// Another has it. What is heard before the second probe does not count.
    fn claimed(&mut self, now: Instant) {
        let probed = self.sent == 0 && self.until <= now || self.sent == 1;
        if !probed && !self.first {
            (self.sent, self.until) = (0, now + self.wait);
        }
    }
}

impl Gateway {
    pub(crate) fn new(
        options: MembershipOptions,
        claims: Claims,
        start: Start,
        announced: BTreeSet<IpAddr>,
        incarnation: u64,
        now: Instant,
    ) -> Self {
        let keys = KeyRing::parse(["a key of some length"]).unwrap();
        let handover = Handover::new(options.node.clone(), announced.clone());
        let membership = Membership::new(options, keys, start, incarnation, now).unwrap();
        Self {
            membership,
            handover,
            claims,
            announced,
            changes: 1,
            yielded: BTreeMap::new(),
            announced_again: false,
            out_of_turn: BTreeSet::new(),
            in_turn: None,
            met_rival: None,
            precedence: Precedence::default(),
        }
    }

    pub(crate) fn receive(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) -> Vec<Datagram> {
        let received = self.membership.receive(from, bytes, now);
        assert!(!matches!(
            received,
            ReceiveOutcome::Malformed | ReceiveOutcome::Unsigned | ReceiveOutcome::Own
        ));
        self.drive(now)
    }

    /// Does what is due.
    pub(crate) fn drive(&mut self, now: Instant) -> Vec<Datagram> {
        let mut sent = Vec::new();
        let mut turns = 0;
        while self.membership.next_due() <= now {
            turns += 1;
            assert!(turns < 20, "{} spins at {now:?}", self.membership.options().node);
            let actions = self.membership.poll(now);
            if actions.fenced {
                let withdrawn = self.handover.fence();
                assert_eq!(withdrawn, self.announced);
                self.announced.clear();
                self.yielded.clear();
                self.changes += 1;
                self.membership.set_applied(Applied::default(), now);
            }
            sent.extend(actions.send);
            self.announced_again |= actions.announce_again;
            if actions.announce_one {
                let on = self.on();
                let next = on.iter().find(|address| self.in_turn.is_none_or(|last| **address > last));
                self.in_turn = next.or(on.first()).copied();
                self.out_of_turn.extend(self.in_turn);
            }
            if actions.probe_again {
                self.probe_yielded(now);
            }
            if actions.view_changed || actions.unfenced {
                self.follow(now);
            }
        }
        let precedence = self.membership.precedence();
        if std::mem::replace(&mut self.precedence, precedence) != precedence && precedence == Precedence::Own
        {
            self.probe_yielded(now);
        }
        if self.owns() {
            let steps = self.handover.poll(&self.membership, now);
            self.take(&steps, now);
        }
        sent
    }

    fn probe_yielded(&mut self, now: Instant) {
        let waits = |it: &&mut Yielded| it.sent == 0 || it.sent > 1;
        self.yielded.values_mut().filter(waits).for_each(|it| *it = Yielded::probed(now));
    }

    fn owns(&self) -> bool {
        let view = self.membership.view();
        !view.fenced && !view.listening
    }

    fn follow(&mut self, now: Instant) {
        if self.owns() {
            let assignment = Arc::new(assign(&self.membership.view().candidates, &self.claims));
            let steps = self.handover.update(assignment, &self.membership, now);
            self.take(&steps, now);
        }
    }

    fn take(&mut self, steps: &HandoverSteps, now: Instant) {
        for address in &steps.withdraw {
            assert!(self.announced.remove(address), "withdraws what it announces");
            self.yielded.remove(address);
        }
        if let Some(applied) = steps.applied {
            self.membership.set_applied(applied, now);
        }
        self.announced.extend(&steps.announce);
        let contested = steps.announce.iter().filter(|address| self.membership.is_contested(**address, now));
        self.yielded.extend(contested.map(|address| (*address, Yielded::probed(now))));
        self.changes += (steps.withdraw.len() + steps.announce.len()) as u64;
        assert_eq!(&self.announced, self.handover.announced());
        self.membership.set_awaiting(steps.awaiting);
        if steps.left {
            self.membership.set_presence(Presence::Left);
        }
    }

    /// The addresses on its interfaces.
    pub(crate) fn on(&self) -> BTreeSet<IpAddr> {
        self.announced.iter().filter(|address| !self.yielded.contains_key(*address)).copied().collect()
    }

    /// Hears another gateway announce an address; after which time it announces it as well, if it has it and keeps it.
    pub(crate) fn hear(
        &mut self,
        address: IpAddr,
        lower: bool,
        wait: Duration,
        now: Instant,
    ) -> Option<Duration> {
        if !self.announced.contains(&address) {
            return None;
        }
        if let Some(yielded) = self.yielded.get_mut(&address) {
            yielded.first &= !lower;
            yielded.claimed(now);
            return None;
        }
        let keeps = match self.membership.precedence() {
            Precedence::Own => true,
            Precedence::LowerMac => !lower,
            Precedence::Other => false,
        };
        if !keeps {
            let until = now + if lower { wait } else { SOON };
            self.yielded.insert(address, Yielded { until, wait, sent: 0, first: !lower });
            self.changes += 1;
        }
        let rivals = self.membership.may_have_rivals();
        self.meet_rival(rivals, now);
        keeps.then_some(if rivals { Duration::ZERO } else { DEFENCE })
    }

    fn meet_rival(&mut self, rivals: bool, now: Instant) {
        if self.met_rival.is_some_and(|met| now < met + RIVAL_PAUSE) {
            return;
        }
        self.met_rival = Some(now);
        if rivals {
            self.out_of_turn.extend(self.on());
        } else {
            self.membership.challenge();
        }
    }

    /// Does what is due for addresses that are left to another; those that are asked for now.
    pub(crate) fn probe(&mut self, now: Instant) -> Vec<IpAddr> {
        let before = self.yielded.len();
        self.yielded.retain(|_, it| it.sent < PROBES || now < it.until);
        self.changes += (before - self.yielded.len()) as u64;
        let due = self.yielded.iter_mut().filter(|(_, it)| it.until <= now);
        due.map(|(address, it)| {
            if it.sent == 0 {
                it.wait = LONGEST_RETRY.min(it.wait * 2);
            }
            (it.sent, it.until, it.first) = (it.sent + 1, now + PROBE_INTERVAL, false);
            *address
        })
        .collect()
    }

    /// Another has answered a probe.
    pub(crate) fn answered(&mut self, address: IpAddr, now: Instant) {
        self.yielded.get_mut(&address).into_iter().for_each(|it| it.claimed(now));
    }

    pub(crate) fn set_claims(&mut self, claims: Claims, now: Instant) {
        self.claims = claims;
        self.follow(now);
    }

    pub(crate) fn next_due(&self) -> Instant {
        let due = self.membership.next_due();
        self.handover.next_due().filter(|_| self.owns()).map_or(due, |handover| handover.min(due))
    }
}
