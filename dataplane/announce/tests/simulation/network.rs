//! A simulated network with a virtual clock: gateways, links that lose and delay, faults, and a judge of who announces what.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_announce::{
    Claim, HoldDown, Member, MembershipOptions, Network as Subnet, Presence, Reach, Start,
};

use crate::gateway::{Claims, Gateway};
use crate::judge::Judge;

const PORT: u16 = 7946;
/// When an address is announced once more: some of what `layer2` does.
const REPEATED: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// From one gateway to another.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    /// Heartbeats arrive.
    pub(crate) up: bool,
    /// Frames of announcements arrive.
    pub(crate) frames: bool,
    pub(crate) loss: f64,
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
    /// More is sent over it than it can carry.
    pub(crate) saturation: Option<Saturation>,
    /// What is sent until then arrives then, all at once.
    pub(crate) held_until: Duration,
}

/// A queue that ordinary traffic keeps full: it fills up, packets are lost, senders slow down, it fills up again.
#[derive(Clone, Copy)]
pub(crate) struct Saturation {
    pub(crate) since: Duration,
    /// How long a packet waits in the full queue.
    pub(crate) full: Duration,
    /// Share of packets that are lost when it is full.
    pub(crate) loss: f64,
    /// Heartbeats overtake ordinary traffic.
    pub(crate) priority: bool,
}

/// How long the queue takes to fill up from empty, and from what senders leave in it.
const FILLS: Duration = Duration::from_millis(300);
const REFILLS: Duration = Duration::from_secs(2);
/// A frame of 1,514 bytes that is being sent at 20 Mbit/s.
const FRAME: Duration = Duration::from_micros(606);

impl Saturation {
    /// How long a heartbeat waits, and how likely it is lost.
    fn meets(self, now: Duration) -> (Duration, f64) {
        if self.priority {
            return (FRAME, 0.0);
        }
        let passed = now.saturating_sub(self.since);
        let level = match passed.checked_sub(FILLS) {
            None => passed.as_secs_f64() / FILLS.as_secs_f64(),
            // Half of it is left where the senders have slowed down.
            Some(passed) => 0.5 + 0.5 * (passed.as_secs_f64() / REFILLS.as_secs_f64()).fract(),
        };
        (self.full.mul_f64(level), if level > 0.9 { self.loss } else { 0.0 })
    }
}

/// A machine: a gateway runs on it or not.
struct Machine {
    name: Arc<str>,
    gateway: Option<Gateway>,
    /// Of the process before, which was killed.
    lost: Option<HoldDown>,
    paused: bool,
    /// It is a virtual machine that has been stopped since then: its clock stands still.
    frozen: Option<Duration>,
    /// For how long it was stopped before.
    behind: Duration,
    /// Of its clock, in millionths.
    drift: i64,
    /// Reaches the tie-breaker.
    router: bool,
    /// When it last asked that, or will.
    pinged: Duration,
    /// Its interface in the network of the addresses is up.
    interface: bool,
    member: Member,
    /// The API server knows of it.
    listed: bool,
    wake: Duration,
}

enum Event {
    Wake(usize),
    Deliver {
        to: usize,
        from: SocketAddr,
        bytes: Arc<Vec<u8>>,
    },
    /// An announcement; `again` if it answers one.
    Announce {
        to: usize,
        from: usize,
        address: IpAddr,
        again: bool,
    },
    /// A machine announces an address once more, if it still has it.
    Repeat {
        machine: usize,
        address: IpAddr,
        again: bool,
    },
    /// A machine probes what it has left to others.
    Probe(usize),
    /// Another has what a machine has asked for.
    Answer {
        to: usize,
        address: IpAddr,
    },
    Ping(usize),
}

pub(crate) struct Network {
    epoch: Instant,
    pub(crate) now: Duration,
    machines: Vec<Machine>,
    links: BTreeMap<(usize, usize), Link>,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, Event>,
    count: u64,
    random: u64,
    /// There is a tie-breaker.
    tie_breaker: bool,
    claims: Claims,
    pub(crate) judge: Judge,
}

