//! Routing table for `sheave routes` and `/api/routes`. JSON keys may be added, but are never renamed.

mod failover;
mod gateway_status;
mod health;
mod limits;
mod published;
mod server_names;
mod split;
mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::views::View;
use sheave_control::api::objects::Objects;
use sheave_control::projection::{HealthCheck, LoadBalancerStatus, Projector};
use sheave_dataplane::KernelPathErrors;
use sheave_model::{
    Affinity, AffinityScope, Algorithm, Backend, ClientSource, ClientSources, Endpoint, EndpointAddr,
    EndpointState, Frontend, FrontendAddr, FrontendSource, ProxyReason, Route, RoutingTable, ServicePort,
};

pub(crate) use self::failover::FailoverView;
pub(crate) use self::gateway_status::GatewayApiStatusView;
pub(crate) use self::health::HealthView;
pub(crate) use self::limits::LimitsView;
pub(crate) use self::published::{HealthCheckView, PublishedView};
pub(crate) use self::server_names::ServerNameView;
pub(crate) use self::split::PartView;
use self::split::parts_of;
use super::problem::ProblemView;
use crate::views::steering::SteeringView;

/// Routing table with the Problems of its objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutesView {
    /// Increases with each change.
    pub generation: u64,
    /// Node that the table is for.
    pub node: String,
    /// How clients reach the frontends of a running gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steering: Option<SteeringView>,
    /// Frontends by address (IPv4 first, numerically), port and protocol.
    pub frontends: Vec<FrontendView>,
    /// Status that the controller would publish, by Service.
    #[serde(default)]
    pub status: Vec<PublishedView>,
    /// Status that the controller would write for objects of the Gateway API: an entry for each object, listener and parent of a route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateway_status: Vec<GatewayApiStatusView>,
    /// Health check node ports, by Service.
    #[serde(default)]
    pub health_checks: Vec<HealthCheckView>,
    /// Problems by object, reason and field.
    pub problems: Vec<ProblemView>,
    /// Objects of type LoadBalancer and Gateways that do not ask for this gateway; those that probably mean to come first, and routes
    /// without a Gateway last. They are not Problems, since another implementation may serve them.
    #[serde(default)]
    pub not_served: Vec<ProblemView>,
    /// Reasons why there may be less than expected, as sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Frontend with its actions and endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendView {
    /// Address without the port.
    pub address: String,
    /// Port, 1 to 65535.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// `LoadBalancer`, `ExternalIP`, `NodePort` or `ClusterIP`.
    pub kind: String,
    /// `namespace/name`.
    pub service: String,
    /// Port name; empty if the port has none.
    pub port_name: String,
    /// `appProtocol` of the Service port.
    #[serde(default)]
    pub app_protocol: Option<String>,
    /// Kind of the object: `Service` or `MultiClusterService`.
    pub source: String,
    /// Session affinity; null if there is none.
    pub affinity: Option<AffinityView>,
    /// CIDRs of the clients that may use it; empty = all, unless `admitsNobody`.
    pub source_ranges: Vec<String>,
    /// Whether source ranges were given, but none is valid.
    #[serde(default)]
    pub admits_nobody: bool,
    /// Algorithm that chooses endpoints.
    #[serde(default)]
    pub balance: String,
    /// What carries its connections, if the Service or the configuration asks for `kernel` or `auto`; null otherwise.
    #[serde(default)]
    pub path: Option<PathView>,
    /// Source addresses that endpoints see.
    #[serde(default)]
    pub client_source: ClientSourceView,
    /// CIDRs of peers whose connections begin with a PROXY header.
    #[serde(default)]
    pub accept_proxy: Vec<String>,
    /// Limits per gateway and timeouts of the Service; null if it has none.
    #[serde(default)]
    pub limits: Option<LimitsView>,
    /// Share of its TCP connections that is logged, for example `1%`; null if none is.
    #[serde(default)]
    pub connection_log: Option<String>,
    /// Reason why it accepts nothing on this gateway, regardless of routes; null if it is open, and for manifests.
    #[serde(default)]
    pub closed: Option<String>,
    /// Route of clients outside the cluster.
    pub external: RouteView,
    /// Route of clients inside the cluster.
    pub internal: RouteView,
    /// Health settings of endpoints.
    #[serde(default)]
    pub health: HealthView,
    /// Distribution of traffic over clusters; null if there is only one.
    #[serde(default)]
    pub failover: Option<FailoverView>,
    /// Endpoints by cluster; empty if the traffic is split.
    pub backends: Vec<BackendView>,
    /// Listener of a Gateway that it is for, as `namespace/gateway/listener`. Missing for Services, as the next two are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// Route that the listener serves, such as `TCPRoute shop/web`; missing if none is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Backends of the route, in its order; missing if no route is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Vec<PartView>>,
    /// Routes of a TLS listener by server name, exact or with the first label `*`; missing for other listeners. The frontend has no
    /// route itself then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_names: Option<BTreeMap<String, ServerNameView>>,
    /// The server names that it is about, if it is one of [`FrontendView::of_routes`].
    #[serde(skip)]
    pub(crate) names: Vec<String>,
}

