//! What heartbeats cost: the processor time of one gateway among many.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sheave_announce::{
    Applied, Datagram, KeyRing, Member, Membership, MembershipOptions, ReceiveOutcome, Start, assign,
};

use crate::figures::spread;
use crate::segment::{KEY, Segment, Shape, gateway_address};
use crate::support::length::by_length;
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::world::Family;

/// The port of heartbeats.
const PORT: u16 = 9846;

/// A gateway on a machine of its own: the others are played by one thread, which has them hear each other without a packet. So the time is not that of
/// fifty processes that take two cores and their caches from each other.
#[test]
fn one_gateway_among_many() {
    let (gateways, time) = by_length((4, 2), (50, 20));
    let mut segment =
        Segment::new(Shape { gateways, services: 0, announce: "holdDown: 5s", ..Shape::default() });
    let stop = Arc::new(AtomicBool::new(false));
    let played = played(&segment, gateways);
    let stopped = Arc::clone(&stop);
    let player = std::thread::spawn(move || play(played, &stopped));
    segment.start(1);
    eventually_within(patience(60.0), "all agree", || {
        let view = segment.try_view(1)?;
        let members = view["members"].as_array().cloned().unwrap_or_default();
        let agree = members.iter().filter(|it| it["state"] == "candidate" && it["agrees"] == true).count();
        if agree == usize::from(gateways) { Ok(()) } else { Err(view.to_string()) }
    });
    let before = announcing_time(&segment, 1);
    let_pass(Duration::from_secs(time));
    let spent = announcing_time(&segment, 1) - before;
    stop.store(true, Ordering::Relaxed);
    let outcomes = player.join().expect("it plays to the end");
    let percent = 100.0 * spent.as_secs_f64() / time as f64;
    println!("heartbeats of {gateways} gateways take {percent:.2} % of a core of one of them");
    assert_eq!(outcomes.refused, 0, "the others take all that it sends");
    assert!(outcomes.accepted > 10 * time, "it sends");
    assert_eq!(segment.metric(1, "sheave_announce_heartbeats_total{event=\"refused\"}"), 0.0);
}

/// Gateways of which only their heartbeats are there.
struct Played {
    at: SocketAddr,
    socket: UdpSocket,
    membership: Membership,
}

/// What became of the heartbeats of the real one.
#[derive(Default)]
struct Outcomes {
    accepted: u64,
    refused: u64,
}

/// All gateways but the first.
fn played(segment: &Segment, gateways: u8) -> Vec<Played> {
    let at = |number: u8| SocketAddr::new(gateway_address(Family::V4, number), PORT);
    let member = |number: u8| Member {
        node: format!("gw-{number}").into(),
        addresses: vec![at(number).ip()],
        ready: true,
    };
    let members: Vec<Member> = (1..=gateways).map(member).collect();
    let play = |number: u8| {
        let socket = segment.host(number).run(|| UdpSocket::bind(at(number))).expect("the port is free");
        socket.set_nonblocking(true).expect("a socket can be nonblocking");
        let fleet = "local sheave-system/sheave-gateways".into();
        let options = MembershipOptions::new(format!("gw-{number}").into(), fleet, PORT);
        let keys = KeyRing::parse([KEY]).expect("a key");
        let now = Instant::now();
        let mut membership =
            Membership::new(options, keys, Start::Fresh(None), number.into(), now).expect("good options");
        membership.set_members(members.clone(), now);
        Played { at: at(number), socket, membership }
    };
    (2..=gateways).map(play).collect()
}

fn play(mut all: Vec<Played>, stop: &AtomicBool) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut buffer = [0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        let mut among_them = Vec::new();
        for one in &mut all {
            while let Ok((length, from)) = one.socket.recv_from(&mut buffer) {
                match one.membership.receive(from, &buffer[..length], Instant::now()) {
                    ReceiveOutcome::Accepted => outcomes.accepted += 1,
                    // The first one of a process.
                    ReceiveOutcome::Unproven => {}
                    _ => outcomes.refused += 1,
                }
            }
            for datagram in one.conclude() {
                let (real, others): (Vec<_>, Vec<_>) =
                    datagram.to.into_iter().partition(|to| to.ip() == gateway_address(Family::V4, 1));
                real.iter().for_each(|to| drop(one.socket.send_to(&datagram.bytes, to)));
                among_them.push((one.at, others, datagram.bytes));
            }
        }
        for (from, to, bytes) in among_them {
            for one in all.iter_mut().filter(|one| to.contains(&one.at)) {
                assert!(!matches!(
                    one.membership.receive(from, &bytes, Instant::now()),
                    ReceiveOutcome::Unsigned
                ));
            }
        }
        let_pass(Duration::from_millis(5));
    }
    outcomes
}

impl Played {
    /// Draws the conclusions that are due, and gives what it sends.
    fn conclude(&mut self) -> Vec<Datagram> {
        let mut sent = Vec::new();
        let now = Instant::now();
        while self.membership.next_due() <= now {
            let actions = self.membership.poll(now);
            sent.extend(actions.send);
            let view = self.membership.view();
            let follows = if view.fenced {
                Applied::default()
            } else {
                assign(&view.candidates, &BTreeMap::new()).applied
            };
            if actions.fenced || actions.unfenced || actions.view_changed {
                self.membership.set_applied(follows, now);
            }
        }
        sent
    }
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
fn all_gateways_on_one_machine() {
    let (gateways, time) = by_length((4, 2), (50, 10));
    let _neighbours = Neighbours::of(gateways);
    let segment = Segment::running(Shape { gateways, announce: "holdDown: 5s", ..Shape::default() });
    let times = || segment.numbers().into_iter().map(|number| announcing_time(&segment, number));
    let before: Vec<_> = times().collect();
    let_pass(Duration::from_secs(time));
    let spent = times().zip(before).map(|(after, before)| after - before);
    let spent: Vec<Duration> = spent.map(|spent| spent / u32::try_from(time).expect("few seconds")).collect();
    println!(
        "heartbeats of {gateways} gateways, all on this machine, take of each in a second: {}",
        spread(&spent)
    );
    let refused: f64 = segment
        .numbers()
        .into_iter()
        .map(|number| segment.metric(number, "sheave_announce_heartbeats_total{event=\"refused\"}"))
        .sum();
    assert_eq!(refused, 0.0);
}

/// The processor time of the thread that announces: nanoseconds, the first number of its `schedstat` (Documentation/scheduler/sched-stats.rst).
fn announcing_time(segment: &Segment, number: u8) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", segment.process_id(number))).expect("it runs");
    let announces =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "announce\n");
    let task = tasks.filter_map(|task| Some(task.ok()?.path())).find(announces).expect("a thread announces");
    let stat = fs::read_to_string(task.join("schedstat")).expect("the kernel counts");
    let nanoseconds = stat.split_whitespace().next().and_then(|it| it.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}
