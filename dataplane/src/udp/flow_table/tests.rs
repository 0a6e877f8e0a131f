//! Tests of the flow table without sockets, with simulated time.

use std::cell::RefCell;
use std::num::NonZeroU32;

use super::expiry::{BUSY, OVER, PATIENCE};
use super::*;
use crate::limits::capacity::{Capacity, CapacityLimits};
use crate::select::EndpointHealth;
use crate::sys::Errno;
use crate::udp::tests::fixtures::{follow, frontend, with_sources};
use sheave_model::SourceRanges;
use sheave_model::{Backend, ClientSources, EndpointState, Frontend, Route, ServiceLimits};

mod room;
mod silent;
mod simulation;
mod split;
mod watched;

const IDLE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(30);

fn frontend_addr(port: u16) -> FrontendAddr {
    FrontendAddr { ip: [203, 0, 113, 1].into(), port, protocol: Protocol::Udp }
}

fn endpoint_addr(number: u8) -> EndpointAddr {
    EndpointAddr::new([10, 0, 0, number].into(), 53)
}

fn client_addr(number: u16) -> ClientAddr {
    ClientAddr(([198, 51, 100, 1], number).into())
}

fn ready(numbers: &[u8]) -> Vec<(EndpointAddr, EndpointState)> {
    numbers.iter().map(|number| (endpoint_addr(*number), EndpointState::Ready)).collect()
}

/// Opens links that are only the endpoint's address; fails as configured.
#[derive(Default)]
struct FakeLinks {
    opened: usize,
    last: Option<Way>,
    unreachable: Vec<EndpointAddr>,
    exhausted: bool,
    /// Endpoints towards which no port is free, even after an eviction.
    crowded: Vec<EndpointAddr>,
}

impl Links for FakeLinks {
    type Link = EndpointAddr;

    fn open(&mut self, way: &Way, _previous: Option<&EndpointAddr>) -> io::Result<EndpointAddr> {
        let endpoint = way.endpoint;
        if self.exhausted {
            return Err(io::Error::other("too many open files"));
        }
        if self.unreachable.contains(&endpoint) {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        }
        if self.crowded.contains(&endpoint) {
            return Err(Errno::EADDRNOTAVAIL.into());
        }
        self.opened += 1;
        self.last = Some(*way);
        Ok(endpoint)
    }
}

/// One frontend with its flows and its surroundings.
struct World {
    table: ActiveTable,
    affinity: AffinityTable,
    upstream_addresses: Arc<UpstreamAddresses>,
    random: SplitMix64,
    now: Instant,
    flows: FlowTable<EndpointAddr>,
    links: FakeLinks,
    counters: Arc<UdpCounters>,
}

impl World {
    fn new(limit: usize, endpoints: &[(EndpointAddr, EndpointState)]) -> Self {
        let timeouts = FlowTimeouts { idle: IDLE, unanswered: IDLE };
        Self::of_owner(Weak::<RefCell<Self>>::new(), Self::budget(limit), timeouts, endpoints)
    }

    fn budget(limit: usize) -> Rc<FlowBudget> {
        FlowBudget::new(limit, Capacity::unlimited(), Rc::default())
    }

    fn of_owner(
        owner: Weak<dyn FlowOwner>,
        budget: Rc<FlowBudget>,
        timeouts: FlowTimeouts,
        endpoints: &[(EndpointAddr, EndpointState)],
    ) -> Self {
        let counters = Arc::new(UdpCounters::default());
        Self {
            table: follow(&ActiveTable::default(), [frontend(frontend_addr(53), endpoints)]),
            affinity: AffinityTable::default(),
            upstream_addresses: Arc::default(),
            random: SplitMix64::new(7),
            now: Instant::now(),
            flows: FlowTable::new(timeouts, budget, owner, Arc::clone(&counters)),
            links: FakeLinks::default(),
            counters,
        }
    }

    fn swap(&mut self, endpoints: &[(EndpointAddr, EndpointState)]) {
        self.table = follow(&self.table, [frontend(frontend_addr(53), endpoints)]);
    }

