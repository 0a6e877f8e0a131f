//! Tests of failures of a gateway, which appear in the Service's status and disappear again. Gateways that are absent,
//! silent or faulty have no other effect.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::outage_kit::{address, wait_for_answer, wait_for_status};
use crate::stage::{
    NODE_ADDRESS, Role, Stage, condition, free_port, pool, service, wait_for_addresses, wait_for_condition,
};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};
use crate::support::tcp;

const PROGRAMMED: &str = "sheave.dev/Programmed";
const READY: &str = "sheave.dev/Ready";

/// Port for the gateway's reports, and the setting.
fn report_port(stage: &Stage<'_>) -> (u16, String) {
    let port = stage.host.run(|| free_port(NODE_ADDRESS));
    (port, format!("report: {{listen: \"0.0.0.0:{port}\"}}\n"))
}

fn wait_for_port_error(cluster: &Cluster, error: &Value) {
    eventually_within(patience(30.0), &format!("the port's error is {error}"), || {
        let web = cluster.get("Service", "web").ok_or("no such Service")?;
        let port = &web["status"]["loadBalancer"]["ingress"][0]["ports"][0];
        if port["error"] == *error && port["port"] == 80 { Ok(()) } else { Err(web["status"].to_string()) }
    });
}

/// Notes of the Events about a Service.
fn notes(cluster: &Cluster, name: &str, reason: &str) -> Vec<String> {
    let events = cluster.list("Event");
    let ours = events.iter().filter(|it| it["regarding"]["name"] == name && it["reason"] == reason);
    ours.filter_map(|it| it["note"].as_str()).map(str::to_owned).collect()
}

/// Another process has the port on the gateway's machine. This is reported until the port is free.
fn a_taken_port_is_told_and_taken_back(
    cluster: &Cluster,
    stage: &Stage<'_>,
    vip: IpAddr,
    squatter: tcp::Server,
) {
    wait_for_port_error(cluster, &json!("sheave.dev/BindFailed"));
    let (reason, message) = wait_for_condition(cluster, ("Service", "web"), PROGRAMMED, "False");
    assert_eq!(reason, "PortsInTrouble", "{message}");
    let named = format!("Not served: port 80/TCP on {vip} (sheave.dev/BindFailed)");
    let whose = format!("gateway {}: cannot listen on {vip}:80", stage.node());
    assert!(
        message.starts_with(&named) || message.starts_with(&named.replace("sheave.dev/", "")),
        "{message}"
    );
    assert!(message.to_lowercase().contains(&whose.to_lowercase()), "{message}");
    let web = cluster.get("Service", "web").unwrap();
    assert_eq!(
        condition(&web, "sheave.dev/Allocated").map(|it| it.0).as_deref(),
        Some("True"),
        "it has its address"
    );
    eventually_within(patience(30.0), "an Event says so", || {
        let notes = notes(cluster, "web", "BindFailed");
        let told = notes.iter().any(|it| it.contains(stage.node()) && it.contains("another process has it"));
        if told { Ok(()) } else { Err(format!("{:?}", cluster.list("Event"))) }
    });
    assert_eq!(stage.ask(vip, 80).unwrap(), "squatter");

    drop(squatter);
    wait_for_answer(stage, vip, 80, "endpoint-0");
    wait_for_port_error(cluster, &Value::Null);
    let (reason, message) = wait_for_condition(cluster, ("Service", "web"), PROGRAMMED, "True");
    assert_eq!((reason.as_str(), message), ("Programmed", format!("Gateways serve it on {vip}.")));
}

fn squatter(stage: &Stage<'_>, vip: IpAddr) -> tcp::Server {
    tcp::Server::who_am_i(&stage.host, SocketAddr::new(vip, 80), "squatter")
}

#[test]
fn a_port_that_a_gateway_cannot_open_is_an_error_of_the_service() {
    let cluster = Cluster::start("taken");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    let road = stage.road();
    let (port, reports) = report_port(&stage);
    let squatter = squatter(&stage, address(140));
    pool(&cluster, "taken", "203.0.113.140");
    service(&cluster, "web", "");
    stage.slice("web", &[0]);
    let gateway = stage.start(&stage.home(Role::Gateway, &road, &reports));
    let controller = stage.start(&stage.home(Role::Controller, &road, ""));
    stage.gateway_is(true, port);
    a_taken_port_is_told_and_taken_back(&cluster, &stage, address(140), squatter);
    wait_for_status(&gateway, "the gateway has no Problem any more", |status| status["problems"] == 0);
    let text = controller.status_text();
    assert!(
        text.contains("(controller) on node ")
            && text.contains("Controller: this one leads; 1 gateway ready, 1 Service served."),
        "{text}"
    );
}

