//! Tests of the screen at 80 columns and 24 lines, driven by keys and events.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Modifier;
use serde_json::{Value, json};

use super::app::{App, Next};
use super::feed::FeedEvent;
use super::look::Look;
use super::messages::LiveMessage;
use super::screen;
use super::table::Order;
use super::*;

mod clients;
mod panes;
mod sizes;
mod states;

/// A screen with the app behind it.
struct Scene {
    app: App,
    size: (u16, u16),
    look: Look,
}

impl Scene {
    fn new(rows: TopRows) -> Self {
        let app = App::new(rows, Order::usual(rows), String::new());
        Self { app, size: (80, 24), look: Look { color: false } }
    }

    /// Three Services, one of them broken, after a second of traffic.
    fn of_services() -> Self {
        let mut scene = Self::new(TopRows::Services);
        scene.send("status", &json!({"status": {"node": "gw-1"}, "wrong": []}));
        scene.send("findings", &json!({"services": {"broken": 1, "degraded": 0, "ok": 2}}));
        let cluster =
            |serving: u32, of: u32| json!([{"cluster": "local", "serving": serving, "of": of, "share": 100}]);
        scene.send(
            "services",
            &json!({"reset": true, "removed": [], "more": 0, "rows": [
                {"service": "shop/web", "source": "Service", "state": "ok", "clusters": cluster(3, 3)},
                {"service": "shop/db", "source": "Service", "state": "broken", "why": "no endpoint is ready",
                 "clusters": cluster(0, 2)},
                {"service": "blog/web", "source": "MultiClusterService", "state": "ok", "clusters": cluster(2, 2)},
            ]}),
        );
        let row =
            |id: u32, service: &str, source: &str| json!({"id": id, "service": service, "source": source});
        let rows = [
            row(0, "shop/web", "Service"),
            row(1, "shop/db", "Service"),
            row(2, "blog/web", "MultiClusterService"),
        ];
        let none = [0; 6];
        scene.count(1000, true, &json!(rows), &json!([[0, none], [1, none], [2, none]]));
        let total = json!({"opened": 100, "open": 7, "clientBytes": 0, "endpointBytes": 0, "errors": 0});
        scene.send("traffic", &json!({"uptimeMilliseconds": 1000, "total": total}));
        let total = json!({"opened": 150, "open": 9, "clientBytes": 1200, "endpointBytes": 3_400_000, "datagrams": 8, "errors": 2});
        scene.send("traffic", &json!({"uptimeMilliseconds": 2000, "total": total}));
        let counts = json!([[0, [40, 5, 1200, 3_400_000, 0, 0]], [2, [10, 4, 0, 0, 8, 2]]]);
        scene.count(2000, false, &json!([]), &counts);
        scene
    }

    fn of_endpoints(rows: TopRows) -> Self {
        let mut scene = Self::new(rows);
        let row = |id: u32, cluster: &str, endpoint: &str, state: &str| {
            json!({"id": id, "service": "shop/web", "source": "Service", "cluster": cluster, "endpoint": endpoint,
                   "state": state, "why": if state == "Unhealthy" { "refused" } else { "" }, "node": "n1"})
        };
        let rows = [
            row(0, "east", "10.1.0.7:8080", "Ready"),
            row(1, "west", "[2001:db8::8]:8080", "Unhealthy"),
            row(2, "west", "10.1.0.9:8080", "Ready"),
        ];
        let event = |uptime: u64, reset: bool, rows: &Value, counts: Value| json!({"uptimeMilliseconds": uptime, "reset": reset, "gone": [], "rows": rows, "counts": counts});
        let first = event(1000, true, &json!(rows), json!([[0, [10, 1, 7, 9]], [1, [0, 0]], [2, [4, 0]]]));
        scene.send("endpointTraffic", &first);
        scene.send(
            "endpointTraffic",
            &event(3000, false, &json!([]), json!([[0, [16, 2, 1007, 2009]], [2, [6, 1]]])),
        );
        scene
    }

    fn count(&mut self, uptime: u64, reset: bool, rows: &Value, counts: &Value) {
        let message =
            json!({"uptimeMilliseconds": uptime, "reset": reset, "gone": [], "rows": rows, "counts": counts});
        self.send("serviceTraffic", &message);
    }

    fn send(&mut self, event: &str, data: &Value) {
        let message = LiveMessage::parse(event, &data.to_string()).unwrap().unwrap();
        assert_ne!(self.app.take(FeedEvent::Message(message), String::new), Next::Quit);
    }

