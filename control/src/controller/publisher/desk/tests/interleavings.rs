//! Everything that may come in between, in any order: crashes, lost answers, a cache that lags, rivals, users.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::world::{Fate, World};
use super::{FOREIGN, foreign_condition, foreign_ingress};
use crate::controller::names::FINALIZER;
use crate::controller::publication::fixture::ingress;

#[derive(Clone, Debug)]
enum Event {
    Write(Fate),
    Deliver,
    Relist,
    Resync,
    Crash,
    Sleep,
    Hours,
    Delete,
    Recreate,
    Type(bool),
    Gateways(usize),
    Address(u8),
    RivalIngress(u8),
    RivalRemoves,
    RivalCondition(bool),
    RivalTouchesOurs,
    ForeignFinalizer(bool),
    FinalizersGone,
    Duplicates,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let fate = prop_oneof![
        6 => Just(Fate::Answered), 2 => Just(Fate::AnswerLost), 1 => Just(Fate::Lost), 1 => Just(Fate::Rejected)
    ];
    let event = prop_oneof![
        12 => fate.prop_map(Event::Write),
        6 => Just(Event::Deliver),
        2 => Just(Event::Relist),
        2 => Just(Event::Resync),
        2 => Just(Event::Crash),
        4 => Just(Event::Sleep),
        1 => Just(Event::Hours),
        1 => Just(Event::Delete),
        2 => Just(Event::Recreate),
        2 => any::<bool>().prop_map(Event::Type),
        1 => (0usize..3).prop_map(Event::Gateways),
        1 => (1u8..4).prop_map(Event::Address),
        1 => (1u8..3).prop_map(Event::RivalIngress),
        1 => Just(Event::RivalRemoves),
        1 => any::<bool>().prop_map(Event::RivalCondition),
        1 => Just(Event::RivalTouchesOurs),
        1 => any::<bool>().prop_map(Event::ForeignFinalizer),
        1 => Just(Event::FinalizersGone),
        1 => Just(Event::Duplicates),
    ];
    proptest::collection::vec(event, 1..60)
}

fn happen(world: &mut World, event: &Event) {
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    match event {
        Event::Write(fate) => {
            world.write(*fate);
        }
        Event::Deliver => {
            world.deliver();
        }
        Event::Relist => world.relist(),
        Event::Resync => world.decide(),
        Event::Crash => world.crash(),
        Event::Sleep => world.sleep(),
        Event::Hours => world.elapsed += Duration::from_secs(7200),
        Event::Delete => world.server.delete(),
        Event::Recreate => world.server.create(),
        Event::Type(served) => world.server.set_type(if *served { "LoadBalancer" } else { "ClusterIP" }),
        Event::Gateways(gateways) => {
            world.wanted.gateways = *gateways;
            world.decide();
        }
        Event::Address(last) => {
            world.wanted.ingress = vec![ingress(&format!("203.0.113.{last}"), None)];
            world.decide();
        }
        Event::RivalIngress(last) => world.server.rival("cloud", "ingress", &foreign_ingress(*last)),
        Event::RivalRemoves => world.server.rival("cloud", "ingress", &Value::Null),
        Event::RivalCondition(up) => {
            let status = if *up { "True" } else { "False" };
            world.server.rival("other", FOREIGN, &foreign_condition(status));
        }
        Event::RivalTouchesOurs => {
            let mut touched = foreign_condition("Unknown");
            touched["type"] = "sheave.dev/Programmed".into();
            if !world.server.field("sheave.dev/Programmed").is_null() {
                world.server.rival("editor", "sheave.dev/Programmed", &touched);
            }
        }
        Event::ForeignFinalizer(true) if !world.server.is_leaving() => {
            world.server.merge(&finalizers(json!(["example.com/other", FINALIZER])));
        }
        Event::Duplicates if !world.server.is_leaving() => {
            world.server.merge(&finalizers(json!([FINALIZER, FINALIZER])));
        }
        Event::ForeignFinalizer(_) | Event::Duplicates => {}
        Event::FinalizersGone => world.server.strip(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_as_desired_and_in_silence(events in events()) {
        let mut world = World::new();
        for event in &events {
            happen(&mut world, event);
        }
        let foreign = world.server.field(FOREIGN);
        let uid = world.server.uid();
        world.settle();
        if world.server.object.is_some() && world.server.uid() == uid {
            prop_assert_eq!(world.server.field(FOREIGN), foreign);
        }
        world.check();
    }
}
