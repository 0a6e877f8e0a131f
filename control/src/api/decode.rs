//! Decoding of a plain value into a typed object, with the path of a wrong value and the fields that the type does not have.

pub(crate) mod field_path;
pub(crate) mod known_fields;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use self::field_path::{FieldPath, Step};
use crate::text;
use crate::text::{MAX_MESSAGE_BYTES, cut_middle};

/// An object, and the fields of the document that its type does not have.
#[derive(Debug)]
pub(crate) struct Typed<T> {
    pub(crate) object: T,
    pub(crate) unknown: Vec<UnknownField>,
}

/// A field that the type does not have. The API server rejects it under `kubectl`'s default strict validation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownField {
    pub(crate) path: FieldPath,
    /// The field name that was probably meant.
    pub(crate) suggestion: Option<&'static str>,
}

/// A value that does not fit its field.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub(crate) struct FieldError {
    pub(crate) path: FieldPath,
    pub(crate) message: String,
}

/// Removes fields whose value is null. Go's decoder, and so the API server, treats null as absent for every type; the API server
/// even stores and returns conditions with `lastTransitionTime: null`.
pub(crate) fn drop_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    fields.values_mut().for_each(drop_nulls_inside);
}

fn drop_nulls_inside(value: &mut Value) {
    match value {
        Value::Object(fields) => drop_nulls(fields),
        Value::Array(elements) => elements.iter_mut().for_each(drop_nulls_inside),
        _ => {}
    }
}

/// Sets Go's zero time in conditions of a Service that have no time. The API server accepts and returns such conditions, but our
/// type requires the field.
pub(crate) fn complete_conditions(service: &mut Map<String, Value>) {
    let conditions = service.get_mut("status").and_then(|status| status.get_mut("conditions"));
    for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.entry("lastTransitionTime").or_insert_with(|| Value::from("0001-01-01T00:00:00Z"));
        }
    }
}

/// Decodes `value` as a `T` and ignores unknown fields: a newer API server has fields that our types lack.
pub(crate) fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, FieldError> {
    // Try the fast decoder first: there can be a hundred thousand objects, and almost none is invalid.
    T::deserialize(value).or_else(|_| {
        serde_path_to_error::deserialize(value).map_err(|error| FieldError {
            path: FieldPath::from(error.path()),
            message: bounded(error.inner().to_string()),
        })
    })
}

/// Decodes `value` as a `T` and lists its unknown fields.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<Typed<T>, FieldError> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    let read = serde_ignored::deserialize(tracked, |path| unknown.push(FieldPath::from(&path)));
    match read {
        Ok(object) => {
            let unknown = unknown.into_iter().map(|path| describe::<T>(path)).collect();
            Ok(Typed { object, unknown })
        }
        Err(error) => {
            let error: serde_json::Error = error;
            let mut message = bounded(error.to_string());
            // YAML reads some unquoted text as a number or a boolean (1.0, no).
            if error.is_data() && message.ends_with("expected a string") {
                message += "; put it in quotes";
            }
            Err(FieldError { path: FieldPath::from(&track.path()), message })
        }
    }
}

/// Shortens an error message: it quotes the value, which can be as long as an object.
fn bounded(message: String) -> String {
    cut_middle(message, MAX_MESSAGE_BYTES / 2)
}

