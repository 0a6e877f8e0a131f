//! Marks: what each fault costs, again and again, with real processes; each row of the table has its limit, and keepalived's figures beside it.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::figures::{mark, percentile};
use crate::guest::{Guest, mac_of_guest};
use crate::keepalived::{Keepalived, PROGRAM};
use crate::segment::{PORT, Segment, Shape, gateway_address, on_segment, service_address};
use crate::support::length::by_length;
use crate::support::patience::{eventually, let_pass, patience};
use crate::support::tcp;
use crate::support::world::Family;
use crate::wire::Wire;
use crate::witness::{Observer, Witness};

/// The longest time for which two gateways may answer for one address, after any fault.
const TWO_OWNERS: Duration = Duration::from_millis(350);
const SECOND: Duration = Duration::from_secs(1);

/// Gateways of a segment, whichever program they run.
pub(crate) trait Gateways {
    /// What they tell each other, as nft(8) matches it.
    const HEARTBEATS: &'static str;

    fn segment(&self) -> &Segment;
    /// Sends a signal to a gateway, and waits for its end if it kills.
    fn signal(&mut self, number: u8, signal: Signal);
    fn start(&mut self, number: u8);
    /// Has a gateway that was without the others begin anew: it does not wait for longer each time.
    fn forgive(&mut self, number: u8);
    /// Waits until each address is where it belongs.
    fn wait_until_ready(&self);
    /// How often addresses have moved so far.
    fn moves(&self) -> usize;
    /// The families that they announce addresses of.
    fn families(&self) -> &'static [Family];

    /// All addresses.
    fn addresses(&self) -> Vec<IpAddr> {
        let services = 1..=self.segment().services();
        services
            .flat_map(|it| self.families().iter().map(move |family| service_address(*family, it)))
            .collect()
    }
}

impl Gateways for Segment {
    const HEARTBEATS: &'static str = "udp dport 9846";

    fn segment(&self) -> &Segment {
        self
    }

    fn signal(&mut self, number: u8, signal: Signal) {
        if signal == Signal::SIGKILL {
            self.kill(number);
            Segment::forgive(self, number);
        } else {
            Segment::signal(self, number, signal);
        }
    }

    fn start(&mut self, number: u8) {
        Segment::start(self, number);
    }

    fn forgive(&mut self, number: u8) {
        Segment::signal(self, number, Signal::SIGTERM);
        self.wait_for_end(number);
        Segment::start(self, number);
    }

    fn wait_until_ready(&self) {
        self.wait_until_all_eligible();
        self.wait_until_owned();
    }

    fn moves(&self) -> usize {
        let lost = |number| self.metric(number, "sheave_announce_moves_total{event=\"lost\"}");
        self.running_numbers().into_iter().map(lost).sum::<f64>() as usize
    }

    fn families(&self) -> &'static [Family] {
        &Family::BOTH
    }
}

/// Something that befalls gateways. The first one is the owner of an address.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Stop,
    LinkDown,
    /// What they tell each other is lost; all other frames arrive.
    Split,
    /// So many are killed, this time one after the other.
    Several(usize, Duration),
    /// All are killed, and started again after a second.
    All,
    /// Nobody on the segment hears anybody.
    Silence(Duration),
}

impl Fault {
    fn name(self) -> String {
        match self {
            Self::Kill => "SIGKILL of the owner".to_owned(),
            Self::Stop => "SIGSTOP of the owner".to_owned(),
            Self::LinkDown => "the owner's link is down".to_owned(),
            Self::Split => "heartbeats are lost, frames arrive".to_owned(),
            Self::Several(count, apart) => format!("SIGKILL of {count}, {apart:?} apart"),
            Self::All => "SIGKILL of all, started again after 1 s".to_owned(),
            Self::Silence(length) => format!("the segment is silent for {length:?}"),
        }
    }

