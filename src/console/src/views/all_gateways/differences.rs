//! Differences between gateways in versions, tables, Problems and endpoint health. Only gateways that serve are compared.

use std::collections::{BTreeMap, BTreeSet};

use sheave_control::api::gateway_report::Trouble;
use sheave_control::controller::all_gateways::KnownGateway;
use sheave_control::text::first_few;

use super::{GatewayAnswer, GatewayStatusView, MOST, SharedEndpointView, SharedProblemView};
use crate::views::numbers::span;
use crate::views::problem::{PortView, ProblemView};
use crate::views::status::{ProcessView, UnhealthyView};

/// Age from which a table counts as settled, and not as part of a burst of changes that gateways apply at different times.
const SETTLED_SECONDS: u64 = 10;
/// Limit of gateways that a sentence names.
const NAMED: usize = 5;

/// Differences that were found.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) sentences: Vec<String>,
    /// Gateways that differ from most others, and in which respect.
    pub(super) marks: Vec<(String, &'static str)>,
}

/// Finds the differences.
pub(super) fn find(
    gateways: &[GatewayStatusView],
    problems: &[SharedProblemView],
    unhealthy: &[SharedEndpointView],
) -> Differences {
    let mut found = Differences::default();
    let answering: Vec<&GatewayStatusView> = gateways.iter().filter(|it| it.version.is_some()).collect();
    found.versions(&answering);
    found.tables(&answering);
    // Problems get no sentence, since each is listed with the gateways that have it.
    found.mark_the_fewer("problems", problems.iter().map(|it| (&it.gateways, &it.missing)));
    match found.mark_the_fewer("health", unhealthy.iter().map(|it| (&it.gateways, &it.missing))) {
        0 => {}
        1 => found.sentences.push(
            "one endpoint is unhealthy on some gateways and not on others: check the network path from those gateways to it".to_owned(),
        ),
        count => found.sentences.push(format!(
            "{count} endpoints are unhealthy on some gateways and not on others: check the network path from those gateways to them"
        )),
    }
    found
}

impl Differences {
    fn versions(&mut self, answering: &[&GatewayStatusView]) {
        let groups = grouped(answering, |it| it.version.clone());
        if groups.len() < 2 {
            return;
        }
        let parts: Vec<String> =
            groups.iter().map(|(version, of)| format!("{version} on {}", names(of))).collect();
        self.sentences
            .push(format!("versions differ: {}; a rollout is under way, or is stuck", parts.join(", ")));
        self.mark_all_but_the_most(&groups, "version");
    }

    /// Compares tables of the same version, since versions may hash the same table differently.
    fn tables(&mut self, answering: &[&GatewayStatusView]) {
        for (_, of_version) in grouped(answering, |it| it.version.clone()) {
            let serving: Vec<&GatewayStatusView> =
                of_version.into_iter().filter(|it| it.state == "serving").collect();
            let groups = grouped(&serving, |it| it.table_hash.clone());
            let settled =
                |it: &GatewayStatusView| it.table_age_seconds.is_none_or(|age| age >= SETTLED_SECONDS);
            // If all tables are changing, gateways were queried at different moments of the same changes.
            let any_settled = groups.iter().any(|(_, of)| of.iter().all(|it| settled(it)));
            if groups.len() < 2 || !any_settled {
                continue;
            }
            let parts: Vec<String> = groups.iter().map(|(_, of)| table_of(of)).collect();
            self.sentences.push(format!(
                "routing tables differ: {}; those that differ see other objects or have another configuration (`sheave routes` on each)",
                parts.join("; ")
            ));
            self.mark_all_but_the_most(&groups, "table");
        }
    }

