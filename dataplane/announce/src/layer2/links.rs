//! The links and addresses of the machine, as the kernel reports them, and the subnets in which an address can be announced.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{
    InfoPortKind, LinkAttribute, LinkEvent, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::frame::MacAddress;
use super::kernel_address::{KernelAddress, full_prefix};
use super::netlink::Requests;
use crate::network::Network;

/// A subnet of an interface that can announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub(crate) link: u32,
    pub(crate) interface: Arc<str>,
    pub(crate) mac: MacAddress,
    pub(crate) network: Network,
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.network, self.interface)
    }
}

/// Consequence of a notification for announced addresses.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Change {
    /// An address of ours is no longer on this link.
    Removed { ip: IpAddr, link: u32 },
    /// An address of ours was put on this link, or renewed there.
    Ours { ip: IpAddr, link: u32 },
    /// An IPv4 address of somebody else is new on this link, after those of ours.
    Added { link: u32 },
    /// The neighbours are to be told again what is on this link: a bond sends by another port, or a virtual machine is on another host.
    Moved { link: u32 },
    /// Anything else.
    Other,
}

struct Link {
    name: Arc<str>,
    mac: Option<MacAddress>,
    usable: bool,
}

/// The links and addresses.
pub(crate) struct Links {
    lifetime: Duration,
    links: BTreeMap<u32, Link>,
    addresses: BTreeMap<(IpAddr, u32, u8), KernelAddress>,
}

impl Links {
    /// None. `lifetime` is the longest of an address of ours.
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { lifetime, links: BTreeMap::new(), addresses: BTreeMap::new() }
    }

    /// Reads the links and addresses of the machine.
    ///
    /// # Errors
    /// Errors of [`Requests::dump`].
    pub(crate) fn read(requests: &mut Requests, lifetime: Duration) -> io::Result<Self> {
        let links = requests.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let addresses = requests.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        let mut read = Self::new(lifetime);
        for message in links.into_iter().chain(addresses) {
            // No address is announced yet, except by a process before this one.
            let _change = read.apply(message);
        }
        Ok(read)
    }

    /// Takes over what a dump or a notification says.
    pub(crate) fn apply(&mut self, message: RouteNetlinkMessage) -> Change {
        match message {
            // A bridge reports its ports as links of its own family.
            RouteNetlinkMessage::NewLink(link) if link.header.interface_family == AddressFamily::Unspec => {
                self.links.insert(link.header.index, read_link(&link));
                let event = LinkAttribute::Event(LinkEvent::NotifyPeers);
                if link.attributes.contains(&event) {
                    Change::Moved { link: link.header.index }
                } else {
                    Change::Other
                }
            }
            RouteNetlinkMessage::DelLink(link) if link.header.interface_family == AddressFamily::Unspec => {
                self.links.remove(&link.header.index);
                self.addresses.retain(|_, address| address.link != link.header.index);
                Change::Other
            }
            RouteNetlinkMessage::NewAddress(message) => {
                let Some(address) = KernelAddress::read(&message, self.lifetime) else {
                    return Change::Other;
                };
                let KernelAddress { ip, link, prefix, .. } = address;
                let new = self.addresses.insert((ip, link, prefix), address).is_none();
                match ip {
                    _ if address.ours => Change::Ours { ip, link },
                    IpAddr::V4(_) if new => Change::Added { link },
                    _ => Change::Other,
                }
            }
            RouteNetlinkMessage::DelAddress(message) => {
                let Some(address) = KernelAddress::read(&message, self.lifetime) else {
                    return Change::Other;
                };
                let KernelAddress { ip, link, prefix, .. } = address;
                self.addresses.remove(&(ip, link, prefix));
                if prefix == full_prefix(ip) { Change::Removed { ip, link } } else { Change::Other }
            }
            _ => Change::Other,
        }
    }

    /// The name of a link, or its number if it is gone.
    pub(crate) fn name(&self, link: u32) -> Arc<str> {
        let known = self.links.get(&link).map(|link| Arc::clone(&link.name));
        known.unwrap_or_else(|| format!("number {link}").into())
    }

    /// Whether the machine itself has this MAC address.
    pub(crate) fn has_mac(&self, mac: MacAddress) -> bool {
        self.links.values().any(|link| link.mac == Some(mac))
    }

    /// Names that no link has.
    pub(crate) fn unknown(&self, names: &[Arc<str>]) -> Vec<Arc<str>> {
        let known: BTreeSet<&Arc<str>> = self.links.values().map(|link| &link.name).collect();
        names.iter().filter(|name| !known.contains(name)).cloned().collect()
    }

    /// The addresses of ours.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &KernelAddress> {
        self.addresses.values().filter(|address| address.ours)
    }

    /// Whether the address is on this link, and ours.
    pub(crate) fn ours_on(&self, ip: IpAddr, link: u32) -> bool {
        self.addresses.get(&(ip, link, full_prefix(ip))).is_some_and(|address| address.ours)
    }

    /// Whether the address is on this link, and somebody else's.
    pub(super) fn foreign_on(&self, ip: IpAddr, link: u32) -> bool {
        self.addresses.get(&(ip, link, full_prefix(ip))).is_some_and(|address| !address.ours)
    }

    /// The link on which the address is somebody else's.
    pub(crate) fn holder(&self, ip: IpAddr) -> Option<u32> {
        let mut range = self.addresses.range((ip, 0, 0)..=(ip, u32::MAX, u8::MAX));
        range.find(|(_, address)| !address.ours).map(|(_, address)| address.link)
    }

    /// A link other than these that has the address, whoever put it there.
    pub(crate) fn elsewhere(&self, ip: IpAddr, links: &[u32]) -> Option<u32> {
        let mut range = self.addresses.range((ip, 0, 0)..=(ip, u32::MAX, u8::MAX));
        range.find(|(_, address)| !links.contains(&address.link)).map(|(_, address)| address.link)
    }

    /// The link of this name.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.links.iter().find(|(_, link)| *link.name == *name).map(|(number, _)| *number)
    }

    /// The link on which the machine itself has the address `source`, if `target` is in its subnet there, and the MAC address of that.
    pub(super) fn neighbour(&self, source: IpAddr, target: IpAddr) -> Option<(u32, MacAddress)> {
        let mut range = self.addresses.range((source, 0, 0)..=(source, u32::MAX, u8::MAX));
        let has_subnet = |address: &KernelAddress| {
            address.prefix < full_prefix(source)
                && Network::of(address.network, address.prefix).contains(target)
        };
        let (_, address) = range.find(|(_, address)| has_subnet(address))?;
        Some((address.link, self.links.get(&address.link)?.mac?))
    }

    /// The addresses of a link.
    pub(crate) fn addresses_on(&self, link: u32) -> impl Iterator<Item = IpAddr> {
        self.addresses.values().filter(move |address| address.link == link).map(|address| address.ip)
    }

    /// The subnets of the interfaces that can announce, by link.
    pub(crate) fn subnets(&self) -> Vec<Subnet> {
        let subnet = |address: &KernelAddress| {
            if address.ours || address.prefix == full_prefix(address.ip) {
                return None;
            }
            let link = self.links.get(&address.link).filter(|link| link.usable)?;
            Some(Subnet {
                link: address.link,
                interface: Arc::clone(&link.name),
                mac: link.mac?,
                network: Network::of(address.network, address.prefix),
            })
        };
        self.addresses.values().filter_map(subnet).collect()
    }
}

