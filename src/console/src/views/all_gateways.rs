//! View of all gateways from a controller that queries them, and their differences: `sheave status --fleet` and `/api/fleet`. JSON keys may be
//! added, but are never renamed.

mod answer;
mod differences;
mod explanations;
#[cfg(test)]
mod tests;
mod text;
mod traces;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sheave_control::controller::all_gateways::KnownGateway;

pub(crate) use self::answer::{GatewayAnswer, bounded_view};
use self::differences::{Differences, shared_endpoints, shared_problems};
pub(crate) use self::explanations::{ExplanationsView, GatewayExplanation, SilentGatewayView};
pub(crate) use self::traces::{GatewayTrace, TracesView};
use crate::exit::Exit;
use crate::views::View;
use crate::views::problem::ProblemView;
use crate::views::status::{AnnouncingView, ControllerView, ProcessView, UnwellView};

/// Limit of Problems and unhealthy endpoints.
const MOST: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AllGatewaysView {
    /// Node of the controller that answers.
    pub(crate) asked_by: String,
    /// Holder of the Lease; null if there is no leader.
    pub(crate) leader: Option<String>,
    /// Whether the controller that answers leads, since some Problems are only known to the leader. Null if it is of an older version.
    #[serde(default)]
    pub(crate) leading: Option<bool>,
    /// Problems of the controllers, as sentences with a remedy.
    #[serde(default)]
    pub(crate) controller_wrong: Vec<String>,
    /// Gateways, by node.
    pub(crate) gateways: Vec<GatewayStatusView>,
    /// Differences between gateways, as sentences.
    pub(crate) differences: Vec<String>,
    /// Problems of all gateways without duplicates. Those of only some gateways come first.
    pub(crate) problems: Vec<SharedProblemView>,
    /// Number of omitted Problems.
    pub(crate) more_problems: usize,
    /// Problems of the controller that no gateway has: the first ones, as the leader sees them.
    pub(crate) controller_problems: Vec<ProblemView>,
    /// Number of omitted Problems of the controller, some of which gateways may have as well.
    #[serde(default)]
    pub(crate) more_controller_problems: usize,
    /// Services that are broken or degraded for clients of any gateway, without duplicates: the first ones, worst first.
    #[serde(default)]
    pub(crate) unwell: Vec<UnwellView>,
    /// Endpoints that are unhealthy on any gateway, without duplicates. Those that are not unhealthy everywhere come first.
    pub(crate) unhealthy: Vec<SharedEndpointView>,
    /// Number of omitted endpoints.
    pub(crate) more_unhealthy: usize,
}

/// One gateway. Null stands for unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayStatusView {
    /// Node name from its EndpointSlice.
    pub(crate) node: String,
    /// Addresses of its Pod.
    pub(crate) addresses: Vec<String>,
    /// Whether it is ready according to Kubernetes.
    pub(crate) ready: bool,
    /// `serving`, `notReady`, `lameDuck`, `draining`, or `silent` if it does not answer.
    pub(crate) state: String,
    /// Reason for a missing or incomplete answer.
    pub(crate) error: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) uptime_seconds: Option<u64>,
    /// Number of table changes in its process; not comparable between processes.
    pub(crate) generation: Option<u64>,
    /// Seconds since the last change of its routing table.
    pub(crate) table_age_seconds: Option<u64>,
    /// Equal on gateways of the same version that follow the same objects.
    pub(crate) table_hash: Option<String>,
    pub(crate) frontends: Option<usize>,
    pub(crate) problems: Option<usize>,
    pub(crate) unhealthy_endpoints: Option<usize>,
    pub(crate) announcing: Option<AnnouncingView>,
    /// Problems of its process, as sentences with a remedy.
    pub(crate) wrong: Vec<String>,
    /// Respects in which it differs from most others: `version`, `table`, `problems`, `health`.
    pub(crate) differs: Vec<String>,
}

/// Problem with the gateways that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedProblemView {
    /// Problem as reported by the first of these gateways.
    #[serde(flatten)]
    pub(crate) problem: ProblemView,
    /// Gateways that have it, by node.
    pub(crate) gateways: Vec<String>,
    /// Gateways that answer and do not have it, by node.
    pub(crate) missing: Vec<String>,
}

/// Endpoint that is unhealthy on some gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedEndpointView {
    /// `namespace/name`.
    pub(crate) service: String,
    /// `TCP` or `UDP`.
    pub(crate) protocol: String,
    /// `ip:port`, IPv6 in brackets.
    pub(crate) endpoint: String,
    /// Error as reported by the first of them.
    pub(crate) reason: String,
    /// Gateways on which it is unhealthy, by node.
    pub(crate) gateways: Vec<String>,
    /// Gateways that check it as well and find it healthy, by node. Empty if health follows from connections: a gateway that does not use an
    /// endpoint learns nothing of it, and gateways do not report what they use.
    pub(crate) missing: Vec<String>,
}

impl View for AllGatewaysView {}

