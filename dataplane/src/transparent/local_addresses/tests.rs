//! Tests of the local routing table in separate network namespaces, which need root; `tests/run` provides it.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::RouteScope;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::super::routes::LOOPBACK;
use super::super::test_network::{Network, in_own_network};
use super::*;
use crate::sys::sockets::dropped_packets;

const PATIENCE: Duration = Duration::from_secs(20);
/// Table in which programs with TPROXY have local routes, for packets with a mark.
const OTHER: u8 = 100;
const V4: &str = "198.51.100.9";
const V6: &str = "2001:db8::9";

impl Network {
    fn change(&self, change: RouteNetlinkMessage) {
        exchange(&self.routing, vec![message(change, NLM_F_ACK | NLM_F_CREATE)]).unwrap();
    }

    fn add_address(&self, ip: &str) {
        self.change(RouteNetlinkMessage::NewAddress(address(ip)));
    }

    fn remove_address(&self, ip: &str) {
        self.change(RouteNetlinkMessage::DelAddress(address(ip)));
    }
}

/// An address of the loopback interface.
fn address(ip: &str) -> AddressMessage {
    let ip: IpAddr = ip.parse().unwrap();
    let (family, length) = if ip.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) };
    let mut address = AddressMessage::default();
    (address.header.family, address.header.prefix_len, address.header.index) = (family, length, LOOPBACK);
    address.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    address
}

/// The route of `ip route add local PREFIX dev lo table TABLE`.
fn local_route(prefix: &str, table: u8) -> RouteMessage {
    let prefix: IpNet = prefix.parse().unwrap();
    let mut route = RouteMessage::default();
    route.header.address_family =
        if prefix.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    (route.header.destination_prefix_length, route.header.table) = (prefix.prefix_len(), table);
    (route.header.kind, route.header.scope) = (RouteType::Local, RouteScope::Host);
    route.attributes = vec![RouteAttribute::Oif(LOOPBACK)];
    if prefix.prefix_len() > 0 {
        route.attributes.push(RouteAttribute::Destination(prefix.addr().into()));
    }
    route
}

fn is_local(ip: &str) -> bool {
    read().unwrap().contains(ip.parse().unwrap())
}

#[test]
fn addresses_of_interfaces_and_their_broadcasts_are_local_while_they_are_there() {
    in_own_network(|network| {
        for own in ["127.0.0.1", "127.0.0.3", "127.255.255.255", "::1"] {
            assert!(is_local(own), "{own}");
        }
        // IPv6 addresses are added asynchronously (`addrconf_dad_work` in net/ipv6/addrconf.c).
        assert!(!is_local(V4));
        network.add_address(V4);
        assert!(is_local(V4));
        network.remove_address(V4);
        assert!(!is_local(V4));
    });
}

#[test]
fn addresses_that_may_be_bound_are_not_local_for_that() {
    in_own_network(|_| {
        for family in ["ipv4", "ipv6"] {
            fs::write(format!("/proc/sys/net/{family}/ip_nonlocal_bind"), "1").unwrap();
        }
        for ip in [V4, V6] {
            std::net::UdpSocket::bind((ip, 0)).unwrap();
            assert!(!is_local(ip), "{ip}");
        }
    });
}

#[test]
fn whole_networks_are_local_where_the_local_table_has_them() {
    in_own_network(|network| {
        for (prefix, inside) in [("198.51.100.0/24", V4), ("2001:db8::/32", V6)] {
            network.change(RouteNetlinkMessage::NewRoute(local_route(prefix, OTHER)));
            assert!(!is_local(inside), "{inside}");
            let route = local_route(prefix, LOCAL);
            network.change(RouteNetlinkMessage::NewRoute(route.clone()));
            assert!(is_local(inside), "{inside}");
            network.change(RouteNetlinkMessage::DelRoute(route));
            assert!(!is_local(inside), "{inside}");
        }
        network.change(RouteNetlinkMessage::NewRoute(local_route("0.0.0.0/0", LOCAL)));
        assert!(is_local(V4));
    });
}

/// Waits for changes until the address is local, or no longer is.
fn follow(addresses: &mut LocalAddresses, ip: &str, local: bool) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let followed = async {
        loop {
            addresses.changed().await;
            assert!(addresses.is_outdated());
            if addresses.read().unwrap().contains(ip.parse().unwrap()) == local {
                return;
            }
        }
    };
    runtime.block_on(async { timeout(PATIENCE, followed).await }).expect("it is noticed");
    // The registration belongs to this runtime.
    addresses.registered = None;
}

#[test]
fn changes_of_local_addresses_are_noticed_and_no_others() {
    in_own_network(|network| {
        let mut addresses = LocalAddresses::follow().unwrap();
        for ip in [V4, V6] {
            network.add_address(ip);
            follow(&mut addresses, ip, true);
            network.remove_address(ip);
            follow(&mut addresses, ip, false);
        }
        drain(&addresses.changes);
        network.change(RouteNetlinkMessage::NewRoute(local_route("198.51.100.0/24", OTHER)));
        let error = addresses.changes.as_ref().read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    });
}

#[test]
fn changes_are_not_missed_when_the_socket_overflows() {
    in_own_network(|network| {
        let mut addresses = LocalAddresses::follow().unwrap();
        while dropped_packets(&addresses.changes).unwrap() == 0 {
            network.add_address(V4);
            network.remove_address(V4);
        }
        for _ in 0..2 {
            network.add_address(V4);
            follow(&mut addresses, V4, true);
            network.remove_address(V4);
            follow(&mut addresses, V4, false);
        }
    });
}
