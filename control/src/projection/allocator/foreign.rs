//! Addresses that objects of other load balancers publish. Automatic allocation leaves them out. An object of the same namespace may
//! request such an address by value, as on a move to Sheave; for other namespaces it is another tenant's, like one of a Service of ours.
//!
//! Many controllers of Gateways create a Service, which another load balancer gives an address, and copy that address into the status of
//! the Gateway. The Service may be ours. Then the Gateway has the address only from us, and it must keep the address neither from that
//! Service, if it is created anew, nor from anyone else. A Gateway whose controller gives addresses by itself is different: what it
//! publishes is in use.

use std::net::IpAddr;

use sheave_model::FrontendSource;

use super::pool::Pool;
use super::{Allocator, Request};
use crate::api::store::ServiceKey;

impl Allocator {
    /// Records the addresses that an object of another load balancer publishes, so that only requests by value get them, and
    /// those only from its namespace. Called once the addresses of our own Services are held, because those that a Gateway copies are not its own.
    pub(crate) fn set_foreign(&mut self, key: &ServiceKey, mut addresses: Vec<IpAddr>) {
        let copied = self.copies(key, &addresses);
        addresses.retain(|ip| !copied.contains(ip));
        if copied.is_empty() {
            self.copied.remove(key);
        } else {
            self.copied.insert(key.clone(), copied);
        }
        if self.foreign.get(key).map_or(&[][..], Vec::as_slice) == addresses {
            return;
        }
        for ip in &addresses {
            if self.used.add_foreign(*ip, &key.namespace) {
                self.pools.iter_mut().for_each(|pool| pool.taken(*ip));
            } else {
                // Services of its namespace may request the address now, which another one alone had before.
                self.freed.push(*ip);
            }
        }
        for ip in self.foreign.remove(key).into_iter().flatten() {
            self.used.remove_foreign(ip, &key.namespace);
            self.offer_if_free(ip);
        }
        if !addresses.is_empty() {
            self.foreign.insert(key.clone(), addresses);
        }
    }

    /// A pool that denies the address to this namespace because another load balancer publishes it for others. As with addresses of our
    /// own Services, every pool that lists the address must consent.
    pub(super) fn closed_by_foreign(&self, ip: IpAddr, request: &Request<'_>) -> Option<&Pool> {
        if self.used.is_foreign_to(ip, &request.key.namespace) { self.unshared(ip) } else { None }
    }

    /// Addresses among these that a Gateway of another controller has copied: a Service of ours had them when the Gateway came to
    /// publish them. This is decided once for as long as the Gateway publishes the address: a copy remains one after its Service has
    /// gone, and an address of the Gateway's own does not become a copy when a Service asks for it by value. After a start the order is
    /// unknown, and an address that a Service publishes as well counts as copied.
    fn copies(&self, key: &ServiceKey, published: &[IpAddr]) -> Vec<IpAddr> {
        if key.source != FrontendSource::Gateway {
            return Vec::new();
        }
        let [copied, own] =
            [&self.copied, &self.foreign].map(|all| all.get(key).map_or(&[][..], Vec::as_slice));
        let is_copy = |ip: &&IpAddr| copied.contains(ip) || (!own.contains(ip) && self.is_of_service(**ip));
        published.iter().filter(is_copy).copied().collect()
    }

    /// Whether a Service or MultiClusterService of ours has the address, or has it reserved. No controller copies those of our Gateways.
    fn is_of_service(&self, ip: IpAddr) -> bool {
        let mut all = self.held.iter().chain(&self.reserved);
        self.is_used(ip) && all.any(|(key, has)| key.source != FrontendSource::Gateway && has.contains(&ip))
    }
}