impl Network {
    /// Machines without gateways.
    pub(crate) fn new(seed: u64, machines: usize, addresses: u32) -> Self {
        let address = |n: u32| Ipv4Addr::from_bits(0x0a00_0000 + n).into();
        let claims: BTreeMap<IpAddr, Claim> =
            (0..addresses).map(|n| (address(n), Claim::default())).collect();
        let name = |n: usize| -> Arc<str> { Arc::from(format!("node-{n}")) };
        let member = |n: usize| Member { node: name(n), addresses: vec![machine_address(n)], ready: true };
        let machine = |n: usize| Machine {
            name: name(n),
            gateway: None,
            lost: None,
            paused: false,
            frozen: None,
            behind: Duration::ZERO,
            drift: 0,
            router: false,
            pinged: Duration::ZERO,
            interface: true,
            member: member(n),
            listed: true,
            wake: Duration::MAX,
        };
        let link = Link {
            up: true,
            frames: true,
            loss: 0.0,
            latency: Duration::from_micros(200),
            jitter: ms(1),
            saturation: None,
            held_until: Duration::ZERO,
        };
        let pairs = (0..machines).flat_map(|from| (0..machines).map(move |to| (from, to)));
        Self {
            epoch: Instant::now() + Duration::from_secs(3600),
            now: Duration::ZERO,
            machines: (0..machines).map(machine).collect(),
            links: pairs.filter(|(from, to)| from != to).map(|pair| (pair, link)).collect(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            count: 0,
            random: seed,
            tie_breaker: false,
            judge: Judge::new(claims.keys().copied().collect()),
            claims: Arc::new(claims),
        }
    }

    /// All machines run gateways that have settled.
    pub(crate) fn settled(seed: u64, machines: usize, addresses: u32) -> Self {
        Self::new(seed, machines, addresses).settle()
    }

    /// Two machines, whose gateways have settled and ping the tie-breaker, which answers or does not.
    pub(crate) fn two(seed: u64, tie_breaker: bool, addresses: u32) -> Self {
        let mut network = Self::new(seed, 2, addresses);
        (0..2).for_each(|machine| network.set_router(machine, tie_breaker));
        network.start_pings();
        network.settle()
    }

    /// Machines whose gateways have settled, and which the tie-breaker answers.
    pub(crate) fn settled_with_tie_breaker(seed: u64, machines: usize, addresses: u32) -> Self {
        let mut network = Self::new(seed, machines, addresses);
        (0..machines).for_each(|machine| network.set_router(machine, true));
        network.start_pings();
        network.settle()
    }

    /// As [`Network::settled_with_tie_breaker`], on links that have been like this from the start.
    pub(crate) fn settled_on(seed: u64, machines: usize, addresses: u32, change: impl Fn(&mut Link)) -> Self {
        let mut network = Self::new(seed, machines, addresses);
        network.set_links(change);
        if machines == 2 {
            (0..2).for_each(|machine| network.set_router(machine, true));
            network.start_pings();
        }
        network.settle()
    }

    fn settle(mut self) -> Self {
        (0..self.machines.len()).for_each(|machine| self.schedule(self.now, Event::Probe(machine)));
        self.start_all();
        self.run(ms(15_000));
        self.judge_from_now();
        self
    }

    /// Forgets what was, but who owns what.
    pub(crate) fn judge_from_now(&mut self) {
        self.judge.reset(self.now);
    }

    pub(crate) fn start_all(&mut self) {
        for machine in 0..self.machines.len() {
            let pause = self.below(300);
            self.run(ms(pause));
            self.start(machine);
        }
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random() % bound.max(1)
    }

    fn chance(&mut self, probability: f64) -> bool {
        (self.random() >> 11) as f64 / ((1u64 << 53) as f64) < probability
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.count += 1;
        self.events.insert(self.count, event);
        self.queue.push(Reverse((at, self.count)));
    }

    /// The time on a machine's clock.
    fn clock(&self, machine: usize, at: Duration) -> Instant {
        let Machine { drift, behind, .. } = self.machines[machine];
        self.epoch + at * (1_000_000 + drift) as u32 / 1_000_000 - behind
    }

    /// When a machine's clock shows this time.
    fn when(&self, machine: usize, clock: Instant) -> Duration {
        let passed = (clock + self.machines[machine].behind).saturating_duration_since(self.epoch);
        let passed = passed.as_nanos() as u64;
        let rate = (1_000_000 + self.machines[machine].drift) as f64 / 1e6;
        Duration::from_nanos((passed as f64 / rate) as u64)
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(Reverse((at, id))) = self.queue.peek().copied().filter(|Reverse((at, _))| *at <= end) {
            self.queue.pop();
            self.now = self.now.max(at);
            let event = self.events.remove(&id).unwrap();
            self.happen(event);
        }
        self.now = end;
        self.observe();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(machine) => {
                if self.machines[machine].wake <= self.now {
                    self.machines[machine].wake = Duration::MAX;
                    self.act(machine, Gateway::drive);
                }
            }
            Event::Deliver { to, .. } if self.machines[to].frozen.is_some() => {}
            Event::Deliver { to, from, bytes } if self.machines[to].paused => {
                // It waits in the socket's buffer.
                self.schedule(self.now + ms(20), Event::Deliver { to, from, bytes });
            }
            Event::Deliver { to, from, bytes } => {
                self.act(to, |gateway, clock| gateway.receive(from, &bytes, clock));
            }
            Event::Announce { to, from, address, again } => {
                let mut defence = None;
                let wait = ms(1_000 + self.below(500));
                self.act(to, |gateway, clock| {
                    defence = gateway.hear(address, from < to, wait, clock);
                    gateway.drive(clock)
                });
                if let Some(after) = defence.filter(|_| !again) {
                    self.schedule(self.now + after, Event::Repeat { machine: to, address, again: true });
                }
            }
            Event::Repeat { machine, address, again } => self.repeat(machine, address, again),
            Event::Probe(machine) => self.probe(machine),
            Event::Answer { to, address } => self.act(to, |gateway, clock| {
                gateway.answered(address, clock);
                gateway.drive(clock)
            }),
            Event::Ping(machine) => {
                let answers = self.machines[machine].router;
                self.act(machine, |gateway, clock| {
                    if answers {
                        gateway.membership.set_tie_breaker(clock);
                    }
                    gateway.drive(clock)
                });
            }
        }
    }

