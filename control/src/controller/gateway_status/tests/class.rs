//! Tests of the status and finalizer of a GatewayClass.

use std::sync::Arc;

use super::*;
use crate::api::gateway_api::GatewayClass;
use crate::controller::gateway_status::class::{DesiredClass, FINALIZER};
use crate::projection::gateway_api::SUPPORTED_FEATURES;

fn desired(object: &Value, in_use: bool) -> GatewayApiSubject {
    let class: GatewayClass = serde_json::from_value(object.clone()).unwrap();
    let desired = DesiredClass::new(&class, in_use);
    GatewayApiSubject::Class(Arc::new(class), Arc::new(desired))
}

fn fresh() -> ObjectServer {
    let cluster_scoped = json!({"metadata": {"namespace": null, "finalizers": ["x/y"]},
                                "spec": {"controllerName": "sheave.dev/gateway"}});
    ObjectServer::new(object("GatewayClass", 1, &cluster_scoped))
}

#[test]
fn a_class_has_the_finalizer_while_a_gateway_uses_it() {
    let mut server = fresh();
    assert_eq!(names(&settle(&mut server, at(0), |it| desired(it, false))), ["apply"]);
    assert_eq!(server.field("conditions/Accepted")["reason"], "Accepted");
    let features: Vec<Value> = SUPPORTED_FEATURES.iter().map(|name| json!({"name": name})).collect();
    assert_eq!(server.field("supportedFeatures"), json!(features));
    assert!(SUPPORTED_FEATURES.is_sorted() && SUPPORTED_FEATURES.len() <= 64);
    assert_eq!(names(&settle(&mut server, at(0), |it| desired(it, true))), ["add finalizer"]);
    assert_eq!(server.object()["metadata"]["finalizers"], json!(["x/y", FINALIZER]));
    server.change(&json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}}));
    // The deletion counts as a change of the spec (BeforeDelete in apiserver's registry/rest/delete.go).
    server.change(&json!({"metadata": {"generation": 2}}));
    assert_eq!(names(&settle(&mut server, at(0), |it| desired(it, true))), ["apply"]);
    assert_eq!(server.field("conditions/Accepted")["observedGeneration"], 2);
    assert_eq!(names(&settle(&mut server, at(0), |it| desired(it, false))), ["remove finalizer"]);
    assert_eq!(server.object()["metadata"]["finalizers"], json!(["x/y"]));
    assert_eq!(names(&settle(&mut server, at(0), |it| desired(it, true))), [""; 0], "it is being deleted");
}

#[test]
fn parameters_are_not_accepted_and_features_of_other_versions_go() {
    let mut server = fresh();
    settle(&mut server, at(0), |it| desired(it, false));
    let mut features = server.field("supportedFeatures");
    features.as_array_mut().unwrap().push(json!({"name": "HTTPRoute"}));
    server.rival("supportedFeatures", &features);
    assert_eq!(names(&settle(&mut server, at(0), |it| desired(it, false))), ["remove rest"]);
    server.change(&json!({"spec": {"parametersRef": {"kind": "X"}}}));
    assert_eq!(names(&settle(&mut server, at(9), |it| desired(it, false))), ["apply"]);
    let accepted = server.field("conditions/Accepted");
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("InvalidParameters")));
    assert_eq!(accepted["observedGeneration"], 2);
}
