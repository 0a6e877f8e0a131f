//! Rules of a membership, one at a time. How they work together: `tests/simulation`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use super::quorum::quorum_until;
use super::*;

const KEY: &str = "a key of some length";
const PORT: u16 = 7946;

static INCARNATION: AtomicU64 = AtomicU64::new(1);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn address(name: &str) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, *name.as_bytes().last().unwrap()).into()
}

fn options(name: &str) -> MembershipOptions {
    MembershipOptions::new(Arc::from(name), Arc::from("fleet"), PORT)
}

fn member(name: &str, ready: bool) -> Member {
    Member { node: Arc::from(name), addresses: vec![address(name)], ready }
}

fn start(options: MembershipOptions, key: &str, members: &[&str], now: Instant) -> Membership {
    let incarnation = INCARNATION.fetch_add(1, Ordering::Relaxed);
    let keys = KeyRing::parse([key]).unwrap();
    let mut membership = Membership::new(options, keys, Start::Fresh(None), incarnation, now).unwrap();
    membership.set_members(members.iter().map(|name| member(name, true)).collect(), now);
    membership
}

/// The heartbeat that is due, or the next one.
fn heartbeat(membership: &mut Membership, now: Instant) -> Vec<u8> {
    membership.urgent = true;
    membership.last_sent = None;
    membership.poll(now).send.unwrap().bytes
}

fn from(name: &str) -> SocketAddr {
    SocketAddr::new(address(name), PORT)
}

/// Two gateways that have heard each other, and what the second sent meanwhile.
fn pair(now: Instant) -> (Membership, Membership, Vec<Vec<u8>>) {
    let mut a = start(options("a"), KEY, &["a", "b"], now);
    let mut b = start(options("b"), KEY, &["a", "b"], now);
    let mut sent = Vec::new();
    for _ in 0..4 {
        let bytes = heartbeat(&mut b, now);
        let _done = a.receive(from("b"), &bytes, now);
        sent.push(bytes);
        let _done = b.receive(from("a"), &heartbeat(&mut a, now), now);
    }
    (a, b, sent)
}

fn report(membership: &Membership, now: Instant) -> PeerReport {
    membership.peers(now).next().unwrap()
}

/// How long the other one will surely not believe a gateway dead.
fn lease_left(membership: &Membership, now: Instant) -> Option<Duration> {
    membership.peers[0].lease_until.map(|until| until.saturating_duration_since(now))
}

#[test]
fn a_process_that_stands_still_again_and_again_takes_its_own_delay_for_nobody_elses() {
    let mut now = Instant::now();
    let (mut a, mut b, _) = pair(now);
    for _ in 0..3 {
        for _ in 0..30 {
            now += ms(100);
            let _done = b.receive(from("a"), &heartbeat(&mut a, now), now);
            let _done = a.receive(from("b"), &heartbeat(&mut b, now), now);
        }
        now += ms(50);
        let _done = b.receive(from("a"), &heartbeat(&mut a, now), now);
        let waiting = heartbeat(&mut b, now);
        for _ in 0..10 {
            now += ms(100);
            let _alone = b.poll(now);
        }
        let _done = a.receive(from("b"), &waiting, now);
        assert!(a.poll(now).fenced, "it stood still");
        // It tells that with the next one.
        let _told = a.poll(now);
        assert_eq!(a.fail_after(), ms(350));
    }
}

#[test]
fn two_round_trips_give_a_lease() {
    let now = Instant::now();
    let mut a = start(options("a"), KEY, &["a", "b"], now);
    let mut b = start(options("b"), KEY, &["a", "b"], now);
    let send = |from_node: &mut Membership, to: &mut Membership, name| {
        to.receive(from(name), &heartbeat(from_node, now), now)
    };
    assert_eq!(send(&mut a, &mut b, "a"), ReceiveOutcome::Unproven);
    assert_eq!(send(&mut b, &mut a, "b"), ReceiveOutcome::Accepted);
    assert_eq!(lease_left(&a, now), None, "b has not heard a yet");
    assert!(!report(&b, now).heard);
    assert_eq!(send(&mut a, &mut b, "a"), ReceiveOutcome::Accepted);
    assert_eq!(send(&mut b, &mut a, "b"), ReceiveOutcome::Accepted);
    // A sixteenth less than 350 ms, for clocks that run apart.
    let lease = Duration::from_micros(328_125);
    assert_eq!(lease_left(&a, now), Some(lease));
    assert!(a.poll(now).unfenced);
    assert_eq!(a.view().quorum, Quorum { votes: 2, members: 2, tie_breaker: false });
    assert!(a.poll(now + lease - ms(1)).send.is_some() && !a.view().fenced);
    let late = a.poll(now + lease);
    assert!(late.fenced && late.send.is_none());
    assert!(a.poll(now + lease + a.options.gap()).send.is_some(), "the next one reports it");
}