impl AllGatewaysView {
    /// Combines the answers of gateways to a controller on `asked_by`.
    pub(crate) fn new(
        asked_by: &str,
        controller: ControllerView,
        mut answers: Vec<(KnownGateway, GatewayAnswer)>,
    ) -> Self {
        answers.sort_by(|(one, _), (other, _)| one.node.cmp(&other.node));
        let mut gateways: Vec<GatewayStatusView> =
            answers.iter().map(|(known, answer)| GatewayStatusView::new(known, answer)).collect();
        let (problems, more_problems) = shared_problems(&answers);
        let (unhealthy, more_unhealthy) = shared_endpoints(&answers);
        let Differences { sentences, marks } = differences::find(&gateways, &problems, &unhealthy);
        for (gateway, mark) in marks {
            let known = gateways.iter_mut().find(|it| it.node == gateway);
            if let Some(known) = known.filter(|it| !it.differs.iter().any(|it| it == mark)) {
                known.differs.push(mark.to_owned());
            }
        }
        let of_gateways = |it: &ProblemView| {
            problems
                .iter()
                .any(|shared| (&shared.problem.object, &shared.problem.reason) == (&it.object, &it.reason))
        };
        let controller_wrong = controller.wrong();
        let mut controller_problems = controller.problems;
        controller_problems.retain(|it| !of_gateways(it));
        Self {
            asked_by: asked_by.to_owned(),
            leader: controller.leader,
            leading: Some(controller.leading),
            controller_wrong,
            gateways,
            differences: sentences,
            problems,
            more_problems,
            controller_problems,
            more_controller_problems: controller.more_problems,
            unwell: unwell(&answers),
            unhealthy,
            more_unhealthy,
        }
    }

    /// Whether tables differ. That may be transient, since gateways are queried one after the other and apply a change at different times.
    pub(crate) fn tables_differ(&self) -> bool {
        self.gateways.iter().any(|it| it.differs.iter().any(|mark| mark == "table"))
    }

    /// Exit code of `sheave status --fleet`.
    pub(crate) fn exit(&self) -> Exit {
        let well =
            |it: &GatewayStatusView| it.state == "serving" && it.error.is_none() && it.wrong.is_empty();
        if self.gateways.iter().all(|it| it.state == "silent") {
            Exit::Down
        } else if self.gateways.iter().all(well)
            && self.differences.is_empty()
            && self.problems.is_empty()
            && self.unwell.is_empty()
            && self.controller_wrong.is_empty()
            && self.controller_problems.is_empty()
            && self.more_controller_problems == 0
        {
            Exit::Ok
        } else {
            Exit::Degraded
        }
    }

    /// Text for people: the gateways, differences and Problems.
    pub(crate) fn to_text(&self) -> String {
        text::render(self)
    }
}

/// Services that are unwell on any gateway, each from the gateway whose clients it is worst for.
fn unwell(answers: &[(KnownGateway, GatewayAnswer)]) -> Vec<UnwellView> {
    let mut worst: BTreeMap<&str, &UnwellView> = BTreeMap::new();
    for (_, answer) in answers {
        let GatewayAnswer::Status(status) = answer else { continue };
        for view in &status.first_unwell {
            worst.entry(&view.object).and_modify(|known| *known = view.min(known)).or_insert(view);
        }
    }
    let mut unwell: Vec<UnwellView> = worst.into_values().cloned().collect();
    unwell.sort_unstable();
    unwell.truncate(MOST);
    unwell
}

impl GatewayStatusView {
    fn new(known: &KnownGateway, answer: &GatewayAnswer) -> Self {
        let base = Self {
            node: known.node.clone(),
            addresses: known.addresses.iter().map(ToString::to_string).collect(),
            ready: known.ready,
            ..Self::default()
        };
        match answer {
            GatewayAnswer::Status(status) => base.with_status(status),
            GatewayAnswer::Report { report, failures, why } => Self {
                state: if report.draining { "draining" } else { "serving" }.to_owned(),
                error: Some(why.clone()),
                generation: Some(report.generation),
                problems: Some(*failures),
                ..base
            },
            GatewayAnswer::Silent(why) => {
                Self { state: "silent".to_owned(), error: Some(why.clone()), ..base }
            }
        }
    }

    fn with_status(self, status: &ProcessView) -> Self {
        let state = match status {
            ProcessView { draining: true, .. } => "draining",
            ProcessView { lame_duck: true, .. } => "lameDuck",
            ProcessView { not_ready: Some(_), .. } | ProcessView { worker_stuck: true, .. } => "notReady",
            _ => "serving",
        };
        let mut wrong = status.wrong_with_process();
        if status.node != self.node {
            wrong.push(format!(
                "it calls itself {}, and runs on {}: check `node` in its configuration, and who answers at its address",
                status.node, self.node
            ));
        }
        Self {
            state: state.to_owned(),
            version: Some(status.version.clone()),
            uptime_seconds: Some(status.uptime_seconds),
            generation: Some(status.generation),
            table_age_seconds: status.table_age_seconds,
            table_hash: status.table_hash.clone(),
            frontends: Some(status.frontends),
            problems: Some(status.problems),
            unhealthy_endpoints: Some(status.unhealthy_endpoints),
            announcing: status.announcing.clone(),
            wrong,
            ..self
        }
    }
}
