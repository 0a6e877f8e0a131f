//! Frontends: where traffic is accepted, who may use it, and where it goes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::address_set::AddressSet;
use crate::backend::Backend;
use crate::data_path::PathChoice;
use crate::endpoint::Endpoint;
use crate::failover::Failover;
use crate::health::HealthPolicy;
use crate::limits::{ServiceLimits, ServiceTimeouts};
use crate::log_sample::LogSample;
use crate::server_name::{PatternMap, ServerNamePattern};
use crate::share::Share;
use crate::source_ranges::SourceRanges;

/// Transport protocol of a frontend. The projection refuses SCTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
}

impl Protocol {
    /// The protocol's name as the Kubernetes API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    /// The protocol of this name; `None` if there is no such protocol.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp].into_iter().find(|protocol| protocol.name() == name)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Address, port and protocol at which a frontend accepts traffic. Sorts IPv4 before IPv6, then by address, port and protocol,
/// which is the order of every listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "SerializedFrontend", into = "SerializedFrontend")]
pub struct FrontendAddr {
    /// Address that clients connect to. Never unspecified: a frontend replies from the address that the client used.
    pub ip: IpAddr,
    /// 1 to 65535.
    pub port: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

impl FrontendAddr {
    /// The socket address to bind.
    pub fn socket_addr(self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Whether a socket that listens at `listener` receives traffic for this frontend. The unspecified IPv6 address also
    /// receives IPv4 (IPV6_V6ONLY, ipv6(7)).
    pub fn is_reached_at(self, listener: SocketAddr) -> bool {
        let any = listener.ip().is_unspecified() && (listener.is_ipv6() || self.ip.is_ipv4());
        listener.port() == self.port && (any || listener.ip() == self.ip)
    }
}

impl fmt::Display for FrontendAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", SocketAddr::new(self.ip, self.port), self.protocol)
    }
}

/// Form of a [`FrontendAddr`] between processes of different versions.
#[derive(Serialize, Deserialize)]
struct SerializedFrontend {
    addr: SocketAddr,
    udp: bool,
}

impl From<FrontendAddr> for SerializedFrontend {
    fn from(frontend: FrontendAddr) -> Self {
        Self { addr: frontend.socket_addr(), udp: frontend.protocol == Protocol::Udp }
    }
}

impl From<SerializedFrontend> for FrontendAddr {
    fn from(SerializedFrontend { addr, udp }: SerializedFrontend) -> Self {
        Self { ip: addr.ip(), port: addr.port(), protocol: if udp { Protocol::Udp } else { Protocol::Tcp } }
    }
}

/// The peer that opened a connection or sent a datagram, as the frontend's socket saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientAddr(pub SocketAddr);

impl ClientAddr {
    /// The client's address. An IPv4 client of a dual-stack socket is given as IPv4.
    pub fn ip(self) -> IpAddr {
        self.0.ip().to_canonical()
    }
}

impl fmt::Display for ClientAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which part of the Service API a frontend comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrontendKind {
    /// `status.loadBalancer.ingress[].ip`, or the address that Sheave allocated.
    LoadBalancer,
    /// `spec.externalIPs[]`.
    ExternalIp,
    /// `spec.ports[].nodePort` on an address of this node.
    NodePort,
    /// `spec.clusterIPs[]`.
    ClusterIp,
}

impl fmt::Display for FrontendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoadBalancer => "LoadBalancer",
            Self::ExternalIp => "ExternalIP",
            Self::NodePort => "NodePort",
            Self::ClusterIp => "ClusterIP",
        })
    }
}

/// Kind of object that requests the frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrontendSource {
    /// A core/v1 Service.
    Service,
    /// A Karmada MultiClusterService.
    MultiClusterService,
    /// A Gateway of the Gateway API. The port name of its frontends is the listener's name.
    Gateway,
}

/// One port of one Service: the scope of session affinity, limits and health, and the label of metrics. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServicePort {
    /// Kind of the object: a Service and a MultiClusterService may have the same name.
    pub source: FrontendSource,
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
    /// The port's name; empty for a single unnamed port.
    pub port_name: Arc<str>,
    /// The port's protocol.
    pub protocol: Protocol,
    /// Another object whose settings count here in place of the Service's own: limits of a ListenerSet, or the health check of a
    /// route. What is counted and judged by them is kept apart.
    pub settings_of: Option<Arc<str>>,
}

