//! Tests of screens of other sizes: wider ones have more columns, and small ones keep what matters.

use super::*;

#[test]
fn a_wide_screen_has_reasons_and_the_last_two_minutes() {
    let mut scene = Scene::of_services();
    scene.size = (120, 24);
    let expected = [
        "SERVICE        STATE      READY  OPEN NEW/s   IN/s  OUT/s DGRAM/s ERR/s RECENT                     WHY",
        "shop/db        broken       0/2     0     0    0 B    0 B       0     0                            no endpoint is ready",
    ];
    assert_eq!(scene.lines()[4..6], expected);
    scene.size = (160, 24);
    scene.count(9000, false, &json!([]), &json!([[0, [80, 5, 1200, 3_400_000, 0, 0]]]));
    let lines = scene.lines();
    assert!(lines[6].contains("                    █ █"), "{}", lines[6]);
    // Without reasons, the column for them goes.
    scene.press("/web");
    assert!(scene.lines()[4].ends_with("ERR/s RECENT"), "{}", scene.lines()[4]);
    let mut scene = Scene::of_endpoints(TopRows::Endpoints);
    scene.size = (160, 24);
    let row = "shop/web      west     Unhealthy       0     0    0 B    0 B n1  ";
    assert_eq!(scene.lines()[5], format!("{:54} {row} {:30} refused", "[2001:db8::8]:8080", ""));
}

/// No number is cut, and no line longer than the screen.
#[test]
fn a_narrow_screen_has_fewer_columns() {
    let mut scene = Scene::of_services();
    let mut at = |width: u16| {
        scene.size = (width, 24);
        let lines = scene.lines();
        (lines[4].clone(), lines[6].clone())
    };
    let both = |header: &str, row: &str| (header.to_owned(), row.to_owned());
    let header = "SERVICE              STATE      READY  OPEN NEW/s   IN/s  OUT/s ERR/s";
    assert_eq!(at(70), both(header, "shop/web             ok           3/3     5    40 1.2 kB 3.4 MB     0"));
    assert_eq!(at(60).0, "SERVICE           STATE      READY  OPEN NEW/s   IN/s ERR/s");
    assert_eq!(
        at(40),
        both("SERVICE            STATE     OPEN ERR/s", "shop/web           ok           5     0")
    );
    assert_eq!(at(20), both("SERVICE    STATE", "shop/web   ok"));
    assert_eq!(scene.lines()[..3], ["sheave top  gw-1", "Services: 1 broken", "open 9  new 50/s"]);
}

#[test]
fn numbers_beyond_their_columns_are_whole() {
    let mut scene = Scene::of_services();
    let clusters = json!([{"cluster": "local", "serving": 99_999, "of": 100_000, "share": 100}]);
    let many = json!({"service": "shop/web", "source": "Service", "state": "ok", "clusters": clusters});
    scene.send("services", &json!({"reset": false, "removed": [], "more": 0, "rows": [many]}));
    scene.count(3000, false, &json!([]), &json!([[0, [80, 5, 1200, 3_400_000, 0, 0]]]));
    for width in [20, 40, 60, 80, 120] {
        scene.size = (width, 24);
        let rows = scene.lines();
        let shown = rows[4].contains("READY");
        assert_eq!(rows[6].contains("99999/100000"), shown, "{rows:#?}");
    }
}

#[test]
fn the_smallest_screen_keeps_state_and_rows() {
    let mut scene = Scene::of_services();
    scene.size = (20, 5);
    let expected = ["Services: 1 broken", "SERVICE    STATE", "shop/db    broken", "shop/web   ok", "q quit"];
    assert_eq!(scene.lines(), expected);
    scene.press("G");
    assert_eq!(scene.lines()[2..4], ["shop/web   ok", "mcs/b…/web ok"]);
    assert_eq!(scene.app.press(KeyEvent::from(KeyCode::Enter)), Next::Ask);
    assert_eq!(scene.lines()[..2], ["mcs/blog/web  askin…", ""]);
    // While the window changes its size.
    for size in (0..30).flat_map(|height| [(20, height), (81, height), (height * 7, 6)]) {
        scene.size = (size.0.max(1), size.1.max(1));
        scene.lines();
        scene.press("q");
        scene.lines();
        assert_eq!(scene.app.press(KeyEvent::from(KeyCode::Enter)), Next::Ask);
    }
}

#[test]
fn a_name_is_cut_only_if_it_has_to_be() {
    let long = format!("a-namespace-of-sixty-three-{}/{}", "x".repeat(36), "web".repeat(21));
    let mut scene = Scene::of_services();
    let rows = json!([{"id": 9, "service": long, "source": "Service"}]);
    scene.count(3000, false, &rows, &json!([]));
    scene.press("/a-name");
    scene.size = (80, 24);
    assert!(scene.lines()[5].starts_with("a-namespace…bwebwebweb "), "{}", scene.lines()[5]);
    scene.size = (190, 24);
    assert!(scene.lines()[5].starts_with(&long), "{}", scene.lines()[5]);
    assert!(!scene.lines()[4].contains("WHY"));
}

/// Drawing takes as long as the screen is high, however many Services there are.
#[test]
fn ten_thousand_services_are_shown_and_selected() {
    let mut scene = Scene::new(TopRows::Services);
    let name = |id: usize| format!("shop/s{id:05}");
    let row = |id: usize| json!({"id": id, "service": name(id), "source": "Service"});
    let rows: Vec<Value> = (0..10_000).map(row).collect();
    scene.count(1000, true, &json!(rows), &json!([]));
    let broken = json!({"service": name(7_777), "source": "Service", "state": "broken", "why": "no endpoint is ready"});
    scene.send("services", &json!({"reset": true, "removed": [], "more": 0, "rows": [broken]}));
    scene.count(2000, false, &json!([]), &json!([]));
    scene.size = (160, 50);
    assert_eq!(scene.names()[..2], [name(7_777), name(0)]);
    assert_eq!(scene.names().len(), 43);
    scene.press("G");
    assert_eq!(scene.names().last(), Some(&name(9_999)));
    let counts = json!([[9_999, [0, 0, 0, 0, 0, 0]]]);
    scene.count(3000, false, &json!([]), &counts);
    scene.count(4000, false, &json!([]), &json!([[9_999, [50, 1, 0, 0, 0, 0]]]));
    let lines = scene.lines();
    assert!(lines[6].starts_with("shop/s09999"), "the selected row comes to the top: {}", lines[6]);
    assert_eq!(scene.app.cursor, 1);
}
