//! Addresses requested by value: whether they can be shared, and how many one Service gets.

use super::super::assignment::AddressSummary;
use super::*;

#[test]
fn an_address_belongs_to_the_namespace_that_had_it_first() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1-10.0.0.3]")]);
    assert_eq!(wish("a").ask(&mut allocator), given(&["10.0.0.1"]));
    let in_use = |ip| refused(refusal(ip, Refusal::InUse("p".into())));
    assert_eq!(stranger("b", &["10.0.0.1"]).ask(&mut allocator), in_use("10.0.0.1"));
    assert_eq!(stranger("b", &["10.0.0.2"]).ask(&mut allocator), given(&["10.0.0.2"]));
    let asks = |name, ip: &str| Wish { addresses: vec![ip.parse().unwrap()], ..wish(name) };
    assert_eq!(asks("c", "10.0.0.2").ask(&mut allocator), in_use("10.0.0.2"));
    // A MultiClusterService in the same namespace is the same tenant.
    let fleet = Wish { key: ServiceKey::multi_cluster("shop", "a"), ..asks("a", "10.0.0.1") };
    assert_eq!(fleet.ask(&mut allocator), given(&["10.0.0.1"]));
    // The address is free for other namespaces after the last Service of this one has released it.
    let _ = allocator.take_freed();
    allocator.release(&wish("a").key);
    assert_eq!(stranger("d", &["10.0.0.1"]).ask(&mut allocator), in_use("10.0.0.1"));
    allocator.release(&fleet.key);
    assert!(!allocator.take_freed().is_empty());
    assert_eq!(stranger("b", &["10.0.0.1"]).ask(&mut allocator), given(&["10.0.0.1"]));
}

#[test]
fn who_asks_for_what_another_is_given_keeps_what_it_has() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1-10.0.0.3]")]);
    let (mine, theirs) = (wish("a"), stranger("b", &["10.0.0.2"]));
    assert_eq!(
        (mine.ask(&mut allocator), theirs.ask(&mut allocator)),
        (given(&["10.0.0.1"]), given(&["10.0.0.2"]))
    );
    // Both request the third address in the same pass.
    let third: IpAddr = [10, 0, 0, 3].into();
    let (mine, theirs) = (Wish { addresses: vec![third], ..mine }, stranger("b", &["10.0.0.3"]));
    for wish in [&mine, &theirs] {
        allocator.prune(&wish.request());
    }
    assert_eq!(allocator.assign(&mine.request()).addresses, [third]);
    assert_eq!(allocator.assign(&theirs.request()).addresses, [IpAddr::from([10, 0, 0, 2])]);
    assert!(!allocator.take_freed().is_empty(), "others may have the first one");
}

#[test]
fn namespaces_share_an_address_where_every_pool_that_lists_it_consents() {
    for (specs, shared) in [
        (vec!["addresses: [10.0.0.1], sharing: Cluster"], true),
        (vec!["addresses: [10.0.0.1], sharing: Namespace"], false),
        (
            vec!["addresses: [10.0.0.1], sharing: Cluster", "addresses: [10.0.0.0/24], autoAssign: false"],
            false,
        ),
        (vec!["addresses: [10.0.0.1], sharing: Cluster", "addresses: [192.0.2.0/24]"], true),
        // Both listed and a gateway node's: the list takes precedence.
        (vec!["addresses: [192.0.2.1], fromGatewayNodes: true"], false),
        (vec!["fromGatewayNodes: true"], true),
    ] {
        let names: Vec<String> = (0..specs.len()).map(|index| format!("p{index}")).collect();
        let pools: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(specs.iter().copied()).collect();
        let (mut allocator, _) = allocator(&pools);
        let (addresses, _) = wish("a").ask(&mut allocator);
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let (theirs, _) = stranger("b", &addresses).ask(&mut allocator);
        assert_eq!(theirs == addresses, shared, "{specs:?}");
    }
}

#[test]
fn what_two_namespaces_have_already_stays_with_both() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1-10.0.0.3]")]);
    let (mine, theirs) =
        (Wish { addresses: vec![[10, 0, 0, 1].into()], ..wish("a") }, stranger("b", &["10.0.0.1"]));
    for wish in [&mine, &theirs] {
        allocator.hold(&wish.key, wish.addresses.clone());
    }
    assert!(allocator.assign(&mine.request()).reservations.is_empty());
    let kept = allocator.assign(&theirs.request());
    assert_eq!((&kept.addresses, kept.shortfalls.len()), (&theirs.addresses, 0));
    let reserved = (Reservation::Shared("p".into()), AddressSummary::new([10, 0, 0, 1].into()));
    assert_eq!(kept.reservations, [reserved]);
    let _ = allocator.take_freed();
    allocator.release(&mine.key);
    assert!(!allocator.take_freed().is_empty(), "the other one is to be asked again");
    assert!(allocator.assign(&theirs.request()).reservations.is_empty());
}

