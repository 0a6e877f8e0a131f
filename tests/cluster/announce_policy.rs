//! Tests that a gateway that announces reads AddressPools and the labels of Nodes and writes nothing, with and without the permissions
//! of `deploy/examples/l2`.

use std::fs;

use serde_json::{Value, json};
use sheave_control::api::gateway_report::AUDIENCE;
use tempfile::TempDir;

use crate::outage_kit::{address, change, serve_web, wait_for_answer};
use crate::rest::{Quiet, wait_until_settled};
use crate::scene::{wait_for, wait_until_leading};
use crate::stage::{
    Home, NODE_ADDRESS, REST_OF_WORDS, Role, Sheave, Stage, free_port, pool, service, wait_for_condition,
};
use crate::support::cluster::{Account, Cluster};
use crate::support::patience::{eventually, eventually_within, let_pass, patience};
use crate::support::road::Road;

/// Kustomization with the requirements of `announce`.
const L2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples/l2/kustomization.yaml");

/// Roles of the account, with those that the kustomization adds.
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

/// Folder with heartbeat keys.
fn keys() -> TempDir {
    let keys = tempfile::tempdir().expect("a temporary folder");
    fs::write(keys.path().join("1"), "a key of this test, and long enough\n").expect("a file is written");
    keys
}

/// A gateway that announces.
fn home(stage: &Stage<'_>, road: &Road<'_>, keys: &TempDir, config: &str) -> Home {
    let keys = keys.path().display();
    stage.home(
        Role::Gateway,
        road,
        &format!(
            "announce: {{mode: l2, tieBreaker: none, holdDown: 1s, heartbeat: {{keys: {keys}}}}}\n{config}"
        ),
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
    let cluster = Cluster::start("policies");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 170);
    stage.gateway_is(true, None);
    cluster.apply(
        "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: edge}\nspec: {addresses: [203.0.113.170], \
         announce: {nodeSelector: {matchLabels: {rack: r1}}}}\n",
    );
    let keys = keys();
    let road = stage.road();
    let home = home(&stage, &road, &keys, "");

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

    cluster.authorize(Account::Gateway, &announcing_roles());
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

#[test]
fn nothing_is_written_while_a_gateway_announces() {
    let cluster = Cluster::start("announces");
    cluster.authorize(Account::Gateway, &announcing_roles());
    let stage = Stage::new(&cluster);
    stage.host.ip(&[
        "link add lan type veth peer name far",
        "addr add 203.0.113.1/24 dev lan",
        "link set lan up",
        "link set far up",
    ]
    .map(str::to_owned));
    stage.host.wait_for_carrier("lan");
    let _endpoints = stage.endpoints();
    pool(&cluster, "rest", "203.0.113.171");
    let road = stage.road();
    let token = cluster.token(Account::Controller, AUDIENCE).display().to_string();
    let polls = format!("gateways: {{tokenFile: {token}}}\n");
    let controller = stage.start(&stage.home(Role::Controller, &road, &polls));
    wait_until_leading(&controller);
    let keys = keys();
    let port = stage.host.run(|| free_port(NODE_ADDRESS));
    let reports = format!("report: {{listen: \"{NODE_ADDRESS}:{port}\", authorization: kubernetes}}\n");
    let gateway = stage.start(&home(&stage, &road, &keys, &reports));
    stage.gateway_is(true, port);
    service(&cluster, "web", "");
    stage.slice("web", &[0]);
    for condition in ["sheave.dev/Announced", "sheave.dev/Programmed"] {
        wait_for_condition(&cluster, ("Service", "web"), condition, "True");
    }
    wait_for(&cluster, ("AddressPool", "rest"), "counts what is used", |it| it["status"]["used"] == 1);
    wait_until_settled(&cluster);

    let quiet = Quiet::begin(&cluster);
    let_pass(REST_OF_WORDS);
    quiet.expect("nothing happens");
    for process in [controller, gateway] {
        let log = process.log();
        assert!(!log.contains("may not") && !log.contains("forbidden"), "{log}");
        assert!(process.stop().success());
    }
    stage.gateway_is(false, port);
}