    /// What the rule allows for it.
    fn limit(self) -> Duration {
        match self {
            Self::All => Duration::from_millis(1500),
            Self::Silence(_) => Duration::from_millis(500),
            _ => SECOND,
        }
    }

    /// Makes it happen. From when on an address without an answer counts.
    fn strike(self, gateways: &mut impl Gateways, victim: u8) -> Instant {
        let began = Instant::now();
        let all = gateways.segment().numbers();
        let others = all.iter().copied().filter(|it| *it != victim);
        match self {
            Self::Kill => gateways.signal(victim, Signal::SIGKILL),
            Self::Stop => gateways.signal(victim, Signal::SIGSTOP),
            Self::LinkDown => gateways.segment().unplug(victim),
            Self::Split => split(gateways, victim),
            Self::Several(count, apart) => {
                for number in [victim].into_iter().chain(others).take(count) {
                    let_pass(if number == victim { Duration::ZERO } else { apart });
                    gateways.signal(number, Signal::SIGKILL);
                }
            }
            Self::All => {
                all.iter().for_each(|number| gateways.signal(*number, Signal::SIGKILL));
                let_pass(SECOND);
                let started = Instant::now();
                all.iter().for_each(|number| gateways.start(*number));
                return started;
            }
            Self::Silence(length) => {
                gateways.segment().silence(true);
                let_pass(length.saturating_sub(began.elapsed()));
                gateways.segment().silence(false);
                return Instant::now();
            }
        }
        began
    }

    /// Takes it back.
    fn heal(self, gateways: &mut impl Gateways, victim: u8) {
        let all = gateways.segment().numbers();
        match self {
            Self::Kill => gateways.start(victim),
            Self::Stop => gateways.signal(victim, Signal::SIGCONT),
            Self::LinkDown => gateways.segment().plug_in(victim),
            Self::Split => all.iter().for_each(|number| gateways.segment().accept_on(*number)),
            Self::Several(count, _) => {
                let others = all.into_iter().filter(|it| *it != victim);
                [victim].into_iter().chain(others).take(count).for_each(|number| gateways.start(number));
            }
            Self::All | Self::Silence(_) => {}
        }
    }

    /// Whether the victim was without the others while it lived.
    fn makes_wait(self) -> bool {
        matches!(self, Self::Stop | Self::LinkDown | Self::Split)
    }
}

fn split<G: Gateways>(gateways: &G, cut: u8) {
    let segment = gateways.segment();
    for number in segment.numbers() {
        let from = if number == cut { String::new() } else { format!("ip saddr 10.5.1.{cut} ") };
        segment.drop_on(number, &format!("{from}{}", G::HEARTBEATS));
    }
}

/// What a fault has cost, each time.
#[derive(Default)]
struct Costs {
    /// Without an owner while it lasts.
    outages: Vec<Duration>,
    /// Without an owner after it was taken back.
    returns: Vec<Duration>,
    two_owners: Vec<Duration>,
}

/// The middle and the longest, in milliseconds.
fn milliseconds(times: &[Duration]) -> String {
    let [middle, longest] = [50, 100].map(|percent| percentile(times, percent).as_millis());
    format!("{middle} / {longest}")
}

impl Costs {
    /// Prints a row of the table.
    fn print(&self, subject: &str, fault: &str) {
        println!(
            "row | {subject} | {fault} | {} runs | outage {} ms | on return {} ms | two owners {} ms",
            self.outages.len(),
            milliseconds(&self.outages),
            milliseconds(&self.returns),
            milliseconds(&self.two_owners)
        );
    }

    fn judge(&self, fault: &str, limit: Duration) {
        mark(&format!("{fault}: without an owner"), limit, percentile(&self.outages, 100));
        mark(&format!("{fault}: without an owner when it is over"), SECOND, percentile(&self.returns, 100));
        mark(&format!("{fault}: two owners"), TWO_OWNERS, percentile(&self.two_owners, 100));
    }
}

