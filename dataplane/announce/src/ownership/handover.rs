//! When an address that changes its owner is withdrawn and announced, so that no two gateways announce it.
//!
//! An address that a gateway loses is withdrawn at once. One that it gains is announced when no other gateway may announce it:
//!
//! - every member that is alive follows the same view. So two gateways with different views never announce the same address: each
//!   would need a heartbeat of the other, sent since it follows its own view, that shows its own view;
//! - whoever owned the address by an earlier assignment follows the same assignment: it may be behind with the claims.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Assignment;
use crate::heartbeat::Applied;
use crate::membership::{Membership, Presence};

/// The addresses that this gateway announces or is about to.
#[derive(Debug)]
pub struct Handover {
    node: Arc<str>,
    /// The longest wait for a member that is alive and releases nothing: [`Membership::patience`], as of the last call.
    patience: Duration,
    assignment: Arc<Assignment>,
    announced: BTreeSet<IpAddr>,
    /// Its own addresses that it does not announce yet, and since when.
    gained: BTreeMap<IpAddr, Instant>,
    /// Addresses that other members may still announce by an earlier assignment.
    unreleased: BTreeMap<Arc<str>, BTreeSet<IpAddr>>,
    /// Members that are alive and have not shown the view.
    dissenters: BTreeSet<Arc<str>>,
    leaving_since: Option<Instant>,
}

/// Steps in this order: withdraw, then [`Membership::set_applied`], then announce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct HandoverSteps {
    /// Withdraw these.
    pub withdraw: Vec<IpAddr>,
    /// View and assignment that are followed once that is done.
    pub applied: Option<Applied>,
    /// Announce these.
    pub announce: Vec<IpAddr>,
    /// Addresses wait: pass it to [`Membership::set_awaiting`].
    pub awaiting: bool,
    /// The gateway was leaving and announces nothing any more: it is [`Presence::Left`].
    pub left: bool,
}

impl Handover {
    /// A gateway that announces `announced`, which the process before it handed over; nothing after a fresh start.
    pub fn new(node: Arc<str>, announced: BTreeSet<IpAddr>) -> Self {
        Self {
            node,
            patience: Duration::ZERO,
            assignment: Arc::default(),
            announced,
            gained: BTreeMap::new(),
            unreleased: BTreeMap::new(),
            dissenters: BTreeSet::new(),
            leaving_since: None,
        }
    }

    /// The assignment that is followed.
    pub fn assignment(&self) -> &Arc<Assignment> {
        &self.assignment
    }

    /// The addresses that this gateway announces.
    pub fn announced(&self) -> &BTreeSet<IpAddr> {
        &self.announced
    }

    /// Addresses that wait, and the nodes that may still announce each.
    pub fn waiting(&self) -> impl Iterator<Item = (IpAddr, BTreeSet<Arc<str>>)> {
        self.gained.keys().map(|address| {
            let holders = self.unreleased.iter().filter(|(_, held)| held.contains(address));
            (*address, holders.map(|(node, _)| node).chain(&self.dissenters).cloned().collect())
        })
    }

    /// Whether [`poll`](Self::poll) is to be called after each heartbeat that was accepted: addresses wait for what it shows.
    pub fn waits(&self) -> bool {
        !(self.gained.is_empty() && self.unreleased.is_empty()) || self.leaving_since.is_some()
    }

    /// When [`poll`](Self::poll) is to be called at the latest.
    pub fn next_due(&self) -> Option<Instant> {
        let gained = self.gained.values().chain(&self.leaving_since);
        gained.min().map(|since| *since + self.patience)
    }

    /// The gateway was fenced: withdraw all these, and follow nothing until the fence ends.
    #[must_use]
    pub fn fence(&mut self) -> BTreeSet<IpAddr> {
        let fenced = Self::new(self.node.clone(), BTreeSet::new());
        std::mem::replace(self, fenced).announced
    }

    /// Follows another assignment. Not to be called while the view is fenced or listening.
    pub fn update(&mut self, new: Arc<Assignment>, membership: &Membership, now: Instant) -> HandoverSteps {
        self.patience = membership.patience();
        let own = |address: &IpAddr| new.owner(address) == Some(&self.node);
        for (address, former) in &self.assignment.owners {
            let former = former.as_ref().ok().filter(|node| **node != self.node);
            let Some(former) = former.filter(|node| new.owner(address) != Some(*node)) else { continue };
            self.unreleased.entry(former.clone()).or_default().insert(*address);
        }
        for (node, held) in &mut self.unreleased {
            held.retain(|address| new.owner(address) != Some(node));
        }
        let gained = new.owners.keys().filter(|address| own(address) && !self.announced.contains(*address));
        self.gained = gained.map(|address| (*address, *self.gained.get(address).unwrap_or(&now))).collect();

        let leaving =
            membership.presence() != Presence::Staying && !membership.view().is_candidate(&self.node);
        self.leaving_since = leaving.then(|| self.leaving_since.unwrap_or(now));
        let lost: Vec<IpAddr> = match leaving {
            true => Vec::new(),
            false => self.announced.iter().copied().filter(|address| !own(address)).collect(),
        };
        lost.iter().for_each(|address| _ = self.announced.remove(address));
        self.assignment = new;
        let applied = (!leaving).then_some(self.assignment.applied);
        let steps = self.poll(membership, now);
        let withdraw = lost.into_iter().chain(steps.withdraw).collect();
        HandoverSteps { withdraw, applied: steps.applied.or(applied), ..steps }
    }

    /// Announces addresses whose wait is over.
    pub fn poll(&mut self, membership: &Membership, now: Instant) -> HandoverSteps {
        self.patience = membership.patience();
        if self.leaving_since.is_some() {
            return self.leave(membership, now);
        }
        if !self.waits() {
            return HandoverSteps::default();
        }
        let Applied { view, assignment } = self.assignment.applied;
        let unreleased = |node: &str| !membership.has_released(node, assignment, now);
        self.unreleased.retain(|node, held| !held.is_empty() && unreleased(node));
        let dissenters = membership.alive().filter(|node| !membership.agrees(node, view, now));
        self.dissenters = dissenters.cloned().collect();
        let free = |address: &IpAddr| {
            self.dissenters.is_empty() && !self.unreleased.values().any(|held| held.contains(address))
        };
        let due =
            self.gained.iter().filter(|(address, since)| now >= **since + self.patience || free(address));
        let announce: Vec<IpAddr> = due.map(|(address, _)| *address).collect();
        announce.iter().for_each(|address| _ = self.gained.remove(address));
        self.announced.extend(&announce);
        HandoverSteps { announce, awaiting: !self.gained.is_empty(), ..HandoverSteps::default() }
    }

    /// Withdraws everything once all who may own it are ready to take over. Others that leave are not waited for: they wait for the same.
    fn leave(&mut self, membership: &Membership, now: Instant) -> HandoverSteps {
        let applied = self.assignment.applied;
        let since = self.leaving_since.unwrap_or(now);
        let mut heirs = membership.view().candidates.iter();
        let ready = heirs.all(|heir| membership.follows(&heir.node, applied, now));
        if !(ready || self.announced.is_empty() || now >= since + self.patience) {
            return HandoverSteps { awaiting: true, ..HandoverSteps::default() };
        }
        let withdraw = std::mem::take(&mut self.announced).into_iter().collect();
        self.leaving_since = None;
        HandoverSteps { withdraw, applied: Some(applied), left: true, ..HandoverSteps::default() }
    }
}
