//! Others that write to the status of our MultiClusterServices, and controllers of which one must lead.

use serde_json::{Value, json};

use crate::fleet_kit::{IN_EAST, IN_WEST, KIND, change, play, wait_for_addresses};
use crate::scene::{LEASE, wait_for, wait_until_leading};
use crate::stage::{Role, condition, pool, published, wait_until_gone};
use crate::support::patience::eventually_within;
use crate::support::patience::patience;

const THEIRS: &str = "example.com/Audited";

/// A status is only looked at when anything else of the object is written: a bad one keeps its finalizers there.
#[test]
fn a_bad_status_of_others_does_not_lock_the_object() {
    play("fleet-locked", |fleet| {
        let _run = fleet.run();
        pool(fleet.cluster, "fleet-locked", "203.0.113.50");
        fleet.web("web");
        let addresses = wait_for_addresses(fleet.plane, "web");
        let bad = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "Bad_Name"}]}}});
        fleet.plane.merge_status(KIND, "web", "rival-lb", &bad).unwrap();
        wait_for(fleet.plane, (KIND, "web"), "has our address again", |it| {
            published(it) == addresses
                && it["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|all| all.len() == 1)
        });
        // And at its end, when nobody writes addresses any more.
        fleet.plane.merge_status(KIND, "web", "rival-lb", &bad).unwrap();
        fleet.plane.delete(KIND, "web");
        wait_until_gone(fleet.plane, KIND, "web");
    });
}

#[test]
fn conditions_of_others_stay() {
    play("fleet-others", |fleet| {
        let _run = fleet.run();
        fleet.web("web");
        wait_for(fleet.plane, (KIND, "web"), "is spoken of", |it| it["status"]["conditions"].is_array());
        let theirs = json!({"type": THEIRS, "status": "True", "reason": "Audited", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let web = json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": KIND, "metadata": {"name": "web"},
                         "spec": {"types": ["LoadBalancer"]}, "status": {"conditions": [theirs]}});
        fleet.plane.apply(&web.to_string());
        pool(fleet.cluster, "fleet-others", "203.0.113.51");
        let addresses = wait_for_addresses(fleet.plane, "web");
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        let class: Value =
            json!({"metadata": {"annotations": {"sheave.dev/load-balancer-class": "example.com/other"}}});
        change(fleet.plane, "web", &class).unwrap();
        let web = crate::fleet_kit::wait_until_clean(fleet.plane, "web");
        assert!(condition(&web, THEIRS).is_some(), "{web}");
    });
}

#[test]
fn one_of_two_controllers_leads_and_the_other_takes_over() {
    play("fleet-two", |fleet| {
        pool(fleet.cluster, "fleet-two", "203.0.113.52-203.0.113.53");
        fleet.web("web");
        let first = fleet.controller();
        let second = fleet.stage.launch(&fleet.home(Role::Controller, ""));
        let addresses = wait_for_addresses(fleet.plane, "web");
        eventually_within(patience(30.0), "the other is there", || {
            if second.readiness().is_ok() { Ok(()) } else { Err("not yet") }
        });
        first.kill();
        fleet.cluster.delete("Lease", LEASE);
        wait_until_leading(&second);
        fleet.web("next");
        let next = wait_for_addresses(fleet.plane, "next");
        assert_ne!(next, addresses);
        assert_eq!(wait_for_addresses(fleet.plane, "web"), addresses);
        fleet.plane.delete(KIND, "web");
        wait_until_gone(fleet.plane, KIND, "web");
    });
}
