//! Tests of server names: what each name leads to, what names share, and what stays when a name or its target changes.

use super::*;
use crate::select::endpoint_health::EndpointHealth;
use sheave_model::test_util::{change_pools, pool, refused, split, with_server_names};
use sheave_model::{ServerNamePattern, ServerNames, SourceRanges};

const ALGORITHM: Algorithm = Algorithm::RoundRobin;

/// A target with these endpoints, of the `number`th Service.
fn target(number: u32, endpoints: &[(u32, u16)]) -> Frontend {
    split(number, ALGORITHM, [pool(number, 1, endpoints)])
}

fn two() -> Frontend {
    with_server_names(
        1,
        [("a.example", target(11, &[(1, 100), (2, 100)])), ("*.example", target(12, &[(2, 100), (3, 100)]))],
    )
}

fn sticky(mut target: Frontend) -> Frontend {
    change_pools(&mut target, |pool| pool.affinity = STICKY);
    target
}

/// Endpoints of 100 connections with this name.
fn endpoints(frontend: &ActiveFrontend, name: &str) -> BTreeSet<EndpointAddr> {
    let affinity = AffinityTable::default();
    let target = frontend.target(name).unwrap();
    (0..100).map(|number| goes(target, &external(number), &affinity)).collect()
}

#[test]
fn each_name_has_the_endpoints_of_its_target() {
    let active = active(two());
    assert_eq!(endpoints(&active, "a.example"), [1, 2].map(endpoint_addr).into());
    assert_eq!(endpoints(&active, "b.c.example"), [2, 3].map(endpoint_addr).into());
    assert!(active.target("example").is_none() && active.target("a.example.org").is_none());
    assert_eq!(active.pools().count(), 2);
    assert!([1, 2, 3].iter().all(|&number| active.serves(endpoint_addr(number))));
}

#[test]
fn a_name_that_leads_nowhere_does_not_fall_through_to_a_wider_one() {
    let mut whole = two();
    let names = whole.server_names.take().unwrap();
    let patterns = [("closed.example", None), ("*.example", Some(1))];
    let patterns = patterns.map(|(name, target)| (ServerNamePattern::new(name), target));
    whole.server_names = Some(Arc::new(ServerNames::new(names.targets().to_vec(), patterns)));
    let active = active(whole);
    assert!(active.target("closed.example").is_none());
    assert!(active.target("open.example").is_some());
}

#[test]
fn without_its_target_the_frontend_picks_nothing_and_refuses_nobody_before_the_name_is_known() {
    for whole in [two(), with_server_names(1, [])] {
        let (active, affinity, request) = (active(whole), AffinityTable::default(), external(1));
        assert!(active.has_server_names());
        assert!(active.refusal(Origin::External, request.client).is_none());
        assert!(active.part(&request, &affinity).is_none());
        assert!(matches!(active.pick(&request, &affinity), Pick::Reject));
        assert_eq!(active.preview(&request, &affinity), Preview::Reject);
    }
}

#[test]
fn clients_outside_the_source_ranges_are_refused_whatever_they_ask_for() {
    let ranges = SourceRanges::new(vec!["192.0.2.0/30".parse().unwrap()]);
    let active = active(Frontend { source_ranges: Arc::new(ranges), ..two() });
    assert!(active.refusal(Origin::External, client(1, 1)).is_none());
    assert!(matches!(active.refusal(Origin::External, client(9, 1)), Some(Pick::Drop)));
}

#[test]
fn a_destination_is_the_frontend_itself_unless_it_has_server_names() {
    let (plain, named) = (active(frontend(1, ALGORITHM, &[(1, 100)])), active(two()));
    assert!(
        [None, Some("a.example")].iter().all(|name| Arc::ptr_eq(plain.destination(*name).unwrap(), &plain))
    );
    assert!(plain.target("a.example").is_none());
    assert!(named.destination(None).is_none() && named.destination(Some("other")).is_none());
    let [one, other] = ["a.example", "b.example"].map(|name| named.destination(Some(name)).unwrap());
    assert!(!Arc::ptr_eq(one, other) && !Arc::ptr_eq(one, &named));
}

