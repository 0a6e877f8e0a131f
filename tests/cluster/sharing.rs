//! Tests of one address for several Services: shared by port and protocol, with an error for the later
//! Service.

use serde_json::{Value, json};

use crate::scene::{play, wait_for};
use crate::stage::{condition, pool, published, service, wait_for_addresses, wait_until_gone};
use crate::support::cluster::Cluster;
use crate::support::patience::eventually;

const ADDRESS: &str = "203.0.113.110";

#[test]
fn services_share_an_address_by_port_and_protocol() {
    play("share", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "share", ADDRESS);
        let _controller = scene.start();
        sharer(cluster, "http", &["{name: http, port: 80, protocol: TCP}"]);
        sharer(cluster, "dns", &["{name: dns, port: 80, protocol: UDP}"]);
        sharer(cluster, "tls", &["{name: tls, port: 443, protocol: TCP}"]);
        for name in ["http", "dns", "tls"] {
            wait_for_addresses(cluster, name);
            let errors = errors(&cluster.get("Service", name).unwrap());
            assert!(errors.iter().all(Value::is_null), "{name}: {errors:?}");
        }
        wait_for(cluster, ("AddressPool", "share"), "counts the address once", |pool| {
            pool["status"]["used"] == 1 && pool["status"]["free"] == 0
        });
    });
}

#[test]
fn a_conflict_names_the_holder_and_is_over_when_that_leaves() {
    play("clash", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "clash", ADDRESS);
        let _controller = scene.start();
        scene.stage.gateway_is(true, None);
        sharer(cluster, "first", &["{name: http, port: 80, protocol: TCP}"]);
        wait_for_addresses(cluster, "first");
        sharer(
            cluster,
            "second",
            &["{name: http, port: 80, protocol: TCP}", "{name: tls, port: 443, protocol: TCP}"],
        );
        wait_for_addresses(cluster, "second");
        let second = wait_for(cluster, ("Service", "second"), "says why", |it| {
            condition(it, "sheave.dev/Programmed").is_some_and(|(_, reason, _)| reason == "PortsInTrouble")
        });
        assert_eq!(errors(&second), [json!("sheave.dev/AddressInUse"), Value::Null]);
        let holder = format!("Service {}/first", cluster.namespace());
        let (_, _, message) = condition(&second, "sheave.dev/Programmed").unwrap();
        assert!(message.contains(&holder) && message.contains("80/TCP"), "{message}");
        eventually("an Event names the holder", || {
            let events = cluster.list("Event");
            let told = |it: &Value| {
                it["reason"] == "AddressInUse"
                    && it["regarding"]["name"] == "second"
                    && it["note"].as_str().is_some_and(|note| note.contains(&holder))
            };
            if events.iter().any(told) { Ok(()) } else { Err(format!("{events:?}")) }
        });
        let first = cluster.get("Service", "first").unwrap();
        assert_eq!(errors(&first), [Value::Null]);
        cluster.delete("Service", "first");
        wait_until_gone(cluster, "Service", "first");
        let second = wait_for(cluster, ("Service", "second"), "has its port", |it| {
            condition(it, "sheave.dev/Programmed").is_some_and(|(status, ..)| status == "True")
        });
        assert_eq!(errors(&second), [Value::Null, Value::Null]);
    });
}

/// A Service may have a hundred ports, and each has an entry.
#[test]
fn a_hundred_ports_are_published() {
    play("hundred", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "hundred", ADDRESS);
        scene.stage.gateway_is(true, None);
        let _controller = scene.start();
        let ports: Vec<String> =
            (0..100).map(|it| format!("{{name: p-{it}, port: {}, protocol: TCP}}", 8000 + it)).collect();
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        sharer(cluster, "many", &ports);
        sharer(cluster, "more", &ports);
        for (name, error, reason) in [
            ("many", Value::Null, "Programmed"),
            ("more", json!("sheave.dev/AddressInUse"), "PortsInTrouble"),
        ] {
            let service = wait_for(cluster, ("Service", name), "is spoken of", |it| {
                condition(it, "sheave.dev/Programmed").is_some_and(|it| it.1 == reason)
            });
            assert_eq!(errors(&service), vec![error; 100]);
            assert_eq!(published(&service).len(), 1);
        }
        cluster.delete("Service", "many");
        wait_for(cluster, ("Service", "more"), "has its ports", |it| errors(it) == vec![Value::Null; 100]);
    });
}

#[test]
fn a_protocol_that_cannot_be_forwarded_is_said_at_its_port() {
    play("sctp", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "sctp", ADDRESS);
        let _controller = scene.start();
        sharer(
            cluster,
            "sig",
            &["{name: http, port: 80, protocol: TCP}", "{name: sig, port: 90, protocol: SCTP}"],
        );
        wait_for_addresses(cluster, "sig");
        let sig = cluster.get("Service", "sig").unwrap();
        assert_eq!(errors(&sig), [Value::Null, json!("sheave.dev/ProtocolNotSupported")]);
        // Other Services are not affected.
        service(cluster, "web", "loadBalancerIP: 203.0.113.110");
        wait_for(cluster, ("Service", "web"), "meets who was first", |it| {
            errors(it) == [json!("sheave.dev/AddressInUse")]
        });
    });
}

/// A Service of our class that requests the address for these ports.
fn sharer(cluster: &Cluster, name: &str, ports: &[&str]) {
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, annotations: {{sheave.dev/addresses: {ADDRESS}}}}}\nspec: \
         {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, allocateLoadBalancerNodePorts: false, ports: [{}]}}\n",
        ports.join(", ")
    ));
}

/// Errors of all ports in the status, in the Service's order.
fn errors(service: &Value) -> Vec<Value> {
    let ports =
        service["status"]["loadBalancer"]["ingress"][0]["ports"].as_array().cloned().unwrap_or_default();
    ports.into_iter().map(|port| port["error"].clone()).collect()
}
