//! A decoded AddressPool: its addresses, and the Services that may use them.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::holders::UsedAddresses;
use super::range::AddressRange;
use super::selector::{NAMESPACE_NAME, PoolSelector};
use super::{Request, range};
use crate::api::address_pool::{AddressPool, AddressPoolSpec, KIND, PER_SERVICE, Sharing};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};
use crate::net::Family;

/// Addresses of gateway nodes that are allocated together: index of the pool, and family.
pub(super) type NodeGroup = (usize, Family);

/// A pool of addresses for Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) name: Arc<str>,
    priority: u32,
    auto_assign: bool,
    sharing: Sharing,
    /// How many listed addresses one Service may request by value.
    pub(super) most_per_service: u32,
    namespaces: PoolSelector,
    services: PoolSelector,
    ranges: Vec<AddressRange>,
    /// Whether it includes the addresses of gateway nodes.
    from_nodes: bool,
    /// Addresses of gateway nodes. Services share them, so they are never exhausted, and they are allocated together.
    nodes: Vec<NodeAddress>,
    /// The same without their nodes.
    node_ips: HashSet<IpAddr>,
    /// Number of its addresses that Services have.
    used: usize,
}

/// An address of a gateway node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    /// Name of the Node.
    pub(crate) node: Arc<str>,
    /// The address; at most one for each family and node.
    pub(crate) ip: IpAddr,
}

impl Pool {
    /// Reads a pool. `nodes` are the addresses that `fromGatewayNodes` stands for. `namespaces_known` is whether labels of
    /// Namespaces can be evaluated.
    pub(super) fn read(
        name: &Arc<str>,
        pool: &AddressPool,
        nodes: &[NodeAddress],
        namespaces_known: bool,
    ) -> (Self, Vec<Problem>) {
        let spec = &pool.spec;
        let mut report = Report::about(ObjectRef { kind: KIND, namespace: "".into(), name: name.clone() });
        let mut ranges = Vec::with_capacity(spec.addresses.len());
        for (index, entry) in spec.addresses.iter().enumerate() {
            match AddressRange::read(entry, spec.avoid_buggy_ips) {
                Ok(range) => ranges.push(range),
                Err(why) => {
                    report.invalid(
                        format!("spec.addresses[{index}]"),
                        format!("{entry:?} {why}; it is left out"),
                    );
                }
            }
        }
        let all_read = ranges.len() == spec.addresses.len();
        if all_read && !spec.from_gateway_nodes && range::size(&ranges) == 0 {
            let message = "it holds no address that a Service can get, and spec.fromGatewayNodes is false; the pool gives none";
            report.invalid("spec.addresses", message);
        }
        let namespaces = spec.namespace_selector.as_ref();
        let nodes = if spec.from_gateway_nodes { nodes.to_vec() } else { Vec::new() };
        let read = Self {
            name: name.clone(),
            priority: spec.priority,
            auto_assign: spec.auto_assign,
            sharing: spec.sharing,
            most_per_service: most_per_service(spec, &mut report),
            namespaces: PoolSelector::read(
                namespaces,
                "spec.namespaceSelector",
                (!namespaces_known).then_some(NAMESPACE_NAME),
                &mut report,
            ),
            services: PoolSelector::read(
                spec.service_selector.as_ref(),
                "spec.serviceSelector",
                None,
                &mut report,
            ),
            ranges,
            from_nodes: spec.from_gateway_nodes,
            node_ips: nodes.iter().map(|node| node.ip).collect(),
            nodes,
            used: 0,
        };
        (read, report.into_problems())
    }

    /// Sort key for the order in which pools are tried: by priority, with 0 last; with equal priority first those that select
    /// certain Services; then by name.
    pub(super) fn order(&self) -> (bool, u32, bool, Arc<str>) {
        let for_all = self.namespaces.is_empty() && self.services.is_empty();
        (self.priority == 0, self.priority, for_all, self.name.clone())
    }

    /// Whether Services that name no pool may use it.
    pub(super) fn auto_assigns(&self) -> bool {
        self.auto_assign
    }

    /// Whether its selectors admit the Service.
    pub(super) fn admits(&self, request: &Request<'_>) -> Admission {
        if !self.services.matches(request.labels) {
            return Admission::Refused;
        }
        if self.namespaces.is_empty() {
            return Admission::Admitted;
        }
        if request.namespace.is_none() && !self.namespaces.needs_only(NAMESPACE_NAME) {
            return Admission::Unknown;
        }
        let mut labels =
            request.namespace.and_then(|known| known.metadata.labels.clone()).unwrap_or_default();
        labels.insert(NAMESPACE_NAME.to_owned(), request.key.namespace.to_string());
        if self.namespaces.matches(&labels) { Admission::Admitted } else { Admission::Refused }
    }

