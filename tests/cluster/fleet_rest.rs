//! Tests of what is written to the control plane, with which permissions: at rest nothing, and never the
//! Service.

use serde_json::Value;

use crate::fleet_kit::{EAST, Fleet, IN_EAST, IN_WEST, KIND, WEST, play, wait_for_addresses};
use crate::fleet_rivals::CLASS_LEASE;
use crate::scene::wait_for;
use crate::stage::{REST, REST_OF_WORDS, Role, pool, wait_for_condition, wait_until_gone};
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::apiserver::record::Request;
use crate::support::apiserver::status::Status;
use crate::support::cluster::Account;
use crate::support::patience::{eventually, eventually_within, let_pass, patience};

/// Watches of a process: six kinds, and Works twice.
const WATCHES: usize = 7;

/// Revisions of all objects in the control plane that a controller could write, and of those that it must
/// not.
fn versions(fleet: &Fleet<'_>) -> Vec<String> {
    let kinds = [KIND, "Service", "EndpointSlice", "ResourceBinding"];
    let mine = kinds.iter().flat_map(|kind| fleet.plane.list(kind));
    let clusters = [EAST, WEST].into_iter().filter_map(|name| fleet.plane.get("Cluster", name));
    mine.chain(clusters)
        .map(|it| format!("{} {}", it["metadata"]["name"], it["metadata"]["resourceVersion"]))
        .collect()
}

#[test]
fn nothing_is_written_at_rest() {
    play("fleet-rest", |fleet| {
        pool(fleet.cluster, "fleet-rest", "203.0.113.20");
        fleet.web("web");
        fleet.web("waits");
        let controller = fleet.controller();
        for name in ["web", "waits"] {
            wait_for(fleet.plane, (KIND, name), "is spoken of", |it| it["status"]["conditions"].is_array());
        }
        let mut before = versions(fleet);
        eventually_within(patience(60.0), "everything has settled", || {
            let_pass(REST_OF_WORDS);
            let now = versions(fleet);
            if std::mem::replace(&mut before, now.clone()) == now { Ok(()) } else { Err("still changing") }
        });
        if let Some(server) = fleet.plane.test_server() {
            server.forget_requests();
        }
        // All watches are restarted, without changes.
        fleet.plane_road.cut();
        let_pass(REST);
        assert_eq!(versions(fleet), before);
        expect_no_writes(fleet);
        assert!(controller.stop().success());
        let controller = fleet.controller();
        let_pass(REST);
        let told =
            |all: &[String]| all.iter().filter(|it| !it.contains("Event")).cloned().collect::<Vec<_>>();
        assert_eq!(told(&versions(fleet)), told(&before), "the controller was started again");
        assert!(controller.stop().success());
    });
}

/// Checks that the controller wrote nothing to the control plane except repeated Events.
fn expect_no_writes(fleet: &Fleet<'_>) {
    let Some(server) = fleet.plane.test_server() else { return };
    let user = fleet.plane.user(Account::Controller);
    let counts = |it: &Request| it.user == user && it.resource != "leases";
    let writes: Vec<_> = server.writes().into_iter().filter(counts).collect();
    assert!(writes.is_empty(), "{writes:?}");
}

#[test]
fn the_service_of_the_control_plane_is_never_written() {
    play("fleet-template", |fleet| {
        pool(fleet.cluster, "fleet-template", "203.0.113.21");
        fleet.web("web");
        let version = || fleet.plane.get("Service", "web").unwrap()["metadata"]["resourceVersion"].clone();
        let before: Value = version();
        let _run = fleet.run();
        let addresses = wait_for_addresses(fleet.plane, "web");
        fleet.stage.wait_until_served(addresses[0], 80);
        fleet.plane.delete(KIND, "web");
        wait_until_gone(fleet.plane, KIND, "web");
        assert_eq!(version(), before);
        if let Some(server) = fleet.plane.test_server() {
            let ours =
                |resource: &str| resource == "services" || resource == "works" || resource == "clusters";
            let writes =
                server.writes().into_iter().filter(|it| ours(&it.resource) && !it.user_agent.is_empty());
            let writes: Vec<_> = writes.filter(|it| it.user_agent.contains("sheave/")).collect();
            assert!(writes.is_empty(), "{writes:?}");
        }
    });
}

#[test]
fn the_accounts_of_deploy_may_do_what_is_done_and_no_more() {
    play("fleet-rights", |fleet| {
        let accounts = [Account::Controller, Account::Gateway];
        if let Some(server) = fleet.plane.test_server() {
            // Older servers do not stream lists, so that the permission to list is needed.
            let unknown = || Status::new(422, "Invalid", "sendInitialEvents is forbidden for watch");
            for account in accounts {
                let watches = Matching::new("watch", "*").of_streamed_lists();
                let matching = watches.by(fleet.plane.user(account));
                server.faults().plan(matching, WATCHES, Fault::Answer(unknown()));
            }
        }
        pool(fleet.cluster, "fleet-rights", "203.0.113.22");
        let controller = fleet.controller();
        let gateway = fleet.stage.start(&fleet.home(Role::Gateway, ""));
        fleet.web("web");
        let addresses = wait_for_addresses(fleet.plane, "web");
        fleet.wait_for_answers(addresses[0], &[IN_EAST, IN_WEST]);
        wait_for_condition(fleet.plane, (KIND, "web"), "sheave.dev/Programmed", "True");
        eventually("an Event tells of the addresses", || {
            let events = fleet.plane.list("Event");
            if events.iter().any(|it| it["reason"] == "AddressesAssigned") { Ok(()) } else { Err("not yet") }
        });
        let renewed = || fleet.plane.get("Lease", CLASS_LEASE).unwrap()["spec"]["renewTime"].clone();
        let first = renewed();
        eventually_within(patience(30.0), "the Lease is renewed", || {
            if renewed() == first { Err("not yet") } else { Ok(()) }
        });
        fleet.plane.delete(KIND, "web");
        wait_until_gone(fleet.plane, KIND, "web");
        for process in [&controller, &gateway] {
            let log = process.log();
            assert!(!log.contains("may not") && !log.contains("forbidden"), "{log}");
        }
        assert!(controller.stop().success());
        assert!(gateway.stop().success());
        let Some(server) = fleet.plane.test_server() else { return };
        assert_eq!(server.refused(), []);
        for account in accounts {
            assert_eq!(server.unused_rules(fleet.plane.user(account)), [], "{account:?}");
        }
    });
}
