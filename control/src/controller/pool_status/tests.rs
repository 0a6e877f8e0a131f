//! When a pool's status is written, and its contents.

use serde_json::json;

use super::*;
use crate::api::problem::reason;
use crate::controller::status_writer::next_step::{WriteStep, next_pool_step};
use crate::controller::tests::objects::{at, problem};

fn pool() -> AddressPool {
    let pool = json!({
        "metadata": {"name": "lan", "uid": "p1", "resourceVersion": "5", "generation": 2},
        "spec": {"addresses": ["203.0.113.0/28"]},
    });
    serde_json::from_value(pool).unwrap()
}

#[test]
fn a_usable_pool_is_ready() {
    let status = pool_status(&pool(), 3, 13, &[], at(0));
    let ready = &status.conditions[0];
    assert_eq!(
        (ready.type_.as_str(), ready.status.as_str(), ready.reason.as_str()),
        ("Ready", "True", "Ready")
    );
    assert_eq!(ready.observed_generation, Some(2));
    assert_eq!((status.used, status.free), (3, 13));
}

#[test]
fn a_mistake_in_it_is_told() {
    let mut wrong = problem(reason::INVALID_VALUE, "\"x\" is no address", None);
    wrong.field = "spec.addresses[0]".into();
    let status = pool_status(&pool(), 0, 0, &[wrong], at(0));
    let ready = &status.conditions[0];
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Invalid"));
    assert_eq!(ready.message, "spec.addresses[0]: \"x\" is no address.");
}

#[test]
fn the_write_names_the_pool_and_nothing_of_its_spec() {
    let status = pool_status(&pool(), 3, 13, &[], at(0));
    let WriteStep::ApplyStatus(body) = next_pool_step(&pool(), &status) else { panic!("no write") };
    assert_eq!(body["metadata"], json!({"name": "lan", "uid": "p1"}));
    assert_eq!((&body["apiVersion"], &body["kind"]), (&json!("sheave.dev/v1alpha1"), &json!("AddressPool")));
    assert_eq!(body["status"]["used"], json!(3));
    assert_eq!(body.get("spec"), None);
}

#[test]
fn only_a_change_is_written() {
    let mut seen = pool();
    seen.status = Some(pool_status(&seen, 3, 13, &[], at(0)));
    assert_eq!(next_pool_step(&seen, &pool_status(&seen, 3, 13, &[], at(60))), WriteStep::Nothing);
    assert_ne!(next_pool_step(&seen, &pool_status(&seen, 4, 12, &[], at(60))), WriteStep::Nothing);
    let mut edited = seen.clone();
    edited.metadata.generation = Some(3);
    assert_ne!(next_pool_step(&edited, &pool_status(&edited, 3, 13, &[], at(60))), WriteStep::Nothing);
    edited.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
    assert_eq!(next_pool_step(&edited, &pool_status(&edited, 4, 12, &[], at(60))), WriteStep::Nothing);
}

#[test]
fn what_each_pool_has_is_counted_once_it_has_a_status() {
    let counted = AddressPool { status: Some(pool_status(&pool(), 3, 13, &[], at(0))), ..pool() };
    let pools = BTreeMap::from([("lan".into(), Arc::new(counted)), ("new".into(), Arc::new(pool()))]);
    assert_eq!(pool_counts(&pools), [PoolCounts { name: "lan".into(), used: 3, free: 13 }]);
}
