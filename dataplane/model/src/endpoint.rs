//! Endpoints: address, network path, weight and state.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Network path to a cluster's endpoints: a number that the configuration assigns to a network interface. It
/// distinguishes clusters whose pod networks overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Path(pub u16);

impl Path {
    /// The path that the system's routing table chooses.
    pub const DEFAULT: Self = Self(0);

    fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }
}

/// Address of an endpoint. Prints as `ip:port`, IPv6 in brackets. The same address on another path is another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "SerializedEndpoint", into = "SerializedEndpoint")]
pub struct EndpointAddr {
    /// The endpoint's address.
    pub ip: IpAddr,
    /// 1 to 65535.
    pub port: u16,
    /// Network path to the endpoint.
    pub path: Path,
}

impl EndpointAddr {
    /// Address of an endpoint on the default path.
    pub const fn new(ip: IpAddr, port: u16) -> Self {
        Self { ip, port, path: Path::DEFAULT }
    }

    /// The socket address to connect to, without the path.
    pub fn socket_addr(self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }
}

/// Form of an [`EndpointAddr`] between processes of different versions.
#[derive(Serialize, Deserialize)]
struct SerializedEndpoint {
    addr: SocketAddr,
    #[serde(default, skip_serializing_if = "Path::is_default")]
    path: Path,
}

impl From<EndpointAddr> for SerializedEndpoint {
    fn from(endpoint: EndpointAddr) -> Self {
        Self { addr: endpoint.socket_addr(), path: endpoint.path }
    }
}

impl From<SerializedEndpoint> for EndpointAddr {
    fn from(SerializedEndpoint { addr, path }: SerializedEndpoint) -> Self {
        Self { ip: addr.ip(), port: addr.port(), path }
    }
}

impl fmt::Display for EndpointAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

/// Relative share of new traffic. An endpoint of weight 0 gets none while another candidate has more; if all are 0 they
/// share equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight(pub u16);

impl Default for Weight {
    /// 100, so that a weight can be halved or doubled without fractions.
    fn default() -> Self {
        Self(100)
    }
}

/// Whether an endpoint gets new traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndpointState {
    /// Gets new traffic.
    Ready,
    /// Shutting down but still serving: gets new traffic only when no endpoint is Ready.
    Terminating,
}

/// One address and port that serves a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address, port and path.
    pub addr: EndpointAddr,
    /// Node name inside the endpoint's own cluster; empty if the endpoint has none.
    pub node: Arc<str>,
    /// Zone name inside the endpoint's own cluster; empty if unknown.
    pub zone: Arc<str>,
    /// Whether the endpoint runs on this gateway's node.
    pub local: bool,
    /// Ready or Terminating.
    pub state: EndpointState,
    /// Share among the endpoints of its backend.
    pub weight: Weight,
}