    fn press(&mut self, keys: &str) {
        for key in keys.chars() {
            assert_ne!(self.outcome(key), Next::Quit);
        }
    }

    fn outcome(&mut self, key: char) -> Next {
        self.app.press(KeyEvent::from(KeyCode::Char(key)))
    }

    fn terminal(&mut self) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(self.size.0, self.size.1)).unwrap();
        terminal.draw(|frame| screen::draw(frame, &mut self.app, self.look)).unwrap();
        terminal
    }

    /// Lines of the screen, without trailing blanks.
    fn lines(&mut self) -> Vec<String> {
        let terminal = self.terminal();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    /// First words of the rows.
    fn names(&mut self) -> Vec<String> {
        let lines = self.lines();
        let rows = lines[5..lines.len() - 2].iter().filter(|line| !line.is_empty());
        rows.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    }
}

#[test]
fn services_are_shown_in_80_columns() {
    let mut scene = Scene::of_services();
    let lines = scene.lines();
    let expected = [
        "sheave top  gw-1  live  3 rows",
        "Services: 1 broken, 2 serving",
        "open 9  new 50/s  in 1.2 kB/s  out 3.4 MB/s  datagrams 8.0/s  errors 2.0/s",
        "[Services] Endpoints  Clusters  Clients   by state, then NEW/s, most first",
        "SERVICE                STATE      READY  OPEN NEW/s   IN/s  OUT/s DGRAM/s ERR/s",
        "shop/db                broken       0/2     0     0    0 B    0 B       0     0",
        "shop/web               ok           3/3     5    40 1.2 kB 3.4 MB       0     0",
        "mcs/blog/web           ok           2/2     4    10    0 B    0 B     8.0   2.0",
    ];
    assert_eq!(lines[..8], expected);
    assert_eq!(
        lines[22..],
        [
            "shop/db: no endpoint is ready",
            "q quit  Enter explain  t trace  Tab rows  s sort  w worst  / filter  ? help",
        ]
    );
}

#[test]
fn endpoints_and_clusters_are_shown_in_80_columns() {
    let mut scene = Scene::of_endpoints(TopRows::Endpoints);
    let expected = [
        " Services [Endpoints] Clusters  Clients   by state, then NEW/s, most first",
        "ENDPOINT           SERVICE       CLUSTER  STATE        OPEN NEW/s   IN/s  OUT/s",
        "[2001:db8::8]:8080 shop/web      west     Unhealthy       0     0    0 B    0 B",
        "10.1.0.7:8080      shop/web      east     Ready           2   3.0  500 B 1.0 kB",
        "10.1.0.9:8080      shop/web      west     Ready           1   1.0    0 B    0 B",
    ];
    assert_eq!(scene.lines()[3..8], expected);
    assert_eq!(scene.lines()[22], "[2001:db8::8]:8080: on Node n1: refused");
    let expected = [
        "CLUSTER                   SERVICES       READY  OPEN NEW/s  SHARE   IN/s  OUT/s",
        "east                             1         1/1     2   3.0   75 %  500 B 1.0 kB",
        "west                             1         1/2     1   1.0   25 %    0 B    0 B",
    ];
    let mut scene = Scene::of_endpoints(TopRows::Clusters);
    assert_eq!(scene.lines()[4..7], expected);
}

#[test]
fn any_column_sorts_and_either_way_round() {
    let mut scene = Scene::of_services();
    scene.press("w");
    assert_eq!(scene.names(), ["shop/web", "mcs/blog/web", "shop/db"]);
    scene.press("r");
    assert_eq!(scene.names(), ["shop/db", "mcs/blog/web", "shop/web"]);
    assert!(scene.lines()[3].contains("by NEW/s, least first"));
    // From NEW/s to the last column, then back to the first.
    scene.press("sssss");
    assert!(scene.lines()[3].contains("by SERVICE, a to z"), "{}", scene.lines()[3]);
    assert_eq!(scene.names(), ["mcs/blog/web", "shop/db", "shop/web"]);
    scene.press("s");
    assert!(scene.lines()[3].contains("by STATE, worst first"));
    assert_eq!(scene.names(), ["shop/db", "mcs/blog/web", "shop/web"]);
    scene.press("S<");
    assert!(scene.lines()[3].contains("by ERR/s"));
    assert_eq!(scene.names(), ["mcs/blog/web", "shop/db", "shop/web"]);
}

