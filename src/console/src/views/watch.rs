//! Changes that `sheave watch` reports: the decision for a client of a Service, and the difference between two decisions. JSON keys
//! and kinds of changes may be added, but are never renamed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sheave_control::projection::explain::{ExplainView, ExplainedEndpoint};

use crate::views::explain::{Answer, headline};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WatchChange {
    pub(crate) change: ChangeKind,
    /// Name of an endpoint, address or Problem; null for properties that the Service has only once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// Old and new value; null if there is none.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChangeKind {
    /// The whole decision, in the first line and after the Service or port was added or removed.
    State,
    /// Address and port where the Service is reached.
    Frontend,
    /// Outcome for the client: an endpoint, a refusal, or dropped packets.
    Action,
    /// Reason why the frontend accepts nothing on this gateway.
    Closed,
    /// Endpoint: its state, and whether it may be chosen.
    Endpoint,
    /// Endpoint that the client goes to.
    Choice,
    /// Share of traffic of each cluster.
    Shares,
    /// Gateway that owns the address.
    Announced,
    Problem,
    /// Whether the gateway answers.
    Gateway,
}

impl WatchChange {
    pub(crate) fn new(change: ChangeKind, from: Option<String>, to: Option<String>) -> Self {
        Self { change, subject: None, from, to }
    }

    fn of(self, subject: &str) -> Self {
        Self { subject: Some(subject.to_owned()), ..self }
    }

    /// Text for people, in one line.
    pub(crate) fn to_text(&self) -> String {
        let subject = self.subject.as_deref().unwrap_or_default();
        let (from, to) = (self.from.as_deref(), self.to.as_deref());
        let moved = |what: &str| match (from, to) {
            (Some(from), Some(to)) => format!("{what}: {to} (was: {from})"),
            (None, Some(to)) => format!("{what}: {to}"),
            (from, None) => format!("{what}: none any more (was: {})", from.unwrap_or("unknown")),
        };
        match (self.change, from, to) {
            (ChangeKind::State | ChangeKind::Gateway, _, to) => to.unwrap_or_default().to_owned(),
            (ChangeKind::Frontend, None, _) => format!("frontend {subject} added"),
            (ChangeKind::Frontend, ..) => format!("frontend {subject} removed"),
            (ChangeKind::Endpoint, None, Some(to)) => format!("endpoint {subject} added: {to}"),
            (ChangeKind::Endpoint, _, None) => format!("endpoint {subject} removed"),
            (ChangeKind::Endpoint, ..) => moved(&format!("endpoint {subject}")),
            (ChangeKind::Problem, None, _) => format!("Problem: {subject}"),
            (ChangeKind::Problem, ..) => format!("Problem solved: {subject}"),
            (ChangeKind::Closed, _, None) => "the frontend is open again on this gateway".to_owned(),
            (ChangeKind::Closed, _, Some(why)) => format!("the frontend is closed on this gateway: {why}"),
            (ChangeKind::Action, ..) => moved("action"),
            (ChangeKind::Choice, ..) => moved("the client goes to"),
            (ChangeKind::Shares, ..) => moved("shares of clusters"),
            (ChangeKind::Announced, ..) => moved("announced by"),
        }
    }
}

/// Decision, reduced to what changes are reported of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Whether the Service and the port exist and are served.
    served: bool,
    /// Summary in one sentence, with the reason if it is not served.
    summary: String,
    frontends: BTreeSet<String>,
    action: Option<String>,
    closed: Option<String>,
    /// Endpoint states by address, and by cluster if there are several.
    endpoints: BTreeMap<String, String>,
    /// Choice for a given client.
    choice: Option<String>,
    shares: Option<String>,
    announced: Option<String>,
    problems: BTreeSet<String>,
}

impl Decision {
    pub(crate) fn of(answer: &Answer) -> Self {
        let view = answer.view();
        let served = view.frontend.is_some();
        let mut summary = headline(view).replace('\n', ": ");
        let why = if served { None } else { view.reasons.first() };
        if let Some(why) = why {
            summary = format!("{} ({why})", summary.trim_end_matches('.'));
        }
        let action = view.action.clone().filter(|_| view.closed.is_none());
        let admitted = |action: String| match view.allowed {
            true => action,
            false => format!("{action}: source ranges do not admit the client"),
        };
        Self {
            served,
            summary,
            frontends: view.frontend.iter().chain(&view.other_frontends).cloned().collect(),
            action: action.map(admitted),
            closed: view.closed.clone(),
            endpoints: view.endpoints.iter().map(|it| (endpoint_name(it), endpoint_state(it))).collect(),
            choice: view.endpoint.clone().filter(|_| view.client.is_some()),
            shares: shares(view),
            announced: view.announced_by.clone(),
            problems: view.problems.iter().cloned().collect(),
        }
    }