/// Has a fault happen again and again, for so long each time.
fn suffer(
    gateways: &mut impl Gateways,
    observer: &Observer,
    fault: Fault,
    lasts: Duration,
    runs: usize,
) -> Costs {
    let mut costs = Costs::default();
    for _ in 0..runs {
        gateways.wait_until_ready();
        let victim = gateways.segment().wait_for_owner(Family::V4, 1);
        let witness = Witness::start(gateways.segment(), observer, &gateways.addresses());
        let_pass(Duration::from_millis(300));
        let began = fault.strike(gateways, victim);
        let_pass(lasts);
        let over = Instant::now();
        fault.heal(gateways, victim);
        let_pass(lasts);
        let seen = witness.finish();
        costs.outages.push(seen.longest_outage(began, over));
        costs.returns.push(seen.longest_outage(over, Instant::now()));
        costs.two_owners.push(seen.two_owners());
        let beyond = |times: &[Duration], limit: Duration| times.last() > Some(&limit);
        if beyond(&costs.outages, fault.limit())
            || beyond(&costs.returns, SECOND)
            || beyond(&costs.two_owners, TWO_OWNERS)
        {
            println!(
                "{}, taken back after {:?}:\n{}",
                fault.name(),
                over - began,
                seen.story(began, Instant::now())
            );
        }
        if fault.makes_wait() {
            gateways.forgive(victim);
        }
    }
    costs
}

fn macs(segment: &Segment) -> Vec<[u8; 6]> {
    segment.numbers().into_iter().map(|number| segment.mac(number)).collect()
}

/// A row of Sheave's: the fault, again and again, and its limits.
fn row(fault: Fault, gateways: u8) {
    let mut segment = Segment::running(Shape { gateways, services: 2, ..Shape::default() });
    let observer = Observer::join(&segment, macs(&segment));
    let costs = suffer(&mut segment, &observer, fault, Duration::from_millis(2500), by_length(2, 20));
    let name = format!("{}, {gateways} gateways", fault.name());
    costs.print("Sheave", &name);
    if matches!(fault, Fault::Silence(_)) {
        for number in segment.numbers() {
            let file = std::fs::read_to_string(segment.hold_down_file(number)).expect("it takes part");
            assert_eq!(file.lines().nth(1), Some("1000"), "gw-{number} waits for longer: {file}");
        }
    }
    costs.judge(&name, fault.limit());
}

#[test]
fn the_owner_is_killed() {
    row(Fault::Kill, 3);
}

#[test]
fn one_of_two_is_killed() {
    row(Fault::Kill, 2);
}

#[test]
fn the_owner_hangs() {
    row(Fault::Stop, 3);
}

#[test]
fn the_owner_loses_its_link() {
    row(Fault::LinkDown, 3);
}

#[test]
fn heartbeats_are_lost_while_frames_arrive() {
    row(Fault::Split, 3);
}

#[test]
fn two_of_three_are_killed() {
    row(Fault::Several(2, Duration::ZERO), 3);
    row(Fault::Several(2, Duration::from_secs(5)), 3);
}

#[test]
fn three_of_five_are_killed() {
    row(Fault::Several(3, Duration::ZERO), 5);
    row(Fault::Several(3, Duration::from_secs(5)), 5);
}

#[test]
fn four_of_five_are_killed() {
    row(Fault::Several(4, Duration::ZERO), 5);
    row(Fault::Several(4, Duration::from_secs(5)), 5);
}

#[test]
fn all_are_killed_and_started_again() {
    row(Fault::All, 3);
}

fn nobody_hears_anybody_for(milliseconds: u64) {
    row(Fault::Silence(Duration::from_millis(milliseconds)), 3);
}

#[test]
fn nobody_hears_anybody_for_100_ms() {
    nobody_hears_anybody_for(100);
}

#[test]
fn nobody_hears_anybody_for_250_ms() {
    nobody_hears_anybody_for(250);
}

#[test]
fn nobody_hears_anybody_for_500_ms() {
    nobody_hears_anybody_for(500);
}

