//! The state of one announced address: what it does next, and what it does when somebody else says that the address is theirs.
//! No clock, no socket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::membership::Precedence;

/// When an address is announced, counted from the first time. RFC 5227 announces twice, 2 s apart; the others are for
/// networks that lose a frame or two while they learn of a fail-over, most of all at its beginning.
const SCHEDULE: [Duration; 7] = [
    Duration::ZERO,
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// RFC 5227 probes three times within 3 to 6 s, for networks whose ports open seconds after a link is up. A gateway's link is up
/// for at least the hold-down already, and whoever has the address answers within a round trip.
const PROBES: u8 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// How soon after a question to everybody the address is announced, while the former owner may still answer: after that answer.
const AFTER_ANSWER: Duration = Duration::from_millis(20);
/// Time from a claim to the defence of an address, and from the first defence to the next one; doubled with each, up to `MAX_DEFENCE_INTERVAL`.
/// RFC 5227, section 2.4 (c) defends once within 10 s, in which its clients would be without it: what the other says after a defence is the last
/// word for them.
const MIN_DEFENCE_INTERVAL: Duration = Duration::from_millis(50);
const MAX_DEFENCE_INTERVAL: Duration = Duration::from_secs(1);
/// A conflict is over after this time without the other.
const CONFLICT_END: Duration = Duration::from_secs(30);
/// An address that another had when it was probed is probed again after this time, and each time after twice as long, up to
/// `CONFLICT_END`: what answered may be the kernel of a gateway that has just died.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Time until an address that was left to another gateway is probed by the gateway of the two that comes back first: the other may have
/// given way as well, where both have fewer than half of the gateways.
const SOON: Duration = Duration::from_millis(200);
/// For how long after a gateway may have given the address up what it said before may still be read: heartbeats and frames wait in different queues.
const LATE: Duration = Duration::from_millis(200);
/// Time until an address is probed that seemed to be another's in that time: not together with the gateway that comes back first.
const AFTER_LATE: Duration = Duration::from_millis(400);
/// How long an address is left to another gateway at most before it is probed again: a gateway that has died is to be relieved.
const LEFT_TO_GATEWAY: Duration = Duration::from_secs(2);

/// Answer to another machine that uses an address which this one announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Announce it again: after 50 ms, and ever more rarely, down to once per second (RFC 5227, section 2.4 c).
    #[default]
    Defend,
    /// Withdraw it until the other has been gone for 30 s (RFC 5227, section 2.4 a).
    Withdraw,
}

/// Next action for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    /// Ask whether anybody has it.
    Probe,
    /// Put it on the interfaces, since no machine answered. `after_conflict`: one had it before.
    PutOn { after_conflict: bool },
    /// Announce it.
    Announce,
    /// The conflict is over: no other machine has used it for a while.
    ConflictOver,
}

/// Meaning of the claim of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Verdict {
    /// Nothing new: known, or the former owner, who does not know yet.
    Known,
    /// A new conflict; the address stays.
    Defend,
    /// A new conflict; the address is to be taken off the interfaces.
    Withdraw,
    /// A new conflict; the address was not yet put on.
    NotAnnounced,
    /// Another gateway is to keep the address, which is to be taken off the interfaces.
    GiveWay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Probing {
        sent: u8,
        next: Instant,
    },
    /// The round is a place in `SCHEDULE`, or beyond it.
    Announcing {
        since: Instant,
        round: u32,
    },
    /// Another has it.
    Yielded {
        until: Instant,
    },
}

/// How addresses are announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// The shortest that an address is given.
    pub(super) lifetime: Duration,
    pub(super) repeat: Option<Duration>,
    pub(super) on_conflict: OnConflict,
}

/// How long the kernel keeps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// When it was asked to, from which time on it counts for the announcer.
    pub(super) asked: Instant,
    pub(super) time: Duration,
}

impl Lifetime {
    pub(super) fn ends(self) -> Instant {
        self.asked + self.time
    }