#[test]
fn what_is_replayed_keeps_nobody_alive() {
    let now = Instant::now();
    let (mut a, mut b, mut sent) = pair(now);
    sent.push(heartbeat(&mut b, now));
    // What a process before it may have promised is over, too.
    let later = now + ms(1_500);
    for step in 1..=5 {
        a.dirty = true;
        let _done = a.poll(now + ms(300) * step);
    }
    assert!(!report(&a, later).heard);
    for bytes in &sent {
        let outcome = a.receive(from("b"), bytes, later);
        assert!(matches!(outcome, ReceiveOutcome::Replayed | ReceiveOutcome::Unproven), "{outcome:?}");
    }
    let _done = a.poll(later);
    assert!(!report(&a, later).heard);
    // The same to another process on the same node, which never sent what they echo.
    let mut again = start(options("a"), KEY, &["a", "b"], now);
    for bytes in &sent {
        assert_ne!(again.receive(from("b"), bytes, now), ReceiveOutcome::Accepted);
    }
}

#[test]
fn what_was_shown_before_is_no_agreement() {
    let now = Instant::now();
    let (mut a, mut b, _) = pair(now);
    let applied = Applied { view: 1, assignment: 2 };
    b.set_applied(applied, now);
    assert_eq!(a.receive(from("b"), &heartbeat(&mut b, now), now), ReceiveOutcome::Accepted);
    let later = now + ms(1);
    a.set_applied(applied, later);
    let agrees = |a: &Membership| (a.agrees("b", 1, later), a.has_released("b", 2, later));
    assert_eq!(agrees(&a), (false, false), "b may have followed others since");
    let done = b.receive(from("a"), &heartbeat(&mut a, later), later);
    assert_eq!(done, ReceiveOutcome::Accepted);
    assert_eq!(a.receive(from("b"), &heartbeat(&mut b, later), later), ReceiveOutcome::Accepted);
    assert_eq!(agrees(&a), (true, true));
    assert!(!a.agrees("b", 3, later) && !a.has_released("b", 3, later));
}

#[test]
fn each_refusal_has_its_counter() {
    let now = Instant::now();
    let (mut a, mut b, sent) = pair(now);
    let accepted = a.counters().of(ReceiveOutcome::Accepted);
    let good = heartbeat(&mut b, now);
    let version = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[4] += 1;
        bytes
    };
    let unsigned = heartbeat(&mut start(options("b"), "a key that is not known", &["a"], now), now);
    let mut foreign = options("b");
    foreign.fleet = Arc::from("another");
    let foreign = heartbeat(&mut start(foreign, KEY, &["a"], now), now);
    let own = heartbeat(&mut start(options("a"), KEY, &["b"], now), now);
    let fresh = heartbeat(&mut start(options("b"), KEY, &["a"], now), now);
    let mut receive = |bytes: &[u8]| a.receive(from("b"), bytes, now);
    assert_eq!(receive(&good), ReceiveOutcome::Accepted);
    assert_eq!(receive(&good), ReceiveOutcome::Replayed);
    assert_eq!(receive(sent.last().unwrap()), ReceiveOutcome::Replayed);
    assert_eq!(receive(&good[..good.len() - 1]), ReceiveOutcome::Unsigned);
    assert_eq!(receive(&unsigned), ReceiveOutcome::Unsigned);
    assert_eq!(receive(&version(&good)), ReceiveOutcome::Version);
    assert_eq!(receive(&foreign), ReceiveOutcome::ForeignFleet);
    assert_eq!(receive(&own), ReceiveOutcome::Own);
    assert_eq!(receive(&fresh), ReceiveOutcome::Unproven);
    assert_eq!(receive(b"SHVE"), ReceiveOutcome::Malformed);
    let counters = a.counters();
    assert_eq!(counters.of(ReceiveOutcome::Accepted) - accepted, 1);
    let counted = [ReceiveOutcome::Replayed, ReceiveOutcome::Unsigned, ReceiveOutcome::Version];
    assert_eq!(counted.map(|outcome| counters.of(outcome)), [2, 2, 1]);
    let counted = [ReceiveOutcome::ForeignFleet, ReceiveOutcome::Own, ReceiveOutcome::Malformed];
    assert_eq!(counted.map(|outcome| counters.of(outcome)), [1, 1, 1]);
}