/// Formats as `namespace/name`, without the port: how users name a Service.
impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Session affinity: whether new traffic of a client goes to the endpoint of its previous traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// Every connection or flow is balanced independently.
    None,
    /// By client address, until `timeout` after the client's last new connection or flow.
    ClientIp {
        /// 1 s to 24 h (Kubernetes allows no other values).
        timeout: Duration,
        /// Ports that share a client's endpoint.
        scope: AffinityScope,
    },
}

/// Scope of session affinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AffinityScope {
    /// One port of the Service: each port has its own records.
    #[default]
    Port,
    /// All ports and protocols of the Service, provided that one host has endpoints for them.
    Service,
}

/// Source address that an endpoint sees, and how the endpoint learns the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClientSource {
    /// The gateway's address; the endpoint does not learn the client's.
    #[default]
    Gateway,
    /// The client's own address: the gateway connects from it (`IP_TRANSPARENT`, ip(7)). The endpoint's replies must be routed
    /// back through this gateway.
    Transparent,
    /// The gateway's address, with a PROXY protocol header of version 1 (text) at the beginning of the connection. TCP only.
    ProxyV1,
    /// The gateway's address, with a PROXY protocol header of version 2 (binary) at the beginning of a connection, or of each
    /// datagram.
    ProxyV2,
}

/// Client source for each class of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientSources {
    /// For clients outside the cluster.
    pub external: ClientSource,
    /// For clients inside the cluster.
    pub internal: ClientSource,
}

impl ClientSources {
    /// Whether either class of clients uses `source`.
    pub fn any(self, source: ClientSource) -> bool {
        self.external == source || self.internal == source
    }
}

/// Load balancing algorithm: how an endpoint is picked for a new connection or flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The less loaded of two random candidates.
    LeastConnections,
    /// Consistent hash of the client address; every gateway picks the same endpoint.
    Maglev,
    /// Weighted round robin.
    RoundRobin,
    /// Weighted random.
    Random,
}

/// Index of an endpoint within a frontend: `frontend.backends[backend].endpoints[endpoint]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Candidate {
    /// Index into [`Frontend::backends`].
    pub backend: u32,
    /// Index into [`Backend::endpoints`].
    pub endpoint: u32,
}

/// Routing decision for the new traffic of one class of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Balanced over these candidates; never empty.
    Forward(Arc<[Candidate]>),
    /// Refused with a TCP reset or ICMP port unreachable: no cluster has an endpoint.
    Reject,
    /// Dropped: endpoints exist, but the traffic policy allows none of them here.
    Drop,
}

impl Route {
    /// The candidates; empty unless the route is Forward.
    pub fn candidates(&self) -> &[Candidate] {
        match self {
            Self::Forward(candidates) => candidates,
            Self::Reject | Self::Drop => &[],
        }
    }
}

/// One address and port where traffic is accepted, with everything that decides where the traffic goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Address, port and protocol.
    pub addr: FrontendAddr,
    /// Part of the Service API that the frontend comes from.
    pub kind: FrontendKind,
    /// Service port that the frontend belongs to.
    pub service: ServicePort,
    /// Session affinity of the Service port.
    pub affinity: Affinity,
    /// Clients that may use the frontend; traffic of others is dropped.
    pub source_ranges: Arc<SourceRanges>,
    /// Peers whose connections begin with a PROXY protocol header that carries the client's address; `None` = no peers. TCP
    /// only.
    pub proxied_by: Option<Arc<AddressSet>>,
    /// Source address that endpoints see.
    pub client_sources: ClientSources,
    /// Application protocol (`spec.ports[].appProtocol`); only shown in listings and metrics.
    pub app_protocol: Option<Arc<str>>,
    /// Load balancing algorithm.
    pub algorithm: Algorithm,
    /// Whether the Service names the algorithm; otherwise it is the default of the protocol.
    pub algorithm_named: bool,
    /// Data path that is asked for; [`Frontend::kernel_path`] decides.
    pub path: PathChoice,
    /// Whether endpoints on the gateway's own node alone serve clients outside the cluster (`externalTrafficPolicy: Local`). If
    /// so, it matters which gateway those clients reach.
    pub node_local: bool,
    /// Route of clients outside the cluster.
    pub external: Route,
    /// Route of clients inside the cluster.
    pub internal: Route,
    /// Limits of the Service on this gateway.
    pub limits: ServiceLimits,
    /// Timeouts of the Service.
    pub timeouts: ServiceTimeouts,
    /// Share of the Service's TCP connections that is logged.
    pub logged: LogSample,
    /// Health checks of the endpoints, and how health affects new traffic.
    pub health: Arc<HealthPolicy>,
    /// Spread over several clusters; `None` = there is only one.
    pub failover: Option<Failover>,
    /// Endpoints by cluster; shared by the frontends of one Service port. Empty if the frontend is split or has server names.
    pub backends: Arc<[Backend]>,
    /// Split of the traffic over several parts; `None` = not split. Otherwise the pools of the parts have the endpoints and routes:
    /// the frontend's own routes are Reject, and nothing reads them.
    pub split: Option<Arc<Split>>,
    /// Destinations by the server name that a TLS client asks for; `None` = the frontend does not look at what clients send. Otherwise
    /// its own routes are Reject, and it is not split: the targets of the names have all that concerns endpoints and the connections to
    /// them. TCP only.
    pub server_names: Option<Arc<ServerNames>>,
}

