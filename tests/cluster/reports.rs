//! Tests of gateways' reports, and of others that may answer on their port: what reaches Services.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::reporter::Reporter;
use crate::requests::event;
use crate::stage::{Role, Stage, condition, pool, service, wait_for_addresses, wait_for_condition};
use crate::support::cluster::Cluster;

fn trouble(cluster: &Cluster, name: &str, address: Option<Ipv4Addr>, message: &str) -> Value {
    let mut trouble = json!({"kind": "Service", "namespace": cluster.namespace(), "name": name,
        "reason": "BindFailed", "message": message});
    if let Some(address) = address {
        trouble["frontend"] = json!({"address": address, "port": 80, "protocol": "TCP"});
    }
    trouble
}

/// Revision of the last write to the Service.
fn revision(cluster: &Cluster, name: &str) -> Value {
    cluster.get("Service", name).expect("the Service is there")["metadata"]["resourceVersion"].clone()
}

#[test]
fn a_new_leader_does_not_call_well_what_gateways_have_not_said_yet() {
    let cluster = Cluster::start("heir");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let reporter = Reporter::start(&stage);
    let address = Ipv4Addr::new(203, 0, 113, 30);
    pool(&cluster, "heir", "203.0.113.30");
    service(&cluster, "web", "");
    stage.gateway_is(true, reporter.port);
    reporter
        .report_troubles(&json!([trouble(&cluster, "web", Some(address), "cannot listen")]), stage.node());
    let home = stage.home(Role::Controller, &road, "");
    let first = stage.start(&home);
    wait_for_addresses(&cluster, "web");
    wait_for_condition(&cluster, ("Service", "web"), "sheave.dev/Programmed", "False");
    reporter.wait_until_heard();
    let told = revision(&cluster, "web");
    assert!(first.stop().success());

    let second = stage.start(&home);
    reporter.wait_until_heard();
    let status = second.page("/api/status");
    assert_eq!(status["controller"]["leading"], true, "{status}");
    assert!(
        status["controller"]["leader"].as_str().is_some_and(|leader| leader.starts_with(stage.node())),
        "{status}"
    );
    assert_eq!(
        (&status["controller"]["gateways"], &status["controller"]["services"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(status["controller"]["problems"][0]["reason"], "BindFailed", "{status}");
    assert_eq!(revision(&cluster, "web"), told, "the new leader has nothing to add");
    stage.gateway_is(false, reporter.port);
}

#[test]
fn a_conflict_that_a_gateway_reports_is_an_event_of_the_service() {
    let cluster = Cluster::start("conflict");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let reporter = Reporter::start(&stage);
    pool(&cluster, "conflict", "203.0.113.45");
    service(&cluster, "web", "");
    stage.gateway_is(true, reporter.port);
    let message = "203.0.113.45: the machine with the hardware address 02:00:00:00:00:07 on eth0 uses it";
    let mut conflict = trouble(&cluster, "web", Some(Ipv4Addr::new(203, 0, 113, 45)), message);
    conflict["reason"] = json!("AddressConflict");
    reporter.report_troubles(&json!([conflict]), stage.node());
    let _controller = stage.start(&stage.home(Role::Controller, &road, ""));
    let note = event(&cluster, "web", "AddressConflict");
    assert!(note.contains("02:00:00:00:00:07"), "{note}");
    stage.gateway_is(false, reporter.port);
}

#[test]
fn who_answers_for_a_gateway_cannot_speak_of_foreign_services() {
    let cluster = Cluster::start("liar");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let reporter = Reporter::start(&stage);
    pool(&cluster, "liar", "203.0.113.40");
    service(&cluster, "web", "");
    cluster.apply("apiVersion: v1\nkind: Service\nmetadata: {name: foreign}\nspec: {ports: [{port: 80}]}\n");
    let foreign = revision(&cluster, "foreign");
    stage.gateway_is(true, reporter.port);
    let other = Ipv4Addr::new(203, 0, 113, 41);
    let mut invented = trouble(&cluster, "web", None, "call 555-0100");
    invented["reason"] = json!("CallUs");
    let troubles = json!([
        trouble(&cluster, "foreign", None, "call 555-0100"),
        trouble(&cluster, "web", Some(other), "call 555-0100"),
        invented,
        trouble(&cluster, "web", Some(Ipv4Addr::new(203, 0, 113, 40)), &"x".repeat(100_000)),
    ]);
    reporter.report_troubles(&troubles, stage.node());
    let _controller = stage.start(&stage.home(Role::Controller, &road, ""));
    let (reason, message) =
        wait_for_condition(&cluster, ("Service", "web"), "sheave.dev/Programmed", "False");
    assert_eq!(reason, "PortsInTrouble", "{message}");
    assert!(message.len() < 1000, "{} bytes", message.len());
    reporter.wait_until_heard();
    assert_eq!(revision(&cluster, "foreign"), foreign);
    let events = cluster.list("Event");
    assert!(!events.iter().any(|event| event.to_string().contains("555-0100")), "{events:?}");
    let web = cluster.get("Service", "web").expect("the Service is there");
    assert!(condition(&web, "sheave.dev/Programmed").is_some(), "{web}");
    stage.gateway_is(false, reporter.port);
}
