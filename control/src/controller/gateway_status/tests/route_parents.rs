//! Tests of the list of a route's parents, which several controllers share.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::api::gateway_api::{ParentReference, TcpRoute};
use crate::api::routes::AnyRoute;
use crate::controller::gateway_status::route_parents::DesiredParents;
use crate::controller::status_writer::next_step::Urgency;
use crate::projection::gateway_api::outcome::RouteParent;

const CONTROLLER: &str = "sheave.dev/gateway";

fn parent(name: &str) -> RouteParent {
    RouteParent {
        reference: ParentReference { name: name.to_owned(), ..ParentReference::default() },
        accepted: yes("Accepted"),
        resolved_refs: yes("ResolvedRefs"),
        serving: Some(yes("sheave.dev/Serving")),
    }
}

fn subject(object: &Value, parents: &[RouteParent]) -> GatewayApiSubject {
    let route: TcpRoute = serde_json::from_value(object.clone()).unwrap();
    let route = AnyRoute::Tcp(Arc::new(route));
    let desired = DesiredParents::new(&route, &CONTROLLER.into(), parents);
    GatewayApiSubject::Route(route, Arc::new(desired))
}

fn server(parents: &[Value]) -> ObjectServer {
    ObjectServer::new(object("TCPRoute", 3, &json!({"status": {"parents": parents}})))
}

fn theirs(name: &str) -> Value {
    json!({"parentRef": {"name": name}, "controllerName": "theirs.example/gateway",
           "conditions": [foreign("Accepted")], "extension": {"kept": [1, null, {}]}})
}

fn controllers(server: &ObjectServer) -> Vec<String> {
    let entries = server.field("parents").as_array().cloned().unwrap_or_default();
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    entries.iter().map(|it| text(&it["parentRef"]["name"]) + "@" + &text(&it["controllerName"])).collect()
}

#[test]
fn entries_are_updated_in_place_and_new_ones_follow() {
    let mut server = server(&[theirs("a"), theirs("b")]);
    let steps = settle(&mut server, at(0), |it| subject(it, &[parent("gw1"), parent("gw2")]));
    assert_eq!(names(&steps), ["parents"]);
    let WriteStep::PatchParents { body, ours } = &steps[0] else { panic!() };
    assert_eq!((&body["metadata"], ours.len()), (&json!({"uid": "u1", "resourceVersion": "100"}), 2));
    let at_first = [
        "a@theirs.example/gateway",
        "b@theirs.example/gateway",
        "gw1@sheave.dev/gateway",
        "gw2@sheave.dev/gateway",
    ];
    assert_eq!(controllers(&server), at_first);
    let mut list = server.field("parents");
    list.as_array_mut().unwrap().rotate_left(2);
    server.rival("parents", &list);
    assert_eq!(
        names(&settle(&mut server, at(1), |it| subject(it, &[parent("gw2"), parent("gw1")]))),
        [""; 0]
    );
    let mut changed = parent("gw2");
    changed.resolved_refs = no("ResolvedRefs", "BackendNotFound");
    settle(&mut server, at(60), |it| subject(it, &[changed.clone(), parent("gw1")]));
    let list = server.field("parents");
    assert_eq!((&list[2], &list[3]), (&theirs("a"), &theirs("b")));
    let resolved = &list[1]["conditions"][1];
    assert_eq!(
        (&resolved["reason"], &resolved["observedGeneration"]),
        (&json!("BackendNotFound"), &json!(3))
    );
    assert_eq!(
        list[1]["conditions"][0]["lastTransitionTime"], "2027-01-15T08:00:00Z",
        "that has not changed"
    );
}

#[test]
fn a_route_that_names_another_gateway_loses_its_entry() {
    let mut server = server(&[theirs("a")]);
    settle(&mut server, at(0), |it| subject(it, &[parent("gw1")]));
    server.change(&json!({"spec": {"parentRefs": [{"name": "foreign"}]}}));
    assert_eq!(names(&settle(&mut server, at(1), |it| subject(it, &[]))), ["parents"]);
    assert_eq!(server.field("parents"), json!([theirs("a")]));
    assert_eq!(names(&settle(&mut server, at(1), |it| subject(it, &[]))), [""; 0]);
}

