//! Tests of flows of a split frontend.

use super::*;
use sheave_model::test_util::{move_split, pool, refused, split};
use sheave_model::{Algorithm, SplitPart};

fn of_parts(parts: impl IntoIterator<Item = SplitPart>) -> Frontend {
    let mut whole = split(1, Algorithm::Maglev, parts);
    move_split(&mut whole, frontend_addr(53));
    whole
}

/// The `number`th part, with one endpoint.
fn part(number: u32, weight: u32) -> SplitPart {
    pool(number, weight, &[(number, 100)])
}

fn endpoint(number: u32) -> EndpointAddr {
    sheave_model::test_util::endpoint_addr(number)
}

fn world(parts: impl IntoIterator<Item = SplitPart>) -> World {
    let mut world = World::new(1000, &[]);
    swap(&mut world, parts);
    world
}

fn swap(world: &mut World, parts: impl IntoIterator<Item = SplitPart>) {
    world.table = follow(&world.table, [of_parts(parts)]);
}

#[test]
fn a_flow_keeps_its_endpoint_whatever_the_weights_until_no_part_has_it() {
    let mut world = world([part(1, 1), part(2, 1)]);
    let first: Vec<_> = (0..100).map(|client| world.datagram(client).unwrap()).collect();
    assert!(first.contains(&endpoint(1)) && first.contains(&endpoint(2)));
    swap(&mut world, [part(2, 1), part(1, 0)]);
    assert!(first.iter().zip(0..).all(|(was, client)| world.datagram(client) == Ok(*was)));
    assert!((100..200).all(|client| world.datagram(client) == Ok(endpoint(2))), "new flows follow weights");
    swap(&mut world, [part(2, 1), refused("gone", 0)]);
    assert!((0..200).all(|client| world.datagram(client) == Ok(endpoint(2))));
}

#[test]
fn datagrams_of_a_refused_part_are_dropped_without_a_flow() {
    let mut world = world([part(1, 70), refused("gone", 30)]);
    world.flows = World::new(50, &[]).flows;
    let mut refused = 0;
    for client in 0..50 {
        let first = world.datagram(client);
        assert!((0..3).all(|_| world.datagram(client) == first), "each of its datagrams alike");
        match first {
            Ok(addr) => assert_eq!(addr, endpoint(1)),
            Err(reason) => {
                assert_eq!(reason, DropReason::InvalidBackend);
                refused += 1;
            }
        }
    }
    assert!((5..=25).contains(&refused), "{refused}");
    assert_eq!((world.flows.len(), world.links.opened), (50 - refused, 50 - refused));
}

#[test]
fn a_part_without_endpoint_refuses_its_share_and_a_split_without_any_everybody() {
    let mut world = world([part(1, 50), pool(2, 50, &[])]);
    let outcomes: Vec<_> = (0..100).map(|client| world.datagram(client)).collect();
    assert!(outcomes.contains(&Err(DropReason::NoEndpoint)) && outcomes.contains(&Ok(endpoint(1))));
    swap(&mut world, [refused("gone", 50), pool(2, 50, &[])]);
    assert!((0..100).all(|client| world.datagram(client) == Err(DropReason::NoEndpoint)));
    assert_eq!(world.flows.len(), 0);
}

#[test]
fn a_flow_of_a_part_that_is_refused_from_now_on_ends() {
    let mut world = world([part(1, 1), part(2, 1)]);
    let first: Vec<_> = (0..100).map(|client| world.datagram(client).unwrap()).collect();
    let name = part(1, 1).name;
    swap(&mut world, [refused(&name, 1), part(2, 1)]);
    for (was, client) in first.iter().zip(0..) {
        let now = world.datagram(client);
        assert_eq!(now, if *was == endpoint(1) { Err(DropReason::InvalidBackend) } else { Ok(*was) });
    }
    assert_eq!(world.flows.len(), first.iter().filter(|was| **was == endpoint(2)).count());
}

#[test]
fn an_unreachable_endpoint_is_replaced_inside_its_part() {
    let mut world = world([pool(1, 1, &[(1, 100), (3, 100)]), part(2, 1)]);
    world.links.unreachable = vec![endpoint(1)];
    let outcomes: Vec<_> = (0..100).map(|client| world.datagram(client)).collect();
    assert!([2, 3].iter().all(|number| outcomes.contains(&Ok(endpoint(*number)))));
    world.links.unreachable = vec![endpoint(1), endpoint(3)];
    world.flows.end();
    world.flows = World::new(1000, &[]).flows;
    for (before, client) in outcomes.iter().zip(0..) {
        let now = world.datagram(client);
        assert_eq!(now.is_ok(), *before == Ok(endpoint(2)), "the other part takes no client over");
    }
}

#[test]
fn a_flow_leaves_an_endpoint_that_a_service_of_its_part_finds_unhealthy() {
    let mut world = world([pool(1, 1, &[(1, 100), (3, 100)]), part(2, 0)]);
    let first: Vec<_> = (0..50).map(|client| world.datagram(client).unwrap()).collect();
    assert!(first.contains(&endpoint(1)));
    let service = of_parts([part(1, 1)]).split.unwrap().parts[0].pool().unwrap().service.clone();
    let mut health = EndpointHealth::default();
    health.set_unhealthy(&service, endpoint(1), "refused".into());
    world.table = world.table.with_health(health);
    assert!((0..50).all(|client| world.datagram(client) == Ok(endpoint(3))));
}
