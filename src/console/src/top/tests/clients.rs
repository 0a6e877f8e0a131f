//! Tests of client networks: rows that arrive with earlier traffic, and the row that sums up the rest.

use super::*;

impl Scene {
    /// Two networks from the start, and one that is new.
    fn of_clients(others: usize) -> Self {
        let mut scene = Self::new(TopRows::Clients);
        let rows = [row(0, "198.51.100.0/24", "shop/web"), row(1, "2001:db8:1:1200::/56", "shop/web")];
        scene.count_clients(1000, true, &json!(rows), &json!([[0, [0, 3, 0, 0]], [1, [0, 40, 0, 0]]]));
        let mut rows = vec![row(2, "203.0.113.0/24", "shop/db")];
        if others > 0 {
            rows.push(json!({"id": 3, "prefix": "", "service": "", "source": "", "others": others}));
        }
        let counts = json!([[0, [4, 3, 1200, 3_400_000]], [2, [8, 1, 20, 0]], [3, [50, 60, 4000, 0]]]);
        scene.count_clients(3000, false, &json!(rows), &counts);
        scene
    }

    fn count_clients(&mut self, uptime: u64, reset: bool, rows: &Value, counts: &Value) {
        let message =
            json!({"uptimeMilliseconds": uptime, "reset": reset, "gone": [], "rows": rows, "counts": counts});
        self.send("clientTraffic", &message);
    }
}

fn row(id: u32, prefix: &str, service: &str) -> Value {
    json!({"id": id, "prefix": prefix, "service": service, "source": "Service"})
}

#[test]
fn networks_are_shown_in_80_columns() {
    let mut scene = Scene::of_clients(12_345);
    let expected = [
        " Services  Endpoints  Clusters [Clients]  by NEW/s, most first",
        "CLIENTS                          SERVICE               OPEN NEW/s   IN/s  OUT/s",
        "203.0.113.0/24                   shop/db                  1   4.0   10 B    0 B",
        "198.51.100.0/24                  shop/web                 3   2.0  600 B 1.7 MB",
        "2001:db8:1:1200::/56             shop/web                40     0    0 B    0 B",
        "and 12,345 more                                          60    25 2.0 kB    0 B",
        "",
    ];
    assert_eq!(scene.lines()[3..10], expected);
    assert_eq!(scene.lines()[0], "sheave top  live  12,348 rows");
}

#[test]
fn those_without_a_row_are_last_in_any_order_and_in_no_filter() {
    let mut scene = Scene::of_clients(7);
    scene.press("r");
    assert_eq!(scene.names(), ["2001:db8:1:1200::/56", "198.51.100.0/24", "203.0.113.0/24", "and"]);
    scene.press("<<<");
    assert!(scene.lines()[3].contains("by CLIENTS, a to z"), "{}", scene.lines()[3]);
    assert_eq!(scene.names(), ["198.51.100.0/24", "2001:db8:1:1200::/56", "203.0.113.0/24", "and"]);
    scene.press("/shop/web 198");
    assert_eq!(scene.names(), ["198.51.100.0/24"]);
    assert!(scene.lines()[0].ends_with("  1 of 10 rows match  shop/web 198"), "{}", scene.lines()[0]);
}

#[test]
fn a_network_that_uses_another_service_goes_on() {
    let mut scene = Scene::of_clients(0);
    let counts = json!([[0, [5, 3, 1300, 3_400_000]]]);
    scene.count_clients(4000, false, &json!([row(0, "198.51.100.0/24", "shop/db")]), &counts);
    let expected = "198.51.100.0/24                  shop/db                  3   1.0  100 B    0 B";
    assert_eq!(scene.lines()[5], expected);
}

#[test]
fn hostile_networks_are_text() {
    let mut scene = Scene::new(TopRows::Clients);
    let rows = json!([row(0, "\u{1b}[31m", "shop/\u{202e}x")]);
    scene.count_clients(1000, true, &rows, &json!([[0, [0, 1, 0, 0]]]));
    let line = &scene.lines()[5];
    assert!(line.contains(r"\u{1b}[31m") && line.contains(r"shop/\u{202e}x"), "{line}");
}

#[test]
fn networks_as_text_and_json() {
    let scene = Scene::of_clients(7);
    let rows = TopRows::Clients;
    let model = scene.app.model();
    let shown = text(model, rows, Order::usual(rows), "");
    let expected = "  CLIENTS               SERVICE   OPEN  NEW/s  IN/s    OUT/s\n  \
                    203.0.113.0/24        shop/db   1     4.0    10 B    0 B\n  \
                    198.51.100.0/24       shop/web  3     2.0    600 B   1.7 MB\n  \
                    2001:db8:1:1200::/56  shop/web  40    0      0 B     0 B\n  \
                    and 7 more            -         60    25     2.0 kB  0 B\n";
    assert_eq!(shown, expected);
    assert_eq!(text(model, rows, Order::usual(rows), "shop/db").lines().count(), 2);
    let view = serde_json::to_value(model.view(rows, |label| label.has("shop/db"))).unwrap();
    let client = json!({"prefix": "203.0.113.0/24", "service": "shop/db", "source": "Service", "open": 1,
                        "openedPerSecond": 4.0, "clientBytesPerSecond": 10.0, "endpointBytesPerSecond": 0.0});
    assert_eq!(view["clients"], json!([client]));
    let others = json!({"prefixes": 7, "open": 60, "openedPerSecond": 25.0, "clientBytesPerSecond": 2000.0,
                        "endpointBytesPerSecond": 0.0});
    assert_eq!(view["otherClients"], others);
    assert_eq!(view["seconds"], json!(2.0));
    let view = serde_json::to_value(Scene::of_clients(0).app.model().view(rows, |_| true)).unwrap();
    assert_eq!((view["clients"].as_array().unwrap().len(), view.get("otherClients")), (3, None));
}
