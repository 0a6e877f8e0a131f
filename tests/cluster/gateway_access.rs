//! Tests of insufficient credentials and permissions: the message names the problem and its fix, and the fix is
//! enough.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::outage_kit::{address, serve_web, wait_for_snapshot, wait_for_status};
use crate::stage::{Home, Role, Sheave, Stage, pool, service, wait_for_addresses};
use crate::support::cluster::{Account, Cluster};
use crate::support::patience::eventually;
use crate::support::road::Road;

/// Answer to probes until the gateway knows what to serve.
const WHY: &str = "not ready: objects have not been listed from the API server yet; see /api/status\n";
/// BSD's `EX_UNAVAILABLE`.
const UNAVAILABLE: i32 = 69;

fn started_by(stage: &Stage<'_>, role: Role, kubeconfig: &Path) -> (Option<i32>, String) {
    let ended = stage.launch(&stage.home_by(role, kubeconfig, "")).finish();
    (ended.code(), ended.stderr)
}

#[test]
fn a_kubeconfig_that_cannot_be_read_ends_the_process_with_its_name() {
    let cluster = Cluster::start("no-file");
    let stage = Stage::new(&cluster);
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.kubeconfig");
    let garbled = folder.path().join("garbled.kubeconfig");
    fs::write(&garbled, "clusters: [\n").unwrap();
    let empty = folder.path().join("empty.kubeconfig");
    fs::write(&empty, "").unwrap();
    for role in [Role::Gateway, Role::Controller, Role::Run] {
        for path in [&absent, &garbled, &empty] {
            let (code, told) = started_by(&stage, role, path);
            assert_eq!(code, Some(UNAVAILABLE), "{role:?}: {told}");
            let named = format!("sheave: kubeconfig {}: ", path.display());
            assert!(told.contains(&named), "{role:?}: {told}");
        }
    }
}

/// Creates a Service with endpoints, and a kubeconfig of a gateway with an unknown token.
fn with_a_bad_token(cluster: &Cluster, road: &Road<'_>) -> (std::path::PathBuf, String) {
    let path = cluster.kubeconfig(Account::Gateway, road);
    let good = fs::read_to_string(&path).unwrap();
    fs::write(&path, good.replace("token-of-", "stale-token-of-")).unwrap();
    (path, good)
}

fn not_ready_because<'s>(stage: &'s Stage<'_>, home: &Home, told: &str) -> Sheave<'s> {
    let gateway = stage.launch(home);
    gateway.wait_for_log(told);
    assert_eq!(gateway.readiness().unwrap(), (503, WHY.to_owned()));
    let status = wait_for_status(&gateway, "every kind says so", |status| {
        let kinds = status["source"]["kinds"].as_array().unwrap();
        kinds.iter().all(|kind| kind["error"].as_str().is_some_and(|error| error.contains(told)))
    });
    assert_eq!(status["source"]["synced"], Value::Bool(false), "{status}");
    let text = gateway.status_text();
    assert!(text.contains("it serves nothing until the API server at ") && text.contains(told), "{text}");
    gateway
}

#[test]
fn a_token_that_is_not_accepted_is_read_again() {
    let cluster = Cluster::simulated("token");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 150);
    let road = stage.road();
    let (path, good) = with_a_bad_token(&cluster, &road);
    let home = stage.home_by(Role::Gateway, &path, "");
    let mut gateway =
        not_ready_because(&stage, &home, "the API server does not accept the credentials: Unauthorized");
    fs::write(&path, good).unwrap();
    gateway.wait_until_ready();
    assert_eq!(stage.ask(address(150), 80).unwrap(), "endpoint-0");
}

