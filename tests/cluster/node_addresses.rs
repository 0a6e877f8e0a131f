//! Tests of pools for the gateway nodes' own addresses: which nodes count, and for which Services.

use std::net::IpAddr;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::scene::{Scene, play, wait_for};
use crate::stage::{NODE_ADDRESS, Role, free_port, published, service, wait_for_condition};

/// Additional Nodes of the case: name, and addresses as listed in a Node.
const NODES: [(&str, &str); 3] = [
    ("gw-a", "{type: InternalIP, address: 10.9.0.1}, {type: ExternalIP, address: 198.51.100.11}"),
    ("gw-b", "{type: InternalIP, address: 10.9.0.2}"),
    ("gw-c", "{type: InternalIP, address: 10.9.0.3}"),
];
const A: &str = "198.51.100.11";
const B: &str = "10.9.0.2";
const C: &str = "10.9.0.3";

#[test]
fn a_service_is_served_at_the_addresses_of_ready_gateway_nodes() {
    play("nodes", "", |scene| {
        nodes_and_pool(scene);
        gateways(scene, &["gw-a", "gw-b"], &["gw-c"]);
        let _controller = scene.start();
        service(scene.cluster, "web", "");
        // The external address if there is one. Gateways that are not ready do not count.
        expect(scene, "web", &[A, B]);
        gateways(scene, &["gw-a", "gw-b", "gw-c"], &[]);
        expect(scene, "web", &[A, B, C]);
        // Services share the addresses.
        service(scene.cluster, "next", "");
        expect(scene, "next", &[A, B, C]);
        gateways(scene, &[], &["gw-a", "gw-b", "gw-c"]);
        // It is unknown now where the Service is served. Removing its addresses would not help.
        let (reason, _) =
            wait_for_condition(scene.cluster, ("Service", "web"), "sheave.dev/Programmed", "False");
        assert_eq!(reason, "NoGateway");
        expect(scene, "web", &[A, B, C]);
        gateways(scene, &["gw-b"], &[]);
        expect(scene, "web", &[B]);
    });
}

