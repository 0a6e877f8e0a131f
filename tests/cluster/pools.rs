//! Tests of AddressPools that change while Services use them, of their status, and of controllers that restart.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::scene::{play, wait_for};
use crate::stage::{
    REST, condition, pool, published, service, wait_for_addresses, wait_for_condition, wait_until_gone,
};
use crate::support::cluster::Cluster;
use crate::support::patience::let_pass;

/// Allocations in the status are kept, even if a fresh allocation from the pools would be different.
#[test]
fn nobody_moves_when_the_controller_starts_again_with_other_pools() {
    play("again", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "again", "203.0.113.140-203.0.113.159");
        let controller = scene.start();
        let names: Vec<String> = (0..20).map(|index| format!("s-{:02}", 19 - index)).collect();
        names.iter().for_each(|name| service(cluster, name, ""));
        let before: BTreeMap<_, _> =
            names.iter().map(|name| (name.clone(), wait_for_addresses(cluster, name))).collect();
        scene.crash(controller);
        // Lower addresses, and a pool with priority.
        pool(cluster, "again", "203.0.113.120-203.0.113.159");
        cluster.apply(&format!(
            "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: again-first}}\nspec: {{addresses: \
             [203.0.113.160-203.0.113.189], priority: 1, namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: \
             {}}}}}}}\n",
            cluster.namespace()
        ));
        service(cluster, "a-new-one", "");
        let _controller = scene.start();
        let new: IpAddr = "203.0.113.160".parse().unwrap();
        assert_eq!(wait_for_addresses(cluster, "a-new-one"), [new]);
        let_pass(REST);
        for (name, addresses) in &before {
            assert_eq!(
                published(&cluster.get("Service", name).unwrap()),
                *addresses,
                "Service {name} was moved"
            );
        }
    });
}

#[test]
fn an_address_of_a_deleted_pool_is_kept_until_the_service_is_told_to_renumber() {
    play("last", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "last", "203.0.113.190");
        let controller = scene.start();
        service(cluster, "web", "");
        let old = wait_for_addresses(cluster, "web");
        let keeps = |why: &str| {
            let web = wait_for(cluster, ("Service", "web"), why, |it| {
                condition(it, "sheave.dev/Allocated").is_some_and(|(status, _, message)| {
                    status == "False" && message.contains(why) && message.contains("203.0.113.190 is kept")
                })
            });
            assert_eq!(published(&web), old);
        };
        cluster.delete("AddressPool", "last");
        wait_until_gone(cluster, "AddressPool", "last");
        keeps("here is no AddressPool");
        pool(cluster, "other", "203.0.113.191");
        keeps("sheave.dev/renumber");
        scene.crash(controller);
        let _controller = scene.start();
        // The address is still reserved when its pool returns.
        pool(cluster, "last", "203.0.113.190");
        wait_for_condition(cluster, ("Service", "web"), "sheave.dev/Allocated", "True");
        service(cluster, "next", "");
        let new: IpAddr = "203.0.113.191".parse().unwrap();
        assert_eq!(wait_for_addresses(cluster, "next"), [new]);
        cluster.delete("Service", "next");
        wait_until_gone(cluster, "Service", "next");
        cluster.delete("AddressPool", "last");
        keeps("sheave.dev/renumber");
        let renumber = json!({"metadata": {"annotations": {"sheave.dev/renumber": "true"}}});
        cluster.merge("Service", "web", "someone", &renumber).unwrap();
        wait_for(cluster, ("Service", "web"), "has moved", |it| published(it) == [new]);
    });
}

#[test]
fn an_address_that_is_to_be_replaced_is_kept_until_another_is_free() {
    play("two", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "a-two", "203.0.113.192");
        pool(cluster, "b-two", "203.0.113.193");
        let _controller = scene.start();
        service(cluster, "web", "");
        let first: IpAddr = "203.0.113.192".parse().unwrap();
        assert_eq!(wait_for_addresses(cluster, "web"), [first]);
        service(cluster, "next", "");
        let next = wait_for_addresses(cluster, "next");
        let renumber = json!({"metadata": {"annotations": {"sheave.dev/renumber": "true"}}});
        cluster.merge("Service", "web", "someone", &renumber).unwrap();
        cluster.delete("AddressPool", "a-two");
        let web = wait_for(cluster, ("Service", "web"), "waits", |it| {
            condition(it, "sheave.dev/Allocated").is_some_and(|(status, ..)| status == "False")
        });
        assert_eq!(published(&web), [first]);
        cluster.delete("Service", "next");
        wait_for(cluster, ("Service", "web"), "has moved", |it| published(it) == next);
    });
}

#[test]
fn the_status_of_a_pool_counts_and_names_what_cannot_be_used() {
    play("count", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "count", "203.0.113.200/30, 224.0.0.7, 203.0.113.210-203.0.113.209");
        let _controller = scene.start();
        let of_pool = |what: &str, used: u64, free: u64, ready: &str| {
            wait_for(cluster, ("AddressPool", "count"), what, |pool| {
                let condition = condition(pool, "Ready").map(|it| it.0);
                pool["status"]["used"] == used
                    && pool["status"]["free"] == free
                    && condition.as_deref() == Some(ready)
            })
        };
        let counted = of_pool("is all free", 0, 4, "False");
        let (_, reason, message) = condition(&counted, "Ready").unwrap();
        assert_eq!(reason, "Invalid");
        for entry in ["spec.addresses[1]", "224.0.0.7", "spec.addresses[2]", "203.0.113.210-203.0.113.209"] {
            assert!(message.contains(entry), "{message}");
        }
        assert_eq!(
            counted["status"]["conditions"][0]["observedGeneration"],
            counted["metadata"]["generation"]
        );
        ["a", "b"].iter().for_each(|name| service(cluster, name, ""));
        ["a", "b"].iter().for_each(|name| drop(wait_for_addresses(cluster, name)));
        of_pool("has two in use", 2, 2, "False");
        // Conditions of others stay.
        let theirs = json!({"type": "example.com/Seen", "status": "True", "reason": "Seen", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        cluster.apply(&format!(
            "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: count}}\nspec: {{addresses: \
             [203.0.113.200/30], namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}}}\nstatus: \
             {{conditions: [{theirs}]}}\n",
            cluster.namespace()
        ));
        cluster.delete("Service", "a");
        let counted = of_pool("is in order", 1, 3, "True");
        assert_eq!(
            condition(&counted, "example.com/Seen").map(|it| it.0).as_deref(),
            Some("True"),
            "{counted}"
        );
        let events = pool_events(cluster, "count");
        assert!(events.iter().any(|note| note.contains("224.0.0.7")), "{events:?}");
    });
}

/// Notes of Events about a pool. Events about cluster-scoped objects are in `default`.
fn pool_events(cluster: &Cluster, name: &str) -> Vec<String> {
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let events = cluster.send("GET", path, "", &Value::Null).expect("a list");
    let events = events["items"].as_array().cloned().unwrap_or_default();
    let about = events.iter().filter(|it| it["regarding"]["name"] == name);
    about.map(|it| it["note"].to_string()).collect()
}
