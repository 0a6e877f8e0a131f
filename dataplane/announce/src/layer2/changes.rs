//! Addresses put on interfaces, renewed and taken off, and what changes of the machine's links and addresses mean for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netlink_packet_route::RouteNetlinkMessage;
use nix::libc;
use tracing::warn;

use super::announcement::{Announcement, Lifetime, Pending, Why};
use super::kernel_address::message;
use super::kernel_changes::{Addition, How, Outcome};
use super::links::{Change, Subnet, containing};
use super::netlink::Notified;
use super::renewals::Renewed;
use super::survey::Found;
use super::{AnnounceError, Layer2, Layer2Event, settings};

/// An address counts as gone this much before its time: the kernel is a fiftieth of a second early
/// (ADDRCONF_TIMER_FUZZ_MINUS in net/addrconf.h), and what was true when it was checked has to be true a moment later.
const EARLY: Duration = Duration::from_millis(250);
/// An address that somebody removed is put on again only while at least this is left of its time: it is not to live longer by it.
const CERTAIN: Duration = Duration::from_secs(1);

impl Layer2 {
    /// Has the lifetime of all addresses renewed. To be called every second, by whoever knows that they still belong to this machine.
    pub fn refresh(&mut self) {
        let now = Instant::now();
        self.lapse(now);
        let mut all: BTreeMap<IpAddr, Vec<u32>> = BTreeMap::new();
        for &(ip, link) in self.adopted.keys() {
            all.entry(ip).or_default().push(link);
        }
        for (ip, announcement) in &mut self.announcements {
            if announcement.is_on() && !announcement.links.is_empty() {
                // One that somebody has removed may be somebody else's now.
                let ours = |link: &&u32| !announcement.pending.contains_key(link);
                all.entry(*ip).or_default().extend(announcement.links.iter().filter(ours));
            } else {
                // What is not on an interface does not lapse.
                announcement.lifetime = Lifetime { asked: now, time: self.manner.lifetime };
            }
        }
        for (ip, links) in &mut all {
            links.retain(|&link| !self.links.foreign_on(*ip, link));
        }
        all.retain(|_, links| !links.is_empty());
        self.round = all.values().map(Vec::len).sum();
        let lifetime = Lifetime { asked: now, time: self.set_lifetime(now) };
        for (ip, links) in all {
            let addition = |link: u32| {
                RouteNetlinkMessage::NewAddress(message(ip, link, &self.links.name(link), lifetime.time))
            };
            let additions = links.into_iter().map(addition).collect();
            let announced = self.announcements.get(&ip).map(|one| one.lifetime);
            let adopted = self.adopted.range(all_of(ip)).map(|(_, lifetime)| *lifetime);
            let ends = adopted.chain(announced).map(Lifetime::ends).min().unwrap_or(now);
            self.renewals.ask(ip, additions, lifetime, ends);
        }
        self.find_first_end();
    }

    /// How long addresses are given from now on: three rounds of renewals, as long as these take lately. Where nftables does not keep the kernel of a
    /// dead process silent, it is to have the addresses no longer than at the least.
    fn set_lifetime(&mut self, now: Instant) -> Duration {
        let least = self.manner.lifetime;
        let rounds = self.pace.rounds(self.round.max(self.announcements.len()), now);
        let lifetime = if self.kernel_speaks { least } else { least.max(rounds) };
        self.kernel_changes.set_lifetime(lifetime);
        lifetime
    }

    /// Takes in what has been renewed. It counts from when that was asked for: had the process been stopped meanwhile, it may belong to another
    /// by now.
    fn take_renewed(&mut self) {
        let Renewed { lifetimes, changes, took } = self.renewals.take();
        if lifetimes.is_empty() {
            return;
        }
        let now = Instant::now();
        self.pace.note(changes, took, now);
        self.set_lifetime(now);
        for (ip, lifetime) in lifetimes {
            self.adopted.range_mut(all_of(ip)).for_each(|(_, adopted)| adopted.renew(lifetime));
            if let Some(announcement) = self.announcements.get_mut(&ip) {
                announcement.lifetime.renew(lifetime);
            }
        }
        self.find_first_end();
    }

    fn find_first_end(&mut self) {
        let announced = self.announcements.values().map(|one| one.lifetime);
        self.first_end = announced.chain(self.adopted.values().copied()).map(Lifetime::ends).min();
    }

