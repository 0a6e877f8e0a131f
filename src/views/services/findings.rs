//! What is wrong with the Services of a gateway, the worst first, each with what to do: Problems, and what is no Problem of an object
//! but keeps its clients out all the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ServiceRow, ServiceState};
use crate::views::problem::{ProblemView, advice};

/// How many of a list are shown.
const SHOWN: usize = 100;
/// How many of them with the same reason: a shortage may affect every Service at once, and other causes are to be seen as well.
const OF_A_REASON: usize = 10;

/// Lists of what is wrong, the beginning of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FindingsView {
    /// All there are.
    pub(crate) total: usize,
    /// The first of them, and of each reason.
    pub(crate) findings: Vec<FindingView>,
    /// All there are, by state and reason.
    pub(crate) reasons: Vec<ReasonCount>,
    /// LoadBalancers that do not ask for this gateway: others may serve them.
    pub(crate) not_served_total: usize,
    /// The first of them, those before that most likely mean to ask for it.
    pub(crate) not_served: Vec<ProblemView>,
    /// How many Services are in each state.
    pub(crate) services: ServiceCounts,
}

/// How many Services are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServiceCounts {
    pub(crate) broken: usize,
    pub(crate) degraded: usize,
    pub(crate) ok: usize,
}

/// How many have a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReasonCount {
    pub(crate) state: ServiceState,
    pub(crate) reason: String,
    pub(crate) count: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct FindingView {
    /// Of the Service that it is about; of other objects, `Degraded`.
    pub(crate) state: ServiceState,
    #[serde(flatten)]
    pub(crate) problem: ProblemView,
    /// What people can do about it.
    pub(crate) advice: String,
}

impl FindingsView {
    /// What is wrong by `rows` and `problems`.
    pub(crate) fn new(rows: &[ServiceRow], problems: &[ProblemView], not_served: &[ProblemView]) -> Self {
        let unwell = rows.iter().filter(|row| row.state != ServiceState::Serving);
        let states: BTreeMap<String, ServiceState> = unwell.map(|row| (row.object(), row.state)).collect();
        let of_object = |problem: &ProblemView| FindingView {
            state: states.get(&problem.object).copied().unwrap_or(ServiceState::Degraded),
            problem: problem.clone(),
            advice: advice::of_reason(&problem.reason).to_owned(),
        };
        let mut findings: Vec<FindingView> = problems.iter().map(of_object).collect();
        findings.extend(rows.iter().filter(|row| row.problems == 0).filter_map(of_row));
        findings.sort_unstable();
        let (total, not_served_total) = (findings.len(), not_served.len());
        let mut reasons = BTreeMap::<(ServiceState, String), usize>::new();
        findings.retain(|finding| {
            let count = reasons.entry((finding.state, finding.problem.reason.clone())).or_default();
            *count += 1;
            *count <= OF_A_REASON
        });
        findings.truncate(SHOWN);
        let counted = |((state, reason), count)| ReasonCount { state, reason, count };
        Self {
            total,
            findings,
            reasons: reasons.into_iter().map(counted).collect(),
            not_served_total,
            not_served: not_served.iter().take(SHOWN).cloned().collect(),
            services: ServiceCounts::of(rows),
        }
    }
}

impl ServiceCounts {
    /// Counts the rows.
    pub(crate) fn of(rows: &[ServiceRow]) -> Self {
        let mut counts = Self::default();
        for row in rows {
            let count = match row.state {
                ServiceState::Broken => &mut counts.broken,
                ServiceState::Degraded => &mut counts.degraded,
                ServiceState::Serving => &mut counts.ok,
            };
            *count += 1;
        }
        counts
    }
}

/// What is wrong with a Service that has no Problem.
fn of_row(row: &ServiceRow) -> Option<FindingView> {
    let has_endpoints = row.clusters.iter().any(|cluster| cluster.of > 0);
    let failing = row.clusters.iter().any(|cluster| cluster.unhealthy > 0);
    let (reason, advice) = match row.state {
        ServiceState::Serving => return None,
        _ if failing => (advice::UNHEALTHY_ENDPOINTS, advice::unhealthy_endpoints(row.source, &row.service)),
        _ => (advice::NO_READY_ENDPOINT, advice::no_ready_endpoint(row.source, &row.service, has_endpoints)),
    };
    let problem = ProblemView {
        object: row.object(),
        reason: reason.to_owned(),
        message: row.why.clone(),
        ..ProblemView::default()
    };
    Some(FindingView { state: row.state, problem, advice })
}