    /// Whether it includes the addresses of gateway nodes.
    pub(super) fn is_from_nodes(&self) -> bool {
        self.from_nodes
    }

    /// Whether it lists addresses of the family, free or not.
    pub(super) fn serves(&self, family: Family) -> bool {
        self.ranges.iter().any(|range| range.family() == family)
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.lists(ip) || self.is_of_node(ip)
    }

    /// Whether it lists `ip` itself, rather than through a gateway node.
    pub(super) fn lists(&self, ip: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(ip))
    }

    /// Whether `ip` is within one of its ranges, even if left out: a Service may have it from earlier.
    pub(super) fn spans(&self, ip: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.spans(ip))
    }

    /// Whether both list some common address.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.ranges.iter().any(|range| other.ranges.iter().any(|its| range.overlaps(its)))
    }

    /// Whether Services of several namespaces may share one of its addresses.
    pub(super) fn shares(&self) -> bool {
        self.sharing == Sharing::Cluster
    }

    /// Whether `ip` is an address of a gateway node that it includes.
    pub(super) fn is_of_node(&self, ip: IpAddr) -> bool {
        self.node_ips.contains(&ip)
    }

    /// The addresses that it would allocate next: one from its list, or all of gateway nodes.
    pub(super) fn next(
        &mut self,
        family: Family,
        used: &UsedAddresses,
        nodes: &UsableNodes<'_>,
    ) -> Vec<IpAddr> {
        let mut ranges = self.ranges.iter_mut().filter(|range| range.family() == family);
        match ranges.find_map(|range| range.first_free(used)) {
            Some(ip) => vec![ip],
            None => self.node_addresses(family, nodes),
        }
    }

    /// Addresses of the family that these gateway nodes have, which are allocated together.
    pub(super) fn node_addresses(&self, family: Family, nodes: &UsableNodes<'_>) -> Vec<IpAddr> {
        let mut known = HashSet::new();
        let admitted = self.nodes.iter().filter(|it| Family::of(it.ip) == family && nodes.admit(&it.node));
        admitted.map(|it| it.ip).filter(|ip| known.insert(*ip)).collect()
    }

    /// Number of its addresses that Services have.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Records that the first Service got `ip`.
    pub(super) fn taken(&mut self, ip: IpAddr) {
        if self.contains(ip) {
            self.used += 1;
        }
    }

    /// Number of its addresses, used or not.
    pub(super) fn capacity(&self) -> u128 {
        range::size(&self.ranges).saturating_add(self.nodes.len() as u128)
    }

    /// Records that the last Service released `ip`, which can be allocated again.
    pub(super) fn freed(&mut self, ip: IpAddr) {
        if self.contains(ip) {
            self.used = self.used.saturating_sub(1);
        }
        for range in &mut self.ranges {
            range.freed(ip);
        }
    }
}

/// The limit of addresses for each Service. The API server rejects invalid values, but manifests are not validated.
fn most_per_service(spec: &AddressPoolSpec, report: &mut Report) -> u32 {
    let most = spec.max_per_service;
    if PER_SERVICE.contains(&most) {
        return most;
    }
    let (default, first, last) =
        (AddressPoolSpec::default().max_per_service, PER_SERVICE.start(), PER_SERVICE.end());
    report.invalid(
        "spec.maxPerService",
        format!("{most} is not from {first} to {last}; it counts as {default}"),
    );
    default
}

/// Result of a pool's selectors for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Admission {
    /// The pool admits the Service.
    Admitted,
    /// The pool does not admit the Service.
    Refused,
    /// The pool selects by labels of a Namespace that is unknown. It allocates nothing and withdraws nothing.
    Unknown,
}

/// Gateway nodes that can serve a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UsableNodes<'a> {
    /// No gateway node is known, which may be due to missing information.
    Unknown,
    /// All gateway nodes.
    All,
    /// Gateway nodes with an endpoint of the Service.
    Only(&'a BTreeSet<Arc<str>>),
}

impl UsableNodes<'_> {
    fn admit(&self, node: &Arc<str>) -> bool {
        match self {
            Self::All => true,
            Self::Unknown => false,
            Self::Only(nodes) => nodes.contains(node),
        }
    }
}
