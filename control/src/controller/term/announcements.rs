//! Which gateways announce the addresses of each Service, by their reports. Pure; polls are counted, not timed.
//!
//! While an address moves, reports that were not asked for at the same instant show it announced by none or by two. So either
//! counts only once it has lasted for [`LASTS`] polls of all gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{discriminant, take};
use std::net::IpAddr;

use crate::api::store::ServiceKey;
use crate::controller::desired_status::Announcement;

/// A poll that is under way may have asked one gateway before the move and the other one after it; the second begins later.
const LASTS: u64 = 2;

/// What one gateway reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcer {
    pub(super) node: String,
    /// It answered the last time that it was polled.
    pub(super) answers: bool,
    /// Others may announce the same addresses.
    pub(super) shared: bool,
    /// As [`GatewayReport::announced`](crate::api::gateway_report::GatewayReport::announced).
    pub(super) addresses: Option<Vec<IpAddr>>,
}

/// Whether the ready gateways announce addresses by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) enum AnnounceMode {
    /// None has reported yet, or for a short while.
    #[default]
    Unknown,
    /// None does.
    Off,
    /// At least one does.
    On,
}

/// The announcements of one term.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    mode: AnnounceMode,
    announcers: Vec<Announcer>,
    reported: AnnouncersByAddress,
    polls: u64,
    services: BTreeMap<ServiceKey, AnnouncedService>,
    /// Those with something pending.
    pending: BTreeSet<ServiceKey>,
}

/// In place of the nodes of gateways that announce the same addresses at once. Which of them do is the routers' concern: a condition that
/// named them would be written for each Service whenever one of them comes or goes.
const ALL_THAT_SERVE: &str = "each gateway that can serve it";

/// By each address that is reported, the nodes of those gateways among the reporters that answered the last time.
type AnnouncersByAddress = BTreeMap<IpAddr, BTreeSet<String>>;

/// One Service with addresses that gateways may announce.
#[derive(Debug)]
struct AnnouncedService {
    addresses: Vec<IpAddr>,
    announcement: Announcement,
    /// What the reports show now, if it does not count yet, and the number of polls before.
    pending: Option<(Announcement, u64)>,
}

impl Announcements {
    /// Takes what the ready gateways report after so many polls; returns the Services whose announcement is another one now.
    pub(super) fn observe(
        &mut self,
        mode: AnnounceMode,
        announcers: Vec<Announcer>,
        polls: u64,
    ) -> BTreeSet<ServiceKey> {
        self.polls = polls;
        let same = (self.mode, &self.announcers) == (mode, &announcers);
        if !same {
            self.mode = mode;
            self.announcers = announcers;
            self.reported = by_address(&self.announcers);
        }
        let mut due: BTreeSet<ServiceKey> =
            if same { self.pending.clone() } else { self.services.keys().cloned().collect() };
        due.retain(|key| self.update(key));
        due
    }

    /// Sets which addresses of the Service gateways may announce.
    pub(super) fn set_addresses(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>) {
        if addresses.is_empty() {
            self.services.remove(key);
            self.pending.remove(key);
        } else if self.services.get(key).is_none_or(|state| state.addresses != addresses) {
            let state = AnnouncedService { addresses, announcement: Announcement::Unknown, pending: None };
            self.services.insert(key.clone(), state);
            self.update(key);
        }
    }

    /// Which gateways announce the addresses of the Service.
    pub(super) fn of(&self, key: &ServiceKey) -> Announcement {
        self.services.get(key).map(|state| state.announcement.clone()).unwrap_or_default()
    }

    /// Whether the next poll matters even if it changes no report.
    pub(super) fn await_poll(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Brings one Service up to date; whether its announcement is another one now.
    fn update(&mut self, key: &ServiceKey) -> bool {
        let Some(state) = self.services.get_mut(key) else { return false };
        let shown = match self.mode {
            AnnounceMode::Unknown => Announcement::Unknown,
            AnnounceMode::Off => Announcement::NotNeeded,
            AnnounceMode::On => shown(&state.addresses, &self.reported),
        };
        let differs = state.take(shown, self.polls);
        if state.pending.is_none() {
            self.pending.remove(key);
        } else if !self.pending.contains(key) {
            self.pending.insert(key.clone());
        }
        differs
    }
}

impl AnnouncedService {
    /// Takes what the reports show; whether the announcement is another one now.
    fn take(&mut self, shown: Announcement, polls: u64) -> bool {
        let pending = take(&mut self.pending);
        let counts = match shown {
            Announcement::Unknown => return false,
            Announcement::NotNeeded | Announcement::ByOne(_) => true,
            Announcement::ByNone(_) | Announcement::BySeveral(_) => {
                let is_like = |other: &Announcement| discriminant(other) == discriminant(&shown);
                let since = pending.filter(|(pending, _)| is_like(pending)).map_or(polls, |(_, since)| since);
                let counts = is_like(&self.announcement) || polls >= since + LASTS;
                self.pending = (!counts).then(|| (shown.clone(), since));
                counts
            }
        };
        let differs = counts && self.announcement != shown;
        if differs {
            self.announcement = shown;
        }
        differs
    }
}

fn by_address(announcers: &[Announcer]) -> AnnouncersByAddress {
    let mut reported = AnnouncersByAddress::new();
    for announcer in announcers {
        for address in announcer.addresses.iter().flatten() {
            let answering = reported.entry(*address).or_default();
            if announcer.answers {
                let name = if announcer.shared { ALL_THAT_SERVE } else { &announcer.node };
                answering.insert(name.to_owned());
            }
        }
    }
    reported
}

/// What the reports show of these addresses. The last report of a gateway that does not answer is no proof: it may announce them
/// still, or another one may take over any moment.
fn shown(addresses: &[IpAddr], reported: &AnnouncersByAddress) -> Announcement {
    let mut by_one = BTreeMap::new();
    let mut by_none = BTreeSet::new();
    let mut by_several = BTreeMap::new();
    for address in addresses {
        let Some(answering) = reported.get(address) else {
            by_none.insert(*address);
            continue;
        };
        if answering.len() > 1 {
            by_several.insert(*address, answering.clone());
        }
        by_one.extend(answering.first().map(|node| (*address, node.clone())));
    }
    if !by_several.is_empty() {
        Announcement::BySeveral(by_several)
    } else if !by_none.is_empty() {
        Announcement::ByNone(by_none)
    } else if by_one.len() < addresses.len() {
        Announcement::Unknown
    } else {
        Announcement::ByOne(by_one)
    }
}

#[cfg(test)]
mod tests;
