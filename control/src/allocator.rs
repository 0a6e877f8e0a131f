//! Gives addresses out of AddressPools to Services. Deterministic and free of I/O: what it gave, it keeps giving while
//! the pool holds the address, so no Service is moved by another's coming or going.
//!
//! It must not know where requests come from or what is published: whoever restarts tells it first, through
//! [`Allocator::hold`], what Services already have.

mod by_value;
mod holders;
mod pool;
mod range;
mod selector;
mod shortfall;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use self::holders::{Holders, Remaining, Used};
use self::pool::Admission;
use self::pool::Pool;
pub(crate) use self::pool::{NodeAddress, Nodes};
pub(crate) use self::shortfall::{Assignment, Refusal, Reservation, Shortfall};
use crate::address_pool::AddressPool;
use crate::ip::Family;
use crate::problem::Problem;
use crate::store::ServiceKey;
use k8s_openapi::api::core::v1::Namespace;

/// What a Service wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) key: &'a ServiceKey,
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// The Service's Namespace, if it is known.
    pub(crate) namespace: Option<&'a Namespace>,
    /// One address of each is allocated, unless `addresses` says which.
    pub(crate) families: &'a [Family],
    /// Take them from this pool only.
    pub(crate) pool: Option<&'a str>,
    /// Exactly these, shared with others of the namespace that have them, and beyond it where the pool consents. Empty = any.
    pub(crate) addresses: &'a [IpAddr],
    /// Gateway nodes whose addresses it can use.
    pub(crate) nodes: Nodes<'a>,
}

/// What has to be known before an address may be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unjudged {
    /// There is no pool.
    NoPool,
    /// A pool that has the address selects Namespaces by labels, and the Service's is not known.
    NamespaceUnknown,
    /// A pool gives the addresses of gateway nodes, and no gateway is ready, or no Node known.
    NoGateway,
}

/// The pools, and who has which address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocator {
    /// In the order in which they are asked.
    pools: Vec<Pool>,
    held: HashMap<ServiceKey, Vec<IpAddr>>,
    used: Used,
    freed: bool,
}

impl Allocator {
    /// Replaces the pools. `nodes` are the addresses that `fromGatewayNodes` stands for; where Namespaces are not known only
    /// their names can be selected. What Services hold is not touched: [`Self::prune`] takes away what no pool has any
    /// longer.
    pub(crate) fn set_pools(
        &mut self,
        pools: &BTreeMap<Arc<str>, Arc<AddressPool>>,
        namespaces_known: bool,
        nodes: &[NodeAddress],
    ) -> Vec<Problem> {
        let read = |(name, pool): (_, &Arc<_>)| Pool::read(name, pool, nodes, namespaces_known);
        let (mut read, problems): (Vec<Pool>, Vec<_>) = pools.iter().map(read).unzip();
        read.sort_by_cached_key(Pool::order);
        for pool in &mut read {
            self.used.keys().for_each(|ip| pool.taken(*ip));
        }
        self.pools = read;
        self.freed = true;
        problems.into_iter().flatten().collect()
    }

    /// Why it cannot be said whether the Service may keep these addresses, if it cannot: too little is known.
    pub(crate) fn unjudged(&self, request: &Request<'_>, addresses: &[IpAddr]) -> Option<Unjudged> {
        if self.pools.is_empty() {
            return Some(Unjudged::NoPool);
        }
        let has = |pool: &&Pool| addresses.iter().any(|ip| pool.contains(*ip));
        if self.pools.iter().filter(has).any(|pool| pool.admits(request) == Admission::Unknown) {
            return Some(Unjudged::NamespaceUnknown);
        }
        let from_nodes = |pool: &&Pool| pool.is_from_nodes() && pool.admits(request) == Admission::Admitted;
        let no_gateway =
            matches!(request.nodes, Nodes::Unknown) && self.pools.iter().any(|it| from_nodes(&it));
        let covered = |ip: &IpAddr| self.pools.iter().any(|pool| pool.contains(*ip));
        (no_gateway && !addresses.iter().all(covered)).then_some(Unjudged::NoGateway)
    }

    /// Records what a Service has, wherever it is from: nobody else is given it.
    pub(crate) fn hold(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>) {
        for ip in &addresses {
            match self.used.entry(*ip) {
                Entry::Occupied(mut holders) => holders.get_mut().add(&key.namespace),
                Entry::Vacant(free) => {
                    free.insert(Holders::new(&key.namespace));
                    self.pools.iter_mut().for_each(|pool| pool.taken(*ip));
                }
            }
        }
        self.release(key);
        if !addresses.is_empty() {
            self.held.insert(key.clone(), addresses);
        }
    }

    /// What a Service has.
    pub(crate) fn held(&self, key: &ServiceKey) -> &[IpAddr] {
        self.held.get(key).map_or(&[], Vec::as_slice)
    }

    /// Takes back all that a Service has.
    pub(crate) fn release(&mut self, key: &ServiceKey) {
        for ip in self.held.remove(key).unwrap_or_default() {
            let Some(holders) = self.used.get_mut(&ip) else { continue };
            let remaining = holders.remove(&key.namespace);
            if remaining == Remaining::Nobody {
                self.used.remove(&ip);
                self.pools.iter_mut().for_each(|pool| pool.freed(ip));
            }
            self.freed |= remaining != Remaining::SameNamespaces;
        }
    }

    /// Per pool its name, how many of its addresses are given away, and how many can still be.
    pub(crate) fn usage(&self) -> impl Iterator<Item = (&Arc<str>, usize, u128)> {
        self.pools.iter().map(|pool| {
            let used = pool.used();
            (&pool.name, used, pool.capacity().saturating_sub(used as u128))
        })
    }