const KERNEL: &str = "kernel";
const PROXY: &str = "proxy";

/// What carries a frontend's connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathView {
    /// `kernel` or `proxy`.
    pub name: String,
    /// Reason for the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Source that endpoints see, by class of clients: `gateway`, `transparent`, `proxy-v1` or `proxy-v2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSourceView {
    /// For clients outside the cluster.
    pub external: String,
    /// For clients inside the cluster.
    pub internal: String,
}

/// Session affinity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityView {
    /// Affinity by client address.
    #[serde(rename = "clientIP")]
    pub client_ip: ClientIpView,
}

/// Session affinity by client address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpView {
    /// How long a client is remembered after its last new connection.
    pub timeout_seconds: u64,
    /// `service` if all ports of the Service share an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// Route of one class of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteView {
    /// `Forward`, `Reject` or `Drop`.
    pub action: String,
    /// Destinations, by address and port.
    pub endpoints: Vec<String>,
}

/// Endpoints of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendView {
    /// Name of the cluster.
    pub cluster: String,
    /// Weight among the clusters of equal priority.
    pub weight: u16,
    /// Priority; 0 is used first.
    pub priority: u32,
    /// Number of endpoints of the cluster, including those that do not serve at present.
    #[serde(default)]
    pub capacity: u32,
    /// Endpoints that serve, by address and port.
    pub endpoints: Vec<EndpointView>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointView {
    /// `ip:port`, IPv6 in brackets.
    pub address: String,
    /// Node name; empty if unknown.
    pub node: String,
    /// Zone; empty if unknown.
    pub zone: String,
    /// Whether it runs on this node.
    pub local: bool,
    /// `Ready` or `Terminating`.
    pub state: String,
    /// Weight among the endpoints of its cluster.
    pub weight: u16,
}

impl View for RoutesView {}

