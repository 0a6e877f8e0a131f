//! Differences between two routing tables, as `sheave diff` shows them. JSON keys may be added, but are never renamed.

mod shares;

use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value};

use super::View;
use super::escape;
use super::problem::{LISTED, ProblemView};
use super::routes::{BackendView, EndpointView, FrontendView, PartView, RouteView, RoutesView};
use super::text_table::or_dash;

/// Differences.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiffView {
    /// Added frontends, by place.
    pub(crate) added: Vec<FrontendView>,
    /// Removed frontends, by place.
    pub(crate) removed: Vec<FrontendView>,
    /// Changed frontends, by place.
    pub(crate) changed: Vec<FrontendDiff>,
    /// Number of unchanged frontends.
    pub(crate) unchanged: usize,
    /// Addresses that had no frontend before.
    pub(crate) addresses_added: Vec<String>,
    /// Addresses that no longer have a frontend.
    pub(crate) addresses_removed: Vec<String>,
    /// New Problems.
    pub(crate) problems_added: Vec<ProblemView>,
    /// Solved Problems.
    pub(crate) problems_removed: Vec<ProblemView>,
}

/// Changes of one frontend.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrontendDiff {
    /// `address:port/protocol`, IPv6 in brackets.
    pub(crate) frontend: String,
    /// `namespace/name`, after the change.
    pub(crate) service: String,
    /// Changed fields, except endpoints.
    pub(crate) fields: Vec<FieldDiff>,
    pub(crate) endpoints_added: Vec<ClusterEndpoint>,
    pub(crate) endpoints_removed: Vec<ClusterEndpoint>,
    /// Changed endpoints, after the change.
    pub(crate) endpoints_changed: Vec<ClusterEndpoint>,
    /// Minimum share of new connections from outside the cluster that go to another endpoint than before: 0 to 1.
    pub(crate) moved: f64,
}

/// Changed field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FieldDiff {
    /// Key as in `sheave routes -o json`.
    pub(crate) field: String,
    pub(crate) old: Value,
    pub(crate) new: Value,
}

impl FieldDiff {
    /// Both values in short form.
    pub(crate) fn texts(&self) -> (String, String) {
        (plain(&self.old), plain(&self.new))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ClusterEndpoint {
    /// Backend of the route that it belongs to; only if the frontend is split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    /// Name of its cluster.
    pub(crate) cluster: String,
    #[serde(flatten)]
    pub(crate) endpoint: EndpointView,
}

/// Fields of a frontend that are compared separately, or that manifests do not have.
const NOT_FIELDS: [&str; 8] =
    ["address", "port", "protocol", "external", "internal", "backends", "split", "closed"];

/// Field with what happens to clients outside the cluster.
const EXTERNAL_ACTION: &str = "external.action";

impl View for DiffView {}

impl DiffView {
    /// Compares two tables.
    pub(crate) fn new(old: &RoutesView, new: &RoutesView) -> Self {
        let (before, after) = (by_place(old), by_place(new));
        let both = || after.iter().filter_map(|(place, new)| Some((before.get(place)?, new)));
        let changed: Vec<FrontendDiff> =
            both().filter_map(|(old, new)| FrontendDiff::new(old, new)).collect();
        let (had, has) = (addresses(old), addresses(new));
        Self {
            added: without(&after, &before),
            removed: without(&before, &after),
            unchanged: both().count() - changed.len(),
            changed,
            addresses_added: has.difference(&had).map(|&ip| ip.to_owned()).collect(),
            addresses_removed: had.difference(&has).map(|&ip| ip.to_owned()).collect(),
            problems_added: problems_of(new, old),
            problems_removed: problems_of(old, new),
        }
    }

    /// Whether nothing differs, including Problems.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { added, removed, changed, problems_added, problems_removed, .. } = self;
        added.is_empty()
            && removed.is_empty()
            && changed.is_empty()
            && problems_added.is_empty()
            && problems_removed.is_empty()
    }

    /// Text for people: a line for each frontend, followed by its changes.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (sign, frontends) in [('-', &self.removed), ('+', &self.added)] {
            for frontend in frontends {
                let FrontendView { source, service, external, .. } = frontend;
                line(
                    &mut text,
                    format_args!("{sign} {}  {source} {service}  {}", frontend.place(), outcome(external)),
                );
            }
        }
        self.changed.iter().for_each(|changed| changed.write(&mut text));
        let used = [("new", &self.addresses_added), ("no longer used", &self.addresses_removed)];
        for (what, addresses) in used.into_iter().filter(|(_, addresses)| !addresses.is_empty()) {
            line(&mut text, format_args!("Addresses {what}: {}", addresses.join(", ")));
        }
        let problems = [
            ("Problems that come", &self.problems_added),
            ("Problems that are solved", &self.problems_removed),
        ];
        for (what, problems) in problems.into_iter().filter(|(_, problems)| !problems.is_empty()) {
            line(&mut text, format_args!("{what}:"));
            problems.iter().take(LISTED).for_each(|problem| line(&mut text, format_args!("  {problem}")));
            if problems.len() > LISTED {
                line(&mut text, format_args!("  and {} more", problems.len() - LISTED));
            }
        }
        let (added, removed, changed) = (self.added.len(), self.removed.len(), self.changed.len());
        let unchanged = self.unchanged;
        line(
            &mut text,
            format_args!(
                "Frontends: {added} added, {removed} removed, {changed} changed, {unchanged} unchanged"
            ),
        );
        text
    }
}

