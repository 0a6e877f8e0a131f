//! Simulation: random histories of one flow table, compared with a naive model of its expected content. The seed replays a
//! history.

use std::collections::HashMap as Model;

use super::*;

const SEEDS: u64 = 40;
const STEPS: usize = 1500;
const CLIENTS: u64 = 24;
const LIMIT: usize = 12;
const UNANSWERED: Duration = Duration::from_secs(10);

/// A flow in the model.
#[derive(Clone, Copy, Debug)]
struct Expected {
    endpoint: EndpointAddr,
    touched: Instant,
    answered: bool,
    /// Whether it has not been compared with the current frontend yet.
    stale: bool,
    suspect: bool,
    /// When it ends regardless of traffic because its endpoint no longer serves.
    ends_by: Option<Instant>,
}

/// Outcome of a datagram that the model allows.
#[derive(Debug)]
enum Allowed {
    /// The flow keeps its endpoint and link.
    Stay,
    /// The flow moves to one of these endpoints.
    OneOf(Vec<EndpointAddr>),
    /// A new flow to one of these endpoints; evicts the flow of the client given, if any.
    New(Vec<EndpointAddr>, Option<ClientAddr>),
    /// The datagram is dropped; ends the flow of the client given, if any.
    Refused { reason: DropReason, ends: Option<ClientAddr> },
}