#[test]
fn a_port_that_cannot_be_opened_beside_the_controller_is_an_error_of_the_service() {
    let cluster = Cluster::start("taken-run");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    let road = stage.road();
    let squatter = squatter(&stage, address(141));
    pool(&cluster, "taken-run", "203.0.113.141");
    service(&cluster, "web", "");
    stage.slice("web", &[0]);
    let _run = stage.start(&stage.home(Role::Run, &road, ""));
    a_taken_port_is_told_and_taken_back(&cluster, &stage, address(141), squatter);
}

#[test]
fn a_service_without_a_ready_gateway_says_so() {
    let cluster = Cluster::start("nobody");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    pool(&cluster, "nobody", "203.0.113.142");
    service(&cluster, "web", "");
    let _controller = stage.start(&stage.home(Role::Controller, &road, ""));
    let (reason, message) = wait_for_condition(&cluster, ("Service", "web"), PROGRAMMED, "False");
    assert_eq!(reason, "NoGateway", "{message}");
    assert_eq!(message, "No gateway is ready to serve 203.0.113.142.");
    assert_eq!(wait_for_addresses(&cluster, "web"), [address(142)]);
    // A port without an answer, as on a dead machine.
    let port = stage.host.run(|| free_port(NODE_ADDRESS));
    stage.gateway_is(true, port);
    let silent = "No gateway that is ready answers the controller, so none is known to serve 203.0.113.142.";
    eventually_within(patience(30.0), "the silence is in the condition", || {
        let told = condition(&cluster.get("Service", "web").ok_or("no such Service")?, PROGRAMMED);
        if told.as_ref().is_some_and(|it| it.2 == silent) { Ok(()) } else { Err(format!("{told:?}")) }
    });
    // If gateways have no report port, only their readiness is known.
    stage.gateway_is(true, None);
    let (_, message) = wait_for_condition(&cluster, ("Service", "web"), PROGRAMMED, "True");
    assert_eq!(message, "Gateways serve it on 203.0.113.142.");
    let (reason, message) = wait_for_condition(&cluster, ("Service", "web"), READY, "False");
    assert_eq!(reason, "NoEndpoints", "{message}");
    assert_eq!(message, "No endpoint is ready, so connections are refused: port 80/TCP on 203.0.113.142.");
    stage.slice("web", &[0]);
    wait_for_condition(&cluster, ("Service", "web"), READY, "True");
    stage.gateway_is(false, None);
    let (reason, message) = wait_for_condition(&cluster, ("Service", "web"), PROGRAMMED, "False");
    assert_eq!(reason, "NoGateway", "{message}");
    assert_eq!(wait_for_addresses(&cluster, "web"), [address(142)], "it keeps its address");
}

/// Response of a server that is not a gateway.
type Answer = fn(&mut TcpStream) -> std::io::Result<()>;

/// Reads the request of one client.
fn request(stream: &mut TcpStream) -> std::io::Result<usize> {
    stream.read(&mut [0; 4096])
}

#[test]
fn gateways_that_do_not_report_or_report_nonsense_break_nothing() {
    let answers: [(&str, Answer, &str); 4] = [
        ("no-http", |stream| stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n"), "the gateway does not report"),
        (
            "no-report",
            |stream| stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"node\": "),
            "this is no report: ",
        ),
        (
            "not-found",
            |stream| stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
            "it answers 404 Not Found",
        ),
        ("silent", |stream| request(stream).map(drop), "no answer within 2 s"),
    ];
    let cluster = Cluster::start("nonsense");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    pool(&cluster, "nonsense", "203.0.113.143");
    service(&cluster, "web", "");
    let controller = stage.start(&stage.home(Role::Controller, &road, ""));
    for (name, answer, told) in answers {
        let port = stage.host.run(|| free_port(NODE_ADDRESS));
        let here = SocketAddr::new(IpAddr::V4(NODE_ADDRESS), port);
        let _server = tcp::Server::start(&stage.host, here, move |mut stream| {
            request(&mut stream)?;
            answer(&mut stream)
        });
        stage.gateway_is(true, port);
        controller.wait_for_log(told);
        let (reason, message) = wait_for_condition(&cluster, ("Service", "web"), PROGRAMMED, "False");
        assert_eq!(reason, "NoGateway", "{message}");
        change_is_followed(&cluster, name);
    }
    assert_eq!(wait_for_addresses(&cluster, "web"), [address(143)]);
}

/// Checks that the controller still works: one more Service is reported as having no free address.
fn change_is_followed(cluster: &Cluster, name: &str) {
    service(cluster, name, "");
    let (reason, _) = wait_for_condition(cluster, ("Service", name), "sheave.dev/Allocated", "False");
    assert_eq!(reason, "NoAddress");
}
