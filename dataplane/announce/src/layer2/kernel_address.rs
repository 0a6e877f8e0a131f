//! An announced address as the kernel has it: how it is put on an interface, renewed, taken off, and told from others.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope, CacheInfo,
};

/// Marks addresses as ours (IFA_PROTO, Linux 5.18). Of the numbers the kernel itself uses 1 to 3 (linux/if_addr.h).
const PROTOCOL: u8 = 83;
/// IFNAMSIZ without the final zero.
const LONGEST_LABEL: usize = 15;

/// The address on a link, valid for this time from now.
///
/// Its scope is that of any other (`universe`). The kernel lists addresses by descending scope, so with the scope `link` or `host`
/// it would come before the host's own (`__inet_insert_ifa` in net/ipv4/devinet.c), and what takes the first address of the list for that of
/// the host, as kubelet does, would take this one. It is deprecated from birth: for IPv6 that keeps it from being chosen as a
/// source (RFC 6724, rule 3). For IPv4 its place after the host's own does that: `inet_select_addr` takes the first
/// whose subnet has the next hop, or the first, and a /32 has none but itself.
pub(crate) fn message(ip: IpAddr, link: u32, interface: &str, valid: Duration) -> AddressMessage {
    let mut message = identity(ip, link);
    if ip.is_ipv4() {
        message.attributes.push(AddressAttribute::Label(label(interface)));
    }
    let mut flags = AddressFlags::Noprefixroute;
    if ip.is_ipv6() {
        // The kernel's own check takes a second, in which the address does not work; `Announcement` probes before.
        flags |= AddressFlags::Nodad;
    }
    lend(&mut message, flags, valid);
    message
}

/// Marks an address as ours, deprecated from birth, and valid for this time from now.
pub(crate) fn lend(message: &mut AddressMessage, flags: AddressFlags, valid: Duration) {
    let mut lifetime = CacheInfo::default();
    // Whole seconds: the kernel counts no others.
    lifetime.ifa_valid = u32::try_from(valid.as_secs()).unwrap_or(u32::MAX);
    lifetime.ifa_preferred = 0;
    message.attributes.extend([
        AddressAttribute::Flags(flags),
        AddressAttribute::CacheInfo(lifetime),
        AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL)),
    ]);
}

/// Message that takes off this address and no other: an interface has an address with a prefix once. Without the label,
/// which changes with the name of the interface (`inetdev_changename` in net/ipv4/devinet.c).
pub(crate) fn identity(ip: IpAddr, link: u32) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.prefix_len = full_prefix(ip);
    message.header.scope = AddressScope::Universe;
    message.header.index = link;
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    message
}

/// The prefix of an address without a subnet.
pub(crate) fn full_prefix(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Label of an IPv4 address, which `ip addr` and `ifconfig` show.
fn label(interface: &str) -> String {
    let mut label = format!("{interface}:sheave");
    label.truncate(LONGEST_LABEL);
    label
}

/// An address that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelAddress {
    pub(crate) link: u32,
    pub(crate) ip: IpAddr,
    /// The subnet that it is part of.
    pub(crate) network: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) ours: bool,
    /// When the kernel removes it, as of now.
    pub(crate) ends: Instant,
}

impl KernelAddress {
    /// Reads what the kernel says of an address. `lifetime` is the longest that ours has.
    pub(crate) fn read(message: &AddressMessage, lifetime: Duration) -> Option<Self> {
        let (mut local, mut peer, mut protocol) = (None, None, None);
        let (mut flags, mut valid) = (AddressFlags::empty(), u32::MAX);
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => peer = Some(*ip),
                AddressAttribute::Protocol(number) => protocol = Some(u8::from(*number)),
                AddressAttribute::Flags(value) => flags = *value,
                AddressAttribute::CacheInfo(value) => valid = value.ifa_valid,
                _ => {}
            }
        }
        // IPv6 has IFA_LOCAL only where there is a peer.
        let ip = local.or(peer)?;
        let prefix = message.header.prefix_len;
        // Kernels before 5.18 keep no protocol. Nobody else's address is without a subnet, deprecated, and gone in seconds.
        let valid = Duration::from_secs(valid.into());
        let fleeting =
            flags.contains(AddressFlags::Deprecated | AddressFlags::Noprefixroute) && valid <= lifetime;
        let ours = match protocol {
            Some(number) => number == PROTOCOL,
            None => prefix == full_prefix(ip) && fleeting,
        };
        let (link, network, ends) = (message.header.index, peer.unwrap_or(ip), Instant::now() + valid);
        Some(Self { link, ip, network, prefix, ours, ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(3);

    fn both() -> [IpAddr; 2] {
        ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()]
    }

    #[test]
    fn an_address_of_ours_is_known_by_its_protocol() {
        for ip in both() {
            let read = KernelAddress::read(&message(ip, 4, "eth0", LIFETIME), LIFETIME).unwrap();
            let (prefix, ends) = (full_prefix(ip), read.ends);
            assert_eq!(read, KernelAddress { link: 4, ip, network: ip, prefix, ours: true, ends });
            assert!(ends <= Instant::now() + LIFETIME);
        }
    }

    #[test]
    fn on_an_older_kernel_it_is_known_by_its_short_life() {
        for ip in both() {
            let mut message = message(ip, 4, "eth0", LIFETIME);
            message.attributes.retain(|attribute| !matches!(attribute, AddressAttribute::Protocol(_)));
            // The kernel adds this to what has no preferred time left.
            for attribute in &mut message.attributes {
                if let AddressAttribute::Flags(flags) = attribute {
                    *flags |= AddressFlags::Deprecated;
                }
            }
            assert!(KernelAddress::read(&message, LIFETIME).unwrap().ours);
            assert!(!KernelAddress::read(&message, Duration::from_secs(2)).unwrap().ours);
        }
    }

    #[test]
    fn an_address_of_somebody_else_is_not_ours() {
        for ip in both() {
            let mut message = identity(ip, 4);
            assert!(!KernelAddress::read(&message, LIFETIME).unwrap().ours);
            message.attributes.push(AddressAttribute::Protocol(AddressProtocol::RouterAnnouncement));
            assert!(!KernelAddress::read(&message, LIFETIME).unwrap().ours);
        }
    }

    #[test]
    fn a_label_fits_and_begins_with_the_interface() {
        assert_eq!(label("eth0"), "eth0:sheave");
        assert_eq!(label("enp129s0f0np0"), "enp129s0f0np0:s");
    }
}
