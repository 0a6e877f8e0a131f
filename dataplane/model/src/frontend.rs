//! Frontends: where traffic is accepted, who may use it, and where it goes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::address_set::AddressSet;
use crate::backend::Backend;
use crate::endpoint::Endpoint;
use crate::failover::Failover;
use crate::health::HealthPolicy;
use crate::limits::{ServiceLimits, ServiceTimeouts};
use crate::log_sample::LogSample;
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
    /// Its name, the same as in the Kubernetes API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp].into_iter().find(|protocol| protocol.name() == name)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a frontend accepts traffic: address, port and protocol. Sorts IPv4 before IPv6, then by address, port and
/// protocol, which is the order of every listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrontendAddr {
    /// The address that clients connect to. Never unspecified: a frontend answers from the address that was addressed.
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

/// The kind of object that asked for the frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrontendSource {
    /// A core/v1 Service.
    Service,
    /// A Karmada MultiClusterService.
    MultiClusterService,
}

/// One port of one Service: the scope of session affinity and health, and the label of metrics. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServicePort {
    /// Which kind of object it is: one of each kind may have the same name.
    pub source: FrontendSource,
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
    /// The port's name; empty for a single unnamed port.
    pub port_name: Arc<str>,
    /// The port's protocol.
    pub protocol: Protocol,
}

/// `namespace/name`, without the port: how users name a Service.
impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether new traffic of a client goes to the endpoint of its previous traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// Every connection or flow is balanced independently.
    None,
    /// By client address, until `timeout` after the client's last new connection or flow.
    ClientIp {
        /// 1 s to 24 h (Kubernetes allows no other values).
        timeout: Duration,
        /// What a client's traffic has one endpoint for.
        scope: AffinityScope,
    },
}

/// How far affinity reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AffinityScope {
    /// One port of the Service: each has its own records.
    #[default]
    Port,
    /// All ports and protocols of the Service, as far as one host has endpoints of them.
    Service,
}

/// What an endpoint sees as its peer, and how it learns of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientSource {
    /// The gateway's address; the client stays unknown.
    #[default]
    Gateway,
    /// The client's own address: the gateway connects from it (`IP_TRANSPARENT`, ip(7)). The endpoint's replies must come
    /// back through this gateway.
    Transparent,
    /// The gateway's address, and a PROXY protocol header of version 1 (text) at the beginning. TCP only.
    ProxyV1,
    /// The gateway's address, and a PROXY protocol header of version 2 (binary) at the beginning of a connection, or of
    /// each datagram.
    ProxyV2,
}

/// What endpoints see of each class of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientSources {
    /// For clients outside the cluster.
    pub external: ClientSource,
    /// For clients inside the cluster.
    pub internal: ClientSource,
}

impl ClientSources {
    /// Whether endpoints see either class of clients this way.
    pub fn any(self, source: ClientSource) -> bool {
        self.external == source || self.internal == source
    }
}

/// How an endpoint is chosen for a new connection or flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The less loaded of two random candidates.
    LeastConnections,
    /// Consistent hash of the client, the same on every gateway.
    Maglev,
    /// Weighted, in turn.
    RoundRobin,
    /// Uniformly at random, by weight.
    Random,
}

/// Names an endpoint of a frontend: `frontend.backends[backend].endpoints[endpoint]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Candidate {
    /// Index into [`Frontend::backends`].
    pub backend: u32,
    /// Index into [`Backend::endpoints`].
    pub endpoint: u32,
}

/// What happens to new traffic of one class of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Balanced over these; never empty.
    Forward(Arc<[Candidate]>),
    /// Refused with TCP reset or ICMP port unreachable: there is no endpoint anywhere.
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

/// One address and port where traffic is accepted, with everything that decides where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Where traffic is accepted.
    pub addr: FrontendAddr,
    /// Which part of the Service asked for it.
    pub kind: FrontendKind,
    /// Which Service port it belongs to.
    pub service: ServicePort,
    /// Session affinity of the Service port.
    pub affinity: Affinity,
    /// Clients that may use it; others are dropped.
    pub source_ranges: Arc<SourceRanges>,
    /// Peers whose connections begin with a PROXY protocol header that names the client; `None` = no peers. TCP only.
    pub proxied_by: Option<Arc<AddressSet>>,
    /// What endpoints see of the client.
    pub client_sources: ClientSources,
    /// The application protocol (`spec.ports[].appProtocol`); only shown in listings and metrics.
    pub app_protocol: Option<Arc<str>>,
    /// How an endpoint is chosen.
    pub algorithm: Algorithm,
    /// Clients outside the cluster are served by endpoints on the gateway's own node alone (`externalTrafficPolicy: Local`), so
    /// that it makes a difference to which gateway they are sent.
    pub node_local: bool,
    /// What clients outside the cluster get.
    pub external: Route,
    /// What clients inside the cluster get.
    pub internal: Route,
    /// The Service's share of the gateway.
    pub limits: ServiceLimits,
    /// Timeouts of the Service.
    pub timeouts: ServiceTimeouts,
    /// Which part of its TCP connections is logged.
    pub logged: LogSample,
    /// How the health of its endpoints decides which of them get new traffic.
    pub health: Arc<HealthPolicy>,
    /// How traffic is spread over several clusters; `None` = there is only one.
    pub failover: Option<Failover>,
    /// Endpoints by cluster; shared by the frontends of one Service port.
    pub backends: Arc<[Backend]>,
}

impl Frontend {
    /// The endpoint that `candidate` names.
    ///
    /// # Panics
    /// If `candidate` belongs to another frontend.
    pub fn endpoint(&self, candidate: Candidate) -> &Endpoint {
        &self.backends[candidate.backend as usize].endpoints[candidate.endpoint as usize]
    }

    /// Whether any endpoint still serves, ready or terminating.
    pub fn has_endpoints(&self) -> bool {
        self.backends.iter().any(|backend| !backend.endpoints.is_empty())
    }
}
