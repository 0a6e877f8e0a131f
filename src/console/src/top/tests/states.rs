//! Tests of the line that says how the gateway and its Services are.

use ratatui::style::Color;

use super::*;

/// The line after this state of the process and its Services.
fn line(process: &Value, wrong: &[&str], services: &Value) -> String {
    let mut scene = Scene::new(TopRows::Services);
    scene.send("status", &json!({"status": process, "wrong": wrong}));
    scene.send("findings", &json!({"services": services}));
    scene.lines()[1].clone()
}

#[test]
fn the_worst_comes_first_in_words() {
    let line = |process: Value, wrong: &[&str], (broken, degraded, ok): (u32, u32, u32)| {
        line(&process, wrong, &json!({"broken": broken, "degraded": degraded, "ok": ok}))
    };
    let node = json!({"node": "gw-1"});
    assert_eq!(line(node.clone(), &[], (0, 0, 12_345)), "Services: 12,345 serving");
    assert_eq!(line(node.clone(), &[], (0, 0, 0)), "Services: 0 serving");
    assert_eq!(
        line(json!({"node": "gw-1", "problems": 2, "unhealthyEndpoints": 1}), &[], (1, 2, 3)),
        "Services: 1 broken, 2 degraded, 3 serving  2 Problems  1 unhealthy endpoint"
    );
    let draining = "it is draining: nothing new is accepted, and open connections finish";
    assert_eq!(
        line(json!({"node": "gw-1", "draining": true}), &[draining, "a worker does not answer"], (0, 1, 0)),
        "DRAINING  Services: 1 degraded, 0 serving  a worker does not answer"
    );
    assert_eq!(
        line(json!({"node": "gw-1", "lameDuck": true}), &["it is about to drain: …"], (0, 0, 1)),
        "ABOUT TO DRAIN  Services: 1 serving"
    );
    assert_eq!(
        line(
            node,
            &["the snapshot: \u{1b}[31m: No space left on device, and more that has no room"],
            (0, 0, 1)
        ),
        r"Services: 1 serving  the snapshot: \u{1b}[31m: No space left on device, and mor…"
    );
}

#[test]
fn a_process_that_is_stuck_or_not_there_yet() {
    let mut scene = Scene::new(TopRows::Services);
    assert_eq!(scene.lines()[..2], ["sheave top  connecting  0 rows", "waiting for the gateway"]);
    scene.send("stuck", &json!("its control loop does not answer"));
    assert_eq!(scene.lines()[1], "Services: 0 serving  its control loop does not answer");
}

/// Foreground of the first cell of this word on the line.
fn color(scene: &mut Scene, word: &str) -> Color {
    let at = scene.lines()[1].find(word).unwrap();
    scene.terminal().backend().buffer()[(at as u16, 1)].fg
}

#[test]
fn colors_say_the_same() {
    let mut scene = Scene::of_services();
    scene.look = Look { color: true };
    let services = json!({"broken": 1, "degraded": 1, "ok": 2});
    scene.send("findings", &json!({"services": services}));
    assert_eq!(color(&mut scene, "1 broken"), Color::Red);
    assert_eq!(color(&mut scene, "1 degraded"), Color::Yellow);
    assert_eq!(color(&mut scene, "2 serving"), Color::Reset);
    scene.send("findings", &json!({"services": {"broken": 0, "degraded": 0, "ok": 4}}));
    assert_eq!(color(&mut scene, "4 serving"), Color::Green);
    scene.send("status", &json!({"status": {"node": "gw-1", "problems": 1}, "wrong": []}));
    assert_eq!(color(&mut scene, "4 serving"), Color::Reset);
    assert_eq!(color(&mut scene, "1 Problem"), Color::Yellow);
    let lost = FeedEvent::Lost("Connection refused".to_owned());
    assert_eq!(scene.app.take(lost, || "10:00:00".to_owned()), Next::Draw);
    assert_eq!(color(&mut scene, "NOT ANSWERING"), Color::Red);
}