struct Simulation {
    world: World,
    script: SplitMix64,
    endpoints: Vec<(EndpointAddr, EndpointState)>,
    idle: Duration,
    flows: Model<ClientAddr, Expected>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let endpoints = ready(&[1, 2, 3]);
        let timeouts = FlowTimeouts { idle: IDLE, unanswered: UNANSWERED };
        let nobody = Weak::<RefCell<World>>::new();
        let world = World::of_owner(nobody, World::budget(LIMIT), timeouts, &endpoints);
        Self { world, script: SplitMix64::new(seed), endpoints, idle: IDLE, flows: Model::new() }
    }

    fn below(&self, bound: u64) -> u64 {
        self.script.next() % bound
    }

    fn any_client(&self) -> ClientAddr {
        client_addr(self.below(CLIENTS) as u16 + 1)
    }

    fn step(&mut self) {
        match self.below(100) {
            0..60 => self.datagram(),
            60..74 => self.reply(),
            74..80 => self.pass_time(),
            80..86 => self.swap_endpoints(),
            86..89 => self.swap_to_the_same(),
            89..95 => self.report_endpoint(),
            _ => self.turn_faults(),
        }
        self.check();
    }

    fn datagram(&mut self) {
        let client = self.any_client();
        let opened = self.world.links.opened;
        let allowed = self.allowed(client);
        let outcome = self.world.datagram(client.0.port());
        let links = self.world.links.opened - opened;
        match (&allowed, outcome) {
            (Allowed::Stay, Ok(endpoint)) => {
                assert_eq!((endpoint, links), (self.flows[&client].endpoint, 0));
                self.remember(client, endpoint);
            }
            (Allowed::OneOf(endpoints), Ok(endpoint)) => {
                assert!(endpoints.contains(&endpoint), "{endpoint} is none of {endpoints:?}");
                assert_eq!(links, 1);
                self.remember(client, endpoint);
            }
            (Allowed::New(endpoints, gives_way), Ok(endpoint)) => {
                assert!(endpoints.contains(&endpoint), "{endpoint} is none of {endpoints:?}");
                assert_eq!(links, 1);
                if let Some(other) = gives_way {
                    self.flows.remove(other);
                }
                self.remember(client, endpoint);
            }
            (Allowed::Refused { reason, ends }, Err(got)) => {
                assert_eq!((got, links), (*reason, 0));
                if let Some(ended) = ends {
                    self.flows.remove(ended);
                }
                if let Some(flow) = self.flows.get_mut(&client) {
                    flow.touched = self.world.now;
                }
            }
            _ => panic!("{allowed:?} does not allow {outcome:?}"),
        }
    }

    fn remember(&mut self, client: ClientAddr, endpoint: EndpointAddr) {
        let touched = self.world.now;
        let answered = self.flows.get(&client).is_some_and(|flow| flow.answered);
        self.flows.insert(
            client,
            Expected { endpoint, touched, answered, stale: false, suspect: false, ends_by: None },
        );
    }

    /// The rules, written a second time and without optimization.
    fn allowed(&self, client: ClientAddr) -> Allowed {
        let links = &self.world.links;
        let candidates = || self.endpoints.iter().filter(|(_, state)| *state == EndpointState::Ready);
        let reachable = |not: Option<EndpointAddr>| -> Vec<EndpointAddr> {
            let usable = candidates().map(|(addr, _)| *addr);
            usable.filter(|addr| !links.unreachable.contains(addr) && Some(*addr) != not).collect()
        };
        let refused = |ends| {
            let reason = match (self.endpoints.is_empty(), candidates().count()) {
                (true, _) => DropReason::NoEndpoint,
                (false, 0) => DropReason::Policy,
                (false, _) => DropReason::NoSocket,
            };
            Allowed::Refused { reason, ends }
        };
        let Some(flow) = self.flows.get(&client) else {
            let others = reachable(None);
            let gives_way = match self.flows.len() == LIMIT {
                true if candidates().count() == 0 => return refused(None),
                true => match self.gives_way() {
                    None => return Allowed::Refused { reason: DropReason::FlowLimit, ends: None },
                    other => other,
                },
                false => None,
            };
            // The evicted flow is gone even if no new flow replaces it.
            return match others.is_empty() || links.exhausted {
                true => refused(gives_way),
                false => Allowed::New(others, gives_way),
            };
        };
        let serves = self.endpoints.iter().any(|(addr, _)| *addr == flow.endpoint);
        let others = reachable(Some(flow.endpoint));
        let stays = (serves || !flow.stale) && !flow.suspect;
        match (stays, serves, others.is_empty() || links.exhausted) {
            (true, _, _) | (false, true, true) => Allowed::Stay,
            (false, _, false) => Allowed::OneOf(others),
            // A flow that cannot be moved for lack of a socket stays.
            (false, false, true) => refused((candidates().count() == 0).then_some(client)),
        }
    }

    /// The flow to evict: the one that was idle for longest among unanswered flows past their patience, then among answered
    /// ones that are over, then among the others in the same order. A flow whose endpoint no longer serves counts as over.
    fn gives_way(&self) -> Option<ClientAddr> {
        let quiet = |answered, time| {
            let oldest = self.flows.iter().filter(|(_, flow)| flow.answered == answered);
            let (_, client) = oldest.map(|(client, flow)| (self.deadline(flow), *client)).min()?;
            let flow = &self.flows[&client];
            (flow.ends_by.is_some() || self.world.now - flow.touched >= time).then_some(client)
        };
        let (hopeless, over) = (quiet(false, PATIENCE), quiet(true, OVER));
        hopeless.or(over).or_else(|| quiet(false, BUSY)).or_else(|| quiet(true, BUSY))
    }

    fn deadline(&self, flow: &Expected) -> Instant {
        let quiet = flow.touched + if flow.answered { self.idle } else { self.idle.min(UNANSWERED) };
        flow.ends_by.map_or(quiet, |ends_by| ends_by.min(quiet))
    }

    fn walk(&mut self) {
        self.world.walk();
        let grace = self.world.now + GRACE;
        for flow in self.flows.values_mut() {
            let serves = self.endpoints.iter().any(|(addr, _)| *addr == flow.endpoint);
            flow.ends_by = if serves { None } else { flow.ends_by.or(Some(grace)) };
        }
    }

    fn reply(&mut self) {
        let client = self.any_client();
        let found = self.world.flows.answered(client, self.world.now).is_some();
        assert_eq!(found, self.flows.contains_key(&client));
        self.flows.entry(client).and_modify(|flow| {
            flow.touched = self.world.now;
            flow.answered = true;
        });
    }

    fn pass_time(&mut self) {
        // Short times in which flows are opened, or parts of a timeout.
        self.world.now += match self.below(2) {
            0 => self.idle.mul_f64(self.below(60) as f64 / 100.0),
            _ => Duration::from_millis(self.below(100)),
        };
        // The sweep may come late, but the flows that it leaves must be alive.
        if self.below(3) > 0 {
            self.world.flows.expire(self.world.now, usize::MAX);
            let now = self.world.now;
            let ended: Vec<ClientAddr> = self
                .flows
                .iter()
                .filter(|(_, flow)| self.deadline(flow) <= now)
                .map(|(client, _)| *client)
                .collect();
            self.flows.retain(|client, _| !ended.contains(client));
        }
    }

    fn swap_endpoints(&mut self) {
        let mut endpoints = Vec::new();
        for number in 1..=6 {
            match self.below(5) {
                0 | 1 => endpoints.push((endpoint_addr(number), EndpointState::Ready)),
                2 => endpoints.push((endpoint_addr(number), EndpointState::Terminating)),
                _ => {}
            }
        }
        if self.below(5) == 0 {
            endpoints.clear();
        }
        let changed = endpoints != self.endpoints;
        self.endpoints = endpoints;
        self.world.swap(&self.endpoints);
        self.flows.values_mut().for_each(|flow| flow.stale |= changed);
    }

    fn swap_to_the_same(&mut self) {
        self.world.swap(&self.endpoints);
    }

    fn report_endpoint(&mut self) {
        let client = self.any_client();
        self.world.flows.suspect(client);
        self.flows.entry(client).and_modify(|flow| flow.suspect = true);
    }

    /// At most one endpoint is unreachable at a time, so that another is always found within the attempts.
    fn turn_faults(&mut self) {
        let links = &mut self.world.links;
        let roll = self.script.next() % 8;
        links.exhausted = roll == 7;
        links.unreachable = if roll < 4 { vec![endpoint_addr(roll as u8 + 1)] } else { Vec::new() };
    }

    fn check(&self) {
        let flows = &self.world.flows;
        assert_eq!(flows.len(), self.flows.len());
        assert!(flows.len() <= LIMIT);
        assert_eq!(flows.budget.used.get(), flows.len());
        assert_eq!(self.world.counters.flows_active.get(), flows.len() as u64);
        for (client, flow) in &flows.flows {
            let (expected, deadline) = (&self.flows[client], flows.deadline(flow));
            assert_eq!((flow.endpoint(), deadline), (expected.endpoint, self.deadline(expected)));
            assert!(flows.next_check().is_some_and(|at| at <= deadline), "checked no later than due");
        }
    }
}

#[test]
fn random_histories_agree_with_the_model() {
    let (mut moved, mut evicted) = (0, 0);
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        for _ in 0..STEPS {
            simulation.step();
        }
        simulation.world.flows.stop_accepting();
        simulation.world.flows.shorten_idle(IDLE / 30);
        simulation.idle = IDLE / 30;
        simulation.walk();
        simulation.check();
        simulation.world.now += IDLE;
        simulation.world.flows.expire(simulation.world.now, usize::MAX);
        assert!(simulation.world.flows.is_empty() && simulation.world.flows.next_check().is_none());
        moved += simulation.world.counters.flows_repicked.get();
        evicted += simulation.world.counters.flows_evicted.get();
    }
    assert!(
        moved > SEEDS * 50 && evicted > SEEDS * 50,
        "the histories are lively: {moved} moves, {evicted} evictions"
    );
}
