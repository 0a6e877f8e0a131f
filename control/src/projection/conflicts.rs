//! Ownership of an address and port that several Services claim: first the Service whose status has it, then the oldest, and
//! those that only name it in `externalIPs` last. When the owner leaves, the next one takes over.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sheave_model::{FrontendAddr, Protocol};

use super::plan::Rank;
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
pub(super) type ServiceClaims = BTreeMap<FrontendAddr, ClaimPriority>;

/// All claims.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    by_addr: HashMap<FrontendAddr, Vec<(ClaimPriority, Rank)>>,
    by_service: HashMap<ServiceKey, (Rank, ServiceClaims)>,
    /// Number of claimed addresses with each port.
    ports: HashMap<(u16, Protocol), usize>,
}

/// Effects of changed claims.
#[derive(Debug, Default)]
pub(super) struct ClaimChanges {
    /// Addresses whose claimants changed, and whether they had any before.
    pub(super) addrs: BTreeMap<FrontendAddr, bool>,
}

impl Claims {
    /// Replaces the claims of a Service.
    pub(super) fn set(&mut self, rank: &Rank, claims: ServiceClaims, touched: &mut ClaimChanges) {
        if self.by_service.get(&rank.key).is_some_and(|(held_by, held)| held_by == rank && *held == claims) {
            return;
        }
        self.release(&rank.key, touched);
        for (addr, claim) in &claims {
            touched.addrs.entry(*addr).or_insert(self.by_addr.contains_key(addr));
            let claimants = self.by_addr.entry(*addr).or_default();
            if claimants.is_empty() {
                *self.ports.entry((addr.port, addr.protocol)).or_default() += 1;
            }
            claimants.push((*claim, rank.clone()));
        }
        self.by_service.insert(rank.key.clone(), (rank.clone(), claims));
    }

    /// Removes all claims of a Service.
    pub(super) fn release(&mut self, key: &ServiceKey, touched: &mut ClaimChanges) {
        let Some((_, claims)) = self.by_service.remove(key) else { return };
        for addr in claims.into_keys() {
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

    /// The Service that serves on `addr`.
    pub(super) fn owner(&self, addr: FrontendAddr) -> Option<&ServiceKey> {
        self.by_addr.get(&addr)?.iter().min().map(|(_, rank)| &rank.key)
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

    /// Whether the gateway itself accepts traffic on `addr`.
    pub(super) fn is_frontend(&self, addr: FrontendAddr) -> bool {
        self.by_addr.contains_key(&addr)
    }
}
