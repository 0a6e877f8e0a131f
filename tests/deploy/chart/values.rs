//! Tests of each value of the chart. What a value changes is data: `values.yaml`. `tests/documents` sees that each value has a case.

use serde_json::{Value, json};

use super::{rendered, text};

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

#[test]
#[ignore = "needs helm"]
fn each_value_changes_what_it_is_for() {
    let cases = cases();
    let mut wrong = Vec::new();
    for case in list(&cases["values"]) {
        let values: Vec<&str> = list(&case["set"]).iter().map(text).collect();
        let name = text(&case["object"]);
        let objects = rendered("sheave-system", &values);
        let found = match (objects.get(name), case["path"].as_str()) {
            (object, None) => json!(object.is_some()),
            (Some(object), Some(path)) => {
                with_configuration(object).pointer(path).cloned().unwrap_or(Value::Null)
            }
            (None, Some(_)) => panic!("{values:?}: there is no {name}"),
        };
        if found != case["value"] {
            wrong.push(format!("{values:?}: {name} has {found}, not {}", case["value"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
