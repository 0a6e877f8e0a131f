//! Who owns an address and port that several Services claim. The older Service wins; when it leaves, the next takes
//! over.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use sheave_dataplane::model::{EndpointAddr, FrontendAddr, Protocol};

use crate::store::ServiceKey;

/// A Service's place in the queue: by creation, then by namespace and name. Without a creation time (a manifest that
/// no API server has seen) it stands behind all that have one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    undated: bool,
    created: Option<Timestamp>,
    pub(super) key: ServiceKey,
}

impl Rank {
    pub(super) fn of(key: &ServiceKey, service: &Service) -> Self {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Self { undated: created.is_none(), created, key: key.clone() }
    }
}

/// Every claimed frontend address.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    by_addr: HashMap<FrontendAddr, Vec<Rank>>,
    by_service: HashMap<ServiceKey, (Rank, BTreeSet<FrontendAddr>)>,
}

/// What a round of changes to the claims may have changed elsewhere.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Addresses whose claimants are not the same as before.
    pub(super) addrs: BTreeSet<FrontendAddr>,
}

impl Claims {
    /// Replaces what a Service claims.
    pub(super) fn set(&mut self, rank: &Rank, addrs: BTreeSet<FrontendAddr>, touched: &mut Touched) {
        if self.by_service.get(&rank.key).is_some_and(|(held_by, held)| held_by == rank && *held == addrs) {
            return;
        }
        self.release(&rank.key, touched);
        for addr in &addrs {
            touched.addrs.insert(*addr);
            self.by_addr.entry(*addr).or_default().push(rank.clone());
        }
        self.by_service.insert(rank.key.clone(), (rank.clone(), addrs));
    }

    /// Takes all claims of a Service away.
    pub(super) fn release(&mut self, key: &ServiceKey, touched: &mut Touched) {
        let Some((_, addrs)) = self.by_service.remove(key) else { return };
        for addr in addrs {
            touched.addrs.insert(addr);
            if let Some(ranks) = self.by_addr.get_mut(&addr) {
                ranks.retain(|rank| rank.key != *key);
                if ranks.is_empty() {
                    self.by_addr.remove(&addr);
                }
            }
        }
    }

    /// The Service that serves on `addr`.
    pub(super) fn owner(&self, addr: FrontendAddr) -> Option<&ServiceKey> {
        self.by_addr.get(&addr)?.iter().min().map(|rank| &rank.key)
    }

    /// Every Service that claims `addr`.
    pub(super) fn claimants(&self, addr: FrontendAddr) -> impl Iterator<Item = &ServiceKey> {
        self.by_addr.get(&addr).into_iter().flatten().map(|rank| &rank.key)
    }

    /// Whether the gateway itself accepts traffic on `addr`.
    pub(super) fn is_frontend(&self, addr: FrontendAddr) -> bool {
        self.by_addr.contains_key(&addr)
    }

    /// Whether the gateway itself accepts what it would send to an endpoint.
    pub(super) fn is_endpoint(&self, addr: EndpointAddr, protocol: Protocol) -> bool {
        self.is_frontend(FrontendAddr { ip: addr.ip, port: addr.port, protocol })
    }
}