fn describe<T: DeserializeOwned>(path: FieldPath) -> UnknownField {
    let suggestion = match path.0.split_last() {
        Some((Step::Key(name), parent)) => text::closest(name, known_fields::at::<T>(parent).iter().copied()),
        _ => None,
    };
    UnknownField { path, suggestion }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;

    use super::*;
    use crate::api::address_pool::AddressPool;

    fn refusal<T: DeserializeOwned>(value: &Value) -> (String, String) {
        let error = read::<T>(value).map(|_| ()).unwrap_err();
        (error.path.to_string(), error.message)
    }

    fn unknown<T: DeserializeOwned>(value: &Value) -> Vec<(String, Option<&'static str>)> {
        let unknown = read::<T>(value).unwrap().unknown;
        unknown.into_iter().map(|field| (field.path.to_string(), field.suggestion)).collect()
    }

    #[test]
    fn a_value_of_the_wrong_type_names_its_field() {
        let value = json!({"spec": {"ports": [{"port": 80}, {"port": "http"}]}});
        let (path, message) = refusal::<Service>(&value);
        assert_eq!(path, "spec.ports[1].port");
        assert_eq!(message, "invalid type: string \"http\", expected i32");
    }

    #[test]
    fn text_that_yaml_takes_for_something_else_comes_with_advice() {
        let (path, message) = refusal::<Service>(&json!({"metadata": {"labels": {"a.b/c": 1.5}}}));
        assert_eq!(path, "metadata.labels[\"a.b/c\"]");
        assert_eq!(message, "invalid type: floating point `1.5`, expected a string; put it in quotes");
    }

    #[test]
    fn numbers_that_overflow_are_refused_and_merely_wrong_ones_kept_as_they_are() {
        let (path, _) = refusal::<Service>(&json!({"spec": {"ports": [{"port": 99_999_999_999_i64}]}}));
        assert_eq!(path, "spec.ports[0].port");
        let read = read::<Service>(&json!({"spec": {"ports": [{"port": 99_999}]}})).unwrap();
        assert_eq!(read.object.spec.unwrap().ports.unwrap()[0].port, 99_999);
        assert_eq!(refusal::<AddressPool>(&json!({"spec": {"priority": -1}})).0, "spec.priority");
    }

    #[test]
    fn unknown_fields_are_found_at_any_depth_with_what_was_meant() {
        let service = json!({"spec": {"ports": [{"port": 80, "prot": 1}], "sessionAfinity": "None"}});
        assert_eq!(
            unknown::<Service>(&service),
            [
                ("spec.ports[0].prot".to_owned(), Some("port")),
                ("spec.sessionAfinity".to_owned(), Some("sessionAffinity"))
            ]
        );
        let slice = json!({"endpoints": [{"addresses": [], "conditions": {"redy": true}, "xyzzy": {}}]});
        assert_eq!(
            unknown::<EndpointSlice>(&slice),
            [
                ("endpoints[0].conditions.redy".to_owned(), Some("ready")),
                ("endpoints[0].xyzzy".to_owned(), None)
            ]
        );
        let pool = json!({"metadata": {}, "spec": {"addreses": [], "serviceSelector": {"matchLabel": {}}}});
        assert_eq!(
            unknown::<AddressPool>(&pool),
            [
                ("spec.addreses".to_owned(), Some("addresses")),
                ("spec.serviceSelector.matchLabel".to_owned(), Some("matchLabels"))
            ]
        );
    }

    #[test]
    fn keys_of_free_maps_are_never_unknown() {
        let service =
            json!({"metadata": {"labels": {"any": "thing"}}, "spec": {"selector": {"any": "thing"}}});
        assert!(unknown::<Service>(&service).is_empty());
    }

    #[test]
    fn null_is_as_good_as_absent_for_a_field_of_any_type() {
        let json =
            json!({"metadata": {"labels": {"a": null}}, "spec": {"ports": [{"port": 80, "name": null}]}});
        let mut fields = json.as_object().unwrap().clone();
        drop_nulls(&mut fields);
        let service = read::<Service>(&Value::Object(fields)).unwrap();
        assert_eq!(service.object.metadata.labels.map(|labels| labels.len()), Some(0));
    }

    #[test]
    fn a_slice_may_hold_null_where_its_lists_belong() {
        let slice = json!({"addressType": "IPv4", "endpoints": null, "ports": null});
        assert_eq!(read::<EndpointSlice>(&slice).unwrap().object.endpoints, None);
    }
}
