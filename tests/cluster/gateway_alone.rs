//! Tests of a gateway without a controller: it forwards, follows changes, ends in order, and only reads.

use std::net::SocketAddr;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::outage_kit::{address, change, publish, published_service, serve_web, wait_for_answer};
use crate::stage::{Role, Stage, service};
use crate::support::cluster::{Account, Cluster};
use crate::support::patience::eventually;
use crate::support::tcp::Conversation;

#[test]
fn a_gateway_forwards_and_follows_without_a_controller_and_writes_nothing() {
    let cluster = Cluster::start("alone");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 60);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, ""));
    assert_eq!(stage.ask(address(60), 80).unwrap(), "endpoint-0", "ready means that it serves");

    stage.slice("web", &[2]);
    wait_for_answer(&stage, address(60), 80, "endpoint-2");
    let ports = json!([{"name": "http", "port": 81, "protocol": "TCP", "targetPort": 8080}]);
    change(&cluster, "Service", "web", &json!({"spec": {"ports": ports}}));
    wait_for_answer(&stage, address(60), 81, "endpoint-2");
    stage.ask(address(60), 80).unwrap_err();
    publish(&cluster, "web", address(61));
    wait_for_answer(&stage, address(61), 81, "endpoint-2");
    published_service(&cluster, "later", address(62));
    stage.slice("later", &[1]);
    wait_for_answer(&stage, address(62), 80, "endpoint-1");
    cluster.delete("Service", "later");
    eventually("a deleted Service is served no more", || match stage.ask(address(62), 80) {
        Err(_) => Ok(()),
        Ok(name) => Err(name),
    });
    follow_the_node(&cluster, &stage);

    let text = gateway.status_text();
    assert!(text.contains("(gateway) on node ") && text.contains("Nothing is wrong.\n"), "{text}");
    if let Some(server) = cluster.test_server() {
        let user = Account::Gateway.user();
        let by_gateway: Vec<_> = server.requests().into_iter().filter(|it| it.user == user).collect();
        assert!(!by_gateway.is_empty());
        // Discovery asks which kinds there are.
        let is_discovery = |line: &str| line.starts_with("/apis/") && line.split('/').count() <= 4;
        let objects = by_gateway.iter().filter(|it| !(it.verb == "get" && is_discovery(&it.line)));
        let excess = objects.into_iter().find(|it| it.verb != "list" && it.verb != "watch");
        assert_eq!(excess, None, "a gateway only lists and watches");
        assert_eq!(server.refused(), [], "its rights are enough");
    }
}

/// The zone of the Node decides where connections go.
fn follow_the_node(cluster: &Cluster, stage: &Stage<'_>) {
    let zone = |zone: &str| {
        let labels = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        change(cluster, "Node", stage.node(), &labels);
    };
    zone("a");
    service(cluster, "near", "trafficDistribution: PreferClose");
    publish(cluster, "near", address(63));
    cluster.apply(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: near-1, labels: \
         {kubernetes.io/service-name: near}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\n\
         endpoints:\n\
         - {addresses: [10.1.0.7], zone: a, conditions: {ready: true}, hints: {forZones: [{name: a}]}}\n\
         - {addresses: [10.1.0.8], zone: b, conditions: {ready: true}, hints: {forZones: [{name: b}]}}\n",
    );
    for (here, near) in [("a", "endpoint-0"), ("b", "endpoint-1")] {
        zone(here);
        let all_near = || {
            (0..5).try_for_each(|_| match stage.ask(address(63), 80) {
                Ok(name) if name == near => Ok(()),
                other => Err(format!("{other:?}")),
            })
        };
        eventually(&format!("connections stay in zone {here}"), all_near);
    }
}

#[test]
fn a_gateway_that_is_told_to_end_lets_connections_finish() {
    for role in [Role::Gateway, Role::Run] {
        let cluster = Cluster::start("drain");
        let stage = Stage::new(&cluster);
        let _endpoints = serve_web(&cluster, &stage, 64);
        let road = stage.road();
        let sheave = stage.start(&stage.home(role, &road, ""));
        stage.wait_until_served(address(64), 80);
        let open = || Conversation::open(SocketAddr::new(address(64), 80));
        let mut talk = stage.host.run(open).unwrap();

        sheave.signal(Signal::SIGTERM);
        eventually("nothing new is accepted", || match stage.ask(address(64), 80) {
            Err(_) => Ok(()),
            Ok(name) => Err(name),
        });
        assert_eq!(sheave.readiness().unwrap(), (503, "not ready: draining\n".to_owned()));
        let text = sheave.status_text();
        assert!(text.contains("it is draining: nothing new is accepted"), "{text}");
        talk.say("still there?").unwrap();
        drop(talk);
        let ended = sheave.finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("drained"), "{}", ended.stderr);
    }
}
