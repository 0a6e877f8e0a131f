//! Rules of the allocator: order, stickiness, requests, sharing and exhaustion. No Service is moved, and no address is allocated
//! twice.

mod by_value;
mod foreign;
mod standing;

use proptest::prelude::*;

use super::assignment::{AddressSummary, Refusal};
use super::*;

const BOTH: &[Family] = &Family::ALL;
const V4: &[Family] = &[Family::V4];

fn allocator(pools: &[(&str, &str)]) -> (Allocator, usize) {
    let mut allocator = Allocator::default();
    let problems = set_pools(&mut allocator, pools);
    (allocator, problems)
}

/// Replaces the pools and returns the number of their Problems. The address of the gateway node is 192.0.2.1.
fn set_pools(allocator: &mut Allocator, pools: &[(&str, &str)]) -> usize {
    let read = |(name, spec): &(&str, &str)| {
        let pool: AddressPool = serde_saphyr::from_str(&format!("metadata: {{}}\nspec: {{{spec}}}")).unwrap();
        (Arc::from(*name), Arc::new(pool))
    };
    let node = NodeAddress { node: "gw-1".into(), ip: [192, 0, 2, 1].into() };
    allocator.set_pools(&pools.iter().map(read).collect(), false, &[node]).len()
}

type Answer = (Vec<String>, Vec<Shortfall>);

/// A request of a Service in namespace `shop`.
#[derive(Clone)]
struct Wish {
    key: ServiceKey,
    labels: BTreeMap<String, String>,
    families: &'static [Family],
    pool: Option<&'static str>,
    addresses: Vec<IpAddr>,
    uncovered: Uncovered,
}

fn wish(name: &str) -> Wish {
    Wish {
        key: ServiceKey::new("shop", name),
        labels: BTreeMap::new(),
        families: V4,
        pool: None,
        addresses: Vec::new(),
        uncovered: Uncovered::Kept,
    }
}

impl Wish {
    fn request(&self) -> Request<'_> {
        Request {
            key: &self.key,
            labels: &self.labels,
            families: self.families,
            pool: self.pool,
            addresses: &self.addresses,
            uncovered: self.uncovered,
            namespace: None,
            nodes: UsableNodes::All,
        }
    }

    fn ask(&self, allocator: &mut Allocator) -> Answer {
        allocator.prune(&self.request());
        let Assignment { addresses, shortfalls, .. } = allocator.assign(&self.request());
        let addresses = addresses.iter().map(ToString::to_string).collect();
        (addresses, shortfalls)
    }
}

/// Its only address, and the reason why it stays if no pool has it.
fn reserved(wish: &Wish, allocator: &mut Allocator) -> (String, Option<Reservation>) {
    allocator.prune(&wish.request());
    let Assignment { addresses, reservations, .. } = allocator.assign(&wish.request());
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    (addresses[0].to_string(), reservations.into_iter().next().map(|(reservation, _)| reservation))
}

fn given(ips: &[&str]) -> Answer {
    (ips.iter().map(|ip| (*ip).to_owned()).collect(), Vec::new())
}

fn refused(shortfall: Shortfall) -> Answer {
    (Vec::new(), vec![shortfall])
}

fn refusal(ip: &str, why: Refusal) -> Shortfall {
    Shortfall::Refused { addresses: AddressSummary::new(ip.parse().unwrap()), why }
}

/// A request for these addresses from a Service in another namespace.
fn stranger(name: &str, addresses: &[&str]) -> Wish {
    let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
    Wish { key: ServiceKey::new("evil", name), addresses, ..wish(name) }
}

#[test]
fn pools_are_asked_by_priority_with_zero_last_then_selective_ones_then_by_name() {
    let (mut allocator, problems) = allocator(&[
        ("a", "addresses: [10.0.0.1]"),
        ("b", "addresses: [10.0.0.2], priority: 7"),
        ("c", "addresses: [10.0.0.3], priority: 2"),
        ("d", "addresses: [10.0.0.4], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}"),
        ("e", "addresses: [10.0.0.5], autoAssign: false, priority: 1"),
    ]);
    assert_eq!(problems, 0);
    let order: Vec<_> = (0..4).map(|n| wish(&n.to_string()).ask(&mut allocator)).collect();
    assert_eq!(order, ["10.0.0.3", "10.0.0.2", "10.0.0.4", "10.0.0.1"].map(|ip| given(&[ip])));
    let pools = ["c", "b", "d", "a"].map(Arc::from).to_vec();
    assert_eq!(wish("late").ask(&mut allocator), refused(Shortfall::Exhausted { family: Family::V4, pools }));
}

#[test]
fn selectors_keep_others_out() {
    let (mut allocator, _) = allocator(&[
        ("labels", "addresses: [10.0.0.1], serviceSelector: {matchLabels: {app: web}}"),
        (
            "spaces",
            "addresses: [10.0.0.2], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}",
        ),
    ]);
    assert_eq!(wish("a").ask(&mut allocator), refused(Shortfall::NoPool(Family::V4)));
    let named = Wish { pool: Some("labels"), ..wish("a") };
    assert_eq!(named.ask(&mut allocator), refused(Shortfall::NotAdmitted("labels".into())));
    let labelled = Wish { labels: BTreeMap::from([("app".into(), "web".into())]), ..wish("a") };
    assert_eq!(labelled.ask(&mut allocator), given(&["10.0.0.1"]));
    let elsewhere = Wish { key: ServiceKey::new("other", "a"), ..wish("a") };
    assert_eq!(elsewhere.ask(&mut allocator), given(&["10.0.0.2"]));
}

