//! Everything that may come in between, in any order: crashes, lost answers, a cache that lags, rivals, users.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api::names::FINALIZER;
use crate::controller::status_writer::queue::tests::harness::{Fate, Harness};
use crate::controller::status_writer::queue::tests::{FOREIGN, foreign_condition, foreign_ingress};
use crate::controller::tests::objects::ingress;

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

fn happen(harness: &mut Harness, event: &Event) {
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    match event {
        Event::Write(fate) => {
            harness.write(*fate);
        }
        Event::Deliver => {
            harness.deliver();
        }
        Event::Relist => harness.relist(),
        Event::Resync => harness.decide(),
        Event::Crash => harness.crash(),
        Event::Sleep => harness.sleep(),
        Event::Hours => harness.elapsed += Duration::from_secs(7200),
        Event::Delete => harness.server.delete(),
        Event::Recreate => harness.server.create(),
        Event::Type(served) => harness.server.set_type(if *served { "LoadBalancer" } else { "ClusterIP" }),
        Event::Gateways(gateways) => {
            harness.wanted.gateways = *gateways;
            harness.decide();
        }
        Event::Address(last) => {
            harness.wanted.ingress = vec![ingress(&format!("203.0.113.{last}"), None)];
            harness.decide();
        }
        Event::RivalIngress(last) => harness.server.rival("cloud", "ingress", &foreign_ingress(*last)),
        Event::RivalRemoves => harness.server.rival("cloud", "ingress", &Value::Null),
        Event::RivalCondition(up) => {
            let status = if *up { "True" } else { "False" };
            harness.server.rival("other", FOREIGN, &foreign_condition(status));
        }
        Event::RivalTouchesOurs => {
            let mut touched = foreign_condition("Unknown");
            touched["type"] = "sheave.dev/Programmed".into();
            if !harness.server.field("sheave.dev/Programmed").is_null() {
                harness.server.rival("editor", "sheave.dev/Programmed", &touched);
            }
        }
        Event::ForeignFinalizer(true) if !harness.server.is_leaving() => {
            harness.server.merge(&finalizers(json!(["example.com/other", FINALIZER])));
        }
        Event::Duplicates if !harness.server.is_leaving() => {
            harness.server.merge(&finalizers(json!([FINALIZER, FINALIZER])));
        }
        Event::ForeignFinalizer(_) | Event::Duplicates => {}
        Event::FinalizersGone => harness.server.strip(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_as_desired_and_in_silence(events in events()) {
        let mut harness = Harness::new();
        for event in &events {
            happen(&mut harness, event);
        }
        let foreign = harness.server.field(FOREIGN);
        let uid = harness.server.uid();
        harness.settle();
        if harness.server.object.is_some() && harness.server.uid() == uid {
            prop_assert_eq!(harness.server.field(FOREIGN), foreign);
        }
        harness.check();
    }
}
