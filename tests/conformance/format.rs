//! Format of the case files.
//!
//! ```yaml
//! about: One sentence on the topic, with the Kubernetes source of its rules.
//! config: {frontends: [LoadBalancer, NodePort]}   # keys of Sheave's configuration file; optional
//! node: gw-1                                      # the gateway's node; this is the default
//! objects: [...]                                  # of every case
//! karmada: [...]                                  # likewise, of the Karmada control plane; optional
//! cases:
//! - name: unready-endpoints-are-left-out          # a statement
//!   rule: Promise of Kubernetes, with its source.
//!   config: {}                                    # merged over the file's; optional
//!   node: gw-2                                    # instead of the file's; optional
//!   objects: [...]                                # merged over those of the file with the same kind and name, or added
//!   without: [EndpointSlice shop/web-1]           # objects of the file left out; optional
//!   karmada: [...]                                # merged as `objects`
//!   withoutKarmada: [Work karmada-es-member1/web-1]   # as `without`
//!   frontends:                                    # exactly these places; only the given keys of each are compared
//!     203.0.113.10:80/TCP: {external: [10.1.0.7:8080], internal: Drop, kind: LoadBalancer}
//!     "[2001:db8::1]:80/TCP": {both: Reject}      # external and internal alike
//!   problems:                                     # exactly as many, each matched by one of these; absent = none
//!   - {object: Service shop/web, reason: InvalidValue, field: "spec.ports[0].port", port: 80/TCP, says: [part, ...]}
//!   notServed: [{object: Service shop/web, reason: NotServed, says: [part, ...]}]   # as problems; absent = not compared
//!   conditions:                                   # of Gateway API objects; only the given keys are compared; null = absent; optional
//!     Gateway shop/gw: {Accepted: True Accepted, Programmed: [False AddressNotUsable, part of the message], addresses: [203.0.113.20]}
//!     "Gateway shop/gw#tcp": {attachedRoutes: 1, supportedKinds: [TCPRoute]}    # a listener
//!     "TCPRoute shop/a@gw#tcp:80": {ResolvedRefs: True ResolvedRefs}            # a parentRef, with its section and port if given
//!   status: {shop/web: [{ip: 203.0.113.10, ipMode: Proxy}]}     # by Service, or "MultiClusterService shop/web"; exact;
//!                                                 # null = nothing; optional
//!   healthChecks: {shop/web: {port: 32000, localEndpoints: {IPv4: 1}}}   # by Service, exact; null = none; optional
//!   explain:                                      # optional
//!   - {args: [shop/web, --client, 198.51.100.7], expect: {origin: external, endpoint: null}, reasons: [part, ...]}
//! ```
//!
//! Objects are merged by JSON Merge Patch (RFC 7386): mappings merge, null removes, everything else replaces. `apiVersion`
//! is optional, also in the manifests of a Work. The keys of a frontend are those of `sheave routes -o json`; only the given
//! keys are compared, also in mappings below them. `backends` without endpoints are ignored. Unknown keys are errors. A part of `split`
//! is `{ref: shop/web:80, weight: 1, endpoints: [...]}`, `backends` in place of `endpoints`, or `{ref: ..., refused: BackendNotFound}`.
//! `serverNames` has exactly the names that lead somewhere, each with the keys of a frontend.
//!
//! [`ranges`] describes `{1..64}`. Objects of the Gateway API get a generation each, which every condition must observe; one in a
//! status of the case has observed it unless it names another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ranges;

/// Valid keys of a frontend's expectation: those of the JSON, and `both` for external and internal alike.
const FRONTEND_KEYS: [&str; 23] = [
    "both",
    "external",
    "internal",
    "kind",
    "service",
    "portName",
    "source",
    "affinity",
    "sourceRanges",
    "admitsNobody",
    "backends",
    "appProtocol",
    "path",
    "balance",
    "clientSource",
    "acceptProxy",
    "limits",
    "connectionLog",
    "proxiedBy",
    "listener",
    "route",
    "split",
    "serverNames",
];

/// Case file.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) common: Common,
    pub(crate) cases: Vec<Case>,
}

/// Common part of a file's cases.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: Value,
    pub(crate) node: String,
    pub(crate) objects: Vec<Value>,
    pub(crate) karmada: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    about: String,
    #[serde(default = "empty")]
    config: Value,
    #[serde(default = "default_node")]
    node: String,
    objects: Vec<Value>,
    #[serde(default)]
    karmada: Vec<Value>,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) rule: String,
    #[serde(default = "empty")]
    pub(crate) config: Value,
    pub(crate) node: Option<String>,
    #[serde(default)]
    pub(crate) objects: Vec<Value>,
    #[serde(default)]
    pub(crate) without: Vec<String>,
    #[serde(default)]
    pub(crate) karmada: Vec<Value>,
    #[serde(default)]
    pub(crate) without_karmada: Vec<String>,
    pub(crate) frontends: BTreeMap<String, Map<String, Value>>,
    #[serde(default)]
    pub(crate) problems: Vec<ExpectedProblem>,
    pub(crate) not_served: Option<Vec<ExpectedProblem>>,
    #[serde(default)]
    pub(crate) conditions: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) status: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) health_checks: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) explain: Vec<Explanation>,
}

/// Expected Problem; missing fields are not compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedProblem {
    pub(crate) object: String,
    pub(crate) reason: String,
    pub(crate) field: Option<String>,
    pub(crate) port: Option<String>,
    #[serde(default)]
    pub(crate) says: Vec<String>,
}

/// Question for `sheave explain`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Explanation {
    pub(crate) args: Vec<String>,
    #[serde(default = "empty")]
    pub(crate) expect: Value,
    #[serde(default)]
    pub(crate) reasons: Vec<String>,
}

fn empty() -> Value {
    Value::Object(Map::new())
}

fn default_node() -> String {
    "gw-1".to_owned()
}

/// Parses a file, and checks what its types do not.
pub(crate) fn read(path: &Path) -> Result<Topic, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let text: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    let Text { about, config, node, objects, karmada, cases } =
        serde_json::from_value(ranges::expand(text)).map_err(|error| error.to_string())?;
    if about.trim().is_empty() {
        return Err("`about` is empty".to_owned());
    }
    let mut names = BTreeSet::new();
    for case in &cases {
        check(case).map_err(|error| format!("case {}: {error}", case.name))?;
        if !names.insert(case.name.as_str()) {
            return Err(format!("two cases are named {}", case.name));
        }
    }
    Ok(Topic { common: Common { config, node, objects, karmada }, cases })
}

fn check(case: &Case) -> Result<(), String> {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if case.name.is_empty() || !case.name.chars().all(plain) {
        return Err("a name is made of lower case letters, digits and hyphens".to_owned());
    }
    if case.rule.trim().is_empty() {
        return Err("a case without a rule proves nothing".to_owned());
    }
    for (place, keys) in &case.frontends {
        if let Some(unknown) = keys.keys().find(|key| !FRONTEND_KEYS.contains(&key.as_str())) {
            return Err(format!("frontend {place}: there is no key {unknown}"));
        }
        if keys.is_empty() {
            return Err(format!("frontend {place}: nothing is expected of it"));
        }
    }
    Ok(())
}
