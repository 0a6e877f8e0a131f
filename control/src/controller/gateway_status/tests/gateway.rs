//! Tests of the status of a Gateway.

use std::sync::Arc;

use super::*;
use crate::api::gateway_api::Gateway;
use crate::controller::desired_status::{Announcement, DesiredStatus};
use crate::controller::gateway_status::gateway::DesiredGateway;
use crate::controller::status_writer::next_step::Urgency;
use crate::projection::gateway_api::conditions::ADDRESS_NOT_USABLE;

fn gateway(object: &Value) -> Gateway {
    serde_json::from_value(object.clone()).unwrap()
}

fn desired(object: &Value, standard: &GatewayConditions) -> GatewayApiSubject {
    let gateway = gateway(object);
    let live = DesiredStatus { gateways: 1, ..DesiredStatus::default() };
    let desired = DesiredGateway::new(&gateway, standard.clone(), &live);
    GatewayApiSubject::Gateway(Arc::new(gateway), Some(Arc::new(desired)))
}

fn released(object: &Value) -> GatewayApiSubject {
    GatewayApiSubject::Gateway(Arc::new(gateway(object)), None)
}

fn fresh() -> ObjectServer {
    let pending = |kind: &str| {
        json!({"type": kind, "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
               "lastTransitionTime": "1970-01-01T00:00:00Z"})
    };
    let status = json!({"status": {"conditions": [pending("Accepted"), pending("Programmed")]}});
    ObjectServer::new(object("Gateway", 1, &status))
}

/// A server with a published Gateway.
fn published(standard: &GatewayConditions) -> ObjectServer {
    let mut server = fresh();
    settle(&mut server, at(0), |it| desired(it, standard));
    server
}

#[test]
fn one_apply_publishes_a_gateway_and_nothing_follows() {
    let (mut server, standard) = (fresh(), standard(&["a", "b"]));
    let steps = settle(&mut server, at(0), |it| desired(it, &standard));
    assert_eq!(names(&steps), ["apply"]);
    let WriteStep::ApplyStatus(body) = &steps[0] else { panic!() };
    let metadata = json!({"namespace": "shop", "name": "web", "uid": "u1", "resourceVersion": "100"});
    assert_eq!(body["metadata"], metadata);
    assert_eq!(body["apiVersion"], "gateway.networking.k8s.io/v1");
    assert_eq!(server.field("addresses"), json!([{"type": "IPAddress", "value": "203.0.113.7"}]));
    assert_eq!(
        server.field("listeners/a/supportedKinds"),
        json!([{"group": "gateway.networking.k8s.io", "kind": "TCPRoute"}])
    );
    assert_eq!(
        server.field("conditions/Accepted"),
        json!({"type": "Accepted", "status": "True", "reason": "Fine", "message": "Accepted is fine.",
               "observedGeneration": 1, "lastTransitionTime": "2027-01-15T08:00:00Z"})
    );
    assert_eq!(server.field("conditions/sheave.dev~1Ready"), Value::Null);
    assert_eq!(server.field("conditions/sheave.dev/Ready")["reason"], "EndpointsReady");
    assert!(!server.paths().contains(&"attachedListenerSets"), "older definitions have no such field");
    assert_eq!(names(&settle(&mut server, at(99), |it| desired(it, &standard))), [""; 0]);
}

#[test]
fn an_address_that_cannot_be_used_takes_nothing_from_the_others() {
    let mut standard = standard(&["a"]);
    standard.gateway[1] = no("Programmed", ADDRESS_NOT_USABLE);
    let server = published(&standard);
    assert_eq!(server.field("conditions/sheave.dev/Ready")["reason"], "EndpointsReady");
    standard.listeners.clear();
    let server = published(&standard);
    assert_eq!(server.field("conditions/sheave.dev/Ready")["reason"], ADDRESS_NOT_USABLE);
}

