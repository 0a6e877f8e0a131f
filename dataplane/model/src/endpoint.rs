//! Endpoints: their address, the path to it, their weight and state.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The path to a cluster's endpoints: a number that the configuration assigns to a network interface. It distinguishes
/// clusters whose pod networks overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(pub u16);

impl Path {
    /// The system's routing table decides.
    pub const DEFAULT: Self = Self(0);
}

/// Where an endpoint serves. Prints as `ip:port`, IPv6 in brackets. The same address on another path is another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointAddr {
    /// The endpoint's address.
    pub ip: IpAddr,
    /// 1 to 65535.
    pub port: u16,
    /// The path to it.
    pub path: Path,
}

impl EndpointAddr {
    /// An endpoint on the default path.
    pub const fn new(ip: IpAddr, port: u16) -> Self {
        Self { ip, port, path: Path::DEFAULT }
    }

    /// The socket address to connect to.
    pub fn socket_addr(self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }
}

impl fmt::Display for EndpointAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

/// Relative share of new traffic. 0 gets none while any other candidate has more; if all are 0 they share equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight(pub u16);

impl Default for Weight {
    /// 100, so that a weight can be halved or doubled without fractions.
    fn default() -> Self {
        Self(100)
    }
}

/// Whether an endpoint takes new traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndpointState {
    /// Takes new traffic.
    Ready,
    /// Still serves, but is shutting down: new traffic only when no endpoint is Ready.
    Terminating,
}

/// One address and port that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where to connect.
    pub addr: EndpointAddr,
    /// Node name inside the endpoint's own cluster; empty if the endpoint has none.
    pub node: Arc<str>,
    /// Zone name inside the endpoint's own cluster; empty if unknown.
    pub zone: Arc<str>,
    /// Runs on this gateway's node.
    pub local: bool,
    /// Ready or Terminating.
    pub state: EndpointState,
    /// Share among the endpoints of its backend.
    pub weight: Weight,
}
