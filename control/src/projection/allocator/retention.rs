//! Retention of a Service's address after the pools or the request have changed. Clients use the address, so only an explicit
//! request releases it, and not an edit of a pool or a mistake in an annotation.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use super::assignment::{Reservation, Shortfall};
use super::pool::{Admission, NodeGroup, Pool, UsableNodes};
use super::{Allocator, Request, Uncovered};
use crate::net::Family;

/// Whether and why a Service keeps an address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Retention {
    /// A pool that the Service may use has the address.
    Covered,
    /// The address stays, although it would not be allocated today.
    Reserved(Reservation),
    /// The address is released: the Service requests another family, or it was a gateway node's.
    Gone,
}

impl Allocator {
    /// Decides about an address that the Service has; `usable` are the pools that it may use.
    pub(super) fn standing(
        &self,
        ip: IpAddr,
        request: &Request<'_>,
        usable: &Result<Vec<usize>, Shortfall>,
    ) -> Retention {
        let by_value = !request.addresses.is_empty();
        if by_value && !request.addresses.contains(&ip) {
            return Retention::Reserved(Reservation::Refused);
        }
        if !by_value && !request.families.contains(&Family::of(ip)) {
            return Retention::Gone;
        }
        let pools = usable.as_deref().unwrap_or_default();
        if pools.iter().any(|&pool| self.pools[pool].contains(ip)) {
            return Retention::Covered;
        }
        if request.uncovered == Uncovered::Dropped {
            return Retention::Gone;
        }
        self.uncovered(ip, request, usable).map_or(Retention::Gone, Retention::Reserved)
    }

    /// The reason to keep an address that no usable pool has; `None` releases it.
    fn uncovered(
        &self,
        ip: IpAddr,
        request: &Request<'_>,
        usable: &Result<Vec<usize>, Shortfall>,
    ) -> Option<Reservation> {
        if self.pools.is_empty() {
            return Some(Reservation::NoPools);
        }
        let named = |pool: &&Pool| request.pool.is_some_and(|name| *pool.name == *name);
        let unknown =
            |pool: &&Pool| (pool.contains(ip) || named(pool)) && pool.admits(request) == Admission::Unknown;
        if let Some(pool) = self.pools.iter().find(unknown) {
            return Some(Reservation::NamespaceUnknown(pool.name.clone()));
        }
        let usable = match usable {
            Ok(usable) => usable,
            Err(shortfall) => return Some(Reservation::NoAccess(shortfall.clone())),
        };
        if let Some(pool) = self.pools.iter().find(|pool| pool.contains(ip)) {
            let of = pool.name.clone();
            return Some(match request.pool {
                // By naming another existing pool, the Service requests a move as soon as that pool has an address.
                Some(named) => Reservation::OfOtherPool { named: named.into(), of },
                None => Reservation::NotAdmitted(of),
            });
        }
        let of_nodes = self.node_families(request.key).has(Family::of(ip));
        if of_nodes && usable.iter().any(|&pool| self.gives_nodes(pool, request)) {
            return matches!(request.nodes, UsableNodes::Unknown).then_some(Reservation::NoGateway);
        }
        Some(Reservation::NotInPool)
    }

    /// Whether the Service may get addresses of gateway nodes from the pool, which come and go with their nodes.
    fn gives_nodes(&self, pool: usize, request: &Request<'_>) -> bool {
        let pool = &self.pools[pool];
        let asked = request.pool.is_some() || !request.addresses.is_empty() || pool.auto_assigns();
        pool.is_from_nodes() && asked
    }

    /// Addresses that a Service which requests any address keeps: all reserved ones, and of those in pools the first of each
    /// family, or all of gateway nodes.
    pub(super) fn kept(&self, request: &Request<'_>, usable: &Result<Vec<usize>, Shortfall>) -> Vec<IpAddr> {
        let pools = usable.as_deref().unwrap_or_default();
        let mut kept = Vec::new();
        let mut first_covered: BTreeMap<Family, IpAddr> = BTreeMap::new();
        let mut groups: BTreeMap<NodeGroup, HashSet<IpAddr>> = BTreeMap::new();
        for ip in self.held(request.key).iter().copied() {
            let first = first_covered.get(&Family::of(ip));
            let stays = match self.standing(ip, request, usable) {
                Retention::Gone => false,
                Retention::Reserved(_) => true,
                Retention::Covered => {
                    let stays = match self.group(ip, pools) {
                        Some(group) => {
                            let (pool, family) = group;
                            let read = || self.pools[pool].node_addresses(family, &request.nodes);
                            let all = groups.entry(group).or_insert_with(|| read().into_iter().collect());
                            all.contains(&ip) && first.is_none_or(|first| all.contains(first))
                        }
                        None => first.is_none(),
                    };
                    if stays {
                        first_covered.entry(Family::of(ip)).or_insert(ip);
                    }
                    stays
                }
            };
            kept.extend(stays.then_some(ip));
        }
        kept
    }
}
