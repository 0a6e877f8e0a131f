//! Tests of the statuses of the Gateway API: what is written in which order, that it comes to rest, and that others' fields stay.

mod class;
mod gateway;
mod listener_set;
pub(in crate::controller) mod model;
mod route_parents;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::model::ObjectServer;
use super::GatewayApiSubject;
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::RouteKind;
use crate::controller::api_writer::ApiAnswer;
use crate::controller::status_writer::next_step::WriteStep;
use crate::controller::tests::objects::at;
use crate::projection::gateway_api::conditions::{GatewayConditions, ListenerConditions};

fn yes(kind: &'static str) -> DesiredCondition {
    DesiredCondition::yes(kind, "Fine", format!("{kind} is fine."))
}

fn no(kind: &'static str, reason: &'static str) -> DesiredCondition {
    DesiredCondition::no(kind, reason, format!("{kind} is not fine."))
}

fn listener(name: &str) -> ListenerConditions {
    ListenerConditions {
        name: name.to_owned(),
        supported_kinds: vec![RouteKind::Tcp],
        attached_routes: 1,
        conditions: vec![
            yes("Accepted"),
            no("Conflicted", "NoConflicts"),
            yes("Programmed"),
            yes("ResolvedRefs"),
        ],
    }
}

fn standard(listeners: &[&str]) -> GatewayConditions {
    GatewayConditions {
        gateway: vec![yes("Accepted"), yes("Programmed")],
        addresses: vec!["203.0.113.7".parse().unwrap()],
        listeners: listeners.iter().map(|name| listener(name)).collect(),
        sets: Vec::new(),
        attached_sets: 0,
    }
}

fn object(kind: &str, generation: i64, differences: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1", "generation": generation},
        "spec": {},
    });
    json_patch::merge(&mut object, differences);
    object
}

/// A condition as another controller writes it.
fn foreign(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "Theirs", "message": "", "observedGeneration": 1,
           "lastTransitionTime": "2027-01-15T08:00:00Z"})
}

/// Executes writes until there is none left. Returns them.
fn settle(
    server: &mut ObjectServer,
    now: Timestamp,
    subject: impl Fn(&Value) -> GatewayApiSubject,
) -> Vec<WriteStep> {
    let (mut steps, mut cleared) = (Vec::new(), false);
    loop {
        let step = subject(&server.object()).next_step(cleared, now);
        if step == WriteStep::Nothing {
            return steps;
        }
        assert!(steps.len() < 10, "it never comes to rest: {step:?}");
        cleared |= matches!(step, WriteStep::ClearStatus(_));
        assert!(matches!(server.answer(&step), ApiAnswer::Done(_)), "{step:?}");
        steps.push(step);
    }
}

/// The names of steps.
fn names(steps: &[WriteStep]) -> Vec<&'static str> {
    let name = |step: &WriteStep| match step {
        WriteStep::Nothing => "nothing",
        WriteStep::AddFinalizer(_) => "add finalizer",
        WriteStep::ApplyStatus(_) => "apply",
        WriteStep::ClearStatus(_) => "clear",
        WriteStep::RemoveRest(_) => "remove rest",
        WriteStep::RemoveFinalizer(_) => "remove finalizer",
        WriteStep::PatchParents { .. } => "parents",
        WriteStep::Export(_) => "export",
    };
    steps.iter().map(name).collect()
}
