//! Comparison of the status of Gateway API objects, and what holds of all of them: conditions are about the current generation, and
//! messages name no object of another namespace.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::compare::list;
use crate::objects::name_of;

/// Keys of an entry that are no conditions.
const FIELDS: [&str; 5] =
    ["addresses", "attachedListenerSets", "attachedRoutes", "supportedFeatures", "supportedKinds"];
/// Kinds whose Problems users of one namespace read.
const KINDS: [&str; 5] = ["Gateway", "ListenerSet", "TCPRoute", "TLSRoute", "UDPRoute"];

/// Adds the differences from the entries that a case expects.
pub(crate) fn check(
    expected: &BTreeMap<String, Value>,
    objects: &[Value],
    routes: &Value,
    found: &mut Vec<String>,
) {
    let mut entries: BTreeMap<String, &Value> = BTreeMap::new();
    for entry in list(routes, "gatewayStatus") {
        let key = key(entry);
        if entries.insert(key.clone(), entry).is_some_and(|other| other != entry) {
            found.push(format!("{key}: is there twice"));
        }
    }
    for (key, expected) in expected {
        match (expected.as_object(), entries.get(key)) {
            (None, None) => {}
            (None, Some(entry)) => found.push(format!("{key}: there, but not expected: {entry}")),
            (Some(_), None) => found.push(format!("{key}: expected, but not there")),
            (Some(expected), Some(entry)) => {
                for (name, expected) in expected {
                    if let Some(got) = difference(name, expected, entry) {
                        found.push(format!("{key}: {name}: expected {expected}, got {got}"));
                    }
                }
            }
        }
    }
    generations(&entries, objects, found);
    foreign_names(&entries, objects, routes, found);
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Key of an entry: `Gateway shop/gw`, `Gateway shop/gw#listener`, or the route with its parentRef:
/// `TCPRoute shop/a@gw`, `@other-ns/gw#section:port`, `@ListenerSet more`.
fn key(entry: &Value) -> String {
    let mut key = text(entry, "object").to_owned();
    if let Some(listener) = entry.get("listener").and_then(Value::as_str) {
        key += &format!("#{listener}");
    }
    if let Some(parent) = entry.get("parentRef") {
        let part = |name: &str| parent.get(name).and_then(Value::as_str);
        key.push('@');
        part("kind").filter(|kind| *kind != "Gateway").into_iter().for_each(|it| key += &format!("{it} "));
        part("namespace").into_iter().for_each(|it| key += &format!("{it}/"));
        key += part("name").unwrap_or_default();
        part("sectionName").into_iter().for_each(|it| key += &format!("#{it}"));
        parent.get("port").into_iter().for_each(|it| key += &format!(":{it}"));
    }
    key
}

/// What an entry has in place of the expected value; `None` if they agree.
fn difference(name: &str, expected: &Value, entry: &Value) -> Option<Value> {
    if FIELDS.contains(&name) {
        let got = entry.get(name).cloned().unwrap_or_default();
        return (got != *expected).then_some(got);
    }
    let condition = list(entry, "conditions").iter().find(|condition| text(condition, "type") == name);
    let Some(condition) = condition else { return (!expected.is_null()).then_some(Value::Null) };
    let summary = format!("{} {}", text(condition, "status"), text(condition, "reason"));
    let (wanted, parts) = match expected {
        Value::Array(parts) => parts.split_first()?,
        expected => (expected, [].as_slice()),
    };
    let told = |part: &Value| part.as_str().is_some_and(|part| text(condition, "message").contains(part));
    let agrees = wanted.as_str() == Some(summary.as_str()) && parts.iter().all(told);
    (!agrees).then(|| format!("{summary}: {}", text(condition, "message")).into())
}

fn generations(entries: &BTreeMap<String, &Value>, objects: &[Value], found: &mut Vec<String>) {
    let generation = |object: &Value| object.pointer("/metadata/generation").cloned();
    let known: BTreeMap<String, Option<Value>> =
        objects.iter().filter_map(|object| Some((name_of(object).ok()?, generation(object)))).collect();
    for (key, entry) in entries {
        let got = entry.get("observedGeneration").cloned();
        if known.get(text(entry, "object")).is_none_or(|generation| *generation != got) {
            found.push(format!("{key}: observedGeneration {got:?} is not that of the object"));
        }
    }
}

fn foreign_names(
    entries: &BTreeMap<String, &Value>,
    objects: &[Value],
    routes: &Value,
    found: &mut Vec<String>,
) {
    let namespaces = objects.iter().filter_map(|object| object.pointer("/metadata/namespace")?.as_str());
    let namespaces: BTreeSet<&str> = namespaces.collect();
    let mut check = |object: &str, message: &str| {
        let own = object.split_once(' ').and_then(|(_, name)| Some(name.split_once('/')?.0));
        let mut others = namespaces.iter().filter(|namespace| Some(**namespace) != own);
        if others.any(|namespace| message.contains(&format!("{namespace}/"))) {
            found.push(format!("{object}: a message names an object of another namespace: {message}"));
        }
    };
    for entry in entries.values() {
        list(entry, "conditions").iter().for_each(|it| check(text(entry, "object"), text(it, "message")));
    }
    for problem in list(routes, "problems") {
        let object = text(problem, "object");
        if object.split_once(' ').is_some_and(|(kind, _)| KINDS.contains(&kind)) {
            check(object, text(problem, "message"));
        }
    }
}
