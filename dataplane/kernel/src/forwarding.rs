//! Fate of a frontend's new connections and flows: the plan's input.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sheave_model::{AddressSet, FrontendAddr};

/// Fate of the new connections and flows of one frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Address, port and protocol that clients use.
    pub addr: FrontendAddr,
    /// For clients outside the cluster.
    pub external: Decision,
    /// For clients inside the cluster.
    pub internal: Decision,
    /// How an endpoint is chosen.
    pub method: Method,
    /// Whether the proxy may have open connections, which the kernel does not know if it has tracked none before.
    pub guarded: bool,
    /// How long after a client's last new connection its next one goes to the same endpoint; in whole seconds, `None` = no affinity.
    pub affinity: Option<Duration>,
    /// Clients in place of whom endpoints see the gateway's address.
    pub masquerade: Masquerade,
    /// Clients that may use the frontend; packets of others are dropped.
    pub admitted: Arc<AddressSet>,
}

impl Forwarding {
    /// Whether all connections are left to the proxy.
    pub fn is_proxied(&self) -> bool {
        self.external == Decision::Proxy && self.internal == Decision::Proxy
    }
}

/// Clients in place of whom endpoints see the gateway's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masquerade {
    /// No clients, except those on the endpoint's own link, whose answers would take a shorter way.
    Nobody,
    /// Clients inside the cluster.
    Internal,
    /// All clients.
    Everyone,
}

/// Decision about the new connections of one class of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Spread over these endpoints by their shares; never empty, no endpoint twice, no share of 0. Endpoints have the family of the
    /// frontend.
    Forward(Vec<(SocketAddr, u32)>),
    /// Refused with a TCP reset or ICMP port unreachable.
    Refuse,
    /// Dropped.
    Discard,
    /// Left to the proxy's socket at the same address.
    Proxy,
}

/// How the kernel chooses an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// At random, by shares.
    Random,
    /// By a hash of the client's address, by shares; every gateway chooses the same endpoint.
    Hash,
}
