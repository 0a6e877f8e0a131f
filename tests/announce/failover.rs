//! Failover: gateways die, hang or lose the others, and somebody else answers.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::figures::{mark, percentile, spread};
use crate::segment::{Segment, Shape, answering, service_address};
use crate::support::host::Host;
use crate::support::length::by_length;
use crate::support::patience::{eventually, eventually_within, let_pass, patience};
use crate::support::world::Family;
use crate::watch::AddressWatch;

/// A client that connects again and again, and notes when it was answered, and by whom.
struct Prober {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Instant, io::Result<u8>)>>,
}

impl Prober {
    fn start(client: &Host, address: IpAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = client.spawn(move || {
            let mut answers = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let answer = answering(address);
                answers.push((Instant::now(), answer));
                let_pass(Duration::from_millis(5));
            }
            answers
        });
        Self { stop, thread }
    }

    fn finish(self) -> Vec<(Instant, io::Result<u8>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("probes do not panic")
    }
}

/// The longest time between two answers in a row.
fn longest_gap(answers: &[(Instant, io::Result<u8>)]) -> Duration {
    let good: Vec<Instant> = answers.iter().filter(|(_, it)| it.is_ok()).map(|(at, _)| *at).collect();
    good.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(Duration::MAX)
}

#[test]
fn another_gateway_answers_soon_after_the_owner_was_killed() {
    for family in Family::BOTH {
        let mut segment = Segment::running(Shape::default());
        let mut gaps = Vec::new();
        for _ in 0..by_length(3, 50) {
            let owner = segment.wait_for_owner(family, 1);
            let prober = Prober::start(&segment.client, service_address(family, 1));
            let_pass(Duration::from_millis(200));
            segment.kill(owner);
            let next = eventually("another one answers", || match segment.owner(family, 1) {
                Ok(next) if next != owner => Ok(next),
                other => Err(format!("{other:?}")),
            });
            let_pass(Duration::from_millis(300));
            let answers = prober.finish();
            gaps.push(longest_gap(&answers));
            assert_eq!(answers.last().map(|(_, it)| it.as_ref().ok().copied()), Some(Some(next)));
            segment.forgive(owner);
            segment.start(owner);
            segment.wait_until_all_eligible();
        }
        println!("{family}: from the last answer before a kill to the first after it: {}", spread(&gaps));
        let name = format!("{family}: p99 of the time without an answer after SIGKILL");
        mark(&name, Duration::from_secs(1), percentile(&gaps, 99));
    }
}

#[test]
fn a_gateway_that_crashes_again_and_again_waits_longer_each_time() {
    let mut segment = Segment::running(Shape { gateways: 2, ..Shape::default() });
    // The hold-down in milliseconds, and whether the next loss doubles it. On a busy machine a gateway may lose the others as well.
    let wait_for = |segment: &Segment, least: u64, doubles: bool| {
        eventually(&format!("the hold-down is {least} ms or longer"), || {
            let text = fs::read_to_string(segment.hold_down_file(1)).unwrap_or_default();
            let mut lines = text.lines().skip(1);
            let time = lines.next().and_then(|time| time.parse::<u64>().ok()).ok_or_else(|| text.clone())?;
            let doubled = lines.next() == Some("true");
            if time >= least && (doubled || !doubles) { Ok(()) } else { Err(text.clone()) }
        });
    };
    wait_for(&segment, 1000, false);
    for least in [1000, 2000, 4000] {
        segment.kill(1);
        segment.start(1);
        wait_for(&segment, least, true);
    }
    fs::remove_file(segment.hold_down_file(1)).expect("it is there");
    segment.upgrade(1);
    segment.wait_until_all_eligible();
    wait_for(&segment, 4000, true);
    segment.signal(1, Signal::SIGTERM);
    segment.wait_for_end(1);
    assert!(!segment.hold_down_file(1).exists(), "it has left, and was not lost");
}

#[test]
fn a_gateway_that_hangs_is_relieved_and_does_not_return_with_what_it_had() {
    let segment = Segment::running(Shape::default());
    let family = Family::V4;
    let owner = segment.wait_for_owner(family, 1);
    segment.signal(owner, Signal::SIGSTOP);
    let next = eventually("another one answers", || match segment.owner(family, 1) {
        Ok(next) if next != owner => Ok(next),
        other => Err(format!("{other:?}")),
    });
    eventually("the kernel takes the address from the one that hangs", || {
        let holders = segment.holders(family, 1);
        if holders == [next] { Ok(()) } else { Err(format!("{holders:?}")) }
    });
    segment.signal(owner, Signal::SIGCONT);
    for _ in 0..20 {
        assert_eq!(segment.wait_for_owner(family, 1), next, "it waits before it owns anything");
    }
    segment.wait_until_all_eligible();
    eventually("it is back where it was", || match segment.owner(family, 1) {
        Ok(back) if back == owner && segment.holders(family, 1) == [owner] => Ok(()),
        other => Err(format!("{other:?} {:?}", segment.holders(family, 1))),
    });
}

