//! Findings about the Services of a gateway, worst first, each with advice: Problems, and other conditions that keep clients out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sheave_control::controller::conditions::NOBODY_ADMITTED;
use sheave_control::projection::service_health::Fault;

use super::{ServiceRow, ServiceState};
use crate::views::problem::{ProblemView, advice};

/// Limit of findings.
const SHOWN: usize = 100;
/// Limit of findings with the same reason. A shortage may affect every Service at once, and other causes should still be visible.
const OF_A_REASON: usize = 10;

/// Findings, of which each list has only the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FindingsView {
    /// Number of findings.
    pub(crate) total: usize,
    /// First findings, limited per reason.
    pub(crate) findings: Vec<FindingView>,
    /// Number of findings by state and reason.
    pub(crate) reasons: Vec<ReasonCount>,
    /// Number of LoadBalancers that do not ask for this gateway; another implementation may serve them.
    pub(crate) not_served_total: usize,
    /// First of these; those that probably mean to ask come first.
    pub(crate) not_served: Vec<ProblemView>,
    /// How many Services are in each state.
    pub(crate) services: ServiceCounts,
}

/// Number of Services in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCounts {
    pub broken: usize,
    pub degraded: usize,
    pub ok: usize,
}

/// Number of findings with a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReasonCount {
    pub(crate) state: ServiceState,
    pub(crate) reason: String,
    pub(crate) count: usize,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct FindingView {
    /// State of the Service that it is about; `Degraded` for other objects.
    pub(crate) state: ServiceState,
    #[serde(flatten)]
    pub(crate) problem: ProblemView,
    /// Recommended action.
    pub(crate) advice: String,
}

impl FindingsView {
    /// Findings from `rows` and `problems`.
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
    /// Counts the rows by state.
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

/// Finding for a Service without a Problem.
fn of_row(row: &ServiceRow) -> Option<FindingView> {
    let has_endpoints = row.clusters.iter().any(|cluster| cluster.of > 0);
    let failing = row.clusters.iter().any(|cluster| cluster.unhealthy > 0);
    let (reason, advice) = match row.state {
        ServiceState::Serving => return None,
        _ if row.fault.as_ref().is_some_and(Fault::is_of_route) => return None,
        _ if row.fault == Some(Fault::AdmitsNobody) => (NOBODY_ADMITTED, advice::NOBODY_ADMITTED.to_owned()),
        _ if row.fault == Some(Fault::NoRoute) => (advice::NO_ROUTE, advice::ATTACH_ROUTE.to_owned()),
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