#[test]
fn a_signed_body_that_is_malformed_is_refused() {
    let now = Instant::now();
    let (mut a, ..) = pair(now);
    let mut bytes = heartbeat(&mut a, now);
    bytes.truncate(40);
    a.keys.sign(&mut bytes);
    assert_eq!(a.receive(from("b"), &bytes, now), ReceiveOutcome::Malformed);
}

#[test]
fn who_is_not_ready_and_not_heard_does_not_count() {
    let now = Instant::now();
    let mut a = start(options("a"), KEY, &["a", "b", "c"], now);
    let members = |a: &mut Membership, b_ready, c_listed: bool| {
        let c = c_listed.then(|| member("c", true));
        a.set_members([member("b", b_ready)].into_iter().chain(c).collect(), now);
        let _done = a.poll(now);
        a.view().quorum.members
    };
    assert_eq!(members(&mut a, true, true), 3);
    assert_eq!(members(&mut a, false, true), 2);
    assert_eq!(members(&mut a, false, false), 1);
}

#[test]
fn after_a_standstill_the_silence_is_its_own() {
    let now = Instant::now();
    let (mut a, ..) = pair(now);
    let _done = a.poll(now);
    assert!(!a.view().fenced);
    let later = now + ms(5_000);
    let actions = a.poll(later);
    assert!(actions.fenced && actions.send.is_none());
    assert_eq!(a.counters().standstills, 1);
    assert!(report(&a, later).heard, "it did not listen");
    assert_eq!(lease_left(&a, later), None);
    let due = later + a.options.fail_after;
    a.dirty = true;
    let _done = a.poll(due);
    assert!(!report(&a, due).heard);
}

#[test]
fn an_upgrade_soon_after_a_start_promises_no_more_than_the_process_before() {
    let now = Instant::now();
    let (a, ..) = pair(now);
    assert_eq!(a.fail_after(), ms(350));
    let keys = KeyRing::parse([KEY]).unwrap();
    let next = Membership::new(options("a"), keys, Start::Continued(a.hand_over(now)), 1, now).unwrap();
    assert_eq!(next.fail_after(), ms(350));
}

/// Others went on without this gateway.
const WENT_ON: Others = Others { eligible: true, went_on: true, complete: true };

#[test]
fn the_hold_down_doubles_and_is_forgiven() {
    let now = Instant::now();
    let options = options("a");
    let mut standby = Standby::new(&options, Start::Fresh(None), now);
    let eligible_after = |standby: &mut Standby, now| {
        standby.unfence(Duration::ZERO, now);
        assert!(!standby.update(&options, WENT_ON, now + options.interval));
        let due = standby.next_due(&options, WENT_ON).unwrap();
        assert!(!standby.update(&options, WENT_ON, due - ms(1)) && standby.update(&options, WENT_ON, due));
        due - now
    };
    let seconds = |standby: &mut Standby| {
        let after = eligible_after(standby, now);
        standby.fence(now);
        after.as_secs()
    };
    let holds: Vec<u64> = (0..7).map(|_| seconds(&mut standby)).collect();
    assert_eq!(holds, [5, 5, 10, 20, 40, 60, 60]);
    standby.unfence(Duration::ZERO, now);
    standby.update(&options, WENT_ON, now + options.longest_hold_down * 2);
    standby.fence(now);
    assert_eq!(seconds(&mut standby), 5);
}

