//! A gateway, as the API server knows it.

use std::net::IpAddr;
use std::sync::Arc;

/// A gateway that takes part in announcing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The name of its node. No two gateways have the same: a node runs one.
    pub node: Arc<str>,
    /// Where its heartbeats are received; one address is enough, the first is used.
    pub addresses: Vec<IpAddr>,
    /// Whether the API server calls it ready: the slow second opinion beside heartbeats.
    pub ready: bool,
}