    /// Replaces the endpoints, with this source of clients outside the cluster, as all clients here are.
    fn swap_with_source(&mut self, endpoints: &[(EndpointAddr, EndpointState)], source: ClientSource) {
        let sources = ClientSources { external: source, internal: ClientSource::Gateway };
        let frontend = with_sources(frontend(frontend_addr(53), endpoints), sources);
        self.table = follow(&self.table, [frontend]);
    }

    /// Checks all flows, as a worker does after a change.
    fn walk(&mut self) {
        self.flows.set_frontend(self.table.get(frontend_addr(53)));
        for client in self.flows.clients().collect::<Vec<_>>() {
            self.flows.hasten(client, self.now, GRACE);
        }
    }

    fn datagram(&mut self, client: u16) -> Result<EndpointAddr, DropReason> {
        self.flows.set_frontend(self.table.get(frontend_addr(53)));
        let Self { table, affinity, upstream_addresses, random, now, .. } = self;
        let view = View { table, affinity, upstream_addresses, random, now: *now };
        let flow = self.flows.route(client_addr(client), &view, &mut self.links)?;
        assert_eq!(flow.link, flow.picked.addr(), "the link leads to the endpoint that counts the flow");
        Ok(flow.link)
    }
}

#[test]
fn a_flow_keeps_its_endpoint_and_opens_nothing_more() {
    let mut world = World::new(10, &ready(&[1, 2, 3]));
    let endpoint = world.datagram(1).unwrap();
    for _ in 0..1000 {
        assert_eq!(world.datagram(1), Ok(endpoint));
    }
    assert_eq!((world.links.opened, world.flows.queues.len()), (1, 1));
}

#[test]
fn datagrams_of_both_directions_put_the_end_off() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    let start = world.now;
    world.now = start + IDLE / 2;
    assert!(world.flows.answered(client_addr(1), world.now).is_some());
    world.now = start + IDLE;
    world.flows.expire(world.now, usize::MAX);
    assert_eq!(
        world.flows.next_check(),
        Some(start + IDLE / 2 + IDLE),
        "looked at again when due, not before"
    );
    world.datagram(1).unwrap();
    world.now = start + IDLE * 2 - Duration::from_nanos(1);
    world.flows.expire(world.now, usize::MAX);
    assert_eq!(world.flows.len(), 1);
    world.now = start + IDLE * 2;
    world.flows.expire(world.now, usize::MAX);
    assert_eq!((world.flows.len(), world.counters.flows_active.get()), (0, 0));
}

#[test]
fn a_vanished_endpoint_loses_the_flow_on_its_next_datagram() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    world.swap(&ready(&[2]));
    assert_eq!(world.datagram(1), Ok(endpoint_addr(2)));
    assert_eq!(world.counters.flows_repicked.get(), 1);
}

#[test]
fn a_vanished_endpoint_keeps_a_flow_whose_client_is_silent_for_the_time_of_a_drain() {
    let others = [ready(&[2]), vec![], vec![(endpoint_addr(2), EndpointState::Terminating)]];
    for others in others {
        let mut world = World::new(10, &ready(&[1]));
        world.datagram(1).unwrap();
        let start = world.now;
        let talk = |world: &mut World, seconds| {
            world.now = start + Duration::from_secs(seconds);
            world.flows.expire(world.now, usize::MAX);
            world.walk();
            world.flows.answered(client_addr(1), world.now).is_some()
        };
        world.swap(&others);
        assert!([0, 10, 20, 29].into_iter().all(|second| talk(&mut world, second)), "{others:?}");
        world.swap(&ready(&[1]));
        world.walk();
        assert!([40, 50].into_iter().all(|second| talk(&mut world, second)), "it serves again");
        world.swap(&others);
        assert!([60, 89].into_iter().all(|second| talk(&mut world, second)));
        assert!(!talk(&mut world, 90), "{others:?}");
        assert_eq!(world.counters.flows_active.get(), 0);
    }
}

#[test]
fn another_port_at_the_same_address_is_another_endpoint() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    let moved = EndpointAddr { port: 5353, ..endpoint_addr(1) };
    world.swap(&[(moved, EndpointState::Ready)]);
    assert_eq!(world.datagram(1), Ok(moved));
}

