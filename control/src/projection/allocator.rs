//! Allocator of addresses from AddressPools. Deterministic and without I/O. A Service keeps its address until it requests another
//! one, so neither other Services nor an edit of a pool move it.
//!
//! The allocator does not read published state: after a restart the caller first records existing addresses with
//! [`Allocator::hold`].

mod announce_policy;
mod assignment;
mod automatic;
mod by_value;
mod foreign;
mod holders;
mod node_families;
mod pool;
mod range;
mod retention;
mod selector;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;

pub use self::announce_policy::{AnnouncePolicies, AnnouncePolicy};
pub(crate) use self::assignment::{AddressSummary, Assignment, Demand, Reservation, Shortfall};
pub use self::node_families::NodeFamilies;
pub(crate) use self::pool::{NodeAddress, UsableNodes};
pub(crate) use self::range::AddressRange;
pub(super) use self::selector::selects_namespace;

use self::holders::{Remaining, UsedAddresses};
use self::pool::{Admission, Pool};
use self::retention::Retention;
use crate::api::address_pool::AddressPool;
use crate::api::problem::Problem;
use crate::api::store::ServiceKey;
use crate::net::Family;

/// Request of a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) key: &'a ServiceKey,
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// Namespace of the Service, if it is known.
    pub(crate) namespace: Option<&'a Namespace>,
    /// Families in which one address each is allocated, unless `addresses` has them.
    pub(crate) families: &'a [Family],
    /// Name of the only pool to use.
    pub(crate) pool: Option<&'a str>,
    /// Requested addresses, shared with Services in the namespace that have them, and with other namespaces if the pool permits.
    /// Empty means any address.
    pub(crate) addresses: &'a [IpAddr],
    /// Treatment of addresses that no pool offers to the Service any longer.
    pub(crate) uncovered: Uncovered,
    /// Gateway nodes whose addresses it can use.
    pub(crate) nodes: UsableNodes<'a>,
}

/// Treatment of a Service's address that no pool offers to it any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncovered {
    /// The address stays, because clients use it.
    Kept,
    /// The address stays until another one can be allocated.
    Replaced,
    /// The address is released at once.
    Dropped,
}

/// The pools, and the addresses of Services.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocator {
    /// Pools in the order in which they are tried.
    pools: Vec<Pool>,
    held: HashMap<ServiceKey, Vec<IpAddr>>,
    /// Addresses in statuses of Services, whether still held or not. No other Service gets them until the status changes.
    reserved: HashMap<ServiceKey, Vec<IpAddr>>,
    /// Addresses that objects of other load balancers publish as their own.
    foreign: HashMap<ServiceKey, Vec<IpAddr>>,
    /// Addresses that Gateways of other controllers have copied from Services of ours.
    copied: HashMap<ServiceKey, Vec<IpAddr>>,
    /// Addresses that are held, reserved or foreign.
    used: UsedAddresses,
    /// Families in which Services have addresses of gateway nodes.
    node_families: HashMap<ServiceKey, NodeFamilies>,
    /// Addresses that became free, or free for other namespaces, since the last `take_freed`.
    freed: Vec<IpAddr>,
}