#[test]
fn a_pool_gives_one_service_only_so_many_addresses_by_value() {
    let pools = [
        ("p", "addresses: [10.0.0.0/16], maxPerService: 2, autoAssign: false"),
        ("q", "addresses: [10.1.0.0/24]"),
    ];
    let (mut allocator, _) = allocator(&pools);
    let all = |second: u8| (0..=255).map(move |last| IpAddr::from([10, second, 7, last]));
    let greedy = Wish { addresses: all(0).collect(), ..wish("a") };
    let assignment = allocator.assign(&greedy.request());
    assert_eq!(assignment.addresses, [IpAddr::from([10, 0, 7, 0]), IpAddr::from([10, 0, 7, 1])]);
    let told: Vec<String> = assignment.shortfalls.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "10.0.7.2, 10.0.7.3, 10.0.7.4 and 251 more are beyond the 2 that AddressPool p gives one Service by value \
          (spec.maxPerService)"
        ]
    );
    // Each pool has its own limit, and addresses in another order are the same request.
    let more = Wish {
        addresses: [[10, 0, 7, 9], [10, 0, 7, 1], [10, 1, 0, 1], [10, 0, 7, 0]].map(IpAddr::from).to_vec(),
        ..wish("a")
    };
    let refused = refusal("10.0.7.9", Refusal::TooMany { pool: "p".into(), most: 2 });
    let expected = ["10.0.7.1", "10.1.0.1", "10.0.7.0"].map(str::to_owned).to_vec();
    assert_eq!(more.ask(&mut allocator), (expected, vec![refused]));
}

#[test]
fn what_is_beyond_the_limit_is_refused_for_that_whoever_has_it() {
    let (mut allocator, _) = allocator_of_two();
    let greedy = stranger("a", &["10.0.0.1", "10.0.0.2"]);
    let first = greedy.ask(&mut allocator);
    let why = Refusal::TooMany { pool: "p".into(), most: 1 };
    assert_eq!(first, (vec!["10.0.0.1".into()], vec![refusal("10.0.0.2", why)]));
    assert_eq!(wish("b").ask(&mut allocator), given(&["10.0.0.2"]));
    assert_eq!(greedy.ask(&mut allocator), first);
    // The refused address may come first, too.
    let (mut allocator, _) = allocator_of_two();
    assert_eq!(wish("b").ask(&mut allocator), given(&["10.0.0.1"]));
    let second = greedy.ask(&mut allocator);
    let why = Refusal::TooMany { pool: "p".into(), most: 1 };
    assert_eq!(second, (vec!["10.0.0.2".into()], vec![refusal("10.0.0.1", why)]));
    assert_eq!(greedy.ask(&mut allocator), second);
}

/// Two addresses: the first goes to a Service that requests any, and one Service may request one by value.
fn allocator_of_two() -> (Allocator, usize) {
    allocator(&[("p", "addresses: [10.0.0.1, 10.0.0.2], maxPerService: 1")])
}

#[test]
fn what_a_service_has_beyond_the_limit_stays() {
    let (mut allocator, problems) = allocator(&[("p", "addresses: [10.0.0.0/24], maxPerService: 1")]);
    assert_eq!(problems, 0);
    let addresses: Vec<IpAddr> = (1..=3).map(|last| IpAddr::from([10, 0, 0, last])).collect();
    let live = Wish { addresses: addresses.clone(), ..wish("a") };
    allocator.hold(&live.key, addresses[..2].to_vec());
    let assignment = allocator.assign(&live.request());
    assert_eq!(assignment.addresses, addresses[..2]);
    let why = Refusal::TooMany { pool: "p".into(), most: 1 };
    assert_eq!(assignment.shortfalls, [refusal("10.0.0.3", why)]);
    let kept = (Reservation::TooMany { pool: "p".into(), most: 1 }, AddressSummary::new(addresses[1]));
    assert_eq!(assignment.reservations, [kept]);
}

#[test]
fn an_address_of_two_pools_counts_for_the_one_that_gave_it() {
    let pools = [
        ("p", "addresses: [10.0.0.0/24], maxPerService: 1"),
        ("q", "addresses: [10.0.0.0/24], maxPerService: 1"),
    ];
    let (mut allocator, _) = allocator(&pools);
    let both = stranger("a", &["10.0.0.1", "10.0.0.2"]);
    for _ in 0..2 {
        let assignment = allocator.assign(&both.request());
        assert_eq!(assignment.addresses.len(), 2);
        assert_eq!(
            (assignment.shortfalls.as_slice(), assignment.reservations.as_slice()),
            ([].as_slice(), [].as_slice())
        );
    }
    let more = stranger("a", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let why = Refusal::TooMany { pool: "p".into(), most: 1 };
    let refused = refusal("10.0.0.3", why);
    assert_eq!(more.ask(&mut allocator), (vec!["10.0.0.1".into(), "10.0.0.2".into()], vec![refused]));
}

/// A process that begins with its status, which is in order, gives the same reason.
#[test]
fn what_stays_is_named_in_order() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.0/24]")]);
    let elsewhere = stranger("a", &["192.0.2.1"]);
    let [first, second] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    allocator.hold(&elsewhere.key, vec![second, first]);
    let reservations = allocator.assign(&elsewhere.request()).reservations;
    let told: Vec<String> = reservations.iter().map(|(_, addresses)| addresses.to_string()).collect();
    assert_eq!(told, ["10.0.0.1 and 10.0.0.2"]);
}

#[test]
fn a_limit_that_is_none_counts_as_the_default() {
    for most in [0, 65] {
        let (mut allocator, problems) =
            allocator(&[("p", &format!("addresses: [10.0.0.0/24], maxPerService: {most}"))]);
        assert_eq!(problems, 1, "{most}");
        let addresses = (0..10).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        assert_eq!(Wish { addresses, ..wish("a") }.ask(&mut allocator).0.len(), 8);
    }
}
