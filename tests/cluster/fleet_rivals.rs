//! Tests of others that write to the status of our MultiClusterServices, and of controllers that compete for
//! leadership.

use serde_json::{Value, json};

use crate::fleet_kit::{Fleet, IN_EAST, IN_WEST, KIND, change, play, wait_for_addresses};
use crate::scene::{LEASE, give_up_lease, wait_for, wait_until_leading};
use crate::stage::{REST, Role, Sheave, Stage, condition, pool, published, wait_until_gone};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, let_pass, patience};

const THEIRS: &str = "example.com/Audited";

/// The status is only validated when another part of the object is written, so an invalid one keeps the
/// finalizers in place.
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
        // And at its end, when addresses are no longer written.
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
        give_up_lease(fleet.cluster, LEASE);
        wait_until_leading(&second);
        fleet.web("next");
        let next = wait_for_addresses(fleet.plane, "next");
        assert_ne!(next, addresses);
        assert_eq!(wait_for_addresses(fleet.plane, "web"), addresses);
        fleet.plane.delete(KIND, "web");
        wait_until_gone(fleet.plane, KIND, "web");
    });
}

/// Leases on the control plane.
pub(crate) const CLASS_LEASE: &str = "sheave-system/sheave";
const UNCLASSIFIED_LEASE: &str = "sheave-system/sheave-unclassified";

/// Runs a case with a second installation on the same control plane, in its own cluster with its own pool.
fn play_two(name: &str, addresses: [&str; 2], case: impl FnOnce(&Fleet<'_>, &Fleet<'_>)) {
    play(name, |fleet| {
        pool(fleet.cluster, name, addresses[0]);
        let second = Cluster::simulated(&format!("{name}-2"));
        second.apply(&format!(
            "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: {name}-2}}\nspec: {{addresses: [{}]}}\n",
            addresses[1]
        ));
        let stage = Stage::new(&second);
        let (road, plane_road) = (stage.road(), fleet.plane.road(&stage.host));
        case(fleet, &Fleet::beside(fleet, &second, &stage, (&road, &plane_road)));
    });
}

/// Waits until the status reports that another installation has this Lease.
fn wait_until_told_of(lease: &str, controller: &Sheave<'_>) {
    eventually_within(patience(40.0), "it says who has the Lease", || {
        let status = controller.page("/api/status").to_string();
        if status.contains(&format!("Lease {lease}")) { Ok(()) } else { Err(status) }
    });
}

#[test]
fn of_two_installations_of_one_class_one_writes_and_the_other_says_so() {
    play_two("fleet-one-class", ["203.0.113.54", "203.0.113.55-203.0.113.56"], |one, other| {
        one.web("web");
        let first = one.controller();
        let addresses = wait_for_addresses(one.plane, "web");
        let second = other.controller();
        wait_until_told_of(CLASS_LEASE, &second);
        let web = || {
            let web = one.plane.get(KIND, "web").expect("nobody deletes it");
            // On a real control plane, members without an agent are eventually lost, which the status reports.
            if one.plane.test_server().is_some() { web } else { json!(published(&web)) }
        };
        let before = web();
        let_pass(REST);
        assert_eq!(web(), before, "both write");
        // The holder is gone for good.
        assert!(first.stop().success());
        give_up_lease(one.plane, CLASS_LEASE);
        give_up_lease(one.plane, UNCLASSIFIED_LEASE);
        one.web("next");
        let next = wait_for_addresses(one.plane, "next");
        assert_ne!(next, addresses);
        assert!(second.stop().success());
    });
}

#[test]
fn what_names_no_class_stays_with_the_installation_that_took_it() {
    play_two("fleet-no-class", ["203.0.113.57", "203.0.113.58"], |one, other| {
        one.web("web");
        let first = one.controller();
        let addresses = wait_for_addresses(one.plane, "web");
        let second =
            other.stage.start(&other.home(Role::Controller, "loadBalancerClass: example.com/other\n"));
        wait_until_leading(&second);
        wait_until_told_of(UNCLASSIFIED_LEASE, &second);
        // Even if the first installation is down, for any length of time.
        assert!(first.stop().success());
        give_up_lease(one.plane, UNCLASSIFIED_LEASE);
        let before = one.plane.get(KIND, "web");
        one.web("next");
        assert_eq!(wait_for_addresses(one.plane, "next").len(), 1, "it is taken by who is there");
        assert_eq!((one.plane.get(KIND, "web"), addresses.len()), (before, 1), "it was taken already");
        // Unless its class says which installation it belongs to.
        let class =
            json!({"metadata": {"annotations": {"sheave.dev/load-balancer-class": "example.com/other"}}});
        one.plane.delete(KIND, "next");
        wait_until_gone(one.plane, KIND, "next");
        let first = one.controller();
        change(one.plane, "web", &class).unwrap();
        wait_for(one.plane, (KIND, "web"), "has moved", |web| {
            let addresses = published(web);
            !addresses.is_empty() && addresses.iter().all(|it| it.to_string() == "203.0.113.58")
        });
        assert!(first.stop().success() && second.stop().success());
    });
}
