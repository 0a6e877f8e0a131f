//! Tests: a diff names every frontend that differs once, and turns the old table into the new one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Algorithm;
use crate::test_util::{frontend, frontend_addr, table};

fn plain(number: u32, endpoints: u32) -> Frontend {
    let endpoints: Vec<_> = (0..endpoints).map(|endpoint| (endpoint, 100)).collect();
    frontend(number, Algorithm::Random, &endpoints)
}

fn changed(old: &RoutingTable, new: &RoutingTable) -> Vec<FrontendAddr> {
    diff(old, new).into_iter().map(|(addr, _)| addr).collect()
}

#[test]
fn what_came_went_or_differs_is_named_in_order_of_address() {
    let old = table([plain(1, 2), plain(2, 2), plain(3, 2), plain(4, 2), plain(6, 0), plain(7, 0)]);
    let new = table([plain(5, 1), plain(2, 2), plain(3, 1), plain(4, 0), plain(6, 1), plain(7, 0)]);
    assert_eq!(changed(&old, &new), [1, 3, 4, 5, 6].map(frontend_addr));
}

#[test]
fn the_same_table_twice_changes_nothing() {
    let build = || table((0..100).map(|number| plain(number, number % 3)));
    let same = build();
    assert!(diff(&same, &same.clone()).is_empty());
    assert!(diff(&same, &build()).is_empty());
}

#[test]
fn an_address_is_served_if_any_port_of_it_is() {
    let served = table((0..2000).filter(|number| number % 3 == 0).map(|number| plain(number, 0)));
    for number in 0..2001 {
        assert_eq!(served.serves(frontend_addr(number).ip), number % 3 == 0 && number < 2000, "{number}");
    }
    assert!(!RoutingTable::default().serves(frontend_addr(1).ip));
}

#[test]
fn ipv6_and_protocols_sort_after_ipv4_and_tcp() {
    let mut v6 = plain(1, 1);
    v6.addr.ip = std::net::Ipv6Addr::LOCALHOST.into();
    let mut udp = plain(1, 1);
    udp.addr.protocol = crate::Protocol::Udp;
    let wanted = [plain(1, 1).addr, udp.addr, plain(2, 1).addr, v6.addr];
    assert_eq!(changed(&RoutingTable::default(), &table([v6, plain(2, 1), udp, plain(1, 1)])), wanted);
}

fn any_table() -> impl Strategy<Value = BTreeMap<u32, u32>> {
    prop::collection::btree_map(0u32..12, 0u32..3, 0..10)
}

proptest! {
    #[test]
    fn the_diff_names_every_difference_once_and_turns_the_old_table_into_the_new(
        old in any_table(), new in any_table(),
    ) {
        let build = |spec: &BTreeMap<u32, u32>| table(spec.iter().rev().map(|(&number, &count)| plain(number, count)));
        let (before, after) = (build(&old), build(&new));
        let changes = diff(&before, &after);
        let differs = (0..12).filter(|number| old.get(number) != new.get(number)).map(frontend_addr);
        prop_assert!(changes.iter().map(|(addr, _)| *addr).eq(differs));
        let patched = before.with(&changes, Arc::default());
        prop_assert_eq!(patched.frontends(), after.frontends());
    }
}
