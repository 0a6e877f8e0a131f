//! Links of the machine and their addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use sheave_announce::{MacAddress, Network};

use crate::netlink::route_dump;
use crate::unseen::{Right, Unseen};

/// A link of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The longest packet that it carries.
    pub mtu: u32,
    /// Whether an administrator or a program has set it up.
    pub is_up: bool,
    /// Whether its other end is there.
    pub has_carrier: bool,
    /// Whether machines are on it that answer for their addresses.
    pub has_neighbours: bool,
    /// Its MAC address, if it is a kind of Ethernet.
    pub mac: Option<MacAddress>,
    /// The link that it is a part of: a bridge, a bond or a VRF.
    pub controller: Option<u32>,
    /// The link that carries its packets, as that of a VLAN.
    pub lower: Option<u32>,
    /// Its addresses.
    pub addresses: Vec<LinkAddress>,
}

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The address.
    pub ip: IpAddr,
    /// The subnet that it gives the link; that of its peer on a point-to-point link.
    pub network: Network,
}

impl Link {
    /// Length of the longest prefix of a subnet of the link that contains an address. An address alone is no subnet.
    pub fn subnet_of(&self, ip: IpAddr) -> Option<u8> {
        let networks = self.addresses.iter().map(|address| address.network);
        let full = if ip.is_ipv4() { 32 } else { 128 };
        networks.filter(|network| network.contains(ip) && network.prefix() < full).map(Network::prefix).max()
    }
}

/// The links of the machine, by number.
///
/// # Errors
/// If the kernel does not answer.
pub fn links() -> Result<Vec<Link>, Unseen> {
    let dump = |message| {
        route_dump(&message)
            .map_err(|error| Unseen::from_io("the links", &error, Right::Nothing, "NETLINK_ROUTE"))
    };
    let mut links = BTreeMap::new();
    for message in dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))? {
        if let RouteNetlinkMessage::NewLink(message) = message {
            links.insert(message.header.index, read_link(&message));
        }
    }
    for message in dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))? {
        if let RouteNetlinkMessage::NewAddress(message) = message
            && let Some(link) = links.get_mut(&message.header.index)
        {
            link.addresses.extend(read_address(&message));
        }
    }
    Ok(links.into_values().collect())
}

/// The links with a subnet that contains an address. Of several subnets those with the longest prefix count.
pub fn with_subnet_of(links: &[Link], ip: IpAddr) -> Vec<&Link> {
    let longest = links.iter().filter_map(|link| link.subnet_of(ip)).max();
    links.iter().filter(|link| longest.is_some() && link.subnet_of(ip) == longest).collect()
}

/// The links by which the packets of one arrive at it: the parts of a bridge or a bond, the link of a VLAN, and those below them.
pub fn carriers(links: &[Link], of: u32) -> Vec<&Link> {
    let mut found: Vec<&Link> = Vec::new();
    let mut above = vec![of];
    while let Some(index) = above.pop() {
        let lower = links.iter().find(|link| link.index == index).and_then(|link| link.lower);
        for link in links.iter().filter(|it| it.controller == Some(index) || lower == Some(it.index)) {
            if link.index != of && !found.iter().any(|it| it.index == link.index) {
                found.push(link);
                above.push(link.index);
            }
        }
    }
    found
}

fn read_link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mtu: 0,
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        has_neighbours: !flags.intersects(LinkFlags::Loopback | LinkFlags::Noarp),
        mac: None,
        controller: None,
        lower: None,
        addresses: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            LinkAttribute::Link(index) => link.lower = Some(*index),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().ok().map(MacAddress),
            _ => {}
        }
    }
    // The other end of a veth, in another network namespace.
    if message.attributes.iter().any(|it| matches!(it, LinkAttribute::LinkNetNsId(_))) {
        link.lower = None;
    }
    link
}

/// IFA_ADDRESS is the peer on a point-to-point link, and IFA_LOCAL the address itself (linux/if_addr.h).
fn read_address(message: &AddressMessage) -> Option<LinkAddress> {
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            _ => {}
        }
    }
    let ip = local.or(peer)?;
    Some(LinkAddress { ip, network: Network::of(peer.unwrap_or(ip), message.header.prefix_len) })
}
