//! Tests: the affinity table against a plain map as its model, and its bounds.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use sheave_model::{FrontendSource, Protocol};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

fn scope(port_name: &str) -> Scope {
    let port = ServicePort {
        source: FrontendSource::Service,
        namespace: "shop".into(),
        name: "web".into(),
        port_name: port_name.into(),
        protocol: Protocol::Tcp,
        settings_of: None,
    };
    Scope::of(&port, AffinityScope::Port)
}

fn client(number: u32) -> IpAddr {
    Ipv4Addr::from(0xc000_0200 + number).into()
}

fn endpoint(number: u32) -> EndpointAddr {
    EndpointAddr::new(Ipv4Addr::from(0x0a00_0000 + number).into(), 80)
}

fn renew(table: &AffinityTable, scope: Scope, number: u32, now: Instant) -> Option<EndpointAddr> {
    table.renew(scope, client(number), TIMEOUT, now, Some)
}

#[test]
fn a_record_counts_until_the_timeout_after_the_last_use() {
    let (table, http, start) = (AffinityTable::default(), scope("http"), Instant::now());
    table.record(http, client(1), endpoint(1), TIMEOUT, start);
    assert_eq!(renew(&table, http, 1, start + Duration::from_secs(9)), Some(endpoint(1)));
    assert_eq!(renew(&table, http, 1, start + Duration::from_secs(18)), Some(endpoint(1)));
    assert_eq!(renew(&table, http, 1, start + Duration::from_secs(28)), None);
}

#[test]
fn ports_and_clients_have_records_of_their_own() {
    let (table, now) = (AffinityTable::default(), Instant::now());
    table.record(scope("http"), client(1), endpoint(1), TIMEOUT, now);
    assert_eq!(renew(&table, scope("https"), 1, now), None);
    assert_eq!(renew(&table, scope("http"), 2, now), None);
    assert_eq!(renew(&table, scope("http"), 1, now), Some(endpoint(1)));
}

#[test]
fn a_record_that_is_not_usable_is_neither_given_nor_renewed() {
    let (table, http, start) = (AffinityTable::default(), scope("http"), Instant::now());
    table.record(http, client(1), endpoint(1), TIMEOUT, start);
    let later = start + Duration::from_secs(9);
    assert_eq!(table.renew(http, client(1), TIMEOUT, later, |_| None::<()>), None);
    assert_eq!(renew(&table, http, 1, start + TIMEOUT), None);
}

#[test]
fn looking_does_not_renew() {
    let (table, http, start) = (AffinityTable::default(), scope("http"), Instant::now());
    table.record(http, client(1), endpoint(1), TIMEOUT, start);
    let (later, left) = (start + Duration::from_secs(9), Duration::from_secs(1));
    assert_eq!(table.peek(http, client(1), TIMEOUT, later), Some((endpoint(1), left)));
    assert_eq!(table.peek(http, client(1), TIMEOUT, start + TIMEOUT), None);
}

#[test]
fn a_shorter_timeout_counts_at_once() {
    let (table, http, start) = (AffinityTable::default(), scope("http"), Instant::now());
    table.record(http, client(1), endpoint(1), Duration::from_secs(10_800), start);
    assert_eq!(renew(&table, http, 1, start + Duration::from_secs(11)), None);
}

#[test]
fn expired_records_leave_as_others_are_written() {
    let (table, http, start) = (AffinityTable::with_capacity(1_000), scope("http"), Instant::now());
    (0..500).for_each(|number| table.record(http, client(number), endpoint(1), TIMEOUT, start));
    let later = start + TIMEOUT;
    (1000..1300).for_each(|number| table.record(http, client(number), endpoint(1), TIMEOUT, later));
    assert_eq!(table.len(), 300);
}

#[test]
fn expired_records_leave_even_if_only_known_clients_return() {
    let (table, http, start) = (AffinityTable::with_capacity(1_000), scope("http"), Instant::now());
    (0..500).for_each(|number| table.record(http, client(number), endpoint(1), TIMEOUT, start));
    let later = start + Duration::from_secs(9);
    assert_eq!(renew(&table, http, 7, later), Some(endpoint(1)));
    for _ in 0..500 {
        assert_eq!(renew(&table, http, 7, start + TIMEOUT), Some(endpoint(1)));
    }
    assert_eq!(table.len(), 1);
}

