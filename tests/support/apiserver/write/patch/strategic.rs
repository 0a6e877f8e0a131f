//! Strategic merge patch, after k8s.io/apimachinery `util/strategicpatch`: objects merge by field, keyed lists by
//! key, sets of scalars by value; directives begin with `$`.

use serde_json::{Map, Value};

use super::super::schema::{ListKind, Schema};
use crate::apiserver::status::Status;

const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";

/// Applies a strategic merge patch to the live object.
pub(crate) fn strategic(schema: &Schema, live: &Value, patch: &Value) -> Result<Value, Status> {
    let Value::Object(patch) = patch else {
        return Err(super::unreadable(patch, "map[string]interface {}"));
    };
    let none = Map::new();
    merged(schema, live.as_object().unwrap_or(&none), patch).map(Value::Object)
}

fn merged(
    schema: &Schema,
    live: &Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, Status> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            return Ok(patch.iter().filter(|(name, _)| *name != "$patch").map(owned).collect());
        }
        Some("delete") => return Ok(Map::new()),
        _ => {}
    }
    let mut object = live.clone();
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM_LIST) {
            let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(items) = object.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
        } else if name.starts_with('$') {
            // $setElementOrder and $retainKeys only matter to clients that track their last applied manifest.
        } else if value.is_null() {
            object.remove(name);
        } else {
            let member = schema.member(name).unwrap_or(&Schema::Opaque);
            let value = merged_value(member, object.get(name), value)?;
            object.insert(name.clone(), value);
        }
    }
    Ok(object)
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn merged_value(schema: &Schema, live: Option<&Value>, patch: &Value) -> Result<Value, Status> {
    match (schema, patch) {
        (_, Value::Object(patch)) => {
            let none = Map::new();
            let live = live.and_then(Value::as_object).unwrap_or(&none);
            merged(schema, live, patch).map(Value::Object)
        }
        (Schema::List(items, kind), Value::Array(patch)) if !matches!(kind, ListKind::Atomic) => {
            let live = live.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            merged_list(items, kind, live, patch).map(Value::Array)
        }
        _ => Ok(patch.clone()),
    }
}

fn merged_list(
    items: &Schema,
    kind: &ListKind,
    live: &[Value],
    patch: &[Value],
) -> Result<Vec<Value>, Status> {
    let key = match kind {
        ListKind::Keyed { patch_key, .. } => Some(patch_key.as_str()),
        ListKind::Atomic | ListKind::Set => None,
    };
    let same = |one: &Value, other: &Value| match key {
        Some(key) => one.get(key) == other.get(key),
        None => one == other,
    };
    if let Some(key) = key
        && let Some(lost) = patch.iter().find(|item| item.get(key).is_none() && item.get("$patch").is_none())
    {
        let shown = go_map(lost);
        return Err(Status::plain_error(format!("map: {shown} does not contain declared merge key: {key}")));
    }
    let directive = |item: &Value| item.get("$patch").and_then(Value::as_str).map(str::to_owned);
    if patch.iter().any(|item| item.get("$patch").is_some_and(|word| word == "replace")) {
        return Ok(patch.iter().filter(|item| directive(item).is_none()).cloned().collect());
    }
    let deleted = |item: &Value| {
        patch.iter().any(|gone| directive(gone).as_deref() == Some("delete") && same(item, gone))
    };
    let live: Vec<&Value> = live.iter().filter(|item| !deleted(item)).collect();
    let mut patched = Vec::new();
    for item in patch.iter().filter(|item| directive(item).is_none()) {
        let old = live.iter().find(|old| same(old, item)).copied();
        patched.push(merged_value(items, old, item)?);
    }
    let kept: Vec<&Value> =
        live.iter().filter(|old| !patched.iter().any(|new| same(old, new))).copied().collect();
    let place = |item: &Value| live.iter().position(|old| same(old, item));
    Ok(in_order(patched, kept, place))
}

/// Merges both lists in the order of the live list. New elements precede what follows them.
fn in_order(patched: Vec<Value>, kept: Vec<&Value>, place: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut kept = kept.into_iter().peekable();
    let mut woven = Vec::new();
    for item in patched {
        if let Some(here) = place(&item) {
            while let Some(before) = kept.next_if(|old| place(old).is_some_and(|there| there < here)) {
                woven.push(before.clone());
            }
        }
        woven.push(item);
    }
    woven.extend(kept.cloned());
    woven
}

/// Formats an object like a map in Go.
fn go_map(value: &Value) -> String {
    let fields: Vec<String> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            format!("{name}:{}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        })
        .collect();
    format!("map[{}]", fields.join(" "))
}