impl Frontend {
    /// The endpoint that `candidate` names.
    ///
    /// # Panics
    /// If `candidate` belongs to another frontend.
    pub fn endpoint(&self, candidate: Candidate) -> &Endpoint {
        &self.backends[candidate.backend as usize].endpoints[candidate.endpoint as usize]
    }

    /// The frontends whose traffic goes the same way whatever its server name: this one, or the targets of its server names.
    pub fn targets(&self) -> impl Iterator<Item = &Self> {
        let whole = self.server_names.is_none().then_some(self);
        let targets = self.server_names.iter().flat_map(|names| names.targets());
        whole.into_iter().chain(targets.map(AsRef::as_ref))
    }

    /// The frontends whose backends have the endpoints: this one, or the pools of its parts if it is split, or of its targets if it has
    /// server names.
    pub fn pools(&self) -> impl Iterator<Item = &Self> {
        self.targets().flat_map(|target| {
            let parts = target.split.iter().flat_map(|split| &split.parts);
            let whole = target.split.is_none().then_some(target);
            whole.into_iter().chain(parts.filter_map(SplitPart::pool).map(AsRef::as_ref))
        })
    }

    /// The pools that get new connections: those of parts with a weight, or the frontends that are not split.
    pub fn open_pools(&self) -> impl Iterator<Item = &Self> {
        self.targets().flat_map(|target| {
            let whole = target.split.is_none().then_some(target);
            whole.into_iter().chain(target.split.iter().flat_map(|split| split.open_pools()))
        })
    }

    /// The route `of` the frontend. If it is split, the first one of its open pools that forwards; Reject if there is none: the whole
    /// frontend then refuses those clients, as one without endpoints does. If it has server names, the first one of their targets that
    /// forwards; Reject if there is none: each connection is then reset, but only [after it is accepted](Self::is_bound).
    pub fn route(&self, of: impl Fn(&Self) -> &Route) -> &Route {
        if self.split.is_none() && self.server_names.is_none() {
            return of(self);
        }
        let mut routes = self.open_pools().map(of);
        routes.find(|route| matches!(route, Route::Forward(_))).unwrap_or(&Route::Reject)
    }

    /// Whether clients can connect, if only to be dropped. Without a route they are refused, unless there are server names: what a
    /// client asks for is known only once it has connected, so each one can, and those that no name has are reset.
    pub fn is_bound(&self) -> bool {
        let is_reject = |of: fn(&Self) -> &Route| *self.route(of) == Route::Reject;
        self.server_names.is_some() || !(is_reject(|it| &it.external) && is_reject(|it| &it.internal))
    }

    /// Whether any endpoint still serves, Ready or Terminating.
    pub fn has_endpoints(&self) -> bool {
        self.pools().flat_map(|pool| pool.backends.iter()).any(|backend| !backend.endpoints.is_empty())
    }
}

