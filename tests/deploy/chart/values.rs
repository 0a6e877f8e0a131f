//! Tests of each value of the chart. What a value changes is data: `values.yaml`. `tests/documents` sees that each value has a case.

use std::thread;

use serde_json::{Value, json};

use super::{helm, objects, text};

fn cases() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/chart/values.yaml");
    let cases = std::fs::read_to_string(file).expect("the file of cases");
    serde_saphyr::from_str(&cases).expect("cases")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).expect("a list")
}

/// The object, with its configuration as an object as well.
fn with_configuration(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(config) = object.pointer_mut("/data/config.yaml") {
        *config = serde_saphyr::from_str(text(config)).expect("a configuration");
    }
    object
}

/// The rendered documents that mention a name. To read all thirty of them takes longer than to render them.
fn mentioning(name: &str, rendered: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(rendered);
    let documents: Vec<&str> = text.split("\n---\n").filter(|document| document.contains(name)).collect();
    documents.join("\n---\n").into_bytes()
}

/// How the chart differs from the case, if it does.
fn difference(case: &Value) -> Option<String> {
    let values: Vec<&str> = list(&case["set"]).iter().map(text).collect();
    let name = text(&case["object"]);
    let (_, own) = name.split_once(' ').expect("a kind and a name");
    let mut rendered = helm("sheave-system", &values);
    rendered.stdout = mentioning(own, &rendered.stdout);
    let objects = objects(&rendered, &values);
    let found = match (objects.get(name), case["path"].as_str()) {
        (object, None) => json!(object.is_some()),
        (Some(object), Some(path)) => {
            with_configuration(object).pointer(path).cloned().unwrap_or(Value::Null)
        }
        (None, Some(_)) => panic!("{values:?}: there is no {name}"),
    };
    (found != case["value"]).then(|| format!("{values:?}: {name} has {found}, not {}", case["value"]))
}

#[test]
#[ignore = "needs helm"]
fn each_value_changes_what_it_is_for() {
    let cases = cases();
    let cases = list(&cases["values"]);
    // Most of the time is helm's, which runs beside this process.
    let wrong: Vec<String> = thread::scope(|scope| {
        let parts = cases.chunks(cases.len().div_ceil(4));
        let readers: Vec<_> = parts
            .map(|part| scope.spawn(|| part.iter().filter_map(difference).collect::<Vec<_>>()))
            .collect();
        readers.into_iter().flat_map(|reader| reader.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}
