//! The explanation as values: what becomes of each endpoint, and why, in words.

use std::fmt;

use sheave_model::EndpointAddr;

use super::decision::Decision;
pub use crate::projection::plan::NotCounted;

/// One address of the Service's slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFact {
    /// `ip:port` if it is known, else the address as the slice has it.
    pub address: String,
    /// Where it would serve; `None` if its slice has no port or address to serve with.
    pub addr: Option<EndpointAddr>,
    /// The cluster that it is in.
    pub cluster: String,
    /// The EndpointSlice's name.
    pub slice: String,
    /// Empty if the slice names none.
    pub node: String,
    /// Empty if the slice names none.
    pub zone: String,
    /// What its conditions come to.
    pub state: EndpointFactState,
    /// Runs on this gateway's node.
    pub local: bool,
    /// What becomes of it for clients outside the cluster.
    pub external: Verdict,
    /// What becomes of it for clients inside the cluster.
    pub internal: Verdict,
}

/// What an endpoint's conditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointFactState {
    /// Takes new traffic.
    Ready,
    /// Still serves, but is going away.
    Terminating,
    /// Does not serve.
    NotReady,
}

impl fmt::Display for EndpointFactState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::Terminating => "Terminating",
            Self::NotReady => "NotReady",
        })
    }
}

/// Whether an endpoint may be chosen, or why not. Prints as a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It may be.
    Used,
    /// It may be, because no endpoint is ready where the policy looks.
    LastResort,
    /// Its `ready` condition is false.
    NotReady,
    /// It terminates and does not serve any more.
    Stopped,
    /// It terminates, and others are ready.
    Terminates,
    /// The policy is Local, and it is on another node, or on none that is named.
    NotHere {
        /// The gateway's node.
        here: String,
    },
    /// Topology hints count, and its own name these zones.
    OtherZone {
        /// The zones that its hints name.
        hinted: Vec<String>,
        /// The gateway's zone.
        here: String,
    },
    /// Topology hints count, and its own name these nodes.
    OtherNode {
        /// The nodes that its hints name.
        hinted: Vec<String>,
        /// The gateway's node.
        here: String,
    },
    /// Its cluster gets nothing new.
    ClusterClosed {
        /// The cluster.
        cluster: String,
        /// How it is.
        why: String,
    },
    /// Its slice does not count for this MultiClusterService.
    NotCounted(NotCounted),
    /// Another entry for the same address counts.
    Duplicate {
        /// The EndpointSlice of that entry.
        slice: String,
    },
    /// The gateway itself accepts traffic there.
    OwnFrontend,
    /// Its slice has no port of this name and protocol.
    NoSuchPort {
        /// The Service port's name.
        name: String,
        /// The Service port's protocol.
        protocol: &'static str,
    },
    /// Its slice's port has no number.
    Unnumbered,
    /// Its slice's port has a number that is none.
    InvalidPort(i32),
    /// It has no address.
    NoAddress,
    /// Its address cannot carry traffic.
    InvalidAddress(&'static str),
    /// Its address is not of its slice's family.
    OtherFamily,
    /// It is not the first address of its endpoint.
    NotFirst,
}

impl Verdict {
    /// Whether the endpoint may be chosen.
    pub fn used(&self) -> bool {
        matches!(self, Self::Used | Self::LastResort)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[String]| names.join(", ");
        match self {
            Self::Used => f.write_str("it may be chosen"),
            Self::LastResort => {
                f.write_str("it may be chosen: it terminates but still serves, and none is ready")
            }
            Self::NotReady => f.write_str("not ready"),
            Self::Stopped => f.write_str("it terminates and does not serve any more"),
            Self::Terminates => f.write_str("it terminates, and others are ready"),
            Self::NotHere { here } if here.is_empty() => {
                f.write_str("the policy is Local, and this gateway's node is not known")
            }
            Self::NotHere { here } => write!(f, "the policy is Local, and it is not on this node, {here}"),
            Self::OtherZone { hinted, here } => {
                write!(f, "its hints name zone {}, and this node is in zone {here}", list(hinted))
            }
            Self::OtherNode { hinted, here } => {
                write!(f, "its hints name node {}, and this node is {here}", list(hinted))
            }
            Self::ClusterClosed { cluster, why } => {
                write!(f, "cluster {cluster} gets nothing new: it is {why}")
            }
            Self::NotCounted(why) => why.fmt(f),
            Self::Duplicate { slice } => {
                write!(f, "the entry of EndpointSlice {slice} for this address counts")
            }
            Self::OwnFrontend => {
                f.write_str("the gateway itself accepts traffic there: it would go round in circles")
            }
            Self::NoSuchPort { name, protocol } if name.is_empty() => {
                write!(f, "its slice has no unnamed {protocol} port")
            }
            Self::NoSuchPort { name, protocol } => {
                write!(f, "its slice has no {protocol} port named {name:?}")
            }
            Self::Unnumbered => f.write_str("its slice gives the port no number"),
            Self::InvalidPort(number) => write!(f, "its slice's port {number} is none (1 to 65535)"),
            Self::NoAddress => f.write_str("it has no address"),
            Self::InvalidAddress(why) => write!(f, "its address {why}"),
            Self::OtherFamily => f.write_str("its address is not of its slice's addressType"),
            Self::NotFirst => f.write_str("only the first address of an endpoint counts"),
        }
    }
}

/// A port as the Service has it, served or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecPort {
    /// Empty for an unnamed port.
    pub name: String,
    /// As in the Service; not always a port number.
    pub port: i32,
    /// As in the Service; not only those that we forward.
    pub protocol: String,
}

/// Why the clients of one frontend get what they get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// What decides for clients outside the cluster.
    pub external: Decision,
    /// What decides for clients inside the cluster.
    pub internal: Decision,
    /// Every address of the frontend's family that the Service's slices have, by address and port; those that are none
    /// come last.
    pub endpoints: Vec<EndpointFact>,
    /// Slices of other families, which serve other frontends if any, by name.
    pub other_slices: Vec<String>,
}