    pub(super) fn note_end(&mut self, lifetime: Lifetime) {
        let ends = lifetime.ends();
        self.first_end = Some(self.first_end.map_or(ends, |first| first.min(ends)));
    }

    /// Withdraws what the kernel may have removed already.
    pub(super) fn lapse(&mut self, now: Instant) {
        self.take_renewed();
        if self.lapse_due().is_none_or(|due| now < due) {
            return;
        }
        let overdue = |lifetime: Lifetime| now + EARLY >= lifetime.ends();
        let lapsed = self.announcements.iter().filter(|(_, one)| overdue(one.lifetime));
        let addresses: Vec<IpAddr> = lapsed.map(|(ip, _)| *ip).collect();
        if !addresses.is_empty() {
            self.withdraw_these(&addresses);
        }
        let adopted: Vec<_> = self.adopted.extract_if(.., |_, lifetime| overdue(*lifetime)).collect();
        self.take_off(&adopted.into_iter().map(|(place, _)| place).collect::<Vec<_>>());
        self.find_first_end();
        if !addresses.is_empty() {
            self.events.push_back(Layer2Event::Lapsed { addresses });
        }
    }

    /// When `lapse` has something to do.
    pub(super) fn lapse_due(&self) -> Option<Instant> {
        Some(self.first_end? - EARLY)
    }

    /// Withdraws several at once.
    pub(crate) fn withdraw_these(&mut self, ips: &[IpAddr]) {
        let mut on = Vec::new();
        for ip in ips {
            self.agenda.set(*ip, None);
            let Some(announcement) = self.announcements.remove(ip) else { continue };
            on.extend(links_of(&announcement).into_iter().map(|link| (*ip, link)));
        }
        self.take_off(&on);
        // The process may end before it waits for anything.
        self.watch_at_once(Instant::now());
    }

    /// Has the kernel put an address on links, unless it is somebody else's on this machine.
    pub(super) fn put_on(
        &mut self,
        ip: IpAddr,
        announcement: &mut Announcement,
        links: &[u32],
        why: Why,
    ) -> Option<AnnounceError> {
        if links.is_empty() {
            return None;
        }
        if let Some(holder) = self.links.holder(ip) {
            announcement.links.retain(|link| !links.contains(link));
            return Some(AnnounceError::NotOurs { ip, interface: self.links.name(holder) });
        }
        for &link in links {
            self.ask(ip, announcement, link, why, How::New);
        }
        None
    }

    fn ask(&mut self, ip: IpAddr, announcement: &mut Announcement, link: u32, why: Why, how: How) {
        let ticket = self.kernel_changes.ticket();
        announcement.pending.insert(link, Pending { ticket, why });
        // One that somebody has removed is not to live longer by it.
        let until = (why == Why::Lost).then(|| announcement.lifetime.ends() - CERTAIN);
        let interface = self.links.name(link);
        self.kernel_changes.put_on(Addition { ip, link, ticket, interface, how, until });
    }

    /// Keeps an announcement, unless it failed and is nowhere.
    pub(super) fn keep(&mut self, ip: IpAddr, mut announcement: Announcement, error: Option<AnnounceError>) {
        match error {
            Some(error) if announcement.is_nowhere() => {
                self.agenda.set(ip, None);
                self.watch_due = Some(Instant::now());
                self.events.push_back(Layer2Event::Failed(error));
                return;
            }
            Some(error) if !announcement.incomplete => {
                announcement.incomplete = true;
                warn!(%error, "an address is not on all interfaces");
            }
            Some(_) | None => {}
        }
        self.note_end(announcement.lifetime);
        self.announcements.insert(ip, announcement);
    }

    /// Takes in what the kernel has changed.
    pub(super) fn take_in_changes(&mut self) {
        let outcomes = self.kernel_changes.take_outcomes();
        if self.kernel_changes.take_removed() {
            self.watch_due = Some(Instant::now());
        }
        if outcomes.is_empty() {
            return;
        }
        // By then it is known whose an address is that was there.
        self.follow_notifications_or_warn();
        let now = Instant::now();
        for outcome in outcomes {
            let ip = outcome.ip;
            self.pace.note(1, outcome.took, now);
            if let Some(mut announcement) = self.announcements.remove(&ip) {
                let error = self.take_in(outcome, &mut announcement);
                self.keep(ip, announcement, error);
            }
        }
        self.set_lifetime(now);
    }

