//! Tests of `replay`: the log of real traffic under the same and under other manifests, and logs that are torn, empty or hostile.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::manifest::{self, App, at};
use crate::support::patience::eventually;
use crate::support::process::Finished;
use crate::support::tcp;
use crate::support::world::{Family, World};

for_both_families!(
    a_log_of_real_traffic_has_the_same_endpoints_until_something_changes,
    a_log_without_connections_is_refused_and_a_hostile_one_shows_nothing,
);

const CONNECTIONS: usize = 40;

fn web(family: Family, endpoints: &[u16]) -> App {
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000);
    let app = app.annotation("sheave.dev/connection-log", "100%").annotation("sheave.dev/balance", "maglev");
    app.all_ready(endpoints.iter().map(|number| family.backend(*number)))
}

/// Runs `replay` with the log and manifests in `folder`.
fn replay(world: &World, folder: &Path, apps: &[App], arguments: &[&str]) -> Finished {
    let manifests = folder.join("manifests");
    fs::create_dir_all(&manifests).expect("a folder is made");
    fs::write(manifests.join("nodes.yaml"), manifest::nodes()).expect("a file is written");
    fs::write(manifests.join("apps.yaml"), manifest::file(apps)).expect("a file is written");
    let [log, manifests] = [folder.join("log"), manifests].map(|path| path.display().to_string());
    let first = ["replay", "--log", &log, "--manifests", &manifests, "-o", "json"];
    world.gateway.finish(sheave_test_support::program::path(), &[&first, arguments].concat())
}

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", finished.stdout, finished.stderr))
}

fn a_log_of_real_traffic_has_the_same_endpoints_until_something_changes(family: Family) {
    let world = World::new(3);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let apps = [web(family, &[0, 1, 2])];
    let gateway = Gateway::start(&world, &apps);
    for _ in 0..CONNECTIONS {
        world.client.run(|| tcp::ask(at(family.vip(0), 80))).expect("answered");
    }
    eventually("connections are logged", || {
        let output = gateway.output();
        if output.lines().count() == CONNECTIONS { Ok(()) } else { Err(output) }
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("log"), gateway.output()).expect("a log is written");
    let run = |apps: &[App]| replay(&world, folder.path(), apps, &[]);

    let same = run(&apps);
    assert_eq!(same.code(), Some(0), "{}{}", same.stdout, same.stderr);
    let view = json(&same);
    assert_eq!(view["connections"]["total"], CONNECTIONS);
    assert_eq!((&view["connections"]["moved"], &view["log"]["skipped"]), (&0.into(), &0.into()), "{view}");

    let moved = run(&[web(family, &[0, 1])]);
    assert_eq!(moved.code(), Some(1), "{}{}", moved.stdout, moved.stderr);
    let gone = at(family.backend(2), 9000).to_string();
    let view = json(&moved);
    let endpoints = view["services"][0]["endpoints"].as_array().expect("endpoints");
    let left = endpoints.iter().find(|it| it["endpoint"] == gone).expect("the endpoint in the log");
    let before = left["before"]["connections"].as_u64().expect("a number");
    assert!(before > 0 && left["after"]["connections"] == 0, "{view}");
    assert!(view["connections"]["moved"].as_u64() >= Some(before), "{view}");

    let other = if family == Family::V4 { "198.51.100.0/24" } else { "2001:db8:ffff::/48" };
    let refused = run(&[web(family, &[0]).source_ranges(&[other.to_owned()])]);
    let view = json(&refused);
    assert_eq!((refused.code(), &view["connections"]["refused"]), (Some(1), &CONNECTIONS.into()), "{view}");
    assert_eq!(view["services"][0]["refusals"][0]["reason"], "sourceRanges");
}

fn a_log_without_connections_is_refused_and_a_hostile_one_shows_nothing(family: Family) {
    let world = World::new(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let run = |arguments: &[&str]| replay(&world, folder.path(), &[web(family, &[0])], arguments);
    let missing = run(&[]);
    assert_eq!((missing.code(), missing.stdout.as_str()), (Some(65), ""), "{}", missing.stderr);
    for text in ["", "\n\n", "{\"time\":\"2026-", "\u{1b}[2Jsheave: started\n"] {
        fs::write(&log, text).expect("a log is written");
        let refused = run(&[]);
        assert_eq!((refused.code(), refused.stdout.as_str()), (Some(65), ""), "{text:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains('\u{1b}'), "{:?}", refused.stderr);
    }
    let (vip, backend) = (at(family.vip(0), 80), at(family.backend(0), 9000));
    let line = |service: &str| {
        format!(
            "{{\"time\":\"2026-01-01T00:00:00Z\",\"service\":\"{service}\",\"frontend\":\"{vip}\",\"client\":\"{vip}\",\"endpoint\":\"{backend}\"}}\n"
        )
    };
    fs::write(&log, line("e2e/web") + "torn\n" + &line("e2e/\\u001b[2J\\u202e\\n") + &"x".repeat(200_000))
        .expect("a log is written");
    let shown = run(&["-o", "text"]);
    assert_eq!(shown.code(), Some(64), "one output at a time: {}", shown.stderr);
    let hostile = run(&[]);
    let view = json(&hostile);
    assert_eq!((hostile.code(), &view["log"]["skipped"]), (Some(1), &2.into()), "{view}");
    assert_eq!(view["connections"]["refused"], 1, "the Service of that name has no frontend: {view}");
}
