//! Result of `sheave replay`: what a change does to the connections of a log. JSON keys may be added, but are never renamed.

mod text;

use serde::Serialize;

use super::View;
use super::problem::ProblemView;

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayView {
    /// Node whose gateway the traffic was replayed for.
    pub(crate) node: String,
    /// What was read.
    pub(crate) log: ReplayedLogView,
    /// What was taken out.
    pub(crate) without: WithoutView,
    /// Sums over all Services.
    pub(crate) connections: ReplayCountsView,
    /// Load of each cluster.
    pub(crate) clusters: Vec<ReplayedClusterView>,
    /// Service ports, those first that the change affects.
    pub(crate) services: Vec<ReplayedServiceView>,
    /// Problems of the manifests.
    pub(crate) problems: Vec<ProblemView>,
    /// What is missing, or was only estimated, as sentences.
    pub(crate) notes: Vec<String>,
}

/// What was read of the logs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayedLogView {
    /// Start of the first connection.
    pub(crate) from: String,
    /// End of the last connection.
    pub(crate) to: String,
    /// Lines that were skipped.
    pub(crate) skipped: u64,
    /// The first of them.
    pub(crate) skipped_lines: Vec<SkippedLineView>,
    /// Connections that outlasted the window in which connections are ordered by their starts.
    pub(crate) late: u64,
}

/// Skipped line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SkippedLineView {
    pub(crate) log: String,
    /// Number of the line, from 1.
    pub(crate) line: u64,
    pub(crate) message: String,
}

/// Names that were taken out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct WithoutView {
    pub(crate) nodes: Vec<String>,
    pub(crate) zones: Vec<String>,
    pub(crate) clusters: Vec<String>,
}

/// Numbers of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayCountsView {
    pub(crate) total: u64,
    /// Connections that go to another endpoint.
    pub(crate) moved: u64,
    /// Connections that had an endpoint and get none.
    pub(crate) refused: u64,
    /// Connections that had no endpoint and get one.
    pub(crate) newly_served: u64,
    /// Connections without an endpoint before and after.
    pub(crate) still_refused: u64,
    /// Connections whose endpoint depends on a server name that the log does not have.
    pub(crate) undecided: u64,
    /// Connections that ended before an endpoint was looked for.
    pub(crate) unasked: u64,
    /// Clients that lose the endpoint that they had.
    pub(crate) clients_moved: u64,
}

/// Load of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ReplayedClusterView {
    pub(crate) cluster: String,
    pub(crate) before: LoadView,
    pub(crate) after: LoadView,
}

/// Connections and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadView {
    pub(crate) connections: u64,
    /// Part of the connections that have an endpoint: 0 to 1.
    pub(crate) share: f64,
    pub(crate) client_bytes: u64,
    pub(crate) endpoint_bytes: u64,
}

/// A Service port.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayedServiceView {
    pub(crate) source: String,
    /// `namespace/name`.
    pub(crate) service: String,
    pub(crate) port_name: String,
    #[serde(flatten)]
    pub(crate) connections: ReplayCountsView,
    /// Whether each connection has the same endpoint in every run. Otherwise `moved` is as many as differ by more than chance explains.
    pub(crate) exact: bool,
    pub(crate) endpoints: Vec<ReplayedEndpointView>,
    pub(crate) refusals: Vec<RefusalView>,
    pub(crate) affinity: ReplayedAffinityView,
}

/// Load of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ReplayedEndpointView {
    pub(crate) endpoint: String,
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) before: LoadView,
    pub(crate) after: LoadView,
}

/// Refused connections of a Service port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RefusalView {
    /// Reason as one word.
    pub(crate) reason: String,
    /// Reason as a sentence.
    pub(crate) message: String,
    pub(crate) connections: u64,
    pub(crate) bytes: u64,
    /// Addresses of some of the clients.
    pub(crate) clients: Vec<String>,
}

/// Clients of a Service port and their endpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayedAffinityView {
    /// Whether the new manifests set session affinity.
    pub(crate) enabled: bool,
    /// Clients with an endpoint.
    pub(crate) clients: u64,
    /// Clients with several connections.
    pub(crate) returning: u64,
    /// Returning clients with one endpoint in the log.
    pub(crate) kept: u64,
    /// Clients with one endpoint in the log that go to another one now.
    pub(crate) lost: u64,
    /// Addresses of some of those.
    pub(crate) lost_clients: Vec<String>,
}

impl View for ReplayView {}

impl ReplayView {
    /// Whether the change does nothing to the traffic.
    pub(crate) fn is_unchanged(&self) -> bool {
        let ReplayCountsView { moved, refused, newly_served, .. } = self.connections;
        moved + refused + newly_served == 0
    }
}

impl ReplayCountsView {
    /// Adds the counts of another Service port.
    pub(crate) fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.moved += other.moved;
        self.refused += other.refused;
        self.newly_served += other.newly_served;
        self.still_refused += other.still_refused;
        self.undecided += other.undecided;
        self.unasked += other.unasked;
        self.clients_moved += other.clients_moved;
    }
}
