//! BGP: addresses on interfaces of their own, whose connected routes a routing daemon redistributes.
//!
//! All gateways that can serve an address announce it, and routers share its connections among them: there is no owner. The daemon, FRR,
//! knows two interfaces by name. It announces what is on the first, and what is on the second with the community `graceful-shutdown`
//! (RFC 8326). `README.md` of this crate describes it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage, LinkMode, State,
};
use tracing::{debug, warn};

use crate::layer2::AnnounceError;
use crate::layer2::kernel_address::{identity, lend};
use crate::layer2::links::{Links, Subnet, containing};
use crate::layer2::netlink::{BATCH, Requests};
use crate::layer2::pace::Pace;
use crate::layer2::settings::in_force;

/// How many addresses are renewed in a second. Each is 0.2 ms of work for FRR, whatever its number.
const PER_SECOND: usize = 100;
/// An address lives for so many of its renewals.
const RENEWALS: u64 = 3;

/// How a gateway announces by BGP.
#[derive(Clone, Debug)]
pub struct BgpOptions {
    /// The name of its node.
    pub node: Arc<str>,
    /// How long addresses have the community `graceful-shutdown` before they are withdrawn.
    pub drain: Duration,
}

/// An interface that exists for as long as somebody holds its device.
#[derive(Debug)]
pub struct BgpInterface {
    /// Its name.
    pub name: Arc<str>,
    /// The TUN device. It is neither read nor written.
    pub device: OwnedFd,
}

/// The two interfaces of a gateway.
#[derive(Debug)]
pub struct BgpInterfaces {
    /// Whose addresses are announced.
    pub announced: BgpInterface,
    /// Whose addresses are announced with the community `graceful-shutdown`.
    pub shutdown: BgpInterface,
}

/// State of the addresses for the routing daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BgpPhase {
    /// Announce them.
    Announced,
    /// Announce them as about to go.
    Shutdown,
    /// Withdraw them. They are still the machine's, which serves what routers send until they know.
    Withdrawn,
}

/// The addresses that this machine announces.
pub(crate) struct Routed {
    requests: Requests,
    /// The numbers of the two links.
    announced: u32,
    shutdown: u32,
    phase: BgpPhase,
    links: Links,
    /// Until when the kernel keeps each address.
    held: BTreeMap<IpAddr, Instant>,
    /// How long the kernel takes for a change.
    pace: Pace,
}

impl Routed {
    /// Takes over two interfaces, with what is on the first.
    ///
    /// # Errors
    /// Errors of socket(2) and of requests to the kernel, for which CAP_NET_ADMIN is needed.
    pub(crate) fn start(interfaces: &BgpInterfaces) -> io::Result<Self> {
        let mut requests = Requests::open()?;
        let links = Links::read(&mut requests, Duration::ZERO)?;
        let number = |interface: &BgpInterface| {
            let missing = || io::Error::other(format!("there is no interface {}", interface.name));
            links.number(&interface.name).ok_or_else(missing)
        };
        let (announced, shutdown) = (number(&interfaces.announced)?, number(&interfaces.shutdown)?);
        let (phase, pace) = (BgpPhase::Announced, Pace::new(Instant::now()));
        let mut routed = Self { requests, announced, shutdown, phase, held: BTreeMap::new(), links, pace };
        for link in [announced, shutdown] {
            if let Err(error) = routed.requests.change(no_own_addresses(link), 0) {
                // A kernel without IPv6.
                debug!(%error, "an interface may have a link-local address");
            }
        }
        // A link with this mode becomes operational by a request alone.
        let dormant = vec![LinkAttribute::Mode(LinkMode::Dormant), LinkAttribute::OperState(State::Dormant)];
        routed.requests.change(up(shutdown, dormant), 0)?;
        routed.requests.change(up(announced, Vec::new()), 0)?;
        routed.set_phase(BgpPhase::Announced)?;
        let left: Vec<IpAddr> = routed.links.addresses_on(shutdown).collect();
        routed.remove(&left, &[shutdown]);
        let adopted: Vec<IpAddr> = routed.links.addresses_on(announced).collect();
        routed.renew(&adopted, adopted.len());
        Ok(routed)
    }

    /// Addresses on the interface.
    pub(crate) fn held(&self) -> BTreeSet<IpAddr> {
        self.held.keys().copied().collect()
    }

    /// Whether an address is on the interface.
    pub(crate) fn holds(&self, ip: IpAddr) -> bool {
        self.held.contains_key(&ip)
    }

    /// Reads the addresses of the machine again.
    pub(crate) fn look(&mut self) {
        match Links::read(&mut self.requests, Duration::ZERO) {
            Ok(links) => self.links = links,
            Err(error) => warn!(%error, "the addresses of this machine cannot be read"),
        }
    }

