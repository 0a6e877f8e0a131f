//! Tests of two installations in one cluster with different classes: neither changes objects of the other.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::stage::{Role, Stage, condition, published, wait_for_condition, wait_until_gone};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};

/// Installation: its class, its finalizer, and the only address of its pool.
struct Side {
    class: &'static str,
    finalizer: &'static str,
    address: &'static str,
}

const OURS: Side =
    Side { class: "sheave.dev/l4", finalizer: "sheave.dev/load-balancer-cleanup", address: "203.0.113.70" };
const THEIRS: Side = Side {
    class: "example.com/inside",
    finalizer: "sheave.dev/load-balancer-cleanup-9efa1e73",
    address: "203.0.113.71",
};

impl Side {
    /// Class in the form of a label value, also for names.
    fn label(&self) -> String {
        self.class.replace('/', "-")
    }

    /// Creates a pool with an address for the case's Services of this class.
    fn pool(&self, cluster: &Cluster) {
        cluster.apply(&format!(
            "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: {namespace}-{label}}}\nspec: {{addresses: \
             [{address}], serviceSelector: {{matchLabels: {{side: {label}}}}}, namespaceSelector: {{matchLabels: \
             {{kubernetes.io/metadata.name: {namespace}}}}}}}\n",
            namespace = cluster.namespace(),
            label = self.label(),
            address = self.address,
        ));
    }

    /// Creates a Service of this class with this port.
    fn service(&self, cluster: &Cluster, name: &str, port: u16) {
        cluster.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, labels: {{side: {label}}}}}\nspec: {{type: LoadBalancer, \
             loadBalancerClass: {class}, allocateLoadBalancerNodePorts: false, loadBalancerIP: {address}, ports: [{{name: http, port: {port}, \
             protocol: TCP, targetPort: 8080}}]}}\n",
            label = self.label(),
            class = self.class,
            address = self.address,
        ));
    }

    fn address(&self) -> IpAddr {
        self.address.parse().unwrap()
    }

    /// Waits until this side, and only this side, has published the Service, and returns it.
    fn wait_until_published(&self, cluster: &Cluster, name: &str) -> Value {
        eventually_within(patience(60.0), &format!("{name} is published by {}", self.class), || {
            let service = cluster.get("Service", name).ok_or("no such Service")?;
            let programmed = condition(&service, "sheave.dev/Programmed");
            let is_programmed = programmed.is_some_and(|(status, ..)| status == "True");
            let finalizers = &service["metadata"]["finalizers"];
            if is_programmed
                && *finalizers == json!([self.finalizer])
                && published(&service) == [self.address()]
            {
                Ok(service)
            } else {
                Err(service.to_string())
            }
        })
    }
}

#[test]
fn installations_with_different_classes_leave_each_other_alone() {
    let cluster = Cluster::start("neighbours");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    let road = stage.road();
    let lease = format!("{}/neighbour", cluster.namespace());
    let config = format!("loadBalancerClass: {}\nleaderElection: {{lease: {lease}}}\n", THEIRS.class);
    let _run = stage.start(&stage.home(Role::Run, &road, ""));
    let neighbour = stage.start(&stage.home(Role::Run, &road, &config));
    for (side, name) in [(&OURS, "web"), (&THEIRS, "inside")] {
        side.pool(&cluster);
        side.service(&cluster, name, 80);
        stage.slice(name, &[0]);
    }
    OURS.wait_until_published(&cluster, "web");
    THEIRS.wait_until_published(&cluster, "inside");
    assert_eq!(stage.wait_until_served(OURS.address(), 80), "endpoint-0");
    assert_eq!(stage.wait_until_served(THEIRS.address(), 80), "endpoint-0");
    // The endpoints may come after the address.
    let ready = |name: &str| {
        wait_for_condition(&cluster, ("Service", name), "sheave.dev/Ready", "True");
        cluster.get("Service", name).unwrap()
    };
    let (web, inside) = (ready("web"), ready("inside"));

    // Once these are published, the earlier ones have been processed in their current state.
    for (side, name) in [(&OURS, "web-next"), (&THEIRS, "inside-next")] {
        side.service(&cluster, name, 81);
        side.wait_until_published(&cluster, name);
    }
    let unchanged = |name: &str, before: &Value| {
        let now = cluster.get("Service", name).unwrap();
        assert_eq!(
            now["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
            "{before} {now}"
        );
    };
    unchanged("web", &web);
    unchanged("inside", &inside);

    cluster.delete("Service", "web");
    wait_until_gone(&cluster, "Service", "web");
    unchanged("inside", &inside);

    // A Service that changes sides is released by one and taken by the other.
    let change = |patch: &Value| cluster.merge("Service", "web-next", "someone", patch).unwrap();
    change(&json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}}));
    change(&json!({
        "metadata": {"labels": {"side": THEIRS.label()}},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": THEIRS.class, "allocateLoadBalancerNodePorts": false,
                 "loadBalancerIP": THEIRS.address, "ports": [{"port": 82, "name": "http", "protocol": "TCP", "targetPort": 8080}]},
    }));
    THEIRS.wait_until_published(&cluster, "web-next");

    // After one side is gone, the other continues, and still ignores the first one's Services.
    assert!(neighbour.stop().success());
    let left = cluster.get("Service", "inside").unwrap();
    OURS.service(&cluster, "web-last", 83);
    OURS.wait_until_published(&cluster, "web-last");
    unchanged("inside", &left);
    cluster.delete("Lease", &lease);
}