#[test]
fn a_client_that_source_ranges_leave_out_is_denied() {
    let mut world = World::new(10, &ready(&[1]));
    let source_ranges = Arc::new(SourceRanges::new(vec!["203.0.113.0/24".parse().unwrap()]));
    let narrowed = Frontend { source_ranges, ..frontend(frontend_addr(53), &ready(&[1])) };
    world.table = follow(&world.table, [narrowed]);
    assert_eq!(world.datagram(1), Err(DropReason::Denied));
    assert_eq!(world.links.opened, 0);
}

#[test]
fn a_flow_ends_once_source_ranges_leave_out_its_client() {
    let with_ranges = |range: &str| Frontend {
        source_ranges: Arc::new(SourceRanges::new(vec![range.parse().unwrap()])),
        ..frontend(frontend_addr(53), &ready(&[1]))
    };
    let mut world = World::new(10, &ready(&[1]));
    let clients = [1, 2];
    clients.iter().for_each(|client| assert_eq!(world.datagram(*client), Ok(endpoint_addr(1))));
    world.table = follow(&world.table, [with_ranges("198.51.100.0/24")]);
    assert_eq!((world.datagram(1), world.links.opened), (Ok(endpoint_addr(1)), 2));
    world.table = follow(&world.table, [with_ranges("203.0.113.0/24")]);
    // On the client's next datagram, and otherwise after the time of a drain, however much the endpoint sends.
    assert_eq!((world.datagram(1), world.flows.len()), (Err(DropReason::Denied), 1));
    world.walk();
    let end = world.now + GRACE;
    while world.now < end {
        assert!(world.flows.answered(client_addr(2), world.now).is_some());
        world.now += Duration::from_secs(5);
        world.flows.expire(world.now, usize::MAX);
    }
    assert_eq!((world.flows.len(), world.counters.flows_active.get()), (0, 0));
    assert_eq!((world.datagram(2), world.links.opened), (Err(DropReason::Denied), 2));
}

#[test]
fn a_flow_takes_its_place_in_the_limits_of_the_service_that_has_its_frontend_now() {
    let limits = ServiceLimits { connections: NonZeroU32::new(2), ..ServiceLimits::default() };
    let of = |name: &str| {
        let mut frontend = Frontend { limits, ..frontend(frontend_addr(53), &ready(&[1])) };
        frontend.service.name = name.into();
        frontend
    };
    let mut world = World::new(10, &[]);
    world.table = follow(&world.table, [of("a")]);
    assert!([1, 2].into_iter().all(|client| world.datagram(client).is_ok()));
    let (former, counters) = (Arc::clone(&world.counters), Arc::<UdpCounters>::default());
    world.table = follow(&world.table, [of("b")]);
    world.flows.set_frontend(world.table.get(frontend_addr(53)));
    world.flows.set_counters(Arc::clone(&counters));
    let open = || (former.flows_active.get(), counters.flows_active.get());
    assert_eq!(open(), (2, 0));
    assert_eq!((world.datagram(1), open()), (Ok(endpoint_addr(1)), (1, 1)));
    assert_eq!(world.datagram(3).map(|_| open()), Ok((1, 2)), "flow 2 is not known to be active");
    assert_eq!(world.datagram(2).map(|_| open()), Ok((0, 3)), "what is open stays beyond the limit");
    assert_eq!(world.datagram(4), Err(DropReason::MaxConnections));
    assert_eq!((world.links.opened, former.usage().open(), counters.usage().open()), (3, 0, 3));
}

#[test]
fn a_client_that_is_a_socket_of_the_gateways_own_again_and_again_is_refused() {
    let mut world = World::new(100, &ready(&[1]));
    let all = Arc::clone(&world.upstream_addresses);
    // Each flow's socket is the next client.
    let (mut sockets, mut client) = (Vec::new(), 1);
    let refused = loop {
        match world.datagram(client) {
            Ok(endpoint) => sockets.push(all.add(client_addr(client + 1).0, endpoint, client_addr(client))),
            Err(reason) => break reason,
        }
        client += 1;
        assert!(client < 100, "without end");
    };
    assert_eq!((refused, client, world.flows.len()), (DropReason::Loop, 5, 4));
    assert_eq!(world.datagram(3), Ok(endpoint_addr(1)), "flows that are there go on");
    assert_eq!(
        world.datagram(50),
        Ok(endpoint_addr(1)),
        "of the same address, and no socket of the gateway's"
    );
    sockets.clear();
    assert_eq!(world.datagram(client), Ok(endpoint_addr(1)), "the port is another program's by now");
}

