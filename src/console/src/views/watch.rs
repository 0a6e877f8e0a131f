//! Changes that `sheave watch` reports: the decision for a client of a Service, and the difference between two decisions.

use std::collections::{BTreeMap, BTreeSet};

use sheave_control::projection::explain::{ExplainView, ExplainedEndpoint};

use crate::views::change::{Change, ChangeKind};
use crate::views::explain::{Answer, headline};

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
    pub(crate) fn state(&self) -> Vec<Change> {
        self.state_after(&BTreeSet::new())
    }

    /// The whole decision, with the Problems that were removed and added since then.
    fn state_after(&self, problems: &BTreeSet<String>) -> Vec<Change> {
        let Self { summary, endpoints, announced, shares, .. } = self;
        let mut text = summary.clone();
        let used = endpoints.values().filter(|state| is_used(state)).count();
        if self.served {
            text += &format!(" Endpoints used: {used} of {}.", endpoints.len());
        }
        text.extend(shares.iter().map(|shares| format!(" Clusters: {shares}.")));
        text.extend(announced.iter().map(|node| format!(" Announced by {node}.")));
        let mut changes = vec![Change::new(ChangeKind::State, None, Some(text))];
        changes.extend(differing(problems, &self.problems, ChangeKind::Problem));
        changes
    }

    /// Changes since `before`.
    pub(crate) fn changes(&self, before: &Self) -> Vec<Change> {
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

fn moved((kind, from, to): (ChangeKind, &Option<String>, &Option<String>)) -> Option<Change> {
    (from != to).then(|| Change::new(kind, from.clone(), to.clone()))
}

/// Removed entries, then new ones.
fn differing(before: &BTreeSet<String>, now: &BTreeSet<String>, kind: ChangeKind) -> Vec<Change> {
    let gone = before.difference(now).map(|name| Change::gone(kind).of(name));
    let new = now.difference(before).map(|name| Change::came(kind).of(name));
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
