//! Tests of the life of a MultiClusterService: address, status, traffic to two clusters, and release. Also of those that are
//! not ours, or no longer.

use serde_json::{Value, json};

use crate::fleet_kit::{
    EAST, Fleet, IN_EAST, IN_WEST, KIND, WEST, change, exposed, play, template, told, wait_for_addresses,
    wait_until_clean,
};
use crate::scene::{FINALIZER, has_finalizer, is_held, wait_for};
use crate::stage::{REST, pool, published, service, wait_for_condition, wait_until_gone};
use crate::support::patience::let_pass;

/// Conditions of a Service that is served without Problems.
const FINE: [&str; 5] =
    ["Accepted=True", "ResolvedRefs=True", "Allocated=True", "Programmed=True", "Degraded=False"];

/// Waits until all conditions are as expected for the current generation.
fn wait_until_told(fleet: &Fleet<'_>, name: &str, wanted: [&str; 5]) -> Value {
    wait_for(fleet.plane, (KIND, name), &format!("says {wanted:?}"), |it| {
        let generation = it["metadata"]["generation"].as_u64().unwrap_or_default();
        let said = told(it);
        said.iter().zip(wanted).all(|((said, of), wanted)| said == wanted && *of == generation)
    })
}

#[test]
fn it_gets_an_address_serves_two_clusters_and_is_released() {
    play("fleet", |fleet| {
        let _run = fleet.run();
        fleet.web("web");
        let (reason, message) =
            wait_for_condition(fleet.plane, (KIND, "web"), "sheave.dev/Allocated", "False");
        assert_eq!(reason, "NoAddress", "{message}");

        pool(fleet.cluster, "fleet", "203.0.113.10");
        let addresses = wait_for_addresses(fleet.plane, "web");
        assert_eq!(addresses, ["203.0.113.10".parse::<std::net::IpAddr>().unwrap()]);
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        let web = wait_until_told(fleet, "web", FINE);
        // The definition requires an error in every port entry, so there are entries only with errors.
        assert_eq!(
            web["status"]["loadBalancer"]["ingress"],
            json!([{"ip": "203.0.113.10", "ipMode": "Proxy"}])
        );
        assert_eq!(web["metadata"]["finalizers"], json!([FINALIZER]));
        let (_, message) = wait_for_condition(fleet.plane, (KIND, "web"), "sheave.dev/Programmed", "True");
        assert!(message.contains("2 of 2 endpoints in 2 of 2 clusters"), "{message}");

        change(fleet.plane, "web", &json!({"spec": {"providerClusters": [{"name": WEST}]}})).unwrap();
        fleet.wait_for_answers(addresses[0], &[IN_WEST]);
        wait_until_told(fleet, "web", FINE);
        change(fleet.plane, "web", &json!({"spec": {"providerClusters": null}})).unwrap();
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);

        fleet.plane.delete(KIND, "web");
        wait_until_gone(fleet.plane, KIND, "web");
        // Gateways are notified at the same time as the controller, not earlier.
        fleet.wait_for_answers(addresses[0], &[]);
        fleet.web("next");
        assert_eq!(wait_for_addresses(fleet.plane, "next"), addresses, "the address is free again");
    });
}

#[test]
fn the_status_is_cleared_before_the_finalizer_goes() {
    play("fleet-end", |fleet| {
        let _run = fleet.run();
        pool(fleet.cluster, "fleet-end", "203.0.113.11");
        fleet.web("web");
        wait_for_addresses(fleet.plane, "web");
        let keep = json!({"metadata": {"finalizers": [FINALIZER, "example.com/keep"]}});
        change(fleet.plane, "web", &keep).unwrap();
        fleet.plane.delete(KIND, "web");
        let web = wait_for(fleet.plane, (KIND, "web"), "is let go", |it| !is_held(it));
        assert_eq!(published(&web), [] as [std::net::IpAddr; 0], "{web}");
        assert!(has_finalizer(&web, "example.com/keep"), "{web}");
        // The address is free even while another finalizer holds the object.
        service(fleet.cluster, "local", "");
        assert_eq!(crate::stage::wait_for_addresses(fleet.cluster, "local").len(), 1);
        fleet.plane.release(KIND, "web").unwrap();
        wait_until_gone(fleet.plane, KIND, "web");
    });
}

