//! Tests of the traffic that a watch counts for flows that change their endpoint.

use super::*;
use crate::client_traffic::TallyCell;

#[test]
fn bytes_are_those_of_the_endpoint_that_passed_them() {
    let tally = Rc::<TallyCell>::default();
    let budget = FlowBudget::new(10, Capacity::unlimited(), Rc::clone(&tally));
    let timeouts = FlowTimeouts { idle: IDLE, unanswered: IDLE };
    let mut world = World::of_owner(Weak::<RefCell<World>>::new(), budget, timeouts, &ready(&[1, 2]));
    let bytes = |world: &World, number: u8| {
        let frontend = world.table.get(frontend_addr(53)).unwrap();
        let found = frontend.loads().find(|(addr, _)| *addr == endpoint_addr(number)).unwrap();
        (found.1.client_bytes(), found.1.endpoint_bytes())
    };
    let add = |world: &mut World, bytes: usize| {
        world.flows.flows.get_mut(&client_addr(1)).unwrap().add_bytes(bytes, 2 * bytes);
    };
    let first = world.datagram(1).unwrap();
    add(&mut world, 5);
    tally.begin(1);
    world.flows.collect(client_addr(1));
    assert_eq!(tally.take().unwrap().iter().next().unwrap().2.bytes(), 0, "they were before");
    add(&mut world, 10);
    let (own, other) = if first == endpoint_addr(1) { (1, 2) } else { (2, 1) };
    world.flows.suspect(client_addr(1));
    assert_eq!(world.datagram(1), Ok(endpoint_addr(other)));
    assert_eq!((bytes(&world, own), bytes(&world, other)), ((10, 20), (0, 0)));
    add(&mut world, 3);
    drop(world.flows.end());
    assert_eq!((bytes(&world, own), bytes(&world, other)), ((10, 20), (3, 6)));
    let traffic = tally.take().unwrap();
    let counted: Vec<_> = traffic.iter().collect();
    assert_eq!((counted.len(), counted[0].1, counted[0].2.bytes()), (1, frontend_addr(53), 39));
    assert_eq!((counted[0].2.open, counted[0].2.opened), (0, 0));
    tally.end(1);
    assert!(tally.take().is_none());
}
