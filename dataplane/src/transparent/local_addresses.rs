//! Which addresses are this machine's own, as its routing says. It must not know why that is asked.
//!
//! Routing alone knows for sure: bind(2) takes any address where `net.ipv4.ip_nonlocal_bind` is set, and a socket that is
//! connected to one of several addresses of an interface gets the first of them for its own.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::ask;
use crate::sys::sockets::open_netlink;

/// Whether what is sent to `ip` is for this machine, be it alone (local) or among others (broadcast, multicast). Sends no
/// packet. False if the kernel knows no way, or does not say.
pub(crate) fn is_local(ip: IpAddr) -> bool {
    use RouteType::{Anycast, Broadcast, Local, Multicast};
    kind_of_route(ip).is_ok_and(|kind| matches!(kind, Some(Local | Broadcast | Anycast | Multicast)))
}

/// As `ip route get` (`inet_rtm_getroute` in net/ipv4/route.c and its like for IPv6).
fn kind_of_route(ip: IpAddr) -> io::Result<Option<RouteType>> {
    let mut question = RouteMessage::default();
    let (family, length) = if ip.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) };
    (question.header.address_family, question.header.destination_prefix_length) = (family, length);
    question.attributes = vec![RouteAttribute::Destination(ip.into())];
    let answers = ask(&open_netlink(libc::NETLINK_ROUTE)?, RouteNetlinkMessage::GetRoute(question))?;
    Ok(answers.into_iter().find_map(|answer| match answer {
        RouteNetlinkMessage::NewRoute(route) => Some(route.header.kind),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_an_interface_is_here_and_others_are_not() {
        // Sockets towards the second have 127.0.0.1 for their own.
        for own in ["127.0.0.1", "127.0.0.3", "::1"] {
            assert!(is_local(own.parse().unwrap()), "{own}");
        }
        for foreign in ["198.51.100.9", "2001:db8::9"] {
            assert!(!is_local(foreign.parse().unwrap()), "{foreign}");
        }
    }

    #[test]
    fn what_is_for_everyone_is_for_this_machine_too() {
        assert!(is_local("127.255.255.255".parse().unwrap()));
        assert!(is_local("255.255.255.255".parse().unwrap()));
    }
}
