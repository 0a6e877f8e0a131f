//! An address that some gateway is to answer for.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Who may announce an address, and where.
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