/// The subnets in which the address is announced: those with the longest prefix among the ones that contain it. Several interfaces have
/// the same where they are in the same network or in networks that are told apart by nothing else; either may be the only way to a
/// client, so it is announced on each, with the MAC address of each.
pub(crate) fn containing<'a>(subnets: &'a [Subnet], ip: IpAddr, interfaces: &[Arc<str>]) -> Vec<&'a Subnet> {
    let admitted = |subnet: &&Subnet| {
        subnet.network.contains(ip) && (interfaces.is_empty() || interfaces.contains(&subnet.interface))
    };
    let longest = subnets.iter().filter(admitted).map(|subnet| subnet.network.prefix()).max();
    let mut found: Vec<&Subnet> =
        subnets.iter().filter(admitted).filter(|subnet| Some(subnet.network.prefix()) == longest).collect();
    found.sort_by_key(|subnet| subnet.link);
    found.dedup_by_key(|subnet| subnet.link);
    found
}

fn read_link(message: &LinkMessage) -> Link {
    let (mut name, mut mac, mut port) = (Arc::from(""), None, false);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(value) => name = Arc::from(value.as_str()),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok().map(MacAddress),
            LinkAttribute::LinkInfo(infos) => port = infos.iter().any(is_port),
            _ => {}
        }
    }
    let flags = message.header.flags;
    let usable = flags.contains(LinkFlags::Up | LinkFlags::Running)
        && !flags.intersects(LinkFlags::Loopback | LinkFlags::Noarp)
        && message.header.link_layer_type == LinkLayerType::Ether
        && !port;
    Link { name, mac, usable }
}

/// Whether frames that arrive at the link go to a bridge, bond or team instead. A VRF takes packets, and leaves ARP where it is.
fn is_port(info: &LinkInfo) -> bool {
    matches!(info, LinkInfo::PortKind(kind) if *kind != InfoPortKind::Vrf)
}

#[cfg(test)]
mod tests {
    use super::super::kernel_address::identity;
    use super::*;

    fn subnet(link: u32, interface: &str, network: &str, prefix: u8) -> Subnet {
        let mac = MacAddress([2, 0, 0, 0, 0, link as u8]);
        Subnet {
            link,
            interface: interface.into(),
            mac,
            network: Network::of(network.parse().unwrap(), prefix),
        }
    }