impl RoutesView {
    /// View of the table of `node` with Problems. [`Self::publishing`] adds what would be published.
    pub fn new(table: &RoutingTable, node: &str, mut problems: Vec<ProblemView>) -> Self {
        problems.sort();
        Self {
            generation: table.generation(),
            node: node.to_owned(),
            steering: None,
            frontends: table
                .frontends()
                .iter()
                .map(|frontend| FrontendView::from(frontend.as_ref()))
                .collect(),
            status: Vec::new(),
            gateway_status: Vec::new(),
            health_checks: Vec::new(),
            problems,
            not_served: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds how clients reach the frontends.
    pub fn reached(self, steering: SteeringView) -> Self {
        Self { steering: Some(steering), ..self }
    }

    /// Adds the frontends that are closed on the gateway, with the reason.
    pub fn closing(mut self, closed: &BTreeMap<FrontendAddr, String>) -> Self {
        if closed.is_empty() {
            return self;
        }
        let mut by_place: HashMap<String, &String> =
            closed.iter().map(|(addr, why)| (addr.to_string(), why)).collect();
        for frontend in &mut self.frontends {
            frontend.closed = by_place.remove(&frontend.place()).cloned();
        }
        self
    }

    /// Gives the frontends that ask for the kernel back to the proxy, if the gateway cannot have the kernel carry them.
    pub fn without_kernel(mut self, errors: &KernelPathErrors) -> Self {
        for frontend in &mut self.frontends {
            let error = frontend.address.parse().ok().and_then(|ip| errors.of(ip));
            if let (Some(error), Some(path)) = (error, &mut frontend.path)
                && path.name == KERNEL
            {
                *path = PathView { name: PROXY.to_owned(), reason: Some(error.to_string()) };
            }
        }
        self
    }

    /// Adds what would be published; `failed` is true for frontends that could not be opened here.
    pub fn publishing<'a>(
        mut self,
        statuses: impl Iterator<Item = &'a LoadBalancerStatus>,
        health_checks: &[HealthCheck],
        failed: impl Fn(FrontendAddr) -> bool,
    ) -> Self {
        self.status = statuses.map(|status| PublishedView::new(status, &failed)).collect();
        self.health_checks = health_checks.iter().map(HealthCheckView::from).collect();
        self
    }

    /// Adds the status of objects of the Gateway API. `failed` are frontends that could not be opened here.
    pub fn with_gateways(
        self,
        projector: &Projector,
        objects: &Objects,
        failed: &BTreeSet<FrontendAddr>,
    ) -> Self {
        Self { gateway_status: GatewayApiStatusView::all(projector, objects, failed), ..self }
    }

    /// Adds the load balancers that are not served, and `notes` on why there may be less than expected.
    pub fn noting(mut self, not_served: Vec<ProblemView>, notes: Vec<String>) -> Self {
        (self.not_served, self.notes) = (not_served, notes);
        let silent = self.notes.is_empty() && self.not_served.is_empty() && self.problems.is_empty();
        if silent && self.frontends.is_empty() {
            self.notes.push("no Service of type LoadBalancer was found".to_owned());
        }
        self
    }

    /// Text for people, in aligned columns.
    pub(crate) fn to_text(&self) -> String {
        text::render(self, false)
    }

    /// Like [`Self::to_text`], with more columns.
    pub(crate) fn to_wide_text(&self) -> String {
        text::render(self, true)
    }
}

impl From<&Frontend> for FrontendView {
    fn from(frontend: &Frontend) -> Self {
        Self {
            address: frontend.addr.ip.to_string(),
            port: frontend.addr.port,
            protocol: frontend.addr.protocol.to_string(),
            kind: frontend.kind.to_string(),
            service: frontend.service.to_string(),
            port_name: frontend.service.port_name.as_ref().to_owned(),
            app_protocol: frontend.app_protocol.as_deref().map(str::to_owned),
            source: source_name(frontend.service.source).to_owned(),
            affinity: AffinityView::of(frontend.affinity),
            source_ranges: frontend.source_ranges.cidrs().iter().map(ToString::to_string).collect(),
            admits_nobody: frontend.source_ranges.allowed().is_empty(),
            balance: algorithm_name(frontend.algorithm).to_owned(),
            path: PathView::of(frontend),
            client_source: ClientSourceView::from(frontend.client_sources),
            accept_proxy: frontend
                .proxied_by
                .iter()
                .flat_map(|peers| peers.cidrs())
                .map(|cidr| cidr.to_string())
                .collect(),
            limits: LimitsView::of(frontend),
            connection_log: (!frontend.logged.is_none()).then(|| frontend.logged.to_string()),
            closed: None,
            external: RouteView::new(frontend, |it| &it.external),
            internal: RouteView::new(frontend, |it| &it.internal),
            health: HealthView::from(frontend.health.as_ref()),
            failover: FailoverView::of(frontend),
            backends: frontend.backends.iter().map(BackendView::from).collect(),
            listener: listener_name(&frontend.service),
            route: frontend.split.as_ref().map(|split| split.route.as_ref().to_owned()),
            split: frontend.split.as_deref().map(parts_of),
            server_names: frontend.server_names.as_deref().map(ServerNameView::all),
            names: Vec::new(),
        }
    }
}

impl PathView {
    fn of(frontend: &Frontend) -> Option<Self> {
        match frontend.kernel_path() {
            Ok(()) => Some(Self { name: KERNEL.to_owned(), reason: None }),
            Err(ProxyReason::Chosen) => None,
            Err(reason) => Some(Self { name: PROXY.to_owned(), reason: Some(reason.to_string()) }),
        }
    }
}

impl From<ClientSources> for ClientSourceView {
    fn from(sources: ClientSources) -> Self {
        let name = |source| client_source_name(source).to_owned();
        Self { external: name(sources.external), internal: name(sources.internal) }
    }
}

impl AffinityView {
    fn of(affinity: Affinity) -> Option<Self> {
        match affinity {
            Affinity::None => None,
            Affinity::ClientIp { timeout, scope } => {
                let scope = (scope == AffinityScope::Service).then(|| "service".to_owned());
                Some(Self { client_ip: ClientIpView { timeout_seconds: timeout.as_secs(), scope } })
            }
        }
    }
}

impl RouteView {
    /// The route `of` a frontend. If it is split, clients get the endpoints of all parts that have a weight.
    fn new(frontend: &Frontend, of: impl Fn(&Frontend) -> &Route) -> Self {
        let of_pool = |pool: &Frontend| -> Vec<EndpointAddr> {
            of(pool).candidates().iter().map(|&candidate| pool.endpoint(candidate).addr).collect()
        };
        let mut endpoints: Vec<EndpointAddr> = frontend.open_pools().flat_map(of_pool).collect();
        endpoints.sort_unstable();
        // Two clusters or parts may have the same address.
        endpoints.dedup();
        Self {
            action: action_name(frontend.route(&of)).to_owned(),
            endpoints: endpoints.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&Backend> for BackendView {
    fn from(backend: &Backend) -> Self {
        Self {
            cluster: backend.cluster.as_ref().to_owned(),
            weight: backend.weight.0,
            priority: backend.priority,
            capacity: backend.capacity,
            endpoints: backend.endpoints.iter().map(EndpointView::from).collect(),
        }
    }
}

impl From<&Endpoint> for EndpointView {
    fn from(endpoint: &Endpoint) -> Self {
        let state = match endpoint.state {
            EndpointState::Ready => "Ready",
            EndpointState::Terminating => "Terminating",
        };
        Self {
            address: endpoint.addr.to_string(),
            node: endpoint.node.as_ref().to_owned(),
            zone: endpoint.zone.as_ref().to_owned(),
            local: endpoint.local,
            state: state.to_owned(),
            weight: endpoint.weight.0,
        }
    }
}

impl FrontendView {
    /// `address:port/protocol`, IPv6 in brackets, with the first of its server names.
    pub(crate) fn place(&self) -> String {
        let address = self.address.parse().map(|ip| SocketAddr::new(ip, self.port).to_string());
        let address = address.unwrap_or_else(|_| format!("{}:{}", self.address, self.port));
        let names = match self.names.as_slice() {
            [] => String::new(),
            [name] => format!(" {name}"),
            [name, others @ ..] => format!(" {name} +{}", others.len()),
        };
        format!("{address}/{}{names}", self.protocol)
    }
}

/// Name of a route's action.
pub(crate) fn action_name(route: &Route) -> &'static str {
    match route {
        Route::Forward(_) => "Forward",
        Route::Reject => "Reject",
        Route::Drop => "Drop",
    }
}

fn client_source_name(source: ClientSource) -> &'static str {
    match source {
        ClientSource::Gateway => "gateway",
        ClientSource::Transparent => "transparent",
        ClientSource::ProxyV1 => "proxy-v1",
        ClientSource::ProxyV2 => "proxy-v2",
    }
}

/// Name of an algorithm in the annotation.
pub(crate) fn algorithm_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::LeastConnections => "least-connections",
        Algorithm::Maglev => "maglev",
        Algorithm::RoundRobin => "round-robin",
        Algorithm::Random => "random",
    }
}

/// Name of a Gateway's listener, as `namespace/gateway/listener`; `None` for other objects.
pub(crate) fn listener_name(service: &ServicePort) -> Option<String> {
    let ServicePort { source, port_name, .. } = service;
    (*source == FrontendSource::Gateway).then(|| format!("{service}/{port_name}"))
}

/// Name of a row about a Service port: that of the Service, or that of the listener.
pub(crate) fn row_name(service: &ServicePort) -> String {
    listener_name(service).unwrap_or_else(|| service.to_string())
}

/// Name of an object's kind.
pub fn source_name(source: FrontendSource) -> &'static str {
    match source {
        FrontendSource::Service => "Service",
        FrontendSource::MultiClusterService => "MultiClusterService",
        FrontendSource::Gateway => "Gateway",
    }
}

#[cfg(test)]
mod tests;
