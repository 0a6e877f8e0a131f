//! Tests of the return path in separate network namespaces, which need root; `tests/run` provides it.

use std::fs;

use netlink_packet_netfilter::nftables::TableFlags;
use netlink_packet_route::link::LinkFlags;

use super::super::test_network::{FAMILIES, in_own_network};
use super::*;

#[test]
fn what_two_gateways_share_goes_with_the_last() {
    in_own_network(|network| {
        let first = ReturnPath::establish().unwrap();
        let second = ReturnPath::establish().unwrap();
        assert_eq!(network.tables().len(), 2, "{:?}", network.tables());
        network.expect_routing(2, 1);
        drop(first);
        assert_eq!(network.tables().len(), 1);
        network.expect_routing(2, 1);
        drop(second);
        assert_eq!(network.tables(), [""; 0]);
        network.expect_routing(0, 0);
    });
}

#[test]
fn routing_that_a_killed_gateway_left_is_taken_over() {
    in_own_network(|network| {
        routes::add(&network.routing, AddressFamily::Inet).unwrap();
        let path = ReturnPath::establish().unwrap();
        network.expect_routing(2, 1);
        drop(path);
        network.expect_routing(0, 0);
    });
}

#[test]
fn routing_that_others_removed_comes_back() {
    in_own_network(|network| {
        let mut path = ReturnPath::establish().unwrap();
        for family in FAMILIES {
            routes::remove(&network.routing, family).unwrap();
        }
        network.expect_routing(0, 0);
        for _ in 0..2 {
            path.restore().unwrap();
            network.expect_routing(2, 1);
        }
        network.set_loopback(LinkFlags::empty());
        let error = path.restore().unwrap_err();
        assert!(matches!(error, ReturnPathError::Failed { .. }), "{error}");
    });
}

/// The state after `nft flush ruleset` on a kernel before Linux 5.12.
#[test]
fn a_table_that_others_removed_comes_back() {
    in_own_network(|network| {
        let mut path = ReturnPath::establish().unwrap();
        path.marks.remove().unwrap();
        assert_eq!(network.tables(), [""; 0]);
        for _ in 0..2 {
            path.restore().unwrap();
            assert_eq!(network.tables().len(), 1);
        }
        drop(path);
        assert_eq!(network.tables(), [""; 0]);
    });
}

#[test]
fn without_its_table_the_rest_is_removed_all_the_same() {
    in_own_network(|network| {
        let path = ReturnPath::establish().unwrap();
        path.marks.remove().unwrap();
        assert_eq!(network.tables(), [""; 0]);
        drop(path);
        network.expect_routing(0, 0);
    });
}

#[test]
fn the_table_goes_with_its_socket() {
    in_own_network(|network| {
        let marks = MarkingTable::install().unwrap();
        assert_eq!(network.tables().len(), 1);
        // Like a killed process: no request to the kernel is made.
        drop(marks);
        assert_eq!(network.tables(), [""; 0]);
    });
}

#[test]
fn a_table_that_a_killed_gateway_left_on_an_old_kernel_is_replaced() {
    in_own_network(|network| {
        drop(MarkingTable::install_with(TableFlags::empty()).unwrap());
        let left = network.tables();
        assert_eq!(left.len(), 1);
        // The kernel assigns the port again, which has become free.
        let marks = MarkingTable::install_with(TableFlags::empty()).unwrap();
        assert_eq!(network.tables(), left);
        assert!(!marks.remove().unwrap(), "no other gateway");
        assert_eq!(network.tables(), [""; 0]);
    });
}

#[test]
fn ipv4_does_without_ipv6() {
    in_own_network(|network| {
        fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "1").unwrap();
        let _path = ReturnPath::establish().unwrap();
        assert_eq!((network.rules(AddressFamily::Inet), network.routes(AddressFamily::Inet)), (2, 1));
        assert_eq!(network.routes(AddressFamily::Inet6), 0);
    });
}

#[test]
fn what_cannot_be_established_leaves_nothing() {
    in_own_network(|network| {
        network.set_loopback(LinkFlags::empty());
        let error = ReturnPath::establish().unwrap_err();
        assert!(matches!(error, ReturnPathError::Failed { .. }), "{error}");
        assert_eq!(network.tables(), [""; 0]);
        network.expect_routing(0, 0);
    });
}

#[test]
fn errors_say_what_is_missing() {
    let said = |errno: Errno| nftables_error(errno.into()).to_string();
    assert!(said(Errno::EPERM).contains("CAP_NET_ADMIN"));
    assert!(said(Errno::ENOENT).contains("nft_socket"));
    assert!(said(Errno::EOPNOTSUPP).contains("nf_tables"));
    assert!(said(Errno::ENOMEM).contains("cannot make an nftables table"));
}
