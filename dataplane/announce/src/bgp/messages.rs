//! What is asked of the kernel: addresses for a routing daemon, and the interfaces that they are on.

use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope, CacheInfo,
};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage, LinkMode, State,
};

use crate::layer2::kernel_address::{PROTOCOL, identity};

/// The address on a link, valid for this time from now.
///
/// Deprecated, and for IPv4 with the scope `link`, it is the source of nothing that the machine sends by itself (RFC 6724, rule 3;
/// `inet_select_addr` in net/ipv4/devinet.c). It has no `noprefixroute`: FRR makes no connected route for such an address from version
/// 10 on. The prefix route of an IPv6 address, the same /128, is never used, since the local one comes first.
pub(super) fn address(ip: IpAddr, link: u32, valid: Duration) -> AddressMessage {
    let mut message = identity(ip, link);
    if ip.is_ipv4() {
        message.header.scope = AddressScope::Link;
    } else {
        // Nobody on the link can have it.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    let mut lifetime = CacheInfo::default();
    lifetime.ifa_valid = u32::try_from(valid.as_secs()).unwrap_or(u32::MAX);
    lifetime.ifa_preferred = 0;
    message.attributes.extend([
        AddressAttribute::CacheInfo(lifetime),
        AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL)),
    ]);
    message
}

/// Sets a link up, for good.
pub(super) fn up(link: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::SetLink(up_message(link))
}

/// Sets a link up which nothing but a request makes operational.
pub(super) fn dormant_from_birth(link: u32) -> RouteNetlinkMessage {
    let mut message = up_message(link);
    message.attributes =
        vec![LinkAttribute::Mode(LinkMode::Dormant), LinkAttribute::OperState(State::Dormant)];
    RouteNetlinkMessage::SetLink(message)
}

/// Whether a link is operational (RFC 2863). The daemon has the connected routes of one that is, and the kernel keeps the addresses of one
/// that is not: other than by `ip link set down`, they stay local.
pub(super) fn operational(link: u32, operational: bool) -> RouteNetlinkMessage {
    let mut message = up_message(link);
    let state = if operational { State::Up } else { State::Dormant };
    message.attributes = vec![LinkAttribute::OperState(state)];
    RouteNetlinkMessage::SetLink(message)
}

/// A link that gets no link-local address.
pub(super) fn no_own_addresses(link: u32) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = link;
    let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])])];
    RouteNetlinkMessage::SetLink(message)
}

fn up_message(link: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = link;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message
}
