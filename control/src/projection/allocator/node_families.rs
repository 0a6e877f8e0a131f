//! Origin of a Service's addresses: gateway nodes, whose addresses come and go with them, or the list of a pool. While a pool has
//! an address its origin is evident. Afterwards it is remembered, and published with the addresses, so that every leader knows
//! it.

use std::net::IpAddr;

use super::Allocator;
use crate::api::store::ServiceKey;
use crate::net::Family;

/// Families in which a Service has the addresses of gateway nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFamilies {
    v4: bool,
    v6: bool,
}

impl NodeFamilies {
    /// Names of all sets but the empty one. They are published, so they never change.
    const NAMES: [(&str, Self); 3] = [
        ("IPv4", Self { v4: true, v6: false }),
        ("IPv6", Self { v4: false, v6: true }),
        ("DualStack", Self { v4: true, v6: true }),
    ];

    /// The set with this name; empty if there is none.
    pub(crate) fn named(name: &str) -> Self {
        let known = Self::NAMES.into_iter().find(|(known, _)| *known == name);
        known.map(|(_, families)| families).unwrap_or_default()
    }

    /// Name of the set, unless it is empty.
    pub(crate) fn name(self) -> Option<&'static str> {
        Self::NAMES.into_iter().find(|(_, families)| *families == self).map(|(name, _)| name)
    }

    pub(crate) fn has(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

impl Allocator {
    /// Families in which the Service has the addresses of gateway nodes.
    pub(crate) fn node_families(&self, key: &ServiceKey) -> NodeFamilies {
        self.node_families.get(key).copied().unwrap_or_default()
    }

    /// Like [`Self::hold`], for addresses that the Service had before; in `families` they were those of gateway nodes.
    pub(crate) fn hold_again(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>, families: NodeFamilies) {
        self.node_families.insert(key.clone(), families);
        self.hold(key, addresses);
    }

    /// Updates the remembered origin of the Service's addresses.
    pub(super) fn remember_origin(&mut self, key: &ServiceKey) {
        let (held, before) = (self.held(key), self.node_families(key));
        let is_listed = |ip: &IpAddr| self.pools.iter().any(|pool| pool.lists(*ip));
        let is_nodes = |ip: &IpAddr| self.pools.iter().any(|pool| pool.contains(*ip));
        let of_nodes = |family: Family| {
            let of_family: Vec<IpAddr> =
                held.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
            !of_family.is_empty()
                && !of_family.iter().any(is_listed)
                && (before.has(family) || of_family.iter().all(is_nodes))
        };
        let now = NodeFamilies { v4: of_nodes(Family::V4), v6: of_nodes(Family::V6) };
        if now == NodeFamilies::default() {
            self.node_families.remove(key);
        } else {
            self.node_families.insert(key.clone(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_never_change() {
        for (name, families) in NodeFamilies::NAMES {
            assert_eq!((NodeFamilies::named(name), families.name()), (families, Some(name)));
        }
        assert_eq!(NodeFamilies::NAMES.map(|(name, _)| name), ["IPv4", "IPv6", "DualStack"]);
        assert_eq!(
            (NodeFamilies::named("IPv5"), NodeFamilies::default().name()),
            (NodeFamilies::default(), None)
        );
    }
}