#[test]
fn a_full_table_stays_at_its_bound_and_keeps_the_youngest() {
    let (table, http, start) = (AffinityTable::with_capacity(1_000), scope("http"), Instant::now());
    for number in 0..10_000 {
        let now = start + Duration::from_micros(u64::from(number));
        table.record(http, client(number), endpoint(1), TIMEOUT, now);
        assert!(table.len() <= 1_000);
        assert_eq!(
            table.peek(http, client(number), TIMEOUT, now),
            Some((endpoint(1), TIMEOUT)),
            "the newest is always kept"
        );
    }
    let youngest =
        (9_500..10_000).filter(|&number| table.peek(http, client(number), TIMEOUT, start).is_some());
    assert!(youngest.count() > 350);
}

/// Whatever the timeouts: those of the flood outlast the others.
#[test]
fn a_flood_of_one_scope_leaves_the_records_of_others() {
    const EACH: u32 = 150;
    let (table, start) = (AffinityTable::with_capacity(1_000), Instant::now());
    let others = [scope("http"), scope("https")];
    for other in others {
        (0..EACH).for_each(|number| table.record(other, client(number), endpoint(1), TIMEOUT, start));
    }
    for number in 0..100_000 {
        let now = start + Duration::from_micros(u64::from(number));
        table.record(scope("flood"), client(number), endpoint(1), 1000 * TIMEOUT, now);
    }
    let left = |other| (0..EACH).filter(|&number| renew(&table, other, number, start).is_some()).count();
    assert_eq!(others.map(left), [EACH as usize; 2]);
    // A scope that comes later gets as much as it needs, too.
    (0..EACH).for_each(|number| table.record(scope("late"), client(number), endpoint(1), TIMEOUT, start));
    assert_eq!([others[0], others[1], scope("late")].map(left), [EACH as usize; 3]);
}

/// No scope has half of the records.
#[test]
fn scopes_that_fill_the_table_together_get_the_same() {
    let (table, now) = (AffinityTable::with_capacity(1_000), Instant::now());
    let scopes: Vec<Scope> = (0..10).map(|number| scope(&number.to_string())).collect();
    for number in 0..1_000 {
        let of_scope = |index: usize| (0..1 + 2 * index).map(move |copy| (index, 19 * number + copy as u32));
        for (index, from) in (0..scopes.len()).flat_map(of_scope) {
            table.record(scopes[index], client(from), endpoint(1), TIMEOUT, now);
        }
    }
    for scope in scopes {
        let left = (0..20_000).filter(|&from| table.peek(scope, client(from), TIMEOUT, now).is_some());
        let left = left.count();
        assert!((80..=120).contains(&left), "{left}");
    }
}

#[test]
fn all_shards_together_stay_at_the_bound() {
    for bound in [0, 1, 5, 5_000, 100_000] {
        let table = AffinityTable::with_capacity(bound);
        let now = Instant::now();
        (0..120_000).for_each(|number| table.record(scope(""), client(number), endpoint(1), TIMEOUT, now));
        let bound = bound.max(1);
        assert!(table.len() <= bound && table.len() >= bound * 9 / 10, "{} of {bound}", table.len());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Record { client: u32, endpoint: u32 },
    Renew { client: u32, usable: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1u64..6).prop_map(Step::Pass),
        (0u32..4, 0u32..3).prop_map(|(client, endpoint)| Step::Record { client, endpoint }),
        (0u32..4, 0u32..3).prop_map(|(client, usable)| Step::Renew { client, usable }),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn below_its_bound_the_table_is_a_map_with_timeouts(steps in steps()) {
        let (table, http, mut now) = (AffinityTable::with_capacity(100), scope("http"), Instant::now());
        let mut model: HashMap<u32, (u32, Instant)> = HashMap::new();
        for step in steps {
            match step {
                Step::Pass(seconds) => now += Duration::from_secs(seconds),
                Step::Record { client: from, endpoint: to } => {
                    table.record(http, client(from), endpoint(to), TIMEOUT, now);
                    model.insert(from, (to, now));
                }
                Step::Renew { client: from, usable } => {
                    let got = table.renew(http, client(from), TIMEOUT, now, |to| (to == endpoint(usable)).then_some(to));
                    let wanted = model.get_mut(&from).filter(|(to, used)| *to == usable && now < *used + TIMEOUT);
                    prop_assert_eq!(got, wanted.as_ref().map(|record| endpoint(record.0)));
                    wanted.into_iter().for_each(|record| record.1 = now);
                }
            }
        }
    }
}
