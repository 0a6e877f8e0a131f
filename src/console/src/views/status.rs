//! State of a process for `sheave status` and `/api/status`. JSON keys may be added, but are never renamed.

pub mod collect;
pub mod table_hash;
mod text;
mod unhealthy;

pub use self::unhealthy::UnhealthyView;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::views::View;

use crate::exit::Exit;
use crate::views::problem::{LISTED, ProblemView};
use crate::views::services::{ServiceCounts, ServiceRow, ServiceState};
use crate::views::steering::SteeringView;

/// State of a process: its role, its objects, and how fresh they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessView {
    /// Node that it runs on.
    pub node: String,
    /// Version of Sheave.
    pub version: String,
    /// Role: `gateway`, `controller`, or `run` for both in one process.
    pub role: String,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Generation of the routing table in force; increases with each change.
    pub generation: u64,
    /// Seconds since the last change of the table; null if it never changed.
    #[serde(default)]
    pub table_age_seconds: Option<u64>,
    /// Number of frontends in the routing table in force.
    pub frontends: usize,
    /// Hash of the node-independent part of the routing table; equal on gateways of the same version that follow the same
    /// objects.
    #[serde(default)]
    pub table_hash: Option<String>,
    /// Source of the objects.
    pub source: SourceView,
    /// Source of the Karmada control plane's objects; null without one.
    #[serde(default)]
    pub karmada: Option<SourceView>,
    /// Lists that are held back, by kind; usually empty.
    pub guard: Vec<GuardView>,
    /// Number of Problems in `/api/routes`; for a standalone controller, all that it sees.
    pub problems: usize,
    /// First Problems of `/api/routes`; for a controller, its own.
    #[serde(default)]
    pub first_problems: Vec<ProblemView>,
    /// Number of unhealthy endpoints.
    #[serde(default)]
    pub unhealthy_endpoints: usize,
    /// First of these, by Service and address.
    #[serde(default)]
    pub first_unhealthy: Vec<UnhealthyView>,
    /// Number of Services in each state for the clients of this gateway; null if nothing is forwarded.
    #[serde(default)]
    pub services: Option<ServiceCounts>,
    /// First Services that are broken or degraded, worst first.
    #[serde(default)]
    pub first_unwell: Vec<UnwellView>,
    /// Controller; null if none runs.
    pub controller: Option<ControllerView>,
    /// How clients reach the frontends; null if nothing is forwarded.
    #[serde(default)]
    pub steering: Option<SteeringView>,
    /// State of announced addresses; null if gateways announce none.
    #[serde(default)]
    pub announcing: Option<AnnouncingView>,
    /// Hot upgrades; null if nothing is forwarded.
    #[serde(default)]
    pub takeover: Option<TakeoverView>,
    /// Whether it is no longer ready, but accepts new connections until it drains.
    #[serde(default)]
    pub lame_duck: bool,
    /// Whether it accepts nothing new and is about to end.
    pub draining: bool,
    /// Reason why `/readyz` fails, regardless of workers; null if the process is ready.
    #[serde(default)]
    pub not_ready: Option<String>,
    /// Whether a worker did not answer in time.
    #[serde(default)]
    pub worker_stuck: bool,
}

/// A Service that is broken or degraded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnwellView {
    /// `broken` or `degraded`.
    pub state: ServiceState,
    /// `Service namespace/name`, or with another kind.
    pub object: String,
    /// Reason for the state.
    pub why: String,
}

/// Summary of announced addresses; `sheave gateways` has the details.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncingView {
    /// `eligible`, `holdDown`, `fenced` or `leaving`.
    pub state: String,
    /// Whether each gateway announces, by BGP, what it can serve, regardless of the others.
    #[serde(default)]
    pub shared: bool,
    /// Number of gateways that receive heartbeats from this one, including itself.
    pub heard_by: usize,
    /// Number of gateways that count for the majority.
    pub counted: usize,
    /// Number of addresses to announce.
    pub addresses: usize,
    /// Number of addresses that this gateway announces.
    pub announced: usize,
    /// Warnings, as sentences.
    pub warnings: Vec<String>,
}

/// Takeovers by this process, and from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TakeoverView {
    /// How long this process took to take over from its predecessor; null if there was none.
    pub seconds: Option<f64>,
    /// Number of failed takeovers from this process.
    pub failures: u64,
}