#[test]
fn the_first_of_two_entries_for_one_parent_stays() {
    let mut server = server(&[]);
    settle(&mut server, at(0), |it| subject(it, &[parent("gw1")]));
    let entry = server.field("parents")[0].clone();
    let mut with_defaults = entry.clone();
    with_defaults["parentRef"]["kind"] = json!("Gateway");
    with_defaults["parentRef"]["group"] = json!("gateway.networking.k8s.io");
    server.rival(
        "parents",
        &json!([with_defaults, theirs("a"), entry, {"controllerName": CONTROLLER, "parentRef": 7}]),
    );
    settle(&mut server, at(1), |it| subject(it, &[parent("gw1"), parent("gw1")]));
    assert_eq!(server.field("parents"), json!([with_defaults, theirs("a")]));
}

#[test]
fn the_api_server_refuses_an_entry_beyond_the_last_place() {
    let full: Vec<Value> = (0..32).map(|index| theirs(&index.to_string())).collect();
    let mut server = server(&full);
    let step = subject(&server.object(), &[parent("gw1")]).next_step(false, at(0));
    assert!(matches!(server.answer(&step), ApiAnswer::Refused(_)));
    assert_eq!(server.field("parents"), json!(full));
}

#[test]
fn a_route_that_is_being_deleted_stays_as_it_is() {
    let mut server = server(&[]);
    settle(&mut server, at(0), |it| subject(it, &[parent("gw1")]));
    server.change(&json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["x/y"]}}));
    assert_eq!(names(&settle(&mut server, at(1), |it| subject(it, &[]))), [""; 0]);
}

#[test]
fn only_texts_wait() {
    let mut server = server(&[]);
    settle(&mut server, at(0), |it| subject(it, &[parent("gw1")]));
    let urgency = |server: &ObjectServer, parents: &[RouteParent]| {
        let subject = subject(&server.object(), parents);
        subject.urgency(&subject.next_step(false, at(1)))
    };
    let mut changed = parent("gw1");
    changed.accepted.message = "Other words.".to_owned();
    assert_eq!(urgency(&server, &[changed.clone()]), Urgency::Minor);
    changed.accepted = no("Accepted", "NoMatchingParent");
    assert_eq!(urgency(&server, &[changed.clone()]), Urgency::Status);
    changed.serving = None;
    assert_eq!(urgency(&server, &[changed]), Urgency::Status);
    assert_eq!(urgency(&server, &[parent("gw1"), parent("gw2")]), Urgency::Now);
    assert_eq!(urgency(&server, &[parent("gw2")]), Urgency::Now);
    server.change(&json!({"spec": {"rules": []}}));
    assert_eq!(urgency(&server, &[parent("gw1")]), Urgency::Now);
}

/// Any JSON, as another controller may write it.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|it| json!(it)),
        ]
    })
}

/// An entry of others or of ours, in any state.
fn any_entry() -> impl Strategy<Value = Value> {
    let theirs = (any_json(), any_json()).prop_map(|(reference, more)| {
        json!({"parentRef": reference, "controllerName": "theirs.example/gateway", "conditions": more})
    });
    let ours = ("gw[0-3]", prop_oneof![Just(json!([])), Just(json!([foreign("Accepted")])), any_json()]);
    let ours = ours.prop_map(|(name, conditions)| {
        json!({"parentRef": {"name": name}, "controllerName": CONTROLLER, "conditions": conditions})
    });
    prop_oneof![theirs, ours, any_json()]
}

fn is_ours(entry: &&Value) -> bool {
    entry["controllerName"] == CONTROLLER
}

proptest! {
    #[test]
    fn entries_of_others_stay_byte_for_byte_and_a_second_write_is_never_needed(
        before in prop::collection::vec(any_entry(), 0..12),
        wanted in prop::collection::vec("gw[0-3]", 0..4),
    ) {
        let mut server = server(&before);
        let parents: Vec<RouteParent> = wanted.iter().map(|name| parent(name)).collect();
        let steps = settle(&mut server, at(0), |it| subject(it, &parents));
        prop_assert!(steps.len() <= 1);
        let after = server.field("parents").as_array().cloned().unwrap_or_default();
        let foreign = |list: &[Value]| -> Vec<String> {
            list.iter().filter(|it| !is_ours(it)).map(Value::to_string).collect()
        };
        prop_assert_eq!(foreign(&before), foreign(&after));
        let mut ours: Vec<String> =
            after.iter().filter(is_ours).map(|it| it["parentRef"]["name"].as_str().unwrap().to_owned()).collect();
        ours.sort();
        let mut expected = wanted.clone();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(ours, expected);
        prop_assert_eq!(names(&settle(&mut server, at(99), |it| subject(it, &parents))), [""; 0]);
    }
}
