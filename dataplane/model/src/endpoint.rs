//! Endpoints: where they serve, by which path, and what they may be used for.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The way to a cluster's endpoints: a number that the configuration gives to a network interface. Clusters whose pod
/// networks overlap are told apart by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(pub u16);

impl Path {
    /// Wherever the routing table of the system leads.
    pub const DEFAULT: Self = Self(0);
}

/// Where an endpoint serves. Prints as `ip:port`, IPv6 in brackets. The same address by another path is another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointAddr {
    /// The endpoint's address.
    pub ip: IpAddr,
    /// 1 to 65535.
    pub port: u16,
    /// How it is reached.
    pub path: Path,
}

impl EndpointAddr {
    /// An endpoint that is reached by the default path.
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

/// Relative share of new traffic. 0 takes none while any other candidate has more; if all are 0 they share equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight(pub u16);

impl Default for Weight {
    /// 100, so that a weight can be halved or doubled without fractions.
    fn default() -> Self {
        Self(100)
    }
}

/// What an endpoint may still be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndpointState {
    /// Takes new traffic.
    Ready,
    /// Still serves, but is going away: new traffic only when nothing is Ready.
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
