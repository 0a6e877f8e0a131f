//! Every change has its name, and every frontend that differs is named once.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Algorithm;
use crate::test_util::{frontend, frontend_addr, table};

fn plain(number: u32, endpoints: u32) -> Frontend {
    let endpoints: Vec<_> = (0..endpoints).map(|endpoint| (endpoint, 100)).collect();
    frontend(number, Algorithm::Random, &endpoints)
}

fn changes(old: &RoutingTable, new: &RoutingTable) -> Vec<(FrontendAddr, Change)> {
    diff(old, new).into_iter().map(|change| (change.addr, change.change)).collect()
}

#[test]
fn each_kind_of_change_is_told_apart_in_order_of_address() {
    let old = table([plain(1, 2), plain(2, 2), plain(3, 2), plain(4, 2), plain(6, 0), plain(7, 0)]);
    let new = table([plain(5, 1), plain(2, 2), plain(3, 1), plain(4, 0), plain(6, 1), plain(7, 0)]);
    let wanted = [
        (1, Change::Removed),
        (3, Change::Changed),
        (4, Change::Emptied),
        (5, Change::Added),
        (6, Change::Changed),
    ];
    assert_eq!(changes(&old, &new), wanted.map(|(number, change)| (frontend_addr(number), change)));
}

#[test]
fn a_change_beside_endpoints_that_were_never_there_does_not_empty() {
    let mut drops = plain(1, 0);
    drops.external = crate::Route::Drop;
    assert_eq!(changes(&table([plain(1, 0)]), &table([drops])), [(frontend_addr(1), Change::Changed)]);
}

#[test]
fn the_same_table_twice_changes_nothing() {
    let same = table((0..100).map(|number| plain(number, number % 3)));
    assert!(diff(&same, &same.clone()).is_empty());
    let anew = table((0..100).map(|number| plain(number, number % 3)));
    assert!(diff(&same, &anew).is_empty());
}

#[test]
fn ipv6_and_protocols_sort_after_ipv4_and_tcp() {
    let mut v6 = plain(1, 1);
    v6.addr.ip = std::net::Ipv6Addr::LOCALHOST.into();
    let mut udp = plain(1, 1);
    udp.addr.protocol = crate::Protocol::Udp;
    let wanted = [plain(1, 1).addr, udp.addr, plain(2, 1).addr, v6.addr];
    let table = table([v6, plain(2, 1), udp, plain(1, 1)]);
    assert_eq!(changes(&RoutingTable::default(), &table), wanted.map(|addr| (addr, Change::Added)));
}

fn any_table() -> impl Strategy<Value = BTreeMap<u32, u32>> {
    prop::collection::btree_map(0u32..12, 0u32..3, 0..10)
}

proptest! {
    #[test]
    fn the_answer_names_every_difference_once_and_turns_the_old_table_into_the_new(
        old in any_table(), new in any_table(),
    ) {
        let build = |spec: &BTreeMap<u32, u32>| table(spec.iter().rev().map(|(&number, &count)| plain(number, count)));
        let (before, after) = (build(&old), build(&new));
        let answer = diff(&before, &after);
        prop_assert!(answer.is_sorted_by(|left, right| left.addr < right.addr));
        let mut patched: BTreeMap<_, _> =
            before.frontends().iter().map(|frontend| (frontend.addr, frontend.clone())).collect();
        for change in &answer {
            match &change.frontend {
                Some(frontend) => patched.insert(change.addr, frontend.clone()),
                None => patched.remove(&change.addr),
            };
        }
        prop_assert!(patched.values().eq(after.frontends()));
        for number in 0..12 {
            let change = answer.iter().find(|change| change.addr == frontend_addr(number)).map(|change| change.change);
            let wanted = match (old.get(&number), new.get(&number)) {
                (None, None) => None,
                (None, Some(_)) => Some(Change::Added),
                (Some(_), None) => Some(Change::Removed),
                (Some(was), Some(is)) if was == is => None,
                (Some(_), Some(0)) => Some(Change::Emptied),
                (Some(_), Some(_)) => Some(Change::Changed),
            };
            prop_assert_eq!(change, wanted);
        }
    }
}