#[test]
fn nodes_that_are_excluded_or_leave_do_not_count() {
    play("excl", "", |scene| {
        const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
        let change = |node: &str, patch: &serde_json::Value| {
            scene.cluster.merge("Node", &name(scene, node), "someone", patch).unwrap();
        };
        nodes_and_pool(scene);
        gateways(scene, &["gw-a", "gw-b", "gw-c"], &[]);
        let _controller = scene.start();
        service(scene.cluster, "web", "");
        expect(scene, "web", &[A, B, C]);
        change("gw-a", &json!({"metadata": {"labels": {EXCLUDE: ""}}}));
        expect(scene, "web", &[B, C]);
        change("gw-a", &json!({"metadata": {"labels": {EXCLUDE: "false"}}}));
        expect(scene, "web", &[A, B, C]);
        let leaving = json!({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"});
        change("gw-b", &json!({"spec": {"taints": [leaving]}}));
        expect(scene, "web", &[A, C]);
        change("gw-b", &json!({"spec": {"taints": null}}));
        expect(scene, "web", &[A, B, C]);
        scene.cluster.delete("Node", &name(scene, "gw-c"));
        expect(scene, "web", &[A, B]);
    });
}

#[test]
fn under_the_local_policy_only_nodes_with_an_endpoint_count() {
    play("local", "", |scene| {
        nodes_and_pool(scene);
        gateways(scene, &["gw-a", "gw-b", "gw-c"], &[]);
        let _controller = scene.start();
        service(scene.cluster, "web", "externalTrafficPolicy: Local");
        slice(scene, &[("10.1.1.1", "gw-b", true), ("10.1.1.2", "gw-c", false)]);
        expect(scene, "web", &[B]);
        slice(scene, &[("10.1.1.1", "gw-b", true), ("10.1.1.2", "gw-c", true)]);
        expect(scene, "web", &[B, C]);
        slice(scene, &[("10.1.1.2", "gw-c", true)]);
        expect(scene, "web", &[C]);
        let cluster = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
        scene.cluster.merge("Service", "web", "someone", &cluster).unwrap();
        expect(scene, "web", &[A, B, C]);
    });
}

/// Addresses move before connections are refused: Kubernetes sets `terminating` when it sends the signal.
#[test]
fn the_addresses_of_a_gateway_that_is_about_to_drain_leave_while_it_accepts() {
    play("lame", "", |scene| {
        let stage = scene.stage;
        nodes_and_pool(scene);
        gateways(scene, &["gw-b"], &[]);
        let port = stage.host.run(|| free_port(NODE_ADDRESS));
        let config = format!("report: {{listen: \"{NODE_ADDRESS}:{port}\"}}\ntimeouts: {{lameDuck: 1h}}\n");
        let gateway = stage.start(&stage.home(Role::Gateway, scene.road, &config));
        stage.gateway_of_name("real", true, port);
        let _controller = scene.start();
        let _endpoints = stage.endpoints();
        service(scene.cluster, "web", "");
        stage.slice("web", &[0]);
        let here = NODE_ADDRESS.to_string();
        expect(scene, "web", &[&here, B]);
        stage.wait_until_served(NODE_ADDRESS.into(), 80);

        gateway.signal(Signal::SIGTERM);
        stage.gateway_slice("real", "ready: false, serving: true, terminating: true", port);
        expect(scene, "web", &[B]);
        let status = gateway.page("/api/status");
        assert_eq!((&status["lameDuck"], &status["draining"]), (&json!(true), &json!(false)));
        stage.ask(NODE_ADDRESS.into(), 80).expect("it accepts");
        gateway.kill();
        stage.gateway_of_name("real", false, port);
    });
}

/// Name of a Node, which contains the case's namespace, since Nodes have none.
fn name(scene: &Scene<'_>, node: &str) -> String {
    format!("{node}-{}", scene.cluster.namespace())
}

fn nodes_and_pool(scene: &Scene<'_>) {
    for (node, addresses) in NODES {
        scene.cluster.apply(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {}}}\nstatus: {{addresses: [{addresses}]}}\n",
            name(scene, node)
        ));
    }
    scene.cluster.apply(&format!(
        "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: nodes}}\nspec: {{fromGatewayNodes: true, \
         namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}}}\n",
        scene.cluster.namespace()
    ));
}

/// Sets the nodes with ready and unready gateways.
fn gateways(scene: &Scene<'_>, ready: &[&str], unready: &[&str]) {
    let endpoint = |(index, (node, ready)): (usize, (&&str, bool))| {
        let node = name(scene, node);
        format!("{{addresses: [10.9.1.{}], nodeName: {node}, conditions: {{ready: {ready}}}}}", index + 1)
    };
    let ready = ready.iter().map(|node| (node, true));
    let endpoints = ready.chain(unready.iter().map(|node| (node, false))).enumerate().map(endpoint);
    scene.cluster.apply(&format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: gateways-{}, namespace: sheave-system, labels: \
         {{kubernetes.io/service-name: sheave-gateways}}}}\naddressType: IPv4\nports: []\nendpoints: [{}]\n",
        scene.cluster.namespace(),
        endpoints.collect::<Vec<_>>().join(", ")
    ));
}

/// Creates the endpoints of Service `web`: address, node and readiness.
fn slice(scene: &Scene<'_>, endpoints: &[(&str, &str, bool)]) {
    let endpoint = |(ip, node, ready): &(&str, &str, bool)| {
        format!("{{addresses: [{ip}], nodeName: {}, conditions: {{ready: {ready}}}}}", name(scene, node))
    };
    scene.cluster.apply(&format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, labels: \
         {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nports: [{{name: http, port: 8080, protocol: \
         TCP}}]\nendpoints: [{}]\n",
        endpoints.iter().map(endpoint).collect::<Vec<_>>().join(", ")
    ));
}

/// Waits until the Service publishes these addresses, in any order.
fn expect(scene: &Scene<'_>, service: &str, addresses: &[&str]) {
    let mut expected: Vec<IpAddr> = addresses.iter().map(|it| it.parse().expect("an address")).collect();
    expected.sort_unstable();
    wait_for(scene.cluster, ("Service", service), &format!("publishes {addresses:?}"), |it| {
        let mut now = published(it);
        now.sort_unstable();
        now == expected
    });
}