/// Source of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceView {
    /// `manifests` or `api`.
    pub kind: String,
    /// URL of the API server; null for manifests.
    pub server: Option<String>,
    /// Whether all required kinds have been listed since the start.
    pub synced: bool,
    /// Kinds of objects.
    pub kinds: Vec<KindView>,
    /// Whether the snapshot replaces what has not been listed since the start.
    pub from_snapshot: bool,
    /// Snapshot on disk; null if none is kept.
    pub snapshot: Option<SnapshotView>,
}

/// One kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindView {
    /// Kind as in manifests: `Service`, `EndpointSlice`, `Node`, `Work`.
    pub kind: String,
    /// Whether it has been listed since the start.
    pub synced: bool,
    /// Number of known objects.
    pub objects: usize,
    /// Seconds since the API server's last event of this kind; null if there was none, and for manifests.
    pub last_heard_seconds: Option<u64>,
    /// Number of new lists because the watch could not continue where it ended.
    pub restarts: u64,
    /// Number of restarts of the watch for any reason. A watch lasts 10 to 20 minutes, those of the Gateway API 25 to 50.
    pub watches: u64,
    /// Current error of the watch; null if there is none.
    pub error: Option<String>,
}

/// Snapshot of the last good input on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotView {
    /// Path of the file.
    pub path: String,
    /// Time of the last write (RFC 3339); null if there is none yet.
    pub written_at: Option<String>,
    /// Seconds since the last write. An old snapshot is not stale, since it is written only after changes.
    pub age_seconds: Option<u64>,
    /// Error of reading or writing; null if there is none.
    pub error: Option<String>,
}

/// Kind whose newest list lacks nearly all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardView {
    /// Kind as in manifests, or a part of it: `template Service`, `collected Work`.
    pub kind: String,
    /// Number of known objects.
    pub there: usize,
    /// Number of objects in the list.
    pub listed: usize,
    /// Number of objects that stay in force although the list lacks them.
    #[serde(default)]
    pub kept: usize,
    /// Seconds until the list is accepted.
    pub remaining_seconds: u64,
}

/// Controller part of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerView {
    /// Whether it is the leader.
    pub leading: bool,
    /// Holder of the Lease; null if there is none.
    pub leader: Option<String>,
    /// Number of ready gateways; null unless it leads.
    #[serde(default)]
    pub gateways: Option<usize>,
    /// Number of Services whose addresses it publishes; null unless it leads.
    #[serde(default)]
    pub services: Option<usize>,
    /// Number of objects whose writes the API server keeps refusing; null unless it leads.
    #[serde(default)]
    pub write_failures: Option<usize>,
    /// First Problems of objects, as the leader sees them.
    #[serde(default)]
    pub problems: Vec<ProblemView>,
    /// Number of omitted Problems.
    #[serde(default)]
    pub more_problems: usize,
}

impl fmt::Display for UnwellView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: {}", self.object, self.state.text(), self.why)
    }
}

impl View for ProcessView {}

impl ControllerView {
    /// Problems of the controller itself, as sentences with a remedy.
    pub(crate) fn wrong(&self) -> Vec<String> {
        text::wrong_with_controller(self)
    }
}

impl ProcessView {
    /// Adds the state of these Services.
    pub fn serving(mut self, rows: &[ServiceRow]) -> Self {
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

    /// Exit code of `sheave status`: whether the process is ready, and whether anything is wrong.
    pub(crate) fn exit(&self) -> Exit {
        if self.not_ready.is_some() || self.worker_stuck {
            // Same as `/readyz`.
            Exit::Down
        } else if text::wrong(self).is_empty() {
            Exit::Ok
        } else {
            Exit::Degraded
        }
    }

    /// Problems of the process itself, as sentences with a remedy. Services and Problems of objects are left out.
    pub(crate) fn wrong_with_process(&self) -> Vec<String> {
        let controller = self.controller.as_ref();
        let controller = controller.map(|view| ControllerView { problems: Vec::new(), ..view.clone() });
        text::wrong(&Self { problems: 0, services: None, controller, ..self.clone() })
    }

    /// Text for people: the state, what is wrong, and what to do about it.
    pub(crate) fn to_text(&self) -> String {
        text::render(self)
    }
}

#[cfg(test)]
mod tests;
