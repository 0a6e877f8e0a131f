//! Holders of an address: the namespace that had it first, and the number of Services in each namespace that have it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// All addresses that objects have.
#[derive(Clone, Debug, Default)]
pub(super) struct UsedAddresses {
    /// Addresses of our Services.
    holders: HashMap<IpAddr, Holders>,
    /// Addresses that other load balancers publish, with the namespaces of the objects. Each of these namespaces may request such an
    /// address by value, because a Service that moves to Sheave takes its address along.
    foreign: HashMap<IpAddr, Holders>,
}

impl UsedAddresses {
    /// Addresses that objects have, each once.
    pub(super) fn all(&self) -> impl Iterator<Item = IpAddr> {
        let only_foreign = self.foreign.keys().filter(|ip| !self.holders.contains_key(ip));
        self.holders.keys().chain(only_foreign).copied()
    }

    /// Whether a Service that requests any address can get this one.
    pub(super) fn is_free(&self, ip: IpAddr) -> bool {
        !self.holders.contains_key(&ip) && !self.foreign.contains_key(&ip)
    }

    /// The Services of ours that have the address.
    pub(super) fn holders(&self, ip: IpAddr) -> Option<&Holders> {
        self.holders.get(&ip)
    }

    /// Adds a Service of the namespace. Returns whether the address was free.
    pub(super) fn add(&mut self, ip: IpAddr, namespace: &Arc<str>) -> bool {
        let was_free = self.is_free(ip);
        add(&mut self.holders, ip, namespace);
        was_free
    }

    /// Removes a Service of the namespace; `None` if none has the address.
    pub(super) fn remove(&mut self, ip: IpAddr, namespace: &Arc<str>) -> Option<Remaining> {
        remove(&mut self.holders, ip, namespace)
    }

    /// Adds an object of another load balancer. Returns whether the address was free.
    pub(super) fn add_foreign(&mut self, ip: IpAddr, namespace: &Arc<str>) -> bool {
        let was_free = self.is_free(ip);
        add(&mut self.foreign, ip, namespace);
        was_free
    }

    /// Removes an object of another load balancer.
    pub(super) fn remove_foreign(&mut self, ip: IpAddr, namespace: &Arc<str>) {
        remove(&mut self.foreign, ip, namespace);
    }

    /// Whether only other load balancers have the address, and publish it for no object of the namespace.
    pub(super) fn is_foreign_to(&self, ip: IpAddr, namespace: &str) -> bool {
        let foreign = self.foreign.get(&ip).filter(|_| !self.holders.contains_key(&ip));
        foreign.is_some_and(|foreign| !foreign.include(namespace))
    }
}

fn add(all: &mut HashMap<IpAddr, Holders>, ip: IpAddr, namespace: &Arc<str>) {
    match all.entry(ip) {
        Entry::Occupied(mut holders) => holders.get_mut().add(namespace),
        Entry::Vacant(place) => {
            place.insert(Holders::new(namespace));
        }
    }
}

fn remove(all: &mut HashMap<IpAddr, Holders>, ip: IpAddr, namespace: &Arc<str>) -> Option<Remaining> {
    let remaining = all.get_mut(&ip)?.remove(namespace);
    if remaining == Remaining::Nobody {
        all.remove(&ip);
    }
    Some(remaining)
}

/// Namespaces whose Services have an address. There is nearly always one, which needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holders {
    /// Namespace of the Service that had the address first. Other namespaces need the pool's consent.
    owner: Arc<str>,
    /// Number of Services in the owner's namespace that have it.
    services: u32,
    others: BTreeMap<Arc<str>, u32>,
}

/// Effect of a Service's release of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Remaining {
    /// No Service has the address any longer.
    Nobody,
    /// Services of fewer namespaces have the address than before.
    FewerNamespaces,
    /// Services of the same number of namespaces have the address.
    SameNamespaces,
}

impl Holders {
    /// Holders with a single Service.
    pub(super) fn new(namespace: &Arc<str>) -> Self {
        Self { owner: namespace.clone(), services: 1, others: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, namespace: &Arc<str>) {
        if *namespace == self.owner {
            self.services += 1;
        } else {
            *self.others.entry(namespace.clone()).or_default() += 1;
        }
    }

    /// Removes one Service of the namespace. After the owner's last Service, the first of the other namespaces by name becomes
    /// the owner.
    pub(super) fn remove(&mut self, namespace: &Arc<str>) -> Remaining {
        let left = if *namespace == self.owner {
            self.services = self.services.saturating_sub(1);
            self.services
        } else {
            self.others.get_mut(namespace).map_or(0, |services| {
                *services = services.saturating_sub(1);
                *services
            })
        };
        if left > 0 {
            return Remaining::SameNamespaces;
        }
        self.others.remove(namespace);
        if *namespace != self.owner {
            return Remaining::FewerNamespaces;
        }
        match self.others.pop_first() {
            Some((owner, services)) => {
                (self.owner, self.services) = (owner, services);
                Remaining::FewerNamespaces
            }
            None => Remaining::Nobody,
        }
    }

    /// Whether another namespace had the address first.
    pub(super) fn is_foreign_to(&self, namespace: &str) -> bool {
        *self.owner != *namespace
    }

    /// Whether an object of the namespace has the address.
    fn include(&self, namespace: &str) -> bool {
        *self.owner == *namespace || self.others.contains_key(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_namespace_owns_an_address_until_its_last_service_leaves() {
        let [a, b, c] = ["a", "b", "c"].map(Arc::from);
        let mut holders = Holders::new(&b);
        [&c, &a, &b].into_iter().for_each(|namespace| holders.add(namespace));
        assert!(holders.is_foreign_to("a") && !holders.is_foreign_to("b"));
        assert_eq!(holders.remove(&b), Remaining::SameNamespaces);
        assert_eq!(holders.remove(&b), Remaining::FewerNamespaces);
        assert!(!holders.is_foreign_to("a") && holders.is_foreign_to("b"));
        assert_eq!(holders.remove(&c), Remaining::FewerNamespaces);
        assert_eq!(holders.remove(&a), Remaining::Nobody);
    }
}