#[test]
fn what_is_not_well_stands_first_in_any_order() {
    let mut scene = Scene::of_services();
    let degraded = json!({"service": "blog/web", "source": "MultiClusterService", "state": "degraded", "why": "1 of 2 endpoints fails"});
    scene.send("services", &json!({"reset": false, "removed": [], "more": 0, "rows": [degraded]}));
    scene.count(3000, false, &json!([]), &json!([[0, [99, 5, 1200, 3_400_000, 0, 0]]]));
    let worst_first = ["shop/db", "mcs/blog/web", "shop/web"];
    for key in "sssssssss".chars() {
        assert_eq!(scene.names(), worst_first, "{}", scene.lines()[3]);
        scene.press("r");
        assert_eq!(scene.names(), worst_first, "{}", scene.lines()[3]);
        assert_eq!(scene.outcome(key), Next::Draw);
    }
    scene.press("w");
    assert_eq!(scene.names(), ["shop/web", "mcs/blog/web", "shop/db"]);
    // It stays off in other views.
    scene.press("21");
    assert!(scene.lines()[3].ends_with("by NEW/s, most first"));
}

#[test]
fn a_selected_row_stays_selected_where_it_moves() {
    let mut scene = Scene::of_services();
    scene.press("j");
    let chosen = |scene: &Scene| scene.app.items[scene.app.cursor].label.texts[0].clone();
    assert_eq!(chosen(&scene), "shop/web");
    scene.count(3000, false, &json!([]), &json!([[2, [99, 5, 0, 0, 0, 0]]]));
    assert_eq!((scene.names()[1].as_str(), chosen(&scene).as_str()), ("mcs/blog/web", "shop/web"));
    // At the top is what comes there.
    scene.press("gw");
    assert_eq!(chosen(&scene), "mcs/blog/web");
    scene.count(4000, false, &json!([]), &json!([[0, [99, 5, 0, 0, 0, 0]]]));
    assert_eq!(chosen(&scene), "shop/web");
}

#[test]
fn a_filter_is_typed_kept_and_given_up() {
    let mut scene = Scene::of_services();
    scene.press("/WEB sh");
    assert_eq!(scene.names(), ["shop/web"]);
    let lines = scene.lines();
    assert!(lines[0].ends_with("1 of 3 rows match  WEB sh"), "{}", lines[0]);
    assert_eq!(lines[23], "/WEB sh_  (Enter applies, Esc cancels)");
    // A key that is a command outside of the filter.
    scene.press("q");
    assert_eq!(scene.lines()[5], "No row has these words; Esc shows all.");
    let key = |scene: &mut Scene, code| scene.app.press(KeyEvent::from(code));
    assert_eq!(key(&mut scene, KeyCode::Backspace), Next::Draw);
    assert_eq!(key(&mut scene, KeyCode::Enter), Next::Draw);
    scene.press("/x");
    assert_eq!(key(&mut scene, KeyCode::Esc), Next::Draw);
    assert_eq!(scene.names(), ["shop/web"]);
    // Problems of a Service are searched as well.
    assert_eq!(key(&mut scene, KeyCode::Esc), Next::Draw);
    scene.press("/endpoint");
    assert_eq!(scene.names(), ["shop/db"]);
}

#[test]
fn a_frozen_screen_stands_still_and_can_be_sorted() {
    let mut scene = Scene::of_services();
    scene.press("wf");
    scene.count(3000, false, &json!([]), &json!([[2, [99, 4, 0, 0, 8, 2]]]));
    assert!(scene.lines()[0].contains("FROZEN"));
    assert_eq!(scene.names(), ["shop/web", "mcs/blog/web", "shop/db"]);
    scene.press("r");
    assert_eq!(scene.names(), ["shop/db", "mcs/blog/web", "shop/web"]);
    scene.press("r ");
    assert!(scene.lines()[0].contains("live"));
    // Rows without traffic in this second show zero.
    let lines = scene.lines();
    assert_eq!(lines[5], "mcs/blog/web           ok           2/2     4    89    0 B    0 B       0     0");
    assert_eq!(lines[7], "shop/web               ok           3/3     5     0    0 B    0 B       0     0");
}

