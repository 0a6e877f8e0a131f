//! Order in which Services get addresses, and the list of those that wait for addresses of others. A freed address causes work
//! only for Services that could take it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::allocator::{Allocator, Demand};
use super::plan::{Plan, Rank};
use crate::api::store::ServiceKey;
use crate::net::Family;

/// Order in which Services keep the addresses in their status. If several namespaces publish one address, the oldest Service has
/// it; a Service whose status reports a port as taken by another comes last.
pub(super) fn order_of_holders<'a>(plans: impl Iterator<Item = &'a Plan>) -> Vec<&'a Plan> {
    let mut plans: Vec<&Plan> = plans.collect();
    plans.sort_unstable_by_key(|plan| (plan.requests.status.lost_some, &plan.rank));
    plans
}

/// Order in which Services are allocated addresses: first those that request them by value, so that no other Service gets these;
/// within each group by age.
pub(super) fn order_of_requests<'a>(plans: impl Iterator<Item = &'a Plan>) -> Vec<&'a Plan> {
    let mut plans: Vec<&Plan> = plans.collect();
    plans.sort_unstable_by_key(|plan| (plan.requests.addresses.is_empty(), &plan.rank));
    plans
}

/// A pool, and a family in which it is exhausted.
type Shortage = (Arc<str>, Family);

/// All waiting Services.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitList {
    services: HashMap<ServiceKey, (Rank, Demand)>,
    for_any: BTreeMap<Shortage, BTreeSet<Rank>>,
    for_one: BTreeMap<IpAddr, BTreeSet<Rank>>,
}

impl WaitList {
    /// Sets what a Service waits for.
    pub(super) fn set(&mut self, rank: &Rank, demand: &Demand) {
        if self.services.get(&rank.key).is_some_and(|(known, before)| known == rank && before == demand) {
            return;
        }
        self.remove(&rank.key);
        if *demand == Demand::default() {
            return;
        }
        for shortage in &demand.any {
            self.for_any.entry(shortage.clone()).or_default().insert(rank.clone());
        }
        for ip in &demand.addresses {
            self.for_one.entry(*ip).or_default().insert(rank.clone());
        }
        self.services.insert(rank.key.clone(), (rank.clone(), demand.clone()));
    }

    /// Removes a Service from the list.
    pub(super) fn remove(&mut self, key: &ServiceKey) {
        let Some((rank, demand)) = self.services.remove(key) else { return };
        for shortage in &demand.any {
            leave(&mut self.for_any, shortage, &rank);
        }
        for ip in &demand.addresses {
            leave(&mut self.for_one, ip, &rank);
        }
    }

    /// Services to try again for the addresses in `freed` that are still free: all that want one of them, and of those that want
    /// any address as many as there are. Leaves out those in `asked`.
    pub(super) fn next(
        &self,
        freed: &BTreeSet<IpAddr>,
        asked: &BTreeSet<ServiceKey>,
        allocator: &Allocator,
    ) -> BTreeSet<ServiceKey> {
        let unasked = |rank: &&Rank| !asked.contains(&rank.key);
        let mut next = BTreeSet::new();
        let mut free: BTreeMap<Shortage, usize> = BTreeMap::new();
        for ip in freed {
            let for_it = self.for_one.get(ip).into_iter().flatten();
            next.extend(for_it.filter(unasked).map(|rank| rank.key.clone()));
            for pool in allocator.pools_to_give(*ip) {
                *free.entry((pool.clone(), Family::of(*ip))).or_default() += 1;
            }
        }
        for (shortage, count) in free {
            let first = self.for_any.get(&shortage).into_iter().flatten().filter(unasked).take(count);
            next.extend(first.map(|rank| rank.key.clone()));
        }
        next
    }
}

fn leave<K: Ord>(queues: &mut BTreeMap<K, BTreeSet<Rank>>, of: &K, rank: &Rank) {
    if let Some(queue) = queues.get_mut(of) {
        queue.remove(rank);
        if queue.is_empty() {
            queues.remove(of);
        }
    }
}