    /// Announces these, of `all` that are to be announced; returns those that cannot be. The machine must not have an address
    /// elsewhere: when FRR 8.4 has a connected route on two interfaces and one of them loses it, it may forget the other
    /// one (`process_subq_early_route_delete` in zebra/zebra_rib.c).
    pub(crate) fn announce(&mut self, addresses: &[IpAddr], all: usize) -> Vec<AnnounceError> {
        let mut failed = Vec::new();
        let mut free = Vec::new();
        for &ip in addresses {
            match self.links.elsewhere(ip, &[self.announced, self.shutdown]) {
                Some(link) => failed.push(AnnounceError::NotOurs { ip, interface: self.links.name(link) }),
                None => free.push(ip),
            }
        }
        failed.extend(self.renew(&free, all));
        failed
    }

    /// Withdraws these, and takes them from the machine.
    pub(crate) fn withdraw(&mut self, addresses: &BTreeSet<IpAddr>) {
        let all: Vec<IpAddr> = addresses.iter().copied().collect();
        self.remove(&all, &[self.announced, self.shutdown]);
        for ip in addresses {
            self.held.remove(ip);
        }
    }

    /// Has the routing daemon do something else with all addresses. One of the interfaces is up then, or none, and each of them keeps its
    /// addresses: a machine has them throughout, and the daemon sees one route take the place of another. Addresses that were
    /// moved would be unknown for a moment.
    pub(crate) fn set_phase(&mut self, phase: BgpPhase) -> io::Result<()> {
        if phase == BgpPhase::Shutdown {
            let all: Vec<IpAddr> = self.held.keys().copied().collect();
            let lifetime = self.lifetime(all.len());
            self.add(&all, &[self.shutdown], lifetime);
        }
        self.phase = phase;
        self.assert_phase()
    }

    fn assert_phase(&mut self) -> io::Result<()> {
        let (announced, shutdown) = (self.phase == BgpPhase::Announced, self.phase == BgpPhase::Shutdown);
        // What goes down does so first: FRR 8.4 would take the wrong one of two routes away.
        let mut states = [(self.announced, announced), (self.shutdown, shutdown)];
        states.sort_by_key(|(_, up)| *up);
        let requests = states.map(|(link, up)| operational(link, up));
        match self.requests.change_all(requests.into(), 0)?.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Renews the addresses that end first, and puts right what others have changed. To be called every second.
    ///
    /// # Errors
    /// If an interface is gone.
    pub(crate) fn refresh(&mut self, now: Instant) -> io::Result<()> {
        self.assert_phase()?;
        let mut by_end: Vec<(Instant, IpAddr)> = self.held.iter().map(|(ip, end)| (*end, *ip)).collect();
        by_end.sort_unstable();
        // After a pause many may have ended.
        let ended = by_end.partition_point(|(end, _)| *end < now + Duration::from_secs(2));
        by_end.truncate(ended.max(PER_SECOND));
        let due: Vec<IpAddr> = by_end.into_iter().map(|(_, ip)| ip).collect();
        for error in self.renew(&due, self.held.len()) {
            warn!(%error, "an announced address cannot be renewed");
        }
        Ok(())
    }

    /// The settings that keep announcements from working, for people.
    pub(crate) fn warnings(&self) -> Vec<String> {
        subnet_warnings(&self.links.subnets(), &self.held)
    }

    /// Puts addresses on the interface, or renews them; returns those that the kernel does not take.
    fn renew(&mut self, addresses: &[IpAddr], all: usize) -> Vec<AnnounceError> {
        let lifetime = self.lifetime(all);
        let end = Instant::now() + lifetime;
        let failed = self.add(addresses, &self.links_in_use(), lifetime);
        let interface = self.links.name(self.announced);
        let failures = failed.into_iter().map(|(ip, source)| {
            self.held.remove(&ip);
            (ip, AnnounceError::Refused { ip, interface: Arc::clone(&interface), source })
        });
        let failures: BTreeMap<IpAddr, AnnounceError> = failures.collect();
        self.held.extend(addresses.iter().filter(|ip| !failures.contains_key(ip)).map(|ip| (*ip, end)));
        failures.into_values().collect()
    }

    fn add(&mut self, addresses: &[IpAddr], links: &[u32], lifetime: Duration) -> Vec<(IpAddr, io::Error)> {
        let begun = Instant::now();
        let add = |ip, link| RouteNetlinkMessage::NewAddress(address_message(ip, link, lifetime));
        let failed = self.change(addresses, links, NLM_F_CREATE | NLM_F_REPLACE, add);
        self.pace.note(addresses.len() * links.len(), begun.elapsed(), Instant::now());
        failed
    }

    /// How long the kernel keeps an address that is not renewed, of so many. Where changes take long, a round of renewals does, too. The interfaces end
    /// with the process, so that a longer time is one for a process that hangs.
    fn lifetime(&mut self, addresses: usize) -> Duration {
        let changes = addresses * self.links_in_use().len();
        least_lifetime(addresses).max(self.pace.rounds(changes, Instant::now()))
    }

    /// The links that have the addresses in this phase.
    fn links_in_use(&self) -> Vec<u32> {
        match self.phase {
            BgpPhase::Announced => vec![self.announced],
            BgpPhase::Shutdown | BgpPhase::Withdrawn => vec![self.announced, self.shutdown],
        }
    }

    fn remove(&mut self, addresses: &[IpAddr], links: &[u32]) {
        let remove = |ip, link| RouteNetlinkMessage::DelAddress(identity(ip, link));
        for (ip, error) in self.change(addresses, links, 0, remove) {
            // It was on one of the links, or has ended.
            debug!(%ip, %error, "an address was not removed");
        }
    }

    fn change(
        &mut self,
        addresses: &[IpAddr],
        links: &[u32],
        flags: u16,
        request: impl Fn(IpAddr, u32) -> RouteNetlinkMessage,
    ) -> Vec<(IpAddr, io::Error)> {
        let all: Vec<(IpAddr, u32)> =
            addresses.iter().flat_map(|ip| links.iter().map(|link| (*ip, *link))).collect();
        let mut failed = Vec::new();
        for batch in all.chunks(BATCH) {
            let requests = batch.iter().map(|&(ip, link)| request(ip, link)).collect();
            match self.requests.change_all(requests, flags) {
                Ok(errors) => failed.extend(errors.into_iter().map(|(place, error)| (batch[place].0, error))),
                Err(error) => warn!(%error, "addresses cannot be changed"),
            }
        }
        failed
    }
}

/// How long the kernel keeps an address that is not renewed, where it changes them at once.
fn least_lifetime(addresses: usize) -> Duration {
    let interval = addresses.div_ceil(PER_SECOND).max(1) as u64;
    Duration::from_secs(interval * RENEWALS)
}

/// The address on a link, valid for this time from now.
///
/// Deprecated, and for IPv4 with the scope `link`, it is the source of nothing that the machine sends by itself (RFC 6724, rule 3;
/// `inet_select_addr` in net/ipv4/devinet.c). It has no `noprefixroute`: FRR makes no connected route for such an address from version
/// 10 on. The prefix route of an IPv6 address, the same /128, is never used, since the local one comes first.
fn address_message(ip: IpAddr, link: u32, valid: Duration) -> AddressMessage {
    let mut message = identity(ip, link);
    if ip.is_ipv4() {
        message.header.scope = AddressScope::Link;
    }
    // No neighbour on the link can have an IPv6 address of it.
    lend(&mut message, if ip.is_ipv4() { AddressFlags::empty() } else { AddressFlags::Nodad }, valid);
    message
}

/// Sets a link up, with these attributes.
fn up(link: u32, attributes: Vec<LinkAttribute>) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = link;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes = attributes;
    RouteNetlinkMessage::SetLink(message)
}