impl FrontendDiff {
    /// Compares two frontends; `None` if they are equal.
    fn new(old: &FrontendView, new: &FrontendView) -> Option<Self> {
        let (had, has) = (endpoints(old), endpoints(new));
        let kept = |(key, endpoint): (&EndpointKey, &ClusterEndpoint)| {
            had.get(key).is_some_and(|old| old != endpoint).then(|| endpoint.clone())
        };
        let diff = Self {
            frontend: new.place(),
            service: new.service.clone(),
            fields: fields(old, new),
            endpoints_added: without(&has, &had),
            endpoints_removed: without(&had, &has),
            endpoints_changed: has.iter().filter_map(kept).collect(),
            moved: shares::moved(old, new),
        };
        let Self { fields, endpoints_added, endpoints_removed, endpoints_changed, .. } = &diff;
        let same = fields.is_empty()
            && endpoints_added.is_empty()
            && endpoints_removed.is_empty()
            && endpoints_changed.is_empty();
        (!same).then_some(diff)
    }

    fn write(&self, text: &mut String) {
        line(text, format_args!("~ {}  {}", self.frontend, self.service));
        for changed in &self.fields {
            let (old, new) = changed.texts();
            line(text, format_args!("    {}: {old} -> {new}", changed.field));
        }
        let endpoints =
            [('-', &self.endpoints_removed), ('+', &self.endpoints_added), ('~', &self.endpoints_changed)];
        for (sign, endpoints) in endpoints {
            for ClusterEndpoint { backend, cluster, endpoint } in endpoints {
                let EndpointView { address, node, state, weight, .. } = endpoint;
                let node = or_dash(node);
                let backend = backend.as_ref().map(|backend| format!("{backend}, ")).unwrap_or_default();
                line(
                    text,
                    format_args!(
                        "    {sign} {address}  {backend}cluster {cluster}, node {node}, {state}, weight {weight}"
                    ),
                );
            }
        }
        // A change of the action is already listed, and decides whether there are connections at all.
        let forwards = !self.fields.iter().any(|it| it.field == EXTERNAL_ACTION);
        match (self.moved * 100.0).round() {
            100.0 if forwards => line(text, format_args!("    all new connections go to another endpoint")),
            percent if percent > 0.0 && forwards => {
                line(text, format_args!("    {percent} % or more of new connections go to another endpoint"));
            }
            _ => {}
        }
    }
}

/// Identity of a frontend, or of one of its server names, in the order of a routing table.
type TablePlace = (IpAddr, u16, String, Vec<String>);

fn by_place(view: &RoutesView) -> BTreeMap<TablePlace, Cow<'_, FrontendView>> {
    let place = |frontend: &FrontendView| {
        Some((
            frontend.address.parse().ok()?,
            frontend.port,
            frontend.protocol.clone(),
            frontend.names.clone(),
        ))
    };
    let frontends = view.frontends.iter().flat_map(FrontendView::of_names);
    frontends.filter_map(|frontend| Some((place(&frontend)?, frontend))).collect()
}

fn addresses(view: &RoutesView) -> BTreeSet<&str> {
    view.frontends.iter().map(|frontend| frontend.address.as_str()).collect()
}

/// Problems that the other view does not have, ignoring their position in files.
fn problems_of(view: &RoutesView, other: &RoutesView) -> Vec<ProblemView> {
    let anywhere = |problem: &ProblemView| ProblemView {
        object: problem.object.clone(),
        reason: problem.reason.clone(),
        message: problem.message.clone(),
        port: problem.port.clone(),
        field: problem.field.clone(),
        ..ProblemView::default()
    };
    let known: BTreeSet<ProblemView> = other.problems.iter().map(anywhere).collect();
    view.problems.iter().filter(|problem| !known.contains(&anywhere(problem))).cloned().collect()
}

/// Backend, cluster and address.
type EndpointKey = (Option<String>, String, String);

