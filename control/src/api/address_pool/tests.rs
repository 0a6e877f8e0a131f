//! The definition must agree with the types.

use kube::Resource as _;
use serde_json::{Map, Value, json};

use super::*;

/// The schema of the one version that is served.
fn schema() -> Value {
    let definition = serde_json::to_value(definition()).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// An object with the defaults of the schema's properties, as the API server fills them in.
fn defaults(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().unwrap();
    let given = properties.iter().filter_map(|(name, property)| Some((name, property.get("default")?)));
    Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

#[test]
fn the_constants_name_the_defined_kind() {
    assert_eq!((AddressPool::api_version(&()), AddressPool::kind(&())), (API_VERSION.into(), KIND.into()));
}

#[test]
fn an_omitted_field_means_the_same_in_the_api_in_files_and_in_rust() {
    let schema = schema();
    let served: AddressPoolSpec = serde_json::from_value(defaults(&schema["properties"]["spec"])).unwrap();
    let read: AddressPoolSpec = serde_json::from_value(json!({})).unwrap();
    assert_eq!((&served, &read), (&AddressPoolSpec::default(), &AddressPoolSpec::default()));
    let served: AddressPoolStatus =
        serde_json::from_value(defaults(&schema["properties"]["status"])).unwrap();
    assert_eq!(served, AddressPoolStatus::default());
}

#[test]
fn every_default_of_the_spec_is_in_the_schema() {
    // CEL rules read these fields: a rule that reads an absent field fails for every object.
    let served = defaults(&schema()["properties"]["spec"]);
    let rust = serde_json::to_value(AddressPoolSpec::default()).unwrap();
    assert_eq!(served, rust);
}

#[test]
fn every_field_is_described() {
    fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if property["description"].as_str().is_none_or(str::is_empty) {
                found.push(path.clone());
            }
            undescribed(&path, property, found);
        }
    }
    let mut found = Vec::new();
    undescribed("", &schema(), &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn formats_are_those_that_the_api_knows() {
    let text = schema().to_string();
    for format in text.split(r#""format":""#).skip(1) {
        let format = format.split('"').next().unwrap();
        assert!(["int64", "date-time"].contains(&format), "{format}");
    }
}
