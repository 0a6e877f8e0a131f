//! Many gateways, many addresses: what moves when one of them dies, how soon, and what the heartbeats cost.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failover::spread;
use crate::scale::by_length;
use crate::segment::{Segment, Shape, answering};
use crate::support::patience::{eventually_within, let_pass, patience};

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
    let parts: Vec<Vec<_>> = addresses.chunks(addresses.len().div_ceil(16)).map(<[_]>::to_vec).collect();
    let answered = parts.into_iter().map(|part| {
        segment.client.spawn(move || {
            let first = |ip| loop {
                if answering(ip).is_ok() {
                    return killed.elapsed();
                }
            };
            part.into_iter().map(first).collect::<Vec<Duration>>()
        })
    });
    let answered: Vec<_> = answered.collect();
    let times: Vec<Duration> = answered.into_iter().flat_map(|it| it.join().expect("it ends")).collect();
    let after = owners(&segment, 1);
    let moved = before.iter().filter(|(ip, owner)| after.get(*ip) != Some(*owner)).count();
    println!(
        "{} of {count} addresses were the dead gateway's, of {gateways}; after its death each answered elsewhere: {}; {moved} moved in all",
        addresses.len(),
        spread(times)
    );
    // Its own share, and little else.
    assert!(moved <= addresses.len() + count / 10, "{moved}");
}

/// Room for the neighbours of all gateways, until it is dropped. Namespaces share one table of 1,024 (`gc_thresh3`, net/core/neighbour.c), and 50 gateways
/// have 2,450: without room most heartbeats are lost, and the rest of the time goes into asking for addresses.
struct Neighbours(Vec<(PathBuf, String)>);

impl Neighbours {
    fn of(gateways: u8) -> Self {
        let needed = 2 * u32::from(gateways) * u32::from(gateways);
        let limits = ["gc_thresh1", "gc_thresh2", "gc_thresh3"].into_iter().filter_map(|name| {
            let path = Path::new("/proc/sys/net/ipv4/neigh/default").join(name);
            let before = fs::read_to_string(&path).expect("the kernel has neighbours");
            let enough = before.trim().parse::<u32>().is_ok_and(|limit| limit >= needed);
            (!enough).then_some((path, before))
        });
        // The short form does not need them, and other tests run beside it.
        let limits = if needed > 1_000 { limits.collect() } else { Vec::new() };
        // A threshold must not be above the next one.
        let raised = Self(limits);
        raised.0.iter().rev().for_each(|(path, _)| {
            fs::write(path, needed.to_string()).expect("root may change the limits of neighbours");
        });
        raised
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.0.iter().for_each(|(path, before)| fs::write(path, before).unwrap_or_default());
    }
}

#[test]
fn heartbeats_cost_little() {
    let (gateways, time) = by_length((4, 2), (50, 10));
    let _neighbours = Neighbours::of(gateways);
    let segment = Segment::running(Shape { gateways, announce: "holdDown: 5s", ..Shape::default() });
    let before: Vec<Duration> =
        segment.numbers().into_iter().map(|number| announcing_time(&segment, number)).collect();
    let_pass(Duration::from_secs(time));
    let spent = segment
        .numbers()
        .into_iter()
        .zip(before)
        .map(|(number, before)| announcing_time(&segment, number) - before);
    let spent: Vec<Duration> = spent.map(|spent| spent / u32::try_from(time).expect("few seconds")).collect();
    println!(
        "CPU time that a gateway's announcer takes in a second, with {gateways} gateways: {}",
        spread(spent)
    );
    let refused: f64 = segment
        .numbers()
        .into_iter()
        .map(|number| segment.metric(number, "sheave_announce_heartbeats_total{event=\"refused\"}"))
        .sum();
    assert_eq!(refused, 0.0);
}

/// The processor time of the thread that announces (proc(5): `utime` and `stime`, in hundredths of a second).
fn announcing_time(segment: &Segment, number: u8) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", segment.process_id(number))).expect("it runs");
    let stat = tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .find(|it| it.contains("(announce)"));
    let stat = stat.expect("a thread announces");
    let fields: Vec<i64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|it| it.parse().ok())
        .collect();
    // Without the state, which is no number, they are the 10th and 11th.
    Duration::from_millis(u64::try_from(fields[10] + fields[11]).expect("it counts up") * 10)
}
