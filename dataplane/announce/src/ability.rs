//! Ability of a gateway to own addresses: how many, and in which networks.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::hash::{mix, name_hash};
use crate::network::Network;

/// The largest weight.
pub const LARGEST_WEIGHT: u8 = 10;
/// The most subnets that a gateway tells others; with more, it is taken to be in all.
pub(crate) const MOST_SUBNETS: usize = 64;

/// Properties of a gateway that decide which addresses it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ability {
    /// How many addresses it owns, relative to others: 1 to [`LARGEST_WEIGHT`].
    pub weight: u8,
    /// Where it can announce.
    pub reach: Reach,
}

/// The networks in which a gateway can announce addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All: it does not say.
    #[default]
    Everywhere,
    /// Networks of its interfaces.
    Subnets(BTreeSet<ReachedSubnet>),
}

/// A network that an interface of a gateway is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReachedSubnet {
    /// The network.
    pub network: Network,
    /// The interface.
    pub interface: InterfaceId,
    /// Used for addresses whose pool names no interfaces.
    pub by_default: bool,
}

/// The name of an interface, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceId(pub(crate) u32);

impl Default for Ability {
    fn default() -> Self {
        Self { weight: 1, reach: Reach::Everywhere }
    }
}

impl Ability {
    /// How many bytes it takes in a heartbeat, at most.
    pub(crate) fn encoded_size(&self) -> usize {
        let Reach::Subnets(subnets) = &self.reach else { return 8 };
        let size = |subnet: &ReachedSubnet| if subnet.network.address().is_ipv6() { 22 } else { 10 };
        8 + subnets.iter().map(size).sum::<usize>()
    }

    /// Hash that must be equal on all gateways for them to assign addresses alike.
    pub(crate) fn hash(&self) -> u64 {
        let Reach::Subnets(subnets) = &self.reach else { return mix(self.weight.into()) };
        let hash = |hash, subnet: &ReachedSubnet| {
            let bits = match subnet.network.address() {
                IpAddr::V4(ip) => u128::from(ip.to_bits()),
                IpAddr::V6(ip) => ip.to_bits(),
            };
            let rest = u64::from(subnet.interface.0) << 16
                | u64::from(subnet.network.prefix()) << 1
                | u64::from(subnet.by_default);
            mix(mix(mix(hash ^ (bits >> 64) as u64) ^ bits as u64) ^ rest)
        };
        subnets.iter().fold(mix(u64::from(self.weight) | 1 << 8), hash)
    }
}

impl Reach {
    /// Subnets of interfaces, each with whether it is used for addresses whose pool names no interfaces.
    pub fn of<'a>(subnets: impl Iterator<Item = (Network, &'a str, bool)>) -> Self {
        let subnets: BTreeSet<_> = subnets
            .map(|(network, interface, by_default)| {
                let interface = InterfaceId::of(interface);
                ReachedSubnet { network, interface, by_default }
            })
            .collect();
        if subnets.len() > MOST_SUBNETS { Self::Everywhere } else { Self::Subnets(subnets) }
    }

    /// Whether an address can be announced: on one of these interfaces, or on those that are used by default.
    pub fn contains(&self, ip: IpAddr, interfaces: &[InterfaceId]) -> bool {
        let Self::Subnets(subnets) = self else { return true };
        subnets.iter().any(|subnet| {
            let admitted = match interfaces {
                [] => subnet.by_default,
                interfaces => interfaces.contains(&subnet.interface),
            };
            admitted && subnet.network.contains(ip)
        })
    }
}

impl InterfaceId {
    /// Hashes the name of an interface.
    pub fn of(name: &str) -> Self {
        Self(name_hash(name) as u32)
    }

    /// Hashes the names of interfaces.
    pub fn all(names: &[Arc<str>]) -> Vec<Self> {
        names.iter().map(|name| Self::of(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(network: &str, prefix: u8) -> Network {
        Network::of(network.parse().unwrap(), prefix)
    }

    #[test]
    fn an_address_is_reached_by_the_interfaces_that_its_pool_names_or_by_those_of_the_gateway() {
        let subnets =
            [(network("192.0.2.0", 24), "eth0", true), (network("198.51.100.0", 24), "eth1", false)];
        let reach = Reach::of(subnets.into_iter());
        let reached = |ip: &str, interfaces: &[&str]| {
            let interfaces: Vec<InterfaceId> = interfaces.iter().map(|name| InterfaceId::of(name)).collect();
            reach.contains(ip.parse().unwrap(), &interfaces)
        };
        assert!(reached("192.0.2.7", &[]) && reached("192.0.2.7", &["eth0"]));
        assert!(!reached("192.0.2.7", &["eth1"]));
        assert!(!reached("198.51.100.7", &[]) && reached("198.51.100.7", &["eth2", "eth1"]));
        assert!(!reached("203.0.113.7", &[]) && Reach::Everywhere.contains([203, 0, 113, 7].into(), &[]));
    }

    #[test]
    fn whoever_is_in_more_subnets_than_can_be_told_counts_as_everywhere() {
        let subnets =
            |count: u8| Reach::of((0..count).map(|n| (network(&format!("10.{n}.0.0"), 16), "eth0", true)));
        assert!(matches!(subnets(64), Reach::Subnets(_)));
        assert_eq!(subnets(65), Reach::Everywhere);
    }

    #[test]
    fn every_part_of_an_ability_is_in_its_hash() {
        let of = |weight, subnet: Option<(Network, &str, bool)>| {
            Ability { weight, reach: Reach::of(subnet.into_iter()) }.hash()
        };
        let subnet = |ip, prefix, name, by_default| Some((network(ip, prefix), name, by_default));
        let hashes = BTreeSet::from([
            Ability::default().hash(),
            of(1, None),
            of(2, None),
            of(1, subnet("192.0.2.0", 24, "eth0", true)),
            of(2, subnet("192.0.2.0", 24, "eth0", true)),
            of(1, subnet("192.0.2.0", 25, "eth0", true)),
            of(1, subnet("192.0.3.0", 24, "eth0", true)),
            of(1, subnet("192.0.2.0", 24, "eth1", true)),
            of(1, subnet("192.0.2.0", 24, "eth0", false)),
            of(1, subnet("2001:db8::", 64, "eth0", true)),
        ]);
        assert_eq!(hashes.len(), 10);
    }
}
