//! Target of a URL, and the RBAC verb of a request.

use std::collections::HashMap;

use super::kind::Kind;

/// Target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// An object or a collection.
    Resource(Target),
    /// Any other path.
    Other(String),
}

/// Object or collection of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    /// Plural.
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Target {
    /// `services/status`, as in RBAC rules.
    pub fn resource_with_subresource(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.clone(),
        }
    }

    /// `services`, or `leases.coordination.k8s.io`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

/// Query parameters of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(HashMap<String, String>);

impl Query {
    /// Parses what follows the `?`.
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        Self(pairs.collect())
    }

    /// A parameter; empty if absent.
    pub(super) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Whether a parameter is present, empty or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Whether a parameter is true. Empty is false, as in `strconv.ParseBool`.
    pub(super) fn is_on(&self, key: &str) -> bool {
        matches!(self.get(key), "1" | "t" | "T" | "true" | "TRUE" | "True")
    }
}

/// Decodes URL encoding.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, hex.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (byte, _) => {
                bytes.push(if byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Route {
    /// Parses a path, as in k8s.io/apiserver `pkg/endpoints/request/requestinfo.go`.
    pub(super) fn parse(path: &str) -> Self {
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Self::Other(path.to_owned()),
        };
        let (namespace, rest) = match rest {
            // Subresources of a namespace, not a collection in it.
            ["namespaces", _, "status" | "finalize"] | ["namespaces", _] | ["namespaces"] => (None, rest),
            ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let resource = rest.first().copied().unwrap_or("namespaces").to_owned();
        Self::Resource(Target {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace,
            resource,
            name: rest.get(1).map(|&name| name.to_owned()),
            subresource: (rest.len() > 2).then(|| rest[2..].join("/")),
        })
    }
}

/// RBAC verb of a request.
pub(super) fn verb(method: &str, target: Option<&Target>, query: &Query) -> String {
    let single = target.is_none_or(|target| target.name.is_some());
    let verb = match (method, single) {
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) if query.is_on("watch") => "watch",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "",
    };
    verb.to_owned()
}

/// The single name that a request for a collection selects, which RBAC uses as the name of the request.
pub(super) fn selected_name(query: &Query) -> Option<String> {
    let terms = query.get("fieldSelector").split(',');
    terms
        .filter_map(|term| term.strip_prefix("metadata.name="))
        .next()
        .map(|name| name.trim_start_matches('=').to_owned())
}

/// Whether the kind has the subresource of the URL.
pub(super) fn has_subresource(kind: &Kind, target: &Target) -> bool {
    target.subresource.as_ref().is_none_or(|name| kind.subresources.contains(name))
}