fn endpoints(frontend: &FrontendView) -> BTreeMap<EndpointKey, ClusterEndpoint> {
    let of_backend = frontend.all_backends().flat_map(|(part, backend)| {
        backend.endpoints.iter().map(move |endpoint| {
            let (part, cluster) = (part.map(str::to_owned), backend.cluster.clone());
            let key = (part.clone(), cluster.clone(), endpoint.address.clone());
            (key, ClusterEndpoint { backend: part, cluster, endpoint: endpoint.clone() })
        })
    });
    of_backend.collect()
}

/// Values whose keys only the first map has.
fn without<K: Ord, V: Borrow<T>, T: Clone>(these: &BTreeMap<K, V>, those: &BTreeMap<K, V>) -> Vec<T> {
    these.iter().filter(|(key, _)| !those.contains_key(key)).map(|(_, it)| it.borrow().clone()).collect()
}

/// All differing fields except endpoints. Compares the JSON keys, so that none is forgotten.
fn fields(old: &FrontendView, new: &FrontendView) -> Vec<FieldDiff> {
    let (before, after) = (object(old), object(new));
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value = |object: &Map<String, Value>, key: &str| object.get(key).cloned().unwrap_or_default();
    let mut fields: Vec<FieldDiff> = keys
        .into_iter()
        .filter(|key| !NOT_FIELDS.contains(&key.as_str()))
        .map(|key| FieldDiff { field: key.clone(), old: value(&before, key), new: value(&after, key) })
        .collect();
    let routes =
        [(EXTERNAL_ACTION, &old.external, &new.external), ("internal.action", &old.internal, &new.internal)];
    for (field, old, new) in routes {
        let action = |route: &RouteView| Value::from(route.action.clone());
        fields.push(FieldDiff { field: field.to_owned(), old: action(old), new: action(new) });
    }
    fields.push(FieldDiff {
        field: "clusters".to_owned(),
        old: clusters(&old.backends),
        new: clusters(&new.backends),
    });
    fields.push(FieldDiff { field: "split".to_owned(), old: split(old), new: split(new) });
    fields.extend(old.parts().iter().flat_map(|part| {
        let now = new.parts().iter().find(|now| now.reference == part.reference);
        now.map(|now| pool_fields(part, now)).unwrap_or_default()
    }));
    fields.retain(|field| field.old != field.new);
    fields
}

/// Fields of what a part forwards to, except endpoints.
fn pool_fields(old: &PartView, new: &PartView) -> Vec<FieldDiff> {
    let (Some(before), Some(after)) = (&old.pool, &new.pool) else { return Vec::new() };
    let (before, after) = (object(before), object(after));
    let field = |name: &str| format!("split.{}.{name}", new.reference);
    let keys = after.keys().filter(|key| !NOT_FIELDS.contains(&key.as_str()));
    let mut fields: Vec<FieldDiff> = keys
        .map(|key| FieldDiff {
            field: field(key),
            old: before.get(key).cloned().unwrap_or_default(),
            new: after.get(key).cloned().unwrap_or_default(),
        })
        .collect();
    let (old, new) = (clusters(old.backends()), clusters(new.backends()));
    fields.push(FieldDiff { field: field("clusters"), old, new });
    fields
}

/// Weights of the parts, and why some are refused.
fn split(frontend: &FrontendView) -> Value {
    let text = |part: &PartView| {
        let refused = part.refused.as_ref().map(|reason| format!(", refused: {reason}")).unwrap_or_default();
        format!("{} (weight {}{refused})", part.reference, part.weight)
    };
    frontend.parts().iter().map(text).collect::<Vec<_>>().join(", ").into()
}

fn object(view: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(view) {
        Ok(Value::Object(object)) => object,
        // Serialization fails only for maps with other keys than strings; there are none here.
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Weights and priorities of clusters.
fn clusters(backends: &[BackendView]) -> Value {
    let text = |backend: &BackendView| {
        format!("{} (weight {}, priority {})", backend.cluster, backend.weight, backend.priority)
    };
    backends.iter().map(text).collect::<Vec<_>>().join(", ").into()
}

/// Outcome for clients outside the cluster.
fn outcome(route: &RouteView) -> String {
    match (route.action.as_str(), route.endpoints.len()) {
        ("Forward", 1) => "1 endpoint".to_owned(),
        ("Forward", count) => format!("{count} endpoints"),
        ("Drop", _) => "drops packets".to_owned(),
        _ => "rejects connections".to_owned(),
    }
}

/// Value in short form.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => or_dash(text),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{key} {}", plain(value));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    *text += &escape::line(&arguments.to_string());
}

#[cfg(test)]
mod tests;
