//! A gateway that announces reads AddressPools and the labels of Nodes: by the rights of `deploy/examples/l2`, and without them.

use std::fs;

use serde_json::{Value, json};

use crate::outage_kit::{address, change, published_service, wait_for_answer};
use crate::stage::{Home, Role, Sheave, Stage};
use crate::support::cluster::{Account, Cluster};
use crate::support::patience::{eventually, eventually_within, patience};

/// The account of a gateway as the test API server names it.
const GATEWAY: &str = "system:serviceaccount:sheave-system:sheave-gateway";
/// What `announce` takes, as a kustomization.
const L2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples/l2/kustomization.yaml");

/// The roles of the account, and what the kustomization adds.
fn announcing_roles() -> Vec<Value> {
    let text = fs::read_to_string(L2).expect("the example is there");
    let kustomization: Value = serde_saphyr::from_str(&text).expect("YAML");
    let patches = kustomization["patches"].as_array().expect("patches");
    let patch = patches.iter().find(|it| it["target"]["kind"] == "ClusterRole").expect("one of the role");
    let operations: Vec<Value> =
        serde_saphyr::from_str(patch["patch"].as_str().expect("text")).expect("a list");
    let mut roles = Account::Gateway.roles();
    let role =
        roles.iter_mut().find(|it| it["metadata"]["name"] == patch["target"]["name"]).expect("that role");
    let rules = role["rules"].as_array_mut().expect("rules");
    rules.extend(operations.iter().map(|operation| operation["value"].clone()));
    roles
}

/// A gateway that announces.
fn home(stage: &Stage<'_>, road: &crate::support::road::Road<'_>, keys: &str) -> Home {
    stage.home(
        Role::Gateway,
        road,
        &format!("announce: {{mode: l2, tieBreaker: none, holdDown: 1s, heartbeat: {{keys: {keys}}}}}\n"),
    )
}

fn wait_for_problem(gateway: &Sheave<'_>, parts: &[&str]) {
    eventually_within(patience(30.0), &format!("a Problem says {parts:?}"), || {
        let problems = gateway.page("/api/routes")["problems"].to_string();
        if parts.iter().all(|part| problems.contains(part)) { Ok(()) } else { Err(problems) }
    });
}

#[test]
fn a_gateway_that_announces_follows_pools_and_labels() {
    let cluster = Cluster::simulated("policies");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    published_service(&cluster, "web", address(170));
    stage.slice("web", &[0]);
    stage.gateway_is(true, None);
    cluster.apply(
        "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: edge}\nspec: {addresses: [203.0.113.170], \
         announce: {nodeSelector: {matchLabels: {rack: r1}}}}\n",
    );
    let keys = tempfile::tempdir().unwrap();
    fs::write(keys.path().join("1"), "a key of this test, and long enough\n").unwrap();
    let road = stage.road();
    let home = home(&stage, &road, &keys.path().display().to_string());

    let mut gateway = stage.launch(&home);
    gateway.wait_until_ready();
    let rule = "apiGroups [\\\"sheave.dev\\\"], resources [\\\"addresspools\\\"], verbs [\\\"list\\\", \\\"watch\\\"]";
    wait_for_problem(&gateway, &["AccessDenied", rule]);
    wait_for_answer(&stage, address(170), 80, "endpoint-0");
    let view = |gateway: &Sheave<'_>| gateway.page("/api/gateways")["addresses"][0].clone();
    eventually("without the right it goes on as if there were no pool", || {
        let view = view(&gateway);
        if view["owner"] == stage.node() { Ok(()) } else { Err(view.to_string()) }
    });

    server.authorize(GATEWAY, &announcing_roles());
    wait_for_problem(
        &gateway,
        &["AnnounceFailed", "the node selector of AddressPool edge leaves out every gateway"],
    );
    let problems = gateway.page("/api/routes")["problems"].to_string();
    assert!(!problems.contains("AccessDenied"), "{problems}");
    let label = |value: &str| json!({"metadata": {"labels": {"rack": value}}});
    change(&cluster, "Node", stage.node(), &label("r1"));
    eventually("the label lets it announce", || {
        let view = view(&gateway);
        if view["owner"] == stage.node() { Ok(()) } else { Err(view.to_string()) }
    });
    change(&cluster, "Node", stage.node(), &label("r2"));
    eventually("another label does not", || {
        let view = view(&gateway);
        if view["owner"].is_null() && view["message"].to_string().contains("AddressPool edge") {
            Ok(())
        } else {
            Err(view.to_string())
        }
    });
    let explained =
        stage.command(&home, "explain", &[&format!("{}/web", cluster.namespace())]).expect_success();
    let why = format!("{} is left out by the node selector of AddressPool edge", stage.node());
    assert!(explained.contains(&why), "{explained}");
}
