//! Tests of the pool and the address that a Service gets, and of the condition when there is none.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::scene::{play, wait_for};
use crate::stage::{
    condition, pool, published, service, wait_for_addresses, wait_for_condition, wait_until_gone,
};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};

#[test]
fn selectors_of_a_pool_choose_by_labels_of_service_and_namespace() {
    play("select", "", |scene| {
        let cluster = scene.cluster;
        let team = cluster.namespace().to_owned();
        cluster.apply(&format!(
            "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: select-team}}\nspec: {{addresses: \
             [203.0.113.84], namespaceSelector: {{matchLabels: {{example.com/team: {team}}}}}}}\n"
        ));
        pool_with(
            cluster,
            "select-gold",
            "addresses: [203.0.113.85], serviceSelector: {matchLabels: {tier: gold}}",
        );
        let _controller = scene.start();
        service(cluster, "web", "");
        let (_, message) = wait_for_condition(cluster, ("Service", "web"), "sheave.dev/Allocated", "False");
        assert!(message.contains("AddressPool gives the Service IPv4 addresses"), "{message}");
        let gold = json!({"metadata": {"labels": {"tier": "gold"}}});
        cluster.merge("Service", "web", "someone", &gold).unwrap();
        expect_addresses(cluster, "web", &["203.0.113.85"]);
        service(cluster, "next", "");
        wait_for_condition(cluster, ("Service", "next"), "sheave.dev/Allocated", "False");
        let labels = json!({"metadata": {"labels": {"example.com/team": team}}});
        cluster.merge("Namespace", &team, "someone", &labels).unwrap();
        expect_addresses(cluster, "next", &["203.0.113.84"]);
    });
}

#[test]
fn addresses_can_be_asked_for_by_value() {
    play("value", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "value", "203.0.113.86-203.0.113.89");
        let _controller = scene.start();
        service(cluster, "older", "loadBalancerIP: 203.0.113.88");
        expect_addresses(cluster, "older", &["203.0.113.88"]);
        service(cluster, "newer", "");
        expect_addresses(cluster, "newer", &["203.0.113.86"]);
        annotate(cluster, "newer", &json!({"sheave.dev/addresses": "203.0.113.89, 203.0.113.87"}));
        expect_addresses(cluster, "newer", &["203.0.113.89", "203.0.113.87"]);
        // The annotation has priority over the older field, and the contradiction is reported.
        annotate(cluster, "older", &json!({"sheave.dev/addresses": "203.0.113.86"}));
        expect_addresses(cluster, "older", &["203.0.113.86"]);
        let note = event(cluster, "older", "InvalidValue");
        assert!(note.contains("203.0.113.88"), "{note}");
        // An address outside of every pool is reported, and the Service keeps its address.
        annotate(cluster, "newer", &json!({"sheave.dev/addresses": "192.0.2.77"}));
        let (reason, message) =
            wait_for_condition(cluster, ("Service", "newer"), "sheave.dev/Allocated", "False");
        assert_eq!(reason, "NoAddress");
        assert!(message.contains("192.0.2.77 is in no AddressPool"), "{message}");
        assert_eq!(published(&cluster.get("Service", "newer").unwrap()).len(), 2);
        // Without a request, the first of the existing addresses is kept.
        annotate(cluster, "newer", &json!({"sheave.dev/addresses": null}));
        wait_for(cluster, ("Service", "newer"), "has one", |it| published(it).len() == 1);
        wait_for_condition(cluster, ("Service", "newer"), "sheave.dev/Allocated", "True");
    });
}

#[test]
fn an_exhausted_pool_is_named_and_a_release_wakes_who_waits() {
    play("full", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "full", "203.0.113.90");
        let _controller = scene.start();
        service(cluster, "web", "");
        wait_for_addresses(cluster, "web");
        service(cluster, "waits", "");
        let (reason, message) =
            wait_for_condition(cluster, ("Service", "waits"), "sheave.dev/Allocated", "False");
        assert_eq!(reason, "NoAddress");
        assert!(message.contains("AddressPool full has no free IPv4 address"), "{message}");
        let note = event(cluster, "waits", "NoAddress");
        assert!(note.contains("AddressPool full"), "{note}");
        let programmed = condition(&cluster.get("Service", "waits").unwrap(), "sheave.dev/Programmed");
        assert_eq!(programmed.map(|it| it.0).as_deref(), Some("False"));
        cluster.delete("Service", "web");
        expect_addresses(cluster, "waits", &["203.0.113.90"]);
    });
}