    /// Takes over a later one, which may be shorter: the kernel heeds the last one alone.
    pub(super) fn renew(&mut self, later: Self) {
        if later.asked >= self.asked {
            *self = later;
        }
    }
}

/// A request to put an address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) ticket: u64,
    pub(super) why: Why,
}

/// Why an address is put on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A new announcement.
    Begins,
    /// No machine answered a probe. `after_conflict`: one had it before.
    Probed { after_conflict: bool },
    /// Another link takes it, beside the others or in place of one.
    Moves,
    /// Somebody has removed it.
    Lost,
}

/// One address.
pub(super) struct Announcement {
    /// The only interfaces on which it may be; empty = all.
    pub(super) interfaces: Vec<Arc<str>>,
    /// The links on which it is, or is to be when it is not disputed.
    pub(super) links: Vec<u32>,
    /// The links on which the kernel is putting it.
    pub(super) pending: BTreeMap<u32, Pending>,
    /// The log says that a link has not taken it.
    pub(super) incomplete: bool,
    /// Its lifetime in the kernel. While it is on no interface, what is left of its time without a renewal.
    pub(super) lifetime: Lifetime,
    phase: Phase,
    /// An announcement out of turn.
    extra: Option<Instant>,
    /// The last defence, or the next one if it is planned.
    defended: Option<Instant>,
    /// Time between that and the next one.
    defence_interval: Duration,
    disputed_until: Option<Instant>,
    /// How long it is left to another after each sign of it.
    wait: Duration,
    /// Left to another gateway, which may die: probed often.
    gave_way: bool,
    /// Of all gateways that have given way to each other, this one comes back first: it probes soon, whatever the others announced until then.
    comes_first: bool,
    /// When a gateway last may have given it up, so that it was asked for again.
    pub(super) asked_again: Option<Instant>,
    /// The former owner may still answer until then.
    settled: Instant,
}

impl Announcement {
    /// An address that nobody has, or only a former owner that is known to be gone.
    pub(super) fn taken_over(
        now: Instant,
        interfaces: Vec<Arc<str>>,
        links: Vec<u32>,
        manner: &Manner,
    ) -> Self {
        let phase = Phase::Announcing { since: now, round: 0 };
        // The kernel may keep the address of a process that is gone for a second longer than it lives.
        let settled = now + manner.lifetime + Duration::from_secs(1);
        Self::new(Lifetime { asked: now, time: manner.lifetime }, interfaces, links, phase, settled)
    }

    /// An address that is probed first.
    pub(super) fn probed(now: Instant, interfaces: Vec<Arc<str>>, links: Vec<u32>, manner: &Manner) -> Self {
        let lifetime = Lifetime { asked: now, time: manner.lifetime };
        Self::new(lifetime, interfaces, links, Phase::Probing { sent: 0, next: now }, now)
    }

    fn new(
        lifetime: Lifetime,
        interfaces: Vec<Arc<str>>,
        links: Vec<u32>,
        phase: Phase,
        settled: Instant,
    ) -> Self {
        Self {
            interfaces,
            links,
            pending: BTreeMap::new(),
            incomplete: false,
            lifetime,
            phase,
            extra: None,
            defended: None,
            defence_interval: MIN_DEFENCE_INTERVAL,
            disputed_until: None,
            wait: FIRST_RETRY,
            gave_way: false,
            comes_first: false,
            asked_again: None,
            settled,
        }
    }