    /// Lets a gateway do something, sends what it sends, and looks who announces what.
    pub(crate) fn act<F>(&mut self, machine: usize, act: F)
    where
        F: FnOnce(&mut Gateway, Instant) -> Vec<sheave_announce::Datagram>,
    {
        let clock = self.clock(machine, self.now);
        if self.machines[machine].paused || self.machines[machine].frozen.is_some() {
            return;
        }
        let Some(gateway) = &mut self.machines[machine].gateway else { return };
        let changes = gateway.changes;
        let before = gateway.on();
        let sent = act(gateway, clock);
        let changed = gateway.changes != changes;
        let again = std::mem::take(&mut gateway.announced_again);
        let announced: Vec<IpAddr> =
            gateway.on().into_iter().filter(|address| again || !before.contains(address)).collect();
        let out_of_turn = std::mem::take(&mut gateway.out_of_turn);
        let due = gateway.next_due();
        let pings = self.tie_breaker && gateway.membership.needs_tie_breaker();
        let from = SocketAddr::new(machine_address(machine), PORT);
        for datagram in sent {
            let bytes = Arc::new(datagram.bytes);
            for to in datagram.to {
                let to = usize::from(match to.ip() {
                    IpAddr::V4(address) => address.octets()[3],
                    IpAddr::V6(_) => unreachable!(),
                });
                self.transmit(machine, to, from, bytes.clone());
            }
        }
        self.wake_at(machine, due);
        if pings {
            self.ping(machine);
        }
        for address in out_of_turn {
            self.announce(machine, address, false);
        }
        for address in announced {
            self.announce(machine, address, false);
            for later in REPEATED {
                self.schedule(self.now + later, Event::Repeat { machine, address, again: false });
            }
        }
        if changed {
            self.observe();
        }
    }