    fn chosen(subnets: &[Subnet], ip: &str, interfaces: &[&str]) -> Vec<u32> {
        let interfaces: Vec<Arc<str>> = interfaces.iter().map(|&name| name.into()).collect();
        containing(subnets, ip.parse().unwrap(), &interfaces).iter().map(|subnet| subnet.link).collect()
    }

    #[test]
    fn the_longest_prefix_is_chosen_and_all_that_have_it() {
        let subnets = [
            subnet(1, "eth0", "10.0.0.1", 8),
            subnet(2, "eth1", "10.1.0.1", 16),
            subnet(3, "eth2", "10.1.0.2", 16),
            subnet(3, "eth2", "10.1.0.3", 16),
            subnet(4, "eth3", "2001:db8::1", 64),
        ];
        assert_eq!(chosen(&subnets, "10.1.2.3", &[]), [2, 3]);
        assert_eq!(chosen(&subnets, "10.2.2.3", &[]), [1]);
        assert_eq!(chosen(&subnets, "10.1.2.3", &["eth0", "eth3"]), [1]);
        assert_eq!(chosen(&subnets, "2001:db8::ffff", &[]), [4]);
        assert_eq!(chosen(&subnets, "2001:db8:0:1::", &[]), [] as [u32; 0]);
        assert_eq!(chosen(&subnets, "11.0.0.1", &[]), [] as [u32; 0]);
    }

    #[test]
    fn a_prefix_of_zero_contains_everything_of_its_family() {
        let subnets = [subnet(1, "eth0", "10.0.0.1", 0)];
        assert_eq!(chosen(&subnets, "203.0.113.1", &[]), [1]);
        assert_eq!(chosen(&subnets, "2001:db8::1", &[]), [] as [u32; 0]);
    }

    fn link(flags: LinkFlags, kind: Option<InfoPortKind>) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = 1;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.header.flags = flags;
        message.attributes =
            vec![LinkAttribute::IfName("eth0".into()), LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1])];
        if let Some(kind) = kind {
            message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::PortKind(kind)]));
        }
        message
    }

    fn can_announce(message: LinkMessage) -> bool {
        let mut links = Links::new(Duration::from_secs(3));
        assert_eq!(links.apply(RouteNetlinkMessage::NewLink(message)), Change::Other);
        let mut address = identity("192.0.2.1".parse().unwrap(), 1);
        address.header.prefix_len = 24;
        assert_eq!(links.apply(RouteNetlinkMessage::NewAddress(address)), Change::Added { link: 1 });
        !links.subnets().is_empty()
    }

    #[test]
    fn a_port_of_a_bond_or_bridge_cannot_announce_and_one_of_a_vrf_can() {
        let up = LinkFlags::Up | LinkFlags::Running;
        assert!(can_announce(link(up, None)));
        assert!(can_announce(link(up, Some(InfoPortKind::Vrf))));
        for kind in [InfoPortKind::Bond, InfoPortKind::Bridge, InfoPortKind::Team] {
            assert!(!can_announce(link(up, Some(kind))));
        }
        assert!(!can_announce(link(up, Some(InfoPortKind::Other("openvswitch".into())))));
    }

    #[test]
    fn a_link_without_carrier_or_neighbours_cannot_announce() {
        let up = LinkFlags::Up | LinkFlags::Running;
        assert!(!can_announce(link(LinkFlags::Up, None)));
        assert!(!can_announce(link(up | LinkFlags::Loopback, None)));
        assert!(!can_announce(link(up | LinkFlags::Noarp, None)));
        let mut other = link(up, None);
        other.header.link_layer_type = LinkLayerType::Infiniband;
        assert!(!can_announce(other));
    }

    #[test]
    fn a_bond_that_sends_by_another_port_is_to_be_announced_from_again() {
        let mut links = Links::new(Duration::from_secs(3));
        let mut message = link(LinkFlags::Up | LinkFlags::Running, None);
        message.attributes.push(LinkAttribute::Event(LinkEvent::NotifyPeers));
        assert_eq!(links.apply(RouteNetlinkMessage::NewLink(message)), Change::Moved { link: 1 });
    }

    #[test]
    fn a_port_that_leaves_its_bridge_is_still_there() {
        let mut links = Links::new(Duration::from_secs(3));
        let message = link(LinkFlags::Up | LinkFlags::Running, None);
        assert_eq!(links.apply(RouteNetlinkMessage::NewLink(message.clone())), Change::Other);
        let mut left = message;
        left.header.interface_family = AddressFamily::Bridge;
        assert_eq!(links.apply(RouteNetlinkMessage::DelLink(left)), Change::Other);
        assert_eq!((&*links.name(1), &*links.name(2)), ("eth0", "number 2"));
    }
}
