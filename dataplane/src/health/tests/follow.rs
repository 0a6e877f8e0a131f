//! Tests of the state of endpoints when tables change.

use sheave_model::{FrontendSource, RoutingTable};

use super::*;
use crate::handover::{FailureRecord, HandedPhase, HandedVerdict, HealthRecord};
use crate::health::{Health, ProbeBudget};
use crate::select::{ActiveTable, EndpointHealth};

const MINUTE: Duration = Duration::from_secs(60);

/// Health that follows a series of tables.
struct Rig {
    health: Health,
    active: ActiveTable,
    known: EndpointHealth,
}

impl Rig {
    fn new(frontends: &[&Frontend]) -> Self {
        let health = Health::new(Arc::default(), ProbeBudget::of(0));
        let mut rig = Self { health, active: ActiveTable::default(), known: EndpointHealth::default() };
        rig.apply(frontends);
        rig
    }

    fn apply(&mut self, frontends: &[&Frontend]) {
        let table: Arc<RoutingTable> = Arc::new(table(frontends.iter().map(|frontend| (*frontend).clone())));
        let changes = sheave_model::diff(self.active.table(), &table);
        self.health.follow(self.active.table(), &changes);
        self.active = ActiveTable::compile(table, &self.active);
        self.update();
    }

    fn update(&mut self) {
        self.known = self.health.take_changed().unwrap_or(self.known.clone());
    }

    /// Restores the endpoint as ejected by another process.
    fn eject(&mut self, frontend: &Frontend, endpoint: EndpointAddr) {
        let phase = HandedPhase::Ejected { for_millis: 60_000 };
        let service = &frontend.service;
        self.health.restore(vec![HealthRecord {
            namespace: service.namespace.to_string(),
            name: service.name.to_string(),
            port: service.port_name.to_string(),
            of_fleet: service.source == FrontendSource::MultiClusterService,
            of_gateway: false,
            settings_of: service.settings_of.as_deref().map(str::to_owned),
            udp: false,
            endpoint,
            unhealthy: Some(HandedVerdict { why: "refused".to_owned(), for_millis: 0 }),
            failures: Some(FailureRecord {
                failures: 0,
                ejections: 1,
                penalty_millis: 60_000,
                phase,
                silent: false,
            }),
            growing_millis: None,
        }]);
        self.update();
    }

    /// Number of parts of its share that an endpoint gets.
    fn parts(&self, frontend: &Frontend, endpoint: EndpointAddr) -> Option<u8> {
        self.known.of(&frontend.service)?.slow_start(endpoint)
    }

    fn is_unhealthy(&self, frontend: &Frontend, endpoint: EndpointAddr) -> bool {
        let listed = self.health.unhealthy().any(|unhealthy| unhealthy.addr == endpoint);
        assert_eq!(self.known.is_unhealthy(&frontend.service, endpoint), listed);
        listed
    }
}

fn endpoint_at(number: u8) -> EndpointAddr {
    EndpointAddr::new(Ipv4Addr::new(192, 0, 2, number).into(), 80)
}

fn of_service(endpoints: &[EndpointAddr], slow_start: Duration) -> Frontend {
    let frontend = frontend(Protocol::Tcp, endpoints, None);
    let addr = FrontendAddr { ip: HERE, ..frontend.addr };
    Frontend { addr, health: Arc::new(HealthPolicy { slow_start, ..HealthPolicy::default() }), ..frontend }
}

#[tokio::test]
async fn an_endpoint_keeps_its_verdict_while_any_frontend_of_its_service_port_has_it() {
    let [one, two] = [1, 2].map(endpoint_at);
    let first = of_service(&[one, two], Duration::ZERO);
    let second = Frontend { addr: FrontendAddr { port: 81, ..first.addr }, ..first.clone() };
    let without = |from: &Frontend| Frontend { addr: from.addr, ..of_service(&[two], Duration::ZERO) };
    for (stays, leaves) in [(&first, &second), (&second, &first)] {
        let mut rig = Rig::new(&[&first, &second]);
        rig.eject(&first, one);
        assert!(rig.is_unhealthy(&first, one));
        rig.apply(&[stays, &without(leaves)]);
        assert!(rig.is_unhealthy(&first, one), "the other frontend has it");
        rig.apply(&[&without(stays), &without(leaves)]);
        assert_eq!((rig.health.unhealthy().count(), &rig.known), (0, &EndpointHealth::default()));
        rig.apply(&[&first, &second]);
        assert!(!rig.is_unhealthy(&first, one), "it is new");
        assert!(rig.health.records().is_empty());
    }
}

#[tokio::test]
async fn a_service_of_several_clusters_judges_for_itself_beside_one_of_its_name() {
    let endpoint = endpoint_at(1);
    let local = of_service(&[endpoint], Duration::ZERO);
    let mut fleet = Frontend { addr: FrontendAddr { port: 81, ..local.addr }, ..local.clone() };
    fleet.service.source = FrontendSource::MultiClusterService;
    judge_for_themselves(&local, &fleet, endpoint);
}

/// Checks that what one frontend finds of an endpoint does not count for the other one, before and after a take-over.
fn judge_for_themselves(one: &Frontend, two: &Frontend, endpoint: EndpointAddr) {
    for (ejected, other) in [(one, two), (two, one)] {
        let mut rig = Rig::new(&[one, two]);
        rig.eject(ejected, endpoint);
        assert!(rig.known.is_unhealthy(&ejected.service, endpoint));
        assert!(!rig.known.is_unhealthy(&other.service, endpoint), "{other:?}");
        // A process that takes over has the same state.
        let mut next = Rig::new(&[one, two]);
        next.health.restore(rig.health.records());
        next.update();
        assert!(next.known.is_unhealthy(&ejected.service, endpoint));
        assert!(!next.known.is_unhealthy(&other.service, endpoint), "{other:?}");
    }
}

