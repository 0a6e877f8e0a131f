//! Which addresses are this machine's own, by its routing.
//!
//! Nothing else is certain: bind(2) accepts any address where `net.ipv4.ip_nonlocal_bind` is set, and a socket that is
//! connected to one of several addresses of an interface gets the first of them as its own.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::get;
use crate::sys::sockets::open_netlink;

/// Whether packets to `ip` are for this machine, alone (local) or among others (broadcast, multicast). Sends no packet. False
/// if the kernel has no route, or does not answer.
pub(crate) fn is_local(ip: IpAddr) -> bool {
    use RouteType::{Anycast, Broadcast, Local, Multicast};
    route_type(ip).is_ok_and(|kind| matches!(kind, Some(Local | Broadcast | Anycast | Multicast)))
}

/// As `ip route get` (`inet_rtm_getroute` in net/ipv4/route.c and its like for IPv6).
fn route_type(ip: IpAddr) -> io::Result<Option<RouteType>> {
    let mut request = RouteMessage::default();
    let (family, length) = if ip.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) };
    (request.header.address_family, request.header.destination_prefix_length) = (family, length);
    request.attributes = vec![RouteAttribute::Destination(ip.into())];
    let replies = get(&open_netlink(libc::NETLINK_ROUTE)?, RouteNetlinkMessage::GetRoute(request))?;
    Ok(replies.into_iter().find_map(|reply| match reply {
        RouteNetlinkMessage::NewRoute(route) => Some(route.header.kind),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_an_interface_is_local_and_others_are_not() {
        // Sockets towards the second have 127.0.0.1 for their own.
        for own in ["127.0.0.1", "127.0.0.3", "::1"] {
            assert!(is_local(own.parse().unwrap()), "{own}");
        }
        for foreign in ["198.51.100.9", "2001:db8::9"] {
            assert!(!is_local(foreign.parse().unwrap()), "{foreign}");
        }
    }

    #[test]
    fn broadcasts_are_for_this_machine_too() {
        assert!(is_local("127.255.255.255".parse().unwrap()));
        assert!(is_local("255.255.255.255".parse().unwrap()));
    }
}