impl Allocator {
    /// Replaces the pools. `nodes` are the addresses that `fromGatewayNodes` stands for. Without known Namespaces, only their
    /// names can be selected. Held addresses are unchanged; all Services must request again.
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
            self.used.all().for_each(|ip| pool.taken(ip));
        }
        self.pools = read;
        problems.into_iter().flatten().collect()
    }

    /// Records the addresses of a Service, from whatever source, so that no other Service gets them.
    pub(crate) fn hold(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>) {
        self.take(key, &addresses);
        let before = self.held.remove(key).unwrap_or_default();
        self.let_go(key, before);
        if !addresses.is_empty() {
            self.held.insert(key.clone(), addresses);
        }
        self.remember_origin(key);
    }

    /// Records the addresses in the status of a Service, in addition to those it holds, so that no other Service gets them.
    pub(crate) fn reserve(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>) {
        if self.reserved(key) == addresses {
            return;
        }
        self.take(key, &addresses);
        let before = self.reserved.remove(key).unwrap_or_default();
        self.let_go(key, before);
        if !addresses.is_empty() {
            self.reserved.insert(key.clone(), addresses);
        }
    }

    /// Addresses that are reserved for a Service because its status has them.
    pub(crate) fn reserved(&self, key: &ServiceKey) -> &[IpAddr] {
        self.reserved.get(key).map_or(&[], Vec::as_slice)
    }

    /// Addresses of a Service.
    pub(crate) fn held(&self, key: &ServiceKey) -> &[IpAddr] {
        self.held.get(key).map_or(&[], Vec::as_slice)
    }

    /// Whether some Service of ours has the address, or has it reserved.
    pub(crate) fn is_used(&self, ip: IpAddr) -> bool {
        self.used.holders(ip).is_some()
    }

    /// Releases all held and reserved addresses of a Service.
    pub(crate) fn release(&mut self, key: &ServiceKey) {
        let (held, reserved) = (self.held.remove(key), self.reserved.remove(key));
        self.let_go(key, held.into_iter().chain(reserved).flatten().collect());
        self.node_families.remove(key);
    }

    fn take(&mut self, key: &ServiceKey, addresses: &[IpAddr]) {
        for ip in addresses {
            let is_first = !self.is_used(*ip);
            if self.used.add(*ip, &key.namespace) {
                self.pools.iter_mut().for_each(|pool| pool.taken(*ip));
            } else if is_first {
                // Only another load balancer published it. Services of this namespace may share it from now on.
                self.freed.push(*ip);
            }
        }
    }

    fn let_go(&mut self, key: &ServiceKey, addresses: Vec<IpAddr>) {
        for ip in addresses {
            match self.used.remove(ip, &key.namespace) {
                None | Some(Remaining::SameNamespaces) => {}
                Some(Remaining::FewerNamespaces) => self.freed.push(ip),
                // Some requests by value get it although another load balancer publishes it.
                Some(Remaining::Nobody) if !self.used.is_free(ip) => self.freed.push(ip),
                Some(Remaining::Nobody) => self.offer_if_free(ip),
            }
        }
    }

    /// Lets other Services get the address if no object has it any longer.
    fn offer_if_free(&mut self, ip: IpAddr) {
        if self.used.is_free(ip) {
            self.pools.iter_mut().for_each(|pool| pool.freed(ip));
            self.freed.push(ip);
        }
    }

    /// Name of each pool, the number of its used addresses, and the number that is free.
    pub(crate) fn usage(&self) -> impl Iterator<Item = (&Arc<str>, usize, u128)> {
        self.pools.iter().map(|pool| {
            let used = pool.used();
            (&pool.name, used, pool.capacity().saturating_sub(used as u128))
        })
    }

    /// Addresses that became free, or free for other namespaces, since the last call. Waiting Services can request again.
    pub(crate) fn take_freed(&mut self) -> Vec<IpAddr> {
        std::mem::take(&mut self.freed)
    }

    /// Pools that can give this address to a Service that requests any address; none while an object has it.
    pub(crate) fn pools_to_give(&self, ip: IpAddr) -> impl Iterator<Item = &Arc<str>> {
        let free = self.used.is_free(ip);
        self.pools.iter().filter(move |pool| free && pool.lists(ip)).map(|pool| &pool.name)
    }

    /// Releases addresses that the Service gives up, and those that gateway nodes no longer have. Called for every request of a
    /// pass before any [`Self::assign`], so that the order of requests does not decide whether a released address can be
    /// allocated again.
    pub(crate) fn prune(&mut self, request: &Request<'_>) {
        if self.held(request.key).is_empty() {
            return;
        }
        let usable = self.usable(request);
        let kept = if request.addresses.is_empty() {
            self.kept(request, &usable)
        } else {
            let (given, held) = (self.by_value(request, &usable).addresses, self.held(request.key));
            if given.iter().any(|ip| !held.contains(ip)) {
                // Another Service may get the new address first, so keep the current one until the new one is held.
                return;
            }
            held.iter().copied().filter(|ip| given.contains(ip)).collect()
        };
        if kept != self.held(request.key) {
            self.hold(request.key, kept);
        }
    }

    /// Allocates missing addresses and returns all addresses of the Service.
    pub(crate) fn assign(&mut self, request: &Request<'_>) -> Assignment {
        let usable = self.usable(request);
        let mut assignment = if request.addresses.is_empty() {
            self.automatic(request, &usable)
        } else {
            self.by_value(request, &usable)
        };
        // In the order of the status that the next process begins with: it says the same.
        let in_order: BTreeSet<IpAddr> = assignment.addresses.iter().copied().collect();
        for ip in in_order {
            if let Retention::Reserved(reservation) = self.standing(ip, request, &usable) {
                assignment.reserve(ip, reservation);
            } else if let Some(pool) = self.closed_to(ip, request) {
                assignment.reserve(ip, Reservation::Shared(pool.name.clone()));
                assignment.demand.addresses.push(ip);
            }
        }
        self.hold(request.key, assignment.addresses.clone());
        assignment
    }

    /// Indexes of the pools that the Service may use, whether their addresses are free or not.
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
}

#[cfg(test)]
mod tests;
