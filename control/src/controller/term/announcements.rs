//! Which gateways announce the addresses of each Service, according to their reports. No I/O; time is measured in polls.
//!
//! While an address moves, reports from slightly different times show it as announced by no gateway or by two. So either state
//! counts only after it has lasted for [`LASTS`] polls of all gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{discriminant, take};
use std::net::IpAddr;

use crate::api::store::ServiceKey;
use crate::controller::desired_status::Announcement;

/// Number of polls after which a state counts. The first poll may have reached one gateway before the move and another after it;
/// the second starts later.
const LASTS: u64 = 2;

/// Report of one gateway about its announcements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcer {
    pub(super) node: String,
    /// Whether it answered the last poll.
    pub(super) answers: bool,
    /// Whether other gateways may announce the same addresses.
    pub(super) shared: bool,
    /// Announced addresses; see [`GatewayReport::announced`](crate::api::gateway_report::GatewayReport::announced).
    pub(super) addresses: Option<Vec<IpAddr>>,
}

/// Whether the ready gateways announce addresses themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) enum AnnounceMode {
    /// No gateway has reported yet, or only briefly.
    #[default]
    Unknown,
    /// No gateway announces addresses.
    Off,
    /// At least one gateway announces addresses.
    On,
}

/// Announcements in one term.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    mode: AnnounceMode,
    announcers: Vec<Announcer>,
    reported: AnnouncersByAddress,
    polls: u64,
    services: BTreeMap<ServiceKey, AnnouncedService>,
    /// Services with a pending change.
    pending: BTreeSet<ServiceKey>,
}

/// Stands for the nodes of gateways that announce the same addresses at the same time. Routers choose among them. A condition
/// with their names would be written for each Service whenever one of them comes or goes.
const ALL_THAT_SERVE: &str = "each gateway that can serve it";

/// Nodes of the gateways that answered the last poll, by each address that they report.
type AnnouncersByAddress = BTreeMap<IpAddr, BTreeSet<String>>;

/// A Service with addresses that gateways may announce.
#[derive(Debug)]
struct AnnouncedService {
    addresses: Vec<IpAddr>,
    announcement: Announcement,
    /// State in the reports that does not count yet, and the number of polls when it appeared.
    pending: Option<(Announcement, u64)>,
}

impl Announcements {
    /// Records the reports of the ready gateways after this many polls. Returns the Services whose announcement changed.
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

    /// Sets the addresses of a Service that gateways may announce.
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

    /// The gateways that announce the addresses of a Service.
    pub(super) fn of(&self, key: &ServiceKey) -> Announcement {
        self.services.get(key).map(|state| state.announcement.clone()).unwrap_or_default()
    }

    /// Whether the next poll matters even if no report changes.
    pub(super) fn await_poll(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Updates one Service. Returns whether its announcement changed.
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
    /// Records the state in the reports. Returns whether the announcement changed.
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

/// State of these addresses in the reports. The last report of a gateway that does not answer is no evidence: it may still
/// announce them, or another gateway may take over at any moment.
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
