//! What `sheave top --once` prints as JSON. It is a contract: keys are added, never renamed.

use serde::Serialize;

use crate::views::View;

/// The traffic of a second, of all rows of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopView {
    /// The node of the gateway.
    pub(crate) node: String,
    /// Over which the rates are.
    pub(crate) seconds: f64,
    /// Of everything together, frontends that have gone included.
    pub(crate) total: TopTraffic,
    /// Only with `--view services`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) services: Option<Vec<TopService>>,
    /// Only with `--view endpoints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoints: Option<Vec<TopEndpoint>>,
    /// Only with `--view clusters`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clusters: Option<Vec<TopCluster>>,
    /// Only with `--view clients`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clients: Option<Vec<TopClient>>,
    /// Only with `--view clients`, and only if there are too many to list: those that are not in `clients`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) other_clients: Option<TopOtherClients>,
}

impl View for TopView {}

/// What is open, and rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopTraffic {
    /// TCP connections and UDP flows that are open.
    pub(crate) open: u64,
    /// Those that were opened.
    pub(crate) opened_per_second: f64,
    /// From clients to endpoints.
    pub(crate) client_bytes_per_second: f64,
    /// From endpoints to clients.
    pub(crate) endpoint_bytes_per_second: f64,
    /// In both directions.
    pub(crate) datagrams_per_second: f64,
    /// Connections that failed, datagrams that were dropped, and what was refused because there was too much.
    pub(crate) errors_per_second: f64,
}

/// The same where datagrams and errors are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopOpen {
    /// TCP connections and UDP flows that are open.
    pub(crate) open: u64,
    /// Those that were opened; of endpoints and clusters: how often they were chosen.
    pub(crate) opened_per_second: f64,
    /// From clients to endpoints.
    pub(crate) client_bytes_per_second: f64,
    /// From endpoints to clients.
    pub(crate) endpoint_bytes_per_second: f64,
}

impl From<TopTraffic> for TopOpen {
    fn from(traffic: TopTraffic) -> Self {
        let TopTraffic {
            open, opened_per_second, client_bytes_per_second, endpoint_bytes_per_second, ..
        } = traffic;
        Self { open, opened_per_second, client_bytes_per_second, endpoint_bytes_per_second }
    }
}

/// One Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopService {
    /// `namespace/name`.
    pub(crate) service: String,
    /// The kind of the object: `Service` or `MultiClusterService`.
    pub(crate) source: String,
    /// `broken`, `degraded` or `ok`; empty if it is not known yet.
    pub(crate) state: String,
    /// What is wrong, or worth knowing; empty if nothing is.
    pub(crate) why: String,
    /// Endpoints that serve and are healthy, of the port with the fewest.
    pub(crate) ready_endpoints: usize,
    /// All of that port.
    pub(crate) endpoints: usize,
    #[serde(flatten)]
    pub(crate) traffic: TopTraffic,
}

/// One endpoint of a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopEndpoint {
    /// `ip:port`, IPv6 in brackets.
    pub(crate) endpoint: String,
    /// `namespace/name`.
    pub(crate) service: String,
    /// The kind of the object: `Service` or `MultiClusterService`.
    pub(crate) source: String,
    /// Where it runs.
    pub(crate) cluster: String,
    /// Empty if unknown.
    pub(crate) node: String,
    /// `Ready`, `Unhealthy`, `Terminating` or `Leaving`.
    pub(crate) state: String,
    /// Why it is unhealthy; empty if it is not.
    pub(crate) why: String,
    #[serde(flatten)]
    pub(crate) traffic: TopOpen,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopCluster {
    /// Its name.
    pub(crate) cluster: String,
    /// Services with endpoints in it.
    pub(crate) services: usize,
    /// Endpoints that are ready.
    pub(crate) ready_endpoints: usize,
    /// All endpoints; one that several Services have counts for each.
    pub(crate) endpoints: usize,
    #[serde(flatten)]
    pub(crate) traffic: TopOpen,
    /// Its part of what is new, in percent; null if nothing is.
    pub(crate) share: Option<f64>,
}

/// One network of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopClient {
    /// An IPv4 /24 or an IPv6 /56.
    pub(crate) prefix: String,
    /// The Service that has passed on the most bytes for it, or if none has, where it has the most open; empty if that has gone.
    pub(crate) service: String,
    /// The kind of the object: `Service` or `MultiClusterService`.
    pub(crate) source: String,
    #[serde(flatten)]
    pub(crate) traffic: TopOpen,
}

/// Networks that are not listed, together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopOtherClients {
    /// How many, about.
    pub(crate) prefixes: usize,
    #[serde(flatten)]
    pub(crate) traffic: TopOpen,
}
