//! Addresses put on interfaces, renewed and taken off, and what changes of the machine's links and addresses mean for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use nix::libc;
use tracing::{debug, warn};

use super::kernel_address::{identity, message};
use super::links::{Change, Links, Subnet, containing};
use super::netlink::{BATCH, Notified};
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
        for &(ip, link) in &self.adopted {
            all.entry(ip).or_default().push(link);
        }
        for (ip, announcement) in &mut self.announcements {
            if announcement.is_on() && !announcement.links.is_empty() {
                all.entry(*ip).or_default().extend(&announcement.links);
            } else {
                // What is not on an interface does not lapse.
                announcement.renewed = now;
            }
        }
        for (ip, links) in all {
            let additions = links.into_iter().map(|link| self.addition(ip, link)).collect();
            self.renewals.ask(ip, additions, now);
        }
        self.find_oldest();
    }

    /// Takes in what has been renewed. It counts from when that was asked for: had the process been stopped meanwhile, it may belong to another
    /// by now.
    fn take_renewed(&mut self) {
        let (renewed, all) = self.renewals.take();
        let Some(earliest) = renewed.values().min().copied() else { return };
        if all {
            self.adopted_renewed = self.adopted_renewed.max(earliest);
        }
        for (ip, asked) in renewed {
            if let Some(announcement) = self.announcements.get_mut(&ip) {
                announcement.renewed = announcement.renewed.max(asked);
            }
        }
        self.find_oldest();
    }

    fn find_oldest(&mut self) {
        let adopted = (!self.adopted.is_empty()).then_some(self.adopted_renewed);
        self.oldest = self.announcements.values().map(|one| one.renewed).chain(adopted).min();
    }

    /// Withdraws what the kernel may have removed already.
    pub(super) fn lapse(&mut self, now: Instant) {
        self.take_renewed();
        let overdue = self.manner.lifetime - EARLY;
        if self.oldest.is_none_or(|oldest| now < oldest + overdue) {
            return;
        }
        let lapsed = self.announcements.iter().filter(|(_, one)| now >= one.renewed + overdue);
        let addresses: Vec<IpAddr> = lapsed.map(|(ip, _)| *ip).collect();
        self.withdraw_these(&addresses);
        if now >= self.adopted_renewed + overdue {
            self.release_adopted();
        }
        self.oldest = self.announcements.values().map(|announcement| announcement.renewed).min();
        if !addresses.is_empty() {
            self.events.push_back(Layer2Event::Lapsed { addresses });
        }
    }

    /// When `lapse` has something to do.
    pub(super) fn lapse_due(&self) -> Option<Instant> {
        Some(self.oldest? + self.manner.lifetime - EARLY)
    }

    /// Withdraws several at once.
    pub(crate) fn withdraw_these(&mut self, ips: &[IpAddr]) {
        let mut on = Vec::new();
        for ip in ips {
            self.agenda.set(*ip, None);
            let Some(announcement) = self.announcements.remove(ip) else { continue };
            if announcement.is_on() {
                on.extend(announcement.links.iter().map(|&link| (*ip, link)));
            }
        }
        self.take_off(&on);
        let now = Instant::now();
        self.watch_due = Some(now);
        // The process may end before it waits for anything.
        self.watch(now);
    }

    /// Puts an address on links. It fails only if no link takes it.
    pub(super) fn put_on(&mut self, ip: IpAddr, links: &[u32]) -> Result<(), AnnounceError> {
        let mut failed = None;
        let mut on = false;
        for &link in links {
            match self.put_on_link(ip, link) {
                Ok(()) => on = true,
                Err(error) => failed = Some((link, error)),
            }
        }
        for &link in links {
            self.check_settings(link);
        }
        match failed {
            None => Ok(()),
            Some((link, source)) if on => {
                warn!(%ip, interface = %self.links.name(link), error = %source, "an address cannot be put on this interface");
                Ok(())
            }
            Some((link, source)) => {
                let interface = self.links.name(link);
                let taken = source.raw_os_error() == Some(libc::EEXIST);
                Err(if taken {
                    AnnounceError::NotOurs { ip, interface }
                } else {
                    AnnounceError::Refused { ip, interface, source }
                })
            }
        }
    }

    fn put_on_link(&mut self, ip: IpAddr, link: u32) -> io::Result<()> {
        let outcome = self.requests.change(self.addition(ip, link), NLM_F_CREATE | NLM_F_EXCL);
        let ours = || self.links.ours_on(ip, link);
        match outcome {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) && ours() => {
                self.requests.change(self.addition(ip, link), NLM_F_CREATE | NLM_F_REPLACE)
            }
            outcome => outcome,
        }
    }

    /// Takes addresses off links; one that is not there is no error.
    pub(super) fn take_off(&mut self, addresses: &[(IpAddr, u32)]) {
        for part in addresses.chunks(BATCH) {
            self.remove(part);
            self.follow_notifications_or_warn();
        }
    }

    /// Has the kernel remove up to `BATCH` addresses, and renews none of them any more.
    fn remove(&mut self, addresses: &[(IpAddr, u32)]) {
        self.renewals.forget(addresses.iter().map(|(ip, _)| *ip));
        self.change_all(addresses.iter().map(|&(ip, link)| removal(ip, link)).collect(), 0);
    }

    fn change_all(&mut self, requests: Vec<RouteNetlinkMessage>, flags: u16) {
        match self.requests.change_all(requests, flags) {
            // The link or the address is gone, which a notification reports as well.
            Ok(failed) => failed.iter().for_each(|(_, error)| debug!(%error, "an address cannot be changed")),
            Err(error) => warn!(%error, "addresses cannot be changed"),
        }
    }

    fn addition(&self, ip: IpAddr, link: u32) -> RouteNetlinkMessage {
        RouteNetlinkMessage::NewAddress(message(ip, link, &self.links.name(link), self.manner.lifetime))
    }

    /// Removes what an earlier process had elsewhere; whether it had the address at all.
    pub(super) fn claim_adopted(&mut self, ip: IpAddr, links: &[u32]) -> bool {
        let had: Vec<(IpAddr, u32)> = self.adopted.range((ip, 0)..=(ip, u32::MAX)).copied().collect();
        self.adopted.retain(|(adopted, _)| *adopted != ip);
        let elsewhere: Vec<_> = had.iter().copied().filter(|(_, link)| !links.contains(link)).collect();
        self.take_off(&elsewhere);
        !had.is_empty()
    }

    /// Reads all links and addresses.
    pub(super) fn dump(&mut self) -> io::Result<()> {
        self.links = Links::read(&mut self.requests, self.manner.lifetime)?;
        Ok(())
    }

    pub(super) fn follow_notifications_or_warn(&mut self) {
        if let Err(error) = self.follow_notifications() {
            warn!(%error, "changes of links and addresses cannot be followed");
        }
    }

    /// Takes over all that has changed.
    pub(super) fn follow_notifications(&mut self) -> io::Result<()> {
        let (mut removed, mut added, mut moved) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        loop {
            match self.notifications.receive()? {
                Notified::Messages(messages) => {
                    for message in messages {
                        match self.links.apply(message) {
                            Change::Removed { ip, link } => removed.push((ip, link)),
                            Change::Added { link } => drop(added.insert(link)),
                            Change::Moved { link } => drop(moved.insert(link)),
                            Change::Other => {}
                        }
                    }
                }
                Notified::Overrun => {
                    self.dump()?;
                    removed.extend(self.absent());
                }
                Notified::Nothing => break,
            }
        }
        self.follow_subnets();
        removed.into_iter().for_each(|(ip, link)| self.restore(ip, link));
        added.into_iter().for_each(|link| self.reorder(link));
        self.announce_from(&moved);
        Ok(())
    }

    /// Addresses that should be on a link and are not.
    fn absent(&self) -> Vec<(IpAddr, u32)> {
        let on = self.announcements.iter().filter(|(_, announcement)| announcement.is_on());
        let all = on.flat_map(|(ip, announcement)| announcement.links.iter().map(|&link| (*ip, link)));
        all.filter(|&(ip, link)| !self.links.ours_on(ip, link)).collect()
    }

    /// Puts an address on again that somebody has removed. That it was removed may be an old story (it was renewed since): then the
    /// kernel says that it is there.
    fn restore(&mut self, ip: IpAddr, link: u32) {
        let now = Instant::now();
        let certain = self.manner.lifetime - CERTAIN;
        let Some(announcement) = self.announcements.get(&ip) else { return };
        if !announcement.is_on()
            || !announcement.links.contains(&link)
            || now >= announcement.renewed + certain
        {
            return;
        }
        if self.requests.change(self.addition(ip, link), NLM_F_CREATE | NLM_F_EXCL).is_ok() {
            self.events.push_back(Layer2Event::AddressLost { ip, interface: self.links.name(link) });
            self.announce_anew(ip, now);
        }
    }

    /// Puts the IPv4 addresses of a link behind one of the host that is new there: the first is the source address where a route names
    /// none (`inet_select_addr` in net/ipv4/devinet.c), and what others take for the address of the host.
    fn reorder(&mut self, link: u32) {
        let on = self
            .announcements
            .iter()
            .filter(|(ip, one)| ip.is_ipv4() && one.is_on() && one.links.contains(&link));
        let ips: Vec<IpAddr> = on.map(|(ip, _)| *ip).collect();
        for part in ips.chunks(BATCH / 2) {
            let requests = part.iter().flat_map(|&ip| [removal(ip, link), self.addition(ip, link)]);
            // The flags of an addition that excludes mean something else to a removal (NLM_F_BULK in linux/netlink.h).
            self.change_all(requests.collect(), NLM_F_CREATE);
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
        self.packets.links_changed();
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
            let stranded = |ip: &IpAddr| self.announcements.get(ip).is_some_and(|one| one.links.is_empty());
            let stranded = addresses.iter().copied().filter(stranded).collect();
            self.events.push_back(Layer2Event::InterfaceLost { interface, addresses, stranded });
        }
        self.announce_from_new_macs(&before);
        self.events.extend(back.into_iter().map(|interface| Layer2Event::InterfaceBack { interface }));
    }

    /// Puts an address where it belongs now; returns the links on which it no longer is.
    pub(super) fn place(&mut self, ip: IpAddr) -> Vec<u32> {
        let Some(announcement) = self.announcements.get_mut(&ip) else { return Vec::new() };
        let links: Vec<u32> = containing(&self.subnets, ip, &announcement.interfaces)
            .iter()
            .map(|subnet| subnet.link)
            .collect();
        let before = std::mem::replace(&mut announcement.links, links.clone());
        if !announcement.is_on() {
            return Vec::new();
        }
        let gone: Vec<u32> = before.iter().copied().filter(|link| !links.contains(link)).collect();
        let new: Vec<u32> = links.into_iter().filter(|link| !before.contains(link)).collect();
        if !gone.is_empty() || !new.is_empty() {
            self.watch_due = Some(Instant::now());
        }
        gone.iter().for_each(|&link| self.remove(&[(ip, link)]));
        if !new.is_empty() {
            match self.put_on(ip, &new) {
                Ok(()) => self.announce_anew(ip, Instant::now()),
                Err(error) => self.events.push_back(Layer2Event::Failed(error)),
            }
        }
        gone
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

fn removal(ip: IpAddr, link: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelAddress(identity(ip, link))
}
