//! Addresses for Services that request any: existing ones stay, and missing ones come from the pools in their order.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::assignment::{Assignment, Demand, Reservation, Shortfall};
use super::pool::{NodeGroup, Pool};
use super::retention::Retention;
use super::{Allocator, Request, Uncovered};
use crate::net::Family;

impl Allocator {
    /// The pool and family of the addresses that are allocated together with `ip`, if that is a gateway node's and no pool lists it.
    pub(super) fn group(&self, ip: IpAddr, usable: &[usize]) -> Option<NodeGroup> {
        if usable.iter().any(|&pool| self.pools[pool].lists(ip)) {
            return None;
        }
        let pool = usable.iter().copied().find(|&pool| self.pools[pool].is_of_node(ip))?;
        Some((pool, Family::of(ip)))
    }

    /// Keeps the Service's addresses with their companions, and adds one address, or those of gateway nodes, for each missing
    /// family. Prefers pools that gave the other addresses, then pools that can give all missing ones.
    pub(super) fn automatic(
        &mut self,
        request: &Request<'_>,
        usable: &Result<Vec<usize>, Shortfall>,
    ) -> Assignment {
        let held = self.held(request.key).to_vec();
        let pools = match usable {
            Ok(pools) => pools.as_slice(),
            Err(shortfall) => {
                let has = |family: &Family| held.iter().any(|ip| Family::of(*ip) == *family);
                let lacks = !request.families.iter().all(has);
                let shortfalls = lacks.then(|| shortfall.clone()).into_iter().collect();
                return Assignment { addresses: held, shortfalls, ..Assignment::default() };
            }
        };
        let (old, mut addresses): (Vec<IpAddr>, Vec<IpAddr>) =
            held.into_iter().partition(|ip| self.is_to_be_replaced(*ip, request, usable));
        let mut known: HashSet<IpAddr> = addresses.iter().copied().collect();
        let mut groups = HashSet::new();
        for ip in addresses.clone() {
            // A Service may have hundreds of them, so each group is read once.
            let group = self.group(ip, pools).filter(|group| groups.insert(*group));
            if let Some((pool, family)) = group {
                let all = self.pools[pool].node_addresses(family, &request.nodes);
                addresses.extend(all.into_iter().filter(|other| known.insert(*other)));
            }
        }
        let lacks = |family: &Family| !addresses.iter().any(|ip| Family::of(*ip) == *family);
        let missing: Vec<Family> = request.families.iter().copied().filter(lacks).collect();
        let asked = self.in_order(request, pools, &addresses, &missing);
        let (mut shortfalls, mut demand) = (Vec::new(), Demand::default());
        for family in missing {
            let (used, nodes) = (&self.used, &request.nodes);
            let offers = asked.iter().map(|&pool| self.pools[pool].next(family, used, nodes));
            if let Some(offer) = offers.into_iter().find(|offer| !offer.is_empty()) {
                addresses.extend(offer);
                continue;
            }
            let exhausted = asked.iter().map(|&pool| &self.pools[pool]).filter(|pool| pool.serves(family));
            demand.any.extend(exhausted.map(|pool| (pool.name.clone(), family)));
            let before = addresses.len();
            addresses.extend(old.iter().filter(|ip| Family::of(**ip) == family));
            if addresses.len() == before {
                shortfalls.push(shortfall(request, family, &asked, &self.pools));
            }
        }
        Assignment { addresses, shortfalls, demand, ..Assignment::default() }
    }

    /// Whether this address is replaced as soon as another one is available.
    fn is_to_be_replaced(
        &self,
        ip: IpAddr,
        request: &Request<'_>,
        usable: &Result<Vec<usize>, Shortfall>,
    ) -> bool {
        match self.standing(ip, request, usable) {
            Retention::Reserved(Reservation::OfOtherPool { .. }) => true,
            Retention::Reserved(Reservation::NotInPool | Reservation::NotAdmitted(_)) => {
                request.uncovered == Uncovered::Replaced
            }
            Retention::Reserved(_) | Retention::Covered | Retention::Gone => false,
        }
    }

    /// The pools to try for the missing families, in order.
    fn in_order(
        &mut self,
        request: &Request<'_>,
        usable: &[usize],
        addresses: &[IpAddr],
        missing: &[Family],
    ) -> Vec<usize> {
        let (used, pools) = (&self.used, &mut self.pools);
        let asked = |pool: &usize| request.pool.is_some() || pools[*pool].auto_assigns();
        let mut asked: Vec<usize> = usable.iter().copied().filter(asked).collect();
        asked.sort_by_cached_key(|&pool| {
            let gave_before = addresses.iter().any(|ip| pools[pool].contains(*ip));
            let gives = |family: &Family| !pools[pool].next(*family, used, &request.nodes).is_empty();
            let gives_all = missing.iter().all(gives);
            (!gave_before, !gives_all)
        });
        asked
    }
}

/// The shortfall of a family. It lists the pools in their own order, because the order of the attempts depends on the Service's
/// earlier addresses.
fn shortfall(request: &Request<'_>, family: Family, asked: &[usize], pools: &[Pool]) -> Shortfall {
    let asked: BTreeSet<usize> = asked.iter().copied().collect();
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