#[test]
fn a_flow_stays_while_others_of_its_service_come_and_go() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    for others in [&[1, 2, 3][..], &[1, 4], &[1]] {
        world.swap(&ready(others));
        assert_eq!(world.datagram(1), Ok(endpoint_addr(1)));
    }
    assert_eq!((world.links.opened, world.counters.flows_repicked.get()), (1, 0));
}

#[test]
fn the_same_again_and_changes_of_other_frontends_do_not_even_ask_flows() {
    let mut world = World::new(10, &ready(&[1, 2]));
    let endpoint = world.datagram(1).unwrap();
    let revision = world.flows.revision;
    for others in [&[7, 8][..], &[8], &[]] {
        let own = frontend(frontend_addr(53), &ready(&[1, 2]));
        let other = frontend(frontend_addr(54), &ready(others));
        world.table = follow(&world.table, [own, other]);
        assert_eq!(world.datagram(1), Ok(endpoint));
    }
    assert_eq!((world.links.opened, world.flows.revision), (1, revision));
}

#[test]
fn a_terminating_endpoint_keeps_its_flows_and_gets_no_new_ones() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    world.swap(&[(endpoint_addr(1), EndpointState::Terminating), (endpoint_addr(2), EndpointState::Ready)]);
    assert_eq!(world.datagram(1), Ok(endpoint_addr(1)));
    assert_eq!(world.datagram(2), Ok(endpoint_addr(2)));
}

#[test]
fn a_flow_ends_with_the_last_endpoint_and_with_its_frontend() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    world.swap(&[]);
    assert_eq!(world.datagram(1), Err(DropReason::NoEndpoint));
    assert_eq!((world.flows.len(), world.counters.flows_active.get()), (0, 0));
    world.swap(&ready(&[2]));
    assert_eq!(world.datagram(1), Ok(endpoint_addr(2)), "as a new one, when another comes");
    world.table = follow(&world.table, []);
    assert_eq!(world.datagram(1), Err(DropReason::NoEndpoint));
    assert!(world.flows.is_empty());
}

#[test]
fn a_flow_stays_with_an_endpoint_that_lingers_though_nobody_else_may_go_there() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    let spec = frontend(frontend_addr(53), &[]);
    let lingering = Backend { lingering: vec![endpoint_addr(1)], ..spec.backends[0].clone() };
    let [external, internal] = [Route::Drop, Route::Drop];
    world.table =
        follow(&world.table, [Frontend { backends: Arc::new([lingering]), external, internal, ..spec }]);
    assert_eq!(world.datagram(1), Ok(endpoint_addr(1)));
    assert_eq!(world.datagram(2), Err(DropReason::Policy));
}

#[test]
fn a_policy_that_allows_no_endpoint_ends_the_flow_of_a_vanished_one() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    world.swap(&[(endpoint_addr(2), EndpointState::Terminating)]);
    assert_eq!(world.datagram(1), Err(DropReason::Policy));
    assert_eq!((world.flows.len(), world.counters.flows_active.get()), (0, 0));
}

#[test]
fn a_flow_follows_what_its_endpoint_is_to_see_of_the_client() {
    let mut world = World::new(10, &[]);
    let way = |number, source| Some(Way { client: client_addr(1), endpoint: endpoint_addr(number), source });
    world.swap_with_source(&ready(&[1]), ClientSource::Transparent);
    world.datagram(1).unwrap();
    assert_eq!(world.links.last, way(1, ClientSource::Transparent));
    world.swap_with_source(&ready(&[1]), ClientSource::ProxyV2);
    world.datagram(1).unwrap();
    world.datagram(1).unwrap();
    assert_eq!((world.links.opened, world.links.last), (2, way(1, ClientSource::ProxyV2)));
    assert_eq!(world.counters.flows_repicked.get(), 0, "with the same endpoint");
    world.swap_with_source(&ready(&[2]), ClientSource::Gateway);
    world.datagram(1).unwrap();
    assert_eq!((world.links.opened, world.links.last), (3, way(2, ClientSource::Gateway)));
}

