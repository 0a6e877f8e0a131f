//! Tests of outages of parts of the control plane or all of it: traffic continues, and the status reports
//! that objects are old.

use serde_json::Value;

use crate::fleet_kit::{EAST, IN_EAST, IN_WEST, KIND, WEST, is_ready, play, play_in, wait_for_addresses};
use crate::outage_kit::{address, wait_for_snapshot, wait_for_status};
use crate::scene::wait_for;
use crate::stage::{REST, Role, pool, wait_for_condition};
use crate::support::cluster::Cluster;
use crate::support::patience::let_pass;

#[test]
fn clusters_that_cannot_be_asked_for_change_nothing() {
    // A real server cannot be made to lose its aggregated server.
    let cluster = Cluster::simulated("fleet-503");
    play_in(&cluster, |fleet| {
        pool(fleet.cluster, "fleet-503", "203.0.113.30-203.0.113.31");
        fleet.web("web");
        let run = fleet.run();
        let addresses = wait_for_addresses(fleet.plane, "web");
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        let web = wait_for(fleet.plane, (KIND, "web"), "is in order", |it| {
            crate::stage::condition(it, "sheave.dev/Degraded").is_some_and(|it| it.0 == "False")
        });
        let faults = fleet.plane.test_server().expect("simulated").faults();
        faults.aggregated_away(true);
        let_pass(REST);
        assert_eq!(fleet.answers(addresses[0]), ["endpoint-0", "endpoint-1"]);
        assert_eq!(fleet.plane.get(KIND, "web").unwrap()["status"], web["status"]);
        // Changes of all other kinds arrive meanwhile.
        fleet.collected(EAST, "web", &[2]);
        fleet.wait_for_answers(addresses[0], &[IN_WEST, 2]);
        assert!(run.is_ready());
        // A process that starts now knows no clusters, but serves nevertheless.
        assert!(run.stop().success());
        let _run = fleet.run();
        fleet.wait_for_answers(addresses[0], &[IN_WEST, 2]);
        assert_eq!(wait_for_addresses(fleet.plane, "web"), addresses);
        faults.aggregated_away(false);
        wait_for_condition(fleet.plane, (KIND, "web"), "sheave.dev/Degraded", "False");
        fleet.wait_for_answers(addresses[0], &[IN_WEST, 2]);
    });
}

#[test]
fn a_gateway_serves_from_its_snapshot_while_the_control_plane_is_away() {
    play("fleet-away", |fleet| {
        let addresses = [address(32)];
        fleet.published_web("web", addresses[0]);
        let home = fleet.home(Role::Gateway, "");
        let gateway = fleet.stage.start(&home);
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        wait_for_snapshot(&gateway);
        wait_for_status(&gateway, "the fleet is in a snapshot of its own", |status| {
            !status["karmada"]["snapshot"]["writtenAt"].is_null()
        });
        fleet.plane_road.close();
        let_pass(REST);
        assert_eq!(fleet.answers(addresses[0]), ["endpoint-0", "endpoint-1"]);
        gateway.kill();
        // The local server answers; the control plane does not.
        let gateway = fleet.stage.start(&home);
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        fleet.collected(WEST, "web", &[2]);
        fleet.plane_road.reopen();
        fleet.wait_for_answers(addresses[0], &[IN_EAST, 2]);
        assert!(gateway.stop().success());
    });
}

#[test]
fn a_member_whose_api_server_is_away_keeps_its_endpoints() {
    play("fleet-unready", |fleet| {
        pool(fleet.cluster, "fleet-unready", "203.0.113.33");
        fleet.web("web");
        let _run = fleet.run();
        let addresses = wait_for_addresses(fleet.plane, "web");
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        is_ready(fleet.plane, WEST, "False");
        let (reason, message) = wait_for_condition(fleet.plane, (KIND, "web"), "sheave.dev/Degraded", "True");
        assert_eq!(reason, "ClustersInTrouble");
        assert!(message.contains(WEST), "{message}");
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        let drain: Value = serde_json::json!({"metadata": {"annotations": {"sheave.dev/drain": WEST}}});
        crate::fleet_kit::change(fleet.plane, "web", &drain).unwrap();
        fleet.wait_for_answers(addresses[0], &[IN_EAST]);
    });
}