/// Whether a link is operational (RFC 2863). The daemon has the connected routes of one that is, and the kernel keeps the addresses of one
/// that is not: other than by `ip link set down`, they stay local.
fn operational(link: u32, operational: bool) -> RouteNetlinkMessage {
    let state = if operational { State::Up } else { State::Dormant };
    up(link, vec![LinkAttribute::OperState(state)])
}

/// A link that gets no link-local address.
fn no_own_addresses(link: u32) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = link;
    let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])])];
    RouteNetlinkMessage::SetLink(message)
}

/// The values of `arp_ignore` with which the kernel answers for an interface's own addresses alone, or for none.
const OWN_ALONE: [u8; 3] = [1, 2, 8];

/// A warning for each subnet with such addresses. By default the kernel answers ARP requests for all addresses of the machine on all
/// interfaces (`arp_ignore`, Documentation/networking/ip-sysctl.rst), so every gateway does. For IPv6 it answers for those of the interface alone.
fn subnet_warnings(subnets: &[Subnet], held: &BTreeMap<IpAddr, Instant>) -> Vec<String> {
    let mut within: BTreeMap<String, (IpAddr, &Subnet)> = BTreeMap::new();
    for ip in held.keys().filter(|ip| ip.is_ipv4()) {
        for subnet in containing(subnets, *ip, &[]) {
            within.entry(subnet.to_string()).or_insert((*ip, subnet));
        }
    }
    let interfaces: BTreeSet<&str> = within.values().map(|(_, subnet)| &*subnet.interface).collect();
    let answers = |interface: &&str| {
        !in_force("arp_ignore", interface).is_some_and(|(_, value)| OWN_ALONE.contains(&value))
    };
    let answering: BTreeSet<&str> = interfaces.into_iter().filter(answers).collect();
    let told = within.iter().filter(|(_, (_, subnet))| answering.contains(&*subnet.interface));
    told.map(|(text, (ip, subnet))| {
        let interface = subnet.interface.replace('.', "/");
        format!(
            "{ip} is announced by BGP and lies in the subnet {text}, where every gateway answers ARP requests for it: set \
             net.ipv4.conf.{interface}.arp_ignore to 1, or use addresses outside the gateways' subnets"
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_addresses_are_renewed_less_often_and_live_longer() {
        let seconds = |addresses| least_lifetime(addresses).as_secs();
        assert_eq!([0, 1, 100, 101, 1000].map(seconds), [3, 3, 3, 6, 30]);
    }
}