#[test]
fn hostile_names_are_text() {
    let mut scene = Scene::new(TopRows::Services);
    let long = format!("shop/a-name-of-sixty-three-characters-{}-end", "x".repeat(25));
    let names = [
        "shop/<script>alert(1)</script>",
        "\u{202e}bew/pohs\u{7}\u{1b}[31m",
        long.as_str(),
        "shop/東京東京東京東京東京東京",
    ];
    let row = |(id, name): (usize, &&str)| json!({"id": id, "service": name, "source": "Service"});
    let rows: Vec<Value> = names.iter().enumerate().map(row).collect();
    scene.send("status", &json!({"status": {"node": "gw\u{1b}]0;x\u{7}"}, "wrong": ["\u{9b}31m is wrong"]}));
    scene.count(1000, true, &json!(rows), &json!([]));
    scene.press("<<<<");
    let lines = scene.lines();
    assert!(lines[0].contains(r"gw\u{1b}]0;x\u{7}"), "{}", lines[0]);
    assert_eq!(lines[22], r"\u{9b}31m is wrong");
    let shown: Vec<&str> =
        lines[5..9].iter().map(|line| line.trim_end_matches(&[' ', '0', '/', 'B'][..]).trim()).collect();
    assert_eq!(shown[..2], [r"\u{202e}bew…\u{1b}[31m", "shop/<scrip…)</script>"]);
    assert_eq!(shown[2], "shop/a-name…xxxxxx-end");
    assert_eq!(lines.concat().chars().filter(|char| char.is_control()).count(), 0);
    // Wide characters do not shift columns.
    let column = |line: &str| screen_width(&line[..line.rfind("0/0").unwrap()]);
    assert_eq!(column(&lines[8]), column(&lines[7]), "{lines:#?}");
    scene.press("/\u{202e}");
    assert!(scene.lines()[23].starts_with(r"/\u{202e}_"));
}

fn screen_width(text: &str) -> usize {
    // The second cell of a wide character is a blank in the buffer.
    text.chars().count()
}

#[test]
fn a_gateway_that_does_not_answer_is_reported_since_when() {
    let mut scene = Scene::of_services();
    let lost = || FeedEvent::Lost("Connection refused".to_owned());
    assert_eq!(scene.app.take(lost(), || "10:00:00".to_owned()), Next::Draw);
    assert_eq!(scene.app.take(lost(), || "10:00:01".to_owned()), Next::Draw);
    let lines = scene.lines();
    assert!(lines[0].contains("not live"), "{}", lines[0]);
    assert_eq!(lines[1], "NOT ANSWERING since 10:00:00: Connection refused; retrying");
    assert!(lines[5].starts_with("shop/db"), "what was known stays");
    // The process restarted: row numbers are different, and there is no rate yet.
    scene.count(
        100,
        true,
        &json!([{"id": 9, "service": "shop/web", "source": "Service"}]),
        &json!([[9, [7, 7, 0, 0, 0, 0]]]),
    );
    scene.count(1100, false, &json!([]), &json!([[9, [9, 8, 0, 0, 0, 0]]]));
    let lines = scene.lines();
    assert!(lines[0].contains("  live"), "{}", lines[0]);
    assert_eq!(lines[1], "Services: 1 broken, 2 serving");
    let row = lines.iter().find(|line| line.starts_with("shop/web")).unwrap();
    assert_eq!(row, "shop/web               ok           3/3     8   2.0    0 B    0 B       0     0");
}

#[test]
fn rows_out_of_sight_are_scrolled_to() {
    let mut scene = Scene::new(TopRows::Services);
    let row = |id: usize| json!({"id": id, "service": format!("shop/s{id:03}"), "source": "Service"});
    let rows: Vec<Value> = (0..100).map(row).collect();
    scene.count(1000, true, &json!(rows), &json!([]));
    assert_eq!(scene.names().len(), 17);
    scene.press("G");
    assert_eq!(scene.names().last().map(String::as_str), Some("shop/s099"));
    scene.press("kk");
    assert_eq!(scene.names()[0], "shop/s083");
    assert_eq!(scene.app.press(KeyEvent::from(KeyCode::PageUp)), Next::Draw);
    assert_eq!(scene.names()[0], "shop/s080");
    scene.press("g");
    let terminal = scene.terminal();
    let chosen = terminal.backend().buffer()[(0, 5)].modifier;
    assert!(chosen.contains(Modifier::REVERSED));
    // The selected row stays in sight when the window shrinks.
    scene.press("G");
    scene.size = (40, 10);
    assert_eq!(scene.names().last().map(String::as_str), Some("shop/s099"));
    for size in [(1, 1), (5, 3), (20, 5), (80, 6), (300, 100)] {
        scene.size = size;
        scene.lines();
    }
}