#[test]
fn a_pool_that_holds_both_families_is_preferred() {
    let (mut allocator, _) = allocator(&[
        ("four", "addresses: [10.0.0.1-10.0.0.9]"),
        ("mixed", "addresses: [10.0.1.0/24, 'fd00::/64']"),
    ]);
    let dual = Wish { families: BOTH, ..wish("dual") };
    assert_eq!(dual.ask(&mut allocator), given(&["10.0.1.0", "fd00::"]));
    // A Service that adds a second family keeps its address and gets the other one elsewhere.
    assert_eq!(wish("grows").ask(&mut allocator), given(&["10.0.0.1"]));
    assert_eq!(Wish { families: BOTH, ..wish("grows") }.ask(&mut allocator), given(&["10.0.0.1", "fd00::1"]));
    let four = Wish { families: BOTH, pool: Some("four"), ..wish("named") };
    let missing = Shortfall::FamilyMissing { family: Family::V6, pool: "four".into() };
    assert_eq!(four.ask(&mut allocator), (vec!["10.0.0.2".into()], vec![missing]));
}

#[test]
fn pools_that_are_exhausted_are_named_in_one_order_whatever_was_given_before() {
    let (mut allocator, _) =
        allocator(&[("p", "addresses: [10.0.0.1]"), ("q", "addresses: [10.0.0.2, 'fd00::/127']")]);
    assert_eq!(wish("a").ask(&mut allocator), given(&["10.0.0.1"]));
    assert_eq!(wish("b").ask(&mut allocator), given(&["10.0.0.2"]));
    let dual = Wish { families: BOTH, ..wish("dual") };
    let first = dual.ask(&mut allocator);
    assert_eq!(first.0, ["fd00::"]);
    assert_eq!(dual.ask(&mut allocator), first);
}

#[test]
fn addresses_asked_for_by_value_are_shared_and_never_given_to_others() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.0/8], avoidBuggyIPs: true")]);
    let first = Wish { addresses: vec![IpAddr::from([10, 0, 0, 1])], ..wish("a") };
    assert_eq!(first.ask(&mut allocator), given(&["10.0.0.1"]));
    assert_eq!(
        Wish { key: ServiceKey::new("shop", "b"), ..first.clone() }.ask(&mut allocator),
        given(&["10.0.0.1"])
    );
    assert_eq!(wish("c").ask(&mut allocator), given(&["10.0.0.2"]));
    let _ = allocator.take_freed();
    allocator.release(&first.key);
    assert!(allocator.take_freed().is_empty(), "another Service still has it");
    let outside = IpAddr::from([10, 0, 0, 0]);
    let outside = Wish { addresses: vec![outside, IpAddr::from([10, 9, 9, 9])], ..wish("d") };
    let refused = refusal("10.0.0.0", Refusal::NotInPool);
    assert_eq!(outside.ask(&mut allocator), (vec!["10.9.9.9".into()], vec![refused]));
}

#[test]
fn addresses_of_gateway_nodes_are_shared() {
    let (mut allocator, _) = allocator(&[("nodes", "fromGatewayNodes: true")]);
    for name in ["a", "b"] {
        assert_eq!(wish(name).ask(&mut allocator), given(&["192.0.2.1"]));
    }
    assert_eq!(stranger("c", &[]).ask(&mut allocator), given(&["192.0.2.1"]));
}

#[test]
fn what_services_already_have_is_kept_and_not_given_again() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1-10.0.0.3]")]);
    allocator.hold(&wish("old").key, vec![IpAddr::from([10, 0, 0, 1])]);
    assert_eq!(wish("new").ask(&mut allocator), given(&["10.0.0.2"]));
    assert_eq!(wish("old").ask(&mut allocator), given(&["10.0.0.1"]));
    allocator.hold(&wish("old").key, Vec::new());
    assert_eq!(wish("third").ask(&mut allocator), given(&["10.0.0.1"]));
}

proptest! {
    #[test]
    fn nobody_is_moved_and_no_address_is_given_twice(steps in prop::collection::vec((0..12_u8, any::<bool>()), 1..60)) {
        let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1-10.0.0.4, 10.0.0.3-10.0.0.6]"), ("q", "addresses: ['fd00::/126'], priority: 3")]);
        let mut expected: BTreeMap<u8, Vec<String>> = BTreeMap::new();
        for (name, leave) in steps {
            let wish = Wish { families: if name % 2 == 0 { V4 } else { BOTH }, ..wish(&name.to_string()) };
            if leave {
                allocator.release(&wish.key);
                expected.remove(&name);
                continue;
            }
            let (addresses, shortfalls) = wish.ask(&mut allocator);
            let before = expected.insert(name, addresses.clone()).unwrap_or_default();
            prop_assert!(addresses.starts_with(&before), "{:?} became {:?}", before, addresses);
            if !shortfalls.is_empty() {
                let full = allocator.held.values().flatten().filter(|ip| ip.is_ipv4()).count() == 6
                    || allocator.held.values().flatten().filter(|ip| ip.is_ipv6()).count() == 4;
                prop_assert!(full, "refused although both families have free addresses");
            }
            let mut all: Vec<&IpAddr> = allocator.held.values().flatten().collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len(), count);
            for (pool, capacity) in [("p", 6), ("q", 4)] {
                let held = all.iter().filter(|ip| ip.is_ipv4() == (pool == "p")).count();
                let usage = allocator.usage().find(|(name, ..)| &***name == pool).map(|(_, used, free)| (used, free));
                prop_assert_eq!(usage, Some((held, capacity - held as u128)));
            }
        }
    }
}
