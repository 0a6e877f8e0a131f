//! The explanation as users and programs see it. The JSON is a contract: keys are added, never renamed.

use serde::{Deserialize, Serialize};

/// Why a client of a Service goes where it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainView {
    /// `namespace/name`.
    pub(crate) service: String,
    /// The kind of the object: `Service` or `MultiClusterService`.
    #[serde(default)]
    pub(crate) source: String,
    /// `address:port/protocol` of the frontend that the answer is about; null if there is none.
    pub(crate) frontend: Option<String>,
    /// `LoadBalancer`, `ExternalIP`, `NodePort` or `ClusterIP`; null without a frontend.
    pub(crate) kind: Option<String>,
    /// The Service port's name; empty if it has none.
    pub(crate) port_name: String,
    /// The Service's other frontends that the question fits as well.
    pub(crate) other_frontends: Vec<String>,
    /// The client's address; null = any client outside the cluster.
    pub(crate) client: Option<String>,
    /// The port that the client comes from, if it was given.
    pub(crate) client_port: Option<u16>,
    /// `external` or `internal`; null without a frontend.
    pub(crate) origin: Option<String>,
    /// Whether the source ranges admit the client; false without a frontend.
    pub(crate) allowed: bool,
    /// `Forward`, `Reject` or `Drop`; null without a frontend.
    pub(crate) action: Option<String>,
    /// Where the client goes; null if nowhere, or if that is decided anew for each connection.
    pub(crate) endpoint: Option<String>,
    /// Why the frontend accepts nothing on this gateway, whatever else is said; null if it is open, and for manifests.
    #[serde(default)]
    pub(crate) closed: Option<String>,
    /// Sentences, in the order in which things are decided.
    pub(crate) reasons: Vec<String>,
    /// Every address of the frontend's family that the Service's slices have.
    pub(crate) endpoints: Vec<ExplainedEndpoint>,
}

/// One address of the Service's slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExplainedEndpoint {
    /// `ip:port`, or what the slice has.
    pub(crate) address: String,
    /// The cluster that it is in; empty where the frontend is served by one alone.
    #[serde(default)]
    pub(crate) cluster: String,
    /// The EndpointSlice's name.
    pub(crate) slice: String,
    /// Empty if unknown.
    pub(crate) node: String,
    /// Empty if unknown.
    pub(crate) zone: String,
    /// `Ready`, `Terminating` or `NotReady`.
    pub(crate) state: String,
    /// Runs on this node.
    pub(crate) local: bool,
    /// Whether the client may get it.
    pub(crate) used: bool,
    /// Its part of the traffic in percent, where that goes by the health of several clusters.
    #[serde(default)]
    pub(crate) share: Option<u8>,
    /// Why, or why not.
    pub(crate) reason: String,
}

impl ExplainView {
    /// As the contract has it, indented, with a newline at the end.
    pub(crate) fn to_json(&self) -> String {
        // Only maps with other keys than text, or a failing `Serialize`, are errors: there are none here.
        serde_json::to_string_pretty(self).map(|json| json + "\n").unwrap_or_default()
    }
}

impl ExplainedEndpoint {
    /// What becomes of it, as one of the reasons.
    pub(super) fn sentence(&self) -> String {
        let mut about = self.state.clone();
        let names = [
            ("cluster", &self.cluster),
            ("Node", &self.node),
            ("zone", &self.zone),
            ("EndpointSlice", &self.slice),
        ];
        for (what, name) in names {
            if !name.is_empty() {
                about += &format!(", {what} {name}");
            }
        }
        let used = if self.used { "used" } else { "left out" };
        format!("{} ({about}): {used}: {}", self.address, self.reason)
    }
}