#[test]
fn a_process_after_one_that_was_lost_is_held_down_as_after_a_link_that_was() {
    let (now, options) = (Instant::now(), options("a"));
    let mut lost = None;
    let holds: Vec<u64> = (0..8)
        .map(|_| {
            let mut standby = Standby::new(&options, Start::Fresh(lost), now);
            standby.unfence(Duration::ZERO, now);
            standby.update(&options, WENT_ON, now + options.interval);
            lost = Some(standby.hold_down);
            standby.hold_down.time.as_secs()
        })
        .collect();
    assert_eq!(holds, [5, 5, 10, 20, 40, 60, 60, 60]);
    let mut standby = Standby::new(&options, Start::Fresh(lost), now);
    standby.unfence(Duration::ZERO, now);
    standby.update(&options, WENT_ON, now + options.longest_hold_down * 2);
    assert_eq!(standby.hold_down, HoldDown::new(&options), "forgiven");
    let foreign = HoldDown { time: Duration::MAX, doubles: true };
    assert_eq!(Standby::new(&options, Start::Fresh(Some(foreign)), now).hold_down.time.as_secs(), 60);
}

#[test]
fn until_when_leases_suffice() {
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let until = |leases: &[u64], members, tie: Option<u64>| {
        quorum_until(leases.iter().map(|lease| at(*lease)).collect(), members, tie.map(at))
    };
    assert_eq!(until(&[], 1, None), None);
    assert_eq!(until(&[3], 2, None), Some(at(3)));
    assert_eq!(until(&[3], 2, Some(9)), Some(at(9)));
    assert_eq!(until(&[5, 9], 3, None), Some(at(9)));
    assert_eq!(until(&[5, 9, 7], 4, None), Some(at(7)));
    assert_eq!(until(&[5, 9, 7], 4, Some(8)), Some(at(8)));
    assert_eq!(until(&[5, 9, 7], 4, Some(11)), Some(at(11)));
    assert_eq!(until(&[5], 5, Some(3)), Some(at(3)));
    assert_eq!(until(&[5], 5, None), None);
}

#[test]
fn wrong_options_are_refused() {
    let error = |change: fn(&mut MembershipOptions)| {
        let mut options = options("a");
        change(&mut options);
        let keys = KeyRing::parse([KEY]).unwrap();
        Membership::new(options, keys, Start::Fresh(None), 1, Instant::now()).unwrap_err()
    };
    assert_eq!(error(|options| options.node = Arc::from("")), OptionsError::NodeName(0));
    assert_eq!(error(|options| options.interval = ms(9)), OptionsError::Interval(ms(9)));
    assert_eq!(error(|options| options.fail_after = ms(299)), OptionsError::FailAfter(ms(299)));
    assert_eq!(error(|options| options.fail_after = ms(65_536)), OptionsError::FailAfter(ms(65_536)));
    assert_eq!(error(|options| options.hold_down = ms(349)), OptionsError::HoldDown(ms(349)));
}

#[test]
fn what_a_gateway_leaves_to_another_machine_is_remembered_beyond_its_death() {
    let now = Instant::now();
    let (mut a, mut b, _) = pair(now);
    let ip: IpAddr = "192.0.2.9".parse().unwrap();
    b.set_contested(&[ip]);
    assert_eq!(a.receive(from("b"), &heartbeat(&mut b, now), now), ReceiveOutcome::Accepted);
    // It gives the address up, for example because it leaves.
    b.set_contested(&[]);
    assert_eq!(a.receive(from("b"), &heartbeat(&mut b, now), now), ReceiveOutcome::Accepted);
    let minute = Duration::from_mins(1);
    for gateway in [&a, &b] {
        assert!(gateway.is_contested(ip, now + minute - ms(1)) && !gateway.is_contested(ip, now + minute));
        assert!(!gateway.is_contested("192.0.2.8".parse().unwrap(), now));
    }
    let many: Vec<IpAddr> = (0..100).map(|n| IpAddr::from([198, 51, 100, n])).collect();
    b.set_contested(&many);
    assert_eq!(a.receive(from("b"), &heartbeat(&mut b, now), now), ReceiveOutcome::Accepted);
    assert!(a.is_contested("192.0.2.8".parse().unwrap(), now));
}
