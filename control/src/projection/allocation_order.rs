//! The order in which Services get addresses, and those that wait for addresses which others have. A freed address costs only the
//! Services that could take it, not all that wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::allocator::{Allocator, Demand};
use super::plan::{Plan, Rank};
use crate::api::store::ServiceKey;
use crate::net::Family;

/// The order in which Services keep what their status publishes: where several namespaces publish one address, the oldest
/// Service has it, and one whose status says that another has a port of it comes last.
pub(super) fn of_holders<'a>(plans: impl Iterator<Item = &'a Plan>) -> Vec<&'a Plan> {
    let mut plans: Vec<&Plan> = plans.collect();
    plans.sort_unstable_by_key(|plan| (plan.requests.status.lost_some, &plan.rank));
    plans
}

/// The order in which Services are given addresses: those that request them by value first, so that none is given away to a
/// Service that would take any; among each the oldest.
pub(super) fn of_requests<'a>(plans: impl Iterator<Item = &'a Plan>) -> Vec<&'a Plan> {
    let mut plans: Vec<&Plan> = plans.collect();
    plans.sort_unstable_by_key(|plan| (plan.requests.addresses.is_empty(), &plan.rank));
    plans
}

/// A pool, and the family of which it has no address left.
type Shortage = (Arc<str>, Family);

/// All who wait.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitList {
    services: HashMap<ServiceKey, (Rank, Demand)>,
    for_any: BTreeMap<Shortage, BTreeSet<Rank>>,
    for_one: BTreeMap<IpAddr, BTreeSet<Rank>>,
}

impl WaitList {
    /// What a Service waits for from now on.
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

    /// It waits for nothing.
    pub(super) fn remove(&mut self, key: &ServiceKey) {
        let Some((rank, demand)) = self.services.remove(key) else { return };
        for shortage in &demand.any {
            leave(&mut self.for_any, shortage, &rank);
        }
        for ip in &demand.addresses {
            leave(&mut self.for_one, ip, &rank);
        }
    }

    /// Whom to ask for the addresses of `freed` that are free still: all who want one of them, and of those who want any as many
    /// as there are. Not those who were `asked` before.
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
