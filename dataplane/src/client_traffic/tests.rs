//! Tests of client networks, and of the entries that are kept when there are too many.

use std::collections::HashSet;
use std::net::IpAddr;

use proptest::prelude::*;
use sheave_model::test_util::frontend_addr;

use super::*;

fn prefix(text: &str) -> String {
    ClientPrefix::of(text.parse().unwrap()).to_string()
}

/// The `number`th network.
fn network(number: u32) -> ClientPrefix {
    ClientPrefix::of(IpAddr::from((number << 8).to_be_bytes()))
}

fn counts(opened: u64) -> ClientCounts {
    ClientCounts { opened, ..ClientCounts::default() }
}

#[test]
fn clients_are_in_networks() {
    for (ip, network) in [
        ("198.51.100.7", "198.51.100.0/24"),
        ("::ffff:198.51.100.255", "198.51.100.0/24"),
        ("255.255.255.255", "255.255.255.0/24"),
        ("0.0.0.1", "0.0.0.0/24"),
        ("::1", "::/56"),
        ("2001:db8:1:12ff:a::1", "2001:db8:1:1200::/56"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ff00::/56"),
    ] {
        assert_eq!(prefix(ip), network, "{ip}");
    }
    assert_ne!(ClientPrefix::of("::".parse().unwrap()), ClientPrefix::of("0.0.0.0".parse().unwrap()));
}

#[test]
fn those_with_much_stay_among_any_number_of_others() {
    let mut traffic = ClientTraffic::with_room(1000);
    for number in 0..1_000_000_u32 {
        // Ten networks have a hundredth each, and the others occur once.
        let client = if number % 10 == 0 { number / 10 % 10 } else { 10 + number };
        traffic.add(network(client), frontend_addr(1), counts(1));
    }
    let kept: HashSet<ClientPrefix> = traffic.iter().map(|(client, ..)| client).collect();
    assert!((0..10).all(|heavy| kept.contains(&network(heavy))));
    assert!(kept.len() <= 1000 && traffic.merged() > 800_000, "{}, {}", kept.len(), traffic.merged());
}

proptest! {
    #[test]
    fn nothing_is_lost_and_there_is_never_more_than_room(
        room in 1..20_usize,
        added in prop::collection::vec((0..40_u32, 0..5_u64, 0..100_000_u64), 0..200),
    ) {
        let mut parts = [ClientTraffic::with_room(room), ClientTraffic::with_room(room)];
        let mut sum = ClientCounts::default();
        for (at, (client, opened, client_bytes)) in added.into_iter().enumerate() {
            let counts = ClientCounts { open: 1, opened, client_bytes, endpoint_bytes: 2 };
            parts[at % 2].add(network(client), frontend_addr(client % 3), counts);
            sum += counts;
        }
        let mut together = ClientTraffic::with_room(2 * room);
        parts.iter().for_each(|part| together.merge(part));
        prop_assert!(parts.iter().all(|part| part.iter().count() <= room));
        prop_assert!(together.iter().count() <= 2 * room);
        let mut found = together.others();
        together.iter().for_each(|(_, _, counts)| found += counts);
        prop_assert_eq!(found, sum);
    }
}
