//! The explanation as users and programs see it. The JSON is a contract: keys are added, never renamed.

use std::ops::Not;

use serde::{Deserialize, Serialize};
use sheave_model::EndpointAddr;

/// Why a client of a Service goes where it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainView {
    /// `namespace/name`.
    pub service: String,
    /// The kind of the object: `Service` or `MultiClusterService`.
    #[serde(default)]
    pub source: String,
    /// `address:port/protocol` of the frontend that the answer is about; null if there is none.
    pub frontend: Option<String>,
    /// `LoadBalancer`, `ExternalIP`, `NodePort` or `ClusterIP`; null without a frontend.
    pub kind: Option<String>,
    /// The Service port's name; empty if it has none.
    pub port_name: String,
    /// The Service's other frontends that the question fits as well.
    pub other_frontends: Vec<String>,
    /// The client's address; null = any client outside the cluster.
    pub client: Option<String>,
    /// The port that the client comes from, if it was given.
    pub client_port: Option<u16>,
    /// `external` or `internal`; null without a frontend.
    pub origin: Option<String>,
    /// Whether the source ranges admit the client; false without a frontend.
    pub allowed: bool,
    /// `Forward`, `Reject` or `Drop`; null without a frontend.
    pub action: Option<String>,
    /// Where the client goes; null if nowhere, or if that is decided anew for each connection.
    pub endpoint: Option<String>,
    /// The endpoint that the client goes to, or each that it may go to, is unhealthy.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub failing: bool,
    /// The reason of the Problem because of which some new connections are being refused: `LimitReached` or `Overloaded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusing: Option<String>,
    /// Why the frontend accepts nothing on this gateway, whatever the reasons are; null if it is open, and for manifests.
    #[serde(default)]
    pub closed: Option<String>,
    /// The node of the gateway that owns the frontend's address, which need not be this one; null where gateways announce nothing.
    #[serde(default)]
    pub announced_by: Option<String>,
    /// Whether this gateway announces the frontend's address now; null where gateways announce nothing.
    #[serde(default)]
    pub announced_here: Option<bool>,
    /// Sentences, in the order in which things are decided.
    pub reasons: Vec<String>,
    /// The Problems among them, without the word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Every address of the frontend's family that the Service's slices have.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// All of them in short, where `endpoints` may leave some out: in answers about all gateways alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_endpoints: Option<EndpointSummary>,
}

/// The endpoints of a frontend in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSummary {
    /// How many there are.
    pub count: usize,
    /// How many of them the client may get.
    pub used: usize,
    /// Of the addresses of these; the same on gateways of one version where they are the same.
    pub used_hash: String,
}

/// One address of the Service's slices, and what becomes of it for one class of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedEndpoint {
    /// `ip:port`, or what the slice has.
    pub address: String,
    /// Where it would serve; `None` if its slice has no port or address to serve with. Not for readers of the view.
    #[serde(skip)]
    pub addr: Option<EndpointAddr>,
    /// The cluster that it is in; empty where the frontend is served by one alone.
    #[serde(default)]
    pub cluster: String,
    /// The EndpointSlice's name.
    pub slice: String,
    /// Empty if unknown.
    pub node: String,
    /// Empty if unknown.
    pub zone: String,
    /// `Ready`, `Terminating` or `NotReady`.
    pub state: String,
    /// Why this gateway finds it unhealthy, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// Runs on this node.
    pub local: bool,
    /// Whether the client may get it.
    pub used: bool,
    /// The weight of its cluster among others; none where the frontend is served by one alone.
    #[serde(default)]
    pub weight: Option<u16>,
    /// Its part of the traffic in percent, where that goes by the health of several clusters.
    #[serde(default)]
    pub share: Option<u8>,
    /// Why, or why not.
    pub reason: String,
}

/// What one class of clients gets on a frontend, by the objects alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendExplanation {
    /// Sentences, the policy first.
    pub reasons: Vec<String>,
    /// Every address of the frontend's family that the Service's slices have, by address and port; those that are none
    /// come last.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// Slices of other families, which serve other frontends if any, by name.
    pub other_slices: Vec<String>,
}

/// A port as the Service has it, served or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecPort {
    /// Empty for an unnamed port.
    pub name: String,
    /// As in the Service; not always a port number.
    pub port: i32,
    /// As in the Service; not only those that we forward.
    pub protocol: String,
}

impl ExplainedEndpoint {
    /// What becomes of it, as one of the reasons.
    pub fn sentence(&self) -> String {
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
