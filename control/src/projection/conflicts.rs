//! Ownership of an address and port that several Services claim: first the Service whose status has it, then the oldest, and
//! those that only name it in `externalIPs` last. When the owner leaves, the next one takes over.
//!
//! An object without a plan, whose status publishes an address without a list of ports, claims every port of it, against all but those whose
//! statuses have the port: objects with such statuses may share an address, each with ports of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use sheave_model::{FrontendAddr, Protocol};

use super::plan::Rank;
use super::published::{Published, WholeAddresses, add_whole};
use crate::api::store::ServiceKey;

/// Priority of a claim, highest first. It outweighs the age of the Services: otherwise a user with write access to a Service could
/// take an address from another one (CVE-2020-8554).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClaimPriority {
    /// Its status has the address. Writing a status needs more permissions than requesting an address.
    Published,
    /// Its status has the addresses of all other gateway nodes, on which it has the same ports.
    PublishedAtOtherNodes,
    /// The address was allocated to it, or is the cluster's or the node's.
    Given,
    /// The Service names the address in `externalIPs`.
    Named,
}

/// Claims of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceClaims {
    pub(super) addrs: BTreeMap<FrontendAddr, ClaimPriority>,
    /// Addresses that its status publishes without a list of ports.
    pub(super) whole: WholeAddresses,
}

impl ServiceClaims {
    /// Adds claims to the ports that a status, or a write of one, lists.
    pub(super) fn add_listed(&mut self, published: &Published) {
        self.addrs.extend(published.ports().map(|addr| (addr, ClaimPriority::Published)));
    }

    /// Adds claims to all that a status, or a write of one, publishes. For an object that is not planned, whose ports are unknown.
    pub(super) fn add_published(&mut self, published: &Published) {
        self.add_listed(published);
        add_whole(&mut self.whole, published.whole());
    }
}

/// All claims.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    by_addr: HashMap<FrontendAddr, Vec<(ClaimPriority, Rank)>>,
    by_service: HashMap<ServiceKey, (Rank, ServiceClaims)>,
    /// Number of claimed addresses with each port.
    ports: HashMap<(u16, Protocol), usize>,
    whole: BTreeMap<IpAddr, Vec<(Rank, BTreeSet<FrontendAddr>)>>,
}

/// Effects of changed claims.
#[derive(Debug, Default)]
pub(super) struct ClaimChanges {
    /// Addresses whose claimants changed, and whether they had any before.
    pub(super) addrs: BTreeMap<FrontendAddr, bool>,
    /// Addresses of which claims on every port changed.
    pub(super) whole: BTreeSet<IpAddr>,
}

impl Claims {
    /// Replaces the claims of a Service.
    pub(super) fn set(&mut self, rank: &Rank, claims: ServiceClaims, touched: &mut ClaimChanges) {
        if self.by_service.get(&rank.key).is_some_and(|(held_by, held)| held_by == rank && *held == claims) {
            return;
        }
        self.release(&rank.key, touched);
        for (addr, claim) in &claims.addrs {
            touched.addrs.entry(*addr).or_insert(self.by_addr.contains_key(addr));
            let claimants = self.by_addr.entry(*addr).or_default();
            if claimants.is_empty() {
                *self.ports.entry((addr.port, addr.protocol)).or_default() += 1;
            }
            claimants.push((*claim, rank.clone()));
        }
        for (ip, others) in &claims.whole {
            touched.whole.insert(*ip);
            self.whole.entry(*ip).or_default().push((rank.clone(), others.clone()));
        }
        self.by_service.insert(rank.key.clone(), (rank.clone(), claims));
    }

    /// Removes all claims of a Service.
    pub(super) fn release(&mut self, key: &ServiceKey, touched: &mut ClaimChanges) {
        let Some((_, claims)) = self.by_service.remove(key) else { return };
        for ip in claims.whole.into_keys() {
            touched.whole.insert(ip);
            if let Some(claims) = self.whole.get_mut(&ip) {
                claims.retain(|(rank, _)| rank.key != *key);
                if claims.is_empty() {
                    self.whole.remove(&ip);
                }
            }
        }
        for addr in claims.addrs.into_keys() {
            touched.addrs.entry(addr).or_insert(true);
            if let Some(claims) = self.by_addr.get_mut(&addr) {
                claims.retain(|(_, rank)| rank.key != *key);
                if claims.is_empty() {
                    self.by_addr.remove(&addr);
                    self.release_port((addr.port, addr.protocol));
                }
            }
        }
    }

    fn release_port(&mut self, port: (u16, Protocol)) {
        if let Some(addresses) = self.ports.get_mut(&port) {
            *addresses -= 1;
            if *addresses == 0 {
                self.ports.remove(&port);
            }
        }
    }

    /// The Service to which `addr` belongs, if any claims just that.
    pub(super) fn owner(&self, addr: FrontendAddr) -> Option<&ServiceKey> {
        let (priority, first) = self.by_addr.get(&addr)?.iter().min()?;
        let whole = self.whole.get(&addr.ip).filter(|_| *priority > ClaimPriority::Published);
        let whole = whole.into_iter().flatten().filter(|(_, others)| !others.contains(&addr));
        Some(&whole.map(|(rank, _)| rank).min().unwrap_or(first).key)
    }

    /// The rank of a Service with claims.
    pub(super) fn rank(&self, key: &ServiceKey) -> Option<&Rank> {
        self.by_service.get(key).map(|(rank, _)| rank)
    }

    /// All Services that claim `addr`.
    pub(super) fn claimants(&self, addr: FrontendAddr) -> impl Iterator<Item = &ServiceKey> {
        self.by_addr.get(&addr).into_iter().flatten().map(|(_, rank)| &rank.key)
    }

    /// All Services that claim an address with one of these ports. Costs nothing while none does.
    pub(super) fn on_ports(&self, ports: &BTreeSet<(u16, Protocol)>) -> BTreeSet<ServiceKey> {
        if !ports.iter().any(|port| self.ports.contains_key(port)) {
            return BTreeSet::new();
        }
        let there = self.by_addr.iter().filter(|(addr, _)| ports.contains(&(addr.port, addr.protocol)));
        there.flat_map(|(_, claims)| claims.iter().map(|(_, rank)| rank.key.clone())).collect()
    }

    /// All Services with a claim on a port of one of these addresses.
    pub(super) fn claimants_at(&self, ips: &BTreeSet<IpAddr>) -> impl Iterator<Item = &ServiceKey> {
        let there = self.by_addr.iter().filter(|(addr, _)| ips.contains(&addr.ip));
        there.flat_map(|(_, claims)| claims).map(|(_, rank)| &rank.key)
    }

    /// Whether the gateway itself accepts traffic on `addr`.
    pub(super) fn is_frontend(&self, addr: FrontendAddr) -> bool {
        self.by_addr.contains_key(&addr)
    }
}