#[test]
fn a_suspect_endpoint_that_is_kept_is_told_of_the_client_anew() {
    let mut world = World::new(10, &[]);
    world.swap_with_source(&ready(&[1]), ClientSource::Gateway);
    world.datagram(1).unwrap();
    world.flows.suspect(client_addr(1));
    world.swap_with_source(&ready(&[1]), ClientSource::ProxyV2);
    world.datagram(1).unwrap();
    assert_eq!(world.links.last.map(|way| way.source), Some(ClientSource::ProxyV2));
}

#[test]
fn a_flow_that_cannot_follow_goes_on_as_it_was() {
    let mut world = World::new(10, &[]);
    world.swap_with_source(&ready(&[1]), ClientSource::Transparent);
    world.datagram(1).unwrap();
    world.links.exhausted = true;
    world.swap_with_source(&ready(&[1]), ClientSource::Gateway);
    assert_eq!(world.datagram(1), Ok(endpoint_addr(1)));
}

#[test]
fn a_suspect_endpoint_is_left_for_another_and_kept_if_it_is_the_only_one() {
    let mut world = World::new(10, &ready(&[1, 2]));
    let first = world.datagram(1).unwrap();
    world.flows.suspect(client_addr(1));
    let second = world.datagram(1).unwrap();
    assert_ne!(first, second);
    assert_eq!(world.datagram(1), Ok(second));
    world.swap(&[(second, EndpointState::Ready)]);
    world.flows.suspect(client_addr(1));
    let opened = world.links.opened;
    assert_eq!(world.datagram(1), Ok(second));
    assert_eq!(world.links.opened, opened, "with the link that it has");
}

/// Hands a flow over to another table, like that of a process that takes over.
fn hand_over(from: &World, client: u16, to: &mut World) -> bool {
    let (former, link) = from.flows.former(client_addr(client)).unwrap();
    to.flows.set_frontend(to.table.get(frontend_addr(53)));
    let World { table, affinity, upstream_addresses, random, now, .. } = to;
    let view = View { table, affinity, upstream_addresses, random, now: *now };
    to.flows.take_over(&former, *link, &view)
}

#[test]
fn a_flow_of_another_process_goes_on_as_it_would_have_there() {
    let mut former = World::new(10, &ready(&[1, 2]));
    let ways = [1, 2].map(|client| former.datagram(client).unwrap());
    former.flows.suspect(client_addr(2));
    let mut next = World::new(10, &[]);
    next.swap_with_source(&ready(&[1, 2]), ClientSource::ProxyV2);
    assert!(hand_over(&former, 1, &mut next) && hand_over(&former, 2, &mut next));
    assert_eq!(next.datagram(1), Ok(ways[0]));
    assert_eq!(next.links.last.map(|way| way.source), Some(ClientSource::ProxyV2), "as it is there");
    assert_eq!((next.datagram(1), next.links.opened), (Ok(ways[0]), 1), "once");
    let moved = next.datagram(2).unwrap();
    assert_ne!(moved, ways[1], "it was reported unreachable there");

    let mut without = World::new(10, &ready(&[3]));
    assert!(!hand_over(&former, 1, &mut without), "its endpoint serves no more");
    assert_eq!(without.datagram(1), Ok(endpoint_addr(3)));
}

#[test]
fn an_unhealthy_endpoint_is_left_for_a_healthy_one() {
    let mut world = World::new(10, &ready(&[1, 2]));
    let first = world.datagram(1).unwrap();
    let service = frontend(frontend_addr(53), &[]).service;
    let mut unhealthy = EndpointHealth::default();
    unhealthy.set_unhealthy(&service, first, "connection refused".into());
    world.table = world.table.with_health(unhealthy.clone());
    let second = world.datagram(1).unwrap();
    assert_ne!(second, first);
    let opened = world.links.opened;
    unhealthy.set_unhealthy(&service, second, "connection refused".into());
    world.table = world.table.with_health(unhealthy);
    assert_eq!(world.datagram(1), Ok(second), "nothing is better");
    assert_eq!(world.links.opened, opened);
}

