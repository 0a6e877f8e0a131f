//! The status that others see.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::RENEWAL;
use super::run::Announcing;
use crate::ability::InterfaceId;
use crate::heartbeat::Applied;
use crate::membership::{Listing, Precedence, Presence, ReceiveOutcome, Standing};
use crate::ownership::NoOwner;
use crate::status::{AddressStatus, Counts, GatewayState, Here, MemberStatus, Status};
use crate::tie_breaker::TieBreaker;

/// How long the tie-breaker may be silent.
const UNDECIDED: Duration = Duration::from_secs(10);
/// Smallest change of `failAfter` that is logged.
const TOLD: Duration = Duration::from_millis(50);

impl Announcing {
    /// Publishes the status.
    pub(super) fn publish(&mut self, now: Instant, addresses_changed: bool) {
        let former = Arc::clone(&self.publish.borrow());
        if addresses_changed {
            self.out_of_reach = self.out_of_reach();
        }
        let addresses =
            if addresses_changed { Arc::new(self.addresses()) } else { Arc::clone(&former.addresses) };
        let members = self.members(&former.node, now);
        let view = self.membership.view();
        let tie_breaker = self.pinger.target().filter(|_| view.quorum.members > 1);
        let (tie_undecided, absent) = (self.tie_undecided(now), self.absent(now));
        let status = Status {
            node: Arc::clone(&former.node),
            shared: false,
            state: match () {
                () if self.membership.presence() != Presence::Staying => GatewayState::Leaving,
                () if view.fenced => GatewayState::Fenced,
                () if view.eligible && self.membership.precedence() != Precedence::Own => {
                    GatewayState::Minority
                }
                () if view.eligible => GatewayState::Eligible,
                () => GatewayState::HoldDown,
            },
            heard_by: view.quorum.votes,
            counted: view.quorum.members,
            tie_breaker: tie_breaker.map(|ip| (ip, view.quorum.tie_breaker || self.tie_breaker_answers(now))),
            fail_after: self.membership.fail_after(),
            members,
            addresses,
            warnings: self.warnings(tie_undecided, &absent),
            tie_undecided,
            absent,
            failure: None,
            counts: self.counts(),
            standings: view.standings.clone(),
            candidates: view.candidates.clone(),
            claims: Arc::clone(&self.claims),
        };
        tell_log(&former, &status);
        status.publish(&self.publish);
    }

    /// Whether the tie-breaker has answered lately. It is asked seldom where a majority hears this gateway.
    fn tie_breaker_answers(&self, now: Instant) -> bool {
        self.pinger.answered.is_some_and(|at| now < at + RENEWAL * 3)
    }

    /// Whether the tie-breaker has not answered for a while. A choice of none is one for majorities, but of an even number of gateways it leaves
    /// none where half are lost.
    fn tie_undecided(&self, now: Instant) -> bool {
        let chosen = self.pinger.tie_breaker == TieBreaker::None;
        if chosen && !self.membership.view().quorum.members.is_multiple_of(2) {
            return false;
        }
        let since = self.tie_since.map(|since| self.pinger.answered.map_or(since, |at| at.max(since)));
        since.is_some_and(|since| now >= since + UNDECIDED)
    }

    fn tie_warning(&self) -> String {
        let counted = self.membership.view().quorum.members;
        let why = match (self.pinger.tie_breaker, self.pinger.target()) {
            (TieBreaker::None, _) => "announce.tieBreaker is none".to_owned(),
            (TieBreaker::Router, None) => "this node has no default route".to_owned(),
            (_, None) => "announce.tieBreaker cannot be reached".to_owned(),
            (_, Some(ip)) => format!("{ip} (announce.tieBreaker) has not answered for {UNDECIDED:?}"),
        };
        format!(
            "if half of the {counted} gateways or more are lost, the others give up their addresses: {why}. Set announce.tieBreaker to an \
             address that answers pings"
        )
    }

