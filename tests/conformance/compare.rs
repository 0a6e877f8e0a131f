//! Comparison of a case's expectations with the program's answer, in words. Knows the form of the JSON, but not the rules
//! behind it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value};

use crate::format::{Case, ExpectedProblem, Explanation};
use crate::gateway_status;
use crate::sheave::Input;

/// All differences from the case's expectations. `objects` are those of the gateways' own cluster.
pub(crate) fn check(case: &Case, objects: &[Value], input: &Input) -> Vec<String> {
    let routes = match input.routes() {
        Ok(routes) => routes,
        Err(error) => return vec![error],
    };
    let mut found = Vec::new();
    frontends(case, &routes, &mut found);
    problems("problems", &case.problems, &routes, &mut found);
    if let Some(not_served) = &case.not_served {
        problems("notServed", not_served, &routes, &mut found);
    }
    gateway_status::check(&case.conditions, objects, &routes, &mut found);
    by_service("status", &case.status, &routes, |entry| entry.get("ingress").cloned(), &mut found);
    by_service(
        "healthChecks",
        &case.health_checks,
        &routes,
        |entry| Some(without_service(entry)),
        &mut found,
    );
    for explanation in &case.explain {
        explain(explanation, input, &mut found);
    }
    found
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn frontends(case: &Case, routes: &Value, found: &mut Vec<String>) {
    let mut served: BTreeMap<String, &Value> = BTreeMap::new();
    for frontend in list(routes, "frontends") {
        let place = place(frontend);
        if served.insert(place.clone(), frontend).is_some() {
            found.push(format!("frontend {place}: is there twice"));
        }
    }
    for (place, keys) in &case.frontends {
        match served.remove(place) {
            Some(frontend) => compare_frontend(place, keys, frontend, found),
            None => found.push(format!("frontend {place}: expected, but not there")),
        }
    }
    found.extend(served.keys().map(|place| format!("frontend {place}: there, but not expected")));
}

/// `address:port/protocol`, IPv6 in brackets.
fn place(frontend: &Value) -> String {
    let text = |key: &str| frontend.get(key).and_then(Value::as_str).unwrap_or_default();
    let port = frontend.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    match (text("address").parse::<IpAddr>(), port) {
        (Ok(ip), Some(port)) => format!("{}/{}", SocketAddr::new(ip, port), text("protocol")),
        _ => format!("without an address or port: {frontend}"),
    }
}

fn compare_frontend(place: &str, keys: &Map<String, Value>, frontend: &Value, found: &mut Vec<String>) {
    let nothing = Value::Null;
    let mut compare = |key: &str, expected: &Value| {
        let got = frontend.get(key).unwrap_or(&nothing);
        let (equal, got) = match key {
            "external" | "internal" => {
                let got = short_route(got);
                (*expected == got, got)
            }
            "backends" => {
                let got = with_endpoints(got);
                (covers(expected, &got), got)
            }
            "split" => {
                let got = short_parts(got);
                (covers(expected, &got), got)
            }
            "serverNames" => (same_names(expected, got), got.clone()),
            // A missing key is not the same as null.
            _ => (frontend.get(key).is_some_and(|got| covers(expected, got)), got.clone()),
        };
        if !equal {
            found.push(format!("frontend {place}: {key}: expected {expected}, got {got}"));
        }
    };
    for (key, expected) in keys {
        match key.as_str() {
            "both" => ["external", "internal"].into_iter().for_each(|key| compare(key, expected)),
            key => compare(key, expected),
        }
    }
}

/// Route in the form of the case files: the list of endpoints, or the action.
fn short_route(route: &Value) -> Value {
    let part = |key: &str| route.get(key).cloned().unwrap_or_default();
    let (action, endpoints) = (part("action"), part("endpoints"));
    match (action.as_str(), endpoints.as_array().map(Vec::len)) {
        (Some("Forward"), Some(1..)) => endpoints,
        (Some("Reject" | "Drop"), Some(0)) => action,
        // Neither, which no expectation matches.
        _ => route.clone(),
    }
}

/// Backends with endpoints. Whether a cluster without any is listed says nothing about traffic.
fn with_endpoints(backends: &Value) -> Value {
    let Value::Array(backends) = backends else { return backends.clone() };
    let kept = backends.iter().filter(|backend| !list(backend, "endpoints").is_empty());
    kept.cloned().collect()
}

/// Parts of a split in the form of the case files: Services without their kind, and `endpoints` in addition to `backends`.
fn short_parts(parts: &Value) -> Value {
    let short = |part: &Value| {
        let mut part = part.clone();
        let endpoints = list(&part, "backends").iter().flat_map(|backend| list(backend, "endpoints"));
        let mut endpoints: Vec<Value> = endpoints.map(|endpoint| endpoint["address"].clone()).collect();
        endpoints.sort_unstable_by_key(Value::to_string);
        let backends = part.get("backends").map(with_endpoints);
        if let Some(name) = part["ref"].as_str().and_then(|name| name.strip_prefix("Service ")) {
            part["ref"] = name.into();
        }
        if let Some(backends) = backends {
            (part["backends"], part["endpoints"]) = (backends, endpoints.into());
        }
        part
    };
    parts.as_array().map(|parts| parts.iter().map(short).collect()).unwrap_or_default()
}

/// Whether exactly these server names lead somewhere, each to what is expected.
fn same_names(expected: &Value, got: &Value) -> bool {
    let (Value::Object(expected), Value::Object(got)) = (expected, got) else { return false };
    let same = |name: &String, expected: &Value| {
        let Some(Value::Object(got)) = got.get(name) else { return false };
        let mut keys = expected.as_object().into_iter().flatten();
        keys.all(|(key, expected)| match got.get(key) {
            Some(got) if key == "split" => covers(expected, &short_parts(got)),
            Some(got) => covers(expected, got),
            None => false,
        })
    };
    expected.len() == got.len() && expected.iter().all(|(name, expected)| same(name, expected))
}

/// Whether `got` contains everything in `expected`. Mappings may have more keys.
fn covers(expected: &Value, got: &Value) -> bool {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            expected.iter().all(|(key, expected)| got.get(key).is_some_and(|got| covers(expected, got)))
        }
        (Value::Array(expected), Value::Array(got)) => {
            expected.len() == got.len()
                && expected.iter().zip(got).all(|(expected, got)| covers(expected, got))
        }
        _ => expected == got,
    }
}