#[test]
fn a_gateway_that_loses_all_heartbeats_gives_up_what_others_take() {
    // The hold-down doubles with each split that meets the same gateway.
    let shape = Shape { services: 4, announce: "holdDown: 500ms", ..Shape::default() };
    let segment = Segment::running(shape);
    let of_services = |ip: IpAddr| {
        Family::BOTH.into_iter().any(|family| (1..=4).any(|it| service_address(family, it) == ip))
    };
    let mut overlaps = Vec::new();
    for split in 0..by_length(2, 20) {
        let cut = 1 + split % shape.gateways;
        let watch = AddressWatch::start(&segment);
        assert!(watch.has_some(cut, of_services), "there is something to lose");
        // Heartbeats alone: both sides stay on the segment, where two owners would be seen.
        for number in segment.numbers() {
            let others = if number == cut {
                "udp dport 9846"
            } else {
                &format!("ip saddr 10.5.1.{cut} udp dport 9846")
            };
            segment.drop_on(number, others);
        }
        eventually("the one that is cut off knows", || {
            let view = segment.view(cut);
            if view["state"] == "minority" { Ok(()) } else { Err(view.to_string()) }
        });
        for family in Family::BOTH {
            for service in 1..=4 {
                // Within a second of the start the others probe first, and leave the address where it is.
                eventually("one of them answers", || {
                    let holders = segment.holders(family, service);
                    match segment.owner(family, service) {
                        Ok(owner) if holders == [owner] => Ok(()),
                        other => Err(format!("{other:?}, of {holders:?}")),
                    }
                });
            }
        }
        segment.numbers().into_iter().for_each(|number| segment.accept_on(number));
        segment.wait_until_all_eligible();
        segment.wait_until_owned();
        overlaps.push(watch.longest_overlap(of_services));
    }
    println!("two gateways had an address after a split: {}", spread(&overlaps));
    mark("two owners after a split", Duration::from_millis(350), percentile(&overlaps, 100));
}

/// It answers ARP all the same.
#[test]
fn one_of_two_goes_on_by_a_router_that_ignores_pings() {
    let mut segment = Segment::new(Shape { gateways: 2, ..Shape::default() });
    segment.server.sysctl("ipv4/icmp_echo_ignore_all", "1");
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    let owner = segment.wait_for_owner(Family::V4, 1);
    segment.kill(owner);
    let next = segment.wait_for_owner(Family::V4, 1);
    assert_ne!(next, owner);
    assert_eq!(segment.view(next)["tieBreaker"]["reachable"], true);
    assert_eq!(segment.metric(next, "sheave_announce_tie_undecided"), 0.0);
}

/// It is told of before it is needed.
#[test]
fn a_tie_breaker_that_does_not_answer_is_told_of() {
    let segment = Segment::running(Shape { gateways: 2, ..Shape::default() });
    segment.server.ip(&["addr del 10.5.0.1/16 dev eth0".to_owned()]);
    eventually_within(patience(20.0), "it is told of", || {
        let warnings = segment.view(1)["warnings"].to_string();
        let told = warnings.contains("10.5.0.1 (announce.tieBreaker) has not answered for 10s");
        let counted = segment.metric(1, "sheave_announce_tie_undecided");
        if told && counted == 1.0 { Ok(()) } else { Err(format!("{warnings}, {counted}")) }
    });
}

#[test]
fn the_last_gateway_goes_on_alone() {
    let mut segment = Segment::running(Shape { services: 4, ..Shape::default() });
    let mut gaps = Vec::new();
    for apart in [0, 2] {
        let last = segment.wait_for_owner(Family::V4, 1);
        let others: Vec<u8> = segment.numbers().into_iter().filter(|number| *number != last).collect();
        let lost = (1..=4).map(|it| (it, segment.wait_for_owner(Family::V4, it))).find(|(_, it)| *it != last);
        let prober =
            lost.map(|(service, _)| Prober::start(&segment.client, service_address(Family::V4, service)));
        let_pass(Duration::from_millis(200));
        for number in &others {
            segment.kill(*number);
            let_pass(Duration::from_secs(apart));
        }
        for family in Family::BOTH {
            for service in 1..=4 {
                eventually("the last one answers", || match segment.owner(family, service) {
                    Ok(owner) if owner == last => Ok(()),
                    other => Err(format!("{other:?}")),
                });
            }
        }
        let_pass(Duration::from_millis(300));
        gaps.extend(prober.map(|prober| longest_gap(&prober.finish())));
        let view = segment.view(last);
        assert_eq!(view["state"], "minority", "{view}");
        for number in others {
            segment.forgive(number);
            segment.start(number);
        }
        segment.wait_until_all_eligible();
        segment.wait_until_owned();
    }
    println!("without an answer when all others were killed: {}", spread(&gaps));
}

#[test]
fn one_of_two_goes_on_by_the_tie_breaker() {
    let mut segment = Segment::running(Shape { gateways: 2, ..Shape::default() });
    let owner = segment.wait_for_owner(Family::V4, 1);
    segment.kill(owner);
    let next = segment.wait_for_owner(Family::V4, 1);
    assert_ne!(next, owner);
    let view = segment.view(next);
    assert_eq!(
        (&view["tieBreaker"]["address"], &view["tieBreaker"]["reachable"]),
        (&"10.5.0.1".into(), &true.into())
    );
    // Neither the other nor the router: it is the one that is cut off.
    segment.server.ip(&["addr del 10.5.0.1/16 dev eth0".to_owned()]);
    eventually("it gives up the address", || {
        let holders = segment.holders(Family::V4, 1);
        if holders.is_empty() { Ok(()) } else { Err(format!("{holders:?}")) }
    });
}
