//! Patch formats other than apply.

mod strategic;

use serde_json::Value;

use crate::apiserver::status::Status;
pub(super) use strategic::strategic;

/// RFC 6902. Any mismatch is a 422 without details.
pub(super) fn json_patched(live: &Value, patch: &Value) -> Result<Value, Status> {
    if !patch.is_array() {
        return Err(unreadable(patch, "[]handlers.jsonPatchOp"));
    }
    let refused = || {
        let text = "the server rejected our request due to an error in our request";
        Status::new(422, "Invalid", text).about("", "", "")
    };
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|_| refused())?;
    let mut object = live.clone();
    json_patch::patch(&mut object, &patch).map_err(|_| refused())?;
    Ok(object)
}

/// RFC 7396. As in `evanphx/json-patch`, nulls inside of lists remove fields as well.
pub(super) fn merge_patched(live: &Value, patch: &Value) -> Result<Value, Status> {
    if !patch.is_object() {
        return Err(unreadable(patch, "map[string]interface {}"));
    }
    let mut object = live.clone();
    let mut patch = patch.clone();
    drop_nulls_in_lists(&mut patch, false);
    json_patch::merge(&mut object, &patch);
    Ok(object)
}

fn drop_nulls_in_lists(value: &mut Value, in_list: bool) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !in_list || !value.is_null());
            fields.values_mut().for_each(|value| drop_nulls_in_lists(value, in_list));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls_in_lists(item, true)),
        _ => {}
    }
}

/// 400 with the text of Go's decoder.
fn unreadable(patch: &Value, go_type: &str) -> Status {
    let found = match patch {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let why = format!("json: cannot unmarshal {found} into Go value of type {go_type}");
    Status::bad_request(format!("error decoding patch: {why}"))
}
