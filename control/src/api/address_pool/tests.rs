//! The definition must agree with the types.

use serde_json::{Map, Value, json};

use super::*;

fn definition() -> Value {
    serde_saphyr::from_str(include_str!("../../../../deploy/base/crd.yaml")).unwrap()
}

/// The schema of the one version that is served.
fn schema() -> Value {
    definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// An object in which every field has a value that is not the default. The literals name each field, so that a new one is not
/// left out.
fn full() -> AddressPool {
    let selector: LabelSelector = serde_json::from_value(json!({
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
    }))
    .unwrap();
    let condition: Condition = serde_json::from_value(json!({
        "type": "Ready", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }))
    .unwrap();
    AddressPool {
        metadata: ObjectMeta::default(),
        spec: AddressPoolSpec {
            addresses: vec!["192.0.2.1".to_owned()],
            from_gateway_nodes: true,
            priority: 1,
            auto_assign: false,
            avoid_buggy_ips: true,
            sharing: Sharing::Cluster,
            max_per_service: 1,
            namespace_selector: Some(selector.clone()),
            service_selector: Some(selector.clone()),
            announce: Some(PoolAnnouncement {
                node_selector: Some(selector),
                interfaces: vec!["eth1".to_owned()],
            }),
        },
        status: Some(AddressPoolStatus { used: 1, free: 1, conditions: vec![condition] }),
    }
}

/// Differences in fields and types between a schema and a value that has all fields.
fn compare(path: &str, schema: &Value, value: &Value, found: &mut Vec<String>) {
    let of_value = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::Null => "null",
    };
    if schema["type"] != of_value {
        found.push(format!("{path}: {} in the definition, {of_value} in Rust", schema["type"]));
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        values.iter().for_each(|value| compare(&format!("{path}[]"), items, value, found));
    }
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    if schema.get("additionalProperties").is_some() {
        return;
    }
    let fields = value.as_object().unwrap_or(&none);
    for name in fields.keys().filter(|name| !properties.contains_key(*name)) {
        found.push(format!("{path}.{name}: not in the definition"));
    }
    for (name, property) in properties {
        match fields.get(name) {
            Some(value) => compare(&format!("{path}.{name}"), property, value, found),
            None => found.push(format!("{path}.{name}: not in Rust")),
        }
    }
}

#[test]
fn the_definition_has_the_fields_and_types_of_rust() {
    let mut value = serde_json::to_value(full()).unwrap();
    for of_all_kinds in ["apiVersion", "kind", "metadata"] {
        assert!(value.as_object_mut().unwrap().remove(of_all_kinds).is_some(), "{of_all_kinds}");
    }
    let mut found = Vec::new();
    compare("", &schema(), &value, &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_definition_requires_the_fields_that_rust_requires() {
    let schema = schema();
    assert_eq!(schema["required"], json!(["spec"]));
    let value = serde_json::to_value(full()).unwrap();
    for of in ["/spec", "/spec/announce", "/status"] {
        let at = of.replace('/', "/properties/");
        assert_eq!(schema.pointer(&format!("{at}/required")), None, "{of}");
        for name in value.pointer(of).unwrap().as_object().unwrap().keys() {
            let mut without = value.clone();
            without.pointer_mut(of).unwrap().as_object_mut().unwrap().remove(name);
            assert!(serde_json::from_value::<AddressPool>(without).is_ok(), "{of}/{name}");
        }
    }
}

#[test]
fn the_definition_has_the_limits_of_rust() {
    let schema = schema();
    let spec = &schema["properties"]["spec"]["properties"];
    let per_service = &spec["maxPerService"];
    let limits = [per_service["minimum"].as_f64(), per_service["maximum"].as_f64()];
    assert_eq!(limits, [PER_SERVICE.start(), PER_SERVICE.end()].map(|limit| Some(f64::from(*limit))));
    assert_eq!(spec["priority"]["maximum"].as_f64(), Some(f64::from(u32::MAX)));
    assert_eq!(spec["announce"]["properties"]["interfaces"]["maxItems"], MAX_INTERFACES);
    let sharing = [Sharing::Namespace, Sharing::Cluster].map(|it| serde_json::to_value(it).unwrap());
    assert_eq!(spec["sharing"]["enum"], json!(sharing));
}

/// An object with the defaults of the schema's properties, as the API server fills them in.
fn defaults(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().unwrap();
    let given = properties.iter().filter_map(|(name, property)| Some((name, property.get("default")?)));
    Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

#[test]
fn the_constants_name_the_defined_kind() {
    let spec = &definition()["spec"];
    assert_eq!(
        format!("{}/{}", spec["group"].as_str().unwrap(), spec["versions"][0]["name"].as_str().unwrap()),
        API_VERSION
    );
    assert_eq!(
        (&spec["names"]["kind"], &spec["names"]["plural"]),
        (&json!(KIND), &json!(AddressPool::URL_PATH_SEGMENT))
    );
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