    fn absent(&self, now: Instant) -> Vec<Arc<str>> {
        self.membership.peers(now).filter(|peer| peer.absent).map(|peer| peer.node).collect()
    }

    fn warnings(&self, tie_undecided: bool, absent: &[Arc<str>]) -> Vec<String> {
        let mut warnings: Vec<String> = self.holdings.warnings.values().cloned().collect();
        warnings.extend(tie_undecided.then(|| self.tie_warning()));
        if let Some(first) = absent.first() {
            let what = match absent.len() {
                1 => format!("gateway {first} is ready, but no gateway hears it"),
                count => {
                    format!("{count} gateways, {first} among them, are ready, but no gateway hears them")
                }
            };
            warnings.push(format!(
                "{what}: check UDP port {} (announce.heartbeat.port) between the nodes, and the keys",
                self.membership.options().port
            ));
        }
        warnings.extend(self.out_of_reach.clone());
        if self.listing == Listing::Never {
            warnings.push(
                "the EndpointSlices of the gateways' Service (gateways.service) do not name this node: gateways may not know of each \
                 other, and announce the same addresses"
                    .to_owned(),
            );
        }
        warnings.extend(self.keys.problem.clone());
        if self.unsigned.1 {
            warnings.push(
                "heartbeats arrive that none of this gateway's keys has signed: give all gateways the same keys \
                 (announce.heartbeat.keys)"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Warning about addresses that other gateways have to announce, because this one is not in their network.
    fn out_of_reach(&self) -> Option<String> {
        let own = &self.membership.options().node;
        let candidates = &self.membership.view().candidates;
        let reach = &candidates.iter().find(|candidate| candidate.node == *own)?.ability.reach;
        let assignment = self.handover.assignment();
        let missed = self.claims.iter().filter(|(ip, claim)| {
            claim.nodes.contains(own)
                && assignment.owner(ip) != Some(own)
                && !reach.contains(**ip, &InterfaceId::all(&claim.interfaces))
        });
        let (mut missed, count) = (missed.clone(), missed.count());
        let (ip, _) = missed.next()?;
        let what = match count {
            1 => format!("{ip} is"),
            _ => format!("{count} addresses, {ip} among them, are"),
        };
        Some(format!(
            "{what} in no network of this gateway's interfaces that are up: other gateways answer for them"
        ))
    }

    fn addresses(&self) -> BTreeMap<IpAddr, AddressStatus> {
        let mut waiting: BTreeMap<_, _> = self.handover.waiting().collect();
        let owners = &self.handover.assignment().owners;
        if owners.is_empty() {
            let unknown = AddressStatus { owner: Err(NoOwner::Unknown), here: Here::Nothing };
            return self.claims.keys().map(|ip| (*ip, unknown.clone())).collect();
        }
        let status = |(ip, owner): (&IpAddr, &Result<Arc<str>, NoOwner>)| {
            let here = match (self.holdings.held.get(ip), waiting.remove(ip)) {
                (Some(here), _) => here.clone(),
                (None, Some(nodes)) => Here::Waiting { nodes: nodes.into_iter().collect() },
                (None, None) => Here::Nothing,
            };
            (*ip, AddressStatus { owner: owner.clone(), here })
        };
        owners.iter().map(status).collect()
    }

    fn members(&mut self, own: &Arc<str>, now: Instant) -> Vec<MemberStatus> {
        let applied = self.handover.assignment().applied;
        let stays = self.membership.presence() == Presence::Staying;
        let follows = if stays { applied } else { Applied::default() };
        let shown = self.membership.peers(now).map(|peer| (Arc::clone(&peer.node), peer.follows()));
        self.disagreements.update(follows, shown, now);
        let view = self.membership.view();
        let others = self.membership.peers(now).map(|peer| MemberStatus {
            disagreement: self.disagreements.with(&peer.node, now),
            node: peer.node,
            address: peer.address.map(|address| address.ip().to_canonical()),
            standing: peer.standing,
            heard: peer.heard,
            heard_via: peer.via,
            silent_for: peer.silence,
            round_trip: peer.round_trip,
            agrees: peer.applied == Some(applied),
            ready: peer.listing == Listing::Ready,
        });
        let own_standing = view.standings.get(own).copied();
        let own = own_standing.map(|standing| MemberStatus {
            node: Arc::clone(own),
            address: None,
            standing,
            heard: true,
            heard_via: None,
            silent_for: None,
            round_trip: None,
            agrees: true,
            disagreement: None,
            ready: self.listing == Listing::Ready,
        });
        let mut members: Vec<MemberStatus> = others.chain(own).collect();
        members.sort_by(|one, other| one.node.cmp(&other.node));
        members
    }

    fn counts(&self) -> Counts {
        let counters = self.membership.counters();
        // Datagrams of this node, and the first of a process, are not among them.
        let refused = [
            ReceiveOutcome::Unsigned,
            ReceiveOutcome::ForeignFleet,
            ReceiveOutcome::Replayed,
            ReceiveOutcome::Malformed,
            ReceiveOutcome::Version,
        ];
        Counts {
            heartbeats_sent: counters.sent,
            heartbeats_received: counters.of(ReceiveOutcome::Accepted),
            heartbeats_refused: refused.into_iter().map(|outcome| counters.of(outcome)).sum(),
            fenced: counters.fences,
            ..self.holdings.counts
        }
    }
}

/// Tells the log which gateways come and go, and when this one may own addresses.
fn tell_log(former: &Status, status: &Status) {
    if former.state != status.state {
        let (heard_by, counted) = (status.heard_by, status.counted);
        match status.state {
            GatewayState::Eligible => tracing::info!(heard_by, counted, "this gateway may own addresses"),
            GatewayState::Minority => {
                tracing::warn!(
                    heard_by,
                    counted,
                    "half of the gateways or fewer hear this one: it goes on because the tie-breaker answers"
                );
            }
            GatewayState::HoldDown => {
                tracing::info!(
                    heard_by,
                    counted,
                    "this gateway is heard, and waits before it owns addresses"
                );
            }
            GatewayState::Fenced => {
                tracing::warn!(heard_by, counted, "too few gateways hear this one: it owns no addresses");
            }
            GatewayState::Leaving => tracing::info!("this gateway hands its addresses over"),
        }
    }
    tell_fail_after(former.fail_after, status.fail_after);
    for (node, standing) in &status.standings {
        let known = former.standings.get(node);
        if *node == status.node || known == Some(standing) {
            continue;
        }
        match standing {
            Standing::Candidate => tracing::info!(%node, "a gateway may own addresses"),
            Standing::NotAlive if known == Some(&Standing::Left) => {
                tracing::info!(%node, "a gateway has ended");
            }
            Standing::NotAlive if known.is_some() => tracing::warn!(%node, "a gateway is dead"),
            Standing::NotAlive => {}
            Standing::Leaving => tracing::info!(%node, "a gateway hands its addresses over"),
            Standing::Left => tracing::info!(%node, "a gateway has handed its addresses over"),
            Standing::NotEligible => tracing::info!(%node, "a gateway is there, and owns no addresses yet"),
            Standing::Stale => {
                tracing::info!(%node, "a gateway does not reach the API server: others go first");
            }
        }
    }
    for node in former.standings.keys().filter(|node| !status.standings.contains_key(*node)) {
        tracing::info!(%node, "a gateway is gone");
    }
}

/// Tells the log when gateways are given longer, or no longer.
fn tell_fail_after(former: Duration, now: Duration) {
    let fail_after_ms = now.as_millis();
    if former.is_zero() || former.abs_diff(now) < TOLD {
        return;
    }
    if now > former {
        tracing::warn!(
            fail_after_ms,
            "round trips between gateways are long: it takes longer until a silent one counts as dead"
        );
    } else {
        tracing::info!(fail_after_ms, "round trips between gateways are shorter again");
    }
}
