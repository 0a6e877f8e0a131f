//! The state of a process, as `sheave status` and `/api/status` show it. The JSON is a contract: keys are added, never renamed.

pub(crate) mod collect;
pub(crate) mod table_hash;
mod text;
mod unhealthy;

pub(crate) use self::text::span;
pub(crate) use self::unhealthy::UnhealthyView;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::views::View;

use crate::exit::Exit;
use crate::views::problem::{LISTED, ProblemView};
use crate::views::services::{ServiceCounts, ServiceRow, ServiceState};
use crate::views::steering::SteeringView;

/// What the process does, what it knows, and how fresh that is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessView {
    /// The node that it runs on.
    pub(crate) node: String,
    /// Of Sheave.
    pub(crate) version: String,
    /// What it does: `gateway`, `controller`, or `run` for both in one process.
    pub(crate) role: String,
    /// Since it was started.
    pub(crate) uptime_seconds: u64,
    /// Of the routing table in force; grows with each change.
    pub(crate) generation: u64,
    /// Since it changed last; null if it never has.
    #[serde(default)]
    pub(crate) table_age_seconds: Option<u64>,
    /// In the routing table in force.
    pub(crate) frontends: usize,
    /// Of what the routing table says wherever it is in force; the same on gateways of one version that follow the same objects.
    #[serde(default)]
    pub(crate) table_hash: Option<String>,
    /// Where the objects come from.
    pub(crate) source: SourceView,
    /// Where those of the Karmada control plane come from; null without one.
    #[serde(default)]
    pub(crate) karmada: Option<SourceView>,
    /// Lists that are not believed yet, by kind; usually none.
    pub(crate) guard: Vec<GuardView>,
    /// As many as `/api/routes` lists; of a controller by itself all that it sees.
    pub(crate) problems: usize,
    /// The first of those that `/api/routes` lists; a controller's are its own.
    #[serde(default)]
    pub(crate) first_problems: Vec<ProblemView>,
    /// Endpoints that are unhealthy.
    #[serde(default)]
    pub(crate) unhealthy_endpoints: usize,
    /// The first of them, by Service and address.
    #[serde(default)]
    pub(crate) first_unhealthy: Vec<UnhealthyView>,
    /// How many Services are in each state for the clients who come here; null where nothing is forwarded.
    #[serde(default)]
    pub(crate) services: Option<ServiceCounts>,
    /// The first of those that are not well, the worst before.
    #[serde(default)]
    pub(crate) first_unwell: Vec<UnwellView>,
    /// Null where no controller runs.
    pub(crate) controller: Option<ControllerView>,
    /// How clients reach the frontends; null where nothing is forwarded.
    #[serde(default)]
    pub(crate) steering: Option<SteeringView>,
    /// What becomes of addresses that gateways announce; null where they announce none.
    #[serde(default)]
    pub(crate) announcing: Option<AnnouncingView>,
    /// Hot upgrades; null where nothing is forwarded.
    #[serde(default)]
    pub(crate) takeover: Option<TakeoverView>,
    /// Is not ready any more, but takes new connections until it drains.
    #[serde(default)]
    pub(crate) lame_duck: bool,
    /// Takes nothing new and is about to end.
    pub(crate) draining: bool,
    /// Why `/readyz` refuses, the workers aside; null if the process is ready.
    #[serde(default)]
    pub(crate) not_ready: Option<String>,
    /// A worker did not show in time that it runs.
    #[serde(default)]
    pub(crate) worker_stuck: bool,
}

/// A Service that is broken or degraded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnwellView {
    /// `broken` or `degraded`.
    pub(crate) state: ServiceState,
    /// `Service namespace/name`, or with the other kind.
    pub(crate) object: String,
    /// What is wrong.
    pub(crate) why: String,
}

/// The addresses that gateways announce, in short: `sheave gateways` has the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnnouncingView {
    /// `eligible`, `holdDown`, `fenced` or `leaving`.
    pub(crate) state: String,
    /// Each gateway announces what it can serve, by BGP, and knows nothing of the others.
    #[serde(default)]
    pub(crate) shared: bool,
    /// How many gateways hear this one, itself included.
    pub(crate) heard_by: usize,
    /// Out of how many.
    pub(crate) counted: usize,
    /// Addresses that are to be announced.
    pub(crate) addresses: usize,
    /// Those of them that this gateway announces.
    pub(crate) announced: usize,
    /// What people should know.
    pub(crate) warnings: Vec<String>,
}

/// Take-overs of this process, and from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TakeoverView {
    /// How long this process needed to take over from the one before; null if there was none.
    pub(crate) seconds: Option<f64>,
    /// Times that another process asked to take over from this one and did not.
    pub(crate) failures: u64,
}

