//! Crashes, lost answers, a lagging cache, rivals and users, interleaved in any order.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api::names::FINALIZER;
use crate::controller::status_writer::queue::tests::harness::{Harness, WriteFate};
use crate::controller::status_writer::queue::tests::{FOREIGN, foreign_condition, foreign_ingress};
use crate::controller::tests::objects::ingress;

const OURS: &str = "sheave.dev/l4";

#[derive(Clone, Debug)]
enum Incident {
    Write(WriteFate),
    Deliver,
    /// A late write arrives.
    Land,
    Relist,
    Resync,
    Crash,
    Sleep,
    Hours,
    Delete,
    Recreate,
    Type(bool),
    /// The Service gets this class, by way of another type.
    Class(&'static str),
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

fn events() -> impl Strategy<Value = Vec<Incident>> {
    let fate = prop_oneof![
        6 => Just(WriteFate::Answered), 2 => Just(WriteFate::AnswerLost), 1 => Just(WriteFate::Lost), 1 => Just(WriteFate::Rejected),
        1 => Just(WriteFate::Late)
    ];
    let event = prop_oneof![
        12 => fate.prop_map(Incident::Write),
        6 => Just(Incident::Deliver),
        1 => Just(Incident::Land),
        2 => Just(Incident::Relist),
        2 => Just(Incident::Resync),
        2 => Just(Incident::Crash),
        4 => Just(Incident::Sleep),
        1 => Just(Incident::Hours),
        1 => Just(Incident::Delete),
        2 => Just(Incident::Recreate),
        2 => any::<bool>().prop_map(Incident::Type),
        1 => prop_oneof![Just(OURS), Just("theirs.example/lb")].prop_map(Incident::Class),
        1 => (0usize..3).prop_map(Incident::Gateways),
        1 => (1u8..4).prop_map(Incident::Address),
        1 => (1u8..3).prop_map(Incident::RivalIngress),
        1 => Just(Incident::RivalRemoves),
        1 => any::<bool>().prop_map(Incident::RivalCondition),
        1 => Just(Incident::RivalTouchesOurs),
        1 => any::<bool>().prop_map(Incident::ForeignFinalizer),
        1 => Just(Incident::FinalizersGone),
        1 => Just(Incident::Duplicates),
    ];
    proptest::collection::vec(event, 1..60)
}

fn happen(harness: &mut Harness, event: &Incident) {
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    match event {
        Incident::Write(fate) => {
            harness.write(*fate);
        }
        Incident::Deliver => {
            harness.deliver();
        }
        Incident::Land => {
            harness.land();
        }
        Incident::Relist => harness.relist(),
        Incident::Resync => harness.decide(),
        Incident::Crash => harness.crash(),
        Incident::Sleep => harness.sleep(),
        Incident::Hours => harness.advance(harness.elapsed + Duration::from_secs(7200)),
        Incident::Delete => harness.server.delete(),
        Incident::Recreate => harness.server.create(),
        Incident::Type(served) => harness.server.set_type(if *served { "LoadBalancer" } else { "ClusterIP" }),
        Incident::Class(class) if harness.server.object.is_some() => {
            harness.server.set_type("ClusterIP");
            harness.server.merge(&json!({"spec": {"loadBalancerClass": class}}));
            harness.server.set_type("LoadBalancer");
        }
        Incident::Gateways(gateways) => {
            harness.wanted.gateways = *gateways;
            harness.decide();
        }
        Incident::Address(last) => {
            harness.wanted.ingress = vec![ingress(&format!("203.0.113.{last}"), None)];
            harness.decide();
        }
        Incident::RivalIngress(last) => harness.server.rival("cloud", "ingress", &foreign_ingress(*last)),
        Incident::RivalRemoves => harness.server.rival("cloud", "ingress", &Value::Null),
        Incident::RivalCondition(up) => {
            let status = if *up { "True" } else { "False" };
            harness.server.rival("other", FOREIGN, &foreign_condition(status));
        }
        Incident::RivalTouchesOurs => {
            let mut touched = foreign_condition("Unknown");
            touched["type"] = "sheave.dev/Programmed".into();
            if !harness.server.field("sheave.dev/Programmed").is_null() {
                harness.server.rival("editor", "sheave.dev/Programmed", &touched);
            }
        }
        Incident::ForeignFinalizer(true) if !harness.server.is_leaving() => {
            harness.server.merge(&finalizers(json!(["example.com/other", FINALIZER])));
        }
        Incident::Duplicates if !harness.server.is_leaving() => {
            harness.server.merge(&finalizers(json!([FINALIZER, FINALIZER])));
        }
        Incident::Class(_) | Incident::ForeignFinalizer(_) | Incident::Duplicates => {}
        Incident::FinalizersGone => harness.server.strip(),
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

/// Hours after our finalizer was removed, the cache still shows it. Meanwhile a user deletes the Service, which has another
/// finalizer.
#[test]
fn no_status_follows_a_finalizer_that_only_an_old_cache_still_has() {
    let mut harness = Harness::settled();
    for event in [
        Incident::ForeignFinalizer(true),
        Incident::Type(false),
        Incident::Relist,
        Incident::Type(true),
        Incident::Write(WriteFate::Answered),
        Incident::Write(WriteFate::Answered),
        Incident::Hours,
        Incident::Resync,
        Incident::Delete,
    ] {
        happen(&mut harness, &event);
    }
    harness.settle();
    harness.check();
}

/// A status hangs while the Service goes to another type: it arrives when its finalizer could be gone.
#[test]
fn a_finalizer_stays_while_a_status_may_still_arrive() {
    let mut harness = Harness::settled();
    for event in [
        Incident::Address(2),
        Incident::Write(WriteFate::Late),
        Incident::Class("theirs.example/lb"),
        Incident::Relist,
    ] {
        happen(&mut harness, &event);
    }
    harness.settle();
    harness.check();
}