    /// Whether it is on its interfaces.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.phase, Phase::Announcing { .. })
    }

    /// Asks at once whether the other machine still has it; whether it is left to one. An answer to what was asked before may be on its way, and
    /// count for a wait: probes whose answers count begin anew.
    pub(super) fn probe_again(&mut self, now: Instant) -> bool {
        self.asked_again = Some(now);
        let left = match self.phase {
            Phase::Yielded { .. } => true,
            Phase::Probing { sent, .. } => sent > 1,
            Phase::Announcing { .. } => false,
        };
        if left {
            (self.wait, self.comes_first) = (FIRST_RETRY, false);
            self.phase = Phase::Probing { sent: 0, next: now };
        }
        left
    }

    /// When there is something to do.
    pub(super) fn due(&self, manner: &Manner) -> Option<Instant> {
        match self.phase {
            Phase::Probing { next, .. } => Some(next),
            Phase::Yielded { until } => Some(until),
            Phase::Announcing { since, round } => {
                let next = turn(since, round, manner);
                [next, self.extra, self.disputed_until].into_iter().flatten().min()
            }
        }
    }

    /// Next step that is due; to be called until there is none.
    pub(super) fn step(&mut self, now: Instant, manner: &Manner) -> Option<Step> {
        match self.phase {
            Phase::Probing { next, .. } if now < next => None,
            Phase::Probing { sent, .. } if sent < PROBES => {
                self.phase = Phase::Probing { sent: sent + 1, next: now + PROBE_INTERVAL };
                Some(Step::Probe)
            }
            Phase::Probing { .. } => {
                let after_conflict = self.disputed_until.take().is_some();
                (self.wait, self.gave_way) = (FIRST_RETRY, false);
                self.phase = Phase::Announcing { since: now, round: 0 };
                Some(Step::PutOn { after_conflict })
            }
            Phase::Yielded { until } if now < until => None,
            Phase::Yielded { .. } => {
                self.comes_first = false;
                let longest = if self.gave_way { LEFT_TO_GATEWAY } else { CONFLICT_END };
                self.wait = longest.min(self.wait * 2);
                self.phase = Phase::Probing { sent: 0, next: now };
                self.step(now, manner)
            }
            Phase::Announcing { since, round } => {
                if self.disputed_until.is_some_and(|until| until <= now) {
                    self.disputed_until = None;
                    return Some(Step::ConflictOver);
                }
                self.announce_if_due(now, since, round, manner)
            }
        }
    }

    fn announce_if_due(
        &mut self,
        now: Instant,
        since: Instant,
        mut round: u32,
        manner: &Manner,
    ) -> Option<Step> {
        let mut due = self.extra.is_some_and(|at| at <= now);
        if due {
            self.extra = None;
        }
        // One announcement serves for all whose time has come, as after a pause.
        while turn(since, round, manner).is_some_and(|at| at <= now) {
            due = true;
            round += 1;
        }
        self.phase = Phase::Announcing { since, round };
        due.then_some(Step::Announce)
    }

    /// Whether it is neither on a link, nor about to be.
    pub(super) fn is_nowhere(&self) -> bool {
        self.links.is_empty() && self.pending.is_empty()
    }

    /// Notes that it is on a link.
    pub(super) fn add(&mut self, link: u32) {
        if !self.links.contains(&link) {
            self.links.push(link);
            self.links.sort_unstable();
        }
    }

    /// Takes the links on which it is, or may be in a moment.
    pub(super) fn take_links(&mut self) -> Vec<u32> {
        let pending = std::mem::take(&mut self.pending).into_keys();
        let mut links = std::mem::take(&mut self.links);
        links.extend(pending);
        links.sort_unstable();
        links.dedup();
        links
    }

    /// Begins to announce again: where it was put on is new, or somebody had taken it off.
    pub(super) fn restart(&mut self, now: Instant) {
        if self.is_on() {
            self.phase = Phase::Announcing { since: now, round: 0 };
        }
    }

    /// Somebody looks for the address.
    pub(super) fn on_question(&mut self, now: Instant) {
        if self.is_on() && now < self.settled {
            self.announce_by(now + AFTER_ANSWER);
        }
    }

    /// Somebody else wants to take the address. Its owner answers that; only who probes too has to know.
    pub(super) fn on_probe(&mut self, now: Instant) -> Verdict {
        if self.is_on() { Verdict::Known } else { self.on_claim(now, OnConflict::Defend) }
    }

    /// Another gateway announces the address. `lower`: its MAC address is lower than that of this one.
    pub(super) fn on_announcement(
        &mut self,
        precedence: Precedence,
        lower: bool,
        policy: OnConflict,
        now: Instant,
    ) -> Verdict {
        let gives_way = match precedence {
            Precedence::Own => false,
            Precedence::LowerMac => lower,
            Precedence::Other => true,
        };
        if self.is_on() && gives_way {
            return self.give_way(!lower, now);
        }
        self.comes_first &= !lower;
        self.on_claim(now, policy)
    }

    /// Another gateway announces the address and is to keep it: it is probed again after a while, or `soon` if this gateway is the one of
    /// both that comes back first.
    fn give_way(&mut self, soon: bool, now: Instant) -> Verdict {
        self.comes_first = soon && !self.gave_way;
        let wait = if self.comes_first { SOON } else { self.wait(now) };
        self.gave_way = true;
        self.phase = Phase::Yielded { until: now + wait };
        self.disputed_until = Some(now + CONFLICT_END);
        self.extra = None;
        Verdict::GiveWay
    }

    /// How long it is left to another that says now that it has it.
    fn wait(&self, now: Instant) -> Duration {
        let late = self.asked_again.is_some_and(|at| now < at + LATE);
        if late { AFTER_LATE } else { self.wait }
    }

    /// Somebody else says that they have the address.
    pub(super) fn on_claim(&mut self, now: Instant, policy: OnConflict) -> Verdict {
        let until = now + CONFLICT_END;
        match self.phase {
            Phase::Yielded { .. } if self.comes_first => Verdict::Known,
            Phase::Yielded { .. } => {
                self.phase = Phase::Yielded { until: now + self.wait(now) };
                Verdict::Known
            }
            // It may be of a gateway that has just let go of the address. Who has it answers the next probe as well.
            Phase::Probing { sent: 0 | 1, .. } => Verdict::Known,
            Phase::Probing { .. } => {
                self.phase = Phase::Yielded { until: now + self.wait(now) };
                if self.disputed_until.replace(until).is_some() {
                    Verdict::Known
                } else {
                    Verdict::NotAnnounced
                }
            }
            Phase::Announcing { .. } if now < self.settled => {
                self.announce_by(now + AFTER_ANSWER);
                Verdict::Known
            }
            Phase::Announcing { .. } if policy == OnConflict::Withdraw => {
                self.wait = CONFLICT_END;
                self.phase = Phase::Yielded { until };
                self.disputed_until = Some(until);
                self.extra = None;
                Verdict::Withdraw
            }
            Phase::Announcing { .. } => {
                let known = self.disputed_until.replace(until).is_some();
                if !known {
                    self.defence_interval = MIN_DEFENCE_INTERVAL;
                }
                // One that is planned answers this claim too.
                if self.extra.is_none() {
                    let interval = self.defence_interval;
                    // Others may have gone on without this gateway, which learns of it by then.
                    let soon = now + MIN_DEFENCE_INTERVAL;
                    let at = self.defended.map_or(soon, |before| soon.max(before + interval));
                    if known {
                        self.defence_interval = MAX_DEFENCE_INTERVAL.min(interval * 2);
                    }
                    (self.defended, self.extra) = (Some(at), Some(at));
                }
                if known { Verdict::Known } else { Verdict::Defend }
            }
        }
    }

    /// Announces it by this time, out of turn.
    pub(super) fn announce_by(&mut self, at: Instant) {
        self.extra = Some(self.extra.map_or(at, |before| before.min(at)));
    }
}

/// When a round of announcements is due.
fn turn(since: Instant, round: u32, manner: &Manner) -> Option<Instant> {
    let (round, rounds) = (round as usize, SCHEDULE.len());
    match SCHEDULE.get(round) {
        Some(offset) => Some(since + *offset),
        None => Some(since + SCHEDULE[rounds - 1] + manner.repeat? * u32::try_from(round + 1 - rounds).ok()?),
    }
}

#[cfg(test)]
mod tests;