#[test]
fn a_failure_counts_once_and_not_if_the_client_itself_may_have_been_refused() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    assert_eq!(world.flows.suspect(client_addr(1)), Some(endpoint_addr(1)));
    assert_eq!(world.flows.suspect(client_addr(1)), None);
    let mut transparent = frontend(frontend_addr(53), &ready(&[1]));
    let source = ClientSource::Transparent;
    transparent.client_sources = ClientSources { external: source, internal: source };
    world.table = follow(&world.table, [transparent]);
    world.datagram(2).unwrap();
    assert_eq!(world.flows.suspect(client_addr(2)), None);
}

#[test]
fn an_endpoint_without_a_route_is_passed_over() {
    let mut world = World::new(10, &ready(&[1, 2]));
    world.links.unreachable = vec![endpoint_addr(1)];
    for client in 1..=6 {
        assert_eq!(world.datagram(client), Ok(endpoint_addr(2)));
    }
    world.links.unreachable.push(endpoint_addr(2));
    assert_eq!(world.datagram(7), Err(DropReason::NoSocket));
}

#[test]
fn a_flow_that_cannot_move_now_tries_again_on_the_next_datagram() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    world.swap(&ready(&[2]));
    world.links.exhausted = true;
    assert_eq!(world.datagram(1), Err(DropReason::NoSocket));
    world.links.exhausted = false;
    assert_eq!(world.datagram(1), Ok(endpoint_addr(2)));
}

#[test]
fn draining_keeps_flows_for_the_shorter_time_and_opens_none() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    world.flows.stop_accepting();
    world.flows.shorten_idle(Duration::from_secs(2));
    world.walk();
    assert_eq!(world.datagram(2), Err(DropReason::Draining));
    assert_eq!(world.flows.next_check(), Some(world.now + Duration::from_secs(2)));
    world.now += Duration::from_secs(1);
    world.datagram(1).unwrap();
    world.now += Duration::from_secs(1);
    world.flows.expire(world.now, usize::MAX);
    assert_eq!(world.flows.len(), 1);
    world.now += Duration::from_secs(1);
    world.flows.expire(world.now, usize::MAX);
    assert!(world.flows.is_empty());
}

#[test]
fn open_flows_have_new_timeouts_once_they_are_looked_at() {
    let second = Duration::from_secs(1);
    let mut world = World::new(10, &ready(&[1]));
    for client in [1, 2] {
        world.datagram(client).unwrap();
    }
    world.flows.answered(client_addr(2), world.now).unwrap();
    let unanswered = FlowTimeouts { idle: IDLE, unanswered: 2 * second };
    world.flows.set_timeouts(unanswered);
    world.walk();
    assert_eq!(world.flows.next_check(), Some(world.now + 2 * second));
    assert!(world.flows.expire(world.now + 2 * second, usize::MAX));
    assert_eq!(world.flows.endpoint(client_addr(1)), None);
    world.flows.set_timeouts(FlowTimeouts { idle: 3 * second, ..unanswered });
    world.walk();
    assert!(world.flows.expire(world.now + 3 * second, usize::MAX) && world.flows.is_empty());
    // A longer timeout applies when the flow is checked.
    world.datagram(3).unwrap();
    world.flows.set_timeouts(FlowTimeouts { idle: IDLE, unanswered: IDLE });
    assert!(world.flows.expire(world.now + 3 * second, usize::MAX));
    assert_eq!(world.flows.next_check(), Some(world.now + IDLE));
}

#[test]
fn a_flow_that_ended_early_and_came_back_is_looked_at_once() {
    let mut world = World::new(10, &ready(&[1]));
    world.datagram(1).unwrap();
    world.swap(&[(endpoint_addr(2), EndpointState::Terminating)]);
    assert_eq!(world.datagram(1), Err(DropReason::Policy));
    world.now += IDLE / 2;
    world.swap(&ready(&[3]));
    world.datagram(1).unwrap();
    world.now += IDLE / 2;
    world.flows.expire(world.now, usize::MAX);
    assert_eq!((world.flows.len(), world.flows.queues.len()), (1, 1));
}