    /// Takes in what became of one addition; returns why it failed.
    fn take_in(&mut self, outcome: Outcome, announcement: &mut Announcement) -> Option<AnnounceError> {
        let Outcome { ip, link, ticket, lifetime, result, .. } = outcome;
        // On another link, or behind others now, it may end sooner.
        if result.is_ok() && lifetime.ends() < announcement.lifetime.ends() {
            announcement.lifetime = lifetime;
        }
        // It is not to be there any more, or was put behind others.
        let why = announcement.pending.get(&link).filter(|one| one.ticket == ticket)?.why;
        announcement.pending.remove(&link);
        let taken = |error: &io::Error| error.raw_os_error() == Some(libc::EEXIST);
        match result {
            Ok(()) => self.note_on(ip, announcement, link, why, lifetime),
            Err(error) if taken(&error) && self.links.ours_on(ip, link) => {
                if why != Why::Lost {
                    self.ask(ip, announcement, link, why, How::Again);
                }
            }
            // The link or its subnet is gone, which a notification reports as well, or it is renewed before long.
            Err(error) if why == Why::Lost && !taken(&error) => {}
            Err(source) => {
                announcement.links.retain(|one| *one != link);
                let interface = self.links.name(link);
                return Some(if taken(&source) {
                    AnnounceError::NotOurs { ip, interface }
                } else {
                    AnnounceError::Refused { ip, interface, source }
                });
            }
        }
        None
    }

    /// Notes that an address is on a link now.
    fn note_on(
        &mut self,
        ip: IpAddr,
        announcement: &mut Announcement,
        link: u32,
        why: Why,
        lifetime: Lifetime,
    ) {
        let first = announcement.links.is_empty();
        if first {
            announcement.lifetime = lifetime;
        }
        announcement.add(link);
        announcement.incomplete = false;
        self.check_settings(link);
        let now = Instant::now();
        announcement.restart(now);
        self.agenda.set_first(ip);
        self.watch_due = Some(now);
        match why {
            Why::Lost => {
                self.events.push_back(Layer2Event::AddressLost { ip, interface: self.links.name(link) });
            }
            Why::Probed { after_conflict: true } if first => {
                self.events.push_back(Layer2Event::ConflictOver { ip });
            }
            Why::Begins | Why::Probed { .. } if first => {
                self.events.push_back(Layer2Event::Announced { ip });
            }
            Why::Begins | Why::Probed { .. } | Why::Moves => {}
        }
    }

    /// Has the kernel take addresses off links, and waits for that for a moment at most. One that is not there is no error.
    pub(super) fn take_off(&mut self, addresses: &[(IpAddr, u32)]) {
        self.leave(addresses);
        self.kernel_changes.settle();
        self.follow_notifications_or_warn();
    }

    /// Has the kernel take addresses off links, but for those that are somebody else's.
    fn leave(&mut self, addresses: &[(IpAddr, u32)]) {
        if addresses.is_empty() {
            return;
        }
        self.kernel_changes.cancel(addresses);
        let ours = addresses.iter().copied().filter(|&(ip, link)| !self.links.foreign_on(ip, link));
        self.kernel_changes.take_off(ours.collect());
        // Until they are off.
        self.watch_due = Some(Instant::now());
    }

    /// Removes what an earlier process had elsewhere; what is left of the time of the address if it had it at all.
    pub(super) fn claim_adopted(&mut self, ip: IpAddr, links: &[u32]) -> Option<Lifetime> {
        let had = self.adopted.range(all_of(ip)).map(|(place, _)| *place);
        let elsewhere: Vec<_> = had.filter(|(_, link)| !links.contains(link)).collect();
        // Notifications are read meanwhile: an address that is renewed then must not seem to be wanted no more.
        self.take_off(&elsewhere);
        let had = self.adopted.extract_if(all_of(ip), |_, _| true);
        had.map(|(_, lifetime)| lifetime).min_by_key(|lifetime| lifetime.ends())
    }

    pub(super) fn follow_notifications_or_warn(&mut self) {
        if let Err(error) = self.follow_notifications() {
            warn!(%error, "changes of links and addresses cannot be followed");
        }
    }

