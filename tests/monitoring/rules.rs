//! Tests of the rule file: required fields of alerts, and the checks of promtool.

use std::collections::BTreeSet;
use std::path::PathBuf;

use regex::Regex;
use serde::Deserialize;

use crate::prometheus::promtool_accepts;

/// Alerting rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) alert: String,
    pub(crate) expr: String,
    #[serde(rename = "for", default)]
    pub(crate) holds_for: Option<String>,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    severity: Severity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Critical,
    Warning,
    Info,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotations {
    summary: String,
    description: String,
    /// Short instruction on what to do.
    action: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "name")]
    _name: String,
    rules: Vec<Rule>,
}

/// Path of the rules.
pub(crate) fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy/monitoring/rules.yaml")
}

/// Text of the rules.
pub(crate) fn text() -> String {
    std::fs::read_to_string(file()).expect("the rules are there")
}

/// All rules.
pub(crate) fn all() -> Vec<Rule> {
    let file: File = serde_saphyr::from_str(&text()).unwrap_or_else(|error| panic!("{error}"));
    file.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// Rules whose conditions need not last, for tests that cannot wait.
pub(crate) fn impatient() -> String {
    let last = Regex::new(r"\n +for: \w+").unwrap();
    let window = Regex::new(r"\[\d+m\]").unwrap();
    let text = text();
    window.replace_all(&last.replace_all(&text, ""), "[5s]").into_owned()
}

#[test]
fn promtool_takes_the_rules() {
    promtool_accepts(&["check", "rules", "--lint=all", "--lint-fatal"], &file());
}

#[test]
fn each_alert_says_what_happens_and_what_to_do() {
    let rules = all();
    let names: BTreeSet<&str> = rules.iter().map(|rule| rule.alert.as_str()).collect();
    assert_eq!(names.len(), rules.len(), "a name is there twice");
    for Rule { alert, annotations, .. } in &rules {
        let Annotations { summary, description, action } = annotations;
        assert!(alert.starts_with("Sheave"), "{alert}");
        assert!(!summary.ends_with('.') && summary.len() < 120, "{alert}: {summary}");
        assert!(description.ends_with('.') && action.ends_with('.'), "{alert}: {description} {action}");
    }
    let critical = rules.iter().filter(|rule| rule.labels.severity == Severity::Critical);
    assert!(critical.count() < rules.len() / 2, "not everything can be urgent");
}

#[test]
fn impatient_rules_are_the_same_without_their_waiting() {
    let text = impatient();
    assert!(!text.contains("for: ") && !text.contains("m]") && text.contains("[5s]"), "{text}");
}