    /// Whether addresses became free, or free for other namespaces, since the last call: those who wait may ask again.
    pub(crate) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Takes back what the request, or the pools, no longer cover. Called for every request of a round before any
    /// [`Self::assign`], so that the order of requests does not decide whether a returned address can be given again.
    pub(crate) fn prune(&mut self, request: &Request<'_>) {
        let Some(held) = self.held.get(request.key) else { return };
        let usable = self.usable(request).unwrap_or_default();
        let covered = |ip: &IpAddr| usable.iter().any(|&pool| self.pools[pool].contains(*ip));
        let mut kept: Vec<IpAddr> = Vec::with_capacity(held.len());
        for ip in held.iter().filter(|ip| covered(ip)) {
            let wanted = if request.addresses.is_empty() {
                let family = Family::of(*ip);
                let first = kept.iter().find(|other| Family::of(**other) == family);
                request.families.contains(&family)
                    && match self.companions(*ip, &usable, request) {
                        Some(all) => all.contains(ip) && first.is_none_or(|first| all.contains(first)),
                        None => first.is_none(),
                    }
            } else {
                request.addresses.contains(ip)
            };
            if wanted {
                kept.push(*ip);
            }
        }
        if kept != *held {
            self.hold(request.key, kept);
        }
    }

    /// Gives what is missing, and answers all that the Service now has.
    pub(crate) fn assign(&mut self, request: &Request<'_>) -> Assignment {
        let usable = match self.usable(request) {
            Ok(usable) => usable,
            Err(shortfall) => return Assignment::nothing(shortfall),
        };
        let mut assignment = if request.addresses.is_empty() {
            self.automatic(request, &usable)
        } else {
            self.by_value(request, &usable)
        };
        for ip in assignment.addresses.clone() {
            if let Some(pool) = self.closed_to(ip, request) {
                assignment.reserve(ip, Reservation::Shared(pool.name.clone()));
            }
        }
        self.hold(request.key, assignment.addresses.clone());
        assignment
    }

    /// Indexes of the pools whose addresses the Service may have, given or not.
    fn usable(&self, request: &Request<'_>) -> Result<Vec<usize>, Shortfall> {
        let admits = |pool: &Pool| pool.admits(request) == Admission::Admitted;
        let Some(name) = request.pool else {
            return Ok((0..self.pools.len()).filter(|&index| admits(&self.pools[index])).collect());
        };
        let index = self.pools.iter().position(|pool| *pool.name == *name);
        match index {
            None => Err(Shortfall::UnknownPool(name.to_owned())),
            Some(index) if admits(&self.pools[index]) => Ok(vec![index]),
            Some(index) => Err(Shortfall::NotAdmitted(self.pools[index].name.clone())),
        }
    }

    /// If `ip` is a gateway node's: all of its family that are given together.
    fn companions(&self, ip: IpAddr, usable: &[usize], request: &Request<'_>) -> Option<Vec<IpAddr>> {
        usable.iter().find_map(|&pool| self.pools[pool].companions(ip, &request.nodes))
    }

    /// Keeps what the Service has, with what belongs to it, and adds one address, or those of gateway nodes, of each family
    /// that lacks. A pool that can give all that is missing is preferred, and before it one that gave the rest.
    fn automatic(&mut self, request: &Request<'_>, usable: &[usize]) -> Assignment {
        let mut addresses = self.held.get(request.key).cloned().unwrap_or_default();
        for ip in addresses.clone() {
            for other in self.companions(ip, usable, request).unwrap_or_default() {
                if !addresses.contains(&other) {
                    addresses.push(other);
                }
            }
        }
        let missing: Vec<Family> = request
            .families
            .iter()
            .copied()
            .filter(|family| !addresses.iter().any(|ip| Family::of(*ip) == *family))
            .collect();
        let mut asked: Vec<usize> = usable
            .iter()
            .copied()
            .filter(|&pool| request.pool.is_some() || self.pools[pool].auto_assigns())
            .collect();
        let used = &self.used;
        let pools = &mut self.pools;
        asked.sort_by_cached_key(|&pool| {
            let gave_before = addresses.iter().any(|ip| pools[pool].contains(*ip));
            let gives = |family: &Family| !pools[pool].next(*family, used, &request.nodes).is_empty();
            let gives_all = missing.iter().all(gives);
            (!gave_before, !gives_all)
        });
        let mut shortfalls = Vec::new();
        for family in missing {
            let offers = asked.iter().map(|&pool| pools[pool].next(family, used, &request.nodes));
            match offers.into_iter().find(|offer| !offer.is_empty()) {
                Some(offer) => addresses.extend(offer),
                None => shortfalls.push(self::shortfall(request, family, &asked, pools)),
            }
        }
        Assignment { addresses, shortfalls, ..Assignment::default() }
    }
}

fn shortfall(request: &Request<'_>, family: Family, asked: &[usize], pools: &[Pool]) -> Shortfall {
    let names = |is: &dyn Fn(&Pool) -> bool| -> Vec<Arc<str>> {
        asked.iter().map(|&pool| &pools[pool]).filter(|pool| is(pool)).map(|pool| pool.name.clone()).collect()
    };
    let exhausted = names(&|pool| pool.serves(family));
    let without_node = names(&Pool::is_from_nodes);
    match (exhausted.is_empty(), without_node.is_empty(), request.pool) {
        (false, ..) => Shortfall::Exhausted { family, pools: exhausted },
        (true, false, _) => Shortfall::NoGatewayNode { family, pools: without_node },
        (true, true, Some(pool)) => Shortfall::FamilyMissing { family, pool: pool.into() },
        (true, true, None) => Shortfall::NoPool(family),
    }
}

#[cfg(test)]
mod tests;