/// Compares the Problems, or entries of the same form, under `key`.
fn problems(key: &str, expected: &[ExpectedProblem], routes: &Value, found: &mut Vec<String>) {
    let got = list(routes, key);
    if expected.len() == got.len() && pair_up(expected, &got.iter().collect::<Vec<_>>()) {
        return;
    }
    let told = got.iter().map(|problem| format!("\n  {problem}")).collect::<String>();
    let wanted = expected.iter().map(|problem| format!("\n  {problem}")).collect::<String>();
    found.push(format!("{key}: expected {}:{wanted}\n{key}: got {}:{told}", expected.len(), got.len()));
}

/// Whether each expected Problem can be matched with a different one. Expectations may overlap, so all assignments are
/// tried.
fn pair_up(expected: &[ExpectedProblem], got: &[&Value]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return true };
    (0..got.len()).filter(|&index| first.matches(got[index])).any(|index| {
        let mut others = got.to_vec();
        others.remove(index);
        pair_up(rest, &others)
    })
}

impl ExpectedProblem {
    fn matches(&self, got: &Value) -> bool {
        let text = |key: &str| got.get(key).and_then(Value::as_str).unwrap_or_default();
        let port = got.get("port").map_or_else(String::new, |port| {
            let number = port.get("port").cloned().unwrap_or_default();
            format!("{number}/{}", port.get("protocol").and_then(Value::as_str).unwrap_or_default())
        });
        self.object == text("object")
            && self.reason == text("reason")
            && self.field.as_deref().is_none_or(|field| field == text("field"))
            && self.port.as_ref().is_none_or(|expected| *expected == port)
            && self.says.iter().all(|part| text("message").contains(part.as_str()))
    }
}

impl std::fmt::Display for ExpectedProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.object, self.reason)?;
        self.port.as_ref().map_or(Ok(()), |port| write!(f, ": port {port}"))?;
        self.field.as_ref().map_or(Ok(()), |field| write!(f, ": {field}"))?;
        self.says.iter().try_for_each(|part| write!(f, ": {part:?}"))
    }
}

/// Compares the entries of the list `key` for the Services, or `MultiClusterService namespace/name`, that the case names.
fn by_service(
    key: &str,
    expected: &BTreeMap<String, Value>,
    routes: &Value,
    read: impl Fn(&Value) -> Option<Value>,
    found: &mut Vec<String>,
) {
    if !expected.is_empty() && routes.get(key).is_none() {
        found.push(format!("{key}: `sheave routes` does not have this key"));
        return;
    }
    for (service, expected) in expected {
        let (source, name) = service.split_once(' ').unwrap_or(("Service", service));
        let is = |entry: &Value, key: &str, wanted: &str| entry.get(key).is_none_or(|value| value == wanted);
        let entries = list(routes, key).iter();
        let mut entries = entries.filter(|entry| is(entry, "source", source) && is(entry, "service", name));
        let got = entries.next().and_then(&read).unwrap_or_default();
        if entries.next().is_some() {
            found.push(format!("{key}: {service} is there twice"));
        } else if without_nulls(&got) != without_nulls(expected) {
            found.push(format!("{key}: {service}: expected {expected}\n{key}: {service}: got {got}"));
        }
    }
}

fn without_service(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.remove("service");
    }
    entry
}

/// Removes null values, which are equivalent to missing keys.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let given = fields.iter().filter(|(_, value)| !value.is_null());
            given.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

fn explain(explanation: &Explanation, input: &Input, found: &mut Vec<String>) {
    let question = explanation.args.join(" ");
    let answer = match input.explain(&explanation.args) {
        Ok(answer) => answer,
        Err(error) => return found.push(format!("explain {question}: {error}")),
    };
    if !covers(&explanation.expect, &answer) {
        found.push(format!(
            "explain {question}: expected {}\nexplain {question}: got {answer}",
            explanation.expect
        ));
    }
    for part in &explanation.reasons {
        let told = |reason: &Value| reason.as_str().is_some_and(|reason| reason.contains(part.as_str()));
        if !list(&answer, "reasons").iter().any(told) {
            found.push(format!("explain {question}: no reason says {part:?}: {answer}"));
        }
    }
}
