//! Why an address counts as inside the cluster. It must agree with the set that the projection makes of the same
//! objects.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::super::{Projector, facts};
use crate::api::problem::ObjectRef;
use crate::api::problem::report::Report;
use crate::api::store::Objects;

/// What makes an address one inside the cluster. Prints as `address ... is`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inside {
    /// A Node has it.
    Node(Arc<str>),
    /// It is in a pod network of this Node.
    Pods(Arc<str>, IpNet),
    /// The configuration says so.
    Configured(IpNet),
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "an address of Node {node}"),
            Self::Pods(node, cidr) => write!(f, "in pod CIDR {cidr} of Node {node}"),
            Self::Configured(cidr) => write!(f, "in {cidr} of internalCIDRs in the configuration"),
        }
    }
}

impl Projector {
    /// Why a client's address counts as inside the cluster; `None` if it does not.
    pub fn inside(&self, objects: &Objects, client: IpAddr) -> Option<Inside> {
        let client = client.to_canonical();
        let pods = objects.nodes.iter().find_map(|(name, node)| {
            let object = ObjectRef { kind: "Node", namespace: "".into(), name: name.clone() };
            // What is wrong with the Node has been told where it was projected.
            let mut report = Report::about(object);
            if facts::addresses(node, &mut report).iter().any(|(_, ip)| *ip == client) {
                return Some(Inside::Node(name.clone()));
            }
            let mut cidrs = Vec::new();
            facts::pod_cidrs(node, &mut cidrs, &mut report);
            let cidr = cidrs.into_iter().find(|cidr| cidr.contains(&client));
            cidr.map(|cidr| Inside::Pods(name.clone(), cidr))
        });
        let configured = || {
            let cidr = self.options.internal_cidrs.iter().find(|cidr| cidr.contains(&client));
            cidr.map(|cidr| Inside::Configured(*cidr))
        };
        pods.or_else(configured)
    }
}
