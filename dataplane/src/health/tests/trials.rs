//! Tests of how ejected endpoints return.

use std::time::Instant;

use proptest::prelude::*;
use sheave_model::{ClientAddr, RoutingTable};

use super::*;
use crate::health::outlier::FIRST_EJECTION;
use crate::health::reports::EndpointKey;
use crate::health::suspect::FailureMoment;
use crate::health::{Health, ProbeBudget};
use crate::select::affinity::AffinityTable;
use crate::select::{ActiveTable, Origin, Pick, PickRequest};

/// Number of endpoints of the frontend.
const COUNT: u8 = 3;
/// Longer than the longest ejection.
const AGES: Duration = Duration::from_secs(400);

/// The health of one frontend's endpoints, and the picks of new flows.
struct Rig {
    health: Health,
    active: ActiveTable,
    frontend: Frontend,
    affinity: AffinityTable,
    picks: u64,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        Self::of(Protocol::Udp)
    }

    fn of(protocol: Protocol) -> Self {
        let endpoints: Vec<EndpointAddr> = (0..COUNT).map(endpoint).collect();
        let mut frontend = frontend(protocol, &endpoints, None);
        frontend.addr.ip = HERE;
        let table: Arc<RoutingTable> = Arc::new(table([frontend.clone()]));
        let mut health = Health::new(Arc::default(), ProbeBudget::of(0));
        let none = ActiveTable::default();
        health.follow(none.table(), &sheave_model::diff(none.table(), &table));
        let (active, affinity) = (ActiveTable::compile(table, &none), AffinityTable::default());
        Self { health, active, frontend, affinity, picks: 0, now: Instant::now() }
    }

    fn key(&self, number: u8) -> EndpointKey {
        EndpointKey { service: self.frontend.service.clone(), addr: endpoint(number) }
    }

    fn follow(&mut self) {
        self.health.publish_suspects();
        if let Some(health) = self.health.take_changed() {
            self.active = self.active.with_health(health);
        }
    }

    /// A flow to the endpoint fails, reported as by its worker.
    fn fails(&mut self, number: u8) {
        let key = self.key(number);
        let health = self.active.health();
        if health.is_unhealthy(&key.service, key.addr) && health.trial(&key.service, key.addr).is_none() {
            return;
        }
        self.now += Duration::from_millis(50);
        let watch = self.health.suspects.get(&key).map(|suspect| suspect.watch().state());
        self.health.failed(key, &"port unreachable", FailureMoment { at: self.now, watch });
        self.follow();
    }

    fn ejected(&mut self, number: u8) {
        while !self.is_unhealthy(number) {
            self.fails(number);
        }
    }

    fn answers(&mut self, number: u8) {
        self.health.answered(self.key(number));
        self.follow();
    }

    /// Handles the deadlines that are due after this time.
    fn passes(&mut self, time: Duration) {
        self.health.expire(super::super::now() + time);
        self.follow();
    }

    fn is_unhealthy(&self, number: u8) -> bool {
        let EndpointKey { service, addr } = self.key(number);
        self.active.health().is_unhealthy(&service, addr)
    }

    /// The endpoint of a new flow.
    fn pick(&mut self) -> u8 {
        self.picks += 1;
        let client = ClientAddr((HERE, 1024).into());
        let (random, now) = (self.picks, self.now);
        let request = PickRequest { client, origin: Origin::External, random, now, tried: &[], part: None };
        let active = self.active.get(self.frontend.addr).unwrap();
        let Pick::Forward(picked) = active.pick(&request, &self.affinity) else {
            panic!("there are endpoints")
        };
        (0..COUNT).find(|number| endpoint(*number) == picked.addr()).unwrap()
    }
}

fn endpoint(number: u8) -> EndpointAddr {
    EndpointAddr::new(Ipv4Addr::new(192, 0, 2, number).into(), 80)
}