    /// Marks the smaller side as different: those that have an item, or those that lack it. Returns the number of items that differ.
    fn mark_the_fewer<'a>(
        &mut self,
        mark: &'static str,
        sets: impl Iterator<Item = (&'a Vec<String>, &'a Vec<String>)>,
    ) -> usize {
        let mut count = 0;
        for (have, lack) in sets.filter(|(_, lack)| !lack.is_empty()) {
            count += 1;
            let fewer = if have.len() <= lack.len() { have } else { lack };
            self.marks.extend(fewer.iter().map(|gateway| (gateway.clone(), mark)));
        }
        count
    }

    fn mark_all_but_the_most(&mut self, groups: &[(String, Vec<&GatewayStatusView>)], mark: &'static str) {
        let most = groups.first().map_or(0, |(_, of)| of.len());
        let tied = groups.get(1).is_some_and(|(_, of)| of.len() == most);
        let others = groups.iter().skip(usize::from(!tied)).flat_map(|(_, of)| of);
        self.marks.extend(others.map(|it| (it.node.clone(), mark)));
    }
}

/// Groups gateways by value, largest group first. Gateways without a value are omitted.
fn grouped<'a>(
    gateways: &[&'a GatewayStatusView],
    value: impl Fn(&GatewayStatusView) -> Option<String>,
) -> Vec<(String, Vec<&'a GatewayStatusView>)> {
    let mut groups: BTreeMap<String, Vec<&GatewayStatusView>> = BTreeMap::new();
    for gateway in gateways {
        if let Some(value) = value(gateway) {
            groups.entry(value).or_default().push(gateway);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, of)| std::cmp::Reverse(of.len()));
    groups
}

fn names(of: &[&GatewayStatusView]) -> String {
    first_few(of.iter().map(|it| it.node.as_str()), ", ", NAMED)
}

fn table_of(of: &[&GatewayStatusView]) -> String {
    let frontends = of.first().and_then(|it| it.frontends).unwrap_or_default();
    let frontends = if frontends == 1 { "1 frontend".to_owned() } else { format!("{frontends} frontends") };
    let youngest = of.iter().filter_map(|it| it.table_age_seconds).min();
    let changed = youngest.map(|age| format!(", changed {} ago", span(age))).unwrap_or_default();
    format!("{} ({frontends}{changed})", names(of))
}

/// Problems of all gateways that list theirs, without duplicates, and the number of omitted ones.
pub(super) fn shared_problems(answers: &[(KnownGateway, GatewayAnswer)]) -> (Vec<SharedProblemView>, usize) {
    let mut shared: BTreeMap<ProblemKey, SharedProblemView> = BTreeMap::new();
    for (known, answer) in answers {
        for problem in problems_of(answer) {
            let key = ProblemKey::of(&problem);
            let new = || SharedProblemView { problem, gateways: Vec::new(), missing: Vec::new() };
            push_new(&mut shared.entry(key).or_insert_with(new).gateways, &known.node);
        }
    }
    let of = |it: &SharedProblemView| it.gateways.len();
    let (mut first, more) = first_few_differing(shared.into_values().collect(), answers, of);
    for (node, status) in serving(answers) {
        // A list that was cut gives no information on what comes after its end.
        let end = status.first_problems.last().filter(|_| status.problems > status.first_problems.len());
        let lists =
            |it: &ProblemView| end.is_none_or(|end| (&it.object, &it.reason) < (&end.object, &end.reason));
        for SharedProblemView { gateways, missing, .. } in first.iter_mut().filter(|it| lists(&it.problem)) {
            if !gateways.contains(node) {
                missing.push(node.clone());
            }
        }
    }
    first.sort_by_key(|it| it.missing.is_empty());
    (first, more)
}

/// The items to show, with those first that not all gateways have, and the number of omitted ones. The gateways that lack an item are
/// only computed for these, since a thousand gateways could each have Problems of their own.
fn first_few_differing<T>(
    mut all: Vec<T>,
    answers: &[(KnownGateway, GatewayAnswer)],
    gateways: impl Fn(&T) -> usize,
) -> (Vec<T>, usize) {
    let everywhere = serving(answers).count();
    all.sort_by_key(|it| gateways(it) >= everywhere);
    let more = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    (all, more)
}

