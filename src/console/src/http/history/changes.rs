//! Changes between two looks at the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sheave_announce::{AddressStatus, Here};
use sheave_dataplane::select::ActiveTable;
use sheave_model::{EndpointState, Frontend, RoutingTable, diff};

use super::event::{Concerned, Found};
use crate::http::query::{ObjectFacts, Overview};
use crate::views::change::{Change, ChangeKind};
use crate::views::diff::DiffView;
use crate::views::problem::ProblemView;
use crate::views::routes::{RoutesView, row_name, source_name};
use crate::views::services::{self, ServiceFacts, ServiceRow, ServiceState};

/// Changed frontends that are compared in detail. A new configuration may change all of them at once.
const COMPARED: usize = 300;

/// A look at the gateway.
#[derive(Debug, Default)]
pub(super) struct Observation {
    table: RoutingTable,
    /// Unhealthy endpoints of Services, with the reason.
    unhealthy: BTreeMap<(String, &'static str, String), Arc<str>>,
    problems: BTreeSet<ProblemView>,
    /// State of each Service, as text.
    states: BTreeMap<(String, &'static str), String>,
    addresses: Arc<BTreeMap<IpAddr, AddressStatus>>,
    /// Faults of the process, and the reason why it is not ready.
    wrong: BTreeSet<String>,
}

impl Observation {
    /// What has to be known of the gateway's objects to look again: `objects` of the last overview that had any.
    pub(super) fn new(overview: &Overview, objects: &ObjectFacts, active: &ActiveTable) -> Self {
        let facts = ServiceFacts {
            active,
            problems: &objects.problems,
            obstacles: &objects.obstacles,
            announcements: overview.announcements.as_deref(),
        };
        let state = |row: ServiceRow| ((row.service.clone(), row.source), state_text(&row));
        Self {
            table: active.table().clone(),
            unhealthy: unhealthy(active),
            problems: objects.problems.iter().cloned().collect(),
            states: services::rows(facts).into_iter().map(state).collect(),
            addresses: overview
                .announcements
                .as_ref()
                .map(|it| Arc::clone(&it.addresses))
                .unwrap_or_default(),
            wrong: wrong(overview),
        }
    }

    /// Whether a look at this would be the same, as far as that can be told at once.
    pub(super) fn is_of(&self, overview: &Overview, active: &ActiveTable) -> bool {
        let addresses = overview.announcements.as_ref().is_none_or(|it| it.addresses == self.addresses);
        overview.objects.is_none()
            && addresses
            && active.table().generation() == self.table.generation()
            && wrong(overview) == self.wrong
            && unhealthy(active) == self.unhealthy
    }

    /// What is not well at the first look.
    pub(super) fn unwell(&self) -> Vec<Found> {
        let ok = ServiceState::Serving.text();
        let states =
            self.states.iter().filter(|(_, state)| *state != ok).map(|((service, source), state)| {
                let concerned = Some((service.clone(), (*source).to_owned()));
                (concerned, Change::new(ChangeKind::State, None, Some(state.clone())))
            });
        set_changes(&BTreeSet::new(), &self.wrong).into_iter().chain(states).collect()
    }

    /// Changes since `before`.
    pub(super) fn changes(&self, before: &Self) -> Vec<Found> {
        let mut found = set_changes(&before.wrong, &self.wrong);
        let of_table = table_changes(&before.table, &self.table);
        found.extend(self.health_changes(before, &of_table));
        found.extend(of_table);
        // A Service that has come or gone has changes of its frontends.
        let states = map_changes(&before.states, &self.states).filter_map(|((service, source), was, is)| {
            let change = Change::new(ChangeKind::State, Some(was?.clone()), Some(is?.clone()));
            Some((Some((service.clone(), (*source).to_owned())), change))
        });
        found.extend(states);
        found.extend(address_changes(&before.addresses, &self.addresses));
        found.extend(problem_changes(&before.problems, &self.problems));
        found
    }

    /// Endpoints that became unhealthy or healthy. One that has left is not healthy again.
    fn health_changes(&self, before: &Self, of_table: &[Found]) -> Vec<Found> {
        let left: BTreeSet<(&Concerned, &str)> = of_table
            .iter()
            .filter(|(_, change)| change.change == ChangeKind::Endpoint && change.to.is_none())
            .filter_map(|(concerned, change)| {
                Some((concerned, change.subject.as_deref()?.split(' ').next()?))
            })
            .collect();
        let text = |reason: Option<&Arc<str>>| {
            reason.map_or_else(|| "healthy".to_owned(), |it| format!("unhealthy: {it}"))
        };
        let changes = map_changes(&before.unhealthy, &self.unhealthy);
        let changes = changes.filter_map(|((service, source, endpoint), was, is)| {
            let concerned = Some((service.clone(), (*source).to_owned()));
            let change = Change::new(ChangeKind::Endpoint, Some(text(was)), Some(text(is)));
            let has_left = left.contains(&(&concerned, endpoint.as_str()));
            (!has_left).then(|| (concerned, change.of(endpoint)))
        });
        changes.collect()
    }
}

fn state_text(row: &ServiceRow) -> String {
    match row.why.as_str() {
        // A remark on a Service that serves is no change of its state.
        why if row.state != ServiceState::Serving && !why.is_empty() => {
            format!("{}: {why}", row.state.text())
        }
        _ => row.state.text().to_owned(),
    }
}

fn unhealthy(active: &ActiveTable) -> BTreeMap<(String, &'static str, String), Arc<str>> {
    let health = active.health();
    let endpoints = health.unhealthy().filter_map(|(service, endpoint)| {
        let reason = Arc::clone(health.of(service)?.reason(endpoint)?);
        Some(((row_name(service), source_name(service.source), endpoint.to_string()), reason))
    });
    endpoints.collect()
}

/// Fault of the process, in words that stay the same while it lasts: numbers are left out.
fn wrong(overview: &Overview) -> BTreeSet<String> {
    let sentences = overview.status.wrong_with_process().into_iter();
    let not_ready = overview.status.not_ready.iter().map(|why| format!("not ready: {why}"));
    sentences.chain(not_ready).map(|text| without_numbers(&text)).collect()
}

/// The text with `N` in place of each number that stands alone: `for 12 s` changes with each look, `10.0.0.1` and `gw-1` are names.
fn without_numbers(text: &str) -> String {
    let is_number = |word: &str| {
        let digits = word.trim_matches(|char: char| ",;:()%".contains(char));
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.split(' ').map(|word| if is_number(word) { "N" } else { word }).collect::<Vec<_>>().join(" ")
}

fn set_changes<'a>(before: &'a BTreeSet<String>, now: &'a BTreeSet<String>) -> Vec<Found> {
    let gone = before.difference(now).map(|text| format!("over: {text}"));
    let came = now.difference(before).cloned();
    let change = |text| (None, Change::new(ChangeKind::Gateway, None, Some(text)));
    gone.chain(came).map(change).collect()
}

/// Keys whose values differ, with both.
fn map_changes<'a, K: Ord, V: PartialEq>(
    before: &'a BTreeMap<K, V>,
    now: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, Option<&'a V>, Option<&'a V>)> {
    let gone =
        before.iter().filter(|(key, _)| !now.contains_key(key)).map(|(key, was)| (key, Some(was), None));
    let others = now.iter().map(|(key, is)| (key, before.get(key), Some(is)));
    gone.chain(others).filter(|(_, was, is)| was != is)
}

fn problem_changes(before: &BTreeSet<ProblemView>, now: &BTreeSet<ProblemView>) -> Vec<Found> {
    let found = |problem: &ProblemView, change: Change| {
        let (concerned, text) = match problem.object.split_once(' ') {
            Some((kind, name)) => (Some((name.to_owned(), kind.to_owned())), String::new()),
            None => (None, format!("{}: ", problem.object)),
        };
        (concerned, change.of(&format!("{text}{}: {}", problem.reason, problem.message)))
    };
    let solved = before.difference(now).map(|problem| found(problem, Change::gone(ChangeKind::Problem)));
    let new = now.difference(before).map(|problem| found(problem, Change::came(ChangeKind::Problem)));
    solved.chain(new).collect()
}

fn address_changes(
    before: &BTreeMap<IpAddr, AddressStatus>,
    now: &BTreeMap<IpAddr, AddressStatus>,
) -> Vec<Found> {
    let of_all = |it: &AddressStatus| it.owner.as_deref().ok().map(str::to_owned);
    // By BGP, each gateway announces by itself.
    let own =
        |it: &AddressStatus| matches!(it.here, Here::Announced { .. }).then(|| "this gateway".to_owned());
    let owner = |status: Option<&AddressStatus>| status.and_then(|it| of_all(it).or_else(|| own(it)));
    let changes = map_changes(before, now).filter_map(|(address, was, is)| {
        let (from, to) = (owner(was), owner(is));
        let change = Change::new(ChangeKind::Announced, from.clone(), to.clone());
        (from != to).then(|| (None, change.of(&address.to_string())))
    });
    changes.collect()
}

/// Changes of frontends and their endpoints.
fn table_changes(before: &RoutingTable, now: &RoutingTable) -> Vec<Found> {
    let changes = diff(before, now);
    let mut found = Vec::new();
    let mut endpoints = BTreeMap::new();
    let mut detailed = 0;
    for (addr, new) in &changes {
        match (before.get(*addr), new) {
            (None, Some(new)) => found.push(of_frontend(new, Change::came)),
            (Some(old), None) => found.push(of_frontend(old, Change::gone)),
            (Some(old), Some(new)) => {
                endpoints.extend(endpoint_changes(old, new));
                if old.service != new.service {
                    found.push(of_frontend(old, Change::gone));
                    found.push(of_frontend(new, Change::came));
                } else if detailed < COMPARED {
                    detailed += 1;
                    found.extend(setting_changes(old, new));
                }
            }
            (None, None) => {}
        }
    }
    // Frontends of one Service share endpoints and settings.
    found.extend(
        endpoints.into_iter().map(|((concerned, endpoint), change)| (concerned, change.of(&endpoint))),
    );
    let mut seen = BTreeSet::new();
    found.retain(|one| seen.insert(one.clone()));
    found
}

fn object(frontend: &Frontend) -> (String, String) {
    (row_name(&frontend.service), source_name(frontend.service.source).to_owned())
}

fn of_frontend(frontend: &Frontend, change: fn(ChangeKind) -> Change) -> Found {
    (Some(object(frontend)), change(ChangeKind::Frontend).of(&frontend.addr.to_string()))
}

/// Changed fields as `sheave diff` compares them.
fn setting_changes(old: &Arc<Frontend>, new: &Arc<Frontend>) -> Vec<Found> {
    let view = |frontend: &Arc<Frontend>| {
        let table = RoutingTable::new(0, vec![Arc::clone(frontend)], Arc::default());
        RoutesView::new(&table, "", Vec::new())
    };
    let diff = DiffView::new(&view(old), &view(new));
    let fields = diff.changed.into_iter().flat_map(|changed| changed.fields);
    let changes = fields.map(|field| {
        let (from, to) = field.texts();
        (Some(object(new)), Change::new(ChangeKind::Setting, Some(from), Some(to)).of(&field.field))
    });
    changes.collect()
}

type EndpointChanges = BTreeMap<(Concerned, String), Change>;

fn endpoint_changes(old: &Frontend, new: &Frontend) -> EndpointChanges {
    let (before, now) = (endpoints(old), endpoints(new));
    let changes = map_changes(&before, &now);
    let change = |(endpoint, was, is): (&String, Option<&&str>, Option<&&str>)| {
        let text = |state: Option<&&str>| state.map(|state| (*state).to_owned());
        ((Some(object(new)), endpoint.clone()), Change::new(ChangeKind::Endpoint, text(was), text(is)))
    };
    changes.map(change).collect()
}

/// Serving endpoints with their state, and with their cluster if there are several.
fn endpoints(frontend: &Frontend) -> BTreeMap<String, &'static str> {
    let backends = || frontend.pools().flat_map(|pool| pool.backends.iter());
    let clusters: BTreeSet<&str> = backends().map(|backend| &*backend.cluster).collect();
    let of_backend = backends().flat_map(|backend| {
        let name = |addr: String| match clusters.len() {
            0 | 1 => addr,
            _ => format!("{addr} in {}", backend.cluster),
        };
        let state = |state| if state == EndpointState::Ready { "Ready" } else { "Terminating" };
        backend.endpoints.iter().map(move |it| (name(it.addr.to_string()), state(it.state)))
    });
    of_backend.collect()
}

#[cfg(test)]
mod tests;