    fn sees(&self, from: usize, to: usize) -> bool {
        self.links[&(from, to)].frames
    }

    fn announce(&mut self, from: usize, address: IpAddr, again: bool) {
        for to in (0..self.machines.len()).filter(|to| *to != from) {
            if self.sees(from, to) {
                let at = self.now + self.links[&(from, to)].latency;
                self.schedule(at, Event::Announce { to, from, address, again });
            }
        }
    }

    fn repeat(&mut self, machine: usize, address: IpAddr, again: bool) {
        let Machine { gateway, paused, frozen, .. } = &self.machines[machine];
        let has = gateway.as_ref().is_some_and(|gateway| gateway.on().contains(&address));
        if has && !paused && frozen.is_none() {
            self.announce(machine, address, again);
        }
    }

    /// Has a machine probe what it has left to others: it announces what nobody else does.
    fn probe(&mut self, machine: usize) {
        self.schedule(self.now + ms(10), Event::Probe(machine));
        if self.machines[machine].gateway.as_ref().is_none_or(|it| it.yielded.is_empty()) {
            return;
        }
        let mut asked = Vec::new();
        self.act(machine, |gateway, clock| {
            asked = gateway.probe(clock);
            gateway.drive(clock)
        });
        for address in asked {
            let has = |other: &usize| {
                let Machine { gateway, paused, frozen, .. } = &self.machines[*other];
                !paused && frozen.is_none() && gateway.as_ref().is_some_and(|it| it.on().contains(&address))
            };
            let sees = |other: &usize| self.sees(machine, *other) && self.sees(*other, machine);
            let others = (0..self.machines.len()).filter(|other| *other != machine);
            let owner = others.filter(sees).find(has);
            if let Some(owner) = owner {
                let there_and_back =
                    self.links[&(machine, owner)].latency + self.links[&(owner, machine)].latency;
                self.schedule(self.now + there_and_back, Event::Answer { to: machine, address });
            }
        }
    }

    fn wake_at(&mut self, machine: usize, due: Instant) {
        // A scheduler is late by up to a millisecond.
        let late = Duration::from_micros(self.below(1_000) + 1);
        let at = self.when(machine, due).max(self.now) + late;
        self.machines[machine].wake = at;
        self.schedule(at, Event::Wake(machine));
    }

    fn ping(&mut self, machine: usize) {
        let pinged = &mut self.machines[machine].pinged;
        if *pinged <= self.now {
            *pinged = self.now.max(*pinged + ms(100));
            let at = *pinged;
            self.schedule(at, Event::Ping(machine));
        }
    }

    fn transmit(&mut self, from: usize, to: usize, address: SocketAddr, bytes: Arc<Vec<u8>>) {
        let link = self.links[&(from, to)];
        let (waits, loss) = link.saturation.map_or((Duration::ZERO, 0.0), |it| it.meets(self.now));
        if !link.up || self.chance(link.loss) || loss > 0.0 && self.chance(loss) {
            return;
        }
        let jitter = Duration::from_micros(self.below(link.jitter.as_micros() as u64 + 1));
        let at = (self.now + link.latency + jitter + waits).max(link.held_until);
        self.schedule(at, Event::Deliver { to, from: address, bytes });
    }