#[test]
fn a_time_changes_with_the_status_alone() {
    let mut standard = standard(&["a"]);
    let mut server = published(&standard);
    let time = |server: &ObjectServer| server.field("conditions/Programmed")["lastTransitionTime"].clone();
    let first = time(&server);
    standard.gateway[1].message = "Other words.".to_owned();
    settle(&mut server, at(60), |it| desired(it, &standard));
    assert_eq!((time(&server), server.changes), (first.clone(), 2));
    standard.gateway[1] = no("Programmed", "NoResources");
    settle(&mut server, at(120), |it| desired(it, &standard));
    assert_ne!(time(&server), first);
}

#[test]
fn another_generation_is_in_every_condition() {
    let standard = standard(&["a"]);
    let mut server = published(&standard);
    server.change(&json!({"spec": {"addresses": []}}));
    assert_eq!(names(&settle(&mut server, at(1), |it| desired(it, &standard))), ["apply"]);
    for path in server.paths().into_iter().filter(|path| path.contains("conditions/")) {
        assert_eq!(server.field(path)["observedGeneration"], 2, "{path}");
    }
}

#[test]
fn a_decision_about_an_older_generation_waits_for_the_watch() {
    let (server, standard) = (fresh(), standard(&["a"]));
    let before = desired(&server.object(), &standard);
    let mut newer = server.clone();
    newer.change(&json!({"spec": {"addresses": []}}));
    let object = GatewayApiSubject::Gateway(Arc::new(gateway(&newer.object())), None);
    assert_eq!(before.of(&object).next_step(false, at(0)), WriteStep::Nothing);
}

#[test]
fn a_condition_of_a_later_generation_is_not_overwritten() {
    let standard = standard(&["a"]);
    let mut server = fresh();
    let later = json!({"type": "Accepted", "status": "False", "reason": "Later", "message": "",
                       "observedGeneration": 7, "lastTransitionTime": "2027-01-15T08:00:00Z"});
    server.rival("conditions/Accepted", &later);
    assert_eq!(names(&settle(&mut server, at(1), |it| desired(it, &standard))), ["apply"]);
    assert_eq!(server.field("conditions/Accepted"), later);
    assert_eq!(server.field("conditions/Programmed")["observedGeneration"], 1);
}

#[test]
fn a_listener_that_the_spec_lacks_goes_whoever_wrote_it() {
    let mut server = published(&standard(&["a", "b"]));
    server.rival("listeners/c/attachedRoutes", &json!(3));
    server.rival("listeners/c/supportedKinds", &json!([]));
    let fewer = standard(&["a"]);
    server.change(&json!({"spec": {"listeners": []}}));
    assert_eq!(names(&settle(&mut server, at(1), |it| desired(it, &fewer))), ["apply", "remove rest"]);
    assert!(
        !server.paths().iter().any(|path| path.starts_with("listeners/b") || path.starts_with("listeners/c"))
    );
    assert_eq!(server.field("listeners/a/attachedRoutes"), 1);
}

#[test]
fn fields_of_others_stay() {
    let mut server = published(&standard(&["a"]));
    server.rival("conditions/theirs.example/Fine", &foreign("theirs.example/Fine"));
    server.rival("conditions/Programmed", &foreign("Programmed"));
    assert_eq!(names(&settle(&mut server, at(1), |it| desired(it, &standard(&["a"])))), ["apply"]);
    assert_eq!(server.field("conditions/theirs.example/Fine"), foreign("theirs.example/Fine"));
    assert_eq!(server.field("conditions/Programmed")["reason"], "Fine");
    assert_eq!(names(&settle(&mut server, at(1), released)), ["clear"]);
    assert_eq!(server.paths(), ["conditions/theirs.example/Fine"]);
}