    /// Takes over all that has changed.
    pub(super) fn follow_notifications(&mut self) -> io::Result<()> {
        let mut changes = Vec::new();
        loop {
            match self.notifications.receive()? {
                Notified::Messages(messages) => {
                    messages.iter().for_each(|message| self.survey.note(message));
                    changes.extend(messages.into_iter().map(|message| self.links.apply(message)));
                }
                Notified::Overrun => self.survey.lose(),
                Notified::Nothing => break,
            }
        }
        let surveyed = self.take_surveyed(&mut changes);
        self.follow_subnets();
        let mut moved = surveyed?;
        let (mut ours, mut added) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            match change {
                Change::Removed { ip, link } => self.restore(ip, link),
                Change::Ours { ip, link } => drop(ours.insert((ip, link))),
                Change::Added { link } => drop(added.insert(link)),
                Change::Moved { link } => drop(moved.insert(link)),
                Change::Other => {}
            }
        }
        if self.strays_until.is_some_and(|until| Instant::now() < until) {
            self.take_off_strays(ours);
        }
        added.into_iter().for_each(|link| self.reorder(link));
        self.announce_from(&moved);
        Ok(())
    }

    /// Takes addresses off that the process before this one had asked for, and that are not wanted any more.
    fn take_off_strays(&mut self, ours: BTreeSet<(IpAddr, u32)>) {
        let wanted = |(ip, link): &(IpAddr, u32)| {
            let announced = self.announcements.get(ip).is_some_and(|one| links_of(one).contains(link));
            announced || self.adopted.contains_key(&(*ip, *link))
        };
        let strays: Vec<(IpAddr, u32)> = ours.into_iter().filter(|place| !wanted(place)).collect();
        self.leave(&strays);
    }

    /// Takes over what a survey has found, and what was notified since it began. Returns the links that frames can be sent out of since.
    fn take_surveyed(&mut self, changes: &mut Vec<Change>) -> io::Result<BTreeSet<u32>> {
        let Some(surveyed) = self.survey.take() else { return Ok(BTreeSet::new()) };
        let (Found { links, destinations }, since) = surveyed?;
        self.links = links;
        changes.extend(since.into_iter().map(|message| self.links.apply(message)));
        changes.extend(self.absent().into_iter().map(|(ip, link)| Change::Removed { ip, link }));
        let new = destinations.keys().copied().filter(|&link| self.packets.destination(link).is_none());
        let new = new.collect();
        self.packets.set_destinations(destinations);
        Ok(new)
    }

    /// Addresses that should be on a link and are not.
    fn absent(&self) -> Vec<(IpAddr, u32)> {
        let on = self.announcements.iter().filter(|(_, announcement)| announcement.is_on());
        let all = on.flat_map(|(ip, announcement)| announcement.links.iter().map(|&link| (*ip, link)));
        all.filter(|&(ip, link)| !self.links.ours_on(ip, link)).collect()
    }

    /// Puts an address on again that somebody has removed. That it was removed may be an old story: it was renewed since.
    fn restore(&mut self, ip: IpAddr, link: u32) {
        if self.links.ours_on(ip, link) {
            return;
        }
        let now = Instant::now();
        let holds = |one: &Announcement| {
            let waits = one.pending.contains_key(&link) || now + CERTAIN >= one.lifetime.ends();
            one.is_on() && one.links.contains(&link) && !waits
        };
        if !self.announcements.get(&ip).is_some_and(holds) {
            return;
        }
        let Some(mut announcement) = self.announcements.remove(&ip) else { return };
        let error = self.put_on(ip, &mut announcement, &[link], Why::Lost);
        self.keep(ip, announcement, error);
    }

    /// Puts the IPv4 addresses of a link behind one of the host that is new there: the first is the source address where a route names
    /// none (`inet_select_addr` in net/ipv4/devinet.c), and what others take for the address of the host.
    fn reorder(&mut self, link: u32) {
        let on = self
            .announcements
            .iter()
            .filter(|(ip, one)| ip.is_ipv4() && one.is_on() && one.links.contains(&link));
        let ips: Vec<IpAddr> = on.map(|(ip, _)| *ip).filter(|&ip| self.links.ours_on(ip, link)).collect();
        for ip in ips {
            let (ticket, interface) = (self.kernel_changes.ticket(), self.links.name(link));
            self.kernel_changes.put_on(Addition { ip, link, ticket, interface, how: How::Last, until: None });
        }
    }

    /// Moves addresses to where they can be announced now.
    fn follow_subnets(&mut self) {
        let subnets = self.links.subnets();
        if subnets == self.subnets {
            return;
        }
        let before = std::mem::replace(&mut self.subnets, subnets);
        self.subnets_changed = true;
        if self.subnets.iter().any(|subnet| self.packets.destination(subnet.link).is_none()) {
            self.survey.ask();
        }
        let new = |subnet: &&Subnet| {
            !before.iter().any(|old| old.link == subnet.link && old.network == subnet.network)
        };
        let back: BTreeSet<Arc<str>> =
            self.subnets.iter().filter(new).map(|subnet| Arc::clone(&subnet.interface)).collect();
        let names: BTreeMap<u32, Arc<str>> =
            before.iter().map(|subnet| (subnet.link, Arc::clone(&subnet.interface))).collect();
        let present: BTreeSet<u32> = self.subnets.iter().map(|subnet| subnet.link).collect();
        self.checked.retain(|link| present.contains(link));
        let mut lost: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
        for ip in self.announcements.keys().copied().collect::<Vec<_>>() {
            for link in self.place(ip) {
                lost.entry(link).or_default().push(ip);
            }
        }
        for (link, addresses) in lost {
            let interface = names.get(&link).map_or_else(|| self.links.name(link), Arc::clone);
            let stranded = |ip: &IpAddr| self.announcements.get(ip).is_some_and(Announcement::is_nowhere);
            let stranded = addresses.iter().copied().filter(stranded).collect();
            self.events.push_back(Layer2Event::InterfaceLost { interface, addresses, stranded });
        }
        self.announce_from_new_macs(&before);
        self.events.extend(back.into_iter().map(|interface| Layer2Event::InterfaceBack { interface }));
    }

    /// Puts an address where it belongs now; returns the links on which it no longer is.
    pub(super) fn place(&mut self, ip: IpAddr) -> Vec<u32> {
        let Some(mut announcement) = self.announcements.remove(&ip) else { return Vec::new() };
        let links: Vec<u32> = containing(&self.subnets, ip, &announcement.interfaces)
            .iter()
            .map(|subnet| subnet.link)
            .collect();
        let (mut gone, mut error) = (Vec::new(), None);
        if announcement.is_on() {
            let before = links_of(&announcement);
            gone.extend(before.iter().copied().filter(|link| !links.contains(link)));
            let new: Vec<u32> = links.into_iter().filter(|link| !before.contains(link)).collect();
            announcement.links.retain(|link| !gone.contains(link));
            announcement.pending.retain(|link, _| !gone.contains(link));
            self.leave(&gone.iter().map(|&link| (ip, link)).collect::<Vec<_>>());
            error = self.put_on(ip, &mut announcement, &new, Why::Moves);
        } else {
            announcement.links = links;
        }
        self.keep(ip, announcement, error);
        gone
    }

    /// Tries again to put announced addresses on links that have not taken them, and to survey the machine.
    pub(crate) fn complete(&mut self) {
        self.survey.retry();
        for ip in self.announcements.keys().copied().collect::<Vec<_>>() {
            self.place(ip);
        }
    }

    /// Neighbours keep the address that a link had before.
    fn announce_from_new_macs(&mut self, before: &[Subnet]) {
        let other =
            |subnet: &&Subnet| before.iter().any(|old| old.link == subnet.link && old.mac != subnet.mac);
        let links: BTreeSet<u32> = self.subnets.iter().filter(other).map(|subnet| subnet.link).collect();
        self.announce_from(&links);
    }

    fn announce_from(&mut self, links: &BTreeSet<u32>) {
        let on =
            self.announcements.iter().filter(|(_, one)| one.links.iter().any(|link| links.contains(link)));
        let ips: Vec<IpAddr> = on.map(|(ip, _)| *ip).collect();
        ips.into_iter().for_each(|ip| self.announce_anew(ip, Instant::now()));
    }

    pub(super) fn announce_anew(&mut self, ip: IpAddr, now: Instant) {
        if let Some(announcement) = self.announcements.get_mut(&ip) {
            announcement.restart(now);
            self.agenda.set_first(ip);
        }
    }

    fn check_settings(&mut self, link: u32) {
        if self.checked.insert(link) {
            let warnings = settings::check_ipv4(&self.links.name(link));
            self.events.extend(warnings.into_iter().map(Layer2Event::Setting));
        }
    }
}

/// An address on each link.
fn all_of(ip: IpAddr) -> RangeInclusive<(IpAddr, u32)> {
    (ip, 0)..=(ip, u32::MAX)
}

/// The links on which an address is, or may be in a moment.
fn links_of(announcement: &Announcement) -> Vec<u32> {
    let on = announcement.links.iter().filter(|_| announcement.is_on());
    on.chain(announcement.pending.keys()).copied().collect::<BTreeSet<u32>>().into_iter().collect()
}