    fn observe(&mut self) {
        let runs = |machine: &Machine| !machine.paused && machine.frozen.is_none();
        let running = self.machines.iter().enumerate().filter(|(_, machine)| runs(machine));
        let announcers = running.filter_map(|(index, machine)| Some((index, machine.gateway.as_ref()?.on())));
        let announcers: Vec<_> = announcers.collect();
        // Whom the tie-breaker answers goes on in its part of the network; who does not see a rival's frames cannot give way.
        let sees = |one, other| {
            !self.tie_breaker || self.links[&(one, other)].frames && self.links[&(other, one)].frames
        };
        self.judge.observe(self.now, &announcers, sees);
    }
}

/// Faults.
impl Network {
    fn options(&self, machine: usize) -> MembershipOptions {
        MembershipOptions::new(self.machines[machine].name.clone(), Arc::from("fleet"), PORT)
    }

    fn members(&self) -> Vec<Member> {
        let listed = self.machines.iter().filter(|machine| machine.listed);
        listed.map(|machine| machine.member.clone()).collect()
    }

    pub(crate) fn start(&mut self, machine: usize) {
        let lost = self.machines[machine].lost;
        self.start_as(machine, Start::Fresh(lost), BTreeSet::new());
    }

    fn start_as(&mut self, machine: usize, start: Start, announced: BTreeSet<IpAddr>) {
        let incarnation = self.random();
        let clock = self.clock(machine, self.now);
        let (options, claims) = (self.options(machine), self.claims.clone());
        let mut gateway = Gateway::new(options, claims, start, announced, incarnation, clock);
        gateway.membership.set_members(self.members(), clock);
        gateway.membership.set_reach(reach(self.machines[machine].interface), clock);
        self.machines[machine].gateway = Some(gateway);
        // It may hear others before it sends.
        let busy = self.below(20);
        self.wake_at(machine, clock + ms(busy));
    }

    /// A hot upgrade: another process continues.
    pub(crate) fn upgrade(&mut self, machine: usize) {
        let clock = self.clock(machine, self.now);
        let old = self.machines[machine].gateway.take().unwrap();
        let continuation = old.membership.hand_over(clock);
        // It finds what is on the interfaces.
        self.start_as(machine, Start::Continued(continuation), old.on());
    }

    pub(crate) fn kill(&mut self, machine: usize) -> BTreeSet<IpAddr> {
        let gateway = self.machines[machine].gateway.take();
        if let Some(Gateway { membership, .. }) = &gateway {
            let lost = Some(membership.hold_down());
            self.machines[machine].lost = lost.filter(|_| membership.presence() != Presence::Left);
        }
        self.observe();
        gateway.map(|gateway| gateway.announced).unwrap_or_default()
    }

    pub(crate) fn pause(&mut self, machine: usize) {
        self.machines[machine].paused = true;
        self.observe();
    }

    /// What it does first is to look at the clock.
    pub(crate) fn resume(&mut self, machine: usize) {
        self.machines[machine].paused = false;
        self.act(machine, Gateway::drive);
    }

    /// Stops a virtual machine: kernel, clock and all. What is sent to it is lost.
    pub(crate) fn freeze(&mut self, machine: usize) {
        self.machines[machine].frozen.get_or_insert(self.now);
        self.observe();
    }

    /// Has it go on as if no time had passed.
    pub(crate) fn thaw(&mut self, machine: usize) {
        let Some(since) = self.machines[machine].frozen.take() else { return };
        self.machines[machine].behind += self.now - since;
        self.observe();
        self.act(machine, Gateway::drive);
    }

    pub(crate) fn set_link(&mut self, from: usize, to: usize, change: impl Fn(&mut Link)) {
        change(self.links.get_mut(&(from, to)).unwrap());
        self.observe();
    }

    pub(crate) fn set_links(&mut self, change: impl Fn(&mut Link)) {
        self.links.values_mut().for_each(change);
        self.observe();
    }