#[test]
fn nobody_hears_anybody_for_a_second() {
    nobody_hears_anybody_for(1000);
}

/// The kernel of the dead gateway still has the address.
#[test]
fn a_client_without_an_arp_entry_after_a_kill_is_not_refused() {
    let mut segment = Segment::running(Shape::default());
    let (mut refused, mut all) = (0, 0);
    for _ in 0..by_length(2, 20) {
        for family in Family::BOTH {
            let victim = segment.wait_for_owner(family, 1);
            Gateways::signal(&mut segment, victim, Signal::SIGKILL);
            let killed = Instant::now();
            let ip = service_address(family, 1);
            segment.wait_for_owner(family, 1);
            while killed.elapsed() < Duration::from_secs(4) {
                segment.client.ip(&[format!("neigh flush to {ip}")]);
                let limit = Duration::from_millis(500);
                let outcome =
                    segment.client.run(|| tcp::connect_from(None, SocketAddr::new(ip, PORT), limit));
                refused += usize::from(outcome.is_err());
                all += 1;
                let_pass(Duration::from_millis(20));
            }
            segment.start(victim);
            segment.wait_until_ready();
        }
    }
    println!("row | Sheave | clients without an entry, within 4 s of a kill | {refused} of {all} not served");
    assert!(refused * 20 <= all, "{refused} of {all} clients without an entry were not served after a kill");
}

/// Moves within this time.
fn moves_within(gateways: &impl Gateways, time: Duration) -> usize {
    let before = gateways.moves();
    let_pass(time);
    gateways.moves() - before
}

/// From a question of the client to a gateway to the answer, which is a refusal.
fn round_trip(segment: &Segment, number: u8) -> Duration {
    let nobody = SocketAddr::new(gateway_address(Family::V4, number), 9);
    let asked = Instant::now();
    let answer = segment.client.run(|| tcp::connect_from(None, nobody, SECOND)).map_err(|error| error.kind());
    assert_eq!(answer.err(), Some(std::io::ErrorKind::ConnectionRefused));
    asked.elapsed()
}

/// Delays, then a full link. Prints the moves at the beginning of each, and the moves then.
fn slow_links<G: Gateways>(subject: &str, start: impl Fn() -> G) -> Vec<(String, usize)> {
    let time = Duration::from_secs(by_length(10, 60));
    let onset = Duration::from_secs(10);
    let mut later = Vec::new();
    let mut told = |name: String, first: usize, then: usize| {
        println!("row | {subject} | {name} | {first} moves in its first 10 s | {then} in the {time:?} after");
        later.push((name, then));
    };
    for [from, to] in [[100, 0], [100, 100]] {
        let gateways = start();
        gateways.wait_until_ready();
        let owner = gateways.segment().wait_for_owner(Family::V4, 1);
        let wire = Wire::before(gateways.segment(), owner);
        let_pass(Duration::from_secs(5));
        gateways.wait_until_ready();
        wire.delay(Duration::from_millis(from), Duration::from_millis(to));
        assert!(round_trip(gateways.segment(), owner) >= Duration::from_millis(from + to), "frames are late");
        let first = moves_within(&gateways, onset);
        told(
            format!("delay of {from} ms from the owner, {to} ms to it"),
            first,
            moves_within(&gateways, time),
        );
    }
    let gateways = start();
    gateways.wait_until_ready();
    let segment = gateways.segment();
    let owner = segment.wait_for_owner(Family::V4, 1);
    let servers = ["5201", "5202"].map(|port| segment.server.start("iperf3", &["-s", "-p", port]));
    segment.limit_rate(owner, "20mbit", "100ms");
    let server = on_segment(Family::V4, 0, 3).to_string();
    let length = (onset + time + Duration::from_secs(5)).as_secs().to_string();
    let load = [&["-p", "5201"][..], &["-p", "5202", "-R"]].map(|way| {
        let arguments = [&["-c", &server, "-P", "4", "-t", &length][..], way].concat();
        eventually("iperf3 listens", || {
            let process = segment.host(owner).start("iperf3", &arguments);
            let_pass(Duration::from_millis(500));
            if process.stderr().is_empty() { Ok(process) } else { Err(process.stderr()) }
        })
    });
    let first = moves_within(&gateways, onset);
    told("20 Mbit/s, full in both directions".to_owned(), first, moves_within(&gateways, time));
    for process in load {
        let said = process.finish().stdout;
        println!("{}", said.lines().rfind(|line| line.contains("SUM")).unwrap_or_default());
    }
    drop(servers);
    later
}