#[test]
fn a_gateway_whose_token_has_expired_serves_by_the_snapshot() {
    let cluster = Cluster::simulated("expired");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 151);
    let road = stage.road();
    let (path, good) = with_a_bad_token(&cluster, &road);
    let bad = fs::read_to_string(&path).unwrap();
    fs::write(&path, &good).unwrap();
    let home = stage.home_by(Role::Gateway, &path, "");
    let gateway = stage.start(&home);
    wait_for_snapshot(&gateway);
    gateway.kill();
    fs::write(&path, bad).unwrap();
    let gateway = stage.start(&home);
    assert_eq!(stage.ask(address(151), 80).unwrap(), "endpoint-0");
    let text = gateway.status_text();
    assert!(text.contains("it serves from the snapshot, "), "{text}");
    assert!(text.contains("the API server does not accept the credentials: Unauthorized"), "{text}");
    fs::write(&path, good).unwrap();
    wait_for_status(&gateway, "the snapshot is not needed", |status| {
        status["source"]["fromSnapshot"] == false
    });
}

#[test]
fn rights_that_are_missing_are_named_as_a_rule() {
    let cluster = Cluster::simulated("rights");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 152);
    let road = stage.road();
    server.authorize(Account::Gateway.user(), &[]);
    let home = stage.home(Role::Gateway, &road, "");
    let mut gateway = not_ready_because(&stage, &home, "the API server does not let us list and watch them");
    for rule in [
        "apiGroups [\"\"], resources [\"services\"], verbs [\"list\", \"watch\"]",
        "apiGroups [\"discovery.k8s.io\"], resources [\"endpointslices\"], verbs [\"list\", \"watch\"]",
    ] {
        gateway.wait_for_log(rule);
    }
    server.authorize(Account::Gateway.user(), &Account::Gateway.roles());
    gateway.wait_until_ready();
    assert_eq!(stage.ask(address(152), 80).unwrap(), "endpoint-0");
}

#[test]
fn rights_that_are_taken_away_change_nothing_that_is_served() {
    let cluster = Cluster::simulated("revoked");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 153);
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, ""));
    server.authorize(Account::Gateway.user(), &[]);
    road.cut();
    gateway.wait_for_log("the API server does not let us list and watch them");
    assert_eq!(stage.ask(address(153), 80).unwrap(), "endpoint-0");
    assert!(gateway.is_ready());
    let text = gateway.status_text();
    assert!(text.contains("their last known state stays in force"), "{text}");
}

#[test]
fn a_controller_without_rights_says_so_and_leads_once_it_has_them() {
    let cluster = Cluster::simulated("no-lease");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    pool(&cluster, "no-lease", "203.0.113.154");
    service(&cluster, "web", "");
    let road = stage.road();
    server.authorize(Account::Controller.user(), &[]);
    let controller = stage.launch(&stage.home(Role::Controller, &road, ""));
    controller.wait_for_log("the Lease cannot be read or written: trying on");
    let log = controller.log();
    assert!(
        log.contains("sheave-system/sheave-controller") && log.contains("cannot get resource \\\"leases\\\""),
        "{log}"
    );
    let text = controller.status_text();
    assert!(text.contains("no controller leads: traffic continues, but no address is allocated"), "{text}");
    assert!(!text.contains("before the API server at"), "a candidate watches nothing: {text}");
    server.authorize(Account::Controller.user(), &Account::Controller.roles());
    assert_eq!(wait_for_addresses(&cluster, "web"), [address(154)]);
    assert!(controller.status_text().contains("Controller: this one leads; "));

    // A leader that loses its permission for a kind continues with the objects that it knows.
    let lease_alone = |role: &Value| role["kind"] == "Role";
    let roles: Vec<Value> = Account::Controller.roles().into_iter().filter(lease_alone).collect();
    server.authorize(Account::Controller.user(), &roles);
    road.cut();
    controller.wait_for_log("the API server does not let us list and watch them");
    assert_eq!(wait_for_addresses(&cluster, "web"), [address(154)]);
    // The page is refreshed periodically.
    eventually("the status says so", || {
        let text = controller.status_text();
        let leads = text.contains("Controller: this one leads; ");
        if leads && text.contains("their last known state stays in force") { Ok(()) } else { Err(text) }
    });
}