#[tokio::test]
async fn a_route_with_a_check_of_its_own_judges_for_itself_beside_the_service() {
    let endpoint = endpoint_at(1);
    let service = of_service(&[endpoint], Duration::ZERO);
    let mut pool = Frontend { addr: FrontendAddr { port: 81, ..service.addr }, ..service.clone() };
    pool.service.settings_of = Some("TCPRoute shop/a".into());
    judge_for_themselves(&service, &pool, endpoint);
}

#[tokio::test]
async fn an_endpoint_that_leaves_ends_its_slow_start_and_is_new_if_it_comes_again() {
    tokio::time::pause();
    let [one, two] = [1, 2].map(endpoint_at);
    let [before, after] = [&[one][..], &[one, two]].map(|endpoints| of_service(endpoints, 10 * MINUTE));
    let mut rig = Rig::new(&[&before]);
    rig.apply(&[&after]);
    assert_eq!(rig.parts(&after, two), Some(1));
    tokio::time::advance(5 * MINUTE).await;
    rig.apply(&[&before]);
    assert_eq!((&rig.known, rig.health.records().len()), (&EndpointHealth::default(), 0));
    rig.apply(&[&after]);
    assert_eq!(rig.parts(&after, two), Some(1), "it begins anew");

    // An endpoint that leaves while its check fails has no share that could grow.
    rig.eject(&after, two);
    rig.apply(&[&before]);
    assert_eq!((&rig.known, rig.health.records().len()), (&EndpointHealth::default(), 0));
}

#[tokio::test]
async fn shares_that_grow_take_another_duration_and_end_without_one() {
    tokio::time::pause();
    let [one, two] = [1, 2].map(endpoint_at);
    let with = |minutes: u32| of_service(&[one, two], minutes * MINUTE);
    let mut rig = Rig::new(&[&of_service(&[one], 10 * MINUTE)]);
    rig.apply(&[&with(10)]);
    tokio::time::advance(4 * MINUTE).await;
    for (minutes, parts) in [(20, Some(3)), (8, Some(6)), (5, Some(9)), (10, Some(5))] {
        rig.apply(&[&with(minutes)]);
        assert_eq!(rig.parts(&with(minutes), two), parts, "{minutes} minutes");
    }
    let mut shortened = Rig::new(&[&of_service(&[one], 10 * MINUTE)]);
    shortened.apply(&[&with(10)]);
    tokio::time::advance(4 * MINUTE).await;
    shortened.apply(&[&with(4)]);
    rig.apply(&[&with(0)]);
    for rig in [rig, shortened] {
        assert_eq!((&rig.known, rig.health.records().len()), (&EndpointHealth::default(), 0));
    }
}

/// A frontend split over two Services, of which the second has this slow start.
fn split_over(endpoints: [&[(u32, u16)]; 2], slow_start: Duration) -> Frontend {
    let parts = (1..).zip(endpoints).map(|(number, endpoints)| test_util::pool(number, 1, endpoints));
    let mut whole = test_util::split(3, Algorithm::Random, parts);
    let second = test_util::frontend(2, Algorithm::Random, &[]).service.name;
    test_util::change_pools(&mut whole, |pool| {
        if pool.service.name == second {
            pool.health = Arc::new(HealthPolicy { slow_start, ..HealthPolicy::default() });
        }
    });
    whole
}

#[tokio::test]
async fn endpoints_of_parts_keep_their_state_under_the_service_of_the_part() {
    let endpoint = test_util::endpoint_addr(1);
    let [own, other] = [1, 2].map(|number| test_util::frontend(number, Algorithm::Random, &[(1, 100)]));
    let whole = split_over([&[(1, 100)], &[(1, 100)]], Duration::ZERO);
    let mut rig = Rig::new(&[&whole]);
    rig.eject(&own, endpoint);
    assert!(
        rig.known.is_unhealthy(&own.service, endpoint) && !rig.known.is_unhealthy(&other.service, endpoint)
    );
    // The Service's own frontend shares the verdict, and keeps it when the split goes.
    rig.apply(&[&whole, &own]);
    rig.apply(&[&own]);
    assert!(rig.is_unhealthy(&own, endpoint));
    rig.apply(&[]);
    assert_eq!((rig.health.unhealthy().count(), &rig.known), (0, &EndpointHealth::default()));
}

#[tokio::test]
async fn an_endpoint_that_comes_to_a_part_starts_slowly_and_a_part_that_comes_does_not() {
    let second = test_util::frontend(2, Algorithm::Random, &[]);
    let mut rig = Rig::new(&[&test_util::split(3, Algorithm::Random, [test_util::pool(1, 1, &[(1, 100)])])]);
    rig.apply(&[&split_over([&[(1, 100)], &[(2, 100)]], MINUTE)]);
    assert_eq!(rig.known, EndpointHealth::default());
    rig.apply(&[&split_over([&[(1, 100), (4, 100)], &[(2, 100), (3, 100)]], MINUTE)]);
    assert_eq!([2, 3].map(|number| rig.parts(&second, test_util::endpoint_addr(number))), [None, Some(1)]);
    rig.apply(&[&split_over([&[(1, 100)], &[(2, 100)]], MINUTE)]);
    assert_eq!(rig.known, EndpointHealth::default());
}