#[test]
fn an_endpoint_of_two_names_has_one_load_also_after_one_of_them_has_changed() {
    let first = active(two());
    let affinity = AffinityTable::default();
    let pick = |frontend: &ActiveFrontend, name: &str, number| {
        forward(frontend.target(name).unwrap().pick(&external(number), &affinity))
    };
    let mut held: Vec<_> = (0..4).map(|number| pick(&first, "a.example", number)).collect();
    held.extend((0..4).map(|number| pick(&first, "b.example", number)));
    assert_eq!(loads(&first), [2, 4, 2]);
    let wider = with_server_names(
        1,
        [
            ("a.example", target(11, &[(1, 100), (2, 100)])),
            ("*.example", target(12, &[(2, 100), (3, 100), (4, 100)])),
        ],
    );
    let second = changed(wider, &first);
    assert_eq!(loads(&second), [2, 4, 2, 0]);
    assert_eq!(loads(second.target("a.example").unwrap()), [2, 4]);
    held.push(pick(&second, "a.example", 9));
    held.extend((10..13).map(|number| pick(&second, "b.example", number)));
    assert_eq!(loads(&second).iter().sum::<u32>(), 12);
    let of_names = ["a.example", "b.example"].map(|name| loads(second.target(name).unwrap()));
    assert_eq!(of_names[0][1], of_names[1][0], "the endpoint of both");
    drop(held);
    assert_eq!(loads(&second), [0; 4]);
}

/// Whether the targets of these names are the same in both frontends.
fn same(before: &ActiveFrontend, after: &ActiveFrontend, names: [&str; 2]) -> [bool; 2] {
    names.map(|name| Arc::ptr_eq(before.target(name).unwrap(), after.target(name).unwrap()))
}

#[test]
fn only_targets_that_changed_are_compiled_again() {
    let before = active(two());
    let names = ["a.example", "b.example"];
    let wider = || target(12, &[(2, 100), (9, 100)]);
    let narrow = || target(11, &[(1, 100), (2, 100)]);
    let in_place = with_server_names(1, [("a.example", narrow()), ("*.example", wider())]);
    assert_eq!(same(&before, &changed(in_place, &before), names), [true, false]);
    // Elsewhere in the list, since another route has come.
    let moved =
        with_server_names(1, [("0.org", target(13, &[])), ("a.example", narrow()), ("*.example", wider())]);
    assert_eq!(same(&before, &changed(moved, &before), names), [true, false]);
    let reversed = with_server_names(1, [("*.example", wider()), ("a.example", narrow())]);
    assert_eq!(same(&before, &changed(reversed, &before), names), [true, false]);
    // One of the frontend's own settings.
    let mut logged = two();
    logged.timeouts.keepalives = true;
    assert_eq!(same(&before, &changed(logged, &before), names), [true, true]);
}

#[test]
fn a_target_keeps_its_turns_when_it_changes_or_moves() {
    let affinity = AffinityTable::default();
    let before = active(two());
    let first = goes(before.target("a.example").unwrap(), &external(1), &affinity);
    let mut timed = target(11, &[(1, 100), (2, 100)]);
    timed.timeouts.connect = Some(TIMEOUT);
    let whole = [("0.org", target(13, &[])), ("a.example", timed)];
    let after = changed(with_server_names(1, whole), &before);
    assert_ne!(goes(after.target("a.example").unwrap(), &external(1), &affinity), first);
}

#[test]
fn endpoints_keep_their_loads_when_server_names_come_and_go() {
    let affinity = AffinityTable::default();
    let plain = active(frontend(1, ALGORITHM, &[(1, 100), (2, 100)]));
    let held = forward(plain.pick(&external(1), &affinity));
    let named = changed(two(), &plain);
    assert_eq!(loads(&named), [1, 0, 0]);
    let again = changed(frontend(1, ALGORITHM, &[(1, 100), (2, 100)]), &named);
    assert_eq!(loads(&again), [1, 0]);
    assert!(!again.has_server_names());
    drop(held);
    assert_eq!(loads(&again), [0, 0]);
}

