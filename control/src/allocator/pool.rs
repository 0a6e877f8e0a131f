//! One AddressPool as read: its addresses and who may have them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::range::{Range, Used};
use super::selector::{NAMESPACE_NAME, Selector};
use crate::address_pool::{AddressPool, KIND};
use crate::ip::Family;
use crate::problem::{ObjectRef, Problem};
use crate::report::Report;
use crate::store::ServiceKey;

/// Addresses that may be given to Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) name: Arc<str>,
    priority: u32,
    auto_assign: bool,
    namespaces: Selector,
    services: Selector,
    ranges: Vec<Range>,
    /// Addresses of gateway nodes: shared by Services, so never used up.
    nodes: Vec<IpAddr>,
}

impl Pool {
    /// Reads a pool. `own` are the addresses that `fromGatewayNodes` stands for.
    pub(super) fn read(name: &Arc<str>, pool: &AddressPool, own: &[IpAddr]) -> (Self, Vec<Problem>) {
        let spec = &pool.spec;
        let mut report = Report::about(ObjectRef { kind: KIND, namespace: "".into(), name: name.clone() });
        let mut ranges = Vec::with_capacity(spec.addresses.len());
        for (index, entry) in spec.addresses.iter().enumerate() {
            match Range::read(entry, spec.avoid_buggy_ips) {
                Ok(range) => ranges.push(range),
                Err(why) => {
                    report.invalid(
                        format!("spec.addresses[{index}]"),
                        format!("{entry:?} {why}; it is left out"),
                    );
                }
            }
        }
        let namespaces = spec.namespace_selector.as_ref();
        let read = Self {
            name: name.clone(),
            priority: spec.priority,
            auto_assign: spec.auto_assign,
            namespaces: Selector::read(
                namespaces,
                "spec.namespaceSelector",
                Some(NAMESPACE_NAME),
                &mut report,
            ),
            services: Selector::read(
                spec.service_selector.as_ref(),
                "spec.serviceSelector",
                None,
                &mut report,
            ),
            ranges,
            nodes: if spec.from_gateway_nodes { own.to_vec() } else { Vec::new() },
        };
        (read, report.into_problems())
    }

    /// Pools are asked in this order: by priority with 0 last; among equals those that are meant for certain Services
    /// first; then by name.
    pub(super) fn order(&self) -> (bool, u32, bool, Arc<str>) {
        let for_all = self.namespaces.is_empty() && self.services.is_empty();
        (self.priority == 0, self.priority, for_all, self.name.clone())
    }

    /// Whether Services that name no pool may have its addresses.
    pub(super) fn auto_assigns(&self) -> bool {
        self.auto_assign
    }

    /// Whether its selectors let the Service in.
    pub(super) fn admits(&self, key: &ServiceKey, labels: &BTreeMap<String, String>) -> bool {
        let namespace = || BTreeMap::from([(NAMESPACE_NAME.to_owned(), key.namespace.to_string())]);
        (self.namespaces.is_empty() || self.namespaces.matches(&namespace())) && self.services.matches(labels)
    }

    /// Whether it has addresses of the family, free or not.
    pub(super) fn serves(&self, family: Family) -> bool {
        self.ranges.iter().any(|range| range.family() == family)
            || self.nodes.iter().any(|ip| Family::of(*ip) == family)
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.nodes.contains(&ip) || self.ranges.iter().any(|range| range.contains(ip))
    }

    /// The address that it would give next.
    pub(super) fn next(&mut self, family: Family, used: &Used) -> Option<IpAddr> {
        let mut ranges = self.ranges.iter_mut().filter(|range| range.family() == family);
        let free = ranges.find_map(|range| range.first_free(used));
        free.or_else(|| self.nodes.iter().copied().find(|ip| Family::of(*ip) == family))
    }

    /// Lets it give `ip` again.
    pub(super) fn freed(&mut self, ip: IpAddr) {
        for range in &mut self.ranges {
            range.freed(ip);
        }
    }
}
