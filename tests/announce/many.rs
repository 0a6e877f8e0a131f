//! Many gateways, many addresses: what moves when one of them dies, and how soon.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::figures::{mark, percentile, spread};
use crate::segment::{Segment, Shape, answering};
use crate::support::length::by_length;
use crate::support::patience::{eventually_within, let_pass, patience};

/// Between two probes of an address.
const PAUSE: Duration = Duration::from_millis(20);

/// The addresses with their owners, as a gateway computes them.
fn owners(segment: &Segment, number: u8) -> BTreeMap<String, String> {
    let view = segment.view(number);
    let addresses = view["addresses"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    addresses.iter().map(|it| (text(&it["address"]), text(&it["owner"]))).collect()
}

#[test]
fn all_addresses_of_a_gateway_that_dies_answer_elsewhere() {
    let (gateways, services) = by_length((4, 1), (10, 16));
    let shape = Shape { gateways, services: 1, many: services, ..Shape::default() };
    let mut segment = Segment::running(shape);
    let every = |segment: &Segment, number: u8, count: usize| {
        eventually_within(patience(60.0), "all are assigned", || {
            let owners = owners(segment, number);
            if owners.len() >= count && owners.values().all(|owner| !owner.is_empty()) {
                Ok(())
            } else {
                Err(owners.len())
            }
        });
    };
    let count = usize::from(services) * 64;
    for number in segment.numbers() {
        every(&segment, number, count);
    }
    let_pass(Duration::from_secs(1));
    let dead = gateways;
    let before = owners(&segment, 1);
    let of_dead: Vec<String> = before
        .iter()
        .filter(|(_, owner)| **owner == format!("gw-{dead}"))
        .map(|(ip, _)| ip.clone())
        .collect();
    let addresses: Vec<_> = of_dead.iter().filter_map(|ip| ip.parse().ok()).collect();
    assert!(addresses.len() * usize::from(gateways) > count / 2, "it has its share");
    segment.kill(dead);
    let killed = Instant::now();
    // One thread each, or an address would wait for those before it. The dead one's kernel refuses at once.
    let answered = addresses.into_iter().map(|ip| {
        segment.client.spawn(move || {
            while answering(ip).is_err() {
                let_pass(PAUSE);
            }
            killed.elapsed()
        })
    });
    let answered: Vec<_> = answered.collect();
    let times: Vec<Duration> = answered.into_iter().map(|it| it.join().expect("it ends")).collect();
    let after = owners(&segment, 1);
    let moved = before.iter().filter(|(ip, owner)| after.get(*ip) != Some(*owner)).count();
    println!(
        "{} of {count} addresses were the dead gateway's, of {gateways}; after its death each answered elsewhere: {}; {moved} moved in all",
        times.len(),
        spread(&times)
    );
    mark("all addresses of a dead gateway elsewhere", Duration::from_millis(1500), percentile(&times, 100));
    // Its own share, and little else.
    assert!(moved <= times.len() + count / 10, "{moved}");
}
