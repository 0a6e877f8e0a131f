//! Addresses that Services ask for by value: which of them a Service may share with others, and how many it may have. What a Service has
//! stays with it whatever the rules say today, for clients use it.

use std::net::IpAddr;

use super::assignment::{Assignment, Refusal, Reservation, Shortfall};
use super::pool::Pool;
use super::retention::Retention;
use super::{Allocator, Request, Uncovered};
use crate::net::Family;

impl Allocator {
    /// What the Service gets of the addresses that it asks for; `usable` are the pools that it may use.
    pub(super) fn by_value(
        &self,
        request: &Request<'_>,
        usable: &Result<Vec<usize>, Shortfall>,
    ) -> Assignment {
        let pools = usable.as_deref().unwrap_or_default();
        let held = self.held(request.key);
        let mut given = self.given_by_value(request, pools);
        let mut assignment = Assignment::default();
        let mut seen = vec![0; self.pools.len()];
        let mut refused = Vec::new();
        for ip in request.addresses.iter().copied() {
            if held.contains(&ip) && self.standing(ip, request, usable) != Retention::Gone {
                if let Some(pool) = self.listing(ip, pools) {
                    seen[pool] += 1;
                    let Pool { name, most_per_service: most, .. } = &self.pools[pool];
                    if seen[pool] > *most {
                        assignment.reserve(ip, Reservation::TooMany { pool: name.clone(), most: *most });
                    }
                }
                assignment.addresses.push(ip);
                continue;
            }
            match self.grant(ip, request, pools, &given) {
                Ok(pool) => {
                    pool.into_iter().for_each(|pool| given[pool] += 1);
                    assignment.addresses.push(ip);
                }
                Err(_) => refused.push(ip),
            }
        }
        // The reason is found with all that it has now, as when it requests them again.
        for ip in refused {
            if let Err(refusal) = self.grant(ip, request, pools, &given) {
                assignment.refuse(ip, refusal);
            }
        }
        if let Err(shortfall) = usable
            && !assignment.shortfalls.is_empty()
        {
            assignment.shortfalls = vec![shortfall.clone()];
        }
        let instead = self.instead(request, &assignment.addresses);
        assignment.addresses.extend(instead);
        assignment
    }

    /// What the Service has of a family of which it asks for other addresses, and is given none: it stays.
    fn instead(&self, request: &Request<'_>, given: &[IpAddr]) -> Vec<IpAddr> {
        if request.uncovered == Uncovered::Dropped {
            return Vec::new();
        }
        let is_of = |family: Family| move |ip: &IpAddr| Family::of(*ip) == family;
        let in_vain = |ip: &IpAddr| {
            request.addresses.iter().any(is_of(Family::of(*ip))) && !given.iter().any(is_of(Family::of(*ip)))
        };
        self.held(request.key).iter().copied().filter(|ip| !given.contains(ip) && in_vain(ip)).collect()
    }

    /// How many of the addresses that it asks for the Service has already, by pool.
    fn given_by_value(&self, request: &Request<'_>, usable: &[usize]) -> Vec<u32> {
        let mut given = vec![0; self.pools.len()];
        for ip in self.held(request.key).iter().filter(|ip| request.addresses.contains(ip)) {
            if let Some(pool) = self.listing(*ip, usable) {
                given[pool] += 1;
            }
        }
        given
    }

    /// The pool that gives the address, if it is one of a pool and not a gateway node's.
    fn grant(
        &self,
        ip: IpAddr,
        request: &Request<'_>,
        usable: &[usize],
        given: &[u32],
    ) -> Result<Option<usize>, Refusal> {
        let Some(first) = self.listing(ip, usable) else {
            let of_node = usable.iter().any(|&pool| self.pools[pool].contains(ip));
            return if of_node { Ok(None) } else { Err(Refusal::NotInPool) };
        };
        let has_room = |&pool: &usize| {
            let Pool { most_per_service: most, .. } = &self.pools[pool];
            self.pools[pool].lists(ip) && given[pool] < *most
        };
        let Pool { name, most_per_service: most, .. } = &self.pools[first];
        let too_many = || Refusal::TooMany { pool: name.clone(), most: *most };
        // What depends on the Service alone comes first: others come and go.
        let pool = usable.iter().copied().find(has_room).ok_or_else(too_many)?;
        match self.closed_to(ip, request) {
            Some(pool) => Err(Refusal::InUse(pool.name.clone())),
            None => Ok(Some(pool)),
        }
    }

    /// The first of these pools that lists the address.
    fn listing(&self, ip: IpAddr, usable: &[usize]) -> Option<usize> {
        usable.iter().copied().find(|&pool| self.pools[pool].lists(ip))
    }

    /// A pool that keeps the address to another namespace, which had it first. Each pool that lists the address has to consent,
    /// since it may be another tenant's. Addresses of gateway nodes are in no list: they are everybody's.
    pub(super) fn closed_to(&self, ip: IpAddr, request: &Request<'_>) -> Option<&Pool> {
        let foreign = self.used.get(&ip).is_some_and(|it| it.is_foreign_to(&request.key.namespace));
        if !foreign {
            return None;
        }
        self.pools.iter().find(|pool| pool.lists(ip) && !pool.shares())
    }
}