#[test]
fn slow_and_full_links_move_nothing() {
    let start = || Segment::running(Shape { services: 2, ..Shape::default() });
    for (name, moves) in slow_links("Sheave", start) {
        assert!(moves == 0 || by_length(true, false), "{name}: {moves} moves");
    }
}

/// What pauses of a guest have cost.
#[derive(Default)]
struct Pauses {
    /// Without an owner after the guest is back.
    back: Vec<Duration>,
    /// Without an owner since the guest was paused.
    whole: Vec<Duration>,
    two_owners: Vec<Duration>,
    /// What was seen of each address after the last pause.
    story: String,
}

impl Pauses {
    /// Pauses the guest while clients connect to these addresses.
    fn add(
        &mut self,
        guest: &mut Guest,
        (segment, observer): (&Segment, &Observer),
        addresses: &[IpAddr],
        pause: Duration,
    ) {
        let witness = Witness::start(segment, observer, addresses);
        let_pass(Duration::from_millis(300));
        guest.pause();
        let paused = Instant::now();
        let_pass(pause);
        let continued = Instant::now();
        guest.resume();
        let_pass(Duration::from_secs(3));
        let over = Instant::now();
        let seen = witness.finish();
        self.back.push(seen.longest_outage(continued, over));
        self.story = seen.story(continued, over);
        self.whole.push(seen.longest_outage(paused, over));
        self.two_owners.push(seen.two_owners());
    }

    fn last_is_too_long(&self) -> bool {
        let longer = |times: &Vec<Duration>, limit| times.last().is_some_and(|it| *it > limit);
        longer(&self.back, SECOND) || longer(&self.two_owners, TWO_OWNERS)
    }

    /// Prints a row of the table.
    fn print(&self, subject: &str, name: &str) {
        println!(
            "row | {subject} | {name} | {} runs | outage after it is back {} ms | since the pause {} ms | two owners {} ms",
            self.back.len(),
            milliseconds(&self.back),
            milliseconds(&self.whole),
            milliseconds(&self.two_owners)
        );
    }
}

fn macs_with_guest(segment: &Segment, guest: u8) -> Vec<[u8; 6]> {
    let mac = |number| if number == guest { mac_of_guest(number) } else { segment.mac(number) };
    segment.numbers().into_iter().map(mac).collect()
}

/// A guest beside one or two gateways in namespaces, paused again and again while it owns addresses.
fn guest_is_paused(gateways: u8, pause: Duration) {
    let number = gateways;
    let mut segment = Segment::new(Shape { gateways, services: 3, ..Shape::default() });
    let observer = Observer::join(&segment, macs_with_guest(&segment, number));
    (1..number).for_each(|it| segment.start(it));
    let mut guest = Guest::boot(&segment, number, &[]);
    let mut pauses = Pauses::default();
    for _ in 0..by_length(2, 20) {
        guest.start_gateway(&segment);
        segment.wait_until_eligible(gateways.into());
        segment.wait_until_owned();
        let owned = segment.addresses().into_iter().filter(|ip| owns(&segment, *ip, number)).count();
        assert!(owned > 0, "the guest owns something");
        pauses.add(&mut guest, (&segment, &observer), &segment.addresses(), pause);
        if pauses.last_is_too_long() {
            println!("{}the guest logged\n{}", pauses.story, guest.log(&segment));
            for other in segment.running_numbers() {
                println!("gw-{other} logged\n{}", segment.log(other));
            }
        }
    }
    let name = format!("guest ({}) of {gateways} gateways paused for {pause:?}", guest.accelerator());
    pauses.print("Sheave", &name);
    mark(&format!("{name}: without an owner once it is back"), SECOND, percentile(&pauses.back, 100));
    mark(&format!("{name}: two owners"), TWO_OWNERS, percentile(&pauses.two_owners, 100));
}