#[tokio::test]
async fn one_flow_tries_an_ejected_endpoint_and_the_others_wait_for_its_answer() {
    let mut rig = Rig::new();
    rig.ejected(0);
    assert!((0..20).all(|_| rig.pick() != 0));
    rig.passes(2 * FIRST_EJECTION);
    assert!(rig.is_unhealthy(0), "nobody knows");
    assert_eq!((0..20).filter(|_| rig.pick() == 0).count(), 1);
    rig.fails(0);
    rig.passes(2 * FIRST_EJECTION);
    assert!((0..20).all(|_| rig.pick() != 0), "it is ejected for twice as long");
    rig.passes(AGES);
    assert_eq!((0..20).filter(|_| rig.pick() == 0).count(), 1);
    rig.answers(0);
    assert!(!rig.is_unhealthy(0));
    assert!((0..20).filter(|_| rig.pick() == 0).count() > 1);
}

/// The endpoint may always refuse the gateway's own address.
#[tokio::test]
async fn one_that_sees_clients_returns_without_a_connection_of_the_gateway() {
    for sees_clients in [false, true] {
        let mut rig = Rig::of(Protocol::Tcp);
        rig.ejected(0);
        if sees_clients {
            let key = rig.key(0);
            rig.health.suspects.get_mut(&key).unwrap().set_sees_clients();
        }
        rig.passes(2 * FIRST_EJECTION);
        assert_eq!(rig.is_unhealthy(0), !sees_clients);
        rig.fails(0);
        assert!(rig.is_unhealthy(0), "its first failure ejects it again");
    }
}

#[tokio::test]
async fn one_that_never_answers_returns_if_its_trial_brings_no_error_and_one_that_fell_silent_does_not() {
    for silent in [false, true] {
        let mut rig = Rig::new();
        rig.ejected(0);
        let key = rig.key(0);
        rig.health.suspects.get_mut(&key).unwrap().set_silent(silent);
        rig.passes(AGES);
        rig.passes(2 * AGES);
        assert!(rig.is_unhealthy(0), "no flow came");
        assert_eq!((0..20).filter(|_| rig.pick() == 0).count(), 1);
        rig.passes(3 * AGES);
        assert_eq!(rig.is_unhealthy(0), silent);
        if silent {
            assert_eq!((0..20).filter(|_| rig.pick() == 0).count(), 1, "another one tries it");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Fails(u8),
    Answers(u8),
    Passes(u32),
    Picks,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..COUNT).prop_map(Event::Fails),
        1 => (0..COUNT).prop_map(Event::Answers),
        1 => (0..3_u32).prop_map(Event::Passes),
        4 => Just(Event::Picks),
    ];
    prop::collection::vec(event, 0..200)
}

proptest! {
    #[test]
    fn whatever_happens_an_unhealthy_endpoint_gets_one_flow_for_each_look_at_it_and_somebody_serves(
        events in events()
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let mut rig = Rig::new();
        // Number of flows that each endpoint may still get while it is unhealthy and not all are.
        let (mut allowed, mut passed) = ([0; COUNT as usize], Duration::ZERO);
        for event in events {
            match event {
                Event::Fails(number) => rig.fails(number),
                Event::Answers(number) => rig.answers(number),
                Event::Passes(times) => {
                    passed += AGES * times;
                    rig.passes(passed);
                    allowed = [1; COUNT as usize];
                }
                Event::Picks => {
                    let unhealthy = (0..COUNT).filter(|number| rig.is_unhealthy(*number)).count();
                    let picked = rig.pick();
                    // Below the panic threshold of 50 %, unhealthy endpoints are used as well.
                    if rig.is_unhealthy(picked) && 2 * unhealthy < COUNT.into() {
                        let left = &mut allowed[usize::from(picked)];
                        prop_assert!(*left > 0, "{picked} gets another flow");
                        *left -= 1;
                    }
                }
            }
        }
    }
}