#[test]
fn one_that_is_given_another_class_is_let_go() {
    play("fleet-class", |fleet| {
        let _run = fleet.run();
        pool(fleet.cluster, "fleet-class", "203.0.113.12");
        fleet.web("web");
        let addresses = wait_for_addresses(fleet.plane, "web");
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        let class =
            |class: Value| json!({"metadata": {"annotations": {"sheave.dev/load-balancer-class": class}}});
        change(fleet.plane, "web", &class(json!("example.com/other"))).unwrap();
        wait_until_clean(fleet.plane, "web");
        // Gateways are notified at the same time as the controller, not earlier.
        fleet.wait_for_answers(addresses[0], &[]);
        change(fleet.plane, "web", &class(Value::Null)).unwrap();
        assert_eq!(wait_for_addresses(fleet.plane, "web"), addresses);
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
    });
}

#[test]
fn those_of_other_types_and_classes_are_never_touched() {
    play("fleet-theirs", |fleet| {
        pool(fleet.cluster, "fleet-theirs", "203.0.113.13-203.0.113.16");
        template(fleet.plane, "theirs");
        exposed(fleet.plane, "theirs", "{sheave.dev/load-balancer-class: example.com/other}", "");
        let object = |name: &str, types: Value| {
            json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": KIND, "metadata": {"name": name},
                   "spec": {"types": types}})
        };
        for (name, types) in [("east-west", json!(["CrossCluster"])), ("none", json!([]))] {
            template(fleet.plane, name);
            fleet.plane.create(&object(name, types)).unwrap();
        }
        // Karmada itself writes to the one of its own type.
        let karmadas = fleet.plane.test_server().is_none().then_some("east-west");
        let names = ["theirs", "east-west", "none"].into_iter().filter(|name| Some(*name) != karmadas);
        let versions = || -> Vec<Value> {
            let get = |name| fleet.plane.get(KIND, name).unwrap()["metadata"]["resourceVersion"].clone();
            names.clone().map(get).collect()
        };
        let before = versions();
        let _run = fleet.run();
        fleet.web("web");
        wait_for_addresses(fleet.plane, "web");
        let_pass(REST);
        assert_eq!(versions(), before);
        wait_until_clean(fleet.plane, "east-west");
    });
}

#[test]
fn one_without_its_service_waits_for_it() {
    play("fleet-lone", |fleet| {
        let _run = fleet.run();
        pool(fleet.cluster, "fleet-lone", "203.0.113.17");
        exposed(fleet.plane, "web", "{}", "");
        fleet.collected(EAST, "web", &[IN_EAST]);
        let (reason, message) =
            wait_for_condition(fleet.plane, (KIND, "web"), "sheave.dev/ResolvedRefs", "False");
        assert_eq!(reason, "ServiceNotFound", "{message}");
        template(fleet.plane, "web");
        let addresses = wait_for_addresses(fleet.plane, "web");
        fleet.wait_for_answers(addresses[0], &[IN_EAST]);
        wait_for_condition(fleet.plane, (KIND, "web"), "sheave.dev/ResolvedRefs", "True");
    });
}

#[test]
fn pools_are_shared_with_services() {
    play("fleet-pool", |fleet| {
        let _run = fleet.run();
        pool(fleet.cluster, "fleet-pool", "203.0.113.18");
        service(fleet.cluster, "local", "");
        let taken = crate::stage::wait_for_addresses(fleet.cluster, "local");
        // It needs the same port of the only address.
        fleet.web("web");
        wait_for_condition(fleet.plane, (KIND, "web"), "sheave.dev/Allocated", "False");
        assert_eq!(published(&fleet.plane.get(KIND, "web").unwrap()), [] as [std::net::IpAddr; 0]);
        fleet.cluster.delete("Service", "local");
        assert_eq!(wait_for_addresses(fleet.plane, "web"), taken);
        fleet.wait_for_answers(taken[0], &[IN_EAST, IN_WEST]);
        service(fleet.cluster, "late", "");
        wait_for_condition(fleet.cluster, ("Service", "late"), "sheave.dev/Allocated", "False");
    });
}
