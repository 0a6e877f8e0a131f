//! Test that both roles work with the permissions that `deploy` gives them, and need all of them.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use sheave_control::api::gateway_report::AUDIENCE;

use crate::scene::{CONTROLLER, LEASE, wait_for, wait_until_clean, wait_until_leading};
use crate::stage::{
    NODE_ADDRESS, Role, Stage, free_port, pool, service, wait_for_addresses, wait_for_condition,
    wait_until_gone,
};
use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::apiserver::status::Status;
use crate::support::cluster::{Account, Cluster};
use crate::support::http;
use crate::support::patience::eventually;

/// User name of a gateway at the test API server.
const GATEWAY: &str = "system:serviceaccount:sheave-system:sheave-gateway";

/// As older servers do, so that the permission to list is needed.
fn refuse_to_stream_lists(server: &ApiServer) {
    let unknown = || Status::new(422, "Invalid", "sendInitialEvents is forbidden for watch");
    for (user, kinds) in [(CONTROLLER, 5), (GATEWAY, 3)] {
        let watches = Matching::new("watch", "*").of_streamed_lists();
        server.faults().plan(watches.by(user), kinds, Fault::Answer(unknown()));
    }
}

#[test]
fn the_accounts_of_deploy_may_do_what_is_done_and_no_more() {
    let cluster = Cluster::start("rights");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let _endpoints = stage.endpoints();
    cluster.test_server().into_iter().for_each(refuse_to_stream_lists);
    let token = cluster.token(Account::Controller, AUDIENCE).display().to_string();
    let scraped = SocketAddr::from((Ipv4Addr::LOCALHOST, stage.host.run(|| free_port(Ipv4Addr::LOCALHOST))));
    let shows = format!(
        "gateways: {{tokenFile: {token}}}\nmetrics: {{listen: \"{scraped}\", authorization: kubernetes}}\n"
    );
    let controller = stage.start(&stage.home(Role::Controller, &road, &shows));
    wait_until_leading(&controller);
    let port = stage.host.run(|| free_port(NODE_ADDRESS));
    let reports = format!("report: {{listen: \"{NODE_ADDRESS}:{port}\", authorization: kubernetes}}\n");
    let gateway = stage.start(&stage.home(Role::Gateway, &road, &reports));
    stage.gateway_is(true, port);

    pool(&cluster, "rights", "203.0.113.80");
    service(&cluster, "web", "");
    stage.slice("web", &[0]);
    let addresses = wait_for_addresses(&cluster, "web");
    assert_eq!(stage.wait_until_served(addresses[0], 80), "endpoint-0");
    // Through its report.
    wait_for_condition(&cluster, ("Service", "web"), "sheave.dev/Programmed", "True");
    let traces = controller.page(&format!("/api/fleet/trace?service={}/web", cluster.namespace()));
    assert_eq!(traces["silent"], json!([]), "{traces:#}");
    let renewed = || cluster.get("Lease", LEASE).unwrap()["spec"]["renewTime"].clone();
    let first = renewed();
    eventually("the Lease is renewed", || if renewed() == first { Err("not yet") } else { Ok(()) });
    eventually("an Event tells of the addresses", || {
        let events = cluster.list("Event");
        if events.iter().any(|it| it["reason"] == "AddressesAssigned") { Ok(()) } else { Err("not yet") }
    });
    wait_for(&cluster, ("AddressPool", "rights"), "counts what is used", |it| it["status"]["used"] == 1);
    if let Some(server) = cluster.test_server() {
        // Known user without permissions.
        let bearer = format!("Bearer {}", server.token(GATEWAY));
        let ask = || http::send(scraped, "GET", "/metrics", &[("Authorization", bearer.as_str())], "");
        assert_eq!(stage.host.run(ask).expect("an answer").status, 403);
    }
    let away = json!({"spec": {"type": "ClusterIP"}});
    cluster.merge("Service", "web", "someone", &away).unwrap();
    wait_until_clean(&cluster, "web");
    cluster.delete("Service", "web");
    wait_until_gone(&cluster, "Service", "web");

    for process in [&controller, &gateway] {
        let status = process.page("/api/status");
        let kinds = status["source"]["kinds"].as_array().expect("both watch");
        assert!(!kinds.is_empty() && kinds.iter().all(|kind| kind["error"].is_null()), "{status}");
        let log = process.log();
        assert!(!log.contains("may not") && !log.contains("forbidden"), "{log}");
    }
    assert!(controller.stop().success());
    assert!(gateway.stop().success());
    if let Some(server) = cluster.test_server() {
        assert_eq!(server.faults().outstanding(), 0);
        // The review of this user was denied.
        let refused = server.refused().into_iter().filter(|it| it.resource != "/metrics");
        assert_eq!(refused.collect::<Vec<_>>(), []);
        for user in [CONTROLLER, GATEWAY] {
            assert_eq!(server.unused_rules(user), [], "{user}");
        }
    }
}
