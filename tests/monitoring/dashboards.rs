//! Tests of the dashboard files: what Grafana needs to import them, and their queries.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Query of a panel.
#[derive(Debug)]
pub(crate) struct Query {
    /// Dashboard and panel, for messages.
    pub(crate) panel: String,
    /// Text as sent by Grafana, with all values of each variable.
    pub(crate) text: String,
}

/// All dashboards, by file name.
fn all() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/monitoring/dashboards");
    let mut found: Vec<(String, Value)> = fs::read_dir(folder)
        .expect("the dashboards are there")
        .map(|entry| {
            let path = entry.expect("the folder can be read").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("a file");
            (name, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().expect("a dashboard has panels")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key}: {value}"))
}

/// All queries of all dashboards, including those of variables.
pub(crate) fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for (name, dashboard) in all() {
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let panel = format!("{name}: {}", text(panel, "title"));
                queries.push(Query { panel, text: filled(text(target, "expr")) });
            }
        }
        for variable in variables(&dashboard) {
            let query = text(&variable["query"], "query");
            let arguments = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (metric, label) =
                arguments.and_then(|it| it.split_once(", ")).expect("label_values(metric, label)");
            let text = format!("group by ({label}) ({metric}{{{label}!=\"\"}})");
            queries.push(Query { panel: format!("{name}: ${}", self::text(variable, "name")), text });
        }
    }
    queries
}

/// Variables whose values come from Prometheus.
fn variables(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let all = dashboard["templating"]["list"].as_array().into_iter().flatten();
    all.filter(|variable| variable["type"] == "query")
}

/// Replaces variables: four times the scrape interval, as in Grafana, and `All`.
fn filled(query: &str) -> String {
    let text = query.replace("$__rate_interval", "4s").replace("$instance", ".*").replace("$service", ".*");
    assert!(!text.contains('$'), "an unknown variable: {query}");
    text
}

#[test]
fn there_is_a_dashboard_for_each_question() {
    let names: Vec<String> = all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["fleet", "gateway", "overview", "service"]);
    assert!(queries().len() > 100);
}

#[test]
fn grafana_can_tell_them_and_their_panels_apart() {
    let dashboards = all();
    for (name, dashboard) in &dashboards {
        assert_eq!(text(dashboard, "uid"), format!("sheave-{name}"));
        assert!(text(dashboard, "title").starts_with("Sheave / "), "{name}");
        assert!(!text(dashboard, "description").is_empty(), "{name}");
        let ids: BTreeSet<u64> =
            panels(dashboard).iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels(dashboard).len(), "{name}: an id is there twice");
    }
}

/// The data source is chosen on import, so no other may be named.
#[test]
fn every_panel_says_what_it_shows_and_asks_the_chosen_data_source() {
    for (name, dashboard) in all() {
        let chosen = dashboard["templating"]["list"][0].clone();
        assert_eq!((text(&chosen, "name"), text(&chosen, "query")), ("datasource", "prometheus"), "{name}");
        let of_variables = variables(&dashboard).map(|variable| &variable["datasource"]);
        let shown = panels(&dashboard).iter().filter(|panel| panel["type"] != "row");
        for panel in shown.clone() {
            let title = format!("{name}: {}", text(panel, "title"));
            assert!(text(panel, "description").ends_with('.'), "{title}");
            assert!(!panel["targets"].as_array().unwrap().is_empty(), "{title}");
        }
        let of_targets =
            shown.clone().flat_map(|panel| panel["targets"].as_array().unwrap()).map(|it| &it["datasource"]);
        for source in of_variables.chain(of_targets).chain(shown.map(|panel| &panel["datasource"])) {
            assert_eq!(text(source, "uid"), "${datasource}", "{name}");
        }
    }
}

#[test]
fn no_panel_lies_on_another() {
    for (name, dashboard) in all() {
        let mut taken = BTreeSet::new();
        for panel in panels(&dashboard) {
            let side = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            assert!(side("x") + side("w") <= 24, "{name}: {}", text(panel, "title"));
            for x in side("x")..side("x") + side("w") {
                for y in side("y")..side("y") + side("h") {
                    assert!(taken.insert((x, y)), "{name}: {} lies on another", text(panel, "title"));
                }
            }
        }
    }
}