#[test]
fn own_conditions_give_way_and_standard_ones_are_refused() {
    let standard = standard(&["a"]);
    let mut server = fresh();
    (0..6).for_each(|index| server.rival(&format!("conditions/x{index}"), &foreign(&format!("x{index}"))));
    assert_eq!(names(&settle(&mut server, at(1), |it| desired(it, &standard))), ["apply"]);
    assert_eq!(server.field("conditions/sheave.dev/Ready"), Value::Null);
    assert_eq!(server.field("conditions/Programmed")["reason"], "Fine");
    let mut full = fresh();
    for (kind, index) in [("Accepted", 0), ("Programmed", 1)] {
        full.rival(&format!("conditions/{kind}"), &Value::Null);
        full.rival(&format!("conditions/y{index}"), &foreign(&format!("y{index}")));
    }
    (0..6).for_each(|index| full.rival(&format!("conditions/x{index}"), &foreign(&format!("x{index}"))));
    let step = desired(&full.object(), &standard).next_step(false, at(1));
    assert!(matches!(full.answer(&step), ApiAnswer::Refused(_)), "the API server decides");
}

#[test]
fn a_condition_about_announcements_stays_while_they_are_unknown_and_then_goes() {
    let standard = standard(&["a"]);
    let with = |object: &Value, announcement: Announcement| {
        let gateway = gateway(object);
        let live = DesiredStatus { gateways: 1, announcement, ..DesiredStatus::default() };
        let desired = DesiredGateway::new(&gateway, standard.clone(), &live);
        GatewayApiSubject::Gateway(Arc::new(gateway), Some(Arc::new(desired)))
    };
    let mut server = fresh();
    let by_one = || Announcement::ByOne([("203.0.113.7".parse().unwrap(), "n1".to_owned())].into());
    settle(&mut server, at(0), |it| with(it, by_one()));
    let shown = server.field("conditions/sheave.dev/Announced");
    assert_eq!(shown["reason"], "Announced");
    server.change(&json!({"spec": {"addresses": []}}));
    assert_eq!(names(&settle(&mut server, at(1), |it| with(it, Announcement::Unknown))), ["apply"]);
    assert_eq!(server.field("conditions/sheave.dev/Announced"), shown);
    assert_eq!(names(&settle(&mut server, at(2), |it| with(it, Announcement::NotNeeded))), ["remove rest"]);
    assert_eq!(server.field("conditions/sheave.dev/Announced"), Value::Null);
}

#[test]
fn a_gateway_that_was_never_ours_stays_as_it_is_and_one_that_is_being_deleted_is_released() {
    let mut foreign_one = fresh();
    assert_eq!(names(&settle(&mut foreign_one, at(0), released)), [""; 0]);
    let mut leaving = published(&standard(&["a"]));
    leaving
        .change(&json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["x/y"]}}));
    assert_eq!(names(&settle(&mut leaving, at(0), released)), ["clear"]);
    assert_eq!(leaving.field("addresses"), Value::Null);
}

#[test]
fn texts_wait_and_other_generations_do_not() {
    let base = standard(&["a"]);
    let server = published(&base);
    let urgency = |object: &Value, standard: &GatewayConditions| {
        let subject = desired(object, standard);
        subject.urgency(&subject.next_step(false, at(1)))
    };
    let mut texts = base.clone();
    texts.listeners[0].conditions[0].message = "Other words.".to_owned();
    assert_eq!(urgency(&server.object(), &texts), Urgency::Minor);
    let mut status = base.clone();
    status.listeners[0].conditions[0] = no("Accepted", "PortUnavailable");
    assert_eq!(urgency(&server.object(), &status), Urgency::Status);
    let mut routes = base.clone();
    routes.listeners[0].attached_routes = 2;
    assert_eq!(urgency(&server.object(), &routes), Urgency::Status);
    let mut addresses = texts.clone();
    addresses.addresses.clear();
    assert_eq!(urgency(&server.object(), &addresses), Urgency::Now);
    let mut newer = server.clone();
    newer.change(&json!({"spec": {"addresses": []}}));
    assert_eq!(urgency(&newer.object(), &texts), Urgency::Now);
}