#[test]
fn an_unknown_pool_is_named() {
    play("unknown", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "known", "203.0.113.91");
        let _controller = scene.start();
        service(cluster, "web", "");
        wait_for_addresses(cluster, "web");
        annotate(cluster, "web", &json!({"sheave.dev/address-pool": "nowhere"}));
        let (reason, message) =
            wait_for_condition(cluster, ("Service", "web"), "sheave.dev/Allocated", "False");
        assert_eq!(reason, "NoAddress");
        assert!(message.contains("AddressPool is named \"nowhere\""), "{message}");
        assert!(event(cluster, "web", "NoAddress").contains("nowhere"));
        assert_eq!(published(&cluster.get("Service", "web").unwrap()).len(), 1, "it keeps what it has");
        annotate(cluster, "web", &json!({"sheave.dev/address-pool": "known"}));
        expect_addresses(cluster, "web", &["203.0.113.91"]);
    });
}

#[test]
fn services_that_wait_together_are_served_in_the_order_of_their_names() {
    play("order", "", |scene| {
        let cluster = scene.cluster;
        let names: Vec<String> = (0..10).map(|index| format!("s-{index}")).collect();
        let _controller = scene.start();
        for _ in 0..2 {
            for name in &names {
                service(cluster, name, "");
                wait_for_condition(cluster, ("Service", name), "sheave.dev/Allocated", "False");
            }
            // In order of creation, and by name within the same second.
            pool(cluster, "order", "203.0.113.92-203.0.113.101");
            for (index, name) in names.iter().enumerate() {
                expect_addresses(cluster, name, &[&format!("203.0.113.{}", 92 + index)]);
            }
            for name in &names {
                cluster.delete("Service", name);
            }
            names.iter().for_each(|name| wait_until_gone(cluster, "Service", name));
            cluster.delete("AddressPool", "order");
            wait_until_gone(cluster, "AddressPool", "order");
        }
    });
}

/// A pool for the case's namespace with these fields in its spec.
fn pool_with(cluster: &Cluster, name: &str, spec: &str) {
    cluster.apply(&format!(
        "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: {name}}}\nspec: {{namespaceSelector: \
         {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}, {spec}}}\n",
        cluster.namespace()
    ));
}

fn annotate(cluster: &Cluster, name: &str, annotations: &Value) {
    let patch = json!({"metadata": {"annotations": annotations}});
    cluster.merge("Service", name, "someone", &patch).unwrap();
}

/// Waits until a Service publishes these addresses, in any order.
fn expect_addresses(cluster: &Cluster, name: &str, addresses: &[&str]) {
    let sorted = |mut all: Vec<IpAddr>| {
        all.sort_unstable();
        all
    };
    let expected = sorted(addresses.iter().map(|it| it.parse().expect("an address")).collect());
    let what = format!("publishes {addresses:?}");
    wait_for(cluster, ("Service", name), &what, |service| sorted(published(service)) == expected);
    wait_for_condition(cluster, ("Service", name), "sheave.dev/Allocated", "True");
}

/// Notes of all Events about a Service with this reason, once there is one.
pub(crate) fn event(cluster: &Cluster, name: &str, reason: &str) -> String {
    eventually_within(patience(30.0), &format!("an Event of {name} says {reason}"), || {
        let events = cluster.list("Event");
        let found = events.iter().filter(|it| it["reason"] == reason && it["regarding"]["name"] == name);
        let notes: Vec<String> = found.map(|it| it["note"].to_string()).collect();
        if notes.is_empty() { Err(format!("{events:?}")) } else { Ok(notes.join("\n")) }
    })
}
