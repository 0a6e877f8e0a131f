//! Tests of endpoints of the members that come and go with their Works, while a client uses both members
//! through the gateway.

use serde_json::json;

use crate::fleet_kit::{EAST, IN_EAST, IN_WEST, WEST, change, place, play};
use crate::outage_kit::{address, load};
use crate::stage::{ENDPOINTS, Role};
use crate::support::patience::eventually_within;
use crate::support::patience::patience;

/// Number of changes of a member's endpoints.
const CHANGES: usize = 40;

#[test]
fn routes_follow_the_works() {
    play("fleet-works", |fleet| {
        let addresses = [address(40)];
        fleet.published_web("web", addresses[0]);
        let gateway = fleet.stage.start(&fleet.home(Role::Gateway, ""));
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        let load = load(fleet.stage, addresses.to_vec());
        for change in 0..CHANGES {
            fleet.collected(WEST, "web", &[1 + change % 2]);
        }
        fleet.collected(WEST, "web", &[2]);
        fleet.wait_for_answers(addresses[0], &[IN_EAST, 2]);
        fleet.forgotten(EAST, "web");
        fleet.wait_for_answers(addresses[0], &[2]);
        fleet.collected(EAST, "web", &[IN_EAST, IN_WEST]);
        fleet.wait_for_answers(addresses[0], &[0, 1, 2]);
        load.expect_no_failure();
        assert!(gateway.stop().success());
    });
}

#[test]
fn each_member_has_a_backend_of_its_own_and_its_weight() {
    play("fleet-weights", |fleet| {
        let addresses = [address(41)];
        fleet.published_web("web", addresses[0]);
        let gateway = fleet.stage.start(&fleet.home(Role::Gateway, ""));
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        let routes = gateway.page("/api/routes");
        let frontend =
            routes["frontends"].as_array().unwrap().iter().find(|it| it["source"] == "MultiClusterService");
        let frontend = frontend.unwrap_or_else(|| panic!("{routes}"));
        assert_eq!(frontend["service"], format!("{}/web", fleet.plane.namespace()));
        let backends = frontend["backends"].as_array().unwrap().iter();
        let backends: Vec<_> =
            backends.map(|it| (it["cluster"].clone(), it["endpoints"][0]["address"].clone())).collect();
        let at = |index: usize| json!(format!("{}:8080", ENDPOINTS[index]));
        assert_eq!(backends, [(json!(EAST), at(IN_EAST)), (json!(WEST), at(IN_WEST))]);

        let weights = |text: &str| json!({"metadata": {"annotations": {"sheave.dev/cluster-weights": text}}});
        change(fleet.plane, "web", &weights(&format!("{EAST}=1,{WEST}=0"))).unwrap();
        fleet.wait_for_answers(addresses[0], &[IN_EAST]);
        change(fleet.plane, "web", &weights(&format!("{EAST}=0,{WEST}=1"))).unwrap();
        fleet.wait_for_answers(addresses[0], &[IN_WEST]);
        change(fleet.plane, "web", &weights(&format!("{EAST}=1,{WEST}=3"))).unwrap();
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        eventually_within(patience(30.0), "three of four go west", || {
            let asked = 200;
            let west = (0..asked)
                .filter(|_| fleet.stage.ask(addresses[0], 80).is_ok_and(|it| it == "endpoint-1"))
                .count();
            if (120..=180).contains(&west) { Ok(()) } else { Err(format!("{west} of {asked}")) }
        });
    });
}

#[test]
fn works_that_mean_nothing_harm_nobody() {
    play("fleet-odd", |fleet| {
        let addresses = [address(42)];
        fleet.published_web("web", addresses[0]);
        let _gateway = fleet.stage.start(&fleet.home(Role::Gateway, ""));
        let odd = |name: &str, manifest: serde_json::Value| {
            json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                   "metadata": {"name": format!("{name}-{}", fleet.plane.namespace()), "namespace": place(EAST), "labels": {
                       "multiclusterservice.karmada.io/name": "web",
                       "multiclusterservice.karmada.io/namespace": fleet.plane.namespace(),
                       "endpointslice.karmada.io/managed-by": "MultiClusterService"}},
                   "spec": {"suspendDispatching": true, "workload": {"manifests": [manifest]}}})
        };
        let slice = |fields: serde_json::Value| {
            let mut slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                                   "metadata": {"name": "odd", "namespace": fleet.plane.namespace(),
                                                "labels": {"kubernetes.io/service-name": "web"}}});
            json_patch::merge(&mut slice, &fields);
            slice
        };
        let works = [
            odd("nokind", json!({"metadata": {"name": "a"}})),
            odd("text", slice(json!({"endpoints": [], "ports": [{"port": "not-a-number"}]}))),
            odd(
                "foreign",
                slice(json!({"metadata": {"labels": {"kubernetes.io/service-name": "other"}}, "endpoints":
                [{"addresses": ["10.1.0.9"], "conditions": {"ready": true}}], "ports": [{"name": "http", "port": 8080}]})),
            ),
        ];
        for work in &works {
            // Karmada's own webhook refuses the first.
            if let Err(refusal) = fleet.plane.create(work) {
                assert!(refusal.message.contains("admission webhook"), "{refusal:?}");
            }
        }
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        fleet.collected(EAST, "web", &[2]);
        fleet.wait_for_answers(addresses[0], &[IN_WEST, 2]);
    });
}