/// Gateways that serve, by node. Those that are starting or stopping see other things.
fn serving(answers: &[(KnownGateway, GatewayAnswer)]) -> impl Iterator<Item = (&String, &ProcessView)> {
    statuses(answers).filter(|(_, status)| {
        status.not_ready.is_none() && !status.draining && !status.lame_duck && !status.worker_stuck
    })
}

fn statuses(answers: &[(KnownGateway, GatewayAnswer)]) -> impl Iterator<Item = (&String, &ProcessView)> {
    answers.iter().filter_map(|(known, answer)| match answer {
        GatewayAnswer::Status(status) => Some((&known.node, &**status)),
        GatewayAnswer::Report { .. } | GatewayAnswer::Silent(_) => None,
    })
}

/// Adds a node, unless it is the last one: gateways come one after the other.
fn push_new(gateways: &mut Vec<String>, node: &String) {
    if gateways.last() != Some(node) {
        gateways.push(node.clone());
    }
}

/// Identity of a Problem across gateways, without the message, which may name the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProblemKey {
    object: String,
    reason: String,
    port: Option<PortView>,
    field: Option<String>,
}

impl ProblemKey {
    fn of(ProblemView { object, reason, port, field, .. }: &ProblemView) -> Self {
        Self { object: object.clone(), reason: reason.clone(), port: port.clone(), field: field.clone() }
    }
}

fn problems_of(answer: &GatewayAnswer) -> Vec<ProblemView> {
    match answer {
        GatewayAnswer::Status(status) => status.first_problems.clone(),
        GatewayAnswer::Report { report, .. } => report.troubles.iter().map(problem_of).collect(),
        GatewayAnswer::Silent(_) => Vec::new(),
    }
}

fn problem_of(trouble: &Trouble) -> ProblemView {
    let Trouble { kind, namespace, name, reason, message, frontend } = trouble;
    let port = frontend.as_ref().map(|it| PortView { port: it.port, protocol: it.protocol.clone() });
    ProblemView {
        object: format!("{kind} {namespace}/{name}"),
        reason: reason.clone(),
        message: message.clone(),
        port,
        ..ProblemView::default()
    }
}

/// Endpoints that are unhealthy on any gateway, without duplicates, and the number of omitted ones.
pub(super) fn shared_endpoints(
    answers: &[(KnownGateway, GatewayAnswer)],
) -> (Vec<SharedEndpointView>, usize) {
    let mut shared: BTreeMap<[&str; 3], SharedEndpointView> = BTreeMap::new();
    let mut checked = BTreeSet::new();
    for (node, status) in statuses(answers) {
        for unhealthy in &status.first_unhealthy {
            let UnhealthyView { service, protocol, endpoint, reason, .. } = unhealthy;
            let new = || SharedEndpointView {
                service: service.clone(),
                protocol: protocol.clone(),
                endpoint: endpoint.clone(),
                reason: reason.clone(),
                gateways: Vec::new(),
                missing: Vec::new(),
            };
            let key = [service.as_str(), protocol.as_str(), endpoint.as_str()];
            push_new(&mut shared.entry(key).or_insert_with(new).gateways, node);
            if unhealthy.checked {
                checked.insert(key);
            }
        }
    }
    let of = |it: &SharedEndpointView| it.gateways.len();
    let (mut first, more) = first_few_differing(shared.into_values().collect(), answers, of);
    let complete = |status: &ProcessView| status.unhealthy_endpoints <= status.first_unhealthy.len();
    for (node, _) in serving(answers).filter(|(_, status)| complete(status)) {
        for SharedEndpointView { service, protocol, endpoint, gateways, missing, .. } in &mut first {
            let key = [service.as_str(), protocol.as_str(), endpoint.as_str()];
            if checked.contains(&key) && !gateways.contains(node) {
                missing.push(node.clone());
            }
        }
    }
    first.sort_by_key(|it| it.missing.is_empty());
    (first, more)
}
