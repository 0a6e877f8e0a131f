//! Tests of endpoints that have fallen silent.

use super::*;
use crate::udp::flow_table::silence::LONG;

/// Whether an endpoint answers in a given second.
type Answers<'a> = &'a dyn Fn(EndpointAddr, u32) -> bool;

/// A server may leave all datagrams of a client unanswered, for example because of a wrong secret, while no other
/// client sends any.
#[test]
fn a_client_that_was_never_answered_says_nothing_about_its_endpoint() {
    let mut world = World::new(100, &ready(&[1, 2]));
    let silent = endpoint_addr(1);
    let heard = (0..40).find(|&client| world.datagram(client).unwrap() == silent);
    let mut told = 0;
    for second in 0..30 {
        for client in 0..40 {
            let endpoint = world.datagram(client).unwrap();
            told += usize::from(world.flows.take_silent().is_some());
            if endpoint != silent || (heard == Some(client) && second < 10) {
                world.flows.answered(client_addr(client), world.now).unwrap();
            }
        }
        world.now += Duration::from_secs(1);
    }
    assert!(told <= 1, "{told}");
}

/// Runs forty clients of two endpoints, which answer by `answer`; returns the endpoints reported as silent.
fn told(source: ClientSource, answer: impl Fn(EndpointAddr, u32) -> bool) -> Vec<EndpointAddr> {
    let mut world = World::new(100, &ready(&[1, 2]));
    world.swap_with_source(&ready(&[1, 2]), source);
    let mut told = Vec::new();
    for second in 0..30 {
        for client in 0..40 {
            let endpoint = world.datagram(client).unwrap();
            told.extend(world.flows.take_silent());
            if answer(endpoint, second) {
                world.flows.answered(client_addr(client), world.now).unwrap();
            }
        }
        world.now += Duration::from_secs(1);
    }
    told
}

#[test]
fn an_endpoint_that_has_answered_and_stops_while_another_answers_is_told_of_once_by_each_flow() {
    let silent = endpoint_addr(1);
    let told_of = told(ClientSource::Gateway, |endpoint, second| endpoint != silent || second < 10);
    assert!(told_of.len() > 3 && told_of.iter().all(|endpoint| *endpoint == silent), "{told_of:?}");
    assert!(told_of.len() < 40, "once");
}

#[test]
fn silence_is_nothing_unusual_where_nobody_answers_any_more_or_the_endpoint_never_did() {
    let silent = endpoint_addr(1);
    let cases: [(ClientSource, Answers<'_>); 5] = [
        (ClientSource::Gateway, &|_, _| false),
        (ClientSource::Gateway, &|endpoint, _| endpoint != silent),
        (ClientSource::Gateway, &|_, second| second < 10),
        (ClientSource::Gateway, &|endpoint, second| {
            endpoint != silent || u64::from(second % 3) < LONG.as_secs() - 3
        }),
        // A firewall may refuse the client.
        (ClientSource::Transparent, &|endpoint, second| endpoint != silent || second < 10),
    ];
    for (number, (source, answer)) in cases.into_iter().enumerate() {
        assert_eq!(told(source, answer), [], "{number}");
    }
}
