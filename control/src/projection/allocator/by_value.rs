//! Addresses that Services request by value: whether a Service may share one with others, and how many it may have. Existing
//! addresses stay whatever the rules are today, because clients use them.

use std::net::IpAddr;

use super::assignment::{Assignment, Refusal, Reservation, Shortfall};
use super::pool::Pool;
use super::retention::Retention;
use super::{Allocator, Request, Uncovered};
use crate::net::Family;

impl Allocator {
    /// The addresses of the request that the Service gets; `usable` are the pools that it may use.
    pub(super) fn by_value(
        &self,
        request: &Request<'_>,
        usable: &Result<Vec<usize>, Shortfall>,
    ) -> Assignment {
        let pools = usable.as_deref().unwrap_or_default();
        let held = self.held(request.key);
        let (mut given, beyond) = self.given_by_value(request, pools);
        let mut assignment = Assignment::default();
        let mut refused = Vec::new();
        for ip in request.addresses.iter().copied() {
            if held.contains(&ip) && self.standing(ip, request, usable) != Retention::Gone {
                if let Some((_, pool)) = beyond.iter().find(|(it, _)| *it == ip) {
                    let Pool { name, most_per_service: most, .. } = &self.pools[*pool];
                    assignment.reserve(ip, Reservation::TooMany { pool: name.clone(), most: *most });
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
        // Determine the reason with all addresses that were granted, so that a repeated request has the same one.
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

    /// Existing addresses of families in which the Service requests other addresses and gets none. They stay.
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

    /// How many of the requested addresses the Service already has, by the pool that they count for, and those that are beyond what
    /// their pools give one Service, with the first of these pools. In the order of the request, so that an address counts for the pool that gave it.
    fn given_by_value(&self, request: &Request<'_>, usable: &[usize]) -> (Vec<u32>, Vec<(IpAddr, usize)>) {
        let held = self.held(request.key);
        let (mut given, mut beyond) = (vec![0; self.pools.len()], Vec::new());
        for ip in request.addresses.iter().copied().filter(|ip| held.contains(ip)) {
            let Some(first) = self.listing(ip, usable) else { continue };
            match self.with_room(ip, usable, &given) {
                Some(pool) => given[pool] += 1,
                None => beyond.push((ip, first)),
            }
        }
        (given, beyond)
    }

    /// The first of these pools that lists the address and has not given the Service all that it may.
    fn with_room(&self, ip: IpAddr, usable: &[usize], given: &[u32]) -> Option<usize> {
        let has_room =
            |&pool: &usize| self.pools[pool].lists(ip) && given[pool] < self.pools[pool].most_per_service;
        usable.iter().copied().find(has_room)
    }

    /// Grants the address. Returns the pool that lists it; `None` for an address of a gateway node.
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
        let Pool { name, most_per_service: most, .. } = &self.pools[first];
        let too_many = || Refusal::TooMany { pool: name.clone(), most: *most };
        // Check first what depends only on the Service, because other Services come and go.
        let pool = self.with_room(ip, usable, given).ok_or_else(too_many)?;
        if let Some(closed) = self.closed_to(ip, request) {
            return Err(Refusal::InUse(closed.name.clone()));
        }
        match self.closed_by_foreign(ip, request) {
            Some(closed) => Err(Refusal::Foreign(closed.name.clone())),
            None => Ok(Some(pool)),
        }
    }

    /// The first of these pools that lists the address.
    fn listing(&self, ip: IpAddr, usable: &[usize]) -> Option<usize> {
        usable.iter().copied().find(|&pool| self.pools[pool].lists(ip))
    }

    /// A pool that denies the address to this namespace because another one had it first. Every pool that lists the address must
    /// consent, since each may belong to another tenant. Addresses of gateway nodes are not listed and are open to all.
    pub(super) fn closed_to(&self, ip: IpAddr, request: &Request<'_>) -> Option<&Pool> {
        let foreign = self.used.holders(ip).is_some_and(|it| it.is_foreign_to(&request.key.namespace));
        if foreign { self.unshared(ip) } else { None }
    }

    /// The first pool that lists the address and does not share it between namespaces.
    pub(super) fn unshared(&self, ip: IpAddr) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.lists(ip) && !pool.shares())
    }
}