#[test]
fn keys_switch_and_end() {
    let mut scene = Scene::of_services();
    assert_eq!(scene.app.press(KeyEvent::from(KeyCode::Tab)), Next::Follow(TopRows::Endpoints));
    assert_eq!(scene.outcome('3'), Next::Follow(TopRows::Clusters));
    assert_eq!(scene.outcome('3'), Next::Wait);
    assert_eq!(scene.app.press(KeyEvent::from(KeyCode::Tab)), Next::Follow(TopRows::Clients));
    assert_eq!(scene.app.press(KeyEvent::from(KeyCode::Tab)), Next::Follow(TopRows::Services));
    assert_eq!(scene.outcome('?'), Next::Draw);
    assert!(scene.lines().iter().all(|line| line.chars().count() < 80), "help is not cut");
    scene.press("q");
    assert_eq!(scene.outcome('q'), Next::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(scene.app.press(interrupt), Next::Quit);
    scene.press("/");
    assert_eq!(scene.app.press(interrupt), Next::Quit);
}

#[test]
fn colors_can_be_left_out() {
    for color in [true, false] {
        let mut scene = Scene::of_services();
        scene.look = Look { color };
        let terminal = scene.terminal();
        let colored =
            terminal.backend().buffer().content().iter().any(|cell| cell.fg != ratatui::style::Color::Reset);
        assert_eq!(colored, color);
    }
}

#[test]
fn text_and_json_of_one_second() {
    let scene = Scene::of_services();
    let rows = TopRows::Services;
    let model = scene.app.model();
    let shown = text(model, rows, Order::usual(rows), "shop");
    let expected = "  SERVICE   STATE   READY  OPEN  NEW/s  IN/s    OUT/s   DGRAM/s  ERR/s\n  \
                    shop/web  ok      3/3    5     40     1.2 kB  3.4 MB  0        0\n  \
                    shop/db   broken  0/2    0     0      0 B     0 B     0        0\n";
    assert_eq!(shown, expected);
    let view = serde_json::to_value(model.view(rows, |label| label.has("db"))).unwrap();
    let none = json!({"open": 0, "openedPerSecond": 0.0, "clientBytesPerSecond": 0.0, "endpointBytesPerSecond": 0.0,
                      "datagramsPerSecond": 0.0, "errorsPerSecond": 0.0});
    let mut service = json!({"service": "shop/db", "source": "Service", "state": "broken",
                             "why": "no endpoint is ready", "readyEndpoints": 0, "endpoints": 2});
    service.as_object_mut().unwrap().extend(none.as_object().unwrap().clone());
    assert_eq!(view["services"], json!([service]));
    assert_eq!((&view["seconds"], &view["node"]), (&json!(1.0), &json!("gw-1")));
    assert_eq!(view["total"]["errorsPerSecond"], json!(2.0));
    assert_eq!(view.get("endpoints"), None);
}

#[test]
fn a_row_with_another_number_has_no_rate_yet() {
    let mut scene = Scene::of_services();
    // The Service took over a port of another Service, with the counters of that port.
    let rows = json!([{"id": 3, "service": "shop/web", "source": "Service"}]);
    let counts = json!([[3, [9040, 6, 1200, 50_000_000_000_u64, 0, 0]]]);
    let moved =
        json!({"uptimeMilliseconds": 3000, "reset": false, "gone": [0], "rows": rows, "counts": counts});
    scene.send("serviceTraffic", &moved);
    let row = |scene: &mut Scene| scene.lines().into_iter().find(|line| line.starts_with("shop/web"));
    let expected = "shop/web               ok           3/3     6     0    0 B    0 B       0     0";
    assert_eq!(row(&mut scene).as_deref(), Some(expected));
    scene.count(4000, false, &json!([]), &json!([[3, [9042, 6, 1200, 50_000_000_000_u64, 0, 0]]]));
    let expected = "shop/web               ok           3/3     6   2.0    0 B    0 B       0     0";
    assert_eq!(row(&mut scene).as_deref(), Some(expected));
}

/// The counters of rows are not followed while other rows are shown.
#[test]
fn rows_that_are_looked_at_again_show_nothing_of_the_last_visit() {
    let mut scene = Scene::of_services();
    scene.press("2");
    scene.press("1");
    let lines = scene.lines().join("\n");
    assert!(!lines.contains("shop/web"), "{lines}");
    // Endpoints and clusters use the same counters.
    let mut scene = Scene::of_endpoints(TopRows::Endpoints);
    scene.press("3");
    let lines = scene.lines().join("\n");
    assert!(lines.contains("east"), "{lines}");
}