/// Traffic of a frontend split by weight over several parts. The part of a new connection or flow is chosen by weight before anything
/// else, then an endpoint inside the part. Weights never follow health: a part without a usable endpoint refuses its share.
///
/// What concerns the socket and the client's side of connections comes from the frontend that is split: its source ranges, trusted
/// proxies, client sources, limits, timeouts and log sample. What concerns endpoints comes from the pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The route that has the traffic, such as `TCPRoute shop/web`. Only shown.
    pub route: Arc<str>,
    /// Number of other routes that ask for the traffic and get none, since this one is older. Only shown.
    pub superseded: u32,
    /// The parts, in the order of the spec: 1 to 16.
    pub parts: Vec<SplitPart>,
}

/// Part of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPart {
    /// Name of the part: what users wrote, such as `Service shop/web:80`. It identifies the part on every gateway, in whatever order
    /// the parts are.
    pub name: Arc<str>,
    /// 0 to 1,000,000; 0 = no new connections.
    pub weight: u32,
    /// Destination of the part's traffic.
    pub target: PartTarget,
}

/// Destination of a part's traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartTarget {
    /// The frontend as it would be if this part were the only one. It has the address of the frontend that is split, and its Service
    /// port is the backend's own, by which the health of endpoints is kept. It is not split itself.
    Pool(Arc<Frontend>),
    /// The part's share is refused.
    Refused(RefusedPart),
}

/// Reason why a part is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusedPart {
    /// The backend does not exist, or has no such port.
    BackendNotFound,
    /// The backend's kind cannot be served.
    InvalidKind,
    /// No ReferenceGrant permits the reference to another namespace.
    RefNotPermitted,
    /// The backend's application protocol cannot be served.
    UnsupportedProtocol,
}

impl RefusedPart {
    /// The reason as the Gateway API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::BackendNotFound => "BackendNotFound",
            Self::InvalidKind => "InvalidKind",
            Self::RefNotPermitted => "RefNotPermitted",
            Self::UnsupportedProtocol => "UnsupportedProtocol",
        }
    }
}

impl SplitPart {
    /// The part's pool; `None` if the part is refused.
    pub fn pool(&self) -> Option<&Arc<Frontend>> {
        match &self.target {
            PartTarget::Pool(pool) => Some(pool),
            PartTarget::Refused(_) => None,
        }
    }
}

impl Split {
    /// The pools that get new connections: those of the parts with a weight.
    pub fn open_pools(&self) -> impl Iterator<Item = &Frontend> {
        let open = self.parts.iter().filter(|part| part.weight > 0);
        open.filter_map(SplitPart::pool).map(AsRef::as_ref)
    }

    /// Share of new connections that parts of this weight together get.
    pub fn share(&self, weight: u64) -> Share {
        Share { part: weight, whole: self.parts.iter().map(|part| u64::from(part.weight)).sum() }
    }
}

/// Targets of the server names of a frontend. A name that no pattern has, or whose narrowest pattern leads nowhere, is reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerNames {
    targets: Vec<Arc<Frontend>>,
    names: PatternMap<Option<usize>>,
}

impl ServerNames {
    /// Names that lead to a target, by its index, or nowhere. The first of equal patterns counts.
    ///
    /// Each target is the frontend as it would be if its names were the only ones, split over the backends of its route. It has the
    /// address of the frontend that has the names, and no names itself.
    ///
    /// # Panics
    /// If an index has no target.
    pub fn new(
        targets: Vec<Arc<Frontend>>,
        names: impl IntoIterator<Item = (ServerNamePattern, Option<usize>)>,
    ) -> Self {
        let mut this = Self { targets, ..Self::default() };
        for (pattern, target) in names {
            assert!(target.is_none_or(|target| target < this.targets.len()), "{pattern} has no target");
            this.names.add(pattern, target);
        }
        this
    }

    /// The frontends that names lead to.
    pub fn targets(&self) -> &[Arc<Frontend>] {
        &self.targets
    }

    /// Index of the target of a name in lower case without a dot at its end.
    pub fn target(&self, name: &str) -> Option<usize> {
        self.names.of_name(name).copied().flatten()
    }

    /// The patterns with what they lead to, sorted.
    pub fn patterns(&self) -> Vec<(ServerNamePattern, Option<&Arc<Frontend>>)> {
        let target = |target: &Option<usize>| target.and_then(|target| self.targets.get(target));
        let mut patterns: Vec<_> = self.names.iter().map(|(pattern, it)| (pattern, target(it))).collect();
        patterns.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        patterns
    }
}

#[cfg(test)]
mod tests;
