//! Retention of addresses when pools and requests change.

use super::*;

#[test]
fn what_was_given_stays_until_the_service_asks_for_something_else() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1, 10.0.0.2]")]);
    assert_eq!(wish("a").ask(&mut allocator), given(&["10.0.0.1"]));
    assert_eq!(wish("b").ask(&mut allocator), given(&["10.0.0.2"]));
    set_pools(
        &mut allocator,
        &[("o", "addresses: [10.0.0.7], priority: 1"), ("p", "addresses: [10.0.0.2], autoAssign: false")],
    );
    assert_eq!(wish("b").ask(&mut allocator), given(&["10.0.0.2"]));
    assert_eq!(reserved(&wish("a"), &mut allocator), ("10.0.0.1".into(), Some(Reservation::NotInPool)));
    let told = Wish { uncovered: Uncovered::Replaced, ..wish("a") };
    assert_eq!(told.ask(&mut allocator), given(&["10.0.0.7"]));
    let moved = Wish { pool: Some("o"), ..wish("b") };
    let waits = Some(Reservation::OfOtherPool { named: "o".into(), of: "p".into() });
    assert_eq!(reserved(&moved, &mut allocator), ("10.0.0.2".into(), waits), "there is none to move to");
    allocator.release(&ServiceKey::new("shop", "a"));
    assert!(!allocator.take_freed().is_empty());
    assert_eq!(moved.ask(&mut allocator), given(&["10.0.0.7"]));
}

#[test]
fn an_address_stays_whatever_becomes_of_its_pool() {
    let q = ("q", "addresses: [10.0.9.0/24]");
    let no_access = |shortfall| Some(Reservation::NoAccess(shortfall));
    for (pools, pool, reservation) in [
        (vec![], None, Some(Reservation::NoPools)),
        (vec![q], None, Some(Reservation::NotInPool)),
        (vec![("p", "addresses: [10.0.0.8]"), q], None, Some(Reservation::NotInPool)),
        (vec![("p", "addresses: [10.0.0.8]")], Some("p"), Some(Reservation::NotInPool)),
        (vec![q], Some("p"), no_access(Shortfall::UnknownPool("p".into()))),
        (vec![("p", "addresses: [10.0.0.1]"), q], Some("pp"), no_access(Shortfall::UnknownPool("pp".into()))),
        (
            vec![("p", "addresses: [10.0.0.1], serviceSelector: {matchLabels: {a: b}}"), q],
            None,
            Some(Reservation::NotAdmitted("p".into())),
        ),
        (
            vec![("p", "addresses: [10.0.0.1], serviceSelector: {matchLabels: {a: b}}"), q],
            Some("p"),
            no_access(Shortfall::NotAdmitted("p".into())),
        ),
        (vec![("p", "addresses: [10.0.0.1], autoAssign: false"), q], None, None),
        // Even if gateway nodes could replace it.
        (vec![("nodes", "fromGatewayNodes: true")], None, Some(Reservation::NotInPool)),
    ] {
        let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1, 10.0.0.2]"), q]);
        assert_eq!(wish("a").ask(&mut allocator), given(&["10.0.0.1"]));
        set_pools(&mut allocator, &pools);
        let asks = Wish { pool, ..wish("a") };
        assert_eq!(reserved(&asks, &mut allocator), ("10.0.0.1".into(), reservation), "{pools:?} {pool:?}");
        // The pool is restored: no address has changed its Service.
        set_pools(&mut allocator, &[("p", "addresses: [10.0.0.1, 10.0.0.2]"), q]);
        assert_eq!(wish("b").ask(&mut allocator), given(&["10.0.0.2"]), "{pools:?} {pool:?}");
        assert!(stranger("c", &["10.0.0.1"]).ask(&mut allocator).0.is_empty());
        assert_eq!(reserved(&wish("a"), &mut allocator), ("10.0.0.1".into(), None));
    }
}

#[test]
fn an_address_is_replaced_on_demand_once_there_is_another() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1]")]);
    assert_eq!(wish("a").ask(&mut allocator), given(&["10.0.0.1"]));
    let told = Wish { uncovered: Uncovered::Replaced, ..wish("a") };
    assert_eq!(reserved(&told, &mut allocator), ("10.0.0.1".into(), None), "its pool has it");
    set_pools(&mut allocator, &[]);
    assert_eq!(reserved(&told, &mut allocator), ("10.0.0.1".into(), Some(Reservation::NoPools)));
    set_pools(&mut allocator, &[("q", "addresses: [10.0.0.7]")]);
    allocator.hold(&wish("b").key, vec![[10, 0, 0, 7].into()]);
    assert_eq!(reserved(&told, &mut allocator), ("10.0.0.1".into(), Some(Reservation::NotInPool)));
    allocator.release(&wish("b").key);
    assert_eq!(reserved(&told, &mut allocator), ("10.0.0.7".into(), None));
}

#[test]
fn what_a_service_has_stays_while_nothing_that_it_asks_for_can_be_given() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1-10.0.0.3, 'fd00::/64']")]);
    let dual = Wish { families: BOTH, ..wish("a") };
    assert_eq!(dual.ask(&mut allocator), given(&["10.0.0.1", "fd00::"]));
    let asks =
        |ips: &[&str]| Wish { addresses: ips.iter().map(|ip| ip.parse().unwrap()).collect(), ..dual.clone() };
    let mistyped = asks(&["10.0.9.1", "fd00::7"]);
    let refused = vec![refusal("10.0.9.1", Refusal::NotInPool)];
    assert_eq!(mistyped.ask(&mut allocator), (vec!["fd00::7".into(), "10.0.0.1".into()], refused));
    // In a family that it no longer requests it keeps no address.
    assert_eq!(asks(&["10.0.0.2"]).ask(&mut allocator), given(&["10.0.0.2"]));
    // A requested address stays even when the pool no longer has it.
    set_pools(&mut allocator, &[("p", "addresses: [10.0.0.3]")]);
    assert_eq!(
        reserved(&asks(&["10.0.0.2"]), &mut allocator),
        ("10.0.0.2".into(), Some(Reservation::NotInPool))
    );
    assert_eq!(asks(&["10.0.0.3"]).ask(&mut allocator), given(&["10.0.0.3"]));
}

#[test]
fn where_manifests_are_all_that_counts_an_address_goes_with_its_pool() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1]")]);
    let follows = Wish { uncovered: Uncovered::Dropped, ..wish("a") };
    assert_eq!(follows.ask(&mut allocator), given(&["10.0.0.1"]));
    set_pools(&mut allocator, &[]);
    assert_eq!(follows.ask(&mut allocator), refused(Shortfall::NoPool(Family::V4)));
}
