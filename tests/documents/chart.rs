//! Generated tables of the chart's document: its values by their comments, and the values of MetalLB's chart by the cases of
//! `tests/deploy/chart/values.yaml`.

use serde_json::Value;

use crate::document::read;
use crate::tables::{check, table};

const DOCUMENT: &str = "deploy/helm/sheave/README.md";
const VALUES: &str = "deploy/helm/sheave/values.yaml";
const CASES: &str = "tests/deploy/chart/values.yaml";

#[test]
fn values_of_the_chart_are_listed() {
    let defaults: Value = serde_saphyr::from_str(&read(VALUES)).unwrap();
    let rows: Vec<_> = documented()
        .into_iter()
        .map(|(name, meaning)| {
            let default = defaults.pointer(&format!("/{}", name.replace('.', "/"))).expect("its default");
            vec![format!("`{name}`"), format!("`{default}`"), meaning]
        })
        .collect();
    check(DOCUMENT, "values", &table("value | default | meaning", &rows));
}

#[test]
fn each_value_of_the_chart_has_a_case() {
    let cases = cases();
    let set: Vec<&str> =
        list(&cases["values"]).iter().flat_map(|case| texts(&case["set"])).map(name_of).collect();
    let elsewhere = texts(&cases["elsewhere"]);
    for (name, _) in documented() {
        let has_case = set.iter().any(|set| is_within(set, &name)) || elsewhere.contains(&name.as_str());
        assert!(has_case, "{CASES} has no case for {name}");
    }
}

#[test]
fn values_of_metallb_are_listed() {
    let (cases, documented) = (cases(), documented());
    let ours_of = |case: &Value| match case.get("ours") {
        Some(ours) => joined(&texts(ours)),
        None => {
            let set = name_of(texts(&case["set"])[0]);
            let ours = documented.iter().map(|(name, _)| name.as_str()).find(|name| is_within(set, name));
            joined(&[ours.unwrap_or_else(|| panic!("{set} is no value"))])
        }
    };
    let with = list(&cases["values"]).iter().filter(|case| case.get("metallb").is_some()).map(|case| {
        let remark = case["remark"].as_str().unwrap_or_default();
        vec![joined(&texts(&case["metallb"])), ours_of(case), remark.to_owned()]
    });
    let without = list(&cases["without"]).iter().map(|row| {
        let why = row["why"].as_str().expect("a reason");
        vec![joined(&texts(&row["metallb"])), "none".to_owned(), why.to_owned()]
    });
    let rows: Vec<_> = with.chain(without).collect();
    check(DOCUMENT, "metallb", &table("MetalLB | here | remarks", &rows));
}

fn cases() -> Value {
    serde_saphyr::from_str(&read(CASES)).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).expect("a list")
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().map(|text| text.as_str().expect("text")).collect()
}

/// Name of the value that an argument of `--set` sets.
fn name_of(set: &str) -> &str {
    set.split_once('=').expect("a value").0
}

/// Whether a name is that of a documented value, or of a part of it.
fn is_within(name: &str, documented: &str) -> bool {
    let rest = name.strip_prefix(documented);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn joined(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Values of the chart with the comments that document them.
fn documented() -> Vec<(String, String)> {
    let (mut found, mut path, mut comment) = (Vec::new(), Vec::new(), None::<String>);
    for line in read(VALUES).lines() {
        let content = line.trim_start();
        if let Some(text) = content.strip_prefix("# -- ") {
            comment = Some(text.to_owned());
        } else if let (Some(comment), Some(text)) = (&mut comment, content.strip_prefix("# ")) {
            *comment += &format!(" {text}");
        } else if let Some((key, rest)) = content.split_once(':').filter(|_| !content.starts_with('#')) {
            path.truncate((line.len() - content.len()) / 2);
            path.push(key.to_owned());
            match comment.take() {
                Some(comment) => found.push((path.join("."), comment)),
                None => assert!(rest.is_empty(), "{VALUES} does not say what this is: {line}"),
            }
        }
    }
    assert!(found.len() > 100, "{found:?}");
    found
}