    /// The first line.
    pub(crate) fn state(&self) -> Vec<WatchChange> {
        self.state_after(&BTreeSet::new())
    }

    /// The whole decision, with the Problems that were removed and added since then.
    fn state_after(&self, problems: &BTreeSet<String>) -> Vec<WatchChange> {
        let Self { summary, endpoints, announced, shares, .. } = self;
        let mut text = summary.clone();
        let used = endpoints.values().filter(|state| is_used(state)).count();
        if self.served {
            text += &format!(" Endpoints used: {used} of {}.", endpoints.len());
        }
        text.extend(shares.iter().map(|shares| format!(" Clusters: {shares}.")));
        text.extend(announced.iter().map(|node| format!(" Announced by {node}.")));
        let mut changes = vec![WatchChange::new(ChangeKind::State, None, Some(text))];
        changes.extend(differing(problems, &self.problems, ChangeKind::Problem));
        changes
    }

    /// Changes since `before`.
    pub(crate) fn changes(&self, before: &Self) -> Vec<WatchChange> {
        if self.served != before.served || (!self.served && self.summary != before.summary) {
            return self.state_after(&before.problems);
        }
        let mut changes = differing(&before.frontends, &self.frontends, ChangeKind::Frontend);
        let of_service = [
            (ChangeKind::Closed, &before.closed, &self.closed),
            (ChangeKind::Action, &before.action, &self.action),
            (ChangeKind::Announced, &before.announced, &self.announced),
        ];
        changes.extend(of_service.into_iter().filter_map(moved));
        let names: BTreeSet<&String> = before.endpoints.keys().chain(self.endpoints.keys()).collect();
        changes.extend(names.into_iter().filter_map(|name| {
            let (old, new) = (before.endpoints.get(name).cloned(), self.endpoints.get(name).cloned());
            moved((ChangeKind::Endpoint, &old, &new)).map(|change| change.of(name))
        }));
        let of_traffic = [
            (ChangeKind::Shares, &before.shares, &self.shares),
            (ChangeKind::Choice, &before.choice, &self.choice),
        ];
        changes.extend(of_traffic.into_iter().filter_map(moved));
        changes.extend(differing(&before.problems, &self.problems, ChangeKind::Problem));
        changes
    }
}

fn moved((kind, from, to): (ChangeKind, &Option<String>, &Option<String>)) -> Option<WatchChange> {
    (from != to).then(|| WatchChange::new(kind, from.clone(), to.clone()))
}

/// Removed entries, then new ones.
fn differing(before: &BTreeSet<String>, now: &BTreeSet<String>, kind: ChangeKind) -> Vec<WatchChange> {
    const THERE: &str = "present";
    let gone =
        before.difference(now).map(|name| WatchChange::new(kind, Some(THERE.to_owned()), None).of(name));
    let new =
        now.difference(before).map(|name| WatchChange::new(kind, None, Some(THERE.to_owned())).of(name));
    gone.chain(new).collect()
}

fn endpoint_name(endpoint: &ExplainedEndpoint) -> String {
    match endpoint.cluster.as_str() {
        "" => endpoint.address.clone(),
        cluster => format!("{} in {cluster}", endpoint.address),
    }
}

const USED: &str = "used";

/// State of an endpoint. The reason is omitted if it is used, since the progress of a slow start changes every second.
fn endpoint_state(endpoint: &ExplainedEndpoint) -> String {
    match endpoint.used {
        true => format!("{}, {USED}", endpoint.state),
        false => format!("{}, left out: {}", endpoint.state, endpoint.reason),
    }
}

fn is_used(state: &str) -> bool {
    state.ends_with(&format!(", {USED}"))
}

/// Share of each cluster, if there are several.
fn shares(view: &ExplainView) -> Option<String> {
    let mut clusters = BTreeMap::<&str, u32>::new();
    for endpoint in view.endpoints.iter().filter(|endpoint| !endpoint.cluster.is_empty()) {
        *clusters.entry(&endpoint.cluster).or_default() += u32::from(endpoint.share.unwrap_or_default());
    }
    // Shares of endpoints are rounded, and may not sum up to 100.
    let all: u32 = clusters.values().sum();
    let percent = |share: u32| (100 * share + all / 2).checked_div(all).unwrap_or_default();
    let shown: Vec<String> =
        clusters.iter().map(|(cluster, share)| format!("{cluster} {} %", percent(*share))).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

#[cfg(test)]
mod tests;
