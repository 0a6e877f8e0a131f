//! Endpoints that each Service port serves, counted by frontend.

use std::collections::HashMap;

use sheave_model::{EndpointAddr, Frontend, ServicePort};

use super::active_checks::endpoints;
use super::reports::EndpointKey;

/// The endpoints of all frontends of the table.
#[derive(Debug, Default)]
pub(super) struct Serving(HashMap<ServicePort, FrontendCounts>);

/// Number of frontends of one Service port that have each endpoint; never 0.
type FrontendCounts = HashMap<EndpointAddr, u32, foldhash::fast::RandomState>;

impl Serving {
    /// Adds a new frontend, or the new state of a changed one.
    pub(super) fn add(&mut self, frontend: &Frontend) {
        for pool in frontend.pools() {
            let mut endpoints = endpoints(pool).peekable();
            if endpoints.peek().is_some() {
                let counts = self.0.entry(pool.service.clone()).or_default();
                endpoints.for_each(|addr| *counts.entry(addr).or_default() += 1);
            }
        }
    }

    /// Removes a departed frontend, or the former state of a changed one. Returns the endpoints that no frontend of the
    /// Service port has any more.
    pub(super) fn remove(&mut self, frontend: &Frontend) -> Vec<EndpointKey> {
        let mut left = Vec::new();
        for pool in frontend.pools() {
            let Some(counts) = self.0.get_mut(&pool.service) else { continue };
            for addr in endpoints(pool) {
                let Some(count) = counts.get_mut(&addr) else { continue };
                *count -= 1;
                if *count == 0 {
                    counts.remove(&addr);
                    left.push(EndpointKey { service: pool.service.clone(), addr });
                }
            }
            if counts.is_empty() {
                self.0.remove(&pool.service);
            }
        }
        left
    }

    /// Whether any frontend of the Service port has the endpoint.
    pub(super) fn contains(&self, EndpointKey { service, addr }: &EndpointKey) -> bool {
        self.0.get(service).is_some_and(|counts| counts.contains_key(addr))
    }
}

#[cfg(test)]
mod tests {
    use sheave_model::{Algorithm, FrontendAddr, test_util};

    use super::*;

    #[test]
    fn an_endpoint_is_served_until_the_last_frontend_of_its_service_port_has_lost_it() {
        let mut serving = Serving::default();
        let first = test_util::frontend(1, Algorithm::Random, &[(1, 100), (2, 100)]);
        let second = test_util::frontend(1, Algorithm::Random, &[(2, 100)]);
        let second = Frontend { addr: FrontendAddr { port: 81, ..second.addr }, ..second };
        let other = test_util::frontend(2, Algorithm::Random, &[(1, 100)]);
        assert_ne!(other.service, first.service);
        let key =
            |number| EndpointKey { service: first.service.clone(), addr: test_util::endpoint_addr(number) };
        [&first, &second, &other].iter().for_each(|frontend| serving.add(frontend));
        assert_eq!(serving.remove(&first), [key(1)]);
        assert_eq!([1, 2].map(|number| serving.contains(&key(number))), [false, true]);
        assert_eq!(serving.remove(&second), [key(2)]);
        assert_eq!(serving.remove(&other).len(), 1);
        assert!(serving.0.is_empty());
        serving.add(&test_util::frontend(1, Algorithm::Random, &[]));
        assert!(serving.0.is_empty());
    }
}
