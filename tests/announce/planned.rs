//! Planned moves: a gateway that ends, is upgraded or joins, and new clients that notice nothing.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::segment::{PORT, Segment, Shape, service_address};
use crate::support::load::Load;
use crate::support::patience::{eventually, let_pass, patience};
use crate::support::tcp;
use crate::support::world::Family;

/// Clients that connect anew all the time. None may be refused. A connection that is open when its address moves is lost, since the new
/// owner knows nothing of it: whoever sends is reset, and whoever only waits hears nothing. These are counted.
pub(crate) fn new_clients(segment: &Segment, services: u8) -> (Load, Arc<AtomicU64>) {
    let lost = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&lost);
    let load = Load::start(&segment.client, 4, move |thread| {
        let number = 1 + u8::try_from(thread).expect("few threads") % services;
        let family = Family::BOTH[thread / 2 % 2];
        let answer =
            tcp::connect(SocketAddr::new(service_address(family, number), PORT)).and_then(|stream| {
                stream.set_read_timeout(Some(patience(5.0)))?;
                tcp::ask_on(stream)
            });
        count_lost(answer, &[io::ErrorKind::ConnectionReset, io::ErrorKind::WouldBlock], &counted)
    });
    (load, lost)
}

/// Counts a connection that ends in one of these ways as one that was open, and lost. A reset means that it was: until then the kernel
/// reports ECONNREFUSED. One that comes within the handshake's last round trip already ends the call of connect(2).
pub(crate) fn count_lost<T>(
    answer: io::Result<T>,
    ends: &[io::ErrorKind],
    lost: &AtomicU64,
) -> io::Result<()> {
    match answer {
        Err(error) if ends.contains(&error.kind()) => {
            lost.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        other => other.map(drop),
    }
}

#[test]
fn a_gateway_that_ends_hands_its_addresses_over_first() {
    gateways_end_and_come_back(3);
}

/// The other one counts when it is back, and must not take away the majority before it gives a lease.
#[test]
fn of_two_gateways_one_ends_and_comes_back_and_the_other_serves_on() {
    let segment = gateways_end_and_come_back(2);
    for number in segment.numbers() {
        let log = segment.log(number);
        assert!(!log.contains("it gives up its addresses"), "gw-{number}: {log}");
    }
}

fn gateways_end_and_come_back(gateways: u8) -> Segment {
    let shape =
        Shape { gateways, services: 4, config: "timeouts: {lameDuck: 2s, drain: 5s}", ..Shape::default() };
    let mut segment = Segment::running(shape);
    let (load, lost) = new_clients(&segment, 4);
    load.wait_for(50);
    for family in Family::BOTH {
        let owner = segment.wait_for_owner(family, 1);
        segment.signal(owner, Signal::SIGTERM);
        eventually("it has no address any more", || {
            let has = (1..=4).any(|number| segment.holders(family, number).contains(&owner));
            if has { Err("it has") } else { Ok(()) }
        });
        segment.wait_for_end(owner);
        load.wait_for(50);
        segment.start(owner);
        segment.wait_until_all_eligible();
        load.wait_for(50);
    }
    let done = load.expect_no_failure();
    let lost = lost.load(Ordering::Relaxed);
    println!(
        "{done} new connections while gateways ended and came back: none failed; {lost} were open in that moment, and lost"
    );
    segment
}

/// Under the policy Local only the gateway beside an endpoint may have the address. The endpoint goes from one node to another at once, and
/// gateways learn of it one after the other. Meanwhile nobody can serve the address: whoever connects then repeats its SYN, a second later, and
/// is served. None is refused, and none runs into its timeout.
#[test]
fn under_the_policy_local_an_address_follows_its_only_endpoint() {
    let mut segment = Segment::new(Shape::default());
    segment.set_local_endpoint(1);
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    segment.wait_for_holder(1, 1);
    let (load, lost) = new_clients(&segment, 1);
    load.wait_for(50);
    let moves = [2, 3, 1];
    for number in moves {
        segment.set_local_endpoint(number);
        segment.wait_for_holder(1, number);
        load.wait_for(50);
    }
    let done = load.expect_no_failure();
    let lost = lost.load(Ordering::Relaxed);
    assert!(
        lost <= moves.len() as u64 * 4,
        "each move may catch one connection of each client; {lost} were lost"
    );
    println!(
        "{done} new connections while an endpoint moved: none failed; {lost} were open in that moment, and lost"
    );
}

/// All that a gateway's process has announced. One that stood still announces the same again.
fn announced_by(segment: &Segment, number: u8) -> BTreeSet<String> {
    let log = segment.log(number);
    let lists = log.lines().filter_map(|line| line.split_once("INFO announcing addresses="));
    lists.flat_map(|(_, list)| list.split(", ")).map(str::to_owned).collect()
}

#[test]
fn an_upgrade_moves_no_address() {
    let mut segment = Segment::running(Shape { services: 4, ..Shape::default() });
    let (load, lost) = new_clients(&segment, 4);
    let services = || Family::BOTH.into_iter().flat_map(|family| (1..=4).map(move |number| (family, number)));
    let owners = |segment: &Segment| -> Vec<u8> {
        services().map(|(family, number)| segment.wait_for_owner(family, number)).collect()
    };
    let before = owners(&segment);
    let owned_by = |gateway: u8| -> BTreeSet<String> {
        let owned = services().zip(&before).filter(|(_, owner)| **owner == gateway);
        owned.map(|((family, number), _)| service_address(family, number).to_string()).collect()
    };
    for number in segment.numbers() {
        let others: Vec<u8> = segment.numbers().into_iter().filter(|&other| other != number).collect();
        let announced: Vec<_> = others.iter().map(|&other| announced_by(&segment, other)).collect();
        segment.upgrade(number);
        segment.wait_until_all_eligible();
        assert_eq!(owners(&segment), before);
        for (&other, before) in others.iter().zip(&announced) {
            let new = &announced_by(&segment, other) - before;
            assert!(new.is_subset(&owned_by(other)), "gw-{other} took {new:?} meanwhile");
        }
    }
    load.expect_no_failure();
    assert_eq!(lost.load(Ordering::Relaxed), 0);
}

#[test]
fn gateways_that_all_end_together_serve_on_until_they_drain() {
    // Longer than it takes to look who has which address, on a machine that is busy.
    let config = "timeouts: {lameDuck: 8s}";
    let mut segment = Segment::running(Shape { services: 4, config, ..Shape::default() });
    let (load, _) = new_clients(&segment, 4);
    load.wait_for(50);
    segment.numbers().into_iter().for_each(|number| segment.signal(number, Signal::SIGTERM));
    for number in segment.numbers() {
        eventually("it is about to drain", || {
            let log = segment.log(number);
            if log.contains("not ready any more") { Ok(()) } else { Err(log) }
        });
    }
    // All have told each other that they leave; a gateway whose addresses all go to others has ended within less.
    let_pass(Duration::from_secs(2));
    let served = load.expect_no_failure();
    for service in 1..=4 {
        assert_eq!(segment.holders(Family::V4, service).len(), 1, "Service {service} after {served} clients");
    }
    segment.numbers().into_iter().for_each(|number| segment.wait_for_end(number));
    for number in segment.numbers() {
        assert!(
            (1..=4).all(|it| !segment.holders(Family::V4, it).contains(&number)),
            "gw-{number} left nothing"
        );
    }
}

#[test]
fn the_only_gateway_serves_on_until_it_drains() {
    let config = "timeouts: {lameDuck: 1s}";
    let mut segment = Segment::running(Shape { gateways: 1, config, ..Shape::default() });
    segment.signal(1, Signal::SIGTERM);
    eventually("it is about to drain", || {
        let log = segment.log(1);
        if log.contains("not ready any more") { Ok(()) } else { Err(log) }
    });
    assert_eq!((segment.holders(Family::V4, 1), segment.wait_for_owner(Family::V4, 1)), (vec![1], 1));
    segment.wait_for_end(1);
    assert!(segment.holders(Family::V4, 1).is_empty(), "nothing is left behind");
}
