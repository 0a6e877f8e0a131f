//! Who owns an address and port that several Services claim: whose status publishes it, else the older one, and those that
//! only name it in `externalIPs` last. When the owner leaves, the next takes over.

use std::collections::{BTreeMap, HashMap};

use sheave_model::FrontendAddr;

use super::plan::Rank;
use crate::api::store::ServiceKey;

/// By what a Service claims an address; the first kind wins over the others, however old those are. Otherwise a user who may write a
/// Service could take an address from one that has it (CVE-2020-8554).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClaimPriority {
    /// Its status publishes the address, which takes more rights than to ask for it.
    Published,
    /// Its status publishes those of all other gateway nodes, where it has the same ports.
    PublishedAtOtherNodes,
    /// It was given the address, or the address is the cluster's or the node's.
    Given,
    /// It names the address in `externalIPs`.
    Named,
}

/// What a Service claims.
pub(super) type ServiceClaims = BTreeMap<FrontendAddr, ClaimPriority>;

/// Every claimed frontend address.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    by_addr: HashMap<FrontendAddr, Vec<(ClaimPriority, Rank)>>,
    by_service: HashMap<ServiceKey, (Rank, ServiceClaims)>,
}

/// Which addresses a pass of changes to the claims affects.
#[derive(Debug, Default)]
pub(super) struct ClaimChanges {
    /// Addresses whose claimants are not the same as before, and whether there were any.
    pub(super) addrs: BTreeMap<FrontendAddr, bool>,
}

impl Claims {
    /// Replaces what a Service claims.
    pub(super) fn set(&mut self, rank: &Rank, claims: ServiceClaims, touched: &mut ClaimChanges) {
        if self.by_service.get(&rank.key).is_some_and(|(held_by, held)| held_by == rank && *held == claims) {
            return;
        }
        self.release(&rank.key, touched);
        for (addr, claim) in &claims {
            touched.addrs.entry(*addr).or_insert(self.by_addr.contains_key(addr));
            self.by_addr.entry(*addr).or_default().push((*claim, rank.clone()));
        }
        self.by_service.insert(rank.key.clone(), (rank.clone(), claims));
    }

    /// Takes all claims of a Service away.
    pub(super) fn release(&mut self, key: &ServiceKey, touched: &mut ClaimChanges) {
        let Some((_, claims)) = self.by_service.remove(key) else { return };
        for addr in claims.into_keys() {
            touched.addrs.entry(addr).or_insert(true);
            if let Some(claims) = self.by_addr.get_mut(&addr) {
                claims.retain(|(_, rank)| rank.key != *key);
                if claims.is_empty() {
                    self.by_addr.remove(&addr);
                }
            }
        }
    }

    /// The Service that serves on `addr`.
    pub(super) fn owner(&self, addr: FrontendAddr) -> Option<&ServiceKey> {
        self.by_addr.get(&addr)?.iter().min().map(|(_, rank)| &rank.key)
    }

    /// The rank of a Service that claims something.
    pub(super) fn rank(&self, key: &ServiceKey) -> Option<&Rank> {
        self.by_service.get(key).map(|(rank, _)| rank)
    }

    /// Every Service that claims `addr`.
    pub(super) fn claimants(&self, addr: FrontendAddr) -> impl Iterator<Item = &ServiceKey> {
        self.by_addr.get(&addr).into_iter().flatten().map(|(_, rank)| &rank.key)
    }

    /// Whether the gateway itself accepts traffic on `addr`.
    pub(super) fn is_frontend(&self, addr: FrontendAddr) -> bool {
        self.by_addr.contains_key(&addr)
    }
}