/// Whether this gateway answers at the address.
fn owns(segment: &Segment, ip: IpAddr, number: u8) -> bool {
    let answer = || segment.client.run(|| crate::segment::answering(ip)).map_err(|error| error.to_string());
    eventually("somebody answers", answer) == number
}

#[test]
fn a_guest_of_three_is_paused_for_less_than_a_second() {
    guest_is_paused(3, Duration::from_millis(700));
}

#[test]
fn a_guest_of_three_is_paused_for_two_seconds() {
    guest_is_paused(3, Duration::from_secs(2));
}

#[test]
fn a_guest_of_three_is_paused_for_half_a_minute() {
    guest_is_paused(3, Duration::from_secs(30));
}

#[test]
fn one_of_two_is_a_guest_and_paused() {
    for pause in [700, 2000, 30_000] {
        guest_is_paused(2, Duration::from_millis(pause));
    }
}

/// The same faults, for the documents. It has no limits here.
fn compare_keepalived(advert: &str) {
    let shape = Shape { services: 2, ..Shape::default() };
    let subject = format!("keepalived, advert_int {advert}");
    let mut gateways = Keepalived::running(shape, advert);
    let observer = Observer::join(gateways.segment(), macs(gateways.segment()));
    // Three advertisements and the skew, with room.
    let lasts = if advert == "1" { patience(6.0) } else { patience(2.5) };
    let silences = [250, 1000].map(|it| Fault::Silence(Duration::from_millis(it)));
    let faults = [
        Fault::Kill,
        Fault::Stop,
        Fault::LinkDown,
        Fault::Split,
        Fault::Several(2, Duration::ZERO),
        Fault::All,
    ];
    for fault in faults.into_iter().chain(silences) {
        let costs = suffer(&mut gateways, &observer, fault, lasts, by_length(2, 10));
        costs.print(&subject, &format!("{}, 3 gateways", fault.name()));
    }
    drop(gateways);
    slow_links(&subject, || Keepalived::running(shape, advert));
}

/// A guest whose keepalived has the highest priority.
fn guest_with_keepalived_is_paused(advert: &str, pause: Duration) {
    let mut gateways = Keepalived::new(Shape::default(), advert);
    let observer = Observer::join(gateways.segment(), macs_with_guest(gateways.segment(), 1));
    let mut guest = Guest::boot(gateways.segment(), 1, &[PROGRAM]);
    guest.run(gateways.segment(), &gateways.script_for_guest(1));
    [2, 3].into_iter().for_each(|number| gateways.start(number));
    let mut pauses = Pauses::default();
    for _ in 0..by_length(2, 10) {
        gateways.wait_until_ready();
        pauses.add(&mut guest, (gateways.segment(), &observer), &gateways.addresses(), pause);
    }
    let name = format!("guest ({}) of 3 hosts paused for {pause:?}", guest.accelerator());
    pauses.print(&format!("keepalived, advert_int {advert}"), &name);
}

#[test]
fn keepalived_in_a_guest_that_is_paused() {
    for pause in [700, 2000, 30_000] {
        for advert in ["1", "0.1"] {
            guest_with_keepalived_is_paused(advert, Duration::from_millis(pause));
        }
    }
}

#[test]
fn keepalived_with_its_usual_advertisements() {
    compare_keepalived("1");
}

#[test]
fn keepalived_with_ten_advertisements_a_second() {
    compare_keepalived("0.1");
}
