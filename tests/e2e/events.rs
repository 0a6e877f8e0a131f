//! Tests of `events` and `/api/history`: what has changed is remembered across restarts and upgrades, and so is traffic while the process lasts.

use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually_within, patience};
use crate::support::tcp;
use crate::support::world::{Family, World};

for_both_families!(changes_are_remembered_by_the_next_process, samples_have_the_traffic_that_there_was);

fn web(family: Family, endpoints: u16) -> App {
    App::new("web", &[family.vip(0)])
        .tcp(80, 9000)
        .all_ready((0..endpoints).map(|index| family.backend(index)))
}

/// Lines of `sheave events` for the Service.
fn events(world: &World) -> String {
    let asked = world.gateway.finish(crate::support::program::path(), &["events", "e2e/web"]);
    assert_eq!(asked.code(), Some(0), "{}", asked.stderr);
    asked.stdout
}

/// Waits until the events have this text this many times: the gateway looks at itself once a second.
fn wait_for(world: &World, text: &str, times: usize) {
    eventually_within(patience(30.0), text, || {
        let events = events(world);
        if events.matches(text).count() == times { Ok(()) } else { Err(events) }
    });
}

fn changes_are_remembered_by_the_next_process(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let mut gateway = Gateway::start(&world, &[web(family, 1)]);
    wait_for(&world, "began to serve", 1);
    gateway.apply(&[web(family, 2).affinity(60)]);
    let endpoint = at(family.backend(1), 9000);
    wait_for(&world, &format!("Service e2e/web: endpoint {endpoint} added: Ready"), 1);
    wait_for(&world, "Service e2e/web: affinity: ", 1);
    let _former = gateway.upgrade();
    wait_for(&world, "began to serve", 2);
    wait_for(&world, &format!("endpoint {endpoint} added: Ready"), 1);
    gateway.apply(&[web(family, 0)]);
    wait_for(&world, "Service e2e/web: state: broken: ", 1);
    let answer: Value =
        serde_json::from_str(&gateway.get("/api/events?service=e2e/web&since=3600")).expect("JSON");
    let all = answer["events"].as_array().expect("a list");
    assert!(all.iter().any(|event| event["change"] == "endpoint" && event["to"] == "Ready"), "{answer:#}");
    let other: Value = serde_json::from_str(&gateway.get("/api/events?service=e2e/other")).expect("JSON");
    let of_services =
        other["events"].as_array().expect("a list").iter().filter(|it| !it["service"].is_null());
    assert_eq!(of_services.count(), 0, "{other:#}");
}

fn samples_have_the_traffic_that_there_was(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family, 1)]);
    for _ in 0..5 {
        world.client.run(|| tcp::ask(at(family.vip(0), 80))).expect("the client is served");
    }
    for query in ["", "?service=e2e/web"] {
        eventually_within(patience(40.0), "a sample has the five connections", || {
            let answer = gateway.get(&format!("/api/history{query}"));
            let history: Value = serde_json::from_str(&answer).expect("JSON");
            let sum = |column: &str| -> u64 {
                let column = history["recent"][column].as_array().expect("a column");
                column.iter().filter_map(Value::as_u64).sum()
            };
            let quick = history["recent"]["connectP50"].to_string();
            if sum("opened") == 5 && sum("endpointBytes") > 0 && quick.contains("0.0005") {
                Ok(())
            } else {
                Err(answer)
            }
        });
    }
    assert_eq!(gateway.ask("/api/history?service=nonsense").status, 400);
}
