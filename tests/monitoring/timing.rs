//! Tests that each alert fires after its time and not before, and not in a similar state. promtool simulates the hours.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::cases::{CASES, Case, HEALTHY};
use crate::prometheus::promtool_accepts;
use crate::{dashboards, rules};

/// Time of the last check, in minutes.
const END: u32 = 100;

#[test]
fn every_alert_has_a_case() {
    let alerts: Vec<String> = rules::all().into_iter().map(|rule| rule.alert).collect();
    let cases: Vec<&str> = CASES.iter().map(|case| case.alert).collect();
    assert_eq!(alerts, cases);
}

#[test]
fn alerts_fire_in_their_worlds_and_not_in_others() {
    let minutes: BTreeMap<String, u32> =
        rules::all().into_iter().map(|rule| (rule.alert, minutes(rule.holds_for.as_deref()))).collect();
    let mut tests = vec![test("healthy", &[], &[firing_at(END, &[])])];
    for Case { alert, bad, near } in CASES {
        let waits = minutes[*alert];
        let mut looks = vec![firing_at(END, &[alert])];
        if waits > 1 && !bad.iter().any(|(_, values)| values.starts_with("0x")) {
            looks.push(firing_at(waits - 1, &[]));
        }
        tests.push(test(alert, bad, &looks));
        tests.push(test(&format!("nearly {alert}"), near, &[firing_at(END, &[])]));
    }
    promtool_agrees(&tests);
}

/// If no controller can be scraped, there is no leader.
#[test]
fn controllers_that_are_all_gone_are_noticed() {
    let gone: Vec<(&str, &str)> = HEALTHY
        .iter()
        .filter(|(series, _)| series.starts_with("sheave_controller_"))
        .map(|(series, _)| (*series, "_"))
        .collect();
    assert!(!gone.is_empty());
    let looks = [firing_at(1, &[]), firing_at(END, &["SheaveNoLeader"])];
    promtool_agrees(&[test("no controller", &gone, &looks)]);
}

/// The traffic of a Service with both protocols is the sum of both.
#[test]
fn the_busiest_services_are_those_of_all_their_traffic() {
    let panel = "overview: Busiest Services, by bits";
    let query =
        dashboards::queries().into_iter().find(|it| it.panel == panel).expect("there is such a panel");
    let series = [("tcp", "TCP", 3), ("udp", "UDP", 4)].map(|(family, protocol, bytes)| {
        let name = format!(
            "sheave_{family}_bytes_total{{instance='gw-1', service='kube-system/dns', frontend='10.0.0.1:53/{protocol}', from='client'}}"
        );
        json!({"series": name, "values": format!("0+{bytes}x200")})
    });
    let sample = json!({"labels": "{service=\"kube-system/dns\"}", "value": 8 * (3 + 4)});
    let look = json!({"expr": query.text, "eval_time": "2m", "exp_samples": [sample]});
    promtool_agrees(&[
        json!({"name": panel, "interval": "1s", "input_series": series, "promql_expr_test": [look]}),
    ]);
}

#[test]
#[should_panic(expected = "nil")]
fn an_alert_that_does_not_fire_would_be_found() {
    promtool_agrees(&[test("wrong", &[], &[firing_at(END, &["SheaveNoGateway"])])]);
}

fn promtool_agrees(tests: &[Value]) {
    let file = json!({"rule_files": [rules::file()], "evaluation_interval": "1m", "tests": tests});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tests.yaml");
    // YAML includes JSON.
    std::fs::write(&path, file.to_string()).unwrap();
    promtool_accepts(&["test", "rules"], Path::new(&path));
}

/// Test in a healthy state except for these series.
fn test(name: &str, changed: &[(&str, &str)], looks: &[Value]) -> Value {
    let mut series: BTreeMap<&str, &str> = HEALTHY.iter().copied().collect();
    series.extend(changed.iter().copied());
    let values = |values: &str| match values.parse::<u32>() {
        Ok(number) => format!("{number}x200"),
        Err(_) => values.to_owned(),
    };
    let present = series.into_iter().filter(|(_, it)| *it != "_");
    let series: Vec<Value> =
        present.map(|(name, it)| json!({"series": name, "values": values(it)})).collect();
    json!({"name": name, "interval": "1m", "input_series": series, "promql_expr_test": looks})
}

fn firing_at(minute: u32, alerts: &[&str]) -> Value {
    let samples: Vec<Value> = alerts
        .iter()
        .map(|alert| json!({"labels": format!("{{alertname=\"{alert}\"}}"), "value": 1}))
        .collect();
    let firing = "group by (alertname) (ALERTS{alertstate=\"firing\"})";
    json!({"expr": firing, "eval_time": format!("{minute}m"), "exp_samples": samples})
}

fn minutes(holds_for: Option<&str>) -> u32 {
    let Some(text) = holds_for else { return 0 };
    let (number, unit) = text.split_at(text.len() - 1);
    let number: u32 = number.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    match unit {
        "m" => number,
        "h" => 60 * number,
        _ => panic!("{text} is neither minutes nor hours"),
    }
}