    /// For so long nothing arrives, then all of it.
    pub(crate) fn hold(&mut self, time: Duration, links: impl Fn(usize, usize) -> bool) {
        let until = self.now + time;
        let held = self.links.iter_mut().filter(|((from, to), _)| links(*from, *to));
        held.for_each(|(_, link)| link.held_until = link.held_until.max(until));
    }

    /// How often gateways were fenced, since each was started.
    pub(crate) fn fences(&self) -> u64 {
        let running = self.machines.iter().filter_map(|machine| machine.gateway.as_ref());
        running.map(|gateway| gateway.membership.counters().fences).sum()
    }

    /// Only within the groups do packets arrive.
    pub(crate) fn split(&mut self, group: impl Fn(usize) -> usize) {
        for ((from, to), link) in &mut self.links {
            link.up = group(*from) == group(*to);
            link.frames = link.up;
        }
        self.observe();
    }

    /// Heartbeats arrive only within the groups; all frames of announcements do.
    pub(crate) fn filter(&mut self, group: impl Fn(usize) -> usize) {
        for ((from, to), link) in &mut self.links {
            (link.up, link.frames) = (group(*from) == group(*to), true);
        }
        self.observe();
    }

    pub(crate) fn set_drift(&mut self, machine: usize, millionths: i64) {
        assert!(self.machines[machine].gateway.is_none());
        self.machines[machine].drift = millionths;
    }

    /// Whether the tie-breaker answers a machine.
    pub(crate) fn set_router(&mut self, machine: usize, reaches: bool) {
        self.machines[machine].router = reaches;
    }

    /// From now on gateways ask the tie-breaker where they need its answer, which comes at once.
    pub(crate) fn start_pings(&mut self) {
        self.tie_breaker = true;
    }

    /// Whether a machine's interface in the network of the addresses is up.
    pub(crate) fn set_interface(&mut self, machine: usize, up: bool) {
        self.machines[machine].interface = up;
        self.act(machine, |gateway, clock| {
            gateway.membership.set_reach(reach(up), clock);
            gateway.drive(clock)
        });
    }

    /// What the API server says of a machine's gateway.
    pub(crate) fn set_ready(&mut self, machine: usize, ready: bool) {
        self.machines[machine].member.ready = ready;
        let members = self.members();
        for machine in 0..self.machines.len() {
            let members = members.clone();
            self.act(machine, |gateway, clock| {
                gateway.membership.set_members(members, clock);
                gateway.drive(clock)
            });
        }
    }

    /// Changes what some machines learn from the API server about others.
    pub(crate) fn list_as_ready(&mut self, to: Range<usize>, of: Range<usize>, ready: bool) {
        let mut members = self.members();
        of.for_each(|machine| members[machine].ready = ready);
        for machine in to {
            let members = members.clone();
            self.act(machine, |gateway, clock| {
                gateway.membership.set_members(members, clock);
                gateway.drive(clock)
            });
        }
    }

    pub(crate) fn set_claims(&mut self, machine: usize, claims: Claims) {
        self.act(machine, |gateway, clock| {
            gateway.set_claims(claims, clock);
            gateway.drive(clock)
        });
    }

    /// The API server does not know of it.
    pub(crate) fn unlist(&mut self, machine: usize) {
        self.machines[machine].listed = false;
    }

    pub(crate) fn claims(&self) -> Claims {
        self.claims.clone()
    }

    pub(crate) fn gateway(&self, machine: usize) -> &Gateway {
        self.machines[machine].gateway.as_ref().unwrap()
    }

    pub(crate) fn runs(&self, machine: usize) -> bool {
        self.machines[machine].gateway.is_some()
    }

    pub(crate) fn count(&self) -> usize {
        self.machines.len()
    }
}

/// Of a machine with an interface in the network of the addresses, or without.
fn reach(up: bool) -> Reach {
    let network = Subnet::of(Ipv4Addr::new(10, 0, 0, 0).into(), 8);
    Reach::of(up.then_some((network, "eth0", true)).into_iter())
}

fn machine_address(machine: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, machine as u8).into()
}
