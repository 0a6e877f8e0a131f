//! Failure counts of endpoints, for scrapes on any thread. An endpoint has an entry from its first failure until no frontend of its
//! Service port has it any more, so a healthy table takes no memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sheave_model::{EndpointAddr, ServicePort};

use super::reports::EndpointKey;

/// Failure counts of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Failed connections, and ICMP errors for datagrams, while the endpoint was not known to be unhealthy.
    pub failures: u64,
    /// Number of times that failures ejected it.
    pub ejections: u64,
}

/// Failure counts by Service port and address.
#[derive(Debug, Default)]
pub struct EndpointFailures(Mutex<HashMap<EndpointKey, EndpointCounts>>);

impl EndpointFailures {
    /// Counts of one endpoint of a Service port.
    pub fn of(&self, service: &ServicePort, addr: EndpointAddr) -> EndpointCounts {
        let all = self.all();
        if all.is_empty() {
            return EndpointCounts::default();
        }
        let key = EndpointKey { service: service.clone(), addr };
        all.get(&key).copied().unwrap_or_default()
    }

    pub(super) fn add_failure(&self, key: &EndpointKey) {
        self.add(key, |counts| &mut counts.failures);
    }

    pub(super) fn add_ejection(&self, key: &EndpointKey) {
        self.add(key, |counts| &mut counts.ejections);
    }

    /// Removes an endpoint that no longer serves its Service port.
    pub(super) fn remove(&self, key: &EndpointKey) {
        self.all().remove(key);
    }

    fn add(&self, key: &EndpointKey, count: impl FnOnce(&mut EndpointCounts) -> &mut u64) {
        *count(self.all().entry(key.clone()).or_default()) += 1;
    }

    fn all(&self) -> MutexGuard<'_, HashMap<EndpointKey, EndpointCounts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use sheave_model::{Algorithm, test_util};

    use super::*;

    #[test]
    fn each_service_port_counts_for_itself_until_its_endpoint_leaves() {
        let failures = EndpointFailures::default();
        let addr = test_util::endpoint_addr(1);
        let [one, other] = [1, 2].map(|number| test_util::frontend(number, Algorithm::Random, &[]).service);
        let key = EndpointKey { service: one.clone(), addr };
        for _ in 0..2 {
            failures.add_failure(&key);
        }
        failures.add_ejection(&key);
        assert_eq!(failures.of(&one, addr), EndpointCounts { failures: 2, ejections: 1 });
        assert_eq!(failures.of(&other, addr), EndpointCounts::default());
        failures.remove(&key);
        assert_eq!(failures.of(&one, addr), EndpointCounts::default());
        assert!(failures.all().is_empty());
    }
}
