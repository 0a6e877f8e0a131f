//! Tests of eviction: which flow gives way when there is no room for another.

use super::*;

const UNANSWERED: Duration = Duration::from_secs(10);
const TIMEOUTS: FlowTimeouts = FlowTimeouts { idle: IDLE, unanswered: UNANSWERED };

impl FlowOwner for RefCell<World> {
    fn flows(&self) -> usize {
        self.borrow().flows.len()
    }

    fn evict(&self, now: Instant, towards: Option<EndpointAddr>) -> bool {
        self.borrow_mut().flows.evict(now, Duration::ZERO, towards)
    }
}

/// Frontends of one worker that may have `limit` flows together.
fn frontends<const N: usize>(limit: usize) -> [Rc<RefCell<World>>; N] {
    let budget = World::budget(limit);
    [(); N].map(|()| {
        Rc::new_cyclic(|own: &Weak<RefCell<World>>| {
            RefCell::new(World::of_owner(
                Weak::<RefCell<World>>::clone(own),
                Rc::clone(&budget),
                TIMEOUTS,
                &ready(&[1]),
            ))
        })
    })
}

fn one(limit: usize) -> World {
    World::of_owner(Weak::<RefCell<World>>::new(), World::budget(limit), TIMEOUTS, &ready(&[1]))
}

impl World {
    fn clients(&self) -> Vec<u16> {
        let mut clients: Vec<u16> = self.flows.flows.keys().map(|client| client.0.port()).collect();
        clients.sort_unstable();
        clients
    }

    fn answer(&mut self, client: u16) {
        assert!(self.flows.answered(client_addr(client), self.now).is_some());
    }
}

#[test]
fn a_flow_that_nobody_answers_ends_soon_and_one_that_was_answered_does_not() {
    let mut world = one(10);
    world.datagram(1).unwrap();
    world.datagram(2).unwrap();
    world.answer(2);
    world.now += UNANSWERED;
    world.flows.expire(world.now, usize::MAX);
    assert_eq!(world.clients(), [2]);
    world.now += IDLE - UNANSWERED;
    world.flows.expire(world.now, usize::MAX);
    assert_eq!((world.clients(), world.flows.queues.len()), (vec![], 0));
    assert_eq!(world.counters.flows_evicted.get(), 0, "their time was over");
}

#[test]
fn the_oldest_that_nobody_answered_gives_way_first() {
    let mut world = one(3);
    for client in 1..=3 {
        world.now += BUSY;
        world.datagram(client).unwrap();
    }
    world.answer(1);
    world.now += BUSY;
    assert_eq!(world.datagram(4), Ok(endpoint_addr(1)));
    assert_eq!(world.clients(), [1, 3, 4]);
    world.answer(3);
    world.answer(4);
    world.now += BUSY;
    world.datagram(1).unwrap();
    world.now += BUSY;
    world.datagram(5).unwrap();
    assert_eq!(world.clients(), [1, 4, 5], "else that which was quiet the longest, and first came");
    assert_eq!((world.counters.flows_evicted.get(), world.counters.flows_active.get()), (2, 3));
}

#[test]
fn a_flow_whose_endpoint_serves_no_more_gives_way_however_busy_it_is() {
    let mut world = one(2);
    world.datagram(1).unwrap();
    world.answer(1);
    world.swap(&ready(&[2]));
    world.walk();
    world.now += BUSY;
    world.datagram(2).unwrap();
    world.answer(1);
    assert_eq!(world.datagram(3), Ok(endpoint_addr(2)));
    assert_eq!(world.clients(), [2, 3]);
}

#[test]
fn whoever_has_traffic_does_not_give_way_for_others_of_the_same_frontend() {
    let mut world = one(2);
    world.datagram(1).unwrap();
    world.datagram(2).unwrap();
    world.now += BUSY - Duration::from_nanos(1);
    assert_eq!(world.datagram(3), Err(DropReason::FlowLimit));
    assert_eq!(world.clients(), [1, 2]);
    world.now += Duration::from_nanos(1);
    assert_eq!(world.datagram(3), Ok(endpoint_addr(1)));
}

#[test]
fn nobody_gives_way_to_a_client_that_would_get_no_endpoint() {
    let mut world = one(1);
    world.datagram(1).unwrap();
    world.now += BUSY;
    world.swap(&[]);
    assert_eq!(world.datagram(2), Err(DropReason::NoEndpoint));
    world.swap(&[(endpoint_addr(1), EndpointState::Terminating)]);
    assert_eq!(world.datagram(2), Err(DropReason::Policy));
    world.flows.stop_accepting();
    assert_eq!(world.datagram(2), Err(DropReason::Draining));
    assert_eq!(world.clients(), [1]);
}

#[test]
fn the_frontend_with_the_most_flows_gives_way_to_others_however_busy_it_is() {
    let [flooded, quiet] = frontends(10);
    (1..=10).for_each(|client| assert!(flooded.borrow_mut().datagram(client).is_ok()));
    for client in 1..=5 {
        assert_eq!(quiet.borrow_mut().datagram(client), Ok(endpoint_addr(1)));
    }
    assert_eq!((flooded.borrow().flows.len(), quiet.borrow().flows.len()), (5, 5));
    assert_eq!(quiet.borrow_mut().datagram(6), Err(DropReason::FlowLimit), "it has as many as the other now");
    assert_eq!(flooded.borrow_mut().datagram(11), Err(DropReason::FlowLimit));
    assert_eq!(flooded.borrow().counters.flows_evicted.get(), 5);
}