#[test]
fn health_concerns_the_names_whose_service_judges_the_endpoint() {
    let whole = two();
    let addr = whole.addr;
    let service = whole.pools().next().unwrap().service.clone();
    let first = compile([whole], &ActiveTable::default());
    let mut health = EndpointHealth::default();
    health.set_unhealthy(&service, endpoint_addr(2), "refused".into());
    let second = first.with_health(health);
    let [before, after] = [&first, &second].map(|table| table.get(addr).unwrap());
    assert_eq!(same(before, after, ["a.example", "b.example"]), [false, true]);
    assert_eq!(endpoints(after, "a.example"), [endpoint_addr(1)].into());
    assert_eq!(endpoints(after, "b.example"), [2, 3].map(endpoint_addr).into());
    assert!(after.is_judge(&service, endpoint_addr(2)) && !after.is_judge(&service, endpoint_addr(3)));
    let judges = |name| after.target(name).unwrap().judges(endpoint_addr(2)).cloned().collect::<Vec<_>>();
    assert_eq!(judges("a.example"), [service]);
    assert_eq!(judges("b.example").len(), 1);
    assert_eq!(after.judges(endpoint_addr(2)).count(), 2);
}

#[test]
fn two_names_share_no_affinity_records_of_a_service_that_both_name() {
    let (affinity, request) = (AffinityTable::default(), external(1));
    let of_web = || sticky(target(11, &[(1, 100), (2, 100), (3, 100)]));
    let whole = || with_server_names(1, [("a.example", of_web()), ("b.example", of_web())]);
    let active = active(whole());
    let [one, other] = ["a.example", "b.example"].map(|name| active.target(name).unwrap());
    let picked = goes(one, &request, &affinity);
    let tried = [goes(other, &request, &affinity)];
    assert_eq!(picked, tried[0], "the first pick is a hash");
    let moved = goes(other, &PickRequest { tried: &tried, ..request }, &affinity);
    assert_ne!(moved, picked);
    assert_eq!((goes(one, &request, &affinity), goes(other, &request, &affinity)), (picked, moved));
    // Another gateway has the same scopes.
    assert_eq!(goes(super::active(whole()).target("b.example").unwrap(), &request, &affinity), moved);
}

#[test]
fn a_split_is_by_weight_inside_its_name() {
    let parts = [pool(1, 70, &[(1, 100)]), pool(2, 30, &[(2, 100)]), refused("gone", 0)];
    let named = with_server_names(
        1,
        [("a.example", split(1, ALGORITHM, parts)), ("b.example", target(3, &[(3, 100)]))],
    );
    let (active, affinity) = (active(named), AffinityTable::default());
    let target = active.target("a.example").unwrap();
    let first = (0..10_000).filter(|&number| goes(target, &external(number), &affinity) == endpoint_addr(1));
    let share = first.count();
    assert!((6_800..7_200).contains(&share), "{share}");
    // All names count alike in the shares of the whole.
    let shares: Vec<(EndpointAddr, u64)> = active.shares(Origin::External).collect();
    let of_all: u64 = shares.iter().map(|(_, share)| share).sum();
    let percent: Vec<u64> = shares.iter().map(|(_, share)| (share * 100 + of_all / 2) / of_all).collect();
    assert_eq!(percent, [35, 15, 50]);
}

#[test]
fn the_preview_of_a_name_is_what_its_pick_then_does() {
    let (active, affinity) = (active(two()), AffinityTable::default());
    for (number, name) in (0..50).flat_map(|number| [(number, "a.example"), (number, "x.example")]) {
        let target = active.target(name).unwrap();
        let preview = target.preview(&external(number), &affinity);
        assert_eq!(preview, Preview::Balanced(goes(target, &external(number), &affinity)));
    }
}

/// 10,000 names in one frontend, of which one changes.
#[test]
fn one_of_ten_thousand_names_changes_alone() {
    let names: Vec<String> = (0..10_000).map(|number| format!("n{number}.example")).collect();
    let targets = |changed: u32| {
        let target = move |number: u32| {
            target(number, &[(2 * number, 100), (2 * number + 1, 50 + u16::from(number == changed))])
        };
        names.iter().map(String::as_str).zip((0..).map(target))
    };
    let before = active(with_server_names(1, targets(u32::MAX)));
    let after = changed(with_server_names(1, targets(5000)), &before);
    let again =
        names.iter().filter(|name| !Arc::ptr_eq(before.target(name).unwrap(), after.target(name).unwrap()));
    assert_eq!(again.collect::<Vec<_>>(), ["n5000.example"]);
}
