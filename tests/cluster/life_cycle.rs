//! Test of the life of a Service: address, status, traffic, release.

use serde_json::json;

use crate::stage::{
    Role, Stage, pool, published, service, wait_for_addresses, wait_for_condition, wait_until_gone,
};
use crate::support::cluster::Cluster;
use crate::support::patience::eventually;

const FINALIZER: &str = "sheave.dev/load-balancer-cleanup";

#[test]
fn a_service_gets_an_address_serves_and_is_released() {
    let cluster = Cluster::start("life");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    let road = stage.road();
    let _run = stage.start(&stage.home(Role::Run, &road, ""));

    service(&cluster, "web", "");
    stage.slice("web", &[0]);
    let (reason, message) = wait_for_condition(&cluster, ("Service", "web"), "sheave.dev/Allocated", "False");
    assert_eq!(reason, "NoAddress", "{message}");

    pool(&cluster, "life", "203.0.113.10-203.0.113.11");
    let addresses = wait_for_addresses(&cluster, "web");
    assert_eq!(addresses, ["203.0.113.10".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(stage.wait_until_served(addresses[0], 80), "endpoint-0");
    wait_for_condition(&cluster, ("Service", "web"), "sheave.dev/Programmed", "True");
    let web = cluster.get("Service", "web").unwrap();
    assert_eq!(web["status"]["loadBalancer"]["ingress"][0]["ipMode"], "Proxy");
    assert_eq!(
        web["status"]["loadBalancer"]["ingress"][0]["ports"],
        json!([{"port": 80, "protocol": "TCP"}])
    );
    assert_eq!(web["metadata"]["finalizers"], json!([FINALIZER]));

    stage.slice("web", &[1]);
    eventually("the other endpoint serves", || match stage.ask(addresses[0], 80) {
        Ok(name) if name == "endpoint-1" => Ok(()),
        other => Err(format!("{other:?}")),
    });

    cluster.delete("Service", "web");
    wait_until_gone(&cluster, "Service", "web");
    eventually("nothing is served any more", || match stage.ask(addresses[0], 80) {
        Err(_) => Ok(()),
        Ok(name) => Err(name),
    });

    service(&cluster, "next", "");
    assert_eq!(wait_for_addresses(&cluster, "next"), addresses, "the address is free again");
}

#[test]
fn a_service_that_changes_its_type_is_let_go() {
    let cluster = Cluster::start("type");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let _run = stage.start(&stage.home(Role::Run, &road, ""));
    pool(&cluster, "type", "203.0.113.20");
    service(&cluster, "web", "");
    wait_for_addresses(&cluster, "web");
    cluster
        .merge(
            "Service",
            "web",
            "someone",
            &json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}),
        )
        .unwrap();
    eventually("nothing of ours is left", || {
        let web = cluster.get("Service", "web").unwrap();
        let finalizers = &web["metadata"]["finalizers"];
        let conditions = web["status"]["conditions"].as_array().map_or(0, Vec::len);
        if finalizers.is_null() && conditions == 0 && published(&web).is_empty() {
            Ok(())
        } else {
            Err(web.to_string())
        }
    });
    service(&cluster, "next", "");
    wait_for_addresses(&cluster, "next");
}
