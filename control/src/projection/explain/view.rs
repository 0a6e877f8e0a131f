//! Explanation as users and programs see it. The JSON is stable: keys are added but never renamed.

use std::ops::Not;

use serde::{Deserialize, Serialize};
use sheave_model::EndpointAddr;

/// Explanation of what a client of a Service gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainView {
    /// `namespace/name`.
    pub service: String,
    /// Kind of the object: `Service` or `MultiClusterService`.
    #[serde(default)]
    pub source: String,
    /// `address:port/protocol` of the explained frontend; null if there is none.
    pub frontend: Option<String>,
    /// `LoadBalancer`, `ExternalIP`, `NodePort` or `ClusterIP`; null without a frontend.
    pub kind: Option<String>,
    /// Name of the Service port; empty if it has none.
    pub port_name: String,
    /// Other frontends of the Service that match the query.
    pub other_frontends: Vec<String>,
    /// Address of the client; null means any client outside the cluster.
    pub client: Option<String>,
    /// Source port of the client, if it was given.
    pub client_port: Option<u16>,
    /// `external` or `internal`; null without a frontend.
    pub origin: Option<String>,
    /// Whether the source ranges admit the client; false without a frontend.
    pub allowed: bool,
    /// `Forward`, `Reject` or `Drop`; null without a frontend.
    pub action: Option<String>,
    /// Endpoint that the client gets; null if it gets none, or if each connection may get another one.
    pub endpoint: Option<String>,
    /// Whether the client's endpoint, or each that it may get, is unhealthy.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub failing: bool,
    /// Reason of the Problem because of which some new connections are refused: `LimitReached` or `Overloaded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusing: Option<String>,
    /// Why the frontend accepts nothing on this gateway, whatever the other reasons are; null if it is open, and for manifests.
    #[serde(default)]
    pub closed: Option<String>,
    /// Node of the gateway that owns the frontend's address, which may be another one; null if gateways announce nothing.
    #[serde(default)]
    pub announced_by: Option<String>,
    /// Whether this gateway currently announces the frontend's address; null if gateways announce nothing.
    #[serde(default)]
    pub announced_here: Option<bool>,
    /// Sentences, in the order of the decisions.
    pub reasons: Vec<String>,
    /// Problems among the reasons, without the prefix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// All addresses of the frontend's family in the Service's slices.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// Listener of a Gateway that the frontend is for, as `namespace/gateway/listener`. Missing for Services, as the next four are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// Route that the listener serves, such as `TCPRoute shop/web`; missing if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// When the route was created, by which the oldest of several serves; missing in manifests without a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_created: Option<String>,
    /// Parents of the route that the question is about, in the order of its spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ExplainedParent>,
    /// Backends of the route, each with its endpoints. `endpoints` is empty then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<ExplainedPart>,
    /// Summary of all endpoints, if `endpoints` may be incomplete: only in answers about all gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_endpoints: Option<EndpointSummary>,
}

/// A parent of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedParent {
    /// The parentRef, such as `Gateway shop/gw, sectionName tcp`.
    pub parent: String,
    /// Conditions of the route there; empty if the parent is missing or another controller's.
    pub conditions: Vec<ExplainedCondition>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// A CamelCase token.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// A backend of a route, and what happens to its share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedPart {
    /// The backend as the route names it: `Service shop/web:80`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// 0 to 1,000,000; 0 = no new connections.
    pub weight: u32,
    /// Share of new connections, such as `30%`.
    pub share: String,
    /// Why its share is refused; missing if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// All addresses of the frontend's family in the backend's slices.
    pub endpoints: Vec<ExplainedEndpoint>,
}

/// Summary of the endpoints of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSummary {
    /// Number of endpoints.
    pub count: usize,
    /// Number of endpoints that the client may get.
    pub used: usize,
    /// Hash of the addresses of these. Gateways of one version with equal addresses have equal hashes.
    pub used_hash: String,
}

/// An address from the Service's slices, and what happens to it for one class of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedEndpoint {
    /// `ip:port`, or the text in the slice.
    pub address: String,
    /// Address where it would serve; `None` if its slice has no usable port or address. Not part of the JSON.
    #[serde(skip)]
    pub addr: Option<EndpointAddr>,
    /// Name of its cluster; empty if a single cluster serves the frontend.
    #[serde(default)]
    pub cluster: String,
    /// Name of the EndpointSlice.
    pub slice: String,
    /// Name of its Node; empty if unknown.
    pub node: String,
    /// Its zone; empty if unknown.
    pub zone: String,
    /// `Ready`, `Terminating` or `NotReady`.
    pub state: String,
    /// Why this gateway considers it unhealthy, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// Whether it runs on this node.
    pub local: bool,
    /// Whether the client may get it.
    pub used: bool,
    /// Weight of its cluster; null if a single cluster serves the frontend.
    #[serde(default)]
    pub weight: Option<u16>,
    /// Its share of the traffic in percent, if that depends on the health of several clusters.
    #[serde(default)]
    pub share: Option<u8>,
    /// Why the client may or may not get it.
    pub reason: String,
}

/// Explanation of what a class of clients gets on a frontend, from objects alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendExplanation {
    /// Sentences, starting with the policy.
    pub reasons: Vec<String>,
    /// All addresses of the frontend's family in the Service's slices, by address and port; invalid ones come last.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// Slices of the other family, which serve other frontends, if any, by name.
    pub other_slices: Vec<String>,
}

/// A port of the Service, whether served or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecPort {
    /// Name; empty for an unnamed port.
    pub name: String,
    /// Number, as in the Service; possibly not a valid port.
    pub port: i32,
    /// Protocol, as in the Service, including protocols that are not forwarded.
    pub protocol: String,
}

impl ExplainedEndpoint {
    /// A sentence about what happens to it, for the reasons.
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