/// Where the objects come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceView {
    /// `manifests` or `api`.
    pub(crate) kind: String,
    /// The API server's URL; null for manifests.
    pub(crate) server: Option<String>,
    /// Whether everything that is needed has been listed since the start.
    pub(crate) synced: bool,
    /// One by one.
    pub(crate) kinds: Vec<KindView>,
    /// Whether the snapshot stands in for what has not been listed since the start.
    pub(crate) from_snapshot: bool,
    /// The last good input on disk; null where none is kept.
    pub(crate) snapshot: Option<SnapshotView>,
}

/// One kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KindView {
    /// As in manifests: `Service`, `EndpointSlice`, `Node`, `Work`.
    pub(crate) kind: String,
    /// Whether it has been listed since the start.
    pub(crate) synced: bool,
    /// How many there are, as far as is known.
    pub(crate) objects: usize,
    /// Since the API server's last event of the kind; null if there was none, and for manifests.
    pub(crate) last_heard_seconds: Option<u64>,
    /// How often it had to be listed again, because the watch could not be taken up where it ended.
    pub(crate) restarts: u64,
    /// How often its watch was begun again, for whatever reason; each lasts for ten minutes at most.
    pub(crate) watches: u64,
    /// Why nothing is heard at the moment; null if all is well.
    pub(crate) error: Option<String>,
}

/// The last good input on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SnapshotView {
    /// The file.
    pub(crate) path: String,
    /// As RFC 3339 has it; null if there is none yet.
    pub(crate) written_at: Option<String>,
    /// Since it was written. Old is not stale: it is written when something changes.
    pub(crate) age_seconds: Option<u64>,
    /// Why it cannot be read or written; null if all is well.
    pub(crate) error: Option<String>,
}

/// One kind whose newest list lacks nearly everything that was there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GuardView {
    /// As in manifests, or which of them: `template Service`, `collected Work`.
    pub(crate) kind: String,
    /// Objects that there were.
    pub(crate) there: usize,
    /// Objects that the list has.
    pub(crate) listed: usize,
    /// Objects that stay in force although the list lacks them.
    #[serde(default)]
    pub(crate) kept: usize,
    /// Until the list is believed.
    pub(crate) remaining_seconds: u64,
}

/// The part that writes to the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ControllerView {
    /// Whether this one is the elected one.
    pub(crate) leading: bool,
    /// The elected one, as the Lease names it; null if there is none.
    pub(crate) leader: Option<String>,
    /// Gateways that are ready; null unless this one leads.
    #[serde(default)]
    pub(crate) gateways: Option<usize>,
    /// Services that it publishes addresses for; null unless this one leads.
    #[serde(default)]
    pub(crate) services: Option<usize>,
    /// Objects to which it has to write what the API server keeps refusing; null unless this one leads.
    #[serde(default)]
    pub(crate) write_failures: Option<usize>,
    /// What is wrong with the objects, as the leader sees it: the first of it.
    #[serde(default)]
    pub(crate) problems: Vec<ProblemView>,
    /// How many more there are.
    #[serde(default)]
    pub(crate) more_problems: usize,
}

impl fmt::Display for UnwellView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.state == ServiceState::Broken { "broken" } else { "degraded" };
        write!(f, "{} is {state}: {}", self.object, self.why)
    }
}

impl View for ProcessView {}

impl ControllerView {
    /// What is wrong with it, as sentences with a remedy: Problems of objects are left out.
    pub(crate) fn wrong(&self) -> Vec<String> {
        text::wrong_with_controller(self)
    }
}

impl ProcessView {
    /// With these Services.
    pub(crate) fn serving(mut self, rows: &[ServiceRow]) -> Self {
        let unwell = rows.iter().filter(|row| row.state != ServiceState::Serving);
        let mut unwell: Vec<UnwellView> = unwell
            .map(|row| UnwellView { state: row.state, object: row.object(), why: row.why.clone() })
            .collect();
        unwell.sort_unstable();
        unwell.truncate(LISTED);
        self.services = Some(ServiceCounts::of(rows));
        self.first_unwell = unwell;
        self
    }

    /// How `sheave status` exits: by whether the process is ready, and whether anything is wrong.
    pub(crate) fn exit(&self) -> Exit {
        if self.not_ready.is_some() || self.worker_stuck {
            // As `/readyz` has it.
            Exit::Down
        } else if text::wrong(self).is_empty() {
            Exit::Ok
        } else {
            Exit::Degraded
        }
    }

    /// What is wrong with the process itself, as sentences with a remedy: Services and Problems of objects are left out.
    pub(crate) fn wrong_with_process(&self) -> Vec<String> {
        let controller = self.controller.as_ref();
        let controller = controller.map(|view| ControllerView { problems: Vec::new(), ..view.clone() });
        text::wrong(&Self { problems: 0, services: None, controller, ..self.clone() })
    }

    /// For people: how it is, what is wrong, and what to do about it.
    pub(crate) fn to_text(&self) -> String {
        text::render(self)
    }
}

#[cfg(test)]
mod tests;
