//! Tests of `status` for a running gateway: the command and the admin server report the same, and both follow
//! changes.

use serde_json::{Value, json};

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, GATEWAY_NODE};
use crate::support::patience::eventually;
use crate::support::process::Finished;
use crate::support::world::{Family, World};

for_both_families!(the_command_tells_how_a_gateway_is,);

fn status(gateway: &Gateway<'_>) -> Value {
    serde_json::from_str(&gateway.get("/api/status")).expect("/api/status is JSON")
}

/// Number of objects of a kind in the source.
fn objects(status: &Value, kind: &str) -> u64 {
    let kinds = status["source"]["kinds"].as_array().expect("a source has kinds");
    let of_kind = kinds.iter().find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {status}"));
    assert_eq!(of_kind["synced"], true, "{status}");
    of_kind["objects"].as_u64().expect("objects are counted")
}

fn the_command_tells_how_a_gateway_is(family: Family) {
    let world = World::new(1);
    let web = App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).ready(family.backend(0));
    let gateway = Gateway::start(&world, std::slice::from_ref(&web));
    let run = |arguments: &[&str]| -> Finished {
        world.gateway.finish(sheave_test_support::program::path(), &[&["status"], arguments].concat())
    };

    let mut told: Value = serde_json::from_str(&run(&["-o", "json"]).expect_success()).unwrap();
    let mut asked = status(&gateway);
    for status in [&mut told, &mut asked] {
        assert!(status["uptimeSeconds"].take().is_u64(), "{status}");
    }
    assert_eq!(told, asked, "the command asks where the gateway listens by default");
    assert_eq!(objects(&told, "Service"), 1);
    assert_eq!(objects(&told, "EndpointSlice"), 1);
    let nodes = objects(&told, "Node");
    assert!(nodes >= 1, "{told}");
    let expected = json!({
        "node": GATEWAY_NODE, "version": env!("CARGO_PKG_VERSION"), "role": "gateway",
        "generation": gateway.generation(), "frontends": 2, "problems": 0, "guard": [], "controller": null,
        "lameDuck": false,
        "draining": false,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&told[key], value, "{key}: {told}");
    }
    let source = &told["source"];
    assert_eq!((&source["kind"], &source["synced"]), (&json!("manifests"), &json!(true)), "{told}");
    assert_eq!((&source["fromSnapshot"], &source["snapshot"]), (&json!(false), &json!(null)), "{told}");
    assert!(gateway.get("/metrics").contains("sheave_source_from_snapshot 0\n"));

    let text = run(&["--admin", "http://127.0.0.1:9841"]).expect_success();
    assert!(text.contains(&format!("(gateway) on node {GATEWAY_NODE}, up for ")), "{text}");
    assert!(text.contains("2 frontends.") && text.contains("Nothing is wrong.\n"), "{text}");

    gateway.write("broken.yaml", "kind: [\n");
    eventually("the problem is counted", || match status(&gateway)["problems"].as_u64() {
        Some(1) => Ok(()),
        count => Err(format!("{count:?}")),
    });
    let degraded = run(&[]);
    let text = &degraded.stdout;
    assert!(text.contains("  - there is one Problem, listed below\n\nProblems\n  - broken.yaml"), "{text}");
    assert_eq!(degraded.code(), Some(1), "{text}");
    assert_eq!(run(&["-o", "json"]).code(), Some(1));
    assert_eq!(run(&["--admin", "http://127.0.0.1:1"]).code(), Some(2));
}
