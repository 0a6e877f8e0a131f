//! JSON of `sheave top --once`. Keys may be added, but are never renamed.

use serde::Serialize;

use crate::views::View;

/// Traffic of one second, with all rows of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopView {
    /// Node of the gateway.
    pub(crate) node: String,
    /// Interval of the rates.
    pub(crate) seconds: f64,
    /// Sum over all frontends, including removed ones.
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
    /// Sum over the networks that are not in `clients`; only with `--view clients`, and only if there are too many to list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) other_clients: Option<TopOtherClients>,
}

impl View for TopView {}

/// Open connections, and rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopTraffic {
    /// Open TCP connections and UDP flows.
    pub(crate) open: u64,
    /// Opened TCP connections and UDP flows.
    pub(crate) opened_per_second: f64,
    /// Bytes from clients to endpoints.
    pub(crate) client_bytes_per_second: f64,
    /// Bytes from endpoints to clients.
    pub(crate) endpoint_bytes_per_second: f64,
    /// Datagrams in both directions.
    pub(crate) datagrams_per_second: f64,
    /// Failed connections, dropped datagrams, and what was refused because of a limit.
    pub(crate) errors_per_second: f64,
}

/// Traffic of rows for which datagrams and errors are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopOpen {
    /// Open TCP connections and UDP flows.
    pub(crate) open: u64,
    /// Opened TCP connections and UDP flows; for endpoints and clusters, how often they were chosen.
    pub(crate) opened_per_second: f64,
    /// Bytes from clients to endpoints.
    pub(crate) client_bytes_per_second: f64,
    /// Bytes from endpoints to clients.
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
    /// Kind of the object: `Service` or `MultiClusterService`.
    pub(crate) source: String,
    /// `broken`, `degraded` or `ok`; empty if unknown.
    pub(crate) state: String,
    /// Reason for the state, or a remark; may be empty.
    pub(crate) why: String,
    /// Healthy endpoints that serve, of the port with the fewest.
    pub(crate) ready_endpoints: usize,
    /// All endpoints of that port.
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
    /// Kind of the object: `Service` or `MultiClusterService`.
    pub(crate) source: String,
    /// Cluster that it runs in.
    pub(crate) cluster: String,
    /// Node name; empty if unknown.
    pub(crate) node: String,
    /// `Ready`, `Unhealthy`, `Terminating` or `Leaving`.
    pub(crate) state: String,
    /// Reason for being unhealthy; empty if it is healthy.
    pub(crate) why: String,
    #[serde(flatten)]
    pub(crate) traffic: TopOpen,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopCluster {
    /// Name of the cluster.
    pub(crate) cluster: String,
    /// Services with endpoints in it.
    pub(crate) services: usize,
    /// Endpoints that are ready.
    pub(crate) ready_endpoints: usize,
    /// All endpoints. An endpoint of several Services counts for each.
    pub(crate) endpoints: usize,
    #[serde(flatten)]
    pub(crate) traffic: TopOpen,
    /// Percentage of new connections; null if there are none.
    pub(crate) share: Option<f64>,
}

/// Network of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopClient {
    /// An IPv4 /24 or an IPv6 /56.
    pub(crate) prefix: String,
    /// Service with the most bytes for this network, or else with the most open connections; empty if it was removed.
    pub(crate) service: String,
    /// Kind of the object: `Service` or `MultiClusterService`.
    pub(crate) source: String,
    #[serde(flatten)]
    pub(crate) traffic: TopOpen,
}

/// Sum over networks that are not listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopOtherClients {
    /// Approximate number of networks.
    pub(crate) prefixes: usize,
    #[serde(flatten)]
    pub(crate) traffic: TopOpen,
}
