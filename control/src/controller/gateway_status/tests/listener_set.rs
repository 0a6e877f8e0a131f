//! Tests of the status of a ListenerSet.

use std::sync::Arc;

use super::*;
use crate::api::gateway_api::ListenerSet;
use crate::controller::gateway_status::listener_set::DesiredListenerSet;

fn set(object: &Value) -> ListenerSet {
    serde_json::from_value(object.clone()).unwrap()
}

fn desired(object: &Value, listeners: &[&str]) -> GatewayApiSubject {
    let set = set(object);
    let listeners = listeners.iter().map(|name| listener(name)).collect();
    let desired = DesiredListenerSet::new(&set, vec![yes("Accepted"), yes("Programmed")], listeners);
    GatewayApiSubject::ListenerSet(Arc::new(set), Some(Arc::new(desired)))
}

#[test]
fn a_listener_set_is_published_and_released_with_one_write_each() {
    let mut server = ObjectServer::new(object("ListenerSet", 1, &json!({})));
    assert_eq!(names(&settle(&mut server, at(0), |it| desired(it, &["a", "b"]))), ["apply"]);
    assert_eq!(server.field("listeners/b/conditions/Accepted")["observedGeneration"], 1);
    server.rival("conditions/x", &foreign("x"));
    server.rival("listeners/c/attachedRoutes", &json!(3));
    server.rival("listeners/c/supportedKinds", &json!([]));
    assert_eq!(names(&settle(&mut server, at(1), |it| desired(it, &["a", "b"]))), ["remove rest"]);
    let released = |it: &Value| GatewayApiSubject::ListenerSet(Arc::new(set(it)), None);
    assert_eq!(names(&settle(&mut server, at(2), released)), ["clear"]);
    assert_eq!(server.paths(), ["conditions/x"]);
}
