//! Addresses that gateways are to answer for, and the gateways, as the cluster has them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Claim on an address: the gateways that may announce it, and the interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The gateways that can serve it.
    pub nodes: Nodes,
    /// The interfaces on which it is announced, of those with a subnet that contains it; empty = as each gateway has it in its configuration.
    pub interfaces: Vec<Arc<str>>,
}

/// The nodes whose gateways can serve an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// All.
    #[default]
    Any,
    /// These: the others have no endpoint under the policy `Local`, or the pool leaves them out.
    Only(BTreeSet<Arc<str>>),
}

impl Nodes {
    /// Whether the gateway of this node can.
    pub fn contains(&self, node: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(nodes) => nodes.contains(node),
        }
    }
}

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