#[test]
fn a_flood_takes_from_itself_and_not_from_others() {
    let [flooded, quiet] = frontends(10);
    (1..=3).for_each(|client| assert!(quiet.borrow_mut().datagram(client).is_ok()));
    for client in 1..=1000 {
        let mut flooded = flooded.borrow_mut();
        flooded.now += BUSY;
        flooded.datagram(client).unwrap();
    }
    assert_eq!((flooded.borrow().flows.len(), quiet.borrow().clients()), (7, vec![1, 2, 3]));
}

#[test]
fn a_shortage_of_descriptors_is_shared_as_well() {
    let capacity = Arc::new(Capacity::new(CapacityLimits { descriptors: 10, connections: 10 }));
    let budget = FlowBudget::new(1000, Arc::clone(&capacity), Rc::default());
    let nobody = || Weak::<RefCell<World>>::new();
    let [mut first, mut second] =
        [(); 2].map(|()| World::of_owner(nobody(), Rc::clone(&budget), TIMEOUTS, &ready(&[1])));
    let opened = |world: &mut World| (1..=20).filter(|client| world.datagram(*client).is_ok()).count();
    assert_eq!((opened(&mut first), opened(&mut second)), (8, 2));
    drop(first.flows.end());
    assert!(capacity.try_take(8) && !capacity.try_take(1), "what flows took is given back");
}

#[test]
fn a_frontend_may_have_an_idle_timeout_of_its_own() {
    let mut world = one(10);
    world.datagram(1).unwrap();
    world.answer(1);
    let mut frontend = frontend(frontend_addr(53), &ready(&[1]));
    frontend.timeouts.idle = Some(Duration::from_secs(2));
    world.table = follow(&world.table, [frontend]);
    world.datagram(2).unwrap();
    world.walk();
    world.now += Duration::from_secs(2);
    world.flows.expire(world.now, usize::MAX);
    assert!(world.clients().is_empty(), "also of flows that were there before");
    world.swap(&ready(&[1]));
    world.datagram(1).unwrap();
    world.answer(1);
    world.now += IDLE - Duration::from_nanos(1);
    world.flows.expire(world.now, usize::MAX);
    assert_eq!(world.clients(), [1]);
}

#[test]
fn an_endpoint_without_free_ports_is_passed_over() {
    let mut world = one(10);
    world.swap(&ready(&[1, 2]));
    world.links.crowded = vec![endpoint_addr(1)];
    for client in 1..=6 {
        assert_eq!(world.datagram(client), Ok(endpoint_addr(2)));
    }
    world.links.crowded.push(endpoint_addr(2));
    assert_eq!(world.datagram(7), Err(DropReason::NoPort));
    assert_eq!(world.counters.endpoint_errors.get(), 0, "no endpoint is to blame");
}

#[test]
fn room_towards_an_endpoint_is_made_by_a_flow_to_it_the_oldest_that_is_not_busy() {
    let mut world = one(100);
    world.swap(&ready(&[1, 2]));
    let of_first: Vec<u16> =
        (1..=10).filter(|client| world.datagram(*client) == Ok(endpoint_addr(1))).collect();
    let itself = Weak::clone(&world.flows.owner);
    world.swap(&ready(&[1]));
    world.now += BUSY;
    world.datagram(of_first[0]).unwrap();
    assert!(world.flows.make_room(&itself, Some(endpoint_addr(1)), world.now));
    let left: Vec<u16> = (1..=10).filter(|client| *client != of_first[1]).collect();
    assert_eq!(world.clients(), left);
    assert!(!world.flows.make_room(&itself, Some(endpoint_addr(3)), world.now), "no flow goes there");
    assert_eq!(world.clients(), left);
    world.now += UNANSWERED;
    world.flows.expire(world.now, usize::MAX);
    assert_eq!(
        (world.clients(), world.flows.queues.len()),
        (vec![], 0),
        "those passed over are looked at yet"
    );
}

#[test]
fn who_has_the_most_flows_to_an_endpoint_makes_room_for_others() {
    let [large, small] = frontends(100);
    (1..=10).for_each(|client| assert!(large.borrow_mut().datagram(client).is_ok()));
    let holder = Weak::clone(&large.borrow().flows.owner);
    let (flows, now) = (&mut small.borrow_mut().flows, large.borrow().now);
    assert!(flows.make_room(&holder, Some(endpoint_addr(1)), now));
    assert_eq!((large.borrow().flows.len(), flows.len()), (9, 0));
    assert!(flows.make_room(&holder, None, now), "whatever endpoint it goes to");
    assert_eq!(large.borrow().flows.len(), 8);
}

#[test]
fn a_slow_query_goes_on_rather_than_what_is_over() {
    let mut world = one(3);
    for client in 1..=2 {
        world.datagram(client).unwrap();
        world.answer(client);
    }
    world.now += Duration::from_secs(5);
    world.datagram(3).unwrap();
    world.now += Duration::from_millis(900);
    world.datagram(4).unwrap();
    assert_eq!(world.clients().len(), 3);
    assert!(world.clients().contains(&3), "it may be answered yet");
    world.now += Duration::from_millis(200);
    world.datagram(5).unwrap();
    assert!(!world.clients().contains(&3), "hardly any more");
}
